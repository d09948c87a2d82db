"""The questions one row can answer: a share, a mean, a place in a histogram."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.guarantees.statistic import GroupMean, OneMean, OneShare, OutcomeShares, Statistic
from holdfast.queries.expression import Rowwise
from holdfast.queries.node import literal_text
from holdfast.queries.query import Direct, Query, Values
from holdfast.schema import Type

_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode


SHARE, MEAN, GROUP = OneShare(), OneMean(), GroupMean()

silent = np.errstate(all="ignore")  # how the caller lets numpy complain must not show what is in the rows


def booleans(values: pl.Series) -> NDArray[np.bool_]:
    """Return truth per row; NULL is false."""
    if values.null_count():
        values = values & values.is_not_null()
    truth: NDArray[np.bool_] = values.to_numpy()
    return truth


def floats(values: pl.Series) -> NDArray[np.float64]:
    """Return numbers per row; NULL is NaN."""
    if values.dtype != pl.Float64:
        values = values.cast(pl.Float64, strict=False)
    numbers: NDArray[np.float64] = values.to_numpy()
    return numbers


def _together(*parts: Rowwise | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in parts if part is not None for name in part.columns))


def _identity(value: Rowwise, where: Rowwise | None, **facts: Any) -> str | None:
    if value.identity is None or (where is not None and where.identity is None):
        return None
    asked = {**facts, "value": value.identity, "where": None if where is None else where.identity}
    return _encode(asked)


def _where(where: Rowwise | None) -> str:
    return "" if where is None else f" where {where.text}"


def _inside(where: Rowwise | None, rows: pl.DataFrame) -> NDArray[np.bool_] | None:
    return None if where is None else booleans(where.series(rows))


def _directly(value: Rowwise, where: Rowwise | None, said: Callable[..., Values]) -> Direct | None:
    """Return how to evaluate on arrays: what `said` makes of the value, and of who is in the group."""
    of_value, of_where = value.direct, None if where is None else where.direct
    if of_value is None or (where is not None and of_where is None):
        return None
    if of_where is None:
        return lambda columns: said(of_value(columns), None)
    return lambda columns: said(of_value(columns), of_where(columns))


@dataclass(frozen=True)
class Share(Query):
    """How often a row says yes. A NULL predicate is no; with `where`, only rows for which that is true count."""

    value: Rowwise
    where: Rowwise | None = None

    @property
    def statistic(self) -> Statistic:
        """A share of all rows, or of a group."""
        return SHARE if self.where is None else GROUP

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return _together(self.value, self.where)

    @cached_property
    def text(self) -> str:
        """How it reads."""
        return f"share of {self.value.text}{_where(self.where)}"

    @cached_property
    def identity(self) -> str | None:
        """Canonical text."""
        return _identity(self.value, self.where, kind="share")

    @cached_property
    def direct(self) -> Direct | None:
        """The same on arrays, where that is possible."""
        return _directly(self.value, self.where, self._values)

    @silent
    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return yes or no per row; NaN outside the group."""
        return self._values(booleans(self.value.series(rows)), _inside(self.where, rows))

    @staticmethod
    def _values(said: NDArray[np.bool_], inside: NDArray[np.bool_] | None) -> Values:
        return said if inside is None else np.where(inside, said, np.nan)


