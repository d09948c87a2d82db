"""A column of few distinct texts: each text is asked once, and the tally is what asking every drawn row would give."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.queries.build import build_difference, build_groups, build_histogram, build_mean
from holdfast.queries.evaluate import Expression
from holdfast.rows import draws, evaluation, memory
from holdfast.rows.buffers import BufferPool
from holdfast.rows.columns import TEXT, CodedText, PackedText, SeriesText
from holdfast.rows.disk.column_writer import TextFiles
from holdfast.rows.draws import AllRows, counts_of
from holdfast.schema import Type

TEXTS = ["a", "b", "b", "c"] * 50
ASKED = ["s = 'b'", "s < 'c' and length(s) = 1", "s like 'c%'"]


@pytest.fixture
def source(tmp_path: Path) -> Any:
    path = tmp_path / "texts.parquet"
    pl.DataFrame({"s": TEXTS}).write_parquet(path)
    return hf.open(path, progress=False)


def tally(source: Any, query: Any, draws: int = 100) -> list[int]:
    counts: list[int] = source.tally(query, draws=draws, mass=0.0, rng=np.random.default_rng(3)).tolist()
    return counts


@pytest.mark.parametrize("text", ASKED)
def test_each_text_once_gives_what_each_row_gives(source: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query = build_mean(text, source.schema)
    once = tally(source, query)
    monkeypatch.setattr(source._columns, "_few_texts", lambda *_: None)
    assert once == tally(source, query)
    assert 0 < once[1] < 100


def test_a_histogram_too(source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    query = build_histogram("s", source.schema, categories=["c", "b"])
    once = tally(source, query)
    monkeypatch.setattr(source._columns, "_few_texts", lambda *_: None)
    assert once == tally(source, query)


MIXED = {"s": ["a", None, "b", "cc"] * 50, "x": list(range(200))}


@pytest.mark.parametrize(
    "build",
    [
        lambda schema: build_mean("x", schema, within=(0, 200), where="s = 'b'"),
        lambda schema: build_mean("x > 50", schema, where="s is null or s >= 'b'"),
        lambda schema: build_mean("length(s)", schema, within=(0, 2), where="x > 20"),
        lambda schema: build_histogram("s", schema, categories=["cc", "a"]),
        lambda schema: build_histogram("x", schema, bins=[0, 50, 200], where="coalesce(length(s), 0) = 1"),
        lambda schema: build_groups("x > 50", schema, by="s", groups=["b", "a"]),
        lambda schema: build_groups("x", schema, by=["s", "x % 2"], groups=[("b", 0), ("a", 0)], within=(0, 200)),
    ],
)
def test_texts_beside_numbers_and_missing_ones(build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pl.DataFrame(MIXED).write_parquet(tmp_path / "mixed.parquet")
    source = hf.open(tmp_path / "mixed.parquet", progress=False)
    query, chosen, rng = build(source.schema), Chosen(*range(200)), np.random.default_rng(0)
    once = source.sample(query, chosen, rng)
    monkeypatch.setattr(source._columns, "_few_texts", lambda *_: None)
    monkeypatch.setattr(source._columns, "plain", {})
    every = source.sample(query, chosen, rng)
    np.testing.assert_array_equal(once, every)
    assert once.dtype == every.dtype
    assert len(np.unique(once[~np.isnan(once)])) > 1


COMBINED = {
    "s": ["a", None, "b", "cc"] * 250,
    "t": [f"text {number % 61}" for number in range(1_000)],
    "x": list(range(1_000)),
    "y": [number % 7 for number in range(1_000)],
}


@pytest.mark.parametrize(
    "build",
    [
        lambda schema: build_mean("x > 500", schema, where="y < 3"),
        lambda schema: build_mean("x > 500", schema, where="s = 'b'"),
        lambda schema: build_mean("s >= 'b'", schema, where="s is not null"),
        lambda schema: build_mean("length(s)", schema, within=(0, 2), where="x > 200"),
        lambda schema: build_mean("t like '%1'", schema, where="s = 'a'"),
        lambda schema: build_histogram("s", schema, categories=["cc", "a"]),
        lambda schema: build_histogram("t", schema, categories=["text 7", "text 60"], where="y > 2"),
        lambda schema: build_groups("x > 500", schema, by="s", groups=["b", "a"]),
        lambda schema: build_groups("y = 1", schema, by=["s", "t"], groups=[("b", "text 2"), ("a", "text 0")]),
        lambda schema: build_groups("x > 500", schema, by="s", groups=["b", "a"], where="y < 5"),
        lambda schema: build_difference("x > 300", schema, group="s = 'a'", other="t < 'text 3'"),
    ],
)
def test_each_combination_once_gives_what_each_row_gives(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pl.DataFrame(COMBINED).write_parquet(tmp_path / "combined.parquet")
    source = hf.open(tmp_path / "combined.parquet", progress=False, complete=["t", "x", "y"])
    query, chosen = build(source.schema), np.random.default_rng(3).integers(0, 1_000, 9_000)
    row_values, times = source._columns.counted(query.functions, chosen)
    assert times is not None
    values = query.combined(row_values)
    assert len(values) < times.sum() == 9_000
    of_rows = np.asarray(source.sample(query, Chosen(*chosen.tolist()), np.random.default_rng(0)))
    assert values.dtype == of_rows.dtype
    np.testing.assert_array_equal(np.sort(np.repeat(values, times, axis=0), axis=0), np.sort(of_rows, axis=0))
    once = tally(source, query, draws=9_000)
    monkeypatch.setattr(evaluation, "_EACH", 10**9)
    if not ((values > 0) & (values < 1)).any():  # otherwise coins are tossed, in another order
        assert once == tally(source, query, draws=9_000)
    assert sum(once) == 9_000


def test_no_combinations_of_numbers_or_of_so_many_that_their_number_would_show(tmp_path: Path) -> None:
    """How many occur among the drawn rows depends on the rows, and each of them takes time."""
    pl.DataFrame(COMBINED).write_parquet(tmp_path / "combined.parquet")
    source: Any = hf.open(tmp_path / "combined.parquet", progress=False)

    def combined(query: Any, rows: Any) -> bool:
        return source._columns.counted(query.functions, rows)[1] is not None

    rows = np.arange(100)
    assert not combined(build_mean("x", source.schema, within=(0, 1_000), where="s = 'a'"), rows)
    assert not combined(build_mean("t = 'text 1'", source.schema, where="s = 'a'"), rows)
    assert not combined(build_mean("x > 5", source.schema), rows)
    pairs = build_mean("t = 'text 1'", source.schema, where="s = 'a'")  # 61 texts, and 4 with the missing one
    limit = 16 * 61 * 4
    assert not combined(pairs, np.arange(limit - 1) % 1_000)
    assert combined(pairs, np.arange(limit) % 1_000)


def test_one_row_that_must_be_tossed_for_does_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coins of one bias are drawn together, whatever it is: else a single such row would have all rows tossed for."""
    pl.DataFrame({"s": ["a", "bb"] * 500 + ["ccc"]}).write_parquet(tmp_path / "rare.parquet")
    source = hf.open(tmp_path / "rare.parquet", progress=False, complete=["s"])
    query = build_mean("case when s = 'ccc' then 0.5 when s = 'a' then 1 else 0 end", source.schema, within=(0, 1))
    seen: list[int] = []
    monkeypatch.setattr(draws, "coins", lambda bias, _: seen.append(bias.size))
    drawn = set()
    for seed in range(50):
        rng = np.random.default_rng(seed)
        drawn.add(1_000 in np.random.default_rng(seed).integers(0, 1_001, 500))
        assert source.tally(query, draws=500, mass=0.0, rng=rng).sum() == 500
    assert drawn == {False, True}
    assert not seen


