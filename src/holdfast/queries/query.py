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

`evaluate` is total: no content of the rows may raise, and row i of the result depends on row i alone. Most queries are
made from what a few functions say of each row (`Composed`): a row source may ask each function in its own way, on
arrays without a frame, or once for every text that was drawn.

A query may have several parts, each asked of draws of its own (the coordinates of a gradient): then `evaluate_parts` is
told which part and which of its draws every row answers.

A query whose rows say the same numbers again and again (the features of a model, at every step of a fit) names them as
its `packings`. A row source may compute them once for all rows and hand over lines of numbers instead of frames.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any, ClassVar, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.guarantees.statistic import Statistic, Values
from holdfast.schema import Type

__all__ = ["Composed", "Direct", "Folded", "Function", "Packed", "Packing", "Query", "RowValues", "Values"]

Direct = Callable[[Mapping[str, NDArray[Any]]], NDArray[Any]]  # from columns by name to one value per row

RowValues = pl.Series | NDArray[Any]  # what one function says of each row; in arrays NULL is false, or NaN
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


class Function(Protocol):
    """A function of one row, as row sources see it."""

    @property
    def type(self) -> Type:
        """The type of the value."""
        ...

    @property
    def nullable(self) -> bool:
        """Whether the value may be missing."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        ...

    @property
    def identity(self) -> str | None:
        """Canonical text; None where identity cannot be decided."""
        ...

    @property
    def work(self) -> int:
        """Steps that one row takes."""
        ...

    @property
    def direct(self) -> Direct | None:
        """How to evaluate on arrays, without a frame; None where it takes one."""
        ...

    def series(self, rows: pl.DataFrame) -> pl.Series:
        """Return one value per row; total, and row i depends on row i alone."""
        ...


class Query(ABC):
    """A question about one row, checked against the schema."""

    parts: int = 1
    work: int = 1  # steps that one row takes, from the checked tree alone
    numbered: ClassVar[bool] = False  # whether it matters which draw of which part a row answers
    weighs: bool = False  # whether it gives the probabilities of 0 and 1 for each row, which need not add up to one
    rows_per_unit: int | None = None  # places that a unit has at least, of which a draw takes one; see `rows.units`
    speaks_of_units: bool = False  # whether its text says how much units or their rows count
    cheaper: str | None = None  # what would make the answer cost less, if the admin or the caller can do something
    packings: tuple[Packing, ...] = ()  # what `evaluate_packed` can be handed instead of rows; none: rows only

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


class Composed(Query):
    """A query made from what a few functions say of each row."""

    @property
    @abstractmethod
    def functions(self) -> tuple[Function, ...]:
        """The functions of one row: a value, the conditions of groups."""

    @abstractmethod
    def combined(self, row_values: Sequence[RowValues]) -> Values:
        """Return what each row says, from what each of `functions` says of it."""

    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return what each of these rows says."""
        return self.combined([function.series(rows) for function in self.functions])

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns they read."""
        return tuple(dict.fromkeys(chain.from_iterable(map(attrgetter("columns"), self.functions))))

    @cached_property
    def work(self) -> int:  # type: ignore[override]
        """Steps that one row takes."""
        return sum(map(attrgetter("work"), self.functions))


class Folded(Composed):
    """A query that asks rows for totals alone, and makes them from what several functions say of each row."""

    @abstractmethod
    def fold(self, row_values: Sequence[RowValues]) -> NDArray[np.float64]:
        """Return the totals of some rows from what each function says of them, all in the same order; they add up."""

    @abstractmethod
    def totals(self, values: Values) -> NDArray[np.float64]:
        """Return the same from what `evaluate` says of each row."""
