"""Rows counted by combination: which text each has in one or a few columns, and which conditions it meets.

There are few combinations, so a query is evaluated once for each that occurs, not once for each row. A combination is
a number: its digits are the code of a text for every column, and a bit for every condition.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.queries.evaluate import booleans, floats
from holdfast.queries.query import Function, RowValues
from holdfast.rows.columns import BufferPool, CodedText, Evaluator
from holdfast.rows.draws import Indices
from holdfast.schema import Type

_EACH = 16  # rows for each possible combination: how many occur then hardly shows in the time of an answer
_FEW = 12  # up to this many are counted one by one, which also takes the same time whatever occurs how often
_NUMBERS = [np.array(number, np.uint8) for number in range(_FEW)]  # faster than Python's numbers


@dataclass(frozen=True)
class Combinations:
    """The columns of texts and the conditions (their places among the functions) that a query depends on.

    `most` is how many combinations there could be.
    """

    functions: Sequence[Function]
    texts: dict[str, CodedText]
    conditions: list[int]
    most: int

    @classmethod
    def of(
        cls,
        functions: Sequence[Function],
        count: int,
        on_plain: Callable[[Function], bool],
        texts_of: Callable[[Function], CodedText | None],
    ) -> "Combinations | None":
        """Return the combinations that functions depend on, if they are few for this many rows.

        None if the functions depend on anything else, on a single condition (which is counted as fast), or if there
        could be more than one combination in `_EACH` rows.

        Parameters
        ----------
        functions, count
            What is evaluated, on how many rows.
        on_plain
            Whether a function can be evaluated on arrays of stored values.
        texts_of
            The column of texts that a function reads, if it may be evaluated once for each text.
        """
        texts: dict[str, CodedText] = {}
        conditions, most = [], 1
        for place, function in enumerate(functions):
            if on_plain(function):
                if function.type is not Type.BOOL:
                    return None
                conditions.append(place)
                most *= 2
            elif (stored := texts_of(function)) is None:
                return None
            elif function.columns[0] not in texts:
                texts[function.columns[0]] = stored
                most *= stored.distinct
        few = most * _EACH <= count and (texts or len(conditions) > 1)
        return cls(functions, texts, conditions, most) if few else None

    def counted(
        self, rows: Indices | slice, bits: Sequence[RowValues], pool: BufferPool
    ) -> tuple[list[RowValues], NDArray[np.int64]]:
        """Return each function's values in the combinations that occur, and how many rows have each of these.

        `bits` are the values of the conditions on these rows.
        """
        digits: dict[str | int, tuple[NDArray[Any], int]] = {}
        for name, stored in self.texts.items():
            digits[name] = stored.coded(name, rows, pool), stored.distinct
        for place, each in zip(self.conditions, bits, strict=True):
            digits[place] = booleans(each).view(np.uint8), 2
        (cells, _), *others = digits.values()
        if others:
            narrow = np.min_scalar_type(self.most)
            for codes, size in others:
                cells = cells.astype(narrow, copy=False) * narrow.type(size) + codes.astype(narrow, copy=False)
        times = counts_of(cells, self.most)
        occurring = rest = times.nonzero()[0]
        drawn: dict[str | int, NDArray[np.int64]] = {}
        *later, (first, _) = reversed(digits.items())
        for key, (_, size) in later:
            rest, drawn[key] = np.divmod(rest, size)
        drawn[first] = rest
        row_values: list[RowValues] = []
        for place, function in enumerate(self.functions):
            if place in drawn:
                row_values.append(drawn[place].astype(np.bool_))
            else:
                name = function.columns[0]
                row_values.append(self.texts[name].asked_of(evaluator_of(function), name, drawn[name]))
        return row_values, times[occurring]


def counts_of(numbers: NDArray[Any], most: int) -> NDArray[np.int64]:
    """Return how often each number below `most` occurs."""
    if most > _FEW or numbers.dtype != np.uint8:
        return np.bincount(numbers, minlength=most)
    return np.array([np.count_nonzero(numbers == number) for number in _NUMBERS[:most]])


def evaluator_of(function: Function) -> Evaluator:
    """Return how to evaluate a function of texts that gives numbers or booleans."""
    return Evaluator(partial(_array_of, function), function.direct)


def _array_of(function: Function, rows: pl.DataFrame) -> NDArray[Any]:
    """Return a function's values as an array: whole numbers stay integers only if none can be missing."""
    values = function.series(rows)
    if function.type is Type.BOOL:
        return booleans(values)
    whole = function.type is Type.INT and not function.nullable and not values.null_count()
    return values.to_numpy() if whole else floats(values)