@pytest.mark.parametrize("most", [1, 8, 9, 64, 65, 256])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("count", [1, 2, 1_000, 1_001])
def test_numbers_are_counted_alike_whether_there_are_few_or_many(most: int, dtype: Any, count: int) -> None:
    numbers = np.random.default_rng(most).integers(0, most, count).astype(dtype)
    found = counts_of(numbers, most)
    assert found.tolist() == np.bincount(numbers, minlength=most).tolist()
    assert found.dtype == np.int64


class Asking:
    """A function of the column s, evaluated on frames."""

    columns, direct, nullable, identity, work = ("s",), None, True, "a function", 1

    def __init__(self, of: Any, type_: Type) -> None:
        self.series, self.type = of, type_


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize(
    ("type_", "of"),
    [
        (Type.BOOL, lambda s: (s == "b").fill_null(value=False)),
        (Type.FLOAT, lambda s: (s.str.len_bytes() / 2).fill_null(0.0)),
    ],
)
def test_short_codes_and_long_ones_give_the_same(type_: Type, of: Any, dtype: Any, missing: bool) -> None:
    texts, codes = pl.Series(["a", "b", "never drawn"]), np.array([0, 1, 1, 2, 0], dtype)
    column = CodedText(codes, texts, np.array([True, True, False, True, True]) if missing else None)
    seen: list[Any] = []
    ask = Asking(lambda rows: (seen.extend(rows["s"]), of(rows["s"]))[1], type_)
    drawn = np.array([4, 1, 1, 2, 0])
    expected = [None if missing and row == 2 else texts[int(codes[row])] for row in drawn]
    values = column.asked(ask, drawn, BufferPool())
    assert values.tolist() == of(pl.Series("s", expected)).to_list()
    assert set(seen) == set(expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_code_without_a_text_is_damage(dtype: Any) -> None:
    column = CodedText(np.array([0, 2], dtype), pl.Series(["a", "b"]))
    with pytest.raises(IndexError):
        column.asked(Asking(lambda rows: rows["s"].is_null(), Type.BOOL), np.array([1]), BufferPool())


class Chosen:
    """These rows, in this order."""

    def __init__(self, *rows: int) -> None:
        self.rows = rows

    def indices(self, n: int, rng: np.random.Generator) -> Any:
        return np.array(self.rows)


def test_no_text_is_asked_that_was_not_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One long text among many rows would show in the time of every answer, drawn or not."""
    pl.DataFrame({"s": ["a", "b", "x" * 1_000_000, "c"] * 50}).write_parquet(tmp_path / "long.parquet")
    source = hf.open(tmp_path / "long.parquet", progress=False)
    seen: set[str] = set()
    plain = Expression.series
    monkeypatch.setattr(Expression, "series", lambda self, rows: (seen.update(rows["s"]), plain(self, rows))[1])
    query = build_mean("upper(s) >= 'B'", source.schema)
    values = source.sample(query, Chosen(0, 5, 3, 0, 1, 8), np.random.default_rng(0))
    assert values.tolist() == [False, True, True, False, True, False]
    assert seen == {"a", "b", "c"}


def test_texts_are_asked_once_only_where_that_is_less(source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    heights: list[int] = []
    plain = Expression.series
    monkeypatch.setattr(Expression, "series", lambda self, rows: (heights.append(rows.height), plain(self, rows))[1])
    query = build_mean("upper(s) = 'B'", source.schema)
    tally(source, query, draws=100)
    tally(source, query, draws=2)
    assert heights == [3, 2]


def test_a_function_from_outside_sees_drawn_rows_alone(source: Any) -> None:
    seen: list[int] = []

    def is_b(rows: Any) -> Any:
        seen.append(len(rows["s"]))
        return np.asarray(rows["s"]) == "b"

    query = build_mean(is_b, replace(source.schema, columns=(source.schema["s"],)))
    seen.clear()
    assert sum(tally(source, query, draws=100)) == 100
    assert seen == [100]


@pytest.mark.parametrize("named", [pl.Categorical, pl.Enum(["never", "c", "b", "a"])], ids=["categories", "enum"])
@pytest.mark.parametrize("most_distinct", [2, 9], ids=["too many", "few"])
def test_categories_are_written_as_their_texts_would_be(tmp_path: Path, named: Any, most_distinct: int) -> None:
    batches = [[None, None], ["b", None, "a", "b"], [], ["a", "c", None]]
    written = {}
    for dtype in (pl.String, named):
        folder = tmp_path / str(dtype == pl.String)
        folder.mkdir()
        column = TextFiles(folder, 0, "s", TEXT, most_distinct)
        for batch in batches:
            column.append(pl.Series("s", batch, dtype=pl.String).cast(dtype))
        column.close()
        written[dtype] = column.entry(nullable=True), {path.name: path.read_bytes() for path in folder.iterdir()}
    assert written[pl.String] == written[named]
    assert written[named][0].distinct == (3 if most_distinct == 9 else 0)


@pytest.mark.parametrize(("texts", "width"), [(1, 1), (256, 1), (257, 2), (65_537, 4)])
def test_codes_are_as_narrow_as_their_number_allows(texts: int, width: int, tmp_path: Path) -> None:
    """Also where a killed reading goes on between two batches."""
    batches = [[str(number * part // 4) for number in range(1, texts)] + ["0"] for part in (0, 1, 4)]
    column = TextFiles(tmp_path, 0, "s", TEXT, 10**6)
    for batch in batches:
        state = column.so_far()
        column.abandon()
        column = TextFiles(tmp_path, 0, "s", TEXT, 10**6, over=True)
        column.go_on(state)
        column.append(pl.Series("s", batch))
    column.close()
    codes = np.load(tmp_path / "00000.codes.npy")
    assert codes.itemsize == width
    texts_of, starts = (np.load(tmp_path / f"00000.dictionary.{what}.npy") for what in ("texts", "starts"))
    dictionary = PackedText(starts, texts_of).part("", 0, column.entry(nullable=False).distinct)
    assert dictionary.gather(codes).to_list() == [text for batch in batches for text in batch]
    assert not list(tmp_path.glob("*wider*"))


def test_no_text_is_asked_that_is_not_among_consecutive_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows that a deck hands to a question are consecutive."""
    pl.DataFrame({"s": ["a", "b"] * 50 + ["x" * 1_000_000] * 100}).write_parquet(tmp_path / "long.parquet")
    source: Any = hf.open(tmp_path / "long.parquet", progress=False)
    seen: set[str] = set()
    plain = Expression.series
    monkeypatch.setattr(Expression, "series", lambda self, rows: (seen.update(rows["s"]), plain(self, rows))[1])
    source._columns.values(build_mean("upper(s) >= 'B'", source.schema).functions, slice(0, 100))
    assert seen == {"a", "b"}


@pytest.mark.parametrize("column", ["x", "y"])
@pytest.mark.parametrize(
    "build",
    [
        lambda name, schema: build_mean(f"{name} > 1", schema),
        lambda name, schema: build_mean(name, schema, within=(0, 3)),
        lambda name, schema: build_mean(f"{name} > 1", schema, where=f"{name} < 3"),
        lambda name, schema: build_histogram(name, schema, categories=[0.0, 1.0, 2.0]),
        lambda name, schema: build_histogram(name, schema, bins=[0, 1, 2]),
        lambda name, schema: build_groups("x > 1", schema, by=name, groups=[0.0, 1.0]),
    ],
)
def test_many_rows_in_a_row_say_what_few_say(build: Any, column: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether Polars or numpy compares must not show, least of all as an error: it would tell what is missing."""
    rows: Any = hf.open(pl.DataFrame({"x": [0.0, 1.0, 2.0, 3.0] * 50, "y": [0.0, 1.0, 2.0, None] * 50}))
    query, rng = build(column, rows.schema), np.random.default_rng(0)
    few = rows.sample(query, AllRows(), rng)
    monkeypatch.setattr(evaluation, "_MANY", 1)
    np.testing.assert_array_equal(rows.sample(query, AllRows(), rng), few)


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical])
@pytest.mark.parametrize(
    "texts", [["b", "a", None, "b", ""] * 40, [None] * 200, ["é"] * 200, [str(number // 2) for number in range(200)]]
)
def test_texts_in_memory_are_kept_as_codes_and_answer_alike(
    texts: list[str | None], dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pl.DataFrame({"s": pl.Series(texts, dtype=pl.String).cast(dtype)})
    coded: Any = hf.open(frame)
    monkeypatch.setattr(memory, "_stored_texts", SeriesText)
    as_series: Any = hf.open(frame)
    assert isinstance(coded._columns.stored["s"], CodedText)
    assert coded.fingerprint == as_series.fingerprint
    assert coded.texts("s") == as_series.texts("s")
    assert coded.frame(np.arange(200))["s"].to_list() == as_series.frame(np.arange(200))["s"].to_list() == texts
    for query in (
        build_mean("s = 'a'", coded.schema),
        build_mean("length(s)", coded.schema, within=(0, 5)),
        build_histogram("s", coded.schema, categories=["b", "7"]),
    ):
        found, same = (one.sample(query, AllRows(), np.random.default_rng(1)) for one in (coded, as_series))
        np.testing.assert_array_equal(found, same)


@pytest.mark.parametrize("texts", [["a", "b", "c", None] * 9, ["a"] * 9 + ["b", "c"]], ids=["soon", "late"])
def test_texts_in_memory_are_not_coded_if_many_are_distinct(
    texts: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for most, kind in ((3, CodedText), (2, SeriesText)):
        monkeypatch.setattr(memory, "MOST_TEXTS", most)
        rows: Any = hf.open({"s": texts})
        assert isinstance(rows._columns.stored["s"], kind)
