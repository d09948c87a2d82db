"""What every query is: a function of one row, with finitely many outcomes.

A query never sees the table. It is handed a small frame of drawn rows and says, for each of them, the law of one
outcome. Few forms are enough:

    boolean array    outcomes 0 and 1                        shares
    float array      in [0, 1]: the bias of a coin           means, rescaled from [low, high] to [0, 1]
                     NaN: this row is outside the group      outcomes "excluded", 0, 1
    integer array    the outcome itself, 0 .. outcomes-1     histograms, shares of several groups
    two columns      a group's number and a coin's bias      means of several groups
    c-1 columns      the law of all outcomes but the first   moments

A query with weights (`weighs`), of one group, gives two columns instead, the probabilities of 0 and of 1; the rest is
"excluded".

`evaluate` is total: no content of the rows may raise, and row i of the result depends on row i alone. A query that can
say the same from a dict of arrays, without a frame, has that as `direct`.

A query may have several parts, each asked of draws of its own (the coordinates of a gradient): then `evaluate_parts` is
told which part and which of its draws every row answers.

A query whose rows say the same numbers again and again (the features of a model, at every step of a fit) names them as
its `packings`. A row source may compute them once for all rows and hand over lines of numbers instead of frames.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.guarantees.statistic import Statistic, Values

if TYPE_CHECKING:
    from holdfast.queries.evaluate import RowFunction

__all__ = ["Direct", "Folded", "Lookup", "Packed", "Packing", "Query", "Said", "Values"]

Direct = Callable[[Mapping[str, NDArray[Any]]], NDArray[Any]]  # from columns by name to one value per row

Lookup = Callable[[pl.Series], NDArray[np.int64]]  # from texts to one whole number each

Said = pl.Series | NDArray[Any]  # what one function says of each row
Packed = NDArray[np.float32]  # one line of numbers for each row


class Packing(Protocol):
    """Numbers that depend on one row alone, in single precision: what rows say may depend on nothing else."""

    @property
    def identity(self) -> str | None:
        """Canonical text: equal exactly for equal numbers. None: cannot be decided, so nothing is kept."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that `of` reads."""
        ...

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        ...

    def of(self, rows: pl.DataFrame) -> Packed:
        """Return one line for each row; total, as `Query.evaluate` is."""
        ...


class Query(ABC):
    """A question about one row, checked against the schema."""

    parts: int = 1
    work: int = 1  # steps that one row takes, from the checked tree alone
    numbered: ClassVar[bool] = False  # whether it matters which draw of which part a row answers
    weighs: bool = False  # whether it gives the probabilities of 0 and 1 for each row, which need not add up to one
    rows_per_unit: int | None = None  # places that a unit has at least, of which a draw takes one; see `rows.units`
    speaks_of_units: bool = False  # whether its text says how much units or their rows count
    packings: tuple[Packing, ...] = ()  # what `evaluate_packed` can be handed instead of rows; none: rows only
    lookups: Mapping[str, Lookup] = {}  # text columns that `direct` takes as the numbers that these give

    @property
    @abstractmethod
    def statistic(self) -> Statistic:
        """What is asked of the population: how many outcomes, how many intervals, how they are read."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns `evaluate` reads; nothing else is gathered."""

    @property
    @abstractmethod
    def text(self) -> str:
        """How the question reads, for people."""

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The declared range of a mean; (0, 1) for shares and histograms."""
        return 0.0, 1.0

    @property
    def identity(self) -> str | None:
        """Canonical text: equal exactly for equal questions. None: identity cannot be decided (functions)."""
        return None

    @property
    def cheaper(self) -> str | None:
        """What would make the answer cost less, if the admin or the caller can do something about it."""
        return None

    @property
    def direct(self) -> Direct | None:
        """The same on arrays, where that is possible."""
        return None

    @property
    def labels(self) -> tuple[str, ...]:
        """What each reported number is called; empty where there is one without a name."""
        return ()

    @abstractmethod
    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return what each of these rows says."""

    def evaluate_parts(self, rows: pl.DataFrame, part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
        """Return what row i says for draw `draw[i]` of part `part[i]`; the same for all where there is one part."""
        return self.evaluate(rows)

    def evaluate_packed(self, lines: Sequence[Packed], part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
        """Return what `evaluate_parts` would, from the lines that each of `packings` has for the rows."""
        raise NotImplementedError  # queries with packings say it


class Folded(Query):
    """A query that asks rows for totals alone, and makes them from what several functions say of each row."""

    @property
    @abstractmethod
    def functions(self) -> "tuple[RowFunction, ...]":
        """The functions of one row: a value, the conditions of groups."""

    @abstractmethod
    def fold(self, said: Sequence[Said]) -> NDArray[np.float64]:
        """Return the totals of some rows from what each function says of them, all in the same order; they add up."""

    @abstractmethod
    def totals(self, values: Values) -> NDArray[np.float64]:
        """Return the same from what `evaluate` says of each row."""
