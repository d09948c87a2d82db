"""The mean of a value in several groups at once: groups of rows that have the same values, or that meet a condition."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.guarantees.statistic import Difference, GroupMean, Statistic
from holdfast.queries.evaluate import RowFunction, booleans
from holdfast.queries.measures import Category, Mean, Share, encode_facts
from holdfast.queries.node import identifier, literal_text
from holdfast.queries.query import Direct, Lookup, Query, Values
from holdfast.schema import Type

Numbers = NDArray[np.int64]
LARGEST = np.uint64(2**63 - 1)
FEW_TEXTS = 1_000  # that are compared faster one by one
SHOWN = 8  # groups that a text names


class InGroups(Query):
    """A share or a mean, and the group of each row. A row in no group, or without a value, is outside."""

    inner: Share | Mean

    @abstractmethod
    def _numbers(self, rows: Any, *, arrays: bool) -> Numbers:
        """Return the number of every row's group, -1 if it is in none; from a frame or from `arrays` by name."""

    @property
    @abstractmethod
    def _functions(self) -> tuple[RowFunction, ...]:
        """What decides the group of a row."""

    @abstractmethod
    def _facts(self) -> dict[str, Any]:
        """What identifies the groups."""

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """Those of the value."""
        return self.inner.bounds

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        others = (name for function in self._functions for name in function.columns)
        return tuple(dict.fromkeys((*self.inner.columns, *others)))

    @cached_property
    def work(self) -> int:  # type: ignore[override]
        """Steps that one row takes."""
        return self.inner.work + sum(function.work for function in self._functions)

    @cached_property
    def identity(self) -> str | None:
        """Canonical text."""
        parts = [self.inner.identity, *(function.identity for function in self._functions)]
        return None if None in parts else encode_facts({**self._facts(), "of": parts})

    @cached_property
    def direct(self) -> Direct | None:
        """The same on arrays, where that is possible."""
        value = self.inner.direct
        if value is None or any(one.direct is None and not self._is_looked_up(one) for one in self._functions):
            return None
        return partial(self._on_arrays, value)

    def _is_looked_up(self, function: RowFunction) -> bool:
        return len(function.columns) == 1 and function.columns[0] in self.lookups

    def _on_arrays(self, value: Direct, columns: Mapping[str, NDArray[Any]]) -> Values:
        return self._outcomes(self._numbers(columns, arrays=True), value(columns))

    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return each row's outcome, or its group and value."""
        return self._outcomes(self._numbers(rows, arrays=False), self.inner.evaluate(rows))

    def _outcomes(self, numbers: Numbers, values: Values) -> Values:
        if isinstance(self.inner, Share):
            if values.dtype.kind == "f":  # NaN outside `where`
                numbers = np.where(np.isnan(values), -1, numbers)
                values = values == 1
            return np.where(numbers < 0, 0, 2 * numbers + 1 + values.astype(np.int64))
        if self.statistic.outcomes == 3:  # one group, as `Mean` says it
            return np.where(numbers < 0, np.nan, values)
        group = np.where((numbers < 0) | np.isnan(values), np.nan, numbers)
        return np.stack([group, values], axis=1).astype(np.float64, copy=False)


