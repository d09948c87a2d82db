"""One release of cells as it is read: what moments and differences of pairs share."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.answer import Interval
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.mathematics import moments
from holdfast.guarantees.release import Release
from holdfast.guarantees.statistic import JointCells
from holdfast.queries.moments import TwoCoins
from holdfast.questions.question import Drawing

Weights = Sequence[float]  # one number for each cell


@dataclass(frozen=True)
class Read:
    """A release of cells as it is read: the law of the cells that was seen, and intervals for what is linear in it."""

    query: TwoCoins
    release: Release
    guarantee: Guarantee
    laws: moments.Laws

    @classmethod
    def draw(cls, drawing: Drawing, query: TwoCoins, draws: int) -> "Read":
        """Draw once."""
        release, cells = drawing.release(query, draws), query.statistic
        assert isinstance(cells, JointCells)
        return cls(query, release, drawing.guarantee, drawing.guarantee.laws(release, cells))

    def seen(self, weights: Weights) -> float:
        """Return the weighted sum of the cells among rows that count, as it was seen."""
        shares = np.array(self.release.values)
        law = shares if self.query.some_left_out else np.concatenate([[max(0.0, 1 - shares.sum())], shares])
        return float(law @ np.array(weights) / law.sum()) if law.sum() > 0 else float(np.mean(weights))

    def mean(self, weights: Weights, within: Interval, square: Weights | None = None) -> Interval:
        """Return the interval for the mean, among rows that count, of a function that is so weighted on the cells.

        Parameters
        ----------
        weights
            What the function is on each cell.
        within
            The range of the function on a row.
        square
            What bounds its square on each cell, if that is small.
        """
        if not self.query.some_left_out:
            return self._of_all(weights, within, square)
        low, high = within
        total = self._of_all((0.0, *weights), (min(0.0, low), max(0.0, high)), None if square is None else (0, *square))
        least, most = self._of_all((0.0, *(1.0 for _ in weights)), (0.0, 1.0), None)
        if least <= 0:
            return within
        ends = [end / share for end in total for share in (least, most)]
        return max(low, min(ends)), min(high, max(ends))

    def mean_near(self, center: float, weights: Weights, square: Weights | None = None) -> Interval:
        """Return the interval for the mean of a value in [0, 1], worked out from its distance to a number seen.

        Parameters
        ----------
        center
            That number.
        weights
            What the value is on each cell.
        square
            What the square of the distance is; left out, no more than on the cells.
        """
        away = [weight - center for weight in weights]
        low, high = self.mean(away, (-center, 1 - center), [one * one for one in away] if square is None else square)
        return max(0.0, center + low), min(1.0, center + high)

    def _of_all(self, weights: Weights, within: Interval, square: Weights | None) -> Interval:
        second = None
        if square is not None:
            most = max(within[0] ** 2, within[1] ** 2)
            second = moments.extremes(self.laws, square, (0.0, most))[1]
        first, last = self.guarantee.spread_out(moments.extremes(self.laws, weights, within), within, second)
        return max(within[0], first), min(within[1], last)
