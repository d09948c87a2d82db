"""Where the rows of a question come from.

From a table, rows are drawn anew for each question. If the plan keeps some rows for checks, the table has two drawers:
rows that answer questions, and rows kept for checks; only a secret key tells which is which. A deck of rows that were
dealt beforehand decides itself which draws a question gets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, sqrt

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast.guarantees.plan import Plan
from holdfast.guarantees.request import PlanRequest
from holdfast.guarantees.terms import NO_CAP, Amounts
from holdfast.queries.query import Query, Values
from holdfast.rows.draws import (
    Indices,
    Selection,
    WithReplacement,
    check_key,
    permuted_block,
    tallied,
    with_replacement,
)
from holdfast.rows.source import DealtRows, Draws, LedgerView, OnDisk, PartOfRows, RowSource

DRAWERS = "drawers"  # the purpose of the ledger's key for them
_PIECE = 1 << 20  # positions of the shuffle looked up at once
_MOST = 0.5  # the share of all rows from which a drawer has most of them
_SPARE = 5.0  # standard deviations of rows drawn in addition, or more


def plan_for(rows: RowSource, request: PlanRequest) -> Plan:
    """Return the plan of a new ledger of these rows."""
    return rows.plan_for(request) if isinstance(rows, DealtRows) else request.make(len(rows))


def draws_under(rows: RowSource, plan: Plan, ledger: LedgerView) -> Draws:
    """Return the source of draws for questions under this plan."""
    return rows.draws_under(plan, ledger) if isinstance(rows, DealtRows) else TableDraws(rows, plan, ledger)


class TableDraws:
    """The draws of questions to a table: drawn anew for each question, from the drawer that answers."""

    dealt = False
    reach = NO_CAP, NO_CAP, 2 * NO_CAP

    def __init__(self, rows: RowSource, plan: Plan, ledger: LedgerView) -> None:
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
