"""What every row source on this machine does, whatever the rows came from."""

import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from counting_rows import CountingRows
from holdfast.errors import InvalidArgument, UnknownName
from holdfast.rows import ingest, local
from holdfast.rows.source import RowSource
from holdfast.rows.open import open_rows
from holdfast.schema import Type
from plain_query import PlainQuery

ROWS = 6


def table() -> pl.DataFrame:
    return pl.DataFrame(
        [
            pl.Series("small", [-128, 127, 0, None, 5, 5], dtype=pl.Int8),
            pl.Series("whole", [-(2**63), 2**63 - 1, 0, 1, 2, 3], dtype=pl.Int64),
            pl.Series("large", [2**64 - 1, 0, 1, None, None, 2], dtype=pl.UInt64),
            pl.Series("real", [1.5, None, float("nan"), float("inf"), -float("inf"), -0.0]),
            pl.Series("short", [1.5, 2.5, 3.5, 4.5, 5.5, 6.5], dtype=pl.Float32),
            pl.Series("flag", [True, False, None, True, True, False]),
            pl.Series("word", ["Ünïcode ☃", None, "two\nlines", "NUL\0", " ", "𝄞" * 40]),
            pl.Series("class", ["a", "b", None, "a", "a", "b"], dtype=pl.Categorical),
            pl.Series("day", [date(1, 1, 1), date(9999, 12, 31), None, date(2020, 2, 29)] + [date(1970, 1, 1)] * 2),
            pl.Series("at", [datetime(2020, 3, 29, 1, m, tzinfo=UTC) for m in range(ROWS)]).dt.convert_time_zone(
                "Europe/Berlin"
            ),
            pl.Series("tick", [-(2**63) + 1, 2**63 - 1, None, 0, 1, 2]).cast(pl.Datetime("ns")),
            pl.Series("a/b\\..\n", ["x"] * ROWS),
        ]
    )


def as_text(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col("class").cast(pl.String))


@dataclass
class Case:
    source: RowSource
    rows: pl.DataFrame  # what a gather of everything must return


def from_polars(scratch: Path) -> Case:
    return Case(open_rows(table()), as_text(table()))


def from_arrow(scratch: Path) -> Case:
    return Case(open_rows(table().to_arrow()), as_text(table()))


def from_pandas(scratch: Path) -> Case:
    # pandas has no nullable column of plain integers, booleans or dates: these come as it tells them
    frame = table().select("whole", "real", "short", "word", "class", "at", "a/b\\..\n")
    return Case(open_rows(frame.to_pandas()), as_text(frame).with_columns(pl.col("real").fill_nan(None)))


def from_arrays(scratch: Path) -> Case:
    frame = table().select("whole", "short", "word", "a/b\\..\n", day=pl.Series([date(2020, 1, 1)] * ROWS))
    return Case(open_rows({name: frame[name].to_numpy() for name in frame.columns}), frame)


def from_parquet(scratch: Path) -> Case:
    table().write_parquet(scratch / "rows.parquet")
    return Case(open_rows(scratch / "rows.parquet"), as_text(table()))


def from_ipc(scratch: Path) -> Case:
    table().write_ipc(scratch / "rows.arrow")
    return Case(open_rows(str(scratch / "rows.arrow")), as_text(table()))


def from_csv(scratch: Path) -> Case:
    frame = as_text(table()).select("whole", "real", "flag", "word", "class", "day", "a/b\\..\n")
    frame.write_csv(scratch / "rows.csv")
    return Case(open_rows(scratch / "rows.csv"), frame)


def packed(scratch: Path) -> Case:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest, "_MOST_DISTINCT", 2)
        return from_parquet(scratch)


def counted(scratch: Path) -> Case:
    case = from_polars(scratch)
    return Case(CountingRows(case.source), case.rows)


KINDS: list[Callable[[Path], Case]] = [
    from_polars,
    from_arrow,
    from_pandas,
    from_arrays,
    from_parquet,
    from_ipc,
    from_csv,
    packed,
    counted,
]


@pytest.fixture(params=KINDS, ids=lambda build: build.__name__)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    made: Case = request.param(tmp_path)
    return made


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("indices", [range(ROWS), [5, 0, 0, 3], [2] * 50, []], ids=["all", "some", "one", "none"])
def test_gather_returns_these_rows_in_this_order(case: Case, indices: list[int]) -> None:
    got = case.source.gather(np.array(indices, dtype=np.int64), case.source.schema.names)
    assert_frame_equal(got, case.rows[list(indices)], check_exact=True)


def test_gather_of_one_column(case: Case) -> None:
    got = case.source.gather(np.array([1, 1]), ["whole"])
    assert got.columns == ["whole"]
    assert got["whole"].to_list() == [2**63 - 1] * 2


def test_schema_tells_names_types_and_missing_values(case: Case) -> None:
    schema = case.source.schema
    assert schema.names == tuple(case.rows.columns)
    for column in schema:
        series = case.rows[column.name]
        missing = series.null_count() > 0 or (series.dtype.is_float() and bool(series.is_nan().any()))
        assert column.nullable == missing, column.name
    assert schema["whole"].type is Type.INT
    assert schema["word"].type is Type.STRING


def test_length_name_and_fingerprint(case: Case) -> None:
    assert len(case.source) == ROWS
    assert case.source.name in ("data", "rows")
    assert len(case.source.fingerprint) == 64
    assert case.source.fingerprint == case.source.fingerprint


