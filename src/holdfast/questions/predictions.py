"""Predictions for the rows of a board: read from a file or a frame, and matched with the rows by id.

Faulty predictions are refused here, before the labels are looked at and before anything is charged: an id that is
missing, double or unknown; a value of another type, or one that is missing or not finite.
"""

import csv
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl

from holdfast.errors import InvalidArgument
from holdfast.questions.options import Form
from holdfast.rows.source import ColumnLike, FrameLike
from holdfast.schema import Type

PredictionsLike = str | Path | FrameLike | Mapping[str, ColumnLike]
SHOWN, LONGEST_SHOWN = 10, 50  # columns that a refusal names, and letters of each
MOST_COLUMNS, FEW_VALUES = 10_000, 1_000_000  # of a table that somebody sends
ID = "id"  # a name that the column of ids may always have
PREDICTION = "prediction"  # the name of the column, if the table has several besides the ids
T = TypeVar("T")
_UNREADABLE = (
    csv.Error,
    RecursionError,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    OSError,
    UnicodeDecodeError,
    ValueError,
)
_WORDS = {Type.BOOL: "true or false", Type.INT: "whole numbers", Type.FLOAT: "numbers", Type.STRING: "text"}
_DTYPES = {Type.BOOL: pl.Boolean, Type.INT: pl.Int64, Type.FLOAT: pl.Float64, Type.STRING: pl.String}


# -- reading ---------------------------------------------------------------------------------------------------------


def _csv(content: BytesIO) -> pl.DataFrame:
    first = next(csv.reader([content.readline().decode(errors="replace")], strict=True), [])
    if len(set(first)) < len(first):
        raise ValueError  # a column name occurs twice, and Polars would rename the second
    content.seek(0)
    return pl.read_csv(content, infer_schema=False)


def _lines(content: BytesIO) -> pl.DataFrame:
    return pl.read_ndjson(content, infer_schema_length=None)


READERS: dict[str, Callable[[BytesIO], pl.DataFrame]] = {
    ".csv": _csv,
    ".jsonl": _lines,
    ".ndjson": _lines,
    ".parquet": pl.read_parquet,
}


def read_table(given: PredictionsLike, name: str = "predictions") -> pl.DataFrame:
    """Return a table from a file (CSV, JSON lines, Parquet), a frame or a mapping of columns."""
    if isinstance(given, str | Path):
        return read_file(Path(given), name)
    try:
        if isinstance(given, pl.DataFrame):
            return given
        if isinstance(given, Mapping):
            return pl.DataFrame({column: pl.Series(column, values, strict=True) for column, values in given.items()})
        return _from_frame(given)
    except (TypeError, OverflowError, *_UNREADABLE):
        raise InvalidArgument(
            f"{name} must be a file, a frame or a mapping of columns of equal length and of one type each; got"
            f" {type(given).__name__}.",
            name=name,
        ) from None


def _from_frame(frame: Any) -> pl.DataFrame:
    import narwhals as nw

    table: pl.DataFrame = nw.from_native(frame, eager_only=True).to_polars()
    return table


