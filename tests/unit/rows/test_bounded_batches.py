"""Tables with long texts are read, hashed, written and dealt in pieces of so many bytes, not only of so many rows."""

import struct
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from holdfast.errors import RowSourceError
from holdfast.rows import fingerprint
from holdfast.rows.columns import TEXT
from holdfast.rows.decks import cards as cards_
from holdfast.rows.decks import sorting
from holdfast.rows.decks.deal import deal
from holdfast.rows.decks.deck import Cards
from holdfast.rows.disk.column_writer import TextFiles
from holdfast.rows.open import open_rows
from holdfast.rows.scans import parquet, scan
from holdfast.rows.scans.files import scan_path
from holdfast.rows.scans.parquet import may_have_large_row_groups
from holdfast.rows.scans.scan import Scan, cut, gathered, row_bytes, scan_stream
from holdfast.rows.scans.texts import Dialect

pytestmark = pytest.mark.slow  # together they take seconds

ROWS, SIZE = 3_000, 20_000
rng = np.random.default_rng(1)
LENGTHS = rng.integers(0, 1_000, ROWS)
FRAME = pl.DataFrame(
    {
        "x": rng.random(ROWS),
        "many": [None if i % 7 == 3 else f"{i} ".ljust(int(size), "ä") for i, size in enumerate(LENGTHS)],
        "few": ["abc"[i % 3] * 500 for i in range(ROWS)],
    }
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "BATCH_BYTES", SIZE)


def bounded(found: list[pl.DataFrame]) -> None:
    assert pl.concat(found).equals(FRAME)
    assert max(row_bytes(batch).sum() for batch in found) <= SIZE
    assert len(found) < 4 * row_bytes(FRAME).sum() / SIZE  # nor are they cut into shreds


def test_rows_are_cut_by_bytes_and_put_together_again() -> None:
    whole = list(cut(FRAME, ROWS))
    bounded(whole)
    bounded(list(gathered(FRAME.iter_slices(3), ROWS)))
    assert [part.height for part in gathered(FRAME.iter_slices(3), 6)] == [6] * (ROWS // 6)
    assert [part.height for part in cut(FRAME, 7, size=1)] == [1] * ROWS  # a row is never cut
    assert list(cut(FRAME.clear(), 7)) == list(gathered([FRAME.clear()], 7)) == []


def test_what_was_skipped_says_nothing_about_the_rows_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    put_together: list[int] = []
    within = scan._within

    def noted(batch: pl.DataFrame, rows: int, size: int) -> Generator[pl.DataFrame, None, float]:
        put_together.append(batch.height)
        return (yield from within(batch, rows, size))

    monkeypatch.setattr(scan, "_within", noted)
    bounded(list(gathered([FRAME.clear(), *FRAME.iter_slices(3)], ROWS)))
    assert max(put_together) < ROWS / 10  # not all rows, to be measured and cut afterwards


def test_categories_count_with_their_texts() -> None:
    named = FRAME.with_columns(pl.col("few").cast(pl.Categorical))
    np.testing.assert_array_equal(row_bytes(named), row_bytes(FRAME))


def written(folder: Path, form: str) -> Scan:
    path = folder / f"t.{form.partition(' ')[0]}"
    if form == "parquet large":
        FRAME.write_parquet(path)
    elif form == "parquet small":
        FRAME.write_parquet(path, row_group_size=50)
    elif form == "arrow":
        FRAME.write_ipc(path)
    elif form == "jsonl":
        FRAME.write_ndjson(path)
    elif form == "csv":
        FRAME.write_csv(path)
    elif form == "stream":
        found = scan_stream(FRAME.to_arrow().to_reader())
    else:
        found = scan_stream(FRAME.lazy())
    if path.exists():
        found = scan_path(path, Dialect())
    assert found is not None
    return found


@pytest.mark.parametrize("form", ["parquet large", "parquet small", "arrow", "jsonl", "csv", "stream", "lazy"])
def test_every_scan_yields_batches_of_bounded_size(tmp_path: Path, form: str) -> None:
    found = written(tmp_path, form)
    found.open()
    bounded(list(found.batches()))


def test_large_row_groups_are_read_page_by_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "LARGE", 10_000)
    frame = FRAME.with_columns(pl.col("x").cast(pl.Decimal(20, 6)).alias("price"))
    path = tmp_path / "t.parquet"
    frame.write_parquet(path, row_group_size=1_000)
    found = scan_path(path, Dialect())
    assert found is not None
    found.open()
    by_polars = found.frame.collect()
    monkeypatch.setattr(pl.LazyFrame, "collect_batches", None)  # Polars is not asked
    for after in (0, 1, 999, 1_000, 2_500, ROWS):
        assert pl.concat([by_polars.clear(), *found.batches(after)]).equals(by_polars[after:])


