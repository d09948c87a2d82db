"""The base of every query: a function of one row, with finitely many outcomes.

A query never sees the table. It is given a small frame of drawn rows and returns, for each of them, the distribution of
one outcome, in one of these forms:

    boolean array    outcomes 0 and 1                        shares
    float array      in [0, 1]: the bias of a coin           means, rescaled from [low, high] to [0, 1]
                     NaN: this row is outside the group      outcomes "excluded", 0, 1
    integer array    the outcome itself, 0 .. outcomes-1     histograms, shares of several groups
    two columns      a group's number and a coin's bias      means of several groups
    c-1 columns      the probabilities of 1 .. c-1           moments (c outcomes)

A query with weights (`weighs`), about one group, returns two columns instead, the probabilities of 0 and of 1; the rest
of the probability is "excluded".

`evaluate` is total: no content of the rows may raise, and row i of the result depends on row i alone. Most queries
combine the values of a few functions of one row (`Composed`). A row source may evaluate each function in its own way:
on arrays without a frame, or once for every distinct text that was drawn.

A query may have several parts, each with draws of its own (the coordinates of a gradient): then `evaluate_parts` is
told which part and which of its draws every row answers.

A query that needs the same numbers of a row again and again (the features of a model, at every step of a fit) lists
them as its `packings`. A row source may compute them once for all rows and pass lines of numbers instead of frames.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.cached import cached_property
from holdfast.guarantees.statistic import Statistic, Values
from holdfast.schema import Type

__all__ = ["Composed", "Direct", "Folded", "Function", "OnePass", "Packed", "Packing", "Query", "RowValues", "Values"]

Direct = Callable[[Mapping[str, NDArray[Any]]], NDArray[Any]]  # from columns by name to one value per row

RowValues = pl.Series | NDArray[Any]  # one function's values, one per row; in arrays NULL is false, or NaN
Packed = NDArray[np.float32]  # one line of numbers for each row


class Packing(Protocol):
    """Numbers that depend on one row alone, in single precision; a packed query may use nothing else of the row."""

    @property
    def identity(self) -> str | None:
        """Canonical text: equal exactly for equal numbers. None: cannot be decided, so nothing is cached."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that `of` reads."""

    @property
    def width(self) -> int:
        """How many numbers a row has."""

    def of(self, rows: pl.DataFrame) -> Packed:
        """Return one line for each row; total, like `Query.evaluate`."""


class Function(Protocol):
    """A function of one row, as row sources see it."""

    @property
    def type(self) -> Type:
        """The type of the value."""

    @property
    def nullable(self) -> bool:
        """Whether the value may be missing."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""

    @property
    def identity(self) -> str | None:
        """Canonical text; None where identity cannot be decided."""

    @property
    def work(self) -> int:
        """Steps that one row takes."""

    @property
    def direct(self) -> Direct | None:
        """How to evaluate on arrays, without a frame; None if it needs one."""

    def series(self, rows: pl.DataFrame) -> pl.Series:
        """Return one value per row; total, and row i depends on row i alone."""


class Query(ABC):
    """A question about one row, checked against the schema."""

    parts: int = 1
    work: int = 1  # steps that one row takes, from the checked tree alone
    numbered: ClassVar[bool] = False  # whether the outcome depends on which draw of which part a row answers
    weighs: bool = False  # whether it gives the probabilities of 0 and 1 for each row, which need not add up to one
    rows_per_unit: int | None = None  # least number of places in a unit, one of which a draw picks; see `rows.units`
    speaks_of_units: bool = False  # whether its text says how much units or their rows count
    incomplete: str | None = None  # the bare column asked about, if its values may be missing: only present ones count
    packings: tuple[Packing, ...] = ()  # what `evaluate_packed` takes instead of rows; empty: rows only

    @property
    @abstractmethod
    def statistic(self) -> Statistic:
        """What is estimated: how many outcomes and intervals there are, and how to read them."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns `evaluate` reads; nothing else is gathered."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The question in words, for people."""

    @property
    def bounds(self) -> tuple[float, float]:
        """The declared range of a mean; (0, 1) for shares and histograms."""
        return 0.0, 1.0

    @property
    def identity(self) -> str | None:
        """Canonical text: equal exactly for equal questions. None: identity cannot be decided (functions)."""
        return None

    @abstractmethod
    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return the outcome of each of these rows, in one of the forms above."""

    def evaluate_parts(self, rows: pl.DataFrame, part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
        """Return row i's outcome for draw `draw[i]` of part `part[i]`; neither matters if there is one part."""
        return self.evaluate(rows)

    def evaluate_packed(self, lines: Sequence[Packed], part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
        """Return what `evaluate_parts` would, from the lines of each of `packings` for the rows."""
        raise NotImplementedError  # queries with packings override it


class Composed(Query):
    """A query that combines the values of a few functions of one row."""

    @property
    @abstractmethod
    def functions(self) -> tuple[Function, ...]:
        """The functions of one row: a value, the conditions of groups."""

    @abstractmethod
    def combined(self, row_values: Sequence[RowValues]) -> Values:
        """Return each row's outcome, from the row's values of each of `functions`."""

    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return the outcome of each of these rows."""
        return self.combined([function.series(rows) for function in self.functions])

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that the functions read."""
        functions = self.functions
        if len(functions) == 1:
            return functions[0].columns
        return tuple(dict.fromkeys(chain.from_iterable(function.columns for function in functions)))

    @cached_property
    def work(self) -> int:  # type: ignore[override]
        """Steps that one row takes."""
        steps = 0
        for function in self.functions:
            steps += function.work
        return steps


class OnePass(Composed):
    """A query that may be one of several passes of a question, each about some of the outcomes of the whole."""

    @abstractmethod
    def of_whole(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how often each outcome of this pass came up, from how often each of the whole question did."""


class Folded(Composed):
    """A query that needs only totals over rows, computed from the values of several functions."""

    @abstractmethod
    def fold(self, row_values: Sequence[RowValues]) -> NDArray[np.float64]:
        """Return the totals of some rows, from each function's values in the same row order; totals can be added."""

    @abstractmethod
    def totals(self, values: Values) -> NDArray[np.float64]:
        """Return the same totals from the result of `evaluate`."""
