"""JSON lines: a record in each line."""

import codecs
import json
from collections.abc import Mapping, Sequence
from math import isinf
from pathlib import Path
from typing import Any

import polars as pl

from holdfast.errors import RowSourceError
from holdfast.rows.scans.inference import LOOK_AHEAD, FirstRows, Undeclared
from holdfast.rows.scans.texts import BYTE_ORDER, READ_AS, Dialect, unfit_value

_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")  # how it begins
_NO_RECORD = (
    'it is no record of JSON. Write one in each line, such as {"id": 1, "x": null}, without brackets or commas around'
    " them; NaN and Infinity are not JSON."
)


class JsonLines:
    """Files of JSON, a record in each line; columns are those of the first records, and those that are declared."""

    quote = b""  # no line ends inside a text

    def __init__(
        self, where: str, files: Sequence[Path], sources: Sequence[Path | str], dialect: Dialect, unit: str | None
    ) -> None:
        self._where, self._sources, self.on_disk, self._dialect = where, list(sources), files, dialect
        self._unit = unit

    def fault(self) -> str | None:
        """Return a message about the first line that is no record, or that there are none."""
        found = False
        if not all(map(is_text, self.on_disk)):
            return None
        for path in self.on_disk:
            with path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    found = found or bool(line.strip())
                    fault = _fault_of_record(line, first=number == 1)
                    if fault is not None:
                        return f"{path}, line {number}: {fault}"
        return None if found or not self.on_disk else f"{self._where} is empty; holdfast needs at least one row."

    def lazy(self) -> pl.LazyFrame:
        """Scan the files."""
        found = self._found()
        declared = {name: READ_AS[type_] for name, type_ in self._dialect.types}
        texts = self._read(dict.fromkeys(found, pl.String())).head(LOOK_AHEAD).collect(engine="streaming")
        first = FirstRows(self._where, texts, lambda types: self._read(types).head(LOOK_AHEAD), self._unit)
        try:
            inferred = first.types_of_records(found, declared)
        except Undeclared as refusal:
            raise RowSourceError(refusal.advice.message) from None
        self._types = {name: inferred.get(name, dtype) for name, dtype in found.items()} | declared
        return self._scan(schema=self._types)

    def _found(self) -> dict[str, pl.DataType]:
        """Return the columns of the first rows, of all files that have some of them: Polars looks only at one."""
        found: dict[str, pl.DataType] = {}
        left = LOOK_AHEAD
        empty = [
            path for path in self.on_disk if path.stat().st_size == 0
        ]  # Polars refuses them here, not beside others
        for source in [each for each in self._sources if each not in empty] or self._sources:
            scan = pl.scan_ndjson(source, infer_schema_length=left)
            try:
                columns: Mapping[str, pl.DataType] = scan.collect_schema()
            except pl.exceptions.SchemaError:  # Polars has no type for numbers and lists together
                columns = _columns_of(source, left)
                scan = pl.scan_ndjson(source, schema=columns)
            for name, dtype in columns.items():
                before = found.setdefault(name, dtype)
                if before == pl.Null() or dtype == pl.String():
                    found[name] = dtype
            left -= scan.head(left).select(pl.len()).collect(engine="streaming").item()
            if left <= 0:
                break
        return found

    def piece(self, lines: bytes, first: bool) -> pl.LazyFrame:
        """Scan some lines, from the beginning of a file or not."""
        return pl.scan_ndjson(lines, schema=self._types)

    def unfit(self, problem: BaseException) -> RowSourceError | None:
        """Return the error for a value that does not fit the type of its column, if that was the problem."""
        counts = [
            self._read(types).select(pl.all().null_count()).collect(engine="streaming").row(0)
            for types in (dict.fromkeys(self._types, pl.String()), self._types)
        ]
        column = next((name for name, text, value in zip(self._types, *counts, strict=True) if value > text), None)
        if column is None:
            return None
        return unfit_value(self._where, self._types, column, self._read, dict(self._dialect.types))

    def _read(self, types: Mapping[str, pl.DataType]) -> pl.LazyFrame:
        """Scan with these types; a value that does not fit is missing."""
        return self._scan(schema=types, ignore_errors=True)

    def _scan(self, **options: Any) -> pl.LazyFrame:
        return pl.scan_ndjson(self._sources, **options)  # type: ignore[arg-type]


def is_text(path: Path) -> bool:
    """Whether a file is not compressed."""
    with path.open("rb") as file:
        return not file.read(4).startswith(_COMPRESSED)


def _columns_of(source: Any, records: int) -> dict[str, pl.DataType]:
    """Return the columns of the first records, some of which hold lists or records beside other values.

    Of these types it only matters whether there are values, and whether some are nested: the rest is inferred.
    """
    kinds: dict[str, set[type]] = {}
    lines = pl.scan_lines(source).filter(pl.col("line").str.strip_chars() != "").head(records)
    for line in lines.collect(engine="streaming")["line"]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise OSError from None  # no JSON: the caller says so, with the line at fault
        if not isinstance(record, dict):
            raise OSError
        for name, value in record.items():
            kinds.setdefault(name, set()).add(type(value))
    return {name: _type_of_kinds(each - {type(None)}) for name, each in kinds.items()}


def _type_of_kinds(kinds: set[type]) -> pl.DataType:
    if not kinds:
        return pl.Null()
    return pl.Struct({}) if kinds & {dict, list} else pl.String()


def _fault_of_record(line: bytes, *, first: bool) -> str | None:
    """Return what is wrong with a line of JSON; None if nothing is."""
    if not line.strip():
        return None
    if line.startswith(codecs.BOM_UTF8):
        return "it begins with a byte-order mark, which JSON has not. Save the file as UTF-8 without one."
    if first and line.startswith(BYTE_ORDER):
        return "it begins as UTF-16 does, and JSON is UTF-8. Save the file in that encoding."
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return "its text is not utf-8. Save the file in that encoding."
    try:
        record = json.loads(line, parse_int=_whole, parse_float=_number, parse_constant=_not_json)
    except _BeyondRange:
        return (
            "a number is too large to be read. Integers of more than 128 bits, and numbers beyond 1.8e308, must be in"
            ' quotes: {"id": "1"}.'
        )
    except (ValueError, RecursionError):
        return _NO_RECORD
    return None if isinstance(record, dict) else _NO_RECORD


class _BeyondRange(Exception):
    """A number that Polars cannot read."""


def _whole(text: str) -> int:
    if len(text) > 40 or not -(1 << 127) <= int(text) < 1 << 128:
        raise _BeyondRange
    return int(text)


def _number(text: str) -> float:
    if isinf(number := float(text)):
        raise _BeyondRange
    return number


def _not_json(text: str) -> float:
    raise ValueError(text)
