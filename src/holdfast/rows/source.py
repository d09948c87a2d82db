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
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast.queries.query import Folded, Query, Values
from holdfast.rows.draws import Selection
from holdfast.schema import Schema

if TYPE_CHECKING:
    from holdfast.guarantees.plan import Plan
    from holdfast.guarantees.request import PlanRequest


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
        """A hash of the content: the same data always has the same one.

        Where some rows are kept apart from it, ", keeping " and a hash of which ones follow: a ledger is of one such
        division, and whichever it is, the content has one budget.
        """
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


@runtime_checkable
class Kept(Protocol):
    """What a row source may do beside: say that its files are damaged, and let go of them."""

    def require_sound(self) -> None:
        """Refuse if the data are known to be damaged: before anything is charged."""
        ...

    def close(self) -> None:
        """Stop whatever goes on in the background."""
        ...


class Taken(Protocol):
    """What a question takes of the budget, or all of them together, or those before it."""

    @property
    def charge(self) -> int:
        """In the guarantee's own units."""
        ...

    @property
    def intervals(self) -> int:
        """In statements."""
        ...


class LedgerView(Protocol):
    """The ledger, as rows see it: what was reserved in it, and its secrets."""

    @property
    def first(self) -> str:
        """The hash of its first entry, which tells it from every other; "" before."""
        ...

    @property
    def taken(self) -> Taken:
        """How much has been taken by anybody, ahead or not."""
        ...

    def key(self, purpose: str) -> bytes:
        """Return the key for a purpose. Secret."""
        ...


class Draws(Protocol):
    """Where the draws of questions come from, under one plan: drawn anew for each, or dealt beforehand."""

    dealt: bool  # beforehand, for the mechanism of the plan and no other; then they end

    def join(self) -> None:
        """Refuse draws that were used beyond what the ledger has taken, or by another ledger."""
        ...

    @property
    def reach(self) -> tuple[int, int, int]:
        """How far charge and statements can be taken until the draws end; the charge is counted modulo the third."""
        ...

    def expect(self, costs: Sequence[Taken]) -> None:
        """Hear what questions are about to reserve: a chance to refuse damaged rows, or to find more draws."""
        ...

    def refuse(self, costs: Sequence[Taken]) -> None:
        """Say why the ledger has refused questions of these costs, if it is for want of draws."""
        ...

    def rows_for(self, place: Taken, cost: Taken) -> tuple["RowSource", "RowSource | None"]:
        """Return the rows that answer a question, and those that only check its guess, if the plan has such.

        Parameters
        ----------
        place
            What was taken before it.
        cost
            What it takes itself.
        """
        ...


@runtime_checkable
class DealtRows(Protocol):
    """A row source that was dealt beforehand, and so says which plan it suits and which draws a question has."""

    def plan_for(self, request: "PlanRequest") -> "Plan":
        """Return the plan of a new ledger."""
        ...

    def draws_under(self, plan: "Plan", ledger: LedgerView) -> Draws:
        """Return its draws under a plan; refuse a plan that they are not for."""
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
