"""The submissions to a board, read back from its ledger: improvements, the best first, then the others."""

import threading
from collections.abc import Callable
from typing import Any

import polars as pl

from holdfast.errors import PlanConflict
from holdfast.guarantees.guarantee import Guarantee
from holdfast.ledger import Entry, Ledger
from holdfast.questions.history import answer_from
from holdfast.questions.submit import SUBMIT, SubmitAnswer

SCHEMA = {
    "rank": pl.Int64,
    "by": pl.String,
    "low": pl.Float64,
    "high": pl.Float64,
    "outcome": pl.String,
    "name": pl.String,
    "cell_low": pl.Float64,
    "cell_high": pl.Float64,
    "seq": pl.Int64,
    "time": pl.String,
}


class Standings:
    """The standings of a board, which follow its ledger as it grows.

    Every improvement was in a better cell than the one before it, so the order in time is the order of scores. What is
    known of the others is only that they were not better than the best at their time.
    """

    def __init__(self, ledger: Ledger, standing: Callable[[], Guarantee]) -> None:
        self._ledger, self._standing = ledger, standing
        self._improved: list[tuple[Entry, SubmitAnswer]] = []
        self._others: list[tuple[Entry, SubmitAnswer]] = []
        self._next = 1
        self._lock = threading.Lock()

    def lines(self, most: int | None = None) -> list[dict[str, Any]]:
        """Return the lines of a table, as plain values: improvements, the best first, then the newest others.

        `most` limits how many there are of each.
        """
        guarantee = self._standing()
        if guarantee.asks != SUBMIT.name:
            raise PlanConflict(f"{self._ledger.dataset} is no board, so it has no standings.", guarantee=guarantee.name)
        with self._lock:
            for entry in self._ledger.entries(self._next):
                answer = answer_from(guarantee, entry)
                assert isinstance(answer, SubmitAnswer)
                (self._improved if answer.improved else self._others).append((entry, answer))
                self._next = entry.seq + 1
            better, others = self._improved[::-1][:most], self._others[::-1][:most]
        ranked = [_line(rank, *pair) for rank, pair in enumerate(better, start=1)]
        return ranked + [_line(None, *pair) for pair in others]

    def frame(self) -> pl.DataFrame:
        """Return all of them as a frame."""
        return standings_frame(self.lines())


def standings_frame(lines: list[dict[str, Any]]) -> pl.DataFrame:
    """Return lines of standings as a frame."""
    return pl.DataFrame(lines, schema=SCHEMA)


def _line(rank: int | None, entry: Entry, answer: SubmitAnswer) -> dict[str, Any]:
    shown = {"name": answer.name, "outcome": answer.outcome, "low": answer.low, "high": answer.high}
    cell = {"cell_low": answer.cell[0], "cell_high": answer.cell[1]}
    return {"rank": rank, "by": entry.analyst} | shown | cell | {"seq": entry.seq, "time": entry.time}
