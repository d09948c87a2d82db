"""What all answers share: intervals, a record of where they come from, and how they print.

Every kind of question has an answer class, a subclass of `AnyAnswer`, with one JSON form: `result()` is what the ledger
stores and what is sent over the wire; `to_dict()` adds the record.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from html import escape
from math import isnan, nan
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from holdfast import notebook
from holdfast.errors import InvalidArgument, InvalidQuery
from holdfast.queries.node import time_literal
from holdfast.questions.estimate import TOO_FEW, Estimate, Interval, interval_bar, write_bound
from holdfast.questions.plot import Panel, Picture, Pictured, picture_lines
from holdfast.schema import Type

if TYPE_CHECKING:
    import polars as pl

LONGEST = 160  # characters of a question that are shown beside its answer


class Record(NamedTuple):
    """Where an answer comes from.

    Parameters
    ----------
    kind, question
        The kind of question, and how it reads.
    guarantee, confidence
        The guarantee behind the intervals, and the probability with which all of them hold at once.
    population
        What the intervals are about: the average of the rows' distributions, or the one distribution that all have.
    rows_read
        How many rows were read for the answer.
    cost
        By how much the number of answers left fell.
    seq, receipt
        The answer's number and fingerprint in the ledger; None for a dry run, whose numbers are made up.
    cached
        Whether the question was asked before, so that the answer was free.
    """

    kind: str
    question: str
    guarantee: str
    confidence: float
    population: str = ""
    rows_read: int = 0
    cost: int = 0
    seq: int | None = None
    receipt: str | None = None
    cached: bool = False

    @property
    def made_up(self) -> bool:
        """Whether this is a dry run, on invented rows."""
        return self.seq is None

    @property
    def small_print(self) -> str:
        """The record in a line."""
        return f"{self.origin}; {brief(self.question)}"

    @property
    def origin(self) -> str:
        """The record without the question."""
        if self.made_up:
            return "made up, nothing read or spent"
        read = "asked before, free" if self.cached else write_rows(self.rows_read)
        return f"{self.guarantee}, {read}, no. {self.seq}"


class AnyAnswer(Pictured):
    """Base class of all answers. Each has a record, whose fields are attributes of the answer."""

    record: Record

    def __eq__(self, other: object) -> bool:
        # By what they say: where there is no value it is NaN, which equals nothing, not even itself.
        if not isinstance(other, AnyAnswer) or type(other) is not type(self):
            return NotImplemented
        return self.record == other.record and self.result() == other.result()

    def __hash__(self) -> int:
        return hash(self.record)

    @property
    def kind(self) -> str:
        """The kind of question."""
        return self.record.kind

    @property
    def question(self) -> str:
        """How the question reads."""
        return self.record.question

    @property
    def guarantee(self) -> str:
        """The guarantee by which the intervals hold."""
        return self.record.guarantee

    @property
    def confidence(self) -> float:
        """The probability that all intervals of the dataset hold at once."""
        return self.record.confidence

    @property
    def population(self) -> str:
        """What the intervals are about, in words."""
        return self.record.population

    @property
    def rows_read(self) -> int:
        """How many rows were read for the answer."""
        return self.record.rows_read

    @property
    def cost(self) -> int:
        """By how much the number of answers left fell."""
        return self.record.cost

    @property
    def seq(self) -> int | None:
        """Its number in the ledger; None for a dry run."""
        return self.record.seq

    @property
    def receipt(self) -> str | None:
        """Its fingerprint in the ledger; None for a dry run."""
        return self.record.receipt

    @property
    def cached(self) -> bool:
        """Whether the question was asked before, so that the answer was free."""
        return self.record.cached

    @property
    def made_up(self) -> bool:
        """Whether this is a dry run, on invented rows."""
        return self.record.made_up

    @abstractmethod
    def result(self) -> dict[str, Any]:
        """Return what was learned as JSON values: the form that the ledger keeps."""

    @classmethod
    @abstractmethod
    def read(cls, result: Mapping[str, Any], record: Record) -> Self:
        """Rebuild an answer.

        Parameters
        ----------
        result
            What `result` returned.
        record
            Where the answer comes from.

        Returns
        -------
        Self
            The same answer.
        """

    @abstractmethod
    def rows(self) -> list[tuple[str | None, Estimate]]:
        """Return every interval with its label: the lines of a table."""

    @property
    def frame(self) -> "pl.DataFrame":
        """Every interval as a row: its label, value, low and high."""
        import polars as pl

        lines = [(label, *estimate.to_json().values()) for label, estimate in self.rows()]
        columns = {"category": pl.String, "value": pl.Float64, "low": pl.Float64, "high": pl.Float64}
        return pl.DataFrame(lines, schema=columns, orient="row")

    @property
    def bounds(self) -> Interval:
        """The range in which the intervals lie: shares, unless the kind declares another."""
        return 0.0, 1.0

    @property
    def known_range(self) -> Interval | None:
        """The part of the range that was released as containing the value on the rows, if the answer releases one."""
        return None

    @property
    def parts(self) -> list[tuple[str, "Estimate"]]:
        """The components of the answer that have intervals of their own, such as the two groups of a difference."""
        return []

    def plot(self) -> Picture:
        """Return a picture: a dot and a bar for every interval. A notebook shows it; `save(path)` writes it."""
        lines = picture_lines([(label or "", estimate) for label, estimate in self.rows()])
        return Picture([Panel(self.question, tuple(lines), self.bounds)], self.remark)

    @property
    def remark(self) -> str:
        """What a picture of the answer says below it."""
        return "made up" if self.made_up else ""

    def details(self) -> list[tuple[str, str]]:
        """Return what was learned besides the intervals, as names and texts: the second table of a page."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values: the result and the record."""
        record = self.record._asdict()
        named = {"kind": record["kind"], "question": record["question"]}
        return named | self.result() | record | {"made_up": self.made_up}

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def record_of(answer: Mapping[str, Any]) -> Record:
    """Return the record inside what `to_dict` wrote."""
    return Record(*(answer[name] for name in Record._fields))


