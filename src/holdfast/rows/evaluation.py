"""How the functions of a query are evaluated on stored columns, each in the fastest way for it.

    on arrays      comparisons of numbers and booleans of which none is missing
    on texts       once for each distinct text among the rows, where a column has few
    on a frame     everything else, by Polars

Rows that are only counted are counted by combination: which text each has in one or a few columns, and which conditions
it meets. There are few combinations, so a query is evaluated once for each that occurs, not once for each row. A
combination is a number: its digits are the code of a text for every column, and a bit for every condition.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.queries.evaluate import Expression, booleans
from holdfast.queries.query import Function, RowValues
from holdfast.rows.buffers import BufferPool
from holdfast.rows.columns import CodedText, Numbers, StoredColumn, take_into
from holdfast.rows.draws import Indices, counts_of
from holdfast.schema import Type

_EACH = 16  # rows for each possible combination: how many occur then hardly shows in the time of an answer
_MANY = 1 << 16  # from this many consecutive rows on, Polars is faster; a question to a deck has fewer

POOL = BufferPool()


class StoredColumns:
    """The columns of a dataset by name; `plain` are the arrays of those on which queries can be evaluated directly."""

    def __init__(self, stored: Mapping[str, StoredColumn]) -> None:
        self.stored = stored
        self.plain = {name: one.plain for name, one in stored.items() if one.plain is not None}

    def values(self, functions: Sequence[Function], rows: Indices | slice, *, scan: bool = False) -> list[RowValues]:
        """Return each function's values on these rows; `scan` if all rows are read."""
        arrays: dict[str, NDArray[Any]] = {}  # so that a column that several functions read is read once
        found: list[Any] = []
        left: list[int] = []
        for place, function in enumerate(functions):
            columns, direct = function.columns, function.direct
            if direct is not None and self._on_plain(columns):
                for name in columns:
                    if name not in arrays:
                        values = self.plain[name]
                        arrays[name] = values[rows] if isinstance(rows, slice) else take_into(values, rows, POOL)
                many = isinstance(rows, slice) and rows.stop - rows.start >= _MANY and function.type is Type.BOOL
                found.append(direct(_in_bits(arrays, columns) if many else arrays))
                continue
            texts = self._texts_of(function, height(rows))
            if texts is not None:
                found.append(texts.asked(function, rows, POOL, every=scan))
                continue
            found.append(self._numbers_of(function, rows))
            if found[-1] is None:
                left.append(place)
        if left:
            frame = self.frame(rows, tuple(dict.fromkeys(name for place in left for name in functions[place].columns)))
            for place in left:
                found[place] = functions[place].series(frame)
        return found

    def counted(
        self, functions: Sequence[Function], rows: Indices | slice, passes: int = 1
    ) -> tuple[list[RowValues], NDArray[np.int64] | None]:
        """Return each function's values in the combinations that occur, and how many rows have each of these.

        If the rows are those of several `passes`, equally many of each, there is a line of such numbers for each pass.
        Where functions depend on anything but texts and conditions, on a single condition (which is counted as fast),
        or where there could be more than one combination in `_EACH` rows: each row's values, and None.
        """
        if len(functions) == 1:
            columns = functions[0].columns
            if columns and columns[0] in self.plain:
                return self.values(functions, rows), None  # most questions are about one condition on numbers
        texts: dict[str, CodedText] = {}
        conditions, most, count = [], 1, height(rows)
        for place, function in enumerate(functions):
            if function.direct is not None and self._on_plain(function.columns):
                if function.type is not Type.BOOL:
                    return self.values(functions, rows), None
                conditions.append(place)
                most *= 2
            elif (stored := self._texts_of(function, count)) is None:
                return self.values(functions, rows), None
            elif function.columns[0] not in texts:
                texts[function.columns[0]] = stored
                most *= stored.distinct
        if most * _EACH > count or not (texts or len(conditions) > 1):
            return self.values(functions, rows), None
        digits: list[tuple[str | int, NDArray[Any], int]] = [
            (name, stored.coded(name, rows, POOL), stored.distinct) for name, stored in texts.items()
        ]
        if conditions:
            met = self.values([functions[place] for place in conditions], rows)
            digits += [(place, booleans(bits).view(np.uint8), 2) for place, bits in zip(conditions, met, strict=True)]
        cells = _joined([(codes, size) for _, codes, size in digits], most)
        if passes == 1:
            times = counts_of(cells, most)
            occurring = times.nonzero()[0]
        else:
            times = np.array([counts_of(one, most) for one in cells.reshape(passes, -1)])
            occurring = np.add.reduce(times).nonzero()[0]
        rest = occurring
        drawn: dict[str | int, NDArray[np.int64]] = {}
        for key, _, size in digits[:0:-1]:
            rest, drawn[key] = np.divmod(rest, size)
        drawn[digits[0][0]] = rest
        row_values: list[RowValues] = []
        for place, function in enumerate(functions):
            if place in drawn:
                row_values.append(drawn[place].astype(np.bool_))
            else:
                name = function.columns[0]
                row_values.append(texts[name].asked_of(function, drawn[name]))
        return row_values, times[..., occurring]

    def frame(self, rows: Indices | slice, columns: Sequence[str]) -> pl.DataFrame:
        """Return these rows and columns."""
        if not columns:
            return pl.DataFrame(height=height(rows))  # a constant still has one value per row
        first, *others = (self._series(name, rows) for name in columns)
        # Stacked, because building from a list renames a column whose name is empty, and building from a dict is slow.
        frame = first.to_frame()
        return frame.hstack(others) if others else frame

    def _series(self, name: str, rows: Indices | slice) -> pl.Series:
        stored = self.stored[name]
        return stored.part(name, rows.start, rows.stop) if isinstance(rows, slice) else stored.take(name, rows, POOL)

    def _on_plain(self, columns: Sequence[str]) -> bool:
        """Whether all of these are arrays of stored values, none of which is missing."""
        return all(map(self.plain.__contains__, columns))

    def _texts_of(self, function: Function, count: int) -> CodedText | None:
        """Return the one column that a function reads, if evaluating each of its texts once can replace each row.

        Not for a caller's own function, which must see one row per draw.
        """
        if function.identity is None or not (function.type is Type.BOOL or function.type.is_number):
            return None
        return self._few_texts(function.columns, count)

    def _few_texts(self, columns: Sequence[str], count: int) -> CodedText | None:
        """Return the one column that is read, if it has no more distinct texts than there are rows."""
        stored = self.stored[columns[0]] if len(columns) == 1 else None
        return stored if isinstance(stored, CodedText) and stored.dictionary.len() <= count else None

    def _numbers_of(self, function: Function, rows: Indices | slice) -> NDArray[np.float64] | None:
        """Return the numbers of drawn rows, NaN where one is missing, if the function is just a column; else None."""
        # Among functions evaluated on whole columns, only a plain column is a number; all others are true or false.
        if isinstance(rows, slice) or not isinstance(function, Expression) or not function.type.is_number:
            return None
        stored = self.stored[function.columns[0]]
        return None if function.direct is None or not isinstance(stored, Numbers) else stored.floats(rows, POOL)


def height(rows: Indices | slice) -> int:
    """Return how many rows these are."""
    return int(rows.stop - rows.start) if isinstance(rows, slice) else rows.size


def _in_bits(arrays: Mapping[str, NDArray[Any]], columns: Sequence[str]) -> Mapping[str, Any]:
    """Return numbers as Polars series: comparing many at once then gives bits, which are less to write."""
    if not columns or any(arrays[name].dtype != np.float64 for name in columns):
        return arrays
    return {name: pl.Series(arrays[name]) for name in columns}


def _joined(digits: Sequence[tuple[NDArray[Any], int]], most: int) -> NDArray[Any]:
    """Return the number of each row's combination, in the narrowest type that fits."""
    (cells, _), *others = digits
    if others:
        narrow = np.min_scalar_type(most)
        for codes, size in others:
            cells = cells.astype(narrow, copy=False) * narrow.type(size) + codes.astype(narrow, copy=False)
    return cells
