"""Files: Parquet, CSV, Arrow, JSON lines; one, many, a folder of partitions, or an object store.

A CSV file does not state the types of its columns: they are declared or inferred from its first rows, and a later value
that does not fit is refused, so that the type of a column does not depend on one row among millions.
"""

import ast
import codecs
import csv
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from glob import glob, has_magic
from pathlib import Path
from typing import Any, Self

import polars as pl

from holdfast import check
from holdfast.errors import InvalidArgument, RowSourceError, UnknownName
from holdfast.rows import batches
from holdfast.rows.columns import keeps
from holdfast.rows.scans import scan
from holdfast.rows.scans.header import required_columns, row_groups
from holdfast.rows.scans.objects import REMOTE, listed
from holdfast.rows.scans.row_groups import RowGroups
from holdfast.rows.scans.scan import UNREADABLE, LazyScan, Origin, state_of
from holdfast.schema import Type

SHEETS = (".xlsx", ".xls", ".ods")  # not read here: the error suggests pandas or Polars
FORMATS = {
    ".parquet": "Parquet",
    ".csv": "CSV",
    ".tsv": "CSV",
    ".arrow": "Arrow",
    ".ipc": "Arrow",
    ".feather": "Arrow",
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
}
_LOOK_AHEAD = 10_000
_LONG = 200  # bytes
# Else Polars reads hundreds of megabytes ahead; for its other formats it has no such setting, or needs none.
_CSV_MEMORY = {"POLARS_CSV_CHUNK_SIZE": str(4 << 20), "POLARS_CSV_CHUNK_PREFETCH_LIMIT": "2"}
# How the values of a declared type are read from CSV text.
_READ_AS: dict[Type, pl.DataType] = {
    Type.BOOL: pl.Boolean(),
    Type.INT: pl.Int64(),
    Type.FLOAT: pl.Float64(),
    Type.STRING: pl.String(),
    Type.DATE: pl.Date(),
    Type.DATETIME: pl.Datetime("us"),
}
_BYTE_ORDER = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # how UTF-16 begins, which spreadsheets write
_COLUMN = re.compile(r" at column '(.*)' \(column number", re.DOTALL)  # in Polars' error message about a value
_SEPARATORS = (";", "\t", "|", ",", ":")
_UTF8 = ("utf-8", "utf-8-sig")
_MARKERS = ["NA", "N/A", "n/a", "na", "NULL", "Null", "null", "None", "NaN", "nan", "missing", "?", ".", "-"]
_THOUSANDS = r"^[-+]?\d{1,3}(,\d{3})+(\.\d*)?$"
# Dates that do not begin with a year of four digits: Polars takes their first number for the day, and 24 for a year.
_YEAR_LAST = r"^\s*(?P<first>\d{1,2})[-./]\d{1,2}[-./](?P<year>\d+)"
_SLASHES = r"^\s*\d{1,2}/\d{1,2}/(\d{2}|\d{4})\b"


class NumbersAsText(UserWarning):
    """Numbers of a CSV file are read as texts: they have commas or spaces, or missing ones are a word such as NA."""


