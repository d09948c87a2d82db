"""Where rows live. The two verbs of a row source are the only access to them.

    tally    draw rows with replacement, evaluate the query where the rows live, toss, randomize: only counts of
             outcomes leave
    sample   evaluate the query on selected rows: one value for each, secret, for mechanisms that add noise or that
             never use a row twice

A source whose schema names a `unit` draws units: its length is the number of units, a random row represents a drawn
unit, and a query that is a `WholeUnit`, or has `rows_per_unit`, is evaluated as described in `rows.units`. A query that
`weighs` returns two columns, the probabilities of 0 and of 1: `accepted` turns them into what is tossed or sampled.

To write your own source you need `Selection.indices` and `accepted`, `tossed` and `randomized`
(all in `rows.draws`); `open_rows` recognizes it by its verbs.

Where the rows of a question come from: from a table, they are drawn anew for each question. If the plan keeps some rows
for checks, the table has two drawers: rows that answer questions, and rows kept for checks; only a secret key tells
which is which. A deck of rows that were dealt beforehand decides itself which draws a question gets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast.cached import cached_property
from holdfast.guarantees.terms import NO_CAP, Amounts
from holdfast.queries.query import Composed, Folded, OnePass, Query, Values
from holdfast.rows.draws import (
    Indices,
    Selection,
    WithReplacement,
    check_key,
    permuted_block,
    tallied,
    with_replacement,
)
from holdfast.schema import Schema

if TYPE_CHECKING:
    from holdfast.guarantees.plan import Plan
    from holdfast.guarantees.request import PlanRequest

DRAWERS = "drawers"  # the purpose of the ledger's key for them
_PIECE = 1 << 20  # positions of the shuffle looked up at once
_MOST = 0.5  # the share of all rows from which a drawer has most of them
_SPARE = 5.0  # standard deviations of rows drawn in addition, or more


@runtime_checkable
class RowVerbs(Protocol):
    """What can be done with rows. Separate from `RowSource`, because checking for a property would compute it."""

    def tally(self, query: Query, *, draws: int, mass: float, rng: Generator) -> NDArray[np.int64]:
        """Draw, evaluate, toss, randomize; return how often each outcome came up.

        Parameters
        ----------
        query
            Its statistic determines how many outcomes there are. If it has several parts, each has its own draws, and
            `evaluate_parts` gets the part and the number of every draw; it is also used for one part if the query is
            `numbered`.
        draws
            Rows drawn for each part, uniformly and with replacement.
        mass
            With probability `outcomes * mass` an outcome is replaced by a uniformly random one: every outcome has at
            least probability `mass`, whatever the rows are.
        rng
            The source of all randomness.

        Returns
        -------
        Counts of shape (outcomes,) for one part, (parts, outcomes) for several.
        """
        ...

    def sample(self, query: Query, selection: Selection, rng: Generator) -> Values:
        """Return the values of selected rows, in the order of the selection. Secret.

        Parameters
        ----------
        query
            The query to evaluate on each row.
        selection
            Which rows are drawn, and how many.
        rng
            The source of all randomness.

        Returns
        -------
        One value for each row, or one line of values if the query returns lines; with several parts, each has its own
        selection, and the values of part j are `values[j]`.
        """
        ...

    def verify(self) -> None:
        """Read and hash everything again; raise `RowSourceError` if it is not the data that was opened."""
        ...


class RowSource(RowVerbs, Protocol):
    """A dataset that can be asked but not seen."""

    @property
    def name(self) -> str:
        """The name of the dataset, also used for its ledger and its place in a shared database."""
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
        """The folder that holds the rows; None if they are in memory. The ledger is stored beside it."""
        ...

    def __len__(self) -> int:
        """Number of rows n. Public."""
        ...


class PartOfRows:
    """Some rows of another source: it has the name, the columns and the budget of the whole."""

    def __init__(self, whole: RowSource) -> None:
        self._whole = whole

    @property
    def name(self) -> str:
        """The name of the whole."""
        return self._whole.name

    @property
    def schema(self) -> Schema:
        """The schema of the whole."""
        return self._whole.schema

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the whole."""
        return self._whole.fingerprint

    @property
    def location(self) -> Path | None:
        """The location of the whole."""
        return self._whole.location

    def verify(self) -> None:
        """Verify the whole."""
        self._whole.verify()


class Folds(Protocol):
    """An optional ability of a row source: totals over all rows in one pass, instead of `sample` of all rows."""

    def fold(self, query: Folded, rng: Generator) -> NDArray[np.float64]:
        """Return the totals of all rows; `rng` chooses the row that represents each unit. Secret."""
        ...