@dataclass(frozen=True)
class Mean(Query):
    """The mean of a number, clipped to declared bounds. Rows without a value, or outside `where`, do not count."""

    value: Rowwise
    bounds: tuple[float, float] = (0.0, 1.0)
    where: Rowwise | None = None

    @property
    def statistic(self) -> Statistic:
        """A mean over all rows, or over those that have a value."""
        return GROUP if self.value.nullable or self.where is not None else MEAN

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return _together(self.value, self.where)

    @cached_property
    def text(self) -> str:
        """How it reads."""
        low, high = self.bounds
        return f"mean of {self.value.text} within [{low:.15g}, {high:.15g}]{_where(self.where)}"

    @cached_property
    def identity(self) -> str | None:
        """Canonical text."""
        return _identity(self.value, self.where, kind="mean", within=self.bounds)

    @cached_property
    def direct(self) -> Direct | None:
        """The same on arrays, where that is possible."""
        return _directly(self.value, self.where, self._values)

    @silent
    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return the value per row, rescaled from the bounds to [0, 1]; NaN where it does not count."""
        return self._values(floats(self.value.series(rows)), _inside(self.where, rows))

    @silent
    def _values(self, values: NDArray[Any], inside: NDArray[np.bool_] | None) -> Values:
        low, high = self.bounds
        said = np.clip(values.astype(np.float64, copy=False), low, high)
        said -= low
        said /= high - low
        np.minimum(said, 1.0, out=said)  # rounding may end a hair above; NaN stays NaN
        if self.statistic is MEAN:
            said[np.isnan(said)] = 0.0  # no NULL was announced: what is left (infinity minus infinity) counts low
        elif inside is not None:
            said[~inside] = np.nan
        return said


@dataclass(frozen=True)
class AtMost(Query):
    """How often a value is at most `threshold`, among rows that have one: what quantiles ask."""

    value: Rowwise
    threshold: float
    where: Rowwise | None = None

    @property
    def statistic(self) -> Statistic:
        """A share of all rows, or of those that have a value."""
        return GROUP if self.value.nullable or self.where is not None else SHARE

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return _together(self.value, self.where)

    @property
    def text(self) -> str:
        """How it reads."""
        return f"share of {self.value.text} <= {self.threshold:.15g}{_where(self.where)}"

    @property
    def identity(self) -> str | None:
        """Canonical text."""
        return _identity(self.value, self.where, kind="at_most", threshold=self.threshold)

    @silent
    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return yes or no per row; NaN where there is no value, or outside the group."""
        values = floats(self.value.series(rows))
        below = values <= self.threshold
        if self.statistic is SHARE:
            return below
        excluded = np.isnan(values)
        inside = _inside(self.where, rows)
        return np.where(excluded if inside is None else excluded | ~inside, np.nan, below)


@dataclass(frozen=True)
class Histogram(Query):
    """Which of the declared categories a row falls into; everything else, NULL included, is "other"."""

    value: Rowwise
    categories: tuple[Any, ...]

    @cached_property
    def statistic(self) -> Statistic:
        """The share of each category, then of "other"."""
        return OutcomeShares(len(self.categories) + 1)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return self.value.columns

    @property
    def labels(self) -> tuple[str, ...]:
        """What each outcome is called."""
        named = [str(category) for category in self.categories]
        return (*named, "other" if "other" not in named else "(other)")

    @property
    def text(self) -> str:
        """How it reads."""
        shown = ", ".join(literal_text(category) for category in self.categories[:8])
        more = f" and {len(self.categories) - 8} more" if len(self.categories) > 8 else ""
        return f"histogram of {self.value.text} over {shown}{more}"

    @property
    def identity(self) -> str | None:
        """Canonical text; the order of the categories is part of the question."""
        listed = [literal_text(category) for category in self.categories]
        return _identity(self.value, None, kind="histogram", categories=listed)

    @cached_property
    def _known(self) -> pl.Enum:
        return pl.Enum(self.categories)

    @silent
    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return the number of the category per row."""
        other = len(self.categories)
        values = self.value.series(rows)
        if self.value.type is Type.STRING:
            places: NDArray[Any] = values.cast(self._known, strict=False).to_physical().to_numpy()
            if places.dtype.kind == "f":  # numpy's way to say that some are missing
                places = np.nan_to_num(places, nan=other)
            return places.astype(np.int64)
        old = pl.Series(self.categories, dtype=values.dtype, strict=False)
        said: NDArray[np.int64] = values.replace_strict(
            old, range(other), default=other, return_dtype=pl.Int64
        ).to_numpy()
        return said


@dataclass(frozen=True)
class Bins(Query):
    """Which right-open bin [edge, next edge) a number falls into; everything else, NULL included, is "other"."""

    value: Rowwise
    edges: tuple[float, ...]

    @cached_property
    def statistic(self) -> Statistic:
        """The share of each bin, then of "other"."""
        return OutcomeShares(len(self.edges))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return self.value.columns

    @property
    def labels(self) -> tuple[str, ...]:
        """What each outcome is called."""
        pairs = zip(self.edges, self.edges[1:], strict=False)
        return (*(f"[{low:.15g}, {high:.15g})" for low, high in pairs), "other")

    @property
    def text(self) -> str:
        """How it reads."""
        low, high = self.edges[0], self.edges[-1]
        return f"histogram of {self.value.text} in {len(self.edges) - 1} bins over [{low:.15g}, {high:.15g})"

    @property
    def identity(self) -> str | None:
        """Canonical text."""
        return _identity(self.value, None, kind="bins", edges=self.edges)

    @silent
    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return the number of the bin per row."""
        values = floats(self.value.series(rows))
        other = len(self.edges) - 1
        codes = np.searchsorted(np.asarray(self.edges), values, side="right").astype(np.int64) - 1
        codes[(codes < 0) | (codes >= other)] = other  # NaN sorts beyond the last edge
        return codes
