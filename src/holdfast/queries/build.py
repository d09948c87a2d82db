"""Build a checked query from what the caller asks. Every decision is made from the schema; no row is read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from functools import lru_cache
from itertools import pairwise, product
from math import prod
from numbers import Integral, Real
from typing import Any, TypeAlias, TypeVar

import polars as pl

from holdfast import check
from holdfast.errors import HoldfastError, InvalidArgument, InvalidQuery
from holdfast.queries.evaluate import Expression, RowFunction
from holdfast.queries.from_python import BatchFunction, from_function, from_polars
from holdfast.queries.groups import Between, Grouped, InGroups
from holdfast.queries.histogram import Bins, Histogram, HistogramWithin
from holdfast.queries.measures import AtMost, Mean, Share, Sliced, Total
from holdfast.queries.node import identifier, numbers_in, time_literal, with_article
from holdfast.queries.parse import from_text
from holdfast.queries.query import Function, Query
from holdfast.schema import Category, Schema, SchemaKey, Type

QueryLike: TypeAlias = str | pl.Expr | BatchFunction  # SQL, a Polars expression, or a function of a frame of rows
Group: TypeAlias = Category | tuple[Category, ...]  # a value, or one of each key
Groups: TypeAlias = Sequence[Category | Sequence[Category]] | Mapping[str, Sequence[Category]]  # or values by key

Q = TypeVar("Q", bound=Query)

MOST_CATEGORIES = 10_000
MOST_SLICES = 30


def rowwise(query: QueryLike, schema: Schema) -> RowFunction:
    """Return SQL text, a Polars expression, or a function of a frame of rows, as a checked function of one row."""
    if isinstance(query, pl.Expr):
        return from_polars(query, schema)
    if callable(query):
        return from_function(query, schema)
    return from_text(query, schema)


def build_mean(
    query: QueryLike,
    schema: Schema,
    *,
    within: tuple[float, float] | None = None,
    where: QueryLike | None = None,
    option: str = "within",
) -> Share | Mean:
    """Return a share (boolean query) or a bounded mean (numeric query with `within`), over all rows or a group.

    The bounds of a boolean query are (0, 1); `within` may be left out or say just that. Other bounds are refused,
    because nobody means to clip or stretch yes and no. Values outside them are clipped; only rows for which `where` is
    true count. A refusal calls the range by the name of the `option`.
    """
    bounds = None if within is None else check.within(option, within)
    if isinstance(query, str) and (where is None or isinstance(where, str)):
        return _mean_of_text(query, schema.key, bounds, where, option)
    return _mean(query, schema, bounds, where, option)


@lru_cache(maxsize=4096)
def _mean_of_text(
    query: str, key: SchemaKey, bounds: tuple[float, float] | None, where: str | None, option: str
) -> Share | Mean:
    return _mean(query, key.schema, bounds, where, option)


def _mean(
    query: QueryLike, schema: Schema, bounds: tuple[float, float] | None, where: QueryLike | None, option: str
) -> Share | Mean:
    value = rowwise(query, schema)
    group = condition(where, schema)
    if value.type is Type.BOOL:
        if bounds not in (None, (0.0, 1.0)):
            raise InvalidArgument(f"{option} must be left out for a yes-or-no query; got {bounds}.", name=option)
        return Share(value, group).complete()
    if not value.type.is_number:
        way = f" Ask for a share, {value.text} = '...', or for a histogram.{numbers_in(value.text)}"
        way = way if value.type is Type.STRING else ""
        raise InvalidQuery(
            f"A mean needs numbers or yes-or-no values; '{value.text}' is {with_article(value.type)}.{way}"
        )
    return Mean(value, range_within(value, bounds, option), group).complete()


CLIPPED = "values outside are clipped"


def range_within(
    value: RowFunction, within: tuple[float, float] | None, option: str = "within", outside: str = CLIPPED
) -> tuple[float, float]:
    """Return the range of a number: the one given, or else the one that follows from declared bounds.

    A refusal calls it by the name of the `option`, and says what becomes of values `outside`.
    """
    found = value.range if within is None else within
    if found is not None:
        return check.within(option, found)
    raise InvalidArgument(
        f"{option} must say the range of '{value.text}', low and high, such as {option}=(0, 100)."
        f" {undeclared(value, outside)}",
        name=option,
    )


def undeclared(value: RowFunction, outside: str = CLIPPED) -> str:
    """Explain why a number needs a range, and how to declare bounds for the columns it reads."""
    names = [column.name for column in value.reads.values() if column.bounds is None and column.type.is_number]
    why = f"It is declared, never read from the data; {outside}."
    if _follows(value, (0.0, 1.0)):
        return f"{why} {declare_once(names)}" if names else why
    if not _follows(value, (1.0, 2.0)):  # declaring bounds of columns would not suffice
        return why
    above = "It follows from declared bounds that begin above 0."
    return f"{why} {declare_once(names)} Here low must be above 0." if names else f"{why} {above}"


def _follows(value: RowFunction, bounds: tuple[float, float]) -> bool:
    """Whether the range of a number would follow if all numbers that it reads had these bounds."""
    columns = [replace(one, bounds=bounds if one.type.is_number else None) for one in value.reads.values()]
    if value.text in [str(pl.col(one.name)) for one in columns]:
        return True
    try:
        return from_text(value.text, Schema(tuple(columns))).range is not None
    except HoldfastError:
        return False  # of a Polars expression or a function, no range follows


def declare_once(columns: Sequence[str], what: str = "bounds") -> str:
    """Explain in Python syntax how to declare bounds or categories once; other interfaces substitute their own."""
    example = {"bounds": "(low, high)", "categories": "[...]"}[what]
    pairs = ", ".join(f"{name!r}: {example}" for name in columns)
    published = " Instead of a list, 'published' takes the texts that occur, where everybody may know them."
    return f"To declare it once, open the session with {what}={{{pairs}}}.{published if what == 'categories' else ''}"


def build_at_most(query: QueryLike, threshold: float, schema: Schema, *, where: QueryLike | None = None) -> AtMost:
    """Return the share of values at most `threshold`, among rows that have a value (and are inside `where`)."""
    check.number(threshold=threshold)
    value = rowwise(query, schema)
    if not value.type.is_number:
        way = numbers_in(value.text) if value.type is Type.STRING else ""
        raise InvalidQuery(f"A quantile needs numbers; '{value.text}' is {with_article(value.type)}.{way}")
    return AtMost(value, float(threshold), condition(where, schema))


def build_histogram(
    query: QueryLike,
    schema: Schema,
    *,
    categories: Sequence[Category] | None = None,
    bins: int | Sequence[float] | None = None,
    within: tuple[float, float] | None = None,
    where: QueryLike | None = None,
) -> Histogram | Bins | HistogramWithin:
    """Return a histogram of all rows, or of those for which `where` is true.

    It is over `categories`, the values to count, in order; or over `bins`: increasing edges, or how many bins of equal
    width there are `within` the range of the value. Each bin includes its left edge but not its right one.
    """
    value = rowwise(query, schema)
    if categories is None and bins is None:
        categories = declared_categories(value, schema)
    if categories is None and bins is None and value.type is Type.FLOAT:
        raise InvalidArgument(
            "A histogram of numbers needs bins: their edges, such as 0, 15, 60, or how many there are within a range."
            " They are declared, never read from the data.",
            name="bins",
        )
    if categories is None and bins is None:
        raise InvalidArgument(
            f"A histogram needs either categories or bins: what is counted is declared, never read from the data."
            f" {declare_once(value.columns, 'categories')}",
            name="categories",
        )
    if categories is not None and bins is not None:
        raise InvalidArgument("Give categories or bins, not both.", name="categories")
    if within is not None and not isinstance(bins, Integral):
        raise InvalidArgument("within is the range of bins of equal width: say in bins how many.", name="within")
    if bins is not None:
        if not value.type.is_number:
            raise InvalidQuery(f"Bins need numbers; '{value.text}' is {with_article(value.type)}. Use categories.")
        built: Histogram | Bins = Bins(value, _edges(bins, value, within))
    else:
        built = _kept_by(value)(Histogram, value, categories_of(categories, value.type))
    group = condition(where, schema)
    return built if group is None else HistogramWithin(built, group)


def _made(kind: Callable[..., Q], *facts: Any) -> Q:
    return kind(*facts)


# Asking the same text again returns the same query object, with its cached properties already computed. Listed values
# have the type of the expression they are compared with, so the cache never confuses 1, 1.0 and True.
_kept = lru_cache(maxsize=1024)(_made)


def _kept_by(*functions: Function) -> Callable[..., Any]:
    """Return the factory for a query of these functions: cached, unless one of them is a Python function."""
    return _made if any(function.identity is None for function in functions) else _kept


def build_total(
    query: QueryLike, schema: Schema, *, within: tuple[float, float] | None = None, where: QueryLike | None = None
) -> Total:
    """Return what each row adds to a sum. Bounds are widened to include 0, which rows that do not count add."""
    mean = build_mean(query, schema, within=within, where=where)
    if not isinstance(mean, Mean):
        raise InvalidArgument("A total is of numbers; count rows that meet a condition with `count`.", name="query")
    low, high = mean.bounds
    return Total(mean.value, (min(0.0, low), max(0.0, high)), mean.where, mean.bounds).complete()


AUTO = "auto"  # instead of cuts: they are found out


def build_slices(measure: Share | Mean | InGroups, slices: Sequence[float] | str) -> Sliced:
    """Return the mean of a number, or that of each group, its range cut into slices at increasing points inside it."""
    if not isinstance(measure.inner if isinstance(measure, InGroups) else measure, Mean):
        raise InvalidArgument("slices are for the mean of a number; a share has only 0 and 1.", name="slices")
    if isinstance(slices, str):
        check.one_of("slices", slices, (AUTO, "none"))
        return Sliced(measure, ())
    low, high = measure.bounds
    cuts = _numbers("slices", slices)
    edges = [low, *cuts, high]
    if len(cuts) > MOST_SLICES or any(first >= last for first, last in pairwise(edges)):
        raise InvalidArgument(
            f"slices must be at most {MOST_SLICES} increasing numbers inside the range ({low:g}, {high:g}).",
            name="slices",
        )
    return Sliced(measure, tuple((edge - low) / (high - low) for edge in edges), cuts=tuple(cuts))


def declared_categories(value: RowFunction, schema: Schema) -> tuple[Any, ...] | None:
    """Return the declared categories of a bare column, or the values that an expression's text lists."""
    if value.type is Type.BOOL:
        return (True, False)
    if isinstance(value, Expression) and value.values is not None:
        return value.values
    if len(value.columns) != 1 or not isinstance(value, Expression):
        return None
    (name,) = value.columns
    return schema[name].categories if value.text in (identifier(name), str(pl.col(name))) else None


