"""What all answers share: values with intervals, a record of where they come from, and how they print.

Every kind of question has an answer class, a subclass of `AnyAnswer`, with one JSON form: `result()` is what the ledger
stores and what is sent over the wire; `to_dict()` adds the record.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isnan, log10, nan
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from holdfast import notebook
from holdfast.errors import InvalidArgument
from holdfast.questions.pictures import Line, Panel, Picture

if TYPE_CHECKING:
    import polars as pl

Interval = tuple[float, float]
ROUNDING = 2.0**-53
SEPARATED = 10_000  # numbers from here on get thousands separators
FEWEST = 12  # at most this many digits before the decimal point are rounded to zeros
LONGEST = 160  # characters of a question that are shown beside its answer
LONG = 1e15  # numbers from here on are written as powers of ten
ANYTHING = 1e100  # an end this far out means that the interval is unbounded
SAYS_NOTHING = 0.9  # share of the declared range: an interval wider than this is shown without a value
TOO_FEW = "too few rows to tell"


class Estimate(NamedTuple):
    """A value and its interval, in the units of the question. The value is NaN where the interval says nothing."""

    value: float
    low: float
    high: float

    @property
    def too_few(self) -> bool:
        """Whether there were too few rows to tell: then there is no value."""
        return isnan(self.value)

    @property
    def guess(self) -> float:
        """The value, or the middle of the interval if there is none: for callers that need some number."""
        return (self.low + self.high) / 2 if self.too_few else self.value

    @classmethod
    def within(cls, bounds: Interval, value: float, interval: Interval, *, alone: bool = False) -> "Estimate":
        """Stretch from [0, 1] to the bounds, rounding ends outward; the value is clipped to its interval.

        An interval that covers nearly all of the bounds says nothing, and the value becomes NaN, unless it stands
        `alone`: its guarantee promises no interval. Ends that cross, which happens when counts contradict each other
        (more rarely than an interval misses), are swapped.
        """
        low, high = bounds
        first, last = interval
        if first > last:
            first, last = last, first
        wide = last - first > SAYS_NOTHING
        if bounds != (0.0, 1.0):
            # Four roundings, each by at most ROUNDING times the size of what is rounded: high - low and its multiple,
            # at most twice the larger bound each, then the sum and the end itself, at most once each. Six in all.
            slack = 6.01 * ROUNDING * max(abs(low), abs(high))
            first, last = low + (high - low) * first, low + (high - low) * last
            first, last = max(low, first - slack), min(high, last + slack)
            value = low + (high - low) * value
        if wide and not alone:
            return cls(nan, first, last)
        return cls(min(max(value, first), last), first, last)

    def to_json(self) -> dict[str, Any]:
        """Return value, low and high; a missing value is null."""
        return {"value": None if isnan(self.value) else self.value, "low": self.low, "high": self.high}

    def to_result(self, bounds: Interval) -> dict[str, Any]:
        """Return the result of an answer that is this one number, declared to lie within `bounds`."""
        value = None if isnan(self.value) else self.value
        return {"value": value, "low": self.low, "high": self.high, "bounds": list(bounds)}

    def to_answer(self, record: "Record", bounds: Interval = (0.0, 1.0)) -> "Answer":
        """Return the answer that is this one number."""
        return Answer(self.value, self.low, self.high, record, bounds)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Estimate":
        """Read what `to_json` wrote."""
        return cls(nan if values["value"] is None else values["value"], values["low"], values["high"])

    @property
    def decimals(self) -> int:
        """How many decimals the interval's width justifies; negative: that many digits before the point are zeros."""
        width, digits = self.high - self.low, 4
        if width == 0 and self.low % 1 == 0:  # known exactly, such as the number of rows
            return 0
        while digits > -FEWEST and width > 10.0 ** (2 - digits) * 5:
            digits -= 1
        return digits

    def rounded(self) -> tuple[str, str, str]:
        """Return value, low and high as text, with as many decimals as the width justifies, ends rounded outward."""
        return write_estimate(self, self.decimals)


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


class AnyAnswer(ABC):
    """Base class of all answers. Each has a record, whose fields are attributes of the answer."""

    record: Record

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
        """Rebuild the answer from what `result` returned, and its `record`."""

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
        return Picture([Panel(self.question, tuple(lines), self.bounds)], "made up" if self.made_up else "")

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


@dataclass(frozen=True, repr=False)
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


def write_estimate(estimate: Estimate | Answer, digits: int) -> tuple[str, str, str]:
    """Write value, low and high; ends are rounded outward, because a promise is never rounded in its own favor."""
    value = TOO_FEW if estimate.too_few else _written(estimate.value, digits)
    if max(-estimate.low, estimate.high) >= LONG:
        return value, write_far(estimate.low, 3, up=False), write_far(estimate.high, 3, up=True)
    low, high = round(estimate.low, digits), round(estimate.high, digits)
    if low > estimate.low:
        low = estimate.low - 10.0**-digits
    if high < estimate.high:
        high = estimate.high + 10.0**-digits
    return value, _written(low, digits), _written(high, digits)


