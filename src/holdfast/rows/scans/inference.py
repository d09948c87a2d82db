"""The types of columns that nobody declared, from the first rows of a text file; not where they are a matter of chance.

Analysts see types, so a type must not tell what happens to be in this sample. A column has the first of some types, in
a fixed order, that all its values fit. What decides is how many values do not fit a type: each is judged alone, and
rows are independent, so these are sums of independent indicators. Where such a count is small but not 0, another
sample might well have shown none, and the column would have that type: then nothing is inferred, and whoever opens the
file declares the type. So of two types that are both inferred without asking, in files of 200 rows and longer, all
values fit the one that comes first, or 50 values or more do not. Let X be a sum with mean m. Then

    P(X = 0) <= e^-m        and        P(X >= 50) <= e^-m (e m / 50)^50,

which cross at m = 50 / e: whatever m is, one of the two is less than 1.1e-8. (If a column of texts has fewer than 100
values, fewer than 50 may misfit; as at least half of its values do, and another type needs 100 that fit, the smaller
chance is no larger than that: the tests enumerate it.) But for such a chance, a column's type is a fact about the
population, or has been declared.

Not covered: what whoever opens the file learns from a refusal, here or because a later value does not fit (types are
declared from what is known of a table, not found out by trying); shorter files, where the chance is about 4e-6 with
100 rows, 0.1% with 50 and 4% with 20; a file whose order depends on its values, such that a column is empty, or of
another kind, in just about all of the first rows, and not later. Values of one unit depend on each other, so of each
unit one value counts in a column: the first that is there.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from holdfast.errors import RowSourceError
from holdfast.rows.columns import keeps, storage_of
from holdfast.schema import Type

LOOK_AHEAD = 10_000  # rows
ENOUGH = 100  # values that are there: then it is no matter of chance that there are any
MOST_NAMED = 5  # columns in a message; more are counted
MARKERS = ["", "NA", "N/A", "n/a", "na", "NULL", "Null", "null", "None", "NaN", "nan", "missing", "?", ".", "-"]
# Digits are those of ASCII, which is all that Polars reads as numbers, and so are the blanks that it skips before them.
_THOUSANDS = r"^[-+]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?$"
_WHOLE = r"^[ \t]*[-+]?[0-9]+$"
_YEAR_FIRST = r"^\s*[0-9]{4}[-./]"
# Dates that do not begin with a year of four digits: Polars takes their first number for the day, and 24 for a year.
_YEAR_LAST = r"^\s*(?P<first>[0-9]{1,2})[-./][0-9]{1,2}[-./](?P<year>[0-9]+)"
_YEAR_LAST_IN_FULL = r"^\s*[0-9]{1,2}[-./][0-9]{1,2}[-./][0-9]{4}"
_DAYS = r"^\s*[0-9]{1,2}(/[0-9]{1,2}/([0-9]{2}|[0-9]{4})\b|[-.][0-9]{1,2}[-.]([0-9]{2}|[0-9]{4})([^0-9]*$|[ T][0-9]))"
_TEXT = pl.String()
_PLAIN: tuple[pl.DataType, ...] = (pl.Boolean(), pl.Int64(), pl.Float64())
# How dates are written: Polars reads all of a column as it reads the first, and so takes these for examples.
_DATES: tuple[tuple[str, str, pl.DataType], ...] = (
    ("2024-01-31", _YEAR_FIRST, pl.Date()),
    ("31-01-2024", _YEAR_LAST_IN_FULL, pl.Date()),
    ("2024-01-31T12:00:00", _YEAR_FIRST, pl.Datetime("us")),
    ("31-01-2024 12:00:00", _YEAR_LAST_IN_FULL, pl.Datetime("us")),
    ("2024-01-31T12:00:00Z", _YEAR_FIRST, pl.Datetime("us", "UTC")),
)


class NumbersAsText(UserWarning):
    """Numbers of a CSV file are read as texts, for their commas or spaces; or missing values are a word such as NA."""


class UnclearDates(UserWarning):
    """Dates of a CSV file do not tell the day from the month, or have years of two digits: they are read as texts."""


@dataclass(frozen=True)
class Advice:
    """A remark on how a text file is read: a fact, and what to do, which `options` do as well."""

    fact: str
    way_out: str
    options: Mapping[str, object] = field(default_factory=dict)
    category: type[UserWarning] = NumbersAsText

    @property
    def message(self) -> str:
        """The remark, as a message of its own."""
        return f"{self.fact} {self.way_out}"


class Undeclared(Exception):
    """Something of a text file must be said before it is read."""

    def __init__(self, advice: Advice) -> None:
        super().__init__(advice.message)
        self.advice = advice


def is_clear(present: int, misfits: Collection[int], rows: int, *, if_any: bool) -> bool:
    """Whether a column would have the same type in any other sample, but for a chance of about 1e-8.

    Parameters
    ----------
    present
        How many of the first rows have a value.
    misfits
        For each type that the column would have had if all values fit it: how many of these values do not.
    rows
        How many first rows there are.
    if_any
        Whether a few values alone decide: otherwise, the column would have the same type if it had none.

    >>> is_clear(10_000, [0], 10_000, if_any=True), is_clear(10_000, [3], 10_000, if_any=True)
    (False, False)
    >>> is_clear(10_000, [200], 10_000, if_any=True), is_clear(7, [], 10_000, if_any=True)
    (True, False)
    >>> is_clear(7, [7], 10_000, if_any=False), is_clear(0, [], 10_000, if_any=False)
    (True, True)
    """
    few = _few(present, rows)
    return (present >= _enough(rows) or not (if_any and present)) and all(misfit >= few for misfit in misfits)


class FirstRows:
    """The first rows of text files.

    A column has the first of some candidates that all its values fit, in an order that is always the same. How many do
    not fit is counted value by value, whatever the others are, for this candidate and for all before it.

    Parameters
    ----------
    where
        The name of the table in messages.
    texts
        The rows, each value as text.
    read
        Reads the same rows with other types; a value that does not fit is missing.
    unit
        The column that says which rows belong together. Of each unit only the first value of a column counts: its
        values may depend on each other, and one unit may have many of them.
    """

    def __init__(
        self,
        where: str,
        texts: pl.DataFrame,
        read: Callable[[Mapping[str, pl.DataType]], pl.LazyFrame],
        unit: str | None = None,
    ) -> None:
        self._where, self._read = where, read
        units = texts[unit] if unit in texts.columns else None
        self._counted = "rows" if units is None else "units"
        self._count = texts.height if units is None else units.n_unique()
        self._texts = texts if units is None else _first_of_each(texts, units)
        missing: dict[str, int] = self._texts.null_count().row(0, named=True)
        self._present = {name: texts.height - count for name, count in missing.items()}
        self._odd: dict[str, tuple[pl.DataType, str]] = {}  # the type that fits all values, and what is odd
        self.notes: list[Advice] = []

    def types(self, declared: Mapping[str, pl.DataType], decimal: str, separator: str) -> dict[str, pl.DataType]:
        """Return the types of a CSV file: as declared, or the first that all values fit, or text.

        Refuse what may be a matter of chance, and note what may be read otherwise than it is meant.
        """
        names = [name for name in self._texts.columns if name not in declared]
        plain = {dtype: self._misfits(names, dtype) for dtype in _PLAIN}
        types, day_unclear = dict(declared), []
        for name in names:
            misfits = [(dtype, plain[dtype][name]) for dtype in _PLAIN]
            misfits[-1] = pl.Float64(), plain[pl.Float64()][name] + self._too_large(name, plain[pl.Int64()][name])
            misfits += self._misfits_of_dates(name)
            types[name] = dtype = self._decide(name, misfits, _TEXT)
            if dtype.is_temporal() and name not in self._odd:
                late = self._days_beyond_12(name)
                if late is None:  # years come first
                    continue
                if not late:
                    types[name] = _TEXT
                    day_unclear.append((name, dtype))
                elif late < self._few(name):
                    self._odd[name] = (
                        dtype,
                        f"in only {late:,} of {self._present[name]:,} dates the day can be no month",
                    )
        types = {name: types[name] for name in self._texts.columns}
        texts = [name for name in names if types[name] == _TEXT]
        odd = [name for name in texts if name in self._odd]
        for why, columns, what, way_out, options in self._spellings(odd, decimal, separator):
            fact = f"{self._where}: because of {why}, some {what} are not read as such in {_listed(columns)}."
            if not options:
                way_out += f" If they are texts, declare that: types={dict.fromkeys(columns, 'text')!r}."
            raise Undeclared(Advice(fact, way_out, options))
        self._refuse()
        self._note_dates(types, declared, day_unclear, texts)
        for why, columns, what, way_out, options in self._spellings(texts, decimal, separator):
            fact = f"{self._where}: because of {why}, {what} are read as text in {_listed(columns)}."
            self.notes.append(Advice(fact, way_out, options))
        return types

    def types_of_records(self, found: Mapping[str, pl.DataType], declared: Collection[str]) -> dict[str, pl.DataType]:
        """Return the types of JSON lines that are not declared; those that cannot be kept are as they were found.

        A column that is left out looks as if no record had it. So it matters how many do, unless it is left out.
        """
        names = [name for name in found if name not in declared]
        as_ = {
            dtype: self._misfits(names, dtype) for dtype in (*_PLAIN, pl.Int128(), pl.Struct({}), pl.List(pl.Null()))
        }
        types: dict[str, pl.DataType] = {}
        for name in names:
            too_large = as_[pl.Int64()][name] - as_[pl.Int128()][name]
            nested = 2 * self._present[name] - as_[pl.Struct({})][name] - as_[pl.List(pl.Null())][name]
            misfits = [
                (pl.Boolean(), as_[pl.Boolean()][name]),
                (pl.Int64(), as_[pl.Int64()][name]),
                (pl.Int128(), as_[pl.Int128()][name]),
                (pl.Float64(), as_[pl.Float64()][name] + too_large),
                (pl.Struct({}), self._present[name] - nested),
            ]
            dtype = self._decide(name, misfits, _TEXT, named=False)
            if dtype == _TEXT and self._present[name] and found[name] != _TEXT:
                self._odd[name] = _TEXT, "its values are of several kinds"
            types[name] = found[name] if dtype.is_nested() or not self._present[name] else dtype
        self._refuse()
        return types

    def _misfits(self, names: Sequence[str], dtype: pl.DataType) -> dict[str, int]:
        """Return how many values of each column do not fit this type."""
        types = dict.fromkeys(self._texts.columns, _TEXT) | dict.fromkeys(names, dtype)
        rows = self._read(types)
        if self._counted == "rows":
            missing = rows.null_count().collect(engine="streaming")
            return {name: missing[name].item() - self._count + self._present[name] for name in names}
        values = rows.collect(engine="streaming")
        return {name: int((self._texts[name].is_not_null() & values[name].is_null()).sum()) for name in names}

    def _too_large(self, name: str, not_whole: int) -> int:
        """Return how many values are whole numbers beyond 64 bits: none of these is an exact number."""
        whole = int(self._values(name).str.contains(_WHOLE).sum())
        return max(0, whole - (self._present[name] - not_whole))

    def _misfits_of_dates(self, name: str) -> list[tuple[pl.DataType, int]]:
        """Return, for each way to write dates, how many values are not written like that."""
        values, found = self._values(name), []
        for example, pattern, dtype in _DATES:
            alike = values.filter(values.str.contains(pattern))
            fit = 0
            if not alike.is_empty():
                both = pl.concat([pl.Series("", [example]), alike]).str
                read = both.to_date(strict=False) if dtype == pl.Date() else both.to_datetime(strict=False)
                fit = len(read) - 1 - read.null_count()
            found.append((dtype, len(values) - fit))
        return found

    def _days_beyond_12(self, name: str) -> int | None:
        """Return how many dates tell the day from the month; None if years come first."""
        first = self._values(name).str.extract_groups(_YEAR_LAST).struct.field("first").drop_nulls()
        return None if first.is_empty() else int((first.cast(pl.Int64) > 12).sum())

    def _few(self, name: str) -> float:
        return _few(self._present[name], self._count)

    def _decide(
        self, name: str, misfits: Sequence[tuple[pl.DataType, int]], rest: pl.DataType, *, named: bool = True
    ) -> pl.DataType:
        """Return the first candidate that all values fit, or else `rest`; note it if that may be a matter of chance.

        Parameters
        ----------
        misfits
            The candidates, and how many values do not fit each.
        named
            Whether the column is named by a header, not by the rows that have it.
        """
        rows, present = self._count, self._present[name]
        last = next((place for place, (_, count) in enumerate(misfits) if present and not count), len(misfits))
        dtype, before = [*(dtype for dtype, _ in misfits), rest][last], misfits[:last]
        seen = keeps(dtype) and not (named and dtype == _TEXT)  # whether values alone make analysts see it
        if not is_clear(present, [count for _, count in before], rows, if_any=seen):
            first = f"the first {rows:,} {self._counted}"
            what = f"only {present:,} of {first} have a value"
            nearly, count = min(before, key=lambda each: each[1], default=(dtype, present))
            if count < self._few(name):
                what = f"of the {present:,} values in {first}, all but {count:,} {_fit(nearly)}"
            self._odd[name] = dtype, what
        return dtype

    def _refuse(self) -> None:
        for name, (_, what) in self._odd.items():  # the first, if there is one
            others = _and_more(len(self._odd) - 1)
            types = {each: _type_of(dtype) for each, (dtype, _) in self._odd.items()}
            fact = f"{self._where}: the type of {name!r}{others} may be a matter of chance: {what}."
            way_out = f"Declare it when opening, by what you know of it; this would fit: types={types!r}."
            raise Undeclared(Advice(fact, way_out, {"types": types}))

    def _note_dates(
        self,
        types: Mapping[str, pl.DataType],
        declared: Collection[str],
        day_unclear: Sequence[tuple[str, pl.DataType]],
        texts: Sequence[str],
    ) -> None:
        """Say which dates could be others than those that are read, and what to do."""
        unclear = [name for name, _ in day_unclear]
        unclear += [name for name in texts if name not in unclear and self._are_days(name)]
        day_first: list[str] = []
        for name in (name for name in declared if types[name].is_temporal()):
            year_last = self._values(name).str.extract_groups(_YEAR_LAST).struct.unnest().drop_nulls()
            if (year_last["year"].str.len_chars() < 4).any():
                raise RowSourceError(
                    f"{self._where}: years of {name!r} have two digits, which do not say the century. Write dates as"
                    f" 2024-12-31, or read them as text: types={{{name!r}: 'text'}}."
                )
            if self._days_beyond_12(name) == 0:
                day_first.append(name)
        if unclear:
            declare = {name: _type_of(dtype) for name, dtype in day_unclear}
            enough = f"; if the day comes first, this is enough: types={declare!r}" if declare else ""
            fact = (
                f"{self._where}: dates are read as text in {_listed(unclear)}, as it is not clear which number is the"
                " day, which the month and which the year."
            )
            self.notes.append(Advice(fact, f"Write them as 2024-12-31{enough}.", category=UnclearDates))
        if day_first:
            fact = f"{self._where}: in {_listed(day_first)}, the day is taken to come first."
            way_out = "If the month does, write dates as 2024-12-31."
            self.notes.append(Advice(fact, way_out, category=UnclearDates))

    def _values(self, name: str) -> pl.Series:
        """Return the values that are there, under a name that is no pattern to Polars."""
        return self._texts[name].alias("").drop_nulls()

    def _are_days(self, name: str) -> bool:
        """Whether all values look like 1/2/2024 or 1-2-24, in which any number may be the day."""
        values = self._values(name)
        return not values.is_empty() and bool(values.str.contains(_DAYS).all())

    def _spellings(
        self, columns: Sequence[str], decimal: str, separator: str
    ) -> list[tuple[str, list[str], str, str, dict[str, object]]]:
        """Return why columns are text whose values are not, but for their spelling; what they are; the way out."""
        found: dict[str, list[str]] = {}
        called: set[str] = set()
        decimals: list[str] = []
        thousands: list[str] = []
        spaced: list[str] = []
        for name in columns:
            present = self._values(name)
            rest = present.filter(~present.is_in(MARKERS))
            marked = len(present) - len(rest)
            bare = rest.str.strip_chars(" ")
            grouped = bare.str.contains(_THOUSANDS)
            in_groups = grouped.any() and (grouped | ~bare.str.contains(",", literal=True)).all()
            plain = (
                bare.str.replace_all(",", "", literal=True) if in_groups else bare.str.replace(",", ".", literal=True)
            )
            numbers = plain.cast(pl.Float64, strict=False).null_count() == 0
            other = None if numbers or not marked else self._called(name, rest, marked)
            if len(rest) == 0 or not (numbers or other):
                continue
            if marked:
                found[name] = sorted(set(present.filter(present.is_in(MARKERS)).to_list()))
                called.add(other or "numbers")
            if not numbers:
                continue
            if (bare != rest).any():
                spaced.append(name)
            if decimal == "." and (plain != bare).any():
                (thousands if in_groups else decimals).append(name)
        if_decimal = "say so when opening: decimal=','" if separator != "," else "write points in their place"
        commas = f"If they are decimal commas, {if_decimal}."
        apart = f"If these separate thousands, remove them from the file; if they are decimal commas, {if_decimal}."
        markers = sorted({each for some in found.values() for each in some})
        missing = f"If values are missing there, say so when opening: null_values={markers!r}."
        nouns = " or ".join(sorted(called, reverse=True))
        proposed: dict[str, object] = {"decimal": ","} if separator != "," else {}
        advice: list[tuple[str, list[str], str, str, dict[str, object]]] = [
            ("their commas", decimals, "numbers", commas, proposed),
            ("their commas", thousands, "numbers", apart, {}),
            ("the spaces after them", spaced, "numbers", "Remove the spaces from the file.", {}),
            (", ".join(map(repr, markers)), list(found), nouns, missing, {"null_values": markers}),
        ]
        return [each for each in advice if each[1]]

    def _called(self, name: str, rest: pl.Series, marked: int) -> str | None:
        """Return what all values but the marked ones are, if they are dates or yes-or-no values."""
        if any(count == marked for _, count in self._misfits_of_dates(name)):
            return "dates"
        return "yes-or-no values" if rest.str.to_lowercase().is_in(["true", "false"]).all() else None


def _first_of_each(texts: pl.DataFrame, units: pl.Series) -> pl.DataFrame:
    """Return the rows with only the first value of each unit in each column: the others are missing."""
    columns = []
    for values in texts:
        there = values.is_not_null()
        both = pl.DataFrame([units.alias("unit"), there.alias("there")])
        columns.append(values.zip_with(both.to_struct("").is_first_distinct() & there, values.clear(texts.height)))
    return pl.DataFrame(columns)


def begins_with_year(text: str) -> bool:
    """Whether a date is written from the year on; otherwise its first number is the day.

    >>> begins_with_year(" 2024-01-31"), begins_with_year("31/01/2024")
    (True, False)
    """
    return re.match(_YEAR_FIRST, text) is not None


def _listed(columns: Sequence[str]) -> str:
    """Return the names of columns, of many only the first."""
    more = len(columns) - MOST_NAMED
    names = ", ".join(map(repr, columns[:MOST_NAMED] if more > 1 else columns))
    return f"{names} and {more} more columns" if more > 1 else names


def _and_more(columns: int) -> str:
    return f" (and {columns} more column{'s' * (columns > 1)} like it)" if columns else ""


def _enough(rows: int) -> int:
    return min(ENOUGH, (rows + 1) // 2)


def _few(present: int, rows: int) -> float:
    return min(_enough(rows), present / 2)


def _type_of(dtype: pl.DataType) -> str:
    """Return the type to declare."""
    return str(storage_of("", dtype).type if keeps(dtype) else Type.STRING)


def _fit(dtype: pl.DataType) -> str:
    if dtype.is_nested():
        return "are lists or records"
    return f"fit {_type_of(dtype)}" if keeps(dtype) else "are integers of up to 128 bits"