class Passes(Protocol):
    """An optional ability of a row source: `tally` of several passes, whose rows it reads together."""

    def tally_passes(
        self, whole: Composed, passes: Sequence[OnePass], *, draws: int, mass: float, rng: Generator
    ) -> list[NDArray[np.int64]]:
        """Return what `tally` does for each of the `passes` of the `whole`; each has draws of its own."""
        ...


@runtime_checkable
class OnDisk(Protocol):
    """An optional ability of a row source: to report that its files are damaged, and to close them."""

    def require_sound(self) -> None:
        """Refuse, before anything is charged, if the data are known to be damaged."""
        ...

    def close(self) -> None:
        """Stop any background work."""
        ...


class Reserved(Amounts, Protocol):
    """What was taken before a question."""

    @property
    def number(self) -> int:
        """The number of the question."""
        ...


class LedgerView(Protocol):
    """The ledger as rows see it: what was reserved in it, and its secrets."""

    @property
    def first(self) -> str:
        """The hash of its first entry, which distinguishes it from every other ledger; "" before there is one."""
        ...

    @property
    def taken(self) -> Amounts:
        """How much has been taken by all processes, including what is reserved ahead."""
        ...

    def key(self, purpose: str) -> bytes:
        """Return the key for a purpose. Secret."""
        ...


class Draws(Protocol):
    """Where the draws of questions come from, under one plan: fresh draws for each question, or dealt beforehand."""

    dealt: bool  # whether they were dealt beforehand: then only for the plan's mechanism, and in limited number

    def join(self) -> None:
        """Refuse draws that were used beyond what the ledger has taken, or by another ledger."""
        ...

    @property
    def reach(self) -> tuple[int, int, int]:
        """The most charge and statements that the draws last for; the charge counts modulo the third number."""
        ...

    def expect(self, costs: Sequence[Amounts]) -> None:
        """Hook before questions reserve these costs: may refuse damaged rows, or find more draws."""
        ...

    def refuse(self, costs: Sequence[Amounts]) -> None:
        """Raise the reason why the ledger refused questions of these costs, if too few draws are left."""
        ...

    def rows_for(self, place: Reserved, cost: Amounts) -> tuple["RowSource", "RowSource | None"]:
        """Return the rows that answer a question, and those that only check guesses, if the plan has such rows.

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
    """A row source that was dealt beforehand, so it decides which plan fits and which draws a question gets."""

    def plan_for(self, request: "PlanRequest") -> "Plan":
        """Return the plan of a new ledger."""
        ...

    def draws_under(self, plan: "Plan", ledger: LedgerView) -> Draws:
        """Return its draws under a plan; refuse a plan that they do not fit."""
        ...


class FrameLike(Protocol):
    """A Polars, pandas or PyArrow table."""

    @property
    def columns(self) -> Any:
        """Names or columns, depending on its library."""
        ...

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        ...


class ArrowStream(Protocol):
    """Anything that exports its rows as an Arrow stream: a DuckDB query, a PyArrow reader, ..."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the stream."""
        ...


ColumnLike: TypeAlias = NDArray[Any] | Sequence[object] | pl.Series
# Everything that `open_rows` accepts.
Table: TypeAlias = (
    str | Path | Sequence[str | Path] | Mapping[str, ColumnLike] | FrameLike | pl.LazyFrame | ArrowStream | RowSource
)


def plan_for(rows: RowSource, request: "PlanRequest") -> "Plan":
    """Return the plan of a new ledger of these rows."""
    return rows.plan_for(request) if isinstance(rows, DealtRows) else request.make(len(rows))


def draws_under(rows: RowSource, plan: "Plan", ledger: LedgerView) -> Draws:
    """Return the source of draws for questions under this plan."""
    return rows.draws_under(plan, ledger) if isinstance(rows, DealtRows) else TableDraws(rows, plan, ledger)


