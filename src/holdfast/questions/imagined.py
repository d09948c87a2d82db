"""Imagined rows, for a price: what an answer would be like if every count were as expected. Nothing is read."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.statistic import GroupMean, Tally
from holdfast.queries.measures import Mean, Share
from holdfast.queries.query import Composed, Query, RowValues
from holdfast.questions.estimate import Estimate, write_end
from holdfast.questions.question import Drawing

IMAGINED = 15  # values of each number
MANY = 100_000  # rows that are imagined at most


@dataclass
class Imagined(Drawing):
    """Imagined rows: every release has its expected counts."""

    values: tuple[RowValues, ...] = ()  # the values of each function

    @classmethod
    def of(
        cls, measures: tuple[Composed, ...], guarantee: Guarantee, *numbers: NDArray[Any], share: float = 1.0
    ) -> Self:
        """Return rows that count, with these `numbers` for each measure, in its own units; and others.

        A `share` of all rows count; the others have no value and are outside of every condition.
        """
        values: list[RowValues] = []
        for one, each in zip(measures, numbers, strict=True):
            count = len(each)
            others = min(MANY, round(count * (1 / share - 1)))
            values.append(np.append(each, np.zeros(others, bool) if each.dtype == bool else np.full(others, np.nan)))
            values += [np.arange(count + others) < count] * (len(one.functions) - 1)
        return cls(None, None, guarantee, values=tuple(values))  # type: ignore[arg-type]  # neither rows nor randomness

    @classmethod
    def spread(cls, measures: tuple[Composed, ...], guarantee: Guarantee, deviation: float, share: float = 1.0) -> Self:
        """Return independent normal numbers in the middle of their ranges, with this `deviation` in parts of them.

        A condition is true as often as not.
        """
        quantiles = [NormalDist(0.5, deviation).inv_cdf((place + 0.5) / IMAGINED) for place in range(IMAGINED)]
        each = (numbers.ravel() for numbers in np.meshgrid(quantiles, quantiles))
        spread = (_in_units(one, numbers) for one, numbers in zip(measures, each, strict=False))
        return cls.of(measures, guarantee, *spread, share=share)

    @classmethod
    def zeros_and_ones(cls, measure: Composed, guarantee: Guarantee, share: float) -> Self:
        """Return a number that is at either end of its range as often; a `share` of the rows count."""
        return cls.of((measure,), guarantee, np.array(measure.bounds), share=share)

    @classmethod
    def apart(cls, measures: tuple[Share | Mean, ...], guarantee: Guarantee, apart: float, share: float) -> Self:
        """Return two values of each row that differ by this much on average, in parts of the range: either is larger.

        Conditions differ in this part of the rows.
        """
        if all(isinstance(one, Share) for one in measures):
            count = round(2 / apart)
            return cls.of(measures, guarantee, np.arange(count) == 0, np.arange(count) == 1, share=share)
        values = np.array([[0.5 + apart / 2, 0.5 - apart / 2], [0.5 - apart / 2, 0.5 + apart / 2]])
        each = (_in_units(one, numbers) for one, numbers in zip(measures, values, strict=True))
        return cls.of(measures, guarantee, *each, share=share)

    def release(self, query: Query, draws: int) -> Tally:
        """Return the expected counts: of two outcomes, or of those of a group."""
        assert isinstance(query, Composed)
        mass, values = self.answering.coin_mass, query.combined(self.values)
        if isinstance(query.statistic, GroupMean):
            inside = values[~np.isnan(values)]
            return query.statistic.expected(draws, inside.size / values.size, float(inside.mean()), mass=mass)
        ones = round(draws * (mass + (1 - 2 * mass) * float(np.mean(values))))
        counts = draws - ones, ones
        return Tally(query.statistic.from_counts(counts, draws, mass=mass), draws, counts, query.statistic.reported)


def _in_units(measure: Composed, numbers: NDArray[np.float64]) -> NDArray[Any]:
    """Return numbers in [0, 1] in the units of a measure; those of a condition are true from one half on."""
    if isinstance(measure, Share):
        return numbers > 1 / 2
    low, high = measure.bounds
    return low + (high - low) * np.clip(numbers, 0.0, 1.0)


def about_margin(estimate: Estimate) -> str:
    """Write half the width of an interval that is expected.

    >>> about_margin(Estimate(0.5, 0.4, 0.6111)), about_margin(Estimate(float("nan"), 0.0, 1.0))
    ('about ±0.11', 'it will say nothing')
    """
    margin = float(write_end((estimate.high - estimate.low) / 2, 2, up=True))
    return "it will say nothing" if estimate.too_few else f"about ±{margin:,g}"
