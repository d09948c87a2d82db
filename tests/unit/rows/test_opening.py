"""What `open_rows` takes, and what it refuses and how."""

import sys
import warnings
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from subprocess import run

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.errors import HoldfastError, InvalidArgument, RowSourceError, UnknownName
from holdfast.registry import Registry
from holdfast.rows import units
from holdfast.rows.disk import ingest
from holdfast.rows.open import open_rows
from holdfast.rows.scans.files import FileScan
from holdfast.rows.scans.scan import ColumnsLeftOut
from holdfast.schema import Type
from plain_query import rows_of

UNSUPPORTED = {
    "List(Int64)": pl.Series([[1]]),
    "Array(Int64, shape=(1,))": pl.Series([[1]], dtype=pl.Array(pl.Int64, 1)),
    "Struct({'a': Int64})": pl.Series([{"a": 1}]),
    "Decimal(precision=5, scale=1)": pl.Series([Decimal("1.5")], dtype=pl.Decimal(5, 1)),
    "Duration(time_unit='us')": pl.Series([timedelta(1)]),
    "Time": pl.Series([time(1)]),
    "Binary": pl.Series([b"secret"]),
    "Null": pl.Series([None]),
    "Int128": pl.Series([1], dtype=pl.Int128),
    "Object": pl.Series([object()], dtype=pl.Object),
}


@pytest.mark.parametrize("type_name", UNSUPPORTED)
def test_unsupported_types_are_refused_by_name(type_name: str) -> None:
    frame = pl.DataFrame({"fine": [1], "odd": UNSUPPORTED[type_name]})
    with pytest.raises(RowSourceError) as refusal:
        open_rows(frame)
    assert str(refusal.value).startswith(f"Column 'odd' has type {type_name}, which holdfast does not support; drop it")
    assert str(refusal.value).endswith(".")
    assert refusal.value.fields == {"column": "odd", "type": type_name}


