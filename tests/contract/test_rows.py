"""What every row source does, whatever the rows came from: memory, a folder, or a source of somebody else's."""

import hashlib
import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.random import Generator
from numpy.typing import NDArray
from polars.testing import assert_frame_equal

from counting_rows import CountingRows
from holdfast.errors import InvalidArgument, RowSourceError, UnknownName
from holdfast.queries.query import Query, Values
from holdfast.rows import local
from holdfast.rows.disk import ingest
from holdfast.rows.draws import AllRows, Fresh, Selection, WithoutReplacement, WithReplacement, accepted, tallied_parts
from holdfast.rows.open import open_rows
from holdfast.rows.source import RowSource
from holdfast.schema import Type
from plain_query import PlainQuery, These, rows_of

ROWS = 6

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.rows.columns.LocalTimes")


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


class ForeignRows:
    """As little as somebody else has to write."""

    name, location = "rows", None

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame, self.schema, self.fingerprint = frame, open_rows(frame).schema, self._hash(frame)

    def __len__(self) -> int:
        return self._frame.height

    def tally(self, query: Query, *, draws: int, mass: float, rng: Generator) -> NDArray[np.int64]:
        part, draw = np.divmod(np.arange(query.parts * draws), draws)
        values = query.evaluate_parts(self._rows(query, WithReplacement(part.size), rng), part, draw)
        values = accepted(values, rng) if query.weighs else values
        counts = tallied_parts(values, query.statistic.outcomes, mass, rng, part, query.parts)
        return counts[0] if query.parts == 1 else counts

    def sample(self, query: Query, selection: Selection, rng: Generator) -> Values:
        values = []
        for part in range(query.parts):
            rows = self._rows(query, selection, rng)
            said = query.evaluate_parts(rows, np.full(rows.height, part), np.arange(rows.height))
            values.append(accepted(said, rng) if query.weighs else said)
        return values[0] if query.parts == 1 else np.stack(values)

    def verify(self) -> None:
        if self._hash(self._frame) != self.fingerprint:
            raise RowSourceError("rows has changed.")

    def _rows(self, query: Query, selection: Selection, rng: Generator) -> pl.DataFrame:
        return self._frame[selection.indices(len(self), rng)].select(query.columns or self.schema.names)

    @staticmethod
    def _hash(frame: pl.DataFrame) -> str:
        return hashlib.sha256(repr(frame.rows()).encode()).hexdigest()


@dataclass
class Case:
    source: RowSource
    rows: pl.DataFrame  # what reading everything must return
    changed: RowSource | None = None  # the source that holds the rows, if that is another
    never_missing: tuple[str, ...] = ()  # columns of a type that has no missing values


def from_polars(scratch: Path) -> Case:
    return Case(open_rows(table()), as_text(table()))


def from_arrow(scratch: Path) -> Case:
    return Case(open_rows(table().to_arrow()), as_text(table()))


def from_pandas(scratch: Path) -> Case:
    # pandas has no nullable column of plain integers, booleans or dates: these come as it tells them
    frame = table().select("whole", "real", "short", "word", "class", "at", "a/b\\..\n")
    expected = as_text(frame).with_columns(pl.col("real").fill_nan(None))
    return Case(open_rows(frame.to_pandas()), expected, never_missing=("whole",))


def from_arrays(scratch: Path) -> Case:
    frame = table().select("whole", "short", "word", "a/b\\..\n", day=pl.Series([date(2020, 1, 1)] * ROWS))
    arrays = {name: frame[name].to_numpy() for name in frame.columns}
    return Case(open_rows(arrays), frame, never_missing=("whole",))


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


def numbered(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.Series("unit", [f"unit {row}" for row in range(ROWS)]))


def of_units(scratch: Path) -> Case:
    return Case(open_rows(numbered(table()), unit="unit"), as_text(table()))


def units_on_disk(scratch: Path) -> Case:
    numbered(table()).write_parquet(scratch / "rows.parquet")
    return Case(open_rows(scratch / "rows.parquet", unit="unit"), as_text(table()))


def packed(scratch: Path) -> Case:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest, "_MOST_DISTINCT", 2)
        return from_parquet(scratch)


def counted(scratch: Path) -> Case:
    case = from_polars(scratch)
    return Case(CountingRows(case.source), case.rows, case.source)


def foreign(scratch: Path) -> Case:
    return Case(open_rows(ForeignRows(as_text(table()))), as_text(table()))


LOCAL: list[Callable[[Path], Case]] = [
    from_polars,
    from_arrow,
    from_pandas,
    from_arrays,
    from_parquet,
    from_ipc,
    from_csv,
    packed,
    of_units,
    units_on_disk,
]
KINDS = [*LOCAL, counted, foreign]


