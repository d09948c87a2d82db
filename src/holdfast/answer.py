"""What an analyst gets: a value, an interval for the population, what it cost, and why it may be believed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from holdfast.ledger import Entry
from holdfast.planning import Plan


@dataclass(frozen=True)
class Answer:
    """One number about the population. `low` and `high` hold for all answers of the dataset at once.

    `cost` is in flips (fresh rows under the split guarantee). `seq` is its place in the ledger, `receipt` its
    fingerprint there; both are None for a dry run, whose numbers are made up.
    """

    value: float
    low: float
    high: float
    rows_read: int
    cost: int
    seq: int | None
    cached: bool
    guarantee: str
    receipt: str | None
    question: str
    confidence: float
    bounds: tuple[float, float] = (0.0, 1.0)

    @property
    def made_up(self) -> bool:
        """Whether this is a dry run, on invented rows."""
        return self.seq is None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "question": self.question,
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "confidence": self.confidence,
            "guarantee": self.guarantee,
            "bounds": list(self.bounds),
            "rows_read": self.rows_read,
            "cost": self.cost,
            "seq": self.seq,
            "cached": self.cached,
            "receipt": self.receipt,
            "made_up": self.made_up,
        }

    def rounded(self) -> tuple[str, str, str]:
        """Return value, low and high as text, with as many decimals as the interval deserves."""
        return _written(self, _digits(self))

    def __repr__(self) -> str:
        value, low, high = self.rounded()
        return f"{value}  [{low}, {high}]  {self._small_print()}"

    def _small_print(self) -> str:
        if self.made_up:
            return f"made up, nothing read or spent; {self.question}"
        read = "asked before, free" if self.cached else f"{self.rows_read:,} rows read"
        return f"{self.guarantee}, {read}, no. {self.seq}; {self.question}"

    def _repr_html_(self) -> str:
        return (
            f'<div style="font-variant-numeric:tabular-nums"><div>{escape(self.question)}</div>'
            f"{interval_bar(self)}<small>{escape(repr(self))}</small></div>"
        )


@dataclass(frozen=True)
class HistogramAnswer(Mapping[str, Answer]):
    """One answer per category, and one for `other`; the intervals hold simultaneously."""

    answers: tuple[tuple[str, Answer], ...]

    def __getitem__(self, category: Any) -> Answer:
        for label, answer in self.answers:
            if label == str(category):
                return answer
        raise KeyError(category)

    def __iter__(self) -> Iterator[str]:
        return iter([label for label, _ in self.answers])

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def cost(self) -> int:
        """What the whole histogram cost."""
        return self.answers[0][1].cost

    @property
    def rows_read(self) -> int:
        """Rows read for the whole histogram: one pass."""
        return self.answers[0][1].rows_read

    @property
    def cached(self) -> bool:
        """Whether the histogram was asked before."""
        return self.answers[0][1].cached

    @property
    def seq(self) -> int | None:
        """Its place in the ledger."""
        return self.answers[0][1].seq

    @property
    def receipt(self) -> str | None:
        """Its fingerprint in the ledger."""
        return self.answers[0][1].receipt

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"categories": [{"category": label} | answer.to_dict() for label, answer in self.answers]}

    def __repr__(self) -> str:
        width = max(len(label) for label in self)
        texts = [(label, *_written(answer, 4)) for label, answer in self.answers]
        rows = [f"{label.ljust(width)}  {value}  [{low}, {high}]" for label, value, low, high in texts]
        return "\n".join([*rows, self.answers[0][1]._small_print()])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(label)}</td><td>{answer.value:.4f}</td><td>{interval_bar(answer)}</td></tr>"
            for label, answer in self.answers
        )
        return f"<table>{rows}</table>"


@dataclass(frozen=True)
class FlipsAnswer:
    """Sampling counting queries: single coins, and the interval of their average."""

    bits: tuple[int, ...]
    average: Answer

    def __len__(self) -> int:
        return len(self.bits)

    def __iter__(self) -> Iterator[int]:
        return iter(self.bits)

    @property
    def rows_read(self) -> int:
        """Rows read for all the flips: one each."""
        return self.average.rows_read

    @property
    def cost(self) -> int:
        """What all the flips cost."""
        return self.average.cost

    @property
    def cached(self) -> bool:
        """Whether this is a first answer again, under its retry key."""
        return self.average.cached

    @property
    def seq(self) -> int | None:
        """Its place in the ledger."""
        return self.average.seq

    @property
    def receipt(self) -> str | None:
        """Its fingerprint in the ledger."""
        return self.average.receipt

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"bits": list(self.bits), "average": self.average.to_dict()}

    def __repr__(self) -> str:
        shown = "".join(map(str, self.bits[:40])) + ("..." if len(self.bits) > 40 else "")
        return f"{shown}\n{self.average!r}"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


@dataclass(frozen=True)
class MinimumAnswer:
    """A point of small population loss, the interval of its loss, and how far it can be from the best.

    `excess_bound` holds together with all intervals of the session, `expected_excess_bound` in expectation over the
    session and for a loss whose range was fixed before it; None where the session's guarantee has no such promise.
    `point` is in the scaled units of the loss, named by `names`.
    """

    point: tuple[float, ...]
    names: tuple[str, ...]
    loss: Answer
    excess_bound: float | None
    expected_excess_bound: float | None
    iterations: int
    gradient_evaluations: int

    @property
    def rows_read(self) -> int:
        """Rows read for the whole optimisation."""
        return self.loss.rows_read

    @property
    def cost(self) -> int:
        """What the whole optimisation cost."""
        return self.loss.cost

    @property
    def cached(self) -> bool:
        """Whether it was asked before."""
        return self.loss.cached

    @property
    def seq(self) -> int | None:
        """Its place in the ledger."""
        return self.loss.seq

    @property
    def receipt(self) -> str | None:
        """Its fingerprint in the ledger."""
        return self.loss.receipt

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "point": dict(zip(self.names, self.point, strict=True)),
            "loss": self.loss.to_dict(),
            "excess_bound": self.excess_bound,
            "expected_excess_bound": self.expected_excess_bound,
            "iterations": self.iterations,
            "gradient_evaluations": self.gradient_evaluations,
        }

    def __repr__(self) -> str:
        width = max(len(name) for name in self.names)
        shown = [f"{n.ljust(width)}  {x: .4f}" for n, x in zip(self.names[:20], self.point, strict=False)]
        if len(self.names) > 20:
            shown.append(f"and {len(self.names) - 20} more")
        said = "no bound on the excess"
        if self.excess_bound is not None:
            said = f"excess at most {self.excess_bound:.3g}"
        elif self.expected_excess_bound is not None:
            said = f"excess at most {self.expected_excess_bound:.3g} in expectation"
        return "\n".join([*shown, f"loss {self.loss!r}", f"{said}; {self.iterations:,} iterations"])

    def _repr_html_(self) -> str:
        pairs = zip(self.names, self.point, strict=True)
        rows = "".join(f"<tr><td>{escape(name)}</td><td>{x:.4f}</td></tr>" for name, x in pairs)
        return f"<table>{rows}</table>{self.loss._repr_html_()}"


AnyAnswer = Answer | HistogramAnswer | FlipsAnswer | MinimumAnswer


def from_entry(entry: Entry, plan: Plan, *, cached: bool) -> AnyAnswer:
    """Read an answer back from its ledger entry."""
    return from_body(
        entry.question,
        entry.answer,
        plan,
        rows_read=entry.rows_read,
        cost=entry.cost.flips,
        seq=entry.seq,
        receipt=f"{entry.seq}:{entry.hash}",
        cached=cached,
    )


def from_body(
    question: Mapping[str, Any],
    body: Mapping[str, Any],
    plan: Plan,
    *,
    rows_read: int,
    cost: int,
    seq: int | None = None,
    receipt: str | None = None,
    cached: bool = False,
) -> AnyAnswer:
    """Build the answer object of a question from its JSON body."""

    def answer(triple: list[float], text: str) -> Answer:
        value, low, high = triple
        first, last = body.get("bounds") or question.get("bounds", (0.0, 1.0))
        return Answer(
            value,
            low,
            high,
            rows_read=rows_read,
            cost=cost,
            seq=seq,
            cached=cached,
            guarantee=plan.guarantee,
            receipt=receipt,
            question=text,
            confidence=plan.confidence,
            bounds=(first, last),
        )

    text = str(question["text"])
    if "categories" in body:
        pairs = zip(body["categories"], body["estimates"], strict=True)
        return HistogramAnswer(tuple((label, answer(triple, text)) for label, triple in pairs))
    if "bits" in body:
        return FlipsAnswer(tuple(int(bit) for bit in body["bits"]), answer(body["estimate"], text))
    if "point" in body:
        return MinimumAnswer(
            tuple(map(float, body["point"])),
            tuple(body["names"]),
            answer(body["estimate"], text),
            body["excess_bound"],
            body["expected_excess_bound"],
            int(body["iterations"]),
            int(body["gradient_evaluations"]),
        )
    return answer(body["estimate"], text)


def _written(answer: Answer, digits: int) -> tuple[str, str, str]:
    """Write value, low and high; the ends outwards, because a promise is never rounded in its own favour."""
    value, low, high = (f"{x:.{digits}f}" for x in (answer.value, answer.low, answer.high))
    if float(low) > answer.low:
        low = f"{answer.low - 10.0**-digits:.{digits}f}"
    if float(high) < answer.high:
        high = f"{answer.high + 10.0**-digits:.{digits}f}"
    return value, low, high


def _digits(answer: Answer) -> int:
    """Return how many decimals an interval deserves: about two of them inside its width."""
    width, digits = answer.high - answer.low, 4
    while digits > 0 and width > 10.0 ** (2 - digits) * 5:
        digits -= 1
    return digits


def interval_bar(answer: Answer, width: int = 160) -> str:
    """Draw the interval inside the declared bounds as a small SVG."""
    low, high = answer.bounds
    span = (high - low) or 1.0
    a, v, b = (width * ((x - low) / span) for x in (answer.low, answer.value, answer.high))
    return (
        f'<svg width="{width + 2}" height="12" role="img" aria-label="{answer.value:g}, from {answer.low:g} to'
        f' {answer.high:g}"><rect x="1" y="5" width="{width}" height="2" fill="#ccc"/>'
        f'<rect x="{a + 1:.1f}" y="3" width="{max(1.0, b - a):.1f}" height="6" rx="2" fill="#0072b2"/>'
        f'<rect x="{v:.1f}" y="1" width="2" height="10" fill="#d55e00"/></svg>'
    )
