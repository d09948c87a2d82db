"""Every answer so far, as a frame."""

from collections.abc import Iterable

import polars as pl

from holdfast.ledger import Entry

SCHEMA = {
    "seq": pl.Int64,
    "time": pl.String,
    "analyst": pl.String,
    "kind": pl.String,
    "question": pl.String,
    "category": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "cost": pl.Int64,
    "rows_read": pl.Int64,
}


def history_frame(entries: Iterable[Entry]) -> pl.DataFrame:
    """One row per released interval; a histogram has one for each category."""
    rows = []
    for entry in entries:
        labels = entry.answer.get("categories", [None])
        triples = entry.answer.get("estimates") or [entry.answer["estimate"]]
        for label, (value, low, high) in zip(labels, triples, strict=True):
            rows.append(
                (
                    entry.seq,
                    entry.time,
                    entry.analyst,
                    entry.question["kind"],
                    entry.question["text"],
                    label,
                    value,
                    low,
                    high,
                    entry.cost.flips,
                    entry.rows_read,
                )
            )
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")