@pytest.fixture(scope="module", params=KINDS, ids=lambda build: build.__name__)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """One source of each kind for all tests that only read it."""
    made: Case = request.param(tmp_path_factory.mktemp("rows"))
    return made


@pytest.fixture(params=KINDS, ids=lambda build: build.__name__)
def new_case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    """A source that nobody has read: for who changes it, or reads it in other blocks, which a source keeps to."""
    made: Case = request.param(tmp_path)
    return made


@pytest.fixture
def rng(seed: int) -> Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("chosen", [range(ROWS), [5, 0, 0, 3], [2] * 50, []], ids=["all", "some", "one", "none"])
def test_a_query_sees_the_selected_rows_in_their_order(case: Case, chosen: list[int]) -> None:
    assert_frame_equal(rows_of(case.source, chosen), case.rows[list(chosen)], check_exact=True)


def test_a_query_sees_all_rows_as_they_are(case: Case) -> None:
    assert_frame_equal(rows_of(case.source), case.rows, check_exact=True)


def test_a_query_sees_its_own_columns_alone(case: Case) -> None:
    seen = rows_of(case.source, [1, 1], ["whole"])
    assert seen.columns == ["whole"]
    assert seen["whole"].to_list() == [2**63 - 1] * 2


def numbers(rows: pl.DataFrame) -> NDArray[np.int64]:
    """Which row of the table each one is."""
    places = {value: place for place, value in enumerate(table()["whole"].to_list())}
    return np.array([places[value] for value in rows["whole"].to_list()], dtype=np.int64)


NUMBERS = PlainQuery(("whole",), numbers, outcomes=ROWS)


def test_samples_are_what_was_selected(case: Case, rng: Generator) -> None:
    def sample(selection: Selection) -> list[int]:
        values = case.source.sample(NUMBERS, selection, rng)
        assert values.dtype == np.int64
        found: list[int] = values.tolist()
        return found

    everyone = list(range(ROWS))
    assert sample(AllRows()) == everyone
    assert sample(These([3, 3, 0])) == [3, 3, 0]
    assert sample(These([])) == []
    assert set(sample(WithReplacement(400))) == set(everyone)  # all but surely
    assert sorted(sample(WithoutReplacement(ROWS))) == everyone
    assert len(set(sample(WithoutReplacement(4)))) == 4
    blocks = [sample(Fresh(bytes(32), start, 2)) for start in (0, 2, 4)]
    assert sorted(place for block in blocks for place in block) == everyone
    assert blocks[1] == sample(Fresh(bytes(32), 2, 2))


def test_a_sample_may_have_several_values_a_row(case: Case, rng: Generator) -> None:
    query = PlainQuery(("whole",), lambda rows: np.column_stack([numbers(rows), numbers(rows) * 0.5]))
    values = case.source.sample(query, These([4, 1]), rng)
    assert values.tolist() == [[4, 2], [1, 0.5]]


