"""What the analysts ask: does a feature tell the label, does a rule, is a row among the accused."""

from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.lab.analysts.base import Bits, RowQuestion

GRID = float(2**20)  # weights are whole numbers, so that a vote is the same in whatever order it is added up


def feature(index: int) -> str:
    """Return the name of a feature column."""
    return f"x{index}"


@dataclass(frozen=True)
class Agreement(RowQuestion):
    """Whether one feature equals the label."""

    index: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The feature and the label."""
        return feature(self.index), "y"

    @property
    def sql(self) -> str:  # type: ignore[override]
        """The question as text."""
        return f"{feature(self.index)} = y"

    def evaluate(self, rows: pl.DataFrame) -> Bits:
        """Compare."""
        same: Bits = rows[feature(self.index)].to_numpy() == rows["y"].to_numpy()
        return same


@dataclass(frozen=True, eq=False)
class Vote(RowQuestion):
    """Whether a weighted vote of features is right about the label."""

    indices: tuple[int, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, indices: NDArray[np.int64], weights: NDArray[np.float64]) -> "Vote":
        """Build a vote, leaving out weights that round to nothing."""
        whole = np.rint(np.asarray(weights, dtype=np.float64) * GRID)
        kept = np.flatnonzero(whole)
        if kept.size == 0:  # nobody votes: let the first feature decide
            return cls((int(indices[0]),), (1.0,))
        return cls(tuple(int(i) for i in np.asarray(indices)[kept]), tuple(float(w) for w in whole[kept]))

    @property
    def columns(self) -> tuple[str, ...]:
        """The voters and the label."""
        return (*map(feature, self.indices), "y")

    @property
    def text(self) -> str:
        """How it reads."""
        return f"vote of {len(self.indices)} features"

    def evaluate(self, rows: pl.DataFrame) -> Bits:
        """Add up the votes; a tie says no."""
        votes = np.full(rows.height, -sum(self.weights))
        for index, weight in zip(self.indices, self.weights, strict=True):
            votes += (2 * weight) * rows[feature(index)].to_numpy()
        right: Bits = (votes > 0) == rows["y"].to_numpy()
        return right


@dataclass(frozen=True, eq=False)
class TableRule(RowQuestion):
    """Whether a rule that names a label for every cell is right."""

    labels: Bits = field(repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The cell and the label."""
        return "cell", "y"

    def evaluate(self, rows: pl.DataFrame) -> Bits:
        """Look up; cells out of range wrap around, so that no row can raise."""
        said = self.labels[rows["cell"].to_numpy() % len(self.labels)]
        right: Bits = said == rows["y"].to_numpy()
        return right


@dataclass(frozen=True, eq=False)
class Marked(RowQuestion):
    """Whether an identity is marked: a code word, or a list of the accused."""

    marks: Bits = field(repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The identity."""
        return ("id",)

    def evaluate(self, rows: pl.DataFrame) -> Bits:
        """Look up; identities out of range wrap around."""
        marked: Bits = self.marks[rows["id"].to_numpy() % len(self.marks)]
        return marked