@dataclass(frozen=True, repr=False, eq=False)
class Answer(AnyAnswer):
    """One number about the population, with its interval.

    Parameters
    ----------
    value
        The best guess at the number; NaN if there were too few rows to tell.
    low, high
        The ends of its interval. The intervals of all answers of a dataset hold at once, with probability `confidence`.
    record
        Where the answer comes from; its fields are attributes of the answer.
    bounds
        The declared range, in which value and interval lie.

    Examples
    --------
    >>> a = Answer(0.25, 0.2, 0.3, Record("mean", "share of x > 0", "posterior", 0.95))
    >>> low, high = a.interval
    >>> float(a), low, high, f"{a:.0%}"
    (0.25, 0.2, 0.3, '25%')
    """

    value: float
    low: float
    high: float
    record: Record
    bounds: Interval = (0.0, 1.0)

    @property
    def interval(self) -> Interval:
        """Low and high."""
        return self.low, self.high

    @property
    def too_few(self) -> bool:
        """Whether there were too few rows to tell: then the answer has an interval, but no value."""
        return isnan(self.value)

    @property
    def margin(self) -> float:
        """The larger distance between the value and an end of its interval; without a value, half the interval."""
        if self.too_few:
            return (self.high - self.low) / 2
        return max(self.high - self.value, self.value - self.low)

    def __float__(self) -> float:
        return self.value

    def __lt__(self, other: object) -> bool:
        raise InvalidArgument(
            "An answer is an interval, so it is not simply above or below a number: compare one of its ends, such as"
            " answer.low > 0.2."
        )

    __le__ = __gt__ = __ge__ = __lt__

    def __format__(self, spec: str) -> str:
        if spec and self.too_few:
            return TOO_FEW
        return format(self.value, spec) if spec else str(self)

    def result(self) -> dict[str, Any]:
        """Value, low, high and the declared bounds."""
        return estimate_of(self).to_result(self.bounds)

    @classmethod
    def read(cls, result: Mapping[str, Any], record: Record) -> "Answer":
        """Rebuild the answer from what `result` returned, and its `record`."""
        value, (low, high) = result["value"], result["bounds"]
        return cls(nan if value is None else value, result["low"], result["high"], record, (low, high))

    def rows(self) -> list[tuple[str | None, Estimate]]:
        """One interval, without a label."""
        return [(None, estimate_of(self))]

    def rounded(self) -> tuple[str, str, str]:
        """Return value, low and high as text, with as many decimals as the width justifies, ends rounded outward."""
        return estimate_of(self).rounded()

    def __repr__(self) -> str:
        if self._alone:
            return f"{self.value:.4g}  no interval  {self.record.small_print}"
        value, low, high = self.rounded()
        return f"{value}  [{low}, {high}]  {self.record.small_print}"

    @property
    def _alone(self) -> bool:
        """Whether the value stands alone: its guarantee promises no interval."""
        return not self.too_few and self.interval == self.bounds

    def _repr_html_(self) -> str:
        if self._alone:
            return notebook.paragraphs(f"{self.value:.4g}, no interval", brief(self.question), self.record.origin)
        return estimate_html(self.question, self.rounded()[0], self, self.bounds, self.record.origin)