class TableDraws:
    """The draws of questions to a table: drawn anew for each question, from the drawer that answers."""

    dealt = False
    reach = NO_CAP, NO_CAP, 2 * NO_CAP

    def __init__(self, rows: RowSource, plan: "Plan", ledger: LedgerView) -> None:
        self._rows, self._ledger = rows, ledger
        self._kept = plan.terms.all_rows - plan.terms.rows
        self._on_disk = rows if isinstance(rows, OnDisk) else None

    def join(self) -> None:
        """Refuse nothing: a table does not limit which ledgers draw from it."""

    def expect(self, costs: Sequence[Amounts]) -> None:
        """Refuse if the data are known to be damaged; reading them would refuse as well, but not for free."""
        if self._on_disk is not None:
            self._on_disk.require_sound()

    def refuse(self, costs: Sequence[Amounts]) -> None:
        """Refuse nothing: rows that are drawn anew do not run out."""

    def rows_for(self, place: Amounts, cost: Amounts) -> tuple[RowSource, RowSource | None]:
        """Return the drawer that answers, and the one kept for checks, if any; the same for all questions."""
        return self._drawers

    @cached_property
    def _drawers(self) -> tuple[RowSource, RowSource | None]:
        if not self._kept:
            return self._rows, None
        parts = DividedRows(self._rows, self._ledger.key(DRAWERS), self._kept)
        return parts.asked, parts.kept


class DividedRows:
    """The first `kept` rows in the secret order of `key` are kept; the others are asked.

    Every process finds the same rows again from the ledger's key, in a table of any size: nothing is stored.
    """

    def __init__(self, rows: RowSource, key: bytes, kept: int) -> None:
        check_key(key)
        self._rows, self._key, self._kept = rows, key, kept
        self._numbers: dict[int, Indices] = {}

    @cached_property
    def _inside(self) -> NDArray[np.bool_]:
        """Whether each row is kept; computed when the first row is read."""
        n = len(self._rows)
        inside = np.zeros(n, np.bool_)
        for start in range(0, self._kept, _PIECE):
            inside[permuted_block(self._key, n, start, min(_PIECE, self._kept - start))] = True
        return inside

    @property
    def asked(self) -> "Drawer":
        """The rows that answer."""
        return Drawer(self._rows, self, 0, len(self._rows) - self._kept)

    @property
    def kept(self) -> "Drawer":
        """The rows that check."""
        return Drawer(self._rows, self, 1, self._kept)

    def rows(self, which: int) -> Indices:
        """Return the numbers of the rows in one of the drawers, in order: 0 answers, 1 checks."""
        if which not in self._numbers:
            self._numbers[which] = np.flatnonzero(self._inside == bool(which))
        return self._numbers[which]

    def drawn(self, which: int, count: int, rng: Generator) -> Indices:
        """Draw rows of one of the drawers, each uniform and independent.

        From a drawer with most of the rows, all rows are drawn from, and those of the other drawer are left out: a list
        of its rows would be eight times as large as the marks that say which row is where.
        """
        share = (self._kept if which else self._inside.size - self._kept) / self._inside.size
        if share < _MOST:
            rows = self.rows(which)
            return rows.take(with_replacement(rng, rows.size, count))
        found = self._found(which, count, share, rng)
        while found.size < count:
            found = np.concatenate([found, self._found(which, count - found.size, share, rng)])
        return found[:count]

    def _found(self, which: int, count: int, share: float, rng: Generator) -> Indices:
        """Draw from all rows; return those in one of the drawers, nearly always at least `count`."""
        some = with_replacement(rng, self._inside.size, ceil((count + _SPARE * sqrt(count)) / share))
        return some.compress(self._inside.take(some) == bool(which))


@dataclass(frozen=True)
class Within:
    """A selection of the rows of one drawer."""

    selection: Selection
    drawers: DividedRows
    which: int

    def indices(self, n: int, rng: Generator) -> Indices:
        """Select among the rows of the drawer."""
        if isinstance(self.selection, WithReplacement):
            return self.drawers.drawn(self.which, self.selection.count, rng)
        rows = self.drawers.rows(self.which)
        return rows.take(self.selection.indices(rows.size, rng))


class Drawer(PartOfRows):
    """A row source that is part of another: the rows of one drawer."""

    def __init__(self, rows: RowSource, drawers: DividedRows, which: int, count: int) -> None:
        super().__init__(rows)
        self._drawers, self._which, self._count = drawers, which, count

    def __len__(self) -> int:
        return self._count

    def tally(self, query: Query, *, draws: int, mass: float, rng: Generator) -> NDArray[np.int64]:
        """Draw from this drawer only, evaluate, toss, randomize."""
        values = self.sample(query, WithReplacement(draws), rng)
        outcomes = query.statistic.outcomes
        if query.parts == 1:
            return tallied(values, outcomes, mass, rng)
        return np.stack([tallied(part, outcomes, mass, rng) for part in values])

    def sample(self, query: Query, selection: Selection, rng: Generator) -> Values:
        """Return the values of selected rows of the drawer. Secret."""
        return self._whole.sample(query, Within(selection, self._drawers, self._which), rng)