def test_counts_add_up_and_follow_the_rows(case: Case, rng: np.random.Generator) -> None:
    def ends(rows: pl.DataFrame) -> np.ndarray:
        return (rows["whole"] == 2**63 - 1).to_numpy()

    never, always = 0.0, 0.5
    counts = case.source.tally(PlainQuery(("whole",), ends), draws=5_000, mass=never, rng=rng)
    assert counts.dtype == np.int64
    assert counts.sum() == 5_000
    assert 0 < counts[1] < 2_500  # one row of six
    noise = case.source.tally(PlainQuery(("whole",), ends), draws=5_000, mass=always, rng=rng)
    assert 2_000 < noise[1] < 3_000  # nothing but fair coins


def test_a_sure_outcome_is_sure_without_flips(case: Case, rng: np.random.Generator) -> None:
    def third(rows: pl.DataFrame) -> np.ndarray:
        return np.full(rows.height, 2)

    counts = case.source.tally(PlainQuery(case.source.schema.names, third, outcomes=4), draws=777, mass=0.0, rng=rng)
    assert counts.tolist() == [0, 0, 777, 0]


def test_a_query_of_no_column_still_sees_one_row_per_draw(case: Case, rng: np.random.Generator) -> None:
    query = PlainQuery((), lambda rows: np.ones(rows.height, dtype=np.bool_))
    assert case.source.tally(query, draws=300, mass=0.0, rng=rng).tolist() == [0, 300]


def test_many_draws_are_done_in_blocks(case: Case, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def every(rows: pl.DataFrame) -> np.ndarray:
        seen.append(rows.height)
        return np.ones(rows.height, dtype=np.bool_)

    monkeypatch.setattr(local, "_BLOCK", 100)
    counts = case.source.tally(PlainQuery(("whole", "word"), every), draws=250, mass=0.0, rng=rng)
    assert counts.tolist() == [0, 250]
    assert seen == [100, 100, 50]


def test_rows_kept_by_a_query_do_not_change_afterwards(case: Case, rng: np.random.Generator) -> None:
    kept: list[pl.DataFrame] = []
    copies: list[pl.DataFrame] = []

    def keep(rows: pl.DataFrame) -> np.ndarray:
        kept.append(rows)
        copies.append(pl.DataFrame({name: rows[name].to_list() for name in rows.columns}, schema=rows.schema))
        return np.ones(rows.height, dtype=np.bool_)

    for _ in range(5):
        case.source.tally(
            PlainQuery(("whole", "short"), keep) if "short" in case.rows else PlainQuery(("whole",), keep),
            draws=40,
            mass=0.0,
            rng=rng,
        )
    for rows, copy in zip(kept, copies, strict=True):
        assert_frame_equal(rows, copy)
    assert len({tuple(rows["whole"].to_list()) for rows in kept}) > 1


def test_threads_do_not_disturb_each_other(case: Case, seed: int) -> None:
    wrong: list[str] = []

    def check(rows: pl.DataFrame) -> np.ndarray:
        whole, letters = rows["whole"].to_list(), rows["word"].to_list()
        truth = dict(zip(case.rows["whole"].to_list(), case.rows["word"].to_list(), strict=True))
        if [truth[value] for value in whole] != letters:
            wrong.append("rows mixed up")
        return np.ones(rows.height, dtype=np.bool_)

    def ask(number: int) -> None:
        rng = np.random.default_rng(seed + number)
        for _ in range(20):
            counts = case.source.tally(PlainQuery(("whole", "word"), check), draws=200, mass=0.0, rng=rng)
            if counts.tolist() != [0, 200]:
                wrong.append("counts")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_refusals(case: Case, rng: np.random.Generator) -> None:
    query = PlainQuery(("whole",), lambda rows: np.ones(rows.height, dtype=np.bool_))
    for draws in (0, -1, 1.5, True):
        with pytest.raises(InvalidArgument, match="draws must be"):
            case.source.tally(query, draws=draws, mass=0.0, rng=rng)  # type: ignore[arg-type]
    for mass in (-0.1, 0.51, float("nan")):
        with pytest.raises(InvalidArgument, match="mass must be"):
            case.source.tally(query, draws=1, mass=mass, rng=rng)
    with pytest.raises(UnknownName, match="Did you mean 'whole'"):
        case.source.gather(np.array([0]), ["wole"])
    with pytest.raises(UnknownName):
        case.source.tally(PlainQuery(("nothing",), query.says), draws=1, mass=0.0, rng=rng)
    for indices in ([ROWS], [-1]):
        with pytest.raises(InvalidArgument, match="indices must be"):
            case.source.gather(np.array(indices), ["whole"])
    for nonsense in (np.array([0.5]), np.array([[0]]), np.array([True])):
        with pytest.raises(InvalidArgument, match="indices must be"):
            case.source.gather(nonsense, ["whole"])


@pytest.mark.parametrize("case", KINDS[:-1], indirect=True)
def test_the_printout_names_columns_and_no_values(case: Case) -> None:
    text = repr(case.source)
    assert "6 rows" in text
    assert "'word'" in text
    for secret in ("Ünïcode", str(2**63 - 1), "1.5"):
        assert secret not in text


@pytest.mark.parametrize("case", KINDS[:-1], indirect=True)
def test_a_source_travels_to_another_process(case: Case) -> None:
    copy = pickle.loads(pickle.dumps(case.source))
    assert copy.name == case.source.name
    assert copy.schema == case.source.schema
    assert copy.fingerprint == case.source.fingerprint
    assert_frame_equal(copy.gather(np.arange(ROWS), copy.schema.names), case.rows, check_exact=True)


def test_counting_rows_counts(rng: np.random.Generator) -> None:
    rows = CountingRows(open_rows(table()))
    rows.tally(PlainQuery((), lambda r: np.ones(r.height, dtype=np.bool_)), draws=30, mass=0.0, rng=rng)
    rows.gather(np.array([1, 2]), ["whole"])
    assert (rows.tallies, rows.gathers, rows.rows_tallied, rows.rows_gathered, rows.rows_read) == (1, 1, 30, 2, 32)
