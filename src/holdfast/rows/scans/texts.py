"""Text files: CSV, and what JSON lines (`json_lines`) share with it.

They do not state the types of their columns: these are declared or inferred from the first rows (`inference`), and a
later value that does not fit is refused, so that the type of a column does not depend on one row among millions.
"""

import ast
import codecs
import csv
import io
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import polars as pl

from holdfast import check
from holdfast.errors import HoldfastError, InvalidArgument, RowSourceError, UnknownName
from holdfast.rows.columns import storage_of
from holdfast.rows.scans.inference import LOOK_AHEAD, MARKERS, Advice, FirstRows, Undeclared, begins_with_year
from holdfast.rows.scans.scan import UNREADABLE, Origin
from holdfast.schema import Type

_LONG = 200  # bytes
_LONGEST_SHOWN = 60  # characters of a name in a message
_NO_HEADER = " If line 1 does not name the columns, remove it, or write one above it that does."
# Else Polars reads hundreds of megabytes ahead; for its other formats it has no such setting, or needs none.
_CSV_MEMORY = {"POLARS_CSV_CHUNK_SIZE": str(4 << 20), "POLARS_CSV_CHUNK_PREFETCH_LIMIT": "2"}
# How the values of a declared type are read from CSV text.
READ_AS: dict[Type, pl.DataType] = {
    Type.BOOL: pl.Boolean(),
    Type.INT: pl.Int64(),
    Type.FLOAT: pl.Float64(),
    Type.STRING: pl.String(),
    Type.DATE: pl.Date(),
    Type.DATETIME: pl.Datetime("us"),
}
BYTE_ORDER = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # how UTF-16 begins, which spreadsheets write
_COLUMN = re.compile(r" at column '(.*)' \(column number", re.DOTALL)  # in Polars' error message about a value
_SEPARATORS = (";", "\t", "|", ",", ":")
UTF8 = ("utf-8", "utf-8-sig")


