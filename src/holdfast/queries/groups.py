"""The mean of a value in several groups at once: groups of rows that have the same values, or that meet a condition."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.cached import cached_property
from holdfast.guarantees.statistic import Difference, GroupMean, Statistic
from holdfast.queries.evaluate import RowFunction, booleans, nan_unless
from holdfast.queries.histogram import Numbers, Position, places
from holdfast.queries.measures import Mean, Share, encode_facts
from holdfast.queries.node import literal_text
from holdfast.queries.query import Composed, Function, OnePass, RowValues, Values
from holdfast.schema import Category

OUTSIDE = 0  # the outcome of a row in no group; in group g, a zero is outcome 2g + 1 and a one is 2g + 2
SHOWN = 8  # groups that a text lists
_ZEROS_OF_TWO = np.array([OUTSIDE, 1, 3, OUTSIDE])  # in neither of two groups, in the first, in the second, in both


class InGroups(Composed):
    """A share or a mean, and the group of each row. A row in no group, or without a value, is outside."""

    inner: Share | Mean

    @abstractmethod
    def _zeros(self, row_values: Sequence[RowValues]) -> Numbers:
        """Return for each row the outcome of a zero in its group, or OUTSIDE, from the values of `_deciding`."""

    @property
    @abstractmethod
    def _deciding(self) -> tuple[Function, ...]:
        """The functions that decide the group of a row."""

    @property
    @abstractmethod
    def each(self) -> "tuple[InGroups, ...]":
        """Every group alone, for a pass of its own."""

    @abstractmethod
    def _facts(self) -> dict[str, Any]:
        """What identifies the groups."""

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The bounds of the value."""
        return self.inner.bounds

    @cached_property
    def identity(self) -> str | None:
        """Canonical text."""
        parts = [self.inner.identity, *(function.identity for function in self._deciding)]
        return None if None in parts else encode_facts({**self._facts(), "of": parts})

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """The functions of the share or the mean, then those that decide the group."""
        return (*self.inner.functions, *self._deciding)

    def combined(self, row_values: Sequence[RowValues]) -> Values:
        """Return each row's outcome, or its group and value."""
        own = len(self.inner.functions)
        zeros: Numbers = self._zeros(row_values[own:])
        inside = zeros > OUTSIDE
        if isinstance(self.inner, Share):
            yes, *where = map(booleans, row_values[:own])
            for each in where:
                inside &= each
                zeros = zeros * each
            outcomes: Values = zeros + (yes & inside)
            return outcomes
        values: Any = self.inner.combined(row_values[:own])
        if self.statistic.outcomes == 3:  # one group, in the same form as `Mean`
            return nan_unless(inside, values)
        return np.stack([nan_unless(inside & ~np.isnan(values), zeros >> 1), values]).T  # each column is contiguous


@dataclass(frozen=True)
class Grouped(InGroups, OnePass):
    """A share or a mean by the values of one or more keys; a group is a tuple of values, one for each key."""

    inner: Share | Mean
    keys: tuple[RowFunction, ...]
    groups: tuple[tuple[Category, ...], ...]
    first: int = field(default=0, compare=False)  # of a pass: the place of its first group in the whole question

    @property
    def each(self) -> "tuple[Grouped, ...]":
        """Every group alone, for a pass of its own."""
        return self.in_passes(len(self.groups))

    def in_passes(self, passes: int) -> "tuple[Grouped, ...]":
        """Return this question once for each pass, with the groups divided about evenly among the passes."""
        if passes not in self._passes:
            count = len(self.groups)
            size = -(-count // passes)
            self._passes[passes] = tuple(
                replace(self, groups=self.groups[start : start + size], first=start) for start in range(0, count, size)
            )
        return self._passes[passes]

    def of_whole(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the counts of its own groups; every other draw is outside."""
        own = counts[2 * self.first : 2 * (self.first + len(self.groups)) + 1].copy()
        own[OUTSIDE] = counts.sum() - own[1:].sum()
        return own

    @cached_property
    def _passes(self) -> "dict[int, tuple[Grouped, ...]]":
        return {1: (self,)}

    @cached_property
    def statistic(self) -> Statistic:
        """The mean of every group."""
        return GroupMean(len(self.groups))

    @cached_property
    def text(self) -> str:
        """The question in words."""
        by = ", ".join(key.text for key in self.keys)
        shown = ", ".join(_group_text(group) for group in self.groups[:SHOWN])
        more = f" and {len(self.groups) - SHOWN} more" if len(self.groups) > SHOWN else ""
        return f"{self.inner.text} by {by} over {shown}{more}"

    @cached_property
    def _deciding(self) -> tuple[Function, ...]:
        return tuple(map(Position, self.keys, self._listed))

    def _facts(self) -> dict[str, Any]:  # the order of the groups is part of the question
        return {"kind": "groups", "groups": [[literal_text(one) for one in group] for group in self.groups]}

    @cached_property
    def _listed(self) -> tuple[tuple[Category, ...], ...]:
        """For every key, the values that occur in some group."""
        return tuple(tuple(dict.fromkeys(group[place] for group in self.groups)) for place in range(len(self.keys)))

    @cached_property
    def _table(self) -> Numbers:
        """Maps a row's positions in `_listed` (the last: not listed) to the outcome of a zero in its group."""
        table = np.full([len(listed) + 1 for listed in self._listed], OUTSIDE, dtype=np.int64)
        for number, group in enumerate(self.groups):
            place = tuple(listed.index(value) for listed, value in zip(self._listed, group, strict=True))
            table[place] = 2 * number + 1
        return table

    def _zeros(self, row_values: Sequence[RowValues]) -> Numbers:
        if len(row_values) == 1:
            return self._table.take(places(row_values[0]), mode="clip")  # a bounds check costs as much as the lookup
        return self._table[tuple(map(places, row_values))]


@dataclass(frozen=True)
class Between(InGroups):
    """A share or a mean in two groups given by conditions; a row that meets both is in neither."""

    inner: Share | Mean
    first: RowFunction
    second: RowFunction | None  # None: all rows that are not in the first
    only: int | None = None  # 0 or 1: only the first or the second group

    @property
    def each(self) -> "tuple[Between, Between]":
        """Either group alone, for a pass of its own."""
        return replace(self, only=0), replace(self, only=1)

    @cached_property
    def statistic(self) -> Statistic:
        """The difference of two means, or one of them."""
        return Difference() if self.only is None else GroupMean()

    @cached_property
    def text(self) -> str:
        """The question in words."""
        other = "all other rows" if self.second is None else self.second.text
        return f"difference in {self.inner.text} between {self.first.text} and {other}"

    @property
    def _deciding(self) -> tuple[Function, ...]:
        return (self.first,) if self.second is None else (self.first, self.second)

    def _facts(self) -> dict[str, Any]:
        return {"kind": "difference", "rest": self.second is None} | ({} if self.only is None else {"only": self.only})

    def _zeros(self, row_values: Sequence[RowValues]) -> Numbers:
        first = booleans(row_values[0])
        second = ~first if self.second is None else booleans(row_values[1])
        if self.only is not None:
            inside, outside = (first, second) if self.only == 0 else (second, first)
            return (inside & ~outside).astype(np.int64)
        return _ZEROS_OF_TWO.take(first.view(np.uint8) + 2 * second.view(np.uint8))


def _group_text(group: tuple[Category, ...]) -> str:
    texts = [literal_text(value) for value in group]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
