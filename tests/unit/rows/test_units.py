"""Rows that belong together: how they are put together, and which of them speak."""

from collections import Counter
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.random import Generator
from polars.testing import assert_frame_equal

from holdfast.errors import InvalidArgument, RowSourceError, UnknownName
from holdfast.queries.build import build_mean
from holdfast.queries.units import build_accepted, build_whole_unit
from holdfast.rows import local, units
from holdfast.rows.columns import TEXT, storage_named
from holdfast.rows.disk.partial import outdated_beside
from holdfast.rows.draws import AllRows
from holdfast.rows.local import LocalRows
from holdfast.rows.open import open_rows
from holdfast.rows.scans import scan
from holdfast.rows.scans.scan import all_bytes
from holdfast.rows.units import Units
from plain_query import PlainQuery, These


@pytest.fixture
def rng(seed: int) -> Generator:
    return np.random.default_rng(seed)


def visits(rng: Generator, patients: int = 300, most: int = 30, heavy: int = 0) -> pl.DataFrame:
    """Return visits of patients, in no order; the first patient has `heavy` more."""
    ids = np.concatenate([np.repeat(np.arange(patients), rng.integers(1, most, patients)), np.zeros(heavy, np.int64)])
    rng.shuffle(ids)
    return pl.DataFrame(
        {
            "late": rng.random(ids.size) < 0.3,
            "patient": [f"p{one}" for one in ids],
            "cost": np.where(rng.random(ids.size) < 0.1, np.nan, rng.exponential(10.0, ids.size)),
            "ward": pl.Series(rng.choice(["a", "b"], ids.size), dtype=pl.Categorical),
        }
    )


def by_patient(rows: LocalRows) -> dict[str, int]:
    """Return how many rows each unit has, having checked that those of each lie together."""
    found = {}
    for unit in range(len(rows)):
        names = rows.frame(np.array([unit]))["patient"]
        assert names.n_unique() == 1
        assert names[0] not in found
        found[names[0]] = names.len()
    return found


def same_rows(one: pl.DataFrame, other: pl.DataFrame) -> None:
    as_text = pl.col(pl.Categorical).cast(pl.String)
    one, other = (frame.with_columns(as_text).with_columns(pl.col("cost").fill_nan(None)) for frame in (one, other))
    assert_frame_equal(one.sort(one.columns), other.sort(one.columns))


@pytest.mark.parametrize(
    ("partition", "heavy"),
    [(1 << 26, 0), (30_000, 0), (2_000, 0), (4_000, 3_000)],
    ids=["one", "several", "again", "one unit is larger than a partition"],
)
def test_a_file_is_grouped_whatever_fits_in_memory(
    tmp_path: Path, rng: Generator, partition: int, heavy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = visits(rng, heavy=heavy)
    frame.write_parquet(tmp_path / "visits.parquet", row_group_size=500)
    monkeypatch.setattr(units, "PARTITION_BYTES", partition)
    monkeypatch.setattr(units, "MOST_BYTES", 2 * partition)
    monkeypatch.setattr(units, "CHUNK_BYTES", 2 * partition)
    monkeypatch.setattr(units, "BATCH", 170)
    monkeypatch.setattr(units, "MOST_PARTITIONS", 5)
    rows = open_rows(tmp_path / "visits.parquet", unit="patient")
    assert isinstance(rows, LocalRows)
    assert by_patient(rows) == Counter(frame["patient"].to_list())
    same_rows(rows.frame(np.arange(len(rows))), frame)
    rows.verify()
    assert rows.location is not None
    assert not list(rows.location.glob("chunk*"))


def test_the_same_rows_have_the_same_fingerprint_grouped_or_not(tmp_path: Path, rng: Generator) -> None:
    frame = visits(rng)
    frame.write_parquet(tmp_path / "visits.parquet")
    plain = open_rows(frame).fingerprint
    assert open_rows(frame, unit="patient").fingerprint == plain
    assert open_rows(tmp_path / "visits.parquet", unit="patient").fingerprint == plain


def test_a_folder_remembers_its_unit_and_is_written_anew_for_another(tmp_path: Path, rng: Generator) -> None:
    visits(rng).write_parquet(tmp_path / "visits.parquet")
    rows = open_rows(tmp_path / "visits.parquet", unit="patient")
    assert (len(rows), rows.schema.unit, rows.schema.names) == (300, "patient", ("late", "cost", "ward"))
    again = open_rows(tmp_path / "visits.parquet")
    assert (len(again), again.schema.unit) == (300, "patient")
    assert open_rows(tmp_path / "visits.parquet.holdfast", unit="patient").schema.unit == "patient"
    with pytest.raises(InvalidArgument, match="unit must be left out when a holdfast folder is opened"):
        open_rows(tmp_path / "visits.parquet.holdfast", unit="ward")
    assert len(open_rows(tmp_path / "visits.parquet", unit="ward")) == 2


@pytest.mark.parametrize("change", [('"version": ', '"version": 1'), ('"rows": ', '"rows": 1')])
def test_a_folder_that_cannot_be_read_any_more_keeps_its_unit(
    tmp_path: Path, rng: Generator, change: tuple[str, str]
) -> None:
    """Of another version, or damaged: else rows of one unit would be taken for independent ones from then on."""
    visits(rng).write_parquet(tmp_path / "visits.parquet")
    open_rows(tmp_path / "visits.parquet", unit="patient")
    manifest = tmp_path / "visits.parquet.holdfast" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(*change, 1))
    rows = open_rows(tmp_path / "visits.parquet")
    assert (rows.schema.unit, len(rows)) == ("patient", 300)