@pytest.mark.parametrize("name", ["a.b", "^x$"])
def test_names_that_another_reader_takes_for_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(parquet, "LARGE", 1)
    frame = FRAME.rename({"many": name})
    frame.write_parquet(tmp_path / "t.parquet")
    found = scan_path(tmp_path / "t.parquet", Dialect())
    assert found is not None
    found.open()
    assert pl.concat(found.batches()).equals(frame)


def test_a_damaged_file_is_refused_whoever_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "LARGE", 1)
    path = tmp_path / "t.parquet"
    FRAME.write_parquet(path, compression="zstd")
    data = bytearray(path.read_bytes())
    page = len(data) // 2  # among the texts
    data[page : page + 2_000] = bytes(2_000)
    path.write_bytes(data)
    with pytest.raises(RowSourceError, match="damaged"):
        open_rows(path)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes of texts are hashed or written at once."""
    sizes: list[int] = []
    of = fingerprint.Joined.of.__func__  # type: ignore[attr-defined]

    def noted(cls: type, series: pl.Series) -> fingerprint.Joined:
        joined: fingerprint.Joined = of(cls, series)
        sizes.append(len(joined.data))
        return joined

    monkeypatch.setattr(fingerprint.Joined, "of", classmethod(noted))
    return sizes


def test_codes_that_become_texts_and_texts_that_are_hashed_again(tmp_path: Path, hashed: list[int]) -> None:
    texts = FRAME["few"]
    column = TextFiles(tmp_path, 0, "few", TEXT, 3)
    for part in cut(texts.to_frame(), ROWS):
        column.append(part.to_series())
    column.append(pl.Series("few", ["d"]))  # one too many: all are written as texts
    assert column.layout == "packed"
    state = column.so_far()
    column.abandon()
    again = TextFiles(tmp_path, 0, "few", TEXT, 3, over=True)
    again.go_on(state)
    assert again.digest.line() == column.digest.line()
    assert 0 < max(hashed) <= SIZE
    again.abandon()


def test_texts_in_memory_do_not_exceed_a_block_when_dealt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hashed: list[int]
) -> None:
    size = 150_000  # a hundred cards: which cards are in a block hardly shows in its size
    monkeypatch.setattr(cards_, "CHUNK_BYTES", size)
    monkeypatch.setattr(sorting, "BLOCK_BYTES", sorting._COPIES * size)
    monkeypatch.setattr(sorting, "LEAST", 1)
    monkeypatch.setattr(fingerprint, "_MOST_BYTES", 5_000)
    FRAME.write_parquet(tmp_path / "t.parquet")
    blocks: list[int] = []
    add = TextFiles.add_joined

    def noted(self: TextFiles, texts: fingerprint.Joined, valid: object) -> None:
        blocks.append(len(texts.data))
        add(self, texts, valid)  # type: ignore[arg-type]

    monkeypatch.setattr(TextFiles, "add_joined", noted)
    deck = deal(tmp_path / "t.parquet", tmp_path / "t.deck", cards=ROWS, progress=False)
    assert sum(blocks) > 10 * size
    # by the average length of the first rows, so only nearly
    assert max(blocks) <= 2 * size
    assert max(hashed) <= 2 * size
    cards = Cards(tmp_path / "t.deck" / "0001")
    known = {row[1]: row for row in FRAME.iter_rows()}
    many = cards._columns.stored["many"].part("many", 0, ROWS)
    few = cards._columns.stored["few"].part("few", 0, ROWS)
    assert set(many.to_list()) <= set(known)
    assert all(known[text][2] == other for text, other in zip(many, few, strict=True) if text is not None)
    assert many.null_count() > 0
    deck.close()


def test_the_limits_of_rows_still_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "BATCH", 5)
    found = scan_stream(FRAME.lazy())
    assert found is not None
    found.open()
    assert {batch.height for batch in found.batches()} == {5}


@pytest.mark.parametrize("rows", [10, 100, ROWS])
def test_the_footer_tells_how_large_row_groups_are(tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr(parquet, "_SHORT", 1 << 15)

    path = tmp_path / "t.parquet"
    FRAME.write_parquet(path, row_group_size=rows)
    about = pq.ParquetFile(path).metadata
    largest = max(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    assert may_have_large_row_groups(path, largest - 1)
    long = about.serialized_size > 1 << 15
    assert may_have_large_row_groups(path, largest) == long
    assert long == (rows == 10)


MEASURED = """
import re, sys
import subprocess
import sys
from pathlib import Path
from holdfast.rows.scans.files import scan_path
from holdfast.rows.scans.texts import Dialect

