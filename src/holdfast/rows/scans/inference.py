"""The types of columns that nobody declared, from the first rows of a text file; not where they are a matter of chance.

Analysts see types, so a type must not tell what happens to be in this sample. What decides is how many of a column's
first values are there, and how many of them do not fit a type; rows are independent, so these are sums of independent
indicators. Where such a count is small but not 0, another sample might well have shown none, and the column would have
another type: then nothing is inferred, and whoever opens the file declares the type. So between two types that are both
inferred without asking lie 50 values or more, in files of 200 rows and longer. Let X be a sum with mean m. Then

    P(X = 0) <= e^-m        and        P(X >= 50) <= e^-m (e m / 50)^50,

which cross at m = 50 / e: whatever m is, one of the two is less than 1.1e-8. But for such a chance, a column's type is
a fact about the population, or has been declared.

Not covered: what whoever opens the file learns from a refusal, here or because a later value does not fit (types are
declared from what is known of a table, not found out by trying); a file whose order depends on its values, such that
a column is empty in just about all of the first rows, and not later.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

import polars as pl

from holdfast import check
from holdfast.errors import RowSourceError
from holdfast.rows.columns import keeps, storage_of
from holdfast.schema import Type

LOOK_AHEAD = 10_000  # rows
ENOUGH = 100  # values that are there: then it is no matter of chance that there are any
MARKERS = ["NA", "N/A", "n/a", "na", "NULL", "Null", "null", "None", "NaN", "nan", "missing", "?", ".", "-"]
_THOUSANDS = r"^[-+]?\d{1,3}(,\d{3})+(\.\d*)?$"
# Dates that do not begin with a year of four digits: Polars takes their first number for the day, and 24 for a year.
_YEAR_LAST = r"^\s*(?P<first>\d{1,2})[-./]\d{1,2}[-./](?P<year>\d+)"
_SLASHES = r"^\s*\d{1,2}/\d{1,2}/(\d{2}|\d{4})\b"
_TEXT = pl.String()
# For each type, the more general ones that a column has if a few of its values do not fit.
_MORE_SPECIAL: dict[pl.DataType, tuple[type[pl.DataType], ...]] = {
    pl.Boolean(): (pl.String,),
    pl.Int64(): (pl.Float64, pl.String),
    pl.Float64(): (pl.String,),
    pl.Date(): (pl.Datetime, pl.String),
}


class NumbersAsText(UserWarning):
    """Numbers of a CSV file are read as texts: they have commas or spaces, or missing ones are a word such as NA."""


class UnclearDates(UserWarning):
    """Dates of a CSV file do not tell the day from the month, or have years of two digits: they are read as texts."""


def is_clear(present: int, misfits: Collection[int], rows: int, *, if_any: bool) -> bool:
    """Whether a column would have the same type in any other sample, but for a chance of about 1e-8.

    Parameters
    ----------
    present
        How many of the first rows have a value.
    misfits
        For each more special type that the column might have had: how many of these values do not fit it.
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
    enough = min(ENOUGH, (rows + 1) // 2)
    few = min(enough, present / 2)
    return (present >= enough or not (if_any and present)) and all(misfit >= few for misfit in misfits)


class FirstRows:
    """The first rows of text files.

    Parameters
    ----------
    where
        The name of the table in messages.
    texts
        The rows, each value as text.
    read
        Reads the same rows with other types; a value that does not fit is missing.
    named
        Whether the columns are named by a header, not by the rows that have them.
    """

    def __init__(
        self,
        where: str,
        texts: pl.DataFrame,
        read: Callable[[Mapping[str, pl.DataType]], pl.LazyFrame],
        *,
        named: bool = True,
    ) -> None:
        self._where, self._texts, self._read, self._named = where, texts, read, named
        self._missing = texts.null_count()

    def types(
        self, found: Mapping[str, pl.DataType], declared: Mapping[str, pl.DataType], decimal: str
    ) -> dict[str, pl.DataType]:
        """Return the types of a CSV file: as declared, or as `found`, or text where not all values fit that.

        Refuse what may be a matter of chance, and warn of what may be read otherwise than it is meant.
        """
        types = {name: declared.get(name, dtype if keeps(dtype) else _TEXT) for name, dtype in found.items()}
        misfits = self._misfits(types)
        # Numbers that are too large, for instance; every value fits text.
        unfit = {
            name: {dtype: misfits[name]} for name, dtype in types.items() if misfits[name] and name not in declared
        }
        types |= dict.fromkeys(unfit, _TEXT)
        texts = [name for name, dtype in types.items() if dtype == _TEXT and name not in declared]
        days = [name for name in texts if self._are_days(name)]
        inferred = {name: dtype for name, dtype in types.items() if name not in {*declared, *days}}
        special = self._more_special(inferred) | unfit
        for name in inferred:
            if found[name].is_integer():  # if too large for an integer, then also for an exact number
                special[name].pop(pl.Float64(), None)
        unclear = self._unclear(inferred, special)
        for why, columns, way_out in self._spellings([name for name in texts if name in unclear], decimal):
            named = ", ".join(map(repr, columns))
            raise RowSourceError(
                f"{self._where}: because of {why}, some numbers are not read as such in {named}. {way_out}"
            )
        self._refuse(unclear)
        types |= dict.fromkeys(self._unclear_dates(types, declared, days), _TEXT)
        for why, columns, way_out in self._spellings(texts, decimal):
            named = ", ".join(map(repr, columns))
            check.warn(
                f"{self._where}: because of {why}, numbers are read as text in {named}. {way_out}", NumbersAsText
            )
        return types

    def require_clear(self, types: Mapping[str, pl.DataType]) -> None:
        """Refuse types that may be a matter of chance."""
        self._refuse(self._unclear(types, self._more_special(types)))

    def _misfits(self, types: Mapping[str, pl.DataType]) -> dict[str, int]:
        """Return how many values of each column do not fit its type."""
        others = dict.fromkeys(self._texts.columns, _TEXT)
        missing = self._read({**others, **types}).null_count().collect(engine="streaming")
        return {name: missing[name].item() - self._missing[name].item() for name in types}

    def _unclear(
        self, types: Mapping[str, pl.DataType], special: Mapping[str, Mapping[pl.DataType, int]]
    ) -> dict[str, tuple[pl.DataType, str]]:
        """Return the columns whose types may be a matter of chance: the type that fits all values, and what is odd.

        Parameters
        ----------
        types
            The inferred types.
        special
            How many values of each column do not fit the more special types that it might have.
        """
        rows = self._texts.height
        unclear: dict[str, tuple[pl.DataType, str]] = {}
        for name, dtype in types.items():
            present = rows - self._missing[name].item()
            misfits = special[name]
            if is_clear(present, misfits.values(), rows, if_any=dtype != _TEXT or not self._named):
                continue
            nearly = min(misfits, key=misfits.__getitem__, default=dtype)
            what = f"only {present:,} of the first {rows:,} rows have a value"
            if misfits and misfits[nearly] < min(ENOUGH, present / 2):
                type_ = storage_of(name, nearly).type
                what = f"of the {present:,} values in the first {rows:,} rows, all but {misfits[nearly]:,} fit {type_}"
            unclear[name] = dtype, what
        return unclear

    def _more_special(self, types: Mapping[str, pl.DataType]) -> dict[str, dict[pl.DataType, int]]:
        """Return how many values of each column do not fit the types that are more special than its own."""
        found: dict[str, dict[pl.DataType, int]] = {name: {} for name in types}
        for special, general in _MORE_SPECIAL.items():
            columns = dict.fromkeys((name for name, dtype in types.items() if dtype in general), special)
            for name, misfits in self._misfits(columns).items() if columns else ():
                found[name][special] = misfits
        return found

    def _refuse(self, unclear: Mapping[str, tuple[pl.DataType, str]]) -> None:
        for name, (_, what) in unclear.items():  # the first, if there is one
            others = _and_more(len(unclear) - 1)
            types = {each: str(storage_of(each, dtype).type) for each, (dtype, _) in unclear.items()}
            raise RowSourceError(
                f"{self._where}: the type of {name!r}{others} may be a matter of chance: {what}. Declare it when"
                f" opening, by what you know of it; this would fit: types={types!r}."
            )

    def _unclear_dates(
        self, types: Mapping[str, pl.DataType], declared: Collection[str], as_text: Sequence[str]
    ) -> list[str]:
        """Return the columns whose dates could be others than those that would be read; say so, and what to do."""
        unclear: list[str] = []
        day_first: list[str] = []
        for name in (name for name, dtype in types.items() if dtype.is_temporal()):
            year_last = self._present(name).str.extract_groups(_YEAR_LAST).struct.unnest().drop_nulls()
            if year_last.is_empty():
                continue
            short = (year_last["year"].str.len_chars() < 4).any()
            if short and name in declared:
                raise RowSourceError(
                    f"{self._where}: years of {name!r} have two digits, which do not say the century. Write dates as"
                    f" 2024-12-31, or read them as text: types={{{name!r}: 'text'}}."
                )
            if short or (year_last["first"].cast(pl.Int64) <= 12).all():
                (day_first if name in declared else unclear).append(name)
        if unclear or as_text:
            type_ = "date" if unclear and types[unclear[0]] == pl.Date else "timestamp"
            enough = f"; if the day comes first, this is enough: types={{{unclear[0]!r}: {type_!r}}}" if unclear else ""
            check.warn(
                f"{self._where}: dates are read as text in {', '.join(map(repr, [*unclear, *as_text]))}, as it is not"
                " clear which number is the day, which the month and which the year. Write them as"
                f" 2024-12-31{enough}.",
                UnclearDates,
            )
        if day_first:
            check.warn(
                f"{self._where}: in {', '.join(map(repr, day_first))}, the day is taken to come first. If the month"
                " does, write dates as 2024-12-31.",
                UnclearDates,
            )
        return unclear

    def _present(self, name: str) -> pl.Series:
        """Return the values that are there, under a name that is no pattern to Polars."""
        return self._texts[name].alias("").drop_nulls()

    def _are_days(self, name: str) -> bool:
        """Whether all values look like 1/2/2024, in which the day may be either number."""
        present = self._present(name)
        return not present.is_empty() and bool(present.str.contains(_SLASHES).all())

    def _spellings(self, columns: Sequence[str], decimal: str) -> list[tuple[str, list[str], str]]:
        """Return why columns are text whose values, but for how they are written, are numbers; and what to do."""
        found: dict[str, list[str]] = {}
        decimals: list[str] = []
        thousands: list[str] = []
        spaced: list[str] = []
        for name in columns:
            present = self._present(name)
            rest = present.filter(~present.is_in(MARKERS))
            bare = rest.str.strip_chars(" ")
            grouped = bare.str.contains(_THOUSANDS)
            in_groups = grouped.any() and (grouped | ~bare.str.contains(",", literal=True)).all()
            plain = (
                bare.str.replace_all(",", "", literal=True) if in_groups else bare.str.replace(",", ".", literal=True)
            )
            if len(rest) == 0 or plain.cast(pl.Float64, strict=False).null_count() > 0:
                continue
            if len(rest) < len(present):
                found[name] = sorted(set(present.filter(present.is_in(MARKERS)).to_list()))
            if (bare != rest).any():
                spaced.append(name)
            if decimal == "." and (plain != bare).any():
                (thousands if in_groups else decimals).append(name)
        commas = "If they are decimal commas, say so when opening: decimal=','."
        apart = (
            "If these separate thousands, remove them from the file; if they are decimal commas, say so when opening:"
        )
        markers = sorted({each for some in found.values() for each in some})
        missing = f"If values are missing there, say so when opening: null_values={markers!r}."
        numbers = dict.fromkeys(spaced, str(Type.FLOAT))
        blanks = f"Remove the spaces from the file, or declare that these are numbers: types={numbers!r}."
        advice = [
            ("their commas", decimals, commas),
            ("their commas", thousands, f"{apart} decimal=','."),
            ("the spaces beside them", spaced, blanks),
            (", ".join(map(repr, markers)), list(found), missing),
        ]
        return [each for each in advice if each[1]]


def _and_more(columns: int) -> str:
    return f" (and {columns} more column{'s' * (columns > 1)} like it)" if columns else ""