def test_whoever_is_killed_while_a_new_folder_takes_its_name_leaves_the_unit(tmp_path: Path, rng: Generator) -> None:
    path, folder = tmp_path / "visits.parquet", tmp_path / "visits.parquet.holdfast"
    visits(rng).write_parquet(path)
    open_rows(path, unit="patient")
    folder.rename(outdated_beside(folder))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "rename", interrupted_at_the_last_step)
        for _ in range(2):  # whoever comes next is killed at the same place
            with pytest.raises(KeyboardInterrupt):
                open_rows(path)
    assert len(open_rows(path)) == 300
    assert sorted(each.name for each in tmp_path.iterdir()) == [path.name, folder.name]


def interrupted_at_the_last_step(path: Path, target: Path) -> Path:
    if path.suffix == ".partial":
        raise KeyboardInterrupt
    return path.replace(target)


def test_a_folder_that_is_written_anew_keeps_its_unit(tmp_path: Path, rng: Generator) -> None:
    path = tmp_path / "visits.parquet"
    visits(rng).write_parquet(path)
    assert len(open_rows(path, unit="patient")) == 300
    visits(rng, patients=200).write_parquet(path)
    assert len(open_rows(path)) == 200


def test_a_stream_of_unknown_length_is_grouped(tmp_path: Path, rng: Generator) -> None:
    frame = visits(rng)
    rows = open_rows(frame.lazy(), folder=tmp_path / "visits.holdfast", unit="patient")  # type: ignore[arg-type]
    assert isinstance(rows, LocalRows)
    assert by_patient(rows) == Counter(frame["patient"].to_list())
    same_rows(rows.frame(np.arange(len(rows))), frame)


def test_batches_may_be_empty_but_not_all_of_them(tmp_path: Path, rng: Generator) -> None:
    frame = visits(rng)
    frame.clear().write_parquet(tmp_path / "none.parquet")
    with pytest.raises(RowSourceError, match="has no rows"):
        open_rows(tmp_path / "none.parquet", unit="patient")
    grouping = units.Grouping("patient", tmp_path, {"patient": TEXT, "late": storage_named("bool")}, "visits")
    batches = iter([frame.select("patient", "late").clear(), frame.select("patient", "late")])
    assert sum(batch.height for batch in grouping.batches(batches, None)) == frame.height
    assert grouping.starts.size == 301