def test_unsupported_types_in_files_leave_nothing_behind(tmp_path: Path) -> None:
    pl.DataFrame({"odd": [[1]]}).write_parquet(tmp_path / "odd.parquet")
    with pytest.raises(RowSourceError, match=r"Column 'odd' has type List\(Int64\)"):
        open_rows(tmp_path / "odd.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["odd.parquet"]


def test_what_a_file_has_beside_lists_and_records_can_be_asked_about(tmp_path: Path) -> None:
    columns = {"^odd.*$": [[1], [2]], "x": [1, 2], "euro": pl.Series(["1.50", "2.25"]).cast(pl.Decimal(9, 2))}
    pl.DataFrame(columns | {"odd": [{"a": 1}, {"a": 2}], "y": [True, None]}).write_parquet(tmp_path / "t.parquet")
    with pytest.warns(ColumnsLeftOut, match=r"t\.parquet: left out, because of their types: ") as caught:
        rows = open_rows(tmp_path / "t.parquet")
    assert str(caught[0].message).endswith("'^odd.*$' (List(Int64)), 'odd' (Struct({'a': Int64})).")
    assert [(column.name, column.type) for column in rows.schema] == [
        ("x", Type.INT),
        ("euro", Type.FLOAT),
        ("y", Type.BOOL),
    ]
    assert rows_of(rows)["euro"].to_list() == [1.5, 2.25]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_rows(tmp_path / "t.parquet").fingerprint == rows.fingerprint


ARRAYS = {
    "complex": np.array([1j]),
    "bytes": np.array([b"x"]),
    "timedelta": np.array([1], "m8[s]"),
    "mixed": np.array(["a", 1], dtype=object),
    "records": np.zeros(1, [("a", int)]),
    "lone surrogate": np.array(["\ud800"], dtype=object),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS.keys())
def test_unsupported_arrays_are_refused_by_name(array: np.ndarray) -> None:
    with pytest.raises(RowSourceError, match="Column 'x' has type"):
        open_rows({"x": array})


DAY, MIDNIGHT = date(2020, 1, 1), datetime(2020, 1, 1)
VALUES = {
    "days": (np.array(["2020-01-01", "NaT"], "M8[D]"), Type.DATE, [DAY, None]),
    "months": (np.array(["2020-01"], "M8[M]"), Type.DATE, [DAY]),
    "hours": (np.array(["2020-01-01T00", "NaT"], "M8[h]"), Type.DATETIME, [MIDNIGHT, None]),
    "nanoseconds": (np.array(["2020-01-01"], "M8[ns]"), Type.DATETIME, [MIDNIGHT]),
    "text objects": (np.array(["a", None, float("nan")], dtype=object), Type.STRING, ["a", None, None]),
    "text": (np.array(["é"]), Type.STRING, ["é"]),
    "big-endian": (np.array([1, 2], ">i4"), Type.INT, [1, 2]),
    "with stride": (np.arange(5)[::-2], Type.INT, [4, 2, 0]),
    "half precision": (np.array([1.5], np.float16), Type.FLOAT, [1.5]),
    "masked": (np.ma.masked_array([1, 2], [True, False]), Type.INT, [None, 2]),
    "list": ([1, None, 3], Type.INT, [1, None, 3]),
    "tuple": (("a", None), Type.STRING, ["a", None]),
    "series": (pl.Series([True, None]), Type.BOOL, [True, None]),
}


NEVER_MISSING = {"text", "big-endian", "with stride"}  # numpy has no missing integer, boolean or text


@pytest.mark.parametrize("what", VALUES)
def test_arrays_lists_and_series(what: str) -> None:
    values, expected, content = VALUES[what]
    rows = open_rows({"x": values})
    assert rows.schema["x"].type is expected
    assert rows.schema["x"].nullable == (what not in NEVER_MISSING)
    assert rows_of(rows)["x"].to_list() == content


def test_arrays_are_copied() -> None:
    values = np.zeros(3)
    frame = pd.DataFrame({"x": np.zeros(3)})
    sources = [open_rows({"x": values}), open_rows(frame)]
    values[:] = 7.0
    frame.loc[:, "x"] = 7.0
    for rows in sources:
        assert rows_of(rows)["x"].to_list() == [0.0] * 3


BAD = {
    "no columns": {},
    "no rows": {"x": np.ones(0)},
    "empty frame": pl.DataFrame(),
    "empty pandas frame": pd.DataFrame(),
    "empty arrow table": pa.table({}),
    "unequal lengths": {"x": np.ones(2), "y": np.ones(3)},
    "two dimensions": {"x": np.ones((2, 2))},
    "a scalar": {"x": 5},
    "a number as name": {1: np.ones(1)},
    "pandas numbers as names": pd.DataFrame([[1, 2]]),
    "pandas dates as names": pd.DataFrame({date(2020, 1, 1): [1]}),
    "pandas duplicate names": pd.DataFrame([[1, 2]], columns=["a", "a"]),
    "pandas mixed column": pd.DataFrame({"a": ["secret", 1]}),
    "arrow duplicate names": pa.Table.from_arrays([pa.array([1]), pa.array([1])], ["a", "a"]),
    "arrow batch": pa.record_batch({"a": [1]}),
    "lazy frame": pl.LazyFrame({"a": [1]}),
    "series": pl.Series([1]),
    "array": np.ones((2, 2)),
    "number": 5,
    "nothing": None,
    "empty path": "",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_what_is_no_table_is_refused(data: object) -> None:
    with pytest.raises(HoldfastError) as refusal:
        open_rows(data)
    assert str(refusal.value).endswith(".")
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("data", "way"),
    [
        (pd.Series([1, 2], name="x"), "got Series. Make it a frame of one column: series.to_frame()."),
        (pl.Series([1]), "got Series. Make it a frame of one column: series.to_frame()."),
        (np.ones((2, 2)), 'got ndarray. Name its columns: {"x": values[:, 0]}.'),
        ("https://example.org/x.csv", "https://example.org/x.csv is on the web; download it first, and open the file."),
        (
            "http://127.0.0.1:8765/flights",
            "http://127.0.0.1:8765/flights is not a file. A holdfast server is asked with holdfast.connect(url,"
            " token).",
        ),
    ],
)
def test_what_is_nearly_a_table_is_told_the_way(data: object, way: str) -> None:
    with pytest.raises(HoldfastError) as refusal:
        open_rows(data)
    assert str(refusal.value).endswith(way)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


FILES = {
    "empty.csv": (b"", "is empty"),
    "blank.csv": (b"\n", "is empty"),
    "header.csv": (b"a,b\n", "has no rows"),
    "twice.csv": (b"a,a\n1,2\n", "two columns named 'a'"),
    "unnamed.csv": (b",\n1,2\n", "two columns named ''"),
    "garbage.csv": (bytes(range(256)) * 10, "line 2: its text is not utf-8"),
    "ragged.csv": (b"a,b\n1,secret\n1,2,3\n", "line 3: 3 values, where the header has 2 columns"),
    "latin.csv": ("a\nsecret é\n".encode("latin-1"), "line 2: its text is not utf-8"),
    "empty.parquet": (b"", "Cannot read"),
    "garbage.parquet": (b"PAR1 secret PAR1", "Cannot read"),
    "text.parquet": (b"a,b\n1,2\n", "Cannot read"),
    "empty.arrow": (b"", "Cannot read"),
    "garbage.ipc": (b"ARROW1 secret", "Cannot read"),
    "sheet.xlsx": (b"", "has no known ending.* Read it with pandas or Polars"),
    "list.json": (b"[]", "has no known ending.* Read it with pandas or Polars"),
    "packed.csv.gz": (b"", "has no known ending.* Unpack it first"),
    "nothing": (b"", "has no known ending.* If it is a CSV file, give it the ending .csv"),
}


@pytest.mark.parametrize("name", ["flights.held.holdfast", "events.deck"])
def test_a_folder_that_is_not_there_is_said_to_be_missing(name: str, tmp_path: Path) -> None:
    with pytest.raises(RowSourceError, match=f"No folder .*{name}"):
        open_rows(tmp_path / name)


def test_a_decimal_comma_in_a_column_of_numbers_is_recognized(tmp_path: Path) -> None:
    path = write(tmp_path / "sums.csv", b"a;b\n1;1,5\n")
    with pytest.raises(RowSourceError, match=r"'b' has a comma.*decimal=','"):
        open_rows(path, separator=";", types={"b": "number"})
    path = write(tmp_path / "lists.csv", b"a;b\n1;x,y\n")
    with pytest.raises(RowSourceError, match="Declare what fits"):
        open_rows(path, separator=";", types={"b": "number"})


@pytest.mark.parametrize("name", FILES)
def test_bad_files_are_refused_without_quoting_them(name: str, tmp_path: Path) -> None:
    content, fact = FILES[name]
    with pytest.raises(RowSourceError, match=fact) as refusal:
        open_rows(write(tmp_path / name, content))
    assert str(refusal.value).endswith(".")
    assert "secret" not in str(refusal.value)
    assert refusal.value.__cause__ is None
    shown: BaseException = refusal.value  # a traceback also prints what was being handled, where it is not suppressed
    while not shown.__suppress_context__ and shown.__context__ is not None:
        shown = shown.__context__
        assert "secret" not in str(shown)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("keep", [0.1, 0.5, 0.999])
def test_cut_off_files_are_refused(suffix: str, keep: float, tmp_path: Path) -> None:
    frame, path = pl.DataFrame({"x": range(50_000)}), tmp_path / f"rows.{suffix}"
    frame.write_parquet(path) if suffix == "parquet" else frame.write_ipc(path)
    content = path.read_bytes()
    with pytest.raises(RowSourceError, match="cut off"):
        open_rows(write(path, content[: int(len(content) * keep)]))


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_files_with_a_hole_are_refused(suffix: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The end of the file is intact and tells how many rows there should be; the reader finds fewer."""
    frame, path = pl.DataFrame({"x": range(50_000)}), tmp_path / f"rows.{suffix}"
    frame.write_parquet(path) if suffix == "parquet" else frame.write_ipc(path)
    content = path.read_bytes()
    with pytest.raises(RowSourceError, match="Cannot read"):
        open_rows(write(path, content[:100] + content[5_000:]))
    capfd.readouterr()  # the reader complains on its own


def test_duplicate_and_missing_columns_in_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array([1])] * 2, ["a", "a"]), tmp_path / "twice.parquet")
    pq.write_table(pa.table({}), tmp_path / "none.parquet")
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "empty.parquet")
    for name, fact in [("twice", "same name"), ("none", "no columns"), ("empty", "no rows")]:
        with pytest.raises(RowSourceError, match=fact):
            open_rows(tmp_path / f"{name}.parquet")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RowSourceError, match=r"No file .*flights\.parquet\."):
        open_rows(tmp_path / "flights.parquet")
    with pytest.raises(RowSourceError, match=r"not a holdfast folder.*Parquet files\.$"):
        open_rows(tmp_path)


def test_a_missing_file_is_looked_for_where_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for missing, way in [
        ("flights.csv", f"No file flights.csv in {tmp_path}."),
        ("*.csv", f"No file matches *.csv in {tmp_path}."),
        ("~/flights.csv", f"No file ~/flights.csv: '~' is a name here. Write {tmp_path}/flights.csv."),
    ]:
        with pytest.raises(RowSourceError) as refused:
            open_rows(missing)
        assert str(refused.value) == way


def test_a_misspelled_file_is_told_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "flights.csv", b"a\n1\n2\n")
    write(tmp_path / "flights.txt", b"a\n1\n2\n")
    for missing, what in [("fligths.csv", "file"), ("flights.cvs", "file or folder")]:
        with pytest.raises(RowSourceError) as refused:
            open_rows(missing)
        assert str(refused.value) == f"No {what} {missing} in {tmp_path}. Did you mean flights.csv?"
    with pytest.raises(RowSourceError) as refused:
        open_rows(tmp_path / "trips.csv")
    assert str(refused.value) == f"No file {tmp_path / 'trips.csv'}."


def test_a_folder_of_other_files_is_told_their_pattern(tmp_path: Path) -> None:
    write(tmp_path / "may.csv", b"a\n1\n2\n")
    with pytest.raises(RowSourceError) as refused:
        open_rows(tmp_path)
    pattern = f"{tmp_path}/*.csv"
    assert str(refused.value).endswith(f"All of its CSV files are '{pattern}'.")
    assert len(open_rows(pattern, folder=tmp_path / "all.holdfast")) == 2


HEAD = b"whole,late,none,day\n" + b"1,5,,2020-01-01\n" * 30_000


def test_csv_types_come_from_the_first_rows(tmp_path: Path) -> None:
    rows = open_rows(write(tmp_path / "t.csv", HEAD + b"2,6,7,2020-01-02\n"))
    assert [column.type for column in rows.schema] == [Type.INT, Type.INT, Type.STRING, Type.DATE]
    assert rows_of(rows, [30_000]).row(0) == (2, 6, "7", date(2020, 1, 2))


@pytest.mark.parametrize(
    ("last", "column", "type_"),
    [
        ("1.5,5,,2020-01-01", "whole", "integer"),
        ("1,word,,2020-01-01", "late", "integer"),
        ("1,5,,never", "day", "date"),
    ],
)
def test_a_csv_value_that_does_not_fit_is_refused_by_place_never_by_value(
    tmp_path: Path, last: str, column: str, type_: str
) -> None:
    path = write(tmp_path / "t.csv", HEAD + f"{last}\n1,5,,2020-01-01\n".encode())
    with pytest.raises(RowSourceError) as refused:
        open_rows(path)
    assert str(refused.value) == (
        f"{path}, row 30,001: the value of '{column}' is not of type {type_}, as its first 10,000 rows suggest."
        f" Declare what fits all values, for example types={{'{column}': 'text'}}."
    )
    assert open_rows(path, types={column: "text"}).schema[column].type is Type.STRING
    assert open_rows(path).schema[column].type is Type.STRING  # the folder remembers
    with pytest.raises(RowSourceError, match="as declared"):
        open_rows(path, types={column: type_})


@pytest.mark.parametrize("name", ["*", "^a.*$", "a' (column number 9)", "it's"])
def test_odd_names_do_not_confuse_the_refusal_of_a_value(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "t.csv", f"a,{name}\n".encode() + b"x,5\n" * 10_000 + b"y,z\n")
    with pytest.raises(RowSourceError, match=r"row 10,001: the value of .* is not of type integer"):
        open_rows(path)


def test_the_types_of_a_csv_file_are_shown_while_it_is_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    open_rows(write(tmp_path / "t.csv", b"a,[b]\n1,x\n"), progress=True)
    assert "Types, as declared or from the first 10,000 rows: a integer, [b] text" in capfd.readouterr().err


def test_first_rows_that_fit_no_type_are_text(tmp_path: Path) -> None:
    content = b"mixed,large,time\n2020-01-02,9223372036854775808,01:02:03\n03/04/2020,1,02:03:04\n"
    rows = open_rows(write(tmp_path / "t.csv", content))
    assert [column.type for column in rows.schema] == [Type.STRING] * 3


def test_an_index_of_pandas_that_has_a_name_is_a_column() -> None:
    frame = pd.DataFrame({"carrier": ["UA", "AA"], "origin": ["EWR", "JFK"], "late": [True, False]})
    assert open_rows(frame).schema.names == ("carrier", "origin", "late")
    assert set(open_rows(frame.set_index("carrier")).schema.names) == {"carrier", "origin", "late"}
    assert set(open_rows(frame.set_index(["carrier", "origin"])).schema.names) == {"carrier", "origin", "late"}
    assert open_rows(frame.set_index("carrier", drop=False)).schema.names == ("carrier", "origin", "late")
    unnamed = frame.set_index("carrier").rename_axis(None)
    assert open_rows(unnamed).schema.names == ("origin", "late")
    assert list(rows_of(open_rows(frame.set_index("carrier")), [0, 1])["carrier"]) == ["UA", "AA"]


def test_types_are_declared_for_csv_files_only(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", b"a,b\n1,2\n")
    rows = open_rows(path, types={"a": "number", "b": "text"})
    assert [column.type for column in rows.schema] == [Type.FLOAT, Type.STRING]
    assert [column.type for column in open_rows(path, types={"a": "integer"}).schema] == [Type.INT, Type.INT]
    with pytest.raises(InvalidArgument, match=r"types\['a'\] must be one of boolean, .* Did you mean 'number'\?"):
        open_rows(path, types={"a": "float"})
    with pytest.raises(UnknownName, match="it has no 'c'"):
        open_rows(path, types={"c": "text"})
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "p.parquet")
    for other in (tmp_path / "p.parquet", tmp_path / "t.csv.holdfast", {"a": [1]}):
        with pytest.raises(InvalidArgument, match="types must be left out"):
            open_rows(other, types={"a": "number"})  # type: ignore[arg-type]


def test_names_and_refused_options(tmp_path: Path) -> None:
    pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "flights.2024.parquet")
    rows = open_rows(tmp_path / "flights.2024.parquet")
    assert rows.name == "flights.2024"
    assert rows.schema.dataset == "flights.2024"
    assert open_rows(tmp_path / "flights.2024.parquet", name="other").name == "other"
    assert open_rows(tmp_path / "flights.2024.parquet.holdfast").name == "flights.2024"
    assert open_rows({"x": [1]}).name == "data"
    assert open_rows(rows) is rows
    for options in ({"name": " "}, {"name": 5}, {"folder": tmp_path}):
        with pytest.raises(InvalidArgument, match="must be"):
            open_rows({"x": [1]}, **options)
    with pytest.raises(InvalidArgument, match="folder must be"):
        open_rows(tmp_path / "flights.2024.parquet.holdfast", folder=tmp_path / "x")


def test_special_characters_in_paths_are_not_patterns(tmp_path: Path) -> None:
    folder = tmp_path / "year=2024 [a-z]*"
    folder.mkdir()
    for suffix, writer in [("parquet", "write_parquet"), ("csv", "write_csv"), ("arrow", "write_ipc")]:
        path = folder / f"t?.{suffix}"
        getattr(pl.DataFrame({"x": [1, 2]}), writer)(path)
        assert open_rows(path).schema.names == ("x",)


def test_printouts_stay_short() -> None:
    text = repr(open_rows({f"c{i}": [1] for i in range(100)}, name="wide"))
    assert text.startswith("wide: 1 row, 100 columns\n")
    assert text.endswith("and 70 more")


@pytest.mark.slow
def test_opening_arrays_imports_no_frame_library() -> None:
    code = (
        "import sys, numpy as np; from holdfast.rows.open import open_rows; open_rows({'x': np.ones(3)}); "
        "print(sorted({'pandas', 'pyarrow', 'narwhals', 'rich'} & set(sys.modules)))"
    )
    done = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_frame_on_top_of_an_array_does_not_change_with_it():
    values = np.zeros(10)
    source = open_rows(pl.DataFrame({"x": values}))
    values[:] = 2.0
    assert rows_of(source)["x"].sum() == 0.0


class EntryPoint:
    """An installed entry point; `asked` is what it was asked about."""

    def __init__(self, recognized: object) -> None:
        self.recognized, self.asked, self.name = recognized, [], repr(recognized)

    def load(self):
        return self.open

    def open(self, data):
        self.asked.append(data)
        return open_rows({"x": [1, 2, 3]}, name="theirs") if data == self.recognized else None


@pytest.mark.parametrize("data", ["warehouse://sales", Path("sales.xyz"), 17], ids=repr)
def test_other_packages_open_what_nothing_else_recognizes(data, monkeypatch, tmp_path):
    others, theirs = EntryPoint("something else"), EntryPoint(data)
    installed = {"holdfast.row_sources": [others, theirs]}
    monkeypatch.setattr("importlib.metadata.entry_points", lambda *, group: installed[group])
    monkeypatch.setattr("holdfast.rows.open.ROW_SOURCES", Registry("holdfast.row_sources"))
    assert open_rows(data).name == "theirs"
    assert others.asked == theirs.asked == [data]
    open_rows({"x": [1]})
    pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "t.parquet")
    open_rows(open_rows(tmp_path / "t.parquet"))
    assert theirs.asked == [data]  # only what is not otherwise recognized
    with pytest.raises(HoldfastError):
        open_rows("nobody knows")
    with pytest.raises(InvalidArgument, match="or a row source; got int"):
        open_rows(18)


def test_a_source_is_recognized_without_computing_its_fingerprint():
    class Foreign:
        tally = sample = verify = lambda self: None

        @property
        def fingerprint(self):
            raise AssertionError

    foreign = Foreign()
    assert open_rows(foreign) is foreign


@pytest.mark.parametrize(("unit", "said"), [(None, "the same call resumes"), ("id", "the same call starts over")])
def test_an_interrupt_says_what_the_same_call_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], unit: str | None, said: str
) -> None:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"id": [1, 1, 2], "x": [1.0, 2.0, 3.0]}).write_parquet(path)

    def interrupted(self: FileScan, after: int = 0) -> Iterator[pl.DataFrame]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(FileScan, "batches", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_rows(path, unit=unit, progress=True)
    assert said in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / ".t.parquet.holdfast.partial").exists() == (unit is None)


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical])
def test_an_interrupt_while_rows_are_grouped_keeps_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], dtype: type[pl.DataType]
) -> None:
    path, partial = tmp_path / "t.parquet", tmp_path / ".t.parquet.holdfast.partial"
    frame = pl.DataFrame(
        {"id": [i % 50 for i in range(1_000)], "s": pl.Series([str(i % 9) for i in range(1_000)], dtype=dtype)}
    )
    frame.write_parquet(path)
    monkeypatch.setattr(units, "PARTITION_BYTES", 4_000)

    def interrupted(columns: object, batch: pl.DataFrame) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ingest, "_append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            open_rows(path, unit="id", progress=True)
    kept = dtype is pl.String  # the numbers of categories are known only to the process that read them
    assert partial.exists() == kept
    said = "the same call resumes" if kept else "the same call starts over"
    assert said in " ".join(capsys.readouterr().err.split())
    with monkeypatch.context() as patch:
        if kept:
            patch.setattr(FileScan, "batches", None)  # not a row is read again
        rows = open_rows(path, unit="id")
    assert rows.fingerprint == open_rows(frame).fingerprint
    assert len(rows) == 50
    assert not partial.exists()


@pytest.mark.parametrize("unit", [None, "id"])
def test_what_a_killed_process_left_is_not_passed_over_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], unit: str | None
) -> None:
    path, partial = tmp_path / "t.parquet", tmp_path / ".t.parquet.holdfast.partial"
    pl.DataFrame({"id": [1, 1, 2], "x": [1.0, 2.0, 3.0]}).write_parquet(path)
    partial.mkdir()
    (partial / "chunk.1").write_bytes(b"rows")
    assert len(open_rows(path, unit=unit, progress=True)) == (3 if unit is None else 2)
    assert "all rows were read again" in " ".join(capsys.readouterr().err.split())


def test_a_version_is_not_ignored_for_several_files(tmp_path: Path) -> None:
    pl.DataFrame({"x": [1, 2, 3]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(InvalidArgument, match="version"):
        open_rows(str(tmp_path / "*.parquet"), version=3)


def test_what_cannot_be_a_path_is_refused_in_words() -> None:
    with pytest.raises(RowSourceError, match=r"aaa\.\.\. cannot be a path: File name too long"):
        open_rows("a" * 5_000)
