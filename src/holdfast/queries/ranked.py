"""Positives and negatives by their score: which of two groups a row is in, and in which step of a staircase."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from holdfast.guarantees.statistic import OutcomeShares, Statistic
from holdfast.queries.evaluate import RowFunction, booleans
from holdfast.queries.measures import Mean, Share, encode_facts
from holdfast.queries.moments import about
from holdfast.queries.query import Query, Values


@dataclass(frozen=True)
class Ranked(Query):
    """Outcomes: the steps of positives, lowest scores first; those of negatives; and rows that do not count.

    Parameters
    ----------
    score
        The score, rescaled to [0, 1], and which rows count.
    positive
        Which rows are positive; one for which that is not known does not count.
    cuts
        Where one step ends and the next begins, on the scale of [0, 1], increasing.
    """

    score: Share | Mean
    positive: RowFunction
    cuts: tuple[float, ...]

    @property
    def steps(self) -> int:
        """How many there are for each."""
        return len(self.cuts) + 1

    @cached_property
    def statistic(self) -> Statistic:
        """The share of each outcome."""
        return OutcomeShares(2 * self.steps + 1)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return tuple(dict.fromkeys((*self.score.columns, *self.positive.columns)))

    @cached_property
    def work(self) -> int:  # type: ignore[override]
        """Steps that one row takes."""
        return self.score.work + self.positive.work

    @property
    def text(self) -> str:
        """How it reads."""
        return f"ROC AUC of {about(self.score)} for {self.positive.text} in {self.steps} steps"

    @cached_property
    def identity(self) -> str | None:
        """Canonical text."""
        parts = (self.score.identity, self.positive.identity)
        return None if None in parts else encode_facts({"kind": "ranked", "of": parts, "cuts": self.cuts})

    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return the number of the outcome per row."""
        row_values = self.positive.series(rows)
        values = self.score.evaluate(rows).astype(np.float64)
        outside = np.isnan(values) | row_values.is_null().to_numpy()
        steps = np.searchsorted(self.cuts, np.where(outside, 0.0, values), side="right")
        found = np.where(booleans(row_values), steps, steps + self.steps)
        return np.where(outside, 2 * self.steps, found).astype(np.int64)