def kilobytes(what):
    return int(re.search(what + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

scan = scan_path(sys.argv[1], Dialect())
scan.open()
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = kilobytes("VmRSS")
rows = sum(batch.height for batch in scan.batches())
print(rows, (kilobytes("VmHWM") - before) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of a process")
@pytest.mark.parametrize(
    ("name", "header", "line"),
    [("t.csv", "id,x,text\n", '123456,0.25,"a text, in quotes"\n'), ("t.jsonl", "", '{"id": 123456, "text": "one"}\n')],
)
def test_memory_does_not_grow_with_a_text_file(name: str, header: str, line: str, tmp_path: Path) -> None:
    """Polars would map all of it: resident memory would grow by its size, 400 MB."""
    path, times = tmp_path / name, (400 << 20) // len(line)
    with path.open("w") as file:
        file.write(header)
        for _ in range(100):
            file.write(line * (times // 100))
    measured = subprocess.run([sys.executable, "-c", MEASURED, str(path)], check=True, capture_output=True, text=True)
    rows, megabytes = map(int, measured.stdout.split())
    assert rows == times // 100 * 100
    assert megabytes < 300


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


@pytest.mark.slow
@pytest.mark.parametrize(
    "footer",
    [b"\x19\xf1" + varint(1 << 40), b"\x15" + b"\xff" * (1 << 20)],
    ids=["a list of 2^40 truths", "a number of a megabyte"],
)
def test_a_damaged_footer_takes_no_time(tmp_path: Path, footer: bytes) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1" + footer + struct.pack("<I4s", len(footer), b"PAR1"))
    program = "import sys; from pathlib import Path; from holdfast.rows.scans.parquet import required_columns"
    program += "; assert not required_columns(Path(sys.argv[1]), 'Parquet')"
    subprocess.run([sys.executable, "-c", program, str(path)], check=True, timeout=20)


def test_files_with_large_row_groups_are_opened_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr(parquet, "LARGE", 1)
    for number in range(5):
        FRAME.write_parquet(tmp_path / f"{number}.parquet")
    opened: list[pq.ParquetFile] = []
    most = 0

    class Counted(pq.ParquetFile):  # type: ignore[misc]
        def __init__(self, *args: object, **options: object) -> None:
            nonlocal most
            super().__init__(*args, **options)
            opened.append(self)
            most = max(most, sum(not each.closed for each in opened))

    monkeypatch.setattr(pq, "ParquetFile", Counted)
    found = scan_path(tmp_path, Dialect())
    assert found is not None
    found.open()
    assert sum(batch.height for batch in found.batches()) == 5 * ROWS
    assert len(opened) == 10
    assert most == 1
    assert all(each.closed for each in opened)
