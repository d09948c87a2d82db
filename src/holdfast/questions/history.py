"""Every answer so far, read back from the ledger: as answers, as a frame or, for a board, as its standings."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

import polars as pl

from holdfast.answer import AnyAnswer, Record
from holdfast.errors import LedgerDamaged, PlanConflict
from holdfast.guarantees.guarantee import Guarantee
from holdfast.ledger import Entry, Ledger
from holdfast.questions import KINDS
from holdfast.questions.price import cost_in_answers
from holdfast.questions.register import Registered
from holdfast.questions.submit import SUBMIT, SubmitAnswer

SCHEMA = {
    "seq": pl.Int64,
    "question": pl.String,
    "category": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "kind": pl.String,
    "analyst": pl.String,
    "time": pl.String,
    "cost": pl.Int64,
    "rows_read": pl.Int64,
    "registered": pl.Int64,
}


def answer_from(guarantee: Guarantee, entry: Entry, fresh: bool = True) -> AnyAnswer:
    """Read an answer back from its ledger entry; it is free unless it is `fresh`."""
    terms = guarantee.terms
    try:
        kind = KINDS[entry.question["kind"]]
    except KeyError:
        raise LedgerDamaged(
            f"Entry {entry.seq} of the ledger answers a question of the kind {entry.question['kind']!r}, which this"
            " installation does not know. Install the version or the package that wrote it.",
            entry=entry.seq,
        ) from None
    answer = kind.answer_with(entry.answer)
    record = Record(
        kind=kind.name,
        question=entry.question["text"],
        guarantee=guarantee.name,
        confidence=terms.confidence,
        population=terms.population,
        rows_read=entry.rows_read,
        cost=cost_in_answers(terms, entry.place.charge, entry.place.intervals, entry.cost),
        seq=entry.seq,
        receipt=f"{entry.seq}:{entry.hash}",
        cached=not fresh,
    )
    return answer.read(entry.answer, record)


def history_frame(entries: Iterable[Entry], guarantee: Guarantee, registered: Registered) -> pl.DataFrame:
    """Return one row per released interval; a histogram has one for each category.

    The column `registered` is the number of the entry that registered the question before it was asked, if any did.
    """
    lines = []
    for entry in entries:
        answer = answer_from(guarantee, entry)
        for label, estimate in answer.rows():
            answered = (entry.seq, answer.question, label, *estimate.to_json().values())
            record = (answer.kind, entry.analyst, entry.time, answer.cost, answer.rows_read, registered.of(entry))
            lines.append((*answered, *record))
    return pl.DataFrame(lines, schema=SCHEMA, orient="row")


STANDINGS = {
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

    Every improvement was in a better cell than the one before it, so the order in time is the order of scores. All
    that is known of the others is that they were not better than the best at their time.
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
    return pl.DataFrame(lines, schema=STANDINGS)


def _line(rank: int | None, entry: Entry, answer: SubmitAnswer) -> dict[str, Any]:
    shown = {"name": answer.name, "outcome": answer.outcome, "low": answer.low, "high": answer.high}
    cell = {"cell_low": answer.cell[0], "cell_high": answer.cell[1]}
    return {"rank": rank, "by": entry.analyst} | shown | cell | {"seq": entry.seq, "time": entry.time}
