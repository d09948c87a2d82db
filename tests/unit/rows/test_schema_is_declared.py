"""What analysts see and pay is declared, or comes from the file's header; what the sample shows changes nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.errors import InvalidArgument, RowSourceError, UnknownName
from holdfast.queries.build import build_mean
from holdfast.rows.open import open_rows
from holdfast.service.settings import load

ROWS = 20_000


def table(*, missing: bool) -> pl.DataFrame:
    """A table in which every column has missing values, or none has."""
    rng = np.random.default_rng(3)
    values = {
        "real": pl.Series(rng.random(ROWS)),
        "whole": pl.Series(rng.integers(0, 9, ROWS)),
        "flag": pl.Series(rng.random(ROWS) < 0.5),
        "word": pl.Series(np.array(["a", "b"])[rng.integers(0, 2, ROWS)].tolist()),
        "day": pl.Series(rng.integers(0, 9_000, ROWS), dtype=pl.Int32).cast(pl.Date),
    }
    frame = pl.DataFrame(values)
    return _with_missing(frame) if missing else frame


def _with_missing(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.when(pl.int_range(pl.len()) % 7 > 0).then(pl.all()))


def parquet(frame: pl.DataFrame, scratch: Path) -> Any:
    frame.write_parquet(scratch / "t.parquet")
    return scratch / "t.parquet"


def arrow(frame: pl.DataFrame, scratch: Path) -> Any:
    frame.write_ipc(scratch / "t.arrow")
    return scratch / "t.arrow"


def csv(frame: pl.DataFrame, scratch: Path) -> Any:
    frame.write_csv(scratch / "t.csv")
    return scratch / "t.csv"


FORMS: list[Callable[[pl.DataFrame, Path], Any]] = [
    lambda frame, _: frame,
    lambda frame, _: frame.to_arrow(),
    lambda frame, _: {name: frame[name].to_list() for name in frame.columns},
    parquet,
    arrow,
    csv,
]
NAMES = ["frame", "arrow table", "lists", "parquet", "arrow", "csv"]


def seen(data: Any) -> dict[str, Any]:
    """Return everything that an analyst is shown or charged before asking."""
    session = hf.Session(data, queries=100, guarantee="information", seed=1)
    questions: list[tuple[str, dict[str, Any]]] = [
        ("real", {"within": (0, 1)}),
        ("whole", {"within": (0, 9)}),
        ("real + whole", {"within": (0, 9)}),
        ("flag", {}),
        ("word = 'a'", {}),
        ("day > DATE '1980-01-01'", {}),
        ("real", {"within": (0, 1), "kind": "quantile", "q": 0.5}),
        ("word", {"kind": "histogram", "categories": ["a", "b"]}),
    ]
    prices = [session.price(query, **options).to_dict() for query, options in questions]
    identities = [session.prepare(query, **options).identity for query, options in questions]
    refused = []
    for margin in (0.1, 0.2):
        with pytest.raises(InvalidArgument) as error:
            session.mean("real", within=(0, 1), margin=margin)
        refused.append(str(error.value))
    made_up = [session.dry_run(query, **options).to_dict() for query, options in questions]
    session.close()
    return {
        "schema": session.schema,
        "printed": repr(session._rows),
        "prices": prices,
        "identities": identities,
        "refused": refused,
        "made up": made_up,
    }


@pytest.mark.parametrize("form", FORMS, ids=NAMES)
def test_nothing_seen_or_charged_depends_on_missing_values_of_the_sample(
    form: Callable[[pl.DataFrame, Path], Any], tmp_path: Path
) -> None:
    for name in ("some", "none"):
        (tmp_path / name).mkdir()
    some = seen(form(table(missing=True), tmp_path / "some"))
    none = seen(form(table(missing=False), tmp_path / "none"))
    assert some == none
    assert all(column.nullable for column in some["schema"])


def test_a_column_declared_complete_costs_one_answer_and_the_price_says_so_before() -> None:
    frame = table(missing=False)
    for complete, answers in (((), 2), (("real",), 1)):
        session = hf.Session(frame.head(-answers), queries=100, complete=complete)  # other rows, another budget
        price = session.price("real", within=(0, 1))
        assert price.answers == answers
        assert ("declared complete" in str(price)) == (answers == 2)
        answer = session.mean("real", within=(0, 1))
        assert answer.low < 0.5 < answer.high


@pytest.mark.parametrize("form", FORMS, ids=NAMES)
@pytest.mark.parametrize("column", ["real", "word"])
def test_a_column_that_has_missing_values_cannot_be_declared_complete(
    form: Callable[[pl.DataFrame, Path], Any], column: str, tmp_path: Path
) -> None:
    data = form(table(missing=True), tmp_path)
    refusal = f"complete must name columns without missing values; '{column}' has some"
    for _ in range(2):  # while it is ingested, and from the folder if there is one
        with pytest.raises(InvalidArgument, match=refusal):
            open_rows(data, complete=[column])
        open_rows(data)


def test_nan_is_missing_too(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [1.0, float("nan")]})
    for data in (frame, {"x": np.array([1.0, np.nan])}, parquet(frame, tmp_path)):
        with pytest.raises(InvalidArgument, match="complete must name"):
            open_rows(data, complete=["x"])


def test_a_folder_remembers_what_was_declared(tmp_path: Path) -> None:
    path = parquet(table(missing=False), tmp_path)
    open_rows(path)
    assert [column.name for column in open_rows(path, complete=["real"]).schema if not column.nullable] == ["real"]
    for again in (path, tmp_path / "t.parquet.holdfast"):
        assert not open_rows(again).schema["real"].nullable
    both = open_rows(path, complete=["word"]).schema
    assert [column.name for column in both if not column.nullable] == ["real", "word"]


def test_a_folder_that_cannot_be_written_takes_a_declaration_for_this_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = parquet(table(missing=False), tmp_path)
    open_rows(path)
    from holdfast.rows.disk.folder import Manifest

    def read_only(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Manifest, "write", read_only)
    assert not open_rows(path, complete=["real"]).schema["real"].nullable
    assert open_rows(path).schema["real"].nullable


def test_unknown_columns_and_odd_declarations_are_refused(tmp_path: Path) -> None:
    frame = table(missing=False)
    for data in (frame, parquet(frame, tmp_path)):
        with pytest.raises(UnknownName, match="No column 'reel'"):
            open_rows(data, complete=["reel"])
        with pytest.raises(InvalidArgument, match="complete must be a list of column names"):
            open_rows(data, complete="real")
    with pytest.raises(InvalidArgument, match="complete must be left out for a row source"):
        hf.Session(open_rows(frame), complete=["real"])


def test_the_header_of_a_file_may_rule_out_missing_values(tmp_path: Path) -> None:
    fields = [
        pa.field("whole", pa.int64(), nullable=False),
        pa.field("real", pa.float64(), nullable=False),  # NaN is not ruled out
        pa.field("word", pa.string(), nullable=False),
        pa.field("flag", pa.bool_(), nullable=True),
    ]
    content = pa.table({"whole": [1], "real": [1.5], "word": ["a"], "flag": [True]}, schema=pa.schema(fields))
    pq.write_table(content, tmp_path / "t.parquet")
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, pa.ipc.new_file(sink, content.schema) as writer:
        writer.write_table(content)
    for data in (content, tmp_path / "t.parquet", tmp_path / "t.arrow", tmp_path / "t.parquet.holdfast"):
        assert [column.name for column in open_rows(data).schema if not column.nullable] == ["whole", "word"]


def test_a_file_that_contradicts_its_header_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("whole", pa.int64(), nullable=False)])
    content = pa.Table.from_arrays([pa.array([1, None])], schema=schema)
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(content)
    for data in (content, tmp_path / "t.arrow"):
        with pytest.raises(RowSourceError, match="rules out missing values of 'whole' but has some"):
            open_rows(data)


def test_types_of_numpy_rule_out_missing_values() -> None:
    arrays = {"i": np.arange(3), "b": np.array([True, False, True]), "f": np.arange(3.0), "t": np.array(list("abc"))}
    for data in (arrays, pd.DataFrame({name: arrays[name] for name in "ibf"})):
        expected = [name for name in data if name in "ibt"]
        assert [column.name for column in open_rows(data).schema if not column.nullable] == expected


def test_direct_evaluation_gives_what_a_frame_gives_whether_or_not_columns_are_declared() -> None:
    frame = table(missing=False)
    rng = np.random.default_rng
    counts = [
        open_rows(frame, complete=complete)
        .tally(build_mean(text, open_rows(frame, complete=complete).schema), draws=1_000, mass=0.0, rng=rng(4))
        .tolist()
        for complete in ([], ["real", "whole"])
        for text in ("NOT (real > 0.5 AND whole < 5)",)
    ]
    assert counts[0] == counts[1]


def test_settings_of_a_server_declare_columns_complete(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text('[datasets.t]\npath = "t.parquet"\ncomplete = ["real"]\n')
    declared = load({}, config=tmp_path / "server.toml").datasets["t"]
    assert list(declared.complete) == ["real"]