def answer_of(estimate: Estimate, record: Record, bounds: Interval = (0.0, 1.0)) -> Answer:
    """Return the answer that is this one number."""
    return Answer(*estimate, record, bounds)


def answers_of(lines: Iterable[Mapping[str, Any]], record: Record, bounds: Interval = (0.0, 1.0)) -> tuple[Answer, ...]:
    """Return the answers whose value, low and high are in these lines of a result."""
    return tuple(
        Answer(nan if (value := line["value"]) is None else value, line["low"], line["high"], record, bounds)
        for line in lines
    )


def estimate_of(answer: Answer) -> Estimate:
    """Return the value and the interval of an answer, without its record."""
    return Estimate(answer.value, answer.low, answer.high)


def estimate_html(question: str, shown: str, estimate: "Estimate | Answer", bounds: Interval, small_print: str) -> str:
    """Return the HTML of one interval for a notebook: the question, `shown` and the ends, a bar inside the bounds."""
    _, low, high = estimate.rounded()
    first, last = map(write_bound, bounds)
    return (
        f'<div style="font-variant-numeric:tabular-nums"><div>{escape(brief(question))}</div>'
        f"<div><strong>{escape(shown)}</strong> [{low}, {high}]</div>"
        f"<div>{notebook.small(first)} {interval_bar(estimate, bounds)} {notebook.small(last)}</div>"
        f"{notebook.small(small_print)}</div>"
    )


def brief(question: str) -> str:
    """Return a question as shown beside its answer; of a long one, only the beginning and the end.

    >>> brief("share of late"), len(brief("x + " * 100))
    ('share of late', 160)
    """
    half = (LONGEST - 3) // 2
    return question if len(question) <= LONGEST else f"{question[: half + 1]} … {question[-half:]}"


def as_timestamp(value: object) -> object:
    """Return what answers call a category of timestamps, if this is one; else the value itself.

    >>> as_timestamp(date(2020, 1, 31)), as_timestamp("2020-01-31T14:00+02:00"), as_timestamp("UA")
    ('2020-01-31 00:00:00', '2020-01-31 12:00:00', 'UA')
    """
    if isinstance(value, str | date):
        with suppress(InvalidQuery):  # an ordinary text
            return str(time_literal(str(value), Type.DATETIME).value)
    return value


def write_rows(rows: int) -> str:
    """Write how many rows were read.

    >>> write_rows(1), write_rows(12_000)
    ('1 row read', '12,000 rows read')
    """
    return f"{rows:,} row{'' if rows == 1 else 's'} read"