def test_damage_where_units_begin_is_found(tmp_path: Path, rng: Generator) -> None:
    visits(rng).write_parquet(tmp_path / "visits.parquet")
    rows = open_rows(tmp_path / "visits.parquet", unit="patient")
    assert rows.location is not None
    with (rows.location / "00004.units.npy").open("r+b") as file:
        file.seek(136)
        file.write(b"\x07")
    with pytest.raises(RowSourceError, match="is damaged"):
        rows.verify()


@pytest.mark.parametrize(
    "names",
    [[1, 2, 1], ["a", "b", "a"], [date(2020, 1, 1), date(2021, 1, 1), date(2020, 1, 1)], [True, False, True]],
    ids=["integers", "texts", "dates", "booleans"],
)
def test_units_may_be_named_by_anything_but_numbers(names: list[object]) -> None:
    assert len(open_rows(pl.DataFrame({"u": names, "x": [1, 2, 3]}), unit="u")) == 2


@pytest.mark.parametrize(
    ("frame", "unit", "says"),
    [
        ({"u": [1, None], "x": [1, 2]}, "u", "has missing values, so it is not known which rows belong together"),
        ({"u": [1.0, 2.0], "x": [1, 2]}, "u", "unit must be a column of texts, whole numbers or dates"),
        ({"u": [1, 2], "x": [1, 2]}, "w", "unit must be a column of .*; got 'w'. It has: u, x"),
        ({"u": [1, 2]}, "u", "unit must leave a column to ask about"),
    ],
    ids=["missing", "numbers", "unknown", "alone"],
)
def test_refusals(tmp_path: Path, frame: dict[str, list[object]], unit: str, says: str) -> None:
    with pytest.raises((InvalidArgument, RowSourceError), match=says):
        open_rows(pl.DataFrame(frame), unit=unit)
    pl.DataFrame(frame).write_parquet(tmp_path / "t.parquet")
    with pytest.raises((InvalidArgument, RowSourceError), match=says):
        open_rows(tmp_path / "t.parquet", unit=unit)
    assert not (tmp_path / "t.parquet.holdfast").exists()


def test_the_unit_itself_cannot_be_asked_about(rng: Generator) -> None:
    rows = open_rows(visits(rng), unit="patient")
    with pytest.raises(UnknownName, match="names the units, so it cannot be asked about"):
        build_mean("patient = 'p1'", rows.schema)
    with pytest.raises(InvalidArgument, match="unit must be left out for a row source"):
        open_rows(rows, unit="patient")


# -- which rows speak ------------------------------------------------------------------------------------------------


def frequencies(found: np.ndarray, expected: np.ndarray) -> None:
    """Compare counts with their expectations, each by five and a half standard deviations: one in 10^7."""
    assert np.all(np.abs(found - expected) <= 5.5 * np.sqrt(expected) + 1e-9)


def test_every_row_of_a_unit_speaks_equally_often(rng: Generator) -> None:
    lie, draws = Units(np.array([0, 1, 4, 9])), 200_000
    for unit, rows in enumerate(([0], [1, 2, 3], [4, 5, 6, 7, 8])):
        spoke, empty = lie.one_row(np.full(draws, unit), rng, None)
        assert empty is None
        assert set(spoke.tolist()) == set(rows)
        frequencies(np.bincount(spoke - rows[0]), np.full(len(rows), draws / len(rows)))