class ShortLines(UserWarning):
    """Lines of a CSV file have fewer values than there are columns."""


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written; `types` are the declared types; the others are inferred from the first rows."""

    separator: str | None = None
    encoding: str = "utf-8"
    null_values: tuple[str, ...] = ()
    decimal: str = "."
    types: tuple[tuple[str, Type], ...] = ()

    def __post_init__(self) -> None:
        if self.separator is not None and not (isinstance(self.separator, str) and len(self.separator.encode()) == 1):
            raise InvalidArgument(
                f"separator must be one character, such as ';' or a tab; got {self.separator!r}.", name="separator"
            )
        if self.decimal not in (".", ","):
            raise InvalidArgument(f"decimal must be '.' or ','; got {self.decimal!r}.", name="decimal")
        try:
            codecs.lookup(self.encoding)
        except (LookupError, TypeError):
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

    def saying(self, options: Mapping[str, Any]) -> Self:
        """Return the dialect with options as they are written in Python; what is missing, and types, are added."""
        types = tuple(
            {**dict(self.types), **{name: Type(each) for name, each in options.get("types", {}).items()}}.items()
        )
        null_values = tuple({*self.null_values, *options.get("null_values", ())})
        return replace(self, **{**options, "types": types, "null_values": null_values})

    @property
    def given(self) -> str | None:
        """The first option that was given."""
        names = ("types", "separator", "encoding", "null_values", "decimal")
        return next((name for name in names if getattr(self, name) != getattr(Dialect(), name)), None)


class CsvFiles:
    """CSV files, read in one dialect; `given` is what the caller said of it, without what a folder remembers."""

    quote = b'"'

    def __init__(
        self,
        where: str,
        files: Sequence[Path],
        sources: Sequence[Path | str],
        dialect: Dialect,
        given: Dialect,
        unit: str | None,
    ) -> None:
        self._where, self._files, self._sources, self._dialect, self._given = where, files, sources, dialect, given
        self._unit = unit
        self.on_disk: Sequence[Path] = ()  # the files in UTF-8
        self._copies: list[Any] = []
        self._warned = False  # of a short line

    def lazy(self) -> pl.LazyFrame:
        """Scan the files; warn of what may be read otherwise than it is meant."""
        try:
            scan = self._lazy()
        except Undeclared as refusal:
            raise RowSourceError(self._in_one_round([refusal.advice])) from None
        proposed = [note for note in self._notes if note.options]
        if proposed:
            check.warn(self._in_one_round(proposed), proposed[0].category)
        for note in self._notes:
            if not note.options:
                check.warn(note.message, note.category)
        return scan

    def _lazy(self) -> pl.LazyFrame:
        for variable, value in _CSV_MEMORY.items():
            os.environ.setdefault(variable, value)
        separator = self._dialect.separator or ("\t" if self._where.lower().endswith(".tsv") else ",")
        if separator == self._dialect.decimal:
            raise InvalidArgument(
                "decimal must not be what separates the values. If that is ';', say so: separator=';'.", name="decimal"
            )
        self._options: dict[str, Any] = {
            "separator": separator,
            "decimal_comma": self._dialect.decimal == ",",
            "null_values": list(self._dialect.null_values) or None,
            "glob": False,
        }
        self._read: Any = self._in_utf8()
        self.on_disk = self._read if self._files else ()
        header = pl.read_csv(
            self._read[0],
            has_header=False,
            n_rows=1,
            infer_schema=False,
            truncate_ragged_lines=True,  # else Polars fails on decimal commas below a header separated by semicolons
            **self._options,
        )
        names = ["" if name is None else name for name in header.row(0)]
        self._refuse_header(names)
        self._types = self._typed()
        return self._csv(self._types)

    def _in_one_round(self, advice: Sequence[Advice]) -> str:
        """Return the message of some advice, with all that would be said after it, so that one answer is enough."""
        given, options = list(advice), dict[str, object]()
        for each in given:
            options |= {name: _joined(options.get(name), value) for name, value in each.options.items()}
        open_ = bool(options)
        while open_ and self._dialect.encoding.lower() in UTF8:
            dialects = self._dialect.saying(options), self._given.saying(options)
            open_ = False
            files = CsvFiles(self._where, self._files, self._sources, *dialects, self._unit)
            for each in files._objections():
                joined = {name: _joined(options.get(name), value) for name, value in each.options.items()}
                if each not in given and {**options, **joined} != options:
                    given.append(each)
                    options |= joined
                    open_ = True
        if len(given) == 1:
            return given[0].message
        facts = [each.fact.removeprefix(f"{self._where}: ") for each in given[1:]]
        together = ", ".join(f"{name}={value!r}" for name, value in options.items())
        return (
            f"{' '.join([given[0].fact, *(f'After that, {fact}' for fact in facts)])} If you know this to be so, say it"
            f" when opening. All together: {together}."
        )

    def _objections(self) -> Sequence[Advice]:
        """Return what would be said of the files."""
        try:
            self._lazy()
        except Undeclared as refusal:
            return [refusal.advice]
        except (HoldfastError, *UNREADABLE):
            return []
        return self._notes

    def piece(self, lines: bytes, first: bool) -> pl.LazyFrame:
        """Scan some lines, from the beginning of a file or not."""
        return pl.scan_csv(lines, schema=self._types, has_header=first, **self._options)

    def look(self, place: int, before: int, lines: bytes) -> None:
        """Warn of the first line with fewer values than there are columns, `before` lines of file number `place`.

        Polars takes the values that lack for missing ones. Separators are counted; only where their number is not the
        usual one are lines read one by one.
        """
        width, separator = len(self._types), self._options["separator"]
        bare = re.sub(rb'"[^"]*"', b"", lines) if b'"' in lines else lines
        ends = bare.count(b"\n") + (not bare.endswith(b"\n"))
        if self._warned or width < 2 or bare.count(separator.encode()) == ends * (width - 1):
            return
        rows = csv.reader(io.StringIO(lines.decode("utf-8", "replace"), newline=""), delimiter=separator)
        with suppress(csv.Error):  # what its reader does not take may be sound
            short = next((row for row in rows if len(row) < width), None)
            if short is not None:
                self._warned = True
                found = f"{len(short)} value{'s' * (len(short) != 1)}" if short else "no values"
                check.warn(
                    f"{self._files[place]}, line {before + rows.line_num:,}: {found}, where the header has {width}"
                    " columns. Values that lack at the end of a line are read as missing ones. If they are not meant to"
                    f" be, mend the file; if they are, write {separator!r} for each of them.",
                    ShortLines,
                )

    def _in_utf8(self) -> list[Any]:
        """Return the files, or copies of them in UTF-8."""
        if self._dialect.encoding.lower() in UTF8 or not self._files:
            return list(self._sources)
        copies = []
        for path in self._files:
            copy = tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="", suffix=".csv")  # noqa: SIM115
            self._copies.append(copy)
            with path.open(encoding=self._dialect.encoding, newline="") as file:
                while text := file.read(1 << 20):
                    copy.write(text)
            copy.flush()
            copies.append(Path(copy.name))
        return copies

    def close(self) -> None:
        """Delete the copies in UTF-8."""
        while self._copies:
            self._copies.pop().close()

    def _csv(self, types: Mapping[str, pl.DataType], **options: Any) -> pl.LazyFrame:
        return pl.scan_csv(self._read, schema=types, **self._options, **options)

    def _typed(self) -> dict[str, pl.DataType]:
        """Return the type of every column, from the declaration or from the first rows."""
        types = dict(pl.scan_csv(self._read, infer_schema=False, **self._options).collect_schema())
        for unknown in dict(self._given.types).keys() - types.keys():
            known = Path(self._where).name
            raise UnknownName(f"types must name columns of {known}; it has no {unknown!r}.", name=unknown)
        declared = {name: READ_AS[type_] for name, type_ in self._dialect.types if name in types}
        head = self._csv(dict.fromkeys(types, pl.String())).head(LOOK_AHEAD)
        texts = head.select(_short(place) for place in range(len(types))).collect(engine="streaming")
        texts = texts.select(pl.all().replace("", None))  # in quotation marks; of any other type, it is missing
        first = FirstRows(self._where, texts, lambda types: self._read_as(types).head(LOOK_AHEAD), self._unit)
        found = first.types(declared, self._dialect.decimal, self._options["separator"])
        self._notes = first.notes
        self._refuse_dates_of_two_orders(found)
        return found

    def _refuse_dates_of_two_orders(self, types: Mapping[str, pl.DataType]) -> None:
        """Refuse files of which some write the year first and others last: Polars would not say which it has read."""
        places = [place for place, dtype in enumerate(types.values()) if dtype.is_temporal()]
        known: dict[int, tuple[bool, Path]] = {}
        several = zip(self._files, self.on_disk, strict=True) if places and len(self.on_disk) > 1 else ()
        for path, in_utf8 in several:
            rows = pl.scan_csv(in_utf8, schema=dict.fromkeys(types, pl.String()), **self._options).head(LOOK_AHEAD)
            values = (pl.nth(place).replace("", None).drop_nulls().first() for place in places)
            firsts = rows.select(values).collect(engine="streaming")
            for place, text in zip(places, firsts.row(0), strict=True):
                if text is None:
                    continue
                year_first, before = known.setdefault(place, (begins_with_year(text), path))
                if year_first != begins_with_year(text):
                    raise RowSourceError(
                        f"{path}: dates of {list(types)[place]!r} are not written in the same order as in {before}, so"
                        " that some would be read wrongly. Write all as 2024-12-31."
                    )

    def _refuse_header(self, names: list[str]) -> None:
        if any("\0" in name or "\ufffd" in name for name in names):
            raise OSError  # not text: the caller says so, with the line at fault
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise RowSourceError(
                f"{self._where} has two columns named {_clipped(twice[0])!r}; rename one of them.{_NO_HEADER}"
            )
        hint = self._another_separator(names)
        if hint is not None:
            raise Undeclared(hint)

    def _another_separator(self, names: list[str]) -> Advice | None:
        """Return a hint at the likely separator, if only one column was found."""
        other = _separator_in(names[0]) if len(names) == 1 else None
        if other is None or self._given.separator is not None:
            return None
        if other == ":" and not self._separates(other):  # a remark above the header, or an address
            return None
        return Advice(
            f"{self._where} has only one column, {_clipped(names[0])!r}.",
            f"If its values are separated by {other!r}, say so: separator={other!r}; if it is one column, say"
            f" separator={self._options['separator']!r}.",
            {"separator": other},
        )

    def _separates(self, other: str) -> bool:
        """Whether the first two lines have it equally often."""
        head = pl.read_csv(
            self._read[0], has_header=False, n_rows=2, separator="\1", quote_char=None, infer_schema=False
        )
        return head.to_series().str.count_matches(other, literal=True).n_unique() == 1

    def fault(self) -> str | None:
        """Return a message about the line that is not in the encoding, or has more values than there are columns."""
        for path in self._files:
            fault = self._not_encoded(path)
            if fault is None:
                with suppress(csv.Error):  # what its reader does not take, such as very long values, may be sound
                    fault = self._other_header(path) or self._too_wide(path)
            if fault is not None:
                return fault
        return None

    def _not_encoded(self, path: Path) -> str | None:
        encoding = self._dialect.encoding
        if "\n".encode(encoding) != b"\n":  # such as UTF-16, whose bytes do not tell where lines end
            try:
                with path.open(encoding=encoding) as text:
                    while text.read(1 << 20):
                        pass
            except UnicodeDecodeError:
                return f"{path}: its text is not {encoding}, or is cut off."
            return None
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    line.decode(encoding)
                except UnicodeDecodeError:
                    way_out = "If it is an older file, try encoding='latin-1'."
                    if number == 1 and line.startswith(BYTE_ORDER):
                        way_out = "It begins as UTF-16 does: say encoding='utf-16'."
                    return f"{path}, line {number}: its text is not {encoding}. {way_out}"
        return None

    def _other_header(self, path: Path) -> str | None:
        """Say where the columns of a file are not those of the first one."""
        first = self._files[0]
        if self._names(path) == self._names(first):
            return None
        return (  # without the names: if there is no header, they are values
            f"{path}: its first line does not name the same columns, in the same order, as that of {first}. Files that"
            " are read together must."
        )

    def _names(self, path: Path) -> list[str]:
        encoding = "utf-8-sig" if self._dialect.encoding.lower() in UTF8 else self._dialect.encoding
        with path.open(encoding=encoding, newline="") as text:
            return next(csv.reader(text, delimiter=self._options["separator"]), [])

    def _too_wide(self, path: Path) -> str | None:
        separator = self._options["separator"]
        with path.open(encoding=self._dialect.encoding, newline="") as text:
            rows = csv.reader(text, delimiter=separator)
            names = next(rows, [])
            width = len(names)
            for before, row in enumerate(rows, start=1):
                if len(row) > width:
                    other = self._another_separator(names)
                    return (
                        other.message
                        if other
                        else (
                            f"{path}, line {rows.line_num}: {len(row)} values, where the header has {width}"
                            f" column{'s' * (width > 1)}. If a value contains {separator!r}, put it in double quotes."
                            f"{_NO_HEADER if before == 1 or width == 1 else ''}"
                        )
                    )
        return None

    def unfit(self, problem: BaseException) -> RowSourceError | None:
        """Return the error for a value that does not fit the type of its column, if that was the problem."""
        column = _column_in(problem, self._types)
        if column is None:
            return None
        return unfit_value(self._where, self._types, column, self._read_as, dict(self._dialect.types))

    def _read_as(self, types: Mapping[str, pl.DataType]) -> pl.LazyFrame:
        """Scan with these types; a value that does not fit is missing."""
        return self._csv(types, ignore_errors=True)


def _joined(one: Any, other: Any) -> Any:
    """Return both of two values of an option, or the second one where it takes only one."""
    if isinstance(other, dict):
        return {**(one or {}), **other}
    return sorted({*(one or ()), *other}) if isinstance(other, list) else other


def _clipped(name: str) -> str:
    """Return a name that is short enough for a message; what is no header may have any length."""
    return name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}..."


def _separator_in(name: str) -> str | None:
    return next((each for each in _SEPARATORS if each in name), None)


def unfit_value(
    where: str,
    types: Mapping[str, pl.DataType],
    column: str,
    read: Callable[[Mapping[str, pl.DataType]], pl.LazyFrame],
    declared: Collection[str],
) -> RowSourceError | None:
    """Return the error for the first value of a column that does not fit its type, as `read` takes it for missing."""
    this = pl.nth(list(types).index(column))  # not by name, which may be a pattern to Polars
    texts = read(dict.fromkeys(types, pl.String())).select(this.alias("text"))
    values = read(types).select(this.alias("value"))
    unfit = pl.concat([texts, values], how="horizontal").with_row_index("row", 1)
    unfit = unfit.filter(pl.col("text").is_not_null() & pl.col("value").is_null()).select("row", "text").head(1)
    try:
        number, text = unfit.collect().row(0)
    except UNREADABLE:  # something else is also wrong with the file
        return None
    row, type_ = f"row {number:,}", storage_of(column, types[column]).type
    if text in MARKERS:  # words that everybody knows; no other value is shown
        return RowSourceError(
            f"{where}, {row}: the value of {column!r} is {text!r}, not of type {type_}. If values are missing there,"
            f" say so when opening: null_values={[text]!r}."
        )
    if type_ is Type.FLOAT and _number_with_comma(text):
        return RowSourceError(
            f"{where}, {row}: the value of {column!r} has a comma, so it is not of type {type_}. If it is a decimal"
            " comma, say so when opening: decimal=','."
        )
    why = "as declared" if column in declared else f"as its first {LOOK_AHEAD:,} rows suggest"
    return RowSourceError(
        f"{where}, {row}: the value of {column!r} is not of type {type_}, {why}. Declare what fits all values, for"
        f" example types={{{column!r}: 'text'}}."
    )


def _number_with_comma(text: str) -> bool:
    try:
        float(text.replace(",", ".", 1))
    except ValueError:
        return False
    return "," in text


def _short(place: int) -> pl.Expr:
    """Return a column of texts with a word in place of each that is too long for a number or a date."""
    text = pl.nth(place)
    return pl.when(text.str.len_bytes() > _LONG).then(pl.lit("a long text")).otherwise(text).name.keep()


def _column_in(problem: BaseException, names: Collection[str]) -> str | None:
    """Return the column that an error message of the CSV reader names."""
    found = _COLUMN.search(str(problem))
    return found[1] if found is not None and found[1] in names else None