def build_groups(
    query: QueryLike,
    schema: Schema,
    *,
    by: QueryLike | Sequence[QueryLike],
    groups: Groups | None,
    within: tuple[float, float] | None = None,
    where: QueryLike | None = None,
) -> Grouped:
    """Return a share or a mean in every declared group: rows with the same values of the expressions in `by`.

    For one expression, `groups` are its values. For several, a list of tuples, or a list of values for each expression,
    which means all combinations. None: all combinations of the declared categories.
    """
    inner = build_mean(query, schema, within=within, where=where)
    listed: list[Any] = list(by) if isinstance(by, list | tuple) else [by]
    if not listed:
        raise InvalidArgument("by must name at least one column.", name="by")
    keys = tuple(rowwise(one, schema) for one in listed)
    for place, key in enumerate(keys):
        if key.identity is not None and key.identity in [other.identity for other in keys[:place]]:
            raise InvalidArgument(f"by must be distinct; got {key.text} twice.", name="by")
    grouped: Grouped = _kept_by(*inner.functions, *keys)(Grouped, inner, keys, _groups(groups, keys, schema))
    return grouped


def build_difference(
    query: QueryLike,
    schema: Schema,
    *,
    group: QueryLike,
    other: QueryLike | None,
    within: tuple[float, float] | None = None,
    where: QueryLike | None = None,
) -> Between:
    """Return a share or a mean in two groups, given by conditions; without `other`, the rest of the rows."""
    inner = build_mean(query, schema, within=within, where=where)
    first, second = (condition(one, schema, name=name) for name, one in (("group", group), ("other", other)))
    if first is None:
        raise InvalidArgument("group must be a condition; got None.", name="group")
    return Between(inner, first, second)