class UnclearDates(UserWarning):
    """Dates of a CSV file do not tell the day from the month, or have years of two digits: they are read as texts."""


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written; `types` are the declared types; the others are inferred from the first rows."""

    separator: str | None = None
    encoding: str = "utf-8"
    null_values: tuple[str, ...] = ()
    decimal: str = "."
    types: tuple[tuple[str, Type], ...] = ()

    def __post_init__(self) -> None:
        if self.separator is not None and len(self.separator.encode()) != 1:
            raise InvalidArgument(
                f"separator must be one character, such as ';' or a tab; got {self.separator!r}.", name="separator"
            )
        if self.decimal not in (".", ","):
            raise InvalidArgument(f"decimal must be '.' or ','; got {self.decimal!r}.", name="decimal")
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise InvalidArgument(
                f"encoding must be one that Python knows, such as 'latin-1'; got {self.encoding!r}.", name="encoding"
            ) from None

    @property
    def how(self) -> str:
        """The given options without the types, as text for a folder to remember."""
        options = replace(self, types=())
        return "" if options == Dialect() else repr(options)

    @property
    def declared(self) -> str:
        """The declared types, as text for a folder to remember."""
        return json.dumps(dict(self.types)) if self.types else ""

    @classmethod
    def remembered(cls, origin: Origin) -> Self:
        """Return the options that a folder remembers, by `how` and `declared`."""
        call = ast.parse(origin.how or "Dialect()", mode="eval").body
        options = {str(each.arg): ast.literal_eval(each.value) for each in getattr(call, "keywords", ())}
        types = json.loads(origin.types or "{}")
        return cls(**{**options, "types": tuple((name, Type(type_)) for name, type_ in types.items())})

    @property
    def given(self) -> str | None:
        """The first option that was given."""
        names = ("types", "separator", "encoding", "null_values", "decimal")
        return next((name for name in names if getattr(self, name) != getattr(Dialect(), name)), None)


class FileScan(LazyScan):
    """Files of one format, in order of their names."""

    def __init__(self, where: str | Path, files: Sequence[Path], dialect: Dialect, *, root: Path | None = None) -> None:
        self.where, self.files, self._dialect, self._root = str(where), files, dialect, root
        self._given = dialect  # without what is recalled
        self._sources: Sequence[Path | str] = files
        self._copies: list[Any] = []
        first = str(where) if not files else files[0].name
        endings = {Path(name).suffix.lower() for name in ([str(where)] if not files else map(str, files))}
        if len(endings) > 1:
            raise RowSourceError(f"{where} has files of several kinds: {', '.join(sorted(endings))}; name one of them.")
        self.format = FORMATS[endings.pop()]
        self.path = root or (files[0] if len(files) == 1 else None)
        self.name = Path(root or first).stem if root or len(files) == 1 else _name_of(str(where))
        self.skips_rows = self.format != "JSON lines"  # there Polars counts lines, even empty ones
        given = dialect.given
        if given is not None and self.format != "CSV":
            raise InvalidArgument(f"{given} must be left out: {Path(first).name} has its own types.", name=given)

    def origin(self) -> Origin:
        """Return the current state from names, sizes and times."""
        state = state_of(self._named(), "st_size", "st_mtime_ns")
        return Origin(Path(self.where).name, state, self._dialect.how, self._dialect.declared)

    def recall(self, origin: Origin) -> None:
        """Read the same CSV files as before: if no types are given, or no other options, they are as remembered."""
        if self.format != "CSV" or origin.name != self.origin().name:
            return
        before = Dialect.remembered(origin)
        options = self._given if self._given.how else before
        self._dialect = replace(options, types=self._given.types or before.types)

    def moment(self) -> str:
        """Also include inodes, the order of the files, and the times of any change to them.

        Unlike `origin`, this changes when the files are moved or copied.
        """
        numbered = {f"{number} {self._label(path)}": path for number, path in enumerate(self.files)}
        return state_of(numbered, "st_size", "st_mtime_ns", "st_ctime_ns", "st_dev", "st_ino")

    def _named(self) -> dict[str, Path]:
        return {self._label(path): path for path in self.files}

    def _label(self, path: Path) -> str:
        base = self._root or self.files[0].parent
        return str(path.relative_to(base) if path.is_relative_to(base) else path)

    def open(self) -> None:
        """Read the schema, and note which types were inferred."""
        super().open()
        if self.format in ("CSV", "JSON lines"):
            types = ", ".join(f"{name} {storage.type}" for name, storage in self.columns.items())
            self.note = f"Types, as declared or from the first {_LOOK_AHEAD:,} rows: {types}"

    def agrees(self, origin: Origin, types: Mapping[str, Type]) -> bool:
        """Whether a folder holds these files in their current state; options left out count as remembered."""
        now = self.origin()
        return (
            (origin.name, origin.state) == (now.name, now.state)
            and now.how in ("", origin.how)
            and types == {**types, **dict(self._dialect.types)}
        )

    def required(self) -> Collection[str]:
        """Return the columns for which the headers of all files rule out missing values."""
        found = [required_columns(path, self.format) for path in self.files]
        return set(frozenset.intersection(*found)) if found else set()

    def lazy(self) -> pl.LazyFrame:
        """Scan in the format of the files."""
        paths: Any = list(self._sources)
        if self.format == "Parquet":
            return pl.scan_parquet(paths, hive_partitioning=self._partitioned, glob=False)
        if self.format == "Arrow":
            return pl.scan_ipc(paths, hive_partitioning=self._partitioned, glob=False)
        if self.format == "JSON lines":
            return pl.scan_ndjson(paths, infer_schema_length=_LOOK_AHEAD)
        return self._open_csv()

    def reading(self, after: int, rows: int | None) -> Iterator[pl.DataFrame]:
        """Read Parquet files with large row groups page by page, everything else by Polars."""
        if self.format == "Parquet" and self.files:
            large = RowGroups.of(self.files, self.frame.collect_schema())
            if large is not None:
                return self.sound(large.read(after))
        return super().reading(after, rows)

    def at_once(self, rows: int | None) -> int:
        """Return how many rows with texts Polars may hand over at once.

        Lines of a text file are as long as values, and the footer of a Parquet file tells how long rows are.
        """
        few = super().at_once(rows)
        if self.format == "Parquet" and self.files:
            groups = [row_groups(path) for path in self.files]
            longest = max((size / count for each in groups for size, count in each or () if count), default=1.0)
            return few if None in groups else max(few, min(scan.BATCH, int(batches.BATCH_BYTES / longest)))
        if self.format not in ("CSV", "JSON lines") or not self.files or not rows:
            return few
        size = sum(path.stat().st_size for path in self.files)
        return max(1, min(scan.BATCH, rows * (batches.BATCH_BYTES // 4) // max(1, size)))

    @property
    def _partitioned(self) -> bool:
        """Whether names of folders, such as year=2024, are columns."""
        return self._root is not None

    # -- CSV ------------------------------------------------------------------------------------------------------

    def _open_csv(self) -> pl.LazyFrame:
        for variable, value in _CSV_MEMORY.items():
            os.environ.setdefault(variable, value)
        sources = self._in_utf8()
        separator = self._dialect.separator or ("\t" if self.where.lower().endswith(".tsv") else ",")
        if separator == self._dialect.decimal:
            raise InvalidArgument(
                "decimal must not be what separates the values. If that is ';', say so: separator=';'.", name="decimal"
            )
        self._csv_options: dict[str, Any] = {
            "separator": separator,
            "decimal_comma": self._dialect.decimal == ",",
            "null_values": list(self._dialect.null_values) or None,
            "glob": False,
        }
        self._csv_sources: Any = sources
        header = pl.read_csv(sources[0], has_header=False, n_rows=1, infer_schema=False, **self._csv_options)
        names = ["" if name is None else name for name in header.row(0)]
        self._refuse_header(names)
        return self._csv(self._typed())

    def _in_utf8(self) -> list[Any]:
        """Return the files, or copies of them in UTF-8."""
        if self._dialect.encoding.lower() in _UTF8 or not self.files:
            return list(self._sources)
        copies = []
        for path in self.files:
            copy = tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="", suffix=".csv")  # noqa: SIM115
            self._copies.append(copy)  # keep it until the scan is deleted
            with path.open(encoding=self._dialect.encoding, newline="") as file:
                while text := file.read(1 << 20):
                    copy.write(text)
            copy.flush()
            copies.append(Path(copy.name))
        return copies

    def _csv(self, types: Mapping[str, pl.DataType], **options: Any) -> pl.LazyFrame:
        return pl.scan_csv(self._csv_sources, schema=types, **self._csv_options, **options)

    def _typed(self) -> dict[str, pl.DataType]:
        """Return the type of every column, from the declaration or from the first rows."""
        inferred = pl.scan_csv(
            self._csv_sources, infer_schema_length=_LOOK_AHEAD, try_parse_dates=True, **self._csv_options
        )
        types = dict(inferred.collect_schema())
        for unknown in dict(self._given.types).keys() - types.keys():
            known = Path(self.where).name
            raise UnknownName(f"types must name columns of {known}; it has no {unknown!r}.", name=unknown)
        declared = {name: type_ for name, type_ in self._dialect.types if name in types}
        types |= {name: _READ_AS[type_] for name, type_ in declared.items()}
        types |= {name: pl.String() for name, dtype in types.items() if not keeps(dtype)}
        first = self._csv(dict.fromkeys(types, pl.String())).head(_LOOK_AHEAD)
        texts = first.select(_short(place) for place in range(len(types))).collect(engine="streaming")
        values = self._csv(types, ignore_errors=True).head(_LOOK_AHEAD).null_count().collect(engine="streaming")
        unfit = {name for name in types if values[name].item() > texts[name].null_count()}
        types |= dict.fromkeys(unfit - declared.keys(), pl.String())  # every value fits text
        types |= dict.fromkeys(self._unclear_dates(types, texts), pl.String())
        undeclared = [name for name, dtype in types.items() if dtype == pl.String and name not in declared]
        self._warn_of_texts([texts[name] for name in undeclared])
        return types

    def _unclear_dates(self, types: Mapping[str, pl.DataType], texts: pl.DataFrame) -> list[str]:
        """Return the columns whose dates could be others than those that would be read; say so, and what to do."""
        declared = dict(self._dialect.types)
        unclear: list[str] = []
        day_first: list[str] = []
        as_text: list[str] = []
        for name, dtype in types.items():
            present = texts[name].alias("").drop_nulls()  # as a name may be a pattern to Polars
            if dtype == pl.String and name not in declared and len(present) and present.str.contains(_SLASHES).all():
                as_text.append(name)
            year_last = present.str.extract_groups(_YEAR_LAST).struct.unnest().drop_nulls()
            if not dtype.is_temporal() or year_last.is_empty():
                continue
            short = (year_last["year"].str.len_chars() < 4).any()
            if short and name in declared:
                raise RowSourceError(
                    f"{self.where}: years of {name!r} have two digits, which do not say the century. Write dates as"
                    f" 2024-12-31, or read them as text: types={{{name!r}: 'text'}}."
                )
            if short or (year_last["first"].cast(pl.Int64) <= 12).all():
                (day_first if name in declared else unclear).append(name)
        if unclear or as_text:
            type_ = "date" if unclear and types[unclear[0]] == pl.Date else "timestamp"
            enough = f"; if the day comes first, this is enough: types={{{unclear[0]!r}: {type_!r}}}" if unclear else ""
            check.warn(
                f"{self.where}: dates are read as text in {', '.join(map(repr, [*unclear, *as_text]))}, as it is not"
                " clear which number is the day, which the month and which the year. Write them as"
                f" 2024-12-31{enough}.",
                UnclearDates,
            )
        if day_first:
            check.warn(
                f"{self.where}: in {', '.join(map(repr, day_first))}, the day is taken to come first. If the month"
                " does, write dates as 2024-12-31.",
                UnclearDates,
            )
        return unclear

    def _warn_of_texts(self, texts: Sequence[pl.Series]) -> None:
        """Warn of columns that are text only because of how numbers, or missing values, are written."""
        found: dict[str, list[str]] = {}
        decimals: list[str] = []
        thousands: list[str] = []
        spaced: list[str] = []
        for column in texts:
            present = column.alias("").drop_nulls()
            rest = present.filter(~present.is_in(_MARKERS))
            bare = rest.str.strip_chars(" ")
            grouped = bare.str.contains(_THOUSANDS)
            in_groups = grouped.any() and (grouped | ~bare.str.contains(",", literal=True)).all()
            plain = (
                bare.str.replace_all(",", "", literal=True) if in_groups else bare.str.replace(",", ".", literal=True)
            )
            if len(rest) == 0 or plain.cast(pl.Float64, strict=False).null_count() > 0:
                continue
            if len(rest) < len(present):
                found[column.name] = sorted(set(present.filter(present.is_in(_MARKERS)).to_list()))
            if (bare != rest).any():
                spaced.append(column.name)
            if self._dialect.decimal == "." and (plain != bare).any():
                (thousands if in_groups else decimals).append(column.name)
        if decimals:
            self._warn_of_numbers(
                "their commas", decimals, "If they are decimal commas, say so when opening: decimal=','."
            )
        if thousands:
            self._warn_of_numbers(
                "their commas",
                thousands,
                "If these separate thousands, remove them from the file; if they are decimal commas, say so when"
                " opening: decimal=','.",
            )
        if spaced:
            self._warn_of_numbers("the spaces beside them", spaced, "Remove the spaces from the file.")
        if found:
            markers = sorted({each for some in found.values() for each in some})
            way_out = f"If values are missing there, say so when opening: null_values={markers!r}."
            self._warn_of_numbers(", ".join(map(repr, markers)), list(found), way_out)

    def _warn_of_numbers(self, why: str, columns: Sequence[str], way_out: str) -> None:
        named = ", ".join(map(repr, columns))
        check.warn(f"{self.where}: because of {why}, numbers are read as text in {named}. {way_out}", NumbersAsText)

    def _refuse_header(self, names: list[str]) -> None:
        if any("\0" in name or "\ufffd" in name for name in names):
            raise self.damaged()
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise RowSourceError(f"{self.where} has two columns named {twice[0]!r}; rename one of them.")
        hint = self._another_separator(names)
        if hint is not None:
            raise RowSourceError(hint)

    def _another_separator(self, names: list[str]) -> str | None:
        """Return a hint at the likely separator, if only one column was found."""
        other = next((each for each in _SEPARATORS if each in names[0]), None) if len(names) == 1 else None
        if other is None or self._given.separator is not None:
            return None
        return (
            f"{self.where} has only one column, {names[0]!r}. If its values are separated by {other!r}, say so:"
            f" separator={other!r}; if it is one column, say separator={self._csv_options['separator']!r}."
        )

    def damaged(self) -> RowSourceError:
        """Return the error for a file that cannot be read; for CSV, with the line at fault if there is one."""
        fault = self._fault() if self.format == "CSV" else None
        return super().damaged() if fault is None else RowSourceError(fault)

    def _fault(self) -> str | None:
        """Return a message about the line that is not in the encoding, or has more values than there are columns."""
        encoding, separator = self._dialect.encoding, self._csv_options["separator"]
        for path in self.files:
            with path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    try:
                        line.decode(encoding)
                    except UnicodeDecodeError:
                        way_out = "If it is an older file, try encoding='latin-1'."
                        if number == 1 and line.startswith(_BYTE_ORDER):
                            way_out = "It begins as UTF-16 does: say encoding='utf-16'."
                        return f"{path}, line {number}: its text is not {encoding}. {way_out}"
            with path.open(encoding=encoding, newline="") as text:
                rows = csv.reader(text, delimiter=separator)
                names = next(rows, [])
                width = len(names)
                for row in rows:
                    if len(row) > width:
                        return self._another_separator(names) or (
                            f"{path}, line {rows.line_num}: {len(row)} values, where the header has {width} columns. If"
                            f" a value contains {separator!r}, put it in double quotes."
                        )
        return None

    def unfit(self, problem: BaseException) -> RowSourceError | None:
        """Return the error for a value that does not fit the type of its column, if that was the problem."""
        types = dict(self.frame.collect_schema())
        column = _column_in(problem, types) if self.format == "CSV" else None
        if column is None:
            return None
        this = pl.nth(list(types).index(column))  # not by name, which may be a pattern to Polars
        texts = self._csv(dict.fromkeys(types, pl.String())).select(this.alias("text"))
        values = self._csv(types, ignore_errors=True).select(this.alias("value"))
        unfit = pl.concat([texts, values], how="horizontal").with_row_index("row", 1)
        unfit = unfit.filter(pl.col("text").is_not_null() & pl.col("value").is_null()).select("row", "text").head(1)
        try:
            number, text = unfit.collect().row(0)
        except UNREADABLE:  # something else is also wrong with the file
            return None
        row, type_ = f"row {number:,}", self.columns[column].type
        if text in _MARKERS:  # words that everybody knows; no other value is shown
            return RowSourceError(
                f"{self.where}, {row}: the value of {column!r} is {text!r}, not of type {type_}. If values are missing"
                f" there, say so when opening: null_values={[text]!r}."
            )
        why = "as declared" if column in dict(self._dialect.types) else f"as its first {_LOOK_AHEAD:,} rows suggest"
        return RowSourceError(
            f"{self.where}, {row}: the value of {column!r} is not of type {type_}, {why}. Declare what fits all values,"
            f" for example types={{{column!r}: 'text'}}."
        )


class ObjectScan(FileScan):
    """Files in an object store: those that existed when the scan was created."""

    def __init__(self, address: str, dialect: Dialect) -> None:
        super().__init__(address, (), dialect)
        if dialect.encoding.lower() not in _UTF8:
            raise InvalidArgument("encoding must be utf-8 for files in an object store.", name="encoding")
        self._sources = listed(address).addresses

    def origin(self) -> Origin:
        """Return the current state from names, sizes, times, tags and versions."""
        return Origin(self.where, listed(self.where).state, self._dialect.how, self._dialect.declared)

    def moment(self) -> str:
        """The same as `origin`: a store tells no more."""
        return self.origin().state

    @property
    def _partitioned(self) -> bool:
        """Whether names of folders are columns."""
        return any("=" in part for source in self._sources for part in str(source).split("/")[3:-1])


def scan_path(path: str | Path, dialect: Dialect) -> FileScan | None:
    """Return the scan of a file, a glob or a folder of Parquet files; None if it is none of these."""
    text = str(path)
    if text.startswith(REMOTE):
        return ObjectScan(_with_files(text), dialect)
    found = Path(path)
    if found.suffix.lower() in FORMATS and (found.is_file() or not has_magic(text)):
        if not found.is_file():
            raise RowSourceError(f"No file {found}.", path=text)
        return FileScan(found, [found], dialect)
    if has_magic(text) and not found.exists():
        files = sorted(Path(each) for each in glob(text, recursive=True) if Path(each).is_file())
        if not files:
            raise RowSourceError(f"No file matches {text}.", path=text)
        return FileScan(text, _known(text, files), dialect)
    if found.is_dir():
        files = sorted(each for each in found.rglob("*.parquet") if not _hidden(each.relative_to(found)))
        return FileScan(found, files, dialect, root=found.absolute()) if files else None
    return None


def scan_paths(paths: Collection[str | Path], dialect: Dialect) -> FileScan:
    """Return the scan of several files, read one after another in the order given."""
    files = [Path(each) for each in paths]
    for path in files:
        if not path.is_file():
            raise RowSourceError(f"No file {path}.", path=str(path))
    where = f"{files[0]} and {len(files) - 1} more" if len(files) > 1 else str(files[0])
    return FileScan(where, _known(where, files), dialect)


def _known(where: str, files: list[Path]) -> list[Path]:
    for path in files:
        if path.suffix.lower() not in FORMATS:
            raise RowSourceError(f"{where}: {path.name} has no known ending; it must be one of {', '.join(FORMATS)}.")
    return files


def _with_files(address: str) -> str:
    """Complete the address of a folder to mean all Parquet files below it."""
    if Path(address).suffix.lower() in FORMATS:
        return address
    return f"{address.rstrip('/')}/**/*.parquet"


def _name_of(where: str) -> str:
    """Name a dataset by the last part of its address that has no pattern."""
    parts = [part for part in re.split(r"[/\\]", where.split(" and ")[0]) if part and not has_magic(part)]
    return Path(parts[-1]).stem if parts else "data"


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _short(place: int) -> pl.Expr:
    """Return a column of texts with a word in place of each that is too long for a number or a date."""
    text = pl.nth(place)
    return pl.when(text.str.len_bytes() > _LONG).then(pl.lit("a long text")).otherwise(text).name.keep()


def _column_in(problem: BaseException, names: Collection[str]) -> str | None:
    """Return the column that an error message of the CSV reader names."""
    found = _COLUMN.search(str(problem))
    return found[1] if found is not None and found[1] in names else None
