"""A submission to a board: a prediction for every row, scored on the rows where the labels are."""

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.guarantees.release import GRID
from holdfast.guarantees.statistic import OneMean, OutcomeShares, Statistic
from holdfast.queries.metrics import Metric, equal
from holdfast.queries.query import Query, Values

CELLS = ("true positives", "false positives", "false negatives", "true negatives")


@dataclass(frozen=True, eq=False)
class Submission(Query):
    """Predictions in the order of the rows. What row i says is its gain, in whole units of 2^-40, which add up exactly.

    It is a question about row i and its number, which independent rows may be asked even if they are not identical.
    """

    metric: Metric
    predictions: pl.DataFrame
    label: str  # the column that predictions are compared with; the ids, where scores are given
    numbered: ClassVar[bool] = True

    @property
    def statistic(self) -> Statistic:
        """The mean gain."""
        return OneMean()

    @property
    def columns(self) -> tuple[str, ...]:
        """The labels."""
        return (self.label,)

    @property
    def text(self) -> str:
        """How it reads."""
        return f"{self.metric.text} of a submission"

    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return what the first rows say."""
        return self._units(rows, self.predictions[: rows.height])

    def evaluate_parts(self, rows: pl.DataFrame, part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
        """Return what these rows say, of which the numbers are given, one after another."""
        return self._units(rows, self.predictions[int(draw[0]) : int(draw[-1]) + 1])

    def of_units(self, values: Values, starts: NDArray[np.int64]) -> Values:
        """Return the mean of what the rows of each unit say, in whole units of 2^-40 again; see `unit_means`."""
        return np.rint(unit_means(values, starts)).astype(np.int64)

    def _units(self, rows: pl.DataFrame, predictions: pl.DataFrame) -> Values:
        gains = self.metric.gains(predictions, rows[self.label])
        units: NDArray[np.int64] = np.rint(gains * 2.0**GRID).astype(np.int64)
        return units


def unit_means(values: NDArray[Any], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean of each unit's values, which lie one unit after another: from where it starts to the next start.

    >>> unit_means(np.array([1, 0, 0, 1]), np.array([0, 3, 4])).tolist()
    [0.3333333333333333, 1.0]
    """
    means: NDArray[np.float64] = np.add.reduceat(values, starts[:-1] - starts[0]) / np.diff(starts)
    return means


@dataclass(frozen=True, eq=False)
class PredictedCells(Query):
    """Which of the four cells a row is in: what it is, and what is predicted for its id.

    The prediction is found by the row's own id, so it is a function of the row, wherever it is drawn.
    """

    ids: pl.Series  # of all rows, sorted
    predicted: NDArray[np.bool_]  # to be positive, in the same order
    positive: Any
    id: str
    target: str
    digest: str

    @property
    def statistic(self) -> Statistic:
        """The share of each cell."""
        return OutcomeShares(len(CELLS))

    @property
    def columns(self) -> tuple[str, ...]:
        """The ids and the labels."""
        return self.id, self.target

    @property
    def labels(self) -> tuple[str, ...]:
        """What each cell is called."""
        return CELLS

    @property
    def text(self) -> str:
        """How it reads."""
        return f"confusion of submission {self.digest[:12]}, {self.target} = {str(self.positive)!r} being positive"

    @property
    def identity(self) -> str:
        """Canonical text."""
        return json.dumps({"confusion": self.digest, "positive": self.positive}, sort_keys=True)

    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return the number of each row's cell."""
        places = np.minimum(self.ids.search_sorted(rows[self.id]).to_numpy(), len(self.ids) - 1)
        labels = rows[self.target]
        predicted = self.predicted[places]
        real = equal(labels, pl.Series([self.positive], dtype=labels.dtype).new_from_index(0, labels.len()))
        return np.where(real, np.where(predicted, 0, 2), np.where(predicted, 1, 3))
