"""The difference between two groups (A/B): one release, and an interval for the difference itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from typing import Annotated, Any

from holdfast.answer import Answer, Estimate, Interval, Record
from holdfast.queries.build import QueryLike, build_difference
from holdfast.questions import KINDS
from holdfast.questions.options import About, Query, RowsPerQuery, Text, Where, Within
from holdfast.questions.question import Context, Drawing, Question, Result, kind_of

NOT_SAID = Estimate(nan, 0.0, 1.0)


@dataclass(frozen=True, repr=False)
class DifferenceAnswer(Answer):
    """The mean of the first group less that of the second, with its interval; beside it, both means.

    Parameters
    ----------
    value, low, high, record, bounds
        As of every answer; the bounds are those of a difference.
    first, second
        The means of both groups, with their intervals. All intervals hold at once.
    """

    first: Estimate = NOT_SAID
    second: Estimate = NOT_SAID

    @property
    def lift(self) -> Interval | None:
        """The ends of the relative difference, first/second - 1; None if the second mean may be zero or negative."""
        if self.second.low <= 0:
            return None
        ends = [(first - second) / second for first, second in _corners(self.first, self.second, self.low, self.high)]
        return min(ends), max(ends)

    def result(self) -> dict[str, Any]:
        """Value, low, high and bounds of the difference; the means of both groups."""
        return super().result() | {"first": self.first.to_json(), "second": self.second.to_json()}

    @classmethod
    def read(cls, result: Mapping[str, Any], record: Record) -> "DifferenceAnswer":
        """Rebuild the answer from what `result` returned, and its `record`."""
        found, (low, high) = Estimate.from_json(result), result["bounds"]
        means = (Estimate.from_json(result[name]) for name in ("first", "second"))
        return cls(found.value, found.low, found.high, record, (low, high), *means)

    def details(self) -> list[tuple[str, str]]:
        """Both means, and the relative difference where it is known."""
        texts = [(name, *one.rounded()) for name, one in (("first group", self.first), ("second group", self.second))]
        lines = [(name, f"{value}, between {low} and {high}") for name, value, low, high in texts]
        if self.lift is not None:
            lines.append(("relative", f"between {self.lift[0]:+.1%} and {self.lift[1]:+.1%}"))
        return lines


def _corners(first: Estimate, second: Estimate, low: float, high: float) -> list[Interval]:
    """Return the corners of what both intervals and the difference's allow: the ratio is extreme in one of them."""
    corners = [(a, b) for a in (first.low, first.high) for b in (second.low, second.high) if low <= a - b <= high]
    for gap in (low, high):
        corners += [(a, a - gap) for a in (first.low, first.high) if second.low <= a - gap <= second.high]
        corners += [(b + gap, b) for b in (second.low, second.high) if first.low <= b + gap <= first.high]
    return corners or [(first.low, second.high), (first.high, second.low)]


_GROUP = About(Text("carrier = 'UA'"), "A condition: the first group.")
_OTHER = About(Text("carrier = 'AA'"), "A condition: the second group; left out, all other rows.")


def difference(
    context: Context,
    query: Query,
    group: Annotated[QueryLike, _GROUP],
    other: Annotated[QueryLike | None, _OTHER] = None,
    *,
    within: Within = None,
    where: Where = None,
    rows_per_query: RowsPerQuery = None,
) -> Question:
    """Return how much more often `query` is true in one group than in another, or by how much its mean is larger.

    Parameters
    ----------
    query
        A condition (a share) or a number (a mean): SQL text, a Polars expression or a function of one row.
    group, other
        Conditions that say which rows are in which group. A row that is in both counts in neither. Left out, the second
        group is all rows that are not in the first.
    within
        The declared range of a number; values outside are clipped.
    where
        Only rows for which this is true count.
    rows_per_query
        Rows this one answer reads.

    Returns
    -------
    DifferenceAnswer
        The difference and its interval for the population, and both means.
    """
    built = build_difference(query, context.schema, group=group, other=other, within=within, where=where)
    draws = context.draws(built, rows_per_query)
    span = built.bounds[1] - built.bounds[0]

    def run(drawing: Drawing) -> Result:
        release = drawing.release(built, draws)
        *means, gap = built.statistic.certify(release, drawing.guarantee)
        first, second = (
            Estimate.within(built.bounds, value, interval)
            for value, interval in zip(release.values[:2], means, strict=True)
        )
        shifted = ((gap[0] + 1) / 2, (gap[1] + 1) / 2)
        whole = Estimate.within((-span, span), (release.values[2] + 1) / 2, shifted)
        result = whole.to_json() | {"bounds": [-span, span]}
        return result | {"first": first.to_json(), "second": second.to_json()}

    return context.question(DIFFERENCE.name, built, draws, run)


DIFFERENCE = kind_of(difference, DifferenceAnswer)
KINDS.register(DIFFERENCE.name, DIFFERENCE)
