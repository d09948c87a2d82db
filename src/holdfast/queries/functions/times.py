"""Dates and timestamps, kept within the years 1 to 9999; timestamps are in UTC."""

from collections.abc import Sequence
from datetime import date, datetime

import polars as pl

from holdfast.queries.functions.operation import Operation
from holdfast.queries.node import Node
from holdfast.schema import Type

FIRST_DAY, LAST_DAY = date(1, 1, 1), date(9999, 12, 31)
FIRST_MOMENT, LAST_MOMENT = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)
EPOCH = date(1970, 1, 1)
_MICROSECONDS = {"DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000}
_TRUNCATE = {
    "YEAR": "1y", "QUARTER": "1q", "MONTH": "1mo", "WEEK": "1w", "DAY": "1d",
    "HOUR": "1h", "MINUTE": "1m", "SECOND": "1s",
}  # fmt: skip
TRUNCATE_PARTS = frozenset(_TRUNCATE)
DIFF_PARTS = frozenset(_MICROSECONDS) | {"YEAR", "MONTH"}
_GETTERS = {
    "YEAR": "year", "QUARTER": "quarter", "MONTH": "month", "WEEK": "week", "DAY": "day", "DOY": "ordinal_day",
    "ISODOW": "weekday", "HOUR": "hour", "MINUTE": "minute", "SECOND": "second",
}  # fmt: skip
EXTRACT_PARTS = frozenset(_GETTERS) | {"DOW"}
CLOCK_PARTS = frozenset({"HOUR", "MINUTE", "SECOND"})


def days(when: pl.Expr) -> pl.Expr:
    """Return a date as days since 1970."""
    return when.cast(pl.Int32).cast(pl.Int64)


def microseconds(when: pl.Expr, type_: Type | None) -> pl.Expr:
    """Return a date or timestamp as microseconds since 1970."""
    return days(when) * _MICROSECONDS["DAY"] if type_ is Type.DATE else when.cast(pl.Int64)


def within_years(when: pl.Expr, type_: Type) -> pl.Expr:
    """Move what lies beyond the years 1 to 9999 to the nearest day (or moment) inside."""
    if type_ is Type.DATE:
        return when.clip(FIRST_DAY, LAST_DAY)
    return when.clip(FIRST_MOMENT, LAST_MOMENT)


def _extract(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
    if node.value == "DOW":  # 0 is Sunday
        return args[0].dt.weekday().cast(pl.Int64) % 7
    got: pl.Expr = getattr(args[0].dt, _GETTERS[node.value])()
    return got.cast(pl.Int64)


def _truncate(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
    type_ = node.args[0].type or Type.DATE
    return within_years(args[0].dt.truncate(_TRUNCATE[node.value]), type_)


def _difference(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
    """Count the boundaries between start and end, as SQL does: 23:59 to 00:01 is one day."""

    def ticks(when: pl.Expr, type_: Type | None) -> pl.Expr:
        if node.value == "YEAR":
            return when.dt.year().cast(pl.Int64)
        if node.value == "MONTH":
            return when.dt.year().cast(pl.Int64) * 12 + when.dt.month().cast(pl.Int64)
        if node.value == "DAY" and type_ is Type.DATE:
            return days(when)
        return microseconds(when, type_) // _MICROSECONDS[node.value]

    start, end = (ticks(arg, given.type) for given, arg in zip(node.args, args, strict=True))
    return end - start


def _shift(node: Node, args: Sequence[pl.Expr]) -> pl.Expr:
    first, last = (FIRST_DAY - EPOCH).days, (LAST_DAY - EPOCH).days
    start, by = days(args[0]).cast(pl.Float64), args[1].cast(pl.Float64, strict=False)  # floats do not overflow
    shifted = start + by if node.op == "DATE_ADD" else start - by
    return shifted.clip(float(first), float(last)).cast(pl.Int32, strict=False).cast(pl.Date)


OPERATIONS: dict[str, Operation] = {
    "EXTRACT": Operation(("date or timestamp",), Type.INT, _extract),
    "DATE_TRUNC": Operation(("date or timestamp",), None, _truncate),
    "DATE_DIFF": Operation(("date or timestamp", "date or timestamp"), Type.INT, _difference, copies=(2,)),
    "DATE_ADD": Operation(("date", "whole number"), Type.DATE, _shift),
    "DATE_SUB": Operation(("date", "whole number"), Type.DATE, _shift),
}