@dataclass(frozen=True)
class Grouped(InGroups):
    """A share or a mean by the values of one or more keys; a group is a tuple of values, one for each key."""

    inner: Share | Mean
    keys: tuple[RowFunction, ...]
    groups: tuple[tuple[Category, ...], ...]

    def part(self, start: int, stop: int) -> "Grouped":
        """Return the same question of some of the groups."""
        return replace(self, groups=self.groups[start:stop])

    @cached_property
    def statistic(self) -> Statistic:
        """The mean of every group."""
        return GroupMean(len(self.groups))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """What each group is called."""
        return tuple(", ".join(map(str, group)) for group in self.groups)

    @cached_property
    def text(self) -> str:
        """How it reads."""
        by = ", ".join(key.text for key in self.keys)
        shown = ", ".join(_group_text(group) for group in self.groups[:SHOWN])
        more = f" and {len(self.groups) - SHOWN} more" if len(self.groups) > SHOWN else ""
        return f"{self.inner.text} by {by} over {shown}{more}"

    @property
    def _functions(self) -> tuple[RowFunction, ...]:
        return self.keys

    def _facts(self) -> dict[str, Any]:  # the order of the groups is part of the question
        return {"kind": "groups", "groups": [[literal_text(one) for one in group] for group in self.groups]}

    @cached_property
    def lookups(self) -> dict[str, Lookup]:  # type: ignore[override]
        """Text columns that are only compared with the groups."""
        read = [*self.inner.columns, *(name for key in self.keys for name in key.columns)]
        return {
            key.columns[0]: partial(_positions, listed=listed)
            for key, listed in zip(self.keys, self._listed, strict=True)
            if key.type is Type.STRING and _is_column(key) and read.count(key.columns[0]) == 1
        }

    @cached_property
    def _listed(self) -> tuple[tuple[Category, ...], ...]:
        """For every key, the values that some group has."""
        return tuple(tuple(dict.fromkeys(group[place] for group in self.groups)) for place in range(len(self.keys)))

    @cached_property
    def _table(self) -> Numbers:
        """From the positions of a row's values in `_listed`, the last being "none of them", to its group's number."""
        table = np.full([len(listed) + 1 for listed in self._listed], -1, dtype=np.int64)
        for number, group in enumerate(self.groups):
            table[tuple(listed.index(value) for listed, value in zip(self._listed, group, strict=True))] = number
        return table

    def _numbers(self, rows: Any, *, arrays: bool) -> Numbers:
        found = []
        for key, listed in zip(self.keys, self._listed, strict=True):
            if arrays and self._is_looked_up(key):
                found.append(rows[key.columns[0]])  # the row source has done it
            else:
                values = key.direct(rows) if arrays and key.direct is not None else key.series(rows)
                found.append(_positions(values, listed))
        return np.asarray(self._table[tuple(found)])


@dataclass(frozen=True)
class Between(InGroups):
    """A share or a mean in two groups given by conditions; a row that meets both is in neither."""

    inner: Share | Mean
    first: RowFunction
    second: RowFunction | None  # None: all rows that are not in the first

    @cached_property
    def statistic(self) -> Statistic:
        """The difference of two means."""
        return Difference()

    @cached_property
    def text(self) -> str:
        """How it reads."""
        other = f"not {self.first.text}" if self.second is None else self.second.text
        return f"difference in {self.inner.text} between {self.first.text} and {other}"

    @property
    def _functions(self) -> tuple[RowFunction, ...]:
        return (self.first,) if self.second is None else (self.first, self.second)

    def _facts(self) -> dict[str, Any]:
        return {"kind": "difference", "rest": self.second is None}

    def _numbers(self, rows: Any, *, arrays: bool) -> Numbers:
        conditions = []
        for function in self._functions:
            values = function.direct(rows) if arrays and function.direct is not None else function.series(rows)
            conditions.append(booleans(values))
        first = conditions[0]
        if self.second is None:
            return np.where(first, 0, 1)
        second = conditions[1]
        return np.where(first & ~second, 0, np.where(second & ~first, 1, -1))


def _is_column(key: RowFunction) -> bool:
    return len(key.columns) == 1 and key.text in (identifier(key.columns[0]), str(pl.col(key.columns[0])))


def _positions(values: pl.Series | NDArray[Any], listed: Sequence[Category]) -> Numbers:
    """Return the place of every value in the list; the list's length for others, NULL included."""
    other = len(listed)
    if isinstance(values, np.ndarray):
        if values.dtype == np.uint64:
            values = np.minimum(values, LARGEST).astype(np.int64)  # as they are everywhere
        order = np.argsort(np.asarray(listed))
        ordered = np.asarray(listed)[order]
        places = np.minimum(np.searchsorted(ordered, values), other - 1)
        return np.where(ordered[places] == values, order[places], other)
    if values.dtype == pl.String and values.len() <= FEW_TEXTS:
        known = {text: place for place, text in enumerate(listed)}
        return np.array([known.get(text, other) for text in values.to_list()], dtype=np.int64)
    if values.dtype == pl.String:
        codes: NDArray[Any] = values.cast(pl.Enum([str(one) for one in listed]), strict=False).to_physical().to_numpy()
        return (np.nan_to_num(codes, nan=other) if codes.dtype.kind == "f" else codes).astype(np.int64)
    values_of = pl.Series(listed, dtype=values.dtype, strict=False)
    return values.replace_strict(values_of, range(other), default=other, return_dtype=pl.Int64).to_numpy()


def _group_text(group: tuple[Category, ...]) -> str:
    texts = [literal_text(value) for value in group]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