def test_with_places_every_row_speaks_equally_often_whatever_its_unit(rng: Generator) -> None:
    lie, draws = Units(np.array([0, 1, 4, 9])), 300_000
    spoke, empty = lie.one_row(rng.integers(0, 3, draws), rng, 4)
    assert empty is not None
    expected = draws / 3 * np.array([1 / 4] * 4 + [1 / 5] * 5)  # the last unit has more rows than places: 4/5 each
    frequencies(np.bincount(spoke[~empty], minlength=9), expected)
    frequencies(np.array([empty.sum()]), np.array([draws / 3 * (3 / 4 + 1 / 4)]))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_all_rows_come_in_blocks_with_whose_they_are(size: int) -> None:
    lie = Units(np.array([0, 1, 4, 9]))
    chosen = np.array([2, 0, 0, 1])
    rows, owners = [], []
    for block, begin, first, counts, ends in lie.all_rows(chosen, size):
        assert block.size <= size
        assert block[ends - counts].tolist() == first.tolist()
        assert ends.tolist() == np.cumsum(counts).tolist()
        assert counts.min() > 0
        rows += block.tolist()
        owners += np.repeat(np.arange(begin, begin + counts.size), counts).tolist()
    assert rows == [4, 5, 6, 7, 8, 0, 0, 1, 2, 3]
    assert owners == [0] * 5 + [1, 2] + [3] * 3
    assert list(lie.all_rows(np.array([], np.int64), size)) == []


# -- what they say ---------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "folder"])
def source(request: pytest.FixtureRequest, tmp_path: Path, rng: Generator) -> tuple[LocalRows, pl.DataFrame]:
    frame = visits(rng)
    if request.param == "memory":
        rows = open_rows(frame, unit="patient")
    else:
        frame.write_parquet(tmp_path / "visits.parquet")
        rows = open_rows(tmp_path / "visits.parquet", unit="patient")
    assert isinstance(rows, LocalRows)
    return rows, rows.frame(np.arange(len(rows)))


ASKED = {
    "any": ("late", {}, pl.col("late").any()),
    "all": ("late", {"having": "all"}, pl.col("late").all()),
    "three": ("late", {"at_least": 3}, pl.col("late").sum() >= 3),
    "count": ("late", {"cap": 5}, pl.col("late").sum().clip(0, 5) / 5),
    "sum": (
        "cost",
        {"cap": 80.0},
        pl.when(pl.col("cost").is_not_nan().any()).then(pl.col("cost").fill_nan(0).sum().clip(0, 80) / 80),
    ),
    "below zero": ("CASE WHEN late THEN -1 ELSE 0 END", {"cap": 4}, pl.lit(0.0).first()),
    "any where": (
        "cost > 10",
        {"where": "ward = 'a'"},
        pl.when((pl.col("ward") == "a").any()).then(
            ((pl.col("cost").fill_nan(-1) > 10) & (pl.col("ward") == "a")).any()
        ),
    ),
    "all where": (
        "late",
        {"having": "all", "where": "cost > 15"},
        pl.when((pl.col("cost").fill_nan(-1) > 15).any()).then(
            (pl.col("late") | (pl.col("cost").fill_nan(-1) <= 15)).all()
        ),
    ),
}


