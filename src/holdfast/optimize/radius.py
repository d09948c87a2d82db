"""A radius found on the way: short looks in balls that double while the certified loss falls, then the fit.

    r = FIRST
    LOOKS times at most    descend SHARE of the steps in the ball of radius r; ask for the loss at the point found;
                           is the upper end of its interval the lowest so far? then r = 2 r, and look again
    descend the steps that remain in the ball whose upper end was lowest, and return that point

The larger the ball, the wider the range of the loss and with it the interval, so the upper end falls while a larger
ball helps and rises again when it only adds noise. Only what was released decides: the ball is chosen from the
transcript, like any adaptive loss, and the promises of the last descent hold for it. Steps and looks, and so the price,
are fixed beforehand; steps that looks do not use go to the last descent.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from numpy.random import Generator

from holdfast.optimize.descent import Run
from holdfast.optimize.fit import Fit
from holdfast.optimize.objective import LossAt
from holdfast.rows.source import RowSource

AUTO = "auto"
FIRST, LOOKS, SHARE = 1.0, 6, 1 / 16

Ask = Callable[[LossAt], float]  # the upper end of the interval of a loss


@dataclass(frozen=True)
class Search:
    """`at(radius)` is the whole fit, all its steps in the ball of that radius."""

    at: Callable[[float], Fit]

    def run(self, source: RowSource, rng: Generator, ask: Ask) -> tuple[Fit, Run]:
        """Look, then fit; return the last descent as a fit of its own, and what it found."""
        remain = self.at(FIRST).descent.iterations
        short = max(1, int(SHARE * remain))
        best, lowest = self.at(FIRST), inf
        for look in range(LOOKS):
            if remain <= short:
                break
            tried = self.at(FIRST * 2**look)
            found = with_steps(tried, short).run(source, rng)
            remain -= short
            end = ask(LossAt(tried.descent.objective, found.point))
            if end >= lowest:
                break
            best, lowest = tried, end
        last = with_steps(best, remain)
        return last, last.run(source, rng)

    def shortened(self, most_draws: int) -> "Search":
        """Return the same for made-up rows."""
        return Search(lambda radius: self.at(radius).shortened(most_draws))


def with_steps(fit: Fit, iterations: int) -> Fit:
    """Return the fit with another number of steps."""
    return replace(fit, descent=replace(fit.descent, iterations=iterations))
