"""Every answer so far, read back from the ledger: as answers, and as a frame."""

from collections.abc import Iterable

import polars as pl

from holdfast.answer import AnyAnswer, Record
from holdfast.errors import LedgerDamaged
from holdfast.guarantees.guarantee import Guarantee
from holdfast.ledger import Entry
from holdfast.questions import KINDS
from holdfast.questions.price import cost_in_answers
from holdfast.questions.register import Registered

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

    `registered` is the number of the entry in which the question was written down before it was asked, if it was.
    """
    lines = []
    for entry in entries:
        answer = answer_from(guarantee, entry)
        for label, estimate in answer.rows():
            answered = (entry.seq, answer.question, label, *estimate.to_json().values())
            record = (answer.kind, entry.analyst, entry.time, answer.cost, answer.rows_read, registered.of(entry))
            lines.append((*answered, *record))
    return pl.DataFrame(lines, schema=SCHEMA, orient="row")