@pytest.mark.parametrize("block", [None, 101])
@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_whole_units_say_what_their_rows_say_together(
    source: tuple[LocalRows, pl.DataFrame], asked: str, block: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, frame = source
    if block is not None:
        monkeypatch.setattr(local, "_BLOCK", block)
    query, options, truth = ASKED[asked]
    expected = frame.group_by("patient", maintain_order=True).agg(truth.alias("says"))["says"].cast(pl.Float64)
    built = build_whole_unit(
        query.replace("0 - late::int", "CASE WHEN late THEN -1 ELSE 0 END"), rows.schema, **options
    )
    values = rows.sample(built, AllRows(), np.random.default_rng(0)).astype(np.float64)
    np.testing.assert_allclose(values, expected.to_numpy(), rtol=1e-12)
    several = [4, 1, 4] * 150  # more than there are units
    again = rows.sample(built, These(several), np.random.default_rng(0)).astype(np.float64)
    np.testing.assert_allclose(again, expected.to_numpy()[several], rtol=1e-12)


def test_tallies_have_the_law_of_the_proof(source: tuple[LocalRows, pl.DataFrame], rng: Generator) -> None:
    """Every quantity of docs/proofs/units.md against its definition, by counts of 200,000 draws."""
    rows, frame = source
    each = frame.group_by("patient").agg(pl.len().alias("n"), pl.col("late").sum())
    n, late = each["n"].to_numpy(), each["late"].to_numpy()
    draws, schema = 200_000, rows.schema
    for query, law in (
        (build_mean("late", schema), [1 - (late / n).mean(), (late / n).mean()]),
        (build_whole_unit("late", schema), [(late == 0).mean(), (late > 0).mean()]),
        (
            build_accepted(build_mean("late", schema), schema, rows_per_unit=20),
            [
                1 - (np.minimum(n, 20) / 20).mean(),
                ((n - late) / np.maximum(n, 20)).mean(),
                (late / np.maximum(n, 20)).mean(),
            ],
        ),
    ):
        counts = rows.tally(query, draws=draws, mass=0.0, rng=rng)
        frequencies(counts, draws * np.array(law))


def test_weights_accept_a_row_in_proportion(source: tuple[LocalRows, pl.DataFrame], rng: Generator) -> None:
    rows, frame = source
    query = build_accepted(build_mean("late", rows.schema), rows.schema, weight="cost", largest_weight=20)
    frame = frame.with_columns(w=(pl.col("cost").fill_nan(0) / 20).clip(0, 1))
    each = frame.group_by("patient").agg(pl.col("w").mean(), one=(pl.col("w") * pl.col("late")).mean())
    taken, ones = float(each["w"].mean()), float(each["one"].mean())  # type: ignore[arg-type]
    counts = rows.tally(query, draws=200_000, mass=0.0, rng=rng)
    frequencies(counts, 200_000 * np.array([1 - taken, taken - ones, ones]))
    values = np.concatenate([rows.sample(query, AllRows(), rng) for _ in range(400)])
    assert set(np.unique(values[~np.isnan(values)])) <= {0.0, 1.0}
    frequencies(np.array([np.nansum(values)]), np.array([values.size * ones]))


def test_weights_of_plain_rows(rng: Generator) -> None:
    rows = open_rows({"yes": np.array([True, False, False]), "w": np.array([4.0, 2.0, -1.0])})
    query = build_accepted(build_mean("yes", rows.schema), rows.schema, weight="w", largest_weight=2.0)
    counts = rows.tally(query, draws=90_000, mass=0.0, rng=rng)  # 4 counts as 2, -1 as 0
    frequencies(counts, np.array([30_000, 30_000, 30_000]))


def test_one_row_of_every_unit_is_scanned(source: tuple[LocalRows, pl.DataFrame], rng: Generator) -> None:
    rows, frame = source
    seen: list[int] = []

    def keep(batch: pl.DataFrame) -> np.ndarray:
        seen.append(batch.height)
        return np.ones(batch.height, dtype=np.bool_)

    assert rows.sample(PlainQuery(("late",), keep), AllRows(), rng).size == len(rows) == 300
    assert sum(seen) == 300
    assert frame.height > 300


def test_long_rows_after_short_ones_are_grouped_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long the first rows are does not say how much memory all of them take."""
    monkeypatch.setattr(units, "PARTITION_BYTES", 100_000)
    monkeypatch.setattr(units, "MOST_BYTES", 200_000)
    monkeypatch.setattr(units, "CHUNK_BYTES", 200_000)
    monkeypatch.setattr(scan, "BATCH_BYTES", 50_000)
    real, sizes = units.Grouping._sorted, []

    def sized(self: units.Grouping, frame: pl.DataFrame) -> pl.DataFrame:
        sizes.append(all_bytes(frame))
        return real(self, frame)

    monkeypatch.setattr(units.Grouping, "_sorted", sized)
    frame = pl.DataFrame(
        {"who": [i % 400 for i in range(1_200)], "text": ["short"] * 1_000 + [f"{i} " * 2_000 for i in range(200)]}
    )
    frame.write_parquet(tmp_path / "t.parquet")
    rows = open_rows(tmp_path / "t.parquet", unit="who")
    assert sum(sizes) > 1_000_000
    assert max(sizes) < 400_000
    assert rows.fingerprint == open_rows({name: frame[name] for name in frame.columns}).fingerprint
