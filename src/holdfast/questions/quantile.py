"""An interval for a quantile, by bisection: each step asks which share lies at or below a threshold.

Every step is a question of its own and all their intervals hold at once, so the thresholds certainly below and
certainly not below the quantile bound it. `steps` questions are charged, whatever they answer.
"""

from dataclasses import dataclass, replace
from math import ceil, floor, nan
from typing import Annotated

import numpy as np

from holdfast import check
from holdfast.guarantees.statistic import GroupMean
from holdfast.queries.build import build_at_most, range_within
from holdfast.questions import KINDS
from holdfast.questions.answer import Answer
from holdfast.questions.estimate import SAYS_NOTHING, Estimate
from holdfast.questions.kind import kind_of
from holdfast.questions.options import About, Query, Real, Text, Where, Whole, Within
from holdfast.questions.question import (
    NOT_KNOWN,
    Context,
    Drawing,
    Forecast,
    Question,
    Result,
    encode,
    if_complete,
    written_shares,
)

STEPS = 10
MOST_STEPS = 1_000  # halving the widest range of floating-point numbers takes about this many


def quantile(
    context: Context,
    query: Annotated[Query, About(Text("dep_delay"), "A number about one row, in SQL.")],
    q: Annotated[float, About(Real(0.0, 1.0, "0.9"), "Which quantile: 0.5 is the median.")],
    *,
    within: Within = None,
    where: Where = None,
    steps: Annotated[int, About(Whole(1, "10"), "Steps of the bisection; each costs as much as a share.")] = STEPS,
) -> Question:
    """Return an interval for the `q` quantile of a number declared `within` bounds, by bisection.

    Parameters
    ----------
    query
        A number: SQL text, a Polars expression or a function of one row.
    q
        Which quantile: 0.5 is the median.
    within
        The declared range of the number; left out, the one that was declared with the data.
    where
        Only rows for which this is true count.
    steps
        Steps of the bisection; each costs as much as a share: an answer, or two where only some rows count.

    Returns
    -------
    Answer
        The quantile and its interval for the population.
    """
    check.share(q=q)
    check.whole(steps=steps)
    check.at_most("the most that help", MOST_STEPS, steps=steps)
    at_most = build_at_most(query, 0.0, context.schema, where=where)
    low, high = range_within(at_most.value, within)
    draws = context.draws(at_most, None)
    steps = int(steps)
    cost, rows_read, work = context.price_all([(at_most, draws)] * steps)

    def run(drawing: Drawing) -> Result:
        search = Bisection(q, low, high)
        for _ in range(steps):
            threshold = search.next_threshold()
            (share,) = drawing.estimates(replace(at_most, threshold=threshold), draws)
            search.learn(threshold, share)
        return search.estimate().to_result((low, high))

    def in_ranks() -> str | None:
        """Say between which quantiles the answer will lie: in the units of the number it depends on the data."""
        widths = context.group_widths(at_most, draws, cost, q)
        if not widths:
            return NOT_KNOWN if isinstance(at_most.statistic, GroupMean) else None
        ends = [(floor(1000 * max(0.0, q - margin)), ceil(1000 * min(1.0, q + margin))) for _, margin in widths]
        reach = [f"from the {low / 1000:g} to the {high / 1000:g} quantile" for low, high in ends]
        shares = written_shares([share for share, _ in widths], "of the rows count")
        return f"its interval reaches about {', '.join(map(' '.join, zip(reach, shares, strict=True)))}"

    facts = {"quantile": at_most.identity, "q": float(q), "within": [low, high], "steps": steps}
    condition = "" if at_most.where is None else f" where {at_most.where.text}"
    return Question(
        kind=QUANTILE.name,
        text=f"{q:g} quantile of {at_most.value.text} within [{low:.15g}, {high:.15g}]{condition}",
        identity=None if at_most.identity is None else encode(facts),
        cost=cost,
        rows_read=rows_read,
        work=work,
        run=run,
        forecast=lambda _: Forecast(remarks=(if_complete(at_most), in_ranks())),
    )


@dataclass(frozen=True, repr=False, eq=False)
class QuantileAnswer(Answer):
    """A quantile with its interval: of the number as declared, so one that lies outside is at an end of its range."""

    def details(self) -> list[tuple[str, str]]:
        """Whether it may lie beyond the declared range: then the interval says on which side of its other end."""
        low, high = self.bounds
        _, first, last = self.rounded()
        if self.too_few or self._alone or (self.low > low and self.high < high):
            return []
        side = f"at least {first}; it may lie above" if self.high >= high else f"at most {last}; it may lie below"
        return [("beyond the range", f"{side} the declared range")]

    def __repr__(self) -> str:
        return "\n".join([super().__repr__(), *(text for _, text in self.details())])


class Bisection:
    """Close in on a quantile from both sides, by thresholds whose shares are known only up to intervals.

    `low`/`high` are proven: the quantile lies between. `doubt` is the range of thresholds whose interval contains q.
    """

    def __init__(self, q: float, low: float, high: float) -> None:
        self.q, self.low, self.high = q, low, high
        self.doubt: tuple[float, float] | None = None
        self.seen: list[tuple[float, float]] = [(high, 1.0)]
        self.start, self.width = low, high - low

    def next_threshold(self) -> float:
        """Return where to ask next: in the middle of the longer side that is still open."""
        if self.doubt is None:
            return _middle(self.low, self.high)
        left, right = self.doubt
        if left - self.low >= self.high - right:
            return _middle(self.low, left)
        return _middle(right, self.high)

    def learn(self, threshold: float, share: Estimate) -> None:
        """Take in the share of values at most `threshold`."""
        if not share.too_few:
            self.seen.append((threshold, share.value))
        if share.high < self.q:
            self.low = max(self.low, threshold)
        elif share.low >= self.q and share.low > 0:  # the 0 quantile is where values begin, not minus infinity
            self.high = min(self.high, threshold)
        elif self.doubt is None:
            self.doubt = (threshold, threshold)
        else:
            self.doubt = (min(self.doubt[0], threshold), max(self.doubt[1], threshold))

    def estimate(self) -> Estimate:
        """Interpolate the shares seen, made monotone, and keep the value inside the proven interval."""
        thresholds, shares = (np.array(column) for column in zip(*sorted(self.seen), strict=True))
        shares = np.maximum.accumulate(shares)
        thresholds, shares = np.concatenate([[self.start], thresholds]), np.concatenate([[0.0], shares])
        value = float(np.interp(self.q, shares, thresholds))
        low, high = min(self.low, self.high), max(self.low, self.high)  # swapped if shares contradict each other
        if high - low > SAYS_NOTHING * self.width:
            return Estimate(nan, low, high)
        return Estimate(min(max(value, low), high), low, high)


def _middle(low: float, high: float) -> float:
    return low + (high - low) / 2  # low + high may overflow


QUANTILE = kind_of(quantile, QuantileAnswer)
KINDS.register(QUANTILE.name, QUANTILE)