def condition(where: QueryLike | None, schema: Schema, name: str = "where") -> RowFunction | None:
    """Return a condition as a checked boolean function of one row; None if it is left out."""
    if where is None:
        return None
    group = rowwise(where, schema)
    if group.type is not Type.BOOL:
        raise InvalidQuery(f"{name} must be a yes-or-no condition; '{group.text}' is {with_article(group.type)}.")
    return group


def _numbers(name: str, values: Any) -> list[float]:
    listed = _listed(name, values)
    check.number(**{f"{name}[{place}]": value for place, value in enumerate(listed)})
    return [float(value) for value in listed]


def _edges(bins: int | Sequence[float], value: RowFunction, within: tuple[float, float] | None) -> tuple[float, ...]:
    if isinstance(bins, Integral):
        check.whole(bins=bins)
        check.at_most("what one histogram holds", MOST_CATEGORIES, bins=bins)
        bins = _equal(int(bins), *range_within(value, within, outside="values outside are counted as other"))
    edges = _numbers("bins", bins)
    if len(edges) < 2:
        raise InvalidArgument(f"bins must be at least two edges; got {len(edges)}.", name="bins")
    if any(low >= high for low, high in pairwise(edges)):
        raise InvalidArgument("bins must be increasing.", name="bins")
    return tuple(edges)


def _equal(count: int, low: float, high: float) -> list[float]:
    """Return the edges of bins of equal width, in few digits: 0.3, where adding widths gives 0.30000000000000004."""
    inner = [float(f"{low + (high - low) * (place / count):.12g}") for place in range(1, count)]
    return [low, *inner, high]