def _written(x: float, digits: int) -> str:
    if abs(x) >= LONG:
        return f"{x:.4g}"
    text = f"{round(x, digits) + 0.0:,.{max(digits, 0)}f}"  # no -0.00
    return text if abs(x) >= SEPARATED else text.replace(",", "")


def write_bound(x: float) -> str:
    """Write an end of a scale.

    >>> write_bound(0.0), write_bound(-0.5), write_bound(1.5e9), write_bound(1e200)
    ('0', '-0.5', '1,500,000,000', '1e+200')
    """
    return _written(x, 0) if float(x).is_integer() else f"{x:.6g}"


def brief(question: str) -> str:
    """Return a question as shown beside its answer; of a long one, only the beginning and the end.

    >>> brief("share of late"), len(brief("x + " * 100))
    ('share of late', 160)
    """
    half = (LONGEST - 3) // 2
    return question if len(question) <= LONGEST else f"{question[: half + 1]} … {question[-half:]}"


def rounded_alike(estimates: Sequence[Estimate]) -> list[tuple[str, str, str]]:
    """Write value, low and high of every line of a table, all with the decimals that the narrowest interval justifies.

    >>> rounded_alike([Estimate(0.25, 0.2, 0.3), Estimate(0.5, 0.0, 1.0)])
    [('0.250', '0.200', '0.300'), ('0.500', '0.000', '1.000')]
    """
    digits = max((one.decimals for one in estimates), default=0)
    return [write_estimate(one, digits) for one in estimates]


def labeled_lines(labeled: Sequence[tuple[str, Estimate]]) -> list[tuple[str, str, str]]:
    """Return label, value and interval of every line of a table as text, with equal decimals."""
    texts = rounded_alike([estimate for _, estimate in labeled])
    return [(label, value, f"[{low}, {high}]") for (label, _), (value, low, high) in zip(labeled, texts, strict=True)]


def picture_lines(labeled: Sequence[tuple[str, Estimate]]) -> list[Line]:
    """Return intervals as lines of a picture; the numbers beside them are rounded outward, with equal decimals."""
    return [
        Line(label, one.value, one.low, one.high, f"{value}  {interval}")
        for (_, one), (label, value, interval) in zip(labeled, labeled_lines(labeled), strict=True)
    ]


def write_end(x: float, digits: int, *, up: bool) -> str:
    """Write an end of an interval with this many significant digits, rounded outward: up or down.

    >>> write_end(0.123449, 4, up=False), write_end(0.123401, 4, up=True), write_end(0.25, 4, up=True)
    ('0.1234', '0.1235', '0.25')
    >>> write_end(1_736.2, 3, up=True)
    '1740'
    """
    text = f"{x:.{digits}g}"
    if float(text) != x and (float(text) > x) != up:
        step = 10.0 ** (floor(log10(abs(x))) - digits + 1)
        text = f"{x + step if up else x - step:.{digits}g}"
    return f"{float(text):.0f}" if "e+" in text and abs(x) < LONG else text


def write_rows(rows: int) -> str:
    """Write how many rows were read.

    >>> write_rows(1), write_rows(12_000)
    ('1 row read', '12,000 rows read')
    """
    return f"{rows:,} row{'' if rows == 1 else 's'} read"


def write_far(x: float, digits: int, *, up: bool) -> str:
    """Write an end of an interval that may be unbounded: as "∞" if it is very far out, not with 200 digits.

    >>> write_far(-1e200, 3, up=False), write_far(0.25, 3, up=True)
    ('-∞', '0.25')
    """
    if (x if up else -x) < ANYTHING:
        return write_end(x, digits, up=up)
    return "∞" if up else "-∞"


def pixels(low: float, high: float, decimals: int) -> tuple[str, str]:
    """Write the start and length of a bar, rounded so that it covers everything from low to high."""
    unit = 10**decimals
    first, last = floor(low * unit), ceil(high * unit)
    return f"{first / unit:.{decimals}f}", f"{(last - first) / unit:.{decimals}f}"


def interval_bar(estimate: Estimate | Answer, bounds: Interval = (0.0, 1.0), width: int = 160) -> notebook.Svg:
    """Draw the interval inside the declared bounds as a small SVG."""
    low, high = bounds
    span = (high - low) or 1.0
    a, v, b = (width * ((x - low) / span) for x in (estimate.low, estimate.value, estimate.high))
    mark = "" if estimate.too_few else f'<rect x="{v:.1f}" y="1" width="2" height="10" fill="{notebook.ORANGE}"/>'
    shown = TOO_FEW if estimate.too_few else f"{estimate.value:g}"
    start, length = pixels(a + 1, max(b, a + 1) + 1, 1)
    first, last = write_far(estimate.low, 6, up=False), write_far(estimate.high, 6, up=True)
    return notebook.Svg(
        f'<svg width="{width + 2}" height="12" style="vertical-align:middle" role="img"'
        f' aria-label="{shown}, from {first} to {last}">'
        f'<rect x="1" y="5" width="{width}" height="2" {notebook.TRACK}/>'
        f'<rect x="{start}" y="3" width="{length}" height="6" rx="2" fill="{notebook.BLUE}"/>'
        f"{mark}</svg>"
    )