def read_file(path: Path, name: str = "predictions") -> pl.DataFrame:
    """Return the table in a file, by the ending of its name."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InvalidArgument(f"{name} must be a file of {', '.join(READERS)}; got {path.name!r}.", name=name)
    try:
        content = path.read_bytes()
    except OSError:
        why = f"{path} cannot" if path.exists() else f"there is no file {path}"
        raise InvalidArgument(f"{name} must be a file that can be read; {why}.", name=name) from None
    return _read(reader, content, f"{path.name} cannot be read as {path.suffix[1:]}", name)


def typed(table: pl.DataFrame, given: PredictionsLike) -> pl.DataFrame:
    """Return labels with their types guessed if they are from a CSV file: whole numbers, numbers, booleans or text."""
    if not isinstance(given, str | Path) or Path(given).suffix.lower() != ".csv":
        return table
    return table.with_columns(_guessed(column) for column in table.get_columns())


def _guessed(texts: pl.Series) -> pl.Series:
    for type_ in (Type.INT, Type.FLOAT, Type.BOOL):
        with suppress(InvalidArgument):
            return _cast(texts, type_, texts.name)
    return texts


def read_text(text: str, name: str = "predictions") -> pl.DataFrame:
    """Return the table in the content of a file, CSV or JSON lines. Opens no file.

    The text may come from anybody, so it must not be a Parquet file, which can be damaged or unpack to gigabytes: a
    client reads those on its own machine, and sends the columns.
    """
    problem = f"{name} must be CSV or JSON lines with ids"
    if any(mark in text[:2] for mark in "\x00\x01"):  # compressed data, which readers would unpack
        raise InvalidArgument(f"{problem}; this is not text.", name=name)
    lines = text.lstrip()[:1] == "{"
    content = text.encode(errors="surrogatepass")
    columns, rows = _read(_size_of_lines if lines else _size_of_csv, content, problem, name)
    # A line may leave out columns that others have, and the reader fills them in: a short text would be gigabytes.
    if columns > MOST_COLUMNS or columns * rows > max(FEW_VALUES, 2 * len(content)):
        raise InvalidArgument(
            f"{problem}; {columns:,} columns for {rows:,} rows are more than were sent. Send a value of every column in"
            " every row, and no more columns than are needed.",
            name=name,
        )
    return _read(_lines if lines else _csv, content, problem, name)


def _size_of_csv(content: BytesIO) -> tuple[int, int]:
    """Return how many columns and at most how many rows a table has, which is not read."""
    return pl.read_csv(content, infer_schema=False, n_rows=0).width, content.getvalue().count(b"\n") + 1


def _size_of_lines(content: BytesIO) -> tuple[int, int]:
    """Return how many columns JSON lines have, also those of objects inside, and at most how many values in each."""
    columns: dict[tuple[int, str], int] = {}
    left: list[tuple[int, Any]] = [(0, json.loads(line)) for line in content if line.strip()]
    rows = len(left)
    while left:
        place, value = left.pop()
        if isinstance(value, dict):
            left += ((columns.setdefault((place, key), len(columns) + 1), one) for key, one in value.items())
        elif isinstance(value, list):
            rows += len(value)
            left += ((place, one) for one in value)
    return len(columns), rows


def _read(reader: Callable[[BytesIO], T], content: bytes, problem: str, name: str) -> T:
    try:
        return reader(BytesIO(content))
    except _UNREADABLE:
        raise InvalidArgument(f"{problem}. Give it a column of ids and one of predictions.", name=name) from None


@dataclass(frozen=True)
class PredictionsForm(Form):
    """A table: a mapping of columns in JSON, the content of a file in a form, its name on a command line."""

    example: str = "id,prediction\n1,true\n2,false"

    def parse(self, name: str, text: str) -> pl.DataFrame:
        """Read the content of a file. It is never the name of a file, which would be one of the server's."""
        return read_text(text, name)

    def argument(self, name: str, text: str) -> Path:
        """Return the path of a file of the caller's own."""
        return Path(text)

    def from_json(self, value: Any) -> pl.DataFrame:
        """Read columns by name, or the content of a file; never a file of the server."""
        if isinstance(value, str):
            return read_text(value)
        for column, values in value.items() if isinstance(value, dict) else ():
            # Every object would have the fields of all others: a short request would be gigabytes.
            if isinstance(values, list) and any(isinstance(one, dict | list) for one in values):
                raise InvalidArgument(
                    f"predictions must be plain values: text, numbers, true or false; {column[:LONGEST_SHOWN]!r} has"
                    " lists or objects. Leave them out.",
                    name="predictions",
                )
        return read_table(value)

    def to_json(self, name: str, value: Any) -> dict[str, list[Any]]:
        """Write columns by name."""
        table = read_table(value, name)
        return {column: [None if x != x else x for x in table[column].to_list()] for column in table.columns}


# -- matching --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Matched:
    """Predictions in the order of sorted ids: `values` for the rows that are scored here, `every` for all."""

    values: pl.DataFrame
    every: pl.DataFrame

    def digest(self, key: bytes) -> str:
        """Return a name for the submission, the same for the same predictions.

        It is made from all of them, so that it does not reveal which ids are scored here, and with a secret key, so
        that nobody can test guesses at another team's predictions.
        """
        content = json.dumps([column.to_list() for column in self.every.get_columns()]).encode()
        return hmac.new(key, content, sha256).hexdigest()


def read_label(text: object, type_: Type) -> Any:
    """Return a label of this type, read from its text."""
    return _cast(pl.Series([str(text)]), type_, "labels")[0]


def match(
    table: pl.DataFrame,
    ids: pl.Series,
    *,
    target: str | None,
    type_: Type,
    classes: Sequence[str] = (),
    others: pl.Series | None = None,
) -> Matched:
    """Return the predictions of a table, one for each of the sorted `ids`, or refuse them.

    The table has a column of ids, with the same name as on the board, and one of predictions, which may have the name
    of the labels' column (`target`), or a column for each of `classes`. `others` are sorted ids of rows that are not
    scored here, but need predictions, too.
    """
    if others is not None and others.len():
        every = pl.concat([ids, others.alias(ids.name)]).sort()
        whole = match(table, every, target=target, type_=type_, classes=classes)
        return Matched(whole.values.filter(every.is_in(ids.implode())), whole.values)
    if ids.name not in table.columns and ID in table.columns:  # as evaluation files call it
        table = table.rename({ID: ids.name})
    if ids.name not in table.columns:
        raise _wrong(f"must have a column {ids.name!r} of ids; it has: {named_columns(table.columns)}")
    columns = _class_columns(table, classes) if classes else [_prediction_column(table, ids.name, target)]
    requested = Type.STRING if ids.dtype == pl.String else Type.INT
    given = _cast(table[ids.name], requested, f"ids ({ids.name})")
    for column in columns:
        if table[column].null_count():
            lacking = _some(given.filter(table[column].is_null()), "has none", "have none")
            raise _wrong(f"must be complete, with a value of {column!r} for every id; {lacking}")
    values = pl.DataFrame([_cast(table[column], type_, f"predictions ({column})") for column in columns])
    if not _same(given, ids):  # most tables are in the order of the board
        order = given.arg_sort()
        if not _same(given[order], ids):
            raise _unmatched(given, ids)
        values = values[order]
    if type_ is Type.FLOAT and not (finite := np.isfinite(values.to_numpy()).all(axis=1)).all():
        raise _wrong(f"must be finite numbers; {_some(ids.filter(pl.Series(~finite)), 'is not', 'are not')}")
    return Matched(values, values)