def _listed(name: str, values: Any) -> list[Any]:
    if isinstance(values, str | bytes | dict) or not hasattr(values, "__iter__"):
        what = "a list"
        if isinstance(values, str):
            what += f", such as [{values!r}]"
        elif name == "bins":
            what += " of edges, such as [0, 15, 60], or how many there are"
        raise InvalidArgument(f"{name} must be {what}; got {type(values).__name__}.", name=name)
    listed = list(values)
    if not 1 <= len(listed) <= MOST_CATEGORIES + 1:
        raise InvalidArgument(f"{name} must be a list of 1 to {MOST_CATEGORIES} values; got {len(listed)}.", name=name)
    return listed


def categories_of(categories: Any, type_: Type, name: str = "categories") -> tuple[Any, ...]:
    """Return a list of categories as distinct values of a type, or refuse it, calling it `name`."""
    listed = _listed(name, categories)
    if type_ is not Type.STRING or not all(type(one) is str for one in listed):  # most lists are plain texts
        listed = [_category(f"{name}[{place}]", value, type_) for place, value in enumerate(listed)]
    return _distinct(name, listed)


def _distinct(name: str, listed: list[Any]) -> tuple[Any, ...]:
    if len(listed) > MOST_CATEGORIES:
        raise InvalidArgument(f"{name} must be at most {MOST_CATEGORIES}; got {len(listed)}.", name=name)
    if len(set(listed)) < len(listed):
        twice = next(value for place, value in enumerate(listed) if value in listed[:place])
        raise InvalidArgument(f"{name} must be distinct; got {twice!r} twice.", name=name)
    return tuple(listed)


def _groups(groups: Any, keys: tuple[RowFunction, ...], schema: Schema) -> tuple[tuple[Any, ...], ...]:
    """Return groups as tuples with a value for every key: those given, or all combinations of declared categories."""
    if groups is None:
        declared = []
        for key in keys:
            categories = declared_categories(key, schema)
            if categories is None:
                raise InvalidArgument(
                    f"groups must list the values of {key.text} to answer for. They are declared, never read"
                    f" from the data. {declare_once(key.columns, 'categories')}",
                    name="groups",
                )
            declared.append(categories)
        return combinations(declared)
    if len(keys) == 1:
        return tuple((value,) for value in categories_of(groups, keys[0].type, "groups"))
    if isinstance(groups, Mapping):
        if len(groups) != len(keys):
            raise InvalidArgument(
                f"groups must have a list for each of {len(keys)} expressions; got {len(groups)}.", name="groups"
            )
        every = [categories_of(one, key.type, "groups") for one, key in zip(groups.values(), keys, strict=True)]
        return combinations(every)
    found = []
    for place, group in enumerate(_listed("groups", groups)):
        if isinstance(group, str) or not isinstance(group, Sequence) or len(group) != len(keys):
            raise InvalidArgument(
                f"groups[{place}] must be a list of {len(keys)} values, one for each expression in by; got {group!r}.",
                name="groups",
            )
        found.append(tuple(_category(f"groups[{place}]", one, key.type) for one, key in zip(group, keys, strict=True)))
    return _distinct("groups", found)


def combinations(lists: Sequence[Sequence[Any]]) -> tuple[tuple[Any, ...], ...]:
    """Return all combinations of a value of each list, or refuse them before there are more than memory can hold."""
    if prod(map(len, lists)) > MOST_CATEGORIES:
        raise InvalidArgument(
            f"groups must be at most {MOST_CATEGORIES}; all combinations of these values are more. Ask about fewer"
            " values, or fewer expressions at once.",
            name="groups",
        )
    return tuple(product(*lists))


def _category(place: str, value: Any, type_: Type) -> Any:
    """Return a category as a value of the expression's type; `place` names it in a refusal."""
    if hasattr(value, "item") and not isinstance(value, str):
        value = value.item()  # numpy scalars
    match type_:
        case Type.BOOL if isinstance(value, bool):
            return value
        case Type.STRING if isinstance(value, str):
            return value
        case Type.INT | Type.FLOAT if not isinstance(value, bool) and isinstance(value, Real) and check.fits(value):
            return _number(place, value, type_)
        case Type.DATE if isinstance(value, str) or (isinstance(value, date) and not isinstance(value, datetime)):
            return time_literal(value, type_).value
        case Type.DATETIME if isinstance(value, str | date):
            return time_literal(value, type_).value
    raise InvalidArgument(f"{place} must be {with_article(type_)}; got {value!r}.", name=place.partition("[")[0])


def _number(place: str, value: Any, type_: Type) -> int | float:
    if type_ is Type.FLOAT:
        return float(value) + 0.0  # -0.0 and 0.0 are one category
    if int(value) != value or not -(2**63) <= int(value) < 2**63:
        raise InvalidArgument(f"{place} must be an integer; got {value!r}.", name=place.partition("[")[0])
    return int(value)
