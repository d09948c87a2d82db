"""Where rows live. Nothing reaches them but the two verbs of a row source.

    tally    draw rows with replacement, evaluate the query where the rows live, toss, randomize: only counts of
             outcomes leave
    sample   evaluate the query on selected rows: one value for each, secret, for mechanisms that add noise or that
             never use a row twice

A source whose schema names a `unit` draws units: their number is its length, one row of a drawn unit speaks, chosen at
random, and a query that is a `WholeUnit`, or has `rows_per_unit`, is asked as `rows.units` says. A query that `weighs`
gives two columns, the probabilities of 0 and of 1: what is tossed or sampled is what `accepted` makes of them.

Whoever writes a source of their own needs `Selection.indices` (`rows.draws`) and `accepted`, `tossed` and `randomized`
(`rows.randomize`); `open_rows` recognizes it by its verbs.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast.queries.query import Folded, Query, Values
from holdfast.rows.draws import Selection
from holdfast.schema import Schema


@runtime_checkable
class RowVerbs(Protocol):
    """What can be done with rows. Apart from `RowSource`, as looking for a property would compute it."""

    def tally(self, query: Query, *, draws: int, mass: float, rng: Generator) -> NDArray[np.int64]:
        """Draw, evaluate, toss, randomize; return how often each outcome came up.

        Parameters
        ----------
        query
            Its statistic says how many outcomes there are. If it has several parts, each is asked of draws of its
            own, and `evaluate_parts` is handed the part and the number of every draw; also where there is one part, if
            the query is `numbered`.
        draws
            Rows drawn for each part, uniformly and with replacement.
        mass
            With probability `outcomes * mass` an outcome is replaced by a uniformly random one: every outcome has at
            least probability `mass`, whatever the rows say.
        rng
            The source of all randomness.

        Returns
        -------
        Counts of shape (outcomes,) for one part, (parts, outcomes) for several.
        """
        ...

    def sample(self, query: Query, selection: Selection, rng: Generator) -> Values:
        """Return what selected rows say, in the order of the selection. Secret.

        Parameters
        ----------
        query
            What is asked of each row.
        selection
            Which rows are drawn, and how many.
        rng
            The source of all randomness.

        Returns
        -------
        One value for each row, or one line of values if the query gives them; for several parts the selection is made
        anew for each, and the values of part j are `values[j]`.
        """
        ...

    def verify(self) -> None:
        """Read and hash everything again; raise `RowSourceError` if it is not the data that was opened."""
        ...


class RowSource(RowVerbs, Protocol):
    """A dataset that can be asked but not seen."""

    @property
    def name(self) -> str:
        """What the dataset is called: names its ledger and its place in a shared database."""
        ...

    @property
    def schema(self) -> Schema:
        """Column names, types, nullability. Public."""
        ...

    @property
    def fingerprint(self) -> str:
        """A hash of the content: the same data always has the same one."""
        ...

    @property
    def location(self) -> Path | None:
        """The folder that holds the rows; None if they are in memory. A ledger lies beside it."""
        ...

    def __len__(self) -> int:
        """Number of rows n. Public."""
        ...


class Folds(Protocol):
    """What a row source may do beside: `sample` of all rows for those who need no more than totals, in one pass."""

    def fold(self, query: Folded, rng: Generator) -> NDArray[np.float64]:
        """Return the totals of all rows; `rng` is for units, of which a random row speaks. Secret."""
        ...


class FrameLike(Protocol):
    """A Polars, pandas or PyArrow table."""

    @property
    def columns(self) -> Any:
        """Names or columns, as its library has it."""
        ...

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        ...


class ArrowStream(Protocol):
    """Whatever exports its rows as a stream of Arrow data: a query of DuckDB, a reader of PyArrow, ..."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the stream."""
        ...


ColumnLike: TypeAlias = NDArray[Any] | Sequence[object] | pl.Series
# Whatever `open_rows` takes.
Table: TypeAlias = (
    str | Path | Sequence[str | Path] | Mapping[str, ColumnLike] | FrameLike | pl.LazyFrame | ArrowStream | RowSource
)