def require_listed(predictions: pl.Series, classes: Sequence[str]) -> None:
    """Refuse predictions that are not among the declared classes: spelled in another way, they could never be right."""
    strange = predictions.filter(~predictions.is_in(classes))
    if strange.len():
        count = f"{strange.len():,} {'is' if strange.len() == 1 else 'are'} not"
        shown = ", ".join(repr(text[:LONGEST_SHOWN]) for text in strange.unique(maintain_order=True).head(3).to_list())
        raise _wrong(f"must be among the classes of the board ({_named(classes)}); {count}, such as {shown}")


def _same(given: pl.Series, ids: pl.Series) -> bool:
    return given.len() == ids.len() and bool((given == ids).all())


def _class_columns(table: pl.DataFrame, classes: Sequence[str]) -> list[str]:
    missing = [name for name in classes if name not in table.columns]
    if missing:
        raise _wrong(f"must have a column for each class; there is none for {', '.join(missing[:5])}")
    return list(classes)


def _prediction_column(table: pl.DataFrame, id: str, target: str | None) -> str:
    others = [column for column in table.columns if column != id]
    for name in (PREDICTION, target):
        if name in others:
            return str(name)
    if len(others) != 1:
        raise _wrong(f"must have a column {PREDICTION!r} beside {id!r}; it has: {named_columns(table.columns)}")
    return others[0]


def _cast(values: pl.Series, type_: Type, what: str) -> pl.Series:
    """Return the values as this type: text is parsed, anything else must have the type already."""
    own, requested = values.dtype, _DTYPES[type_]
    if own.is_(pl.Categorical) or isinstance(own, pl.Enum):
        values, own = values.cast(pl.String), pl.String()
    fits = own == requested or (own.is_integer() and type_ is Type.INT) or (own.is_numeric() and type_ is Type.FLOAT)
    if not fits and own != pl.String and own != pl.Null:
        raise _wrong(f"must be {_WORDS[type_]} in its {what}; it has {own}")
    missing = values.null_count()
    if missing:
        raise _wrong(f"must be complete; {missing:,} of its {what} {'is' if missing == 1 else 'are'} missing")
    if own == pl.String and type_ is Type.BOOL:
        words = values.str.to_lowercase()
        read = (words == "true").cast(pl.Boolean).set(~words.is_in(["true", "false"]), None)
    else:
        read = values.cast(requested, strict=False)
    if strange := read.null_count():
        raise _wrong(f"must be {_WORDS[type_]} in its {what}; {strange:,} {'is' if strange == 1 else 'are'} not")
    return read


def _unmatched(given: pl.Series, ids: pl.Series) -> InvalidArgument:
    double = given.filter(given.is_duplicated()).unique()
    if double.len():
        return _wrong(f"must have every id once; {_some(double, 'is there twice', 'are there twice or more')}")
    unknown = given.filter(~given.is_in(ids.implode()))
    if unknown.len():
        return _wrong(f"must have the ids of the board; {_some(unknown, 'is not one', 'are not among them')}")
    missing = ids.filter(~ids.is_in(given.implode()))
    return _wrong(f"must have a row for every id of the board; {_some(missing, 'is missing', 'are missing')}")


def _some(ids: pl.Series, one: str, many: str) -> str:
    """Name some of the ids that a message is about: all of them are public, or the caller's own."""
    shown = ", ".join(repr(x if isinstance(x, int) else x[:LONGEST_SHOWN]) for x in ids.head(3).to_list())
    return f"{shown} {one}" if ids.len() == 1 else f"{ids.len():,} {many}, such as {shown}"


def named_columns(columns: Sequence[str]) -> str:
    """Return the names of a table's columns; of a single one, whether it looks like several."""
    between = next((each for each in (";", "\t", "|") if len(columns) == 1 and each in columns[0]), None)
    return _named(columns) + ("" if between is None else f", one column; write commas in place of {between!r}")


def _named(columns: Sequence[str]) -> str:
    more = f" and {len(columns) - SHOWN:,} more" if len(columns) > SHOWN else ""
    return (", ".join(name[:LONGEST_SHOWN] for name in columns[:SHOWN]) or "none") + more


def _wrong(rule: str) -> InvalidArgument:
    return InvalidArgument(f"predictions {rule}. Nothing was scored or charged.", name="predictions")
