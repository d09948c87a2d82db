"""The attack of a free bit for each column: does the schema, or a price, tell which columns miss values in the sample?

Every value of 240 columns is missing with probability p, so that a column of n rows misses one or more with
probability 1/2. If the analyst can tell which columns do, the share of rows that miss a value in one of those is twice
what it is in the population: about 0.16 for 0.08 at n = 1,000, far outside any honest interval of one question. An
analyst who cannot tell names half of the columns, and that interval fails with probability 0.05 at most, in each of 10
worlds independently: 7 or more failures have probability 120 * 0.05^7 < 1e-7 < FALSE_ALARM.
"""

from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.rows.memory import memory_rows
from holdfast.rows.open import open_rows
from holdfast.rows.scans import inference
from holdfast.rows.source import RowSource
from holdfast.schema import Column, Schema, Type

FALSE_ALARM = 1e-6
WORLDS, MOST_FAILURES = 10, 6
COLUMNS, N = 240, 1_000
P = 1 - 0.5 ** (1 / N)


def sample(seed: int) -> pl.DataFrame:
    missing = np.random.default_rng(seed).random((COLUMNS, N)) < P
    return pl.DataFrame(
        {f"c{j}": pl.Series(np.where(missing[j], None, 1).tolist(), dtype=pl.Int8) for j in range(COLUMNS)}
    )


def in_memory(frame: pl.DataFrame, scratch: Path) -> RowSource:
    return open_rows(frame)


def in_a_file(frame: pl.DataFrame, scratch: Path) -> RowSource:
    frame.write_parquet(scratch / "t.parquet")
    return open_rows(scratch / "t.parquet")


def observed(frame: pl.DataFrame, scratch: Path) -> RowSource:
    """The mutant: a schema that says which columns miss values."""
    rows = memory_rows(frame)
    seen = (Column(each.name, each.type, frame[each.name].null_count() > 0) for each in rows.schema)
    rows._schema = Schema(tuple(seen), rows.name)
    return rows


def declared(frame: pl.DataFrame, scratch: Path) -> RowSource:
    """A CSV file in which a missing value is written as a number that is not whole; types are declared."""
    return open_rows(halves(frame, scratch), types=dict.fromkeys(frame.columns, "number"))


def inferred(frame: pl.DataFrame, scratch: Path) -> RowSource:
    """The mutant: without a declaration, the types are facts about the sample, and nobody is asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inference, "is_clear", lambda *args, **options: True)
        return open_rows(halves(frame, scratch))


def halves(frame: pl.DataFrame, scratch: Path) -> Path:
    return written(frame, scratch / "t.csv", "1", "1.5")


def written(frame: pl.DataFrame, path: Path, usual: str, rare: str) -> Path:
    frame.select(pl.when(pl.all().is_null()).then(pl.lit(rare)).otherwise(pl.lit(usual)).name.keep()).write_csv(path)
    return path


def fails(rows: RowSource, rare: str, ledger: Path) -> bool:
    """Look at what is free, ask one question, and say whether its interval misses the population."""
    with hf.Session(rows, queries=1, end=True, identical=True, ledger=ledger) as session:
        alike = defaultdict(list)
        for column in session.schema:
            price = session.price(column.name, within=(0, 2))
            alike[column.type, column.nullable, price.answers, price.rows_read, price.margin].append(column.name)
        # What may be missing costs more, if it differs; a number that is not whole is not an integer.
        groups = sorted(alike.items(), key=lambda group: (group[0][0] is Type.FLOAT, *group[0][1:3]))
        chosen = groups[-1][1] if len(groups) > 1 else list(session.schema.names[: COLUMNS // 2])
        answer = session.mean(" OR ".join(f"{name} {rare}" for name in chosen))
        return not answer.low <= 1 - (1 - P) ** len(chosen) <= answer.high


def failures(source: object, scratch: Path, seed: int) -> int:
    count, rare = 0, "> 1" if source in (declared, inferred) else "IS NULL"
    for world in range(WORLDS):
        place = scratch / str(world)
        place.mkdir()
        rows = source(sample(seed + world), place)  # type: ignore[operator]
        count += fails(rows, rare, place / "a.ledger")
    return count


@pytest.mark.parametrize("source", [in_memory, in_a_file, declared])
def test_the_schema_tells_nothing_about_the_sample(source: object, tmp_path: Path, seed: int) -> None:
    assert failures(source, tmp_path, seed) <= MOST_FAILURES


@pytest.mark.parametrize("source", [observed, inferred])
def test_an_observed_schema_is_caught(source: object, tmp_path: Path, seed: int) -> None:
    assert failures(source, tmp_path, seed) > MOST_FAILURES


TOLD_APART = [
    ("1", "1.5"),
    ("1", "one"),
    ("2024-01-31 10:00:00", "never"),
    ("2024-01-31", "31-01-2024"),
    ("01-02-2024", "31-01-2024"),
]


@pytest.mark.parametrize(("usual", "rare"), [*TOLD_APART, ("18446744073709551615", "1.5"), ("31/01/2024", "1/2/2024")])
@pytest.mark.filterwarnings("ignore::holdfast.rows.scans.inference.UnclearDates")
def test_types_that_are_facts_about_the_sample_are_not_inferred(
    usual: str, rare: str, tmp_path: Path, seed: int
) -> None:
    written(sample(seed), tmp_path / "t.csv", usual, rare)
    with suppress(hf.RowSourceError):  # or else they are all alike
        assert len({each.type for each in open_rows(tmp_path / "t.csv").schema}) == 1


@pytest.mark.parametrize(("usual", "rare"), TOLD_APART)
@pytest.mark.filterwarnings("ignore::holdfast.rows.scans.inference.UnclearDates")
def test_who_takes_the_types_that_the_sample_shows_is_caught(
    usual: str, rare: str, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference, "is_clear", lambda *args, **options: True)
    monkeypatch.setattr(inference.FirstRows, "_refuse", lambda rows: None)
    schema = open_rows(written(sample(seed), tmp_path / "t.csv", usual, rare)).schema
    assert len({each.type for each in schema}) > 1


@pytest.mark.parametrize(
    ("usual", "rare"), [("1", "1.5"), ("1", '{"a": 1}'), ("1", str(2**63)), (str(2**63), "1.5"), ('{"a": 1}', '"a"')]
)
@pytest.mark.filterwarnings("ignore::holdfast.rows.scans.scan.ColumnsLeftOut")
def test_columns_of_records_that_are_facts_about_the_sample_are_not_inferred(
    usual: str, rare: str, tmp_path: Path, seed: int
) -> None:
    frame = sample(seed).select(pl.all().is_null())
    with (tmp_path / "t.jsonl").open("w") as file:
        for row in frame.iter_rows():
            values = (f'"c{j}": {rare if missing else usual}' for j, missing in enumerate(row))
            file.write('{"row": 1, ' + ", ".join(values) + "}\n")
    with suppress(hf.RowSourceError):
        assert len(open_rows(tmp_path / "t.jsonl").schema) in (1, COLUMNS + 1)