@pytest.mark.parametrize("block", [None, 1, 4, 7])
def test_parts_of_a_sample_are_numbered_and_selected_anew(
    new_case: Case, rng: Generator, block: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def label(rows: pl.DataFrame, part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
        return 10_000 * part + 100 * draw + numbers(rows)

    if block is not None:
        monkeypatch.setattr(local, "_BLOCK", block)
    query, parts = PlainQuery(("whole",), label, parts=8), np.arange(8)[:, None]
    everyone = new_case.source.sample(query, AllRows(), rng)
    assert everyone.tolist() == (10_000 * parts + 101 * np.arange(ROWS)).tolist()
    shuffled = new_case.source.sample(query, WithoutReplacement(ROWS), rng)
    assert (shuffled // 100).tolist() == (100 * parts + np.arange(ROWS)).tolist()
    orders = shuffled % 100
    assert (np.sort(orders) == np.arange(ROWS)).all()
    assert len(np.unique(orders, axis=0)) > 1  # all alike by chance: once in 720^7


@pytest.mark.parametrize("block", [None, 1, 4, 7])
def test_parts_of_a_tally_are_numbered_and_counted_apart(
    new_case: Case, rng: Generator, block: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []

    def of_part(rows: pl.DataFrame, part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
        assert rows.height == part.size == draw.size
        seen.extend(zip(part.tolist(), draw.tolist(), strict=True))
        return part + (draw == 0)

    if block is not None:
        monkeypatch.setattr(local, "_BLOCK", block)
    query = PlainQuery(("whole", "word"), of_part, outcomes=4, parts=3)
    counts = new_case.source.tally(query, draws=5, mass=0.0, rng=rng)
    assert counts.dtype == np.int64
    assert counts.tolist() == [[4, 1, 0, 0], [0, 4, 1, 0], [0, 0, 4, 1]]
    assert seen == [(part, draw) for part in range(3) for draw in range(5)]


def test_parts_of_a_tally_are_tossed_and_randomized(case: Case, rng: Generator) -> None:
    query = PlainQuery(("whole",), lambda rows, part, draw: part / 2, parts=3)
    counts = case.source.tally(query, draws=4_000, mass=0.0, rng=rng)
    assert counts[[0, 2]].tolist() == [[4_000, 0], [0, 4_000]]
    assert 1_600 < counts[1, 1] < 2_400
    noise = case.source.tally(query, draws=4_000, mass=0.5, rng=rng)
    assert (noise.sum(axis=1) == 4_000).all()
    assert ((noise[:, 1] > 1_600) & (noise[:, 1] < 2_400)).all()  # nothing but fair coins


def test_one_part_is_numbered_too(case: Case, rng: Generator) -> None:
    class Numbered(PlainQuery):
        numbered = True

        def evaluate_parts(self, rows: pl.DataFrame, part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
            return (part == 0) & (draw % 2 == 1)

    query = Numbered(("whole",), numbers)
    assert case.source.tally(query, draws=11, mass=0.0, rng=rng).tolist() == [6, 5]
    assert case.source.sample(query, AllRows(), rng).tolist() == [False, True] * (ROWS // 2)


def change_content(source: RowSource) -> None:
    if isinstance(source, ForeignRows):
        source._frame = source._frame.reverse()
    elif source.location is not None:
        place = source.schema.names.index("whole")
        with (source.location / f"{place:05d}.values.npy").open("r+b") as file:
            file.seek(128)
            file.write(b"\x01")
    else:
        values = source._columns.stored["whole"].values  # type: ignore[attr-defined]
        values.setflags(write=True)
        values[0] += 1


def test_verifying_finds_changed_content(new_case: Case) -> None:
    new_case.source.verify()
    change_content(new_case.changed or new_case.source)
    with pytest.raises(RowSourceError, match=r"has changed|is damaged"):
        new_case.source.verify()


def test_schema_tells_names_and_types_and_rules_out_no_missing_value_that_the_rows_happen_not_to_have(
    case: Case,
) -> None:
    schema = case.source.schema
    assert schema.names == tuple(case.rows.columns)
    assert tuple(column.name for column in schema if not column.nullable) == case.never_missing
    assert schema["whole"].type is Type.INT
    assert schema["word"].type is Type.STRING


def test_length_name_and_fingerprint(case: Case) -> None:
    assert len(case.source) == ROWS
    assert case.source.name in ("data", "rows")
    assert len(case.source.fingerprint) == 64
    assert case.source.fingerprint == case.source.fingerprint


def test_counts_add_up_and_follow_the_rows(case: Case, rng: Generator) -> None:
    def ends(rows: pl.DataFrame) -> np.ndarray:
        return (rows["whole"] == 2**63 - 1).to_numpy()

    never, always = 0.0, 0.5
    counts = case.source.tally(PlainQuery(("whole",), ends), draws=5_000, mass=never, rng=rng)
    assert counts.dtype == np.int64
    assert counts.sum() == 5_000
    assert 0 < counts[1] < 2_500  # one row of six
    noise = case.source.tally(PlainQuery(("whole",), ends), draws=5_000, mass=always, rng=rng)
    assert 2_000 < noise[1] < 3_000  # nothing but fair coins


class Weighed(PlainQuery):
    """Gives the probabilities of 0 and of 1."""

    weighs = True


def test_rows_with_weights_count_in_proportion(case: Case, rng: Generator) -> None:
    def law(rows: pl.DataFrame) -> np.ndarray:
        first = (rows["whole"] == 2**63 - 1).to_numpy()  # one row of six is 1; each other counts half of the time, as 0
        return np.column_stack([0.5 * ~first, 1.0 * first])

    query = Weighed(("whole",), law, outcomes=3)
    counts = case.source.tally(query, draws=6_000, mass=0.0, rng=rng)
    assert counts.sum() == 6_000
    assert np.all(np.abs(counts - [2_500, 2_500, 1_000]) < 250)  # more than six standard deviations
    values = np.concatenate([case.source.sample(query, AllRows(), rng) for _ in range(500)])
    assert values.shape == (500 * ROWS,)
    assert np.nansum(values) == 500
    assert abs(np.isnan(values).sum() - 1_250) < 200


def test_a_sure_outcome_is_sure_without_randomizing(case: Case, rng: Generator) -> None:
    def third(rows: pl.DataFrame) -> np.ndarray:
        return np.full(rows.height, 2)

    counts = case.source.tally(PlainQuery(case.source.schema.names, third, outcomes=4), draws=777, mass=0.0, rng=rng)
    assert counts.tolist() == [0, 0, 777, 0]


def test_a_query_of_no_column_still_sees_one_row_per_draw(case: Case, rng: Generator) -> None:
    query = PlainQuery((), lambda rows: np.ones(rows.height, dtype=np.bool_))
    assert case.source.tally(query, draws=300, mass=0.0, rng=rng).tolist() == [0, 300]


@pytest.mark.parametrize("new_case", LOCAL, indirect=True)
def test_many_draws_are_done_in_blocks(new_case: Case, rng: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def every(rows: pl.DataFrame) -> np.ndarray:
        seen.append(rows.height)
        return np.ones(rows.height, dtype=np.bool_)

    monkeypatch.setattr(local, "_BLOCK", 100)
    counts = new_case.source.tally(PlainQuery(("whole", "word"), every), draws=250, mass=0.0, rng=rng)
    assert counts.tolist() == [0, 250]
    assert seen == [100, 100, 50]
    seen.clear()
    new_case.source.sample(PlainQuery(("whole", "word"), every), WithReplacement(250), rng)
    assert seen == [100, 100, 50]


def test_rows_kept_by_a_query_do_not_change_afterwards(case: Case, rng: Generator) -> None:
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


def test_refusals(case: Case, rng: Generator) -> None:
    query = PlainQuery(("whole",), lambda rows: np.ones(rows.height, dtype=np.bool_))
    for mass in (-0.1, 0.51, float("nan")):
        with pytest.raises(InvalidArgument, match="mass must be"):
            case.source.tally(query, draws=1, mass=mass, rng=rng)
        with pytest.raises(InvalidArgument, match="mass must be"):
            case.source.tally(replace(query, parts=2, function=lambda r, p, d: p > 0), draws=1, mass=mass, rng=rng)
    for selection in (WithoutReplacement(ROWS + 1), Fresh(bytes(32), ROWS - 1, 2)):
        with pytest.raises(InvalidArgument, match=f"must be at most n \\({ROWS}\\)"):
            case.source.sample(query, selection, rng)


@pytest.mark.parametrize("case", LOCAL, indirect=True)
def test_refusals_of_local_rows(case: Case, rng: Generator) -> None:
    query = PlainQuery(("whole",), lambda rows: np.ones(rows.height, dtype=np.bool_))
    for draws in (0, -1, 1.5, True):
        with pytest.raises(InvalidArgument, match="draws must be"):
            case.source.tally(query, draws=draws, mass=0.0, rng=rng)  # type: ignore[arg-type]
    unknown = PlainQuery(("wole",), query.function)
    with pytest.raises(UnknownName, match="Did you mean 'whole'"):
        case.source.tally(unknown, draws=1, mass=0.0, rng=rng)
    with pytest.raises(UnknownName, match="Did you mean 'whole'"):
        case.source.sample(unknown, AllRows(), rng)
    for chosen in ([ROWS], [-1]):
        with pytest.raises(InvalidArgument, match="selection must be"):
            case.source.sample(query, These(chosen), rng)


@pytest.mark.parametrize("case", LOCAL, indirect=True)
def test_the_printout_names_columns_and_no_values(case: Case) -> None:
    text = repr(case.source)
    assert "6 rows" in text or "6 units (unit)" in text
    assert "'word'" in text
    for secret in ("Ünïcode", str(2**63 - 1), "1.5"):
        assert secret not in text


@pytest.mark.parametrize("case", LOCAL, indirect=True)
def test_a_source_travels_to_another_process(case: Case) -> None:
    copy = pickle.loads(pickle.dumps(case.source))
    assert copy.name == case.source.name
    assert copy.schema == case.source.schema
    assert copy.fingerprint == case.source.fingerprint
    assert_frame_equal(rows_of(copy), case.rows, check_exact=True)


def test_counting_rows_counts(rng: Generator) -> None:
    rows = CountingRows(open_rows(table()))
    rows.tally(PlainQuery((), lambda r: np.ones(r.height, dtype=np.bool_)), draws=30, mass=0.0, rng=rng)
    rows.tally(PlainQuery((), lambda r, part, draw: part > 0, parts=2), draws=30, mass=0.0, rng=rng)
    rows.sample(NUMBERS, WithReplacement(2), rng)
    rows.sample(PlainQuery(("whole",), lambda r, part, draw: part, parts=3), AllRows(), rng)
    assert (rows.tallies, rows.samples, rows.rows_tallied, rows.rows_sampled) == (2, 2, 90, 2 + 3 * ROWS)
    assert rows.rows_read == 92 + 3 * ROWS
