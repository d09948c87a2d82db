"""The one place that words range errors: `<name> must be <rule>; got <value>.`

>>> positive(rows_per_query=0)
Traceback (most recent call last):
    ...
holdfast.errors.InvalidArgument: rows_per_query must be positive; got 0.
"""

from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from math import isfinite
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

from holdfast.errors import InvalidArgument

P = ParamSpec("P")
R = TypeVar("R")


def _refuse(name: str, rule: str, value: object) -> InvalidArgument:
    return InvalidArgument(f"{name} must be {rule}; got {value!r}.", name=name)


def _fits(value: Real | float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False


def number(**named: Any) -> None:
    """Each argument is a finite real number (booleans are not numbers)."""
    for name, value in named.items():
        if (type(value) is float or type(value) is int) and _fits(value):
            continue  # the common case: asking an abstract class takes ten times as long
        if isinstance(value, bool) or not isinstance(value, Real) or not _fits(value):
            raise _refuse(name, "a finite number", value)


def positive(**named: Any) -> None:
    """Each argument is a finite number above zero."""
    number(**named)
    for name, value in named.items():
        if not value > 0:
            raise _refuse(name, "positive", value)


def whole(minimum: int = 1, **named: Any) -> None:
    """Each argument is a whole number, at least `minimum` (10_000.0 is not: say 10_000)."""
    for name, value in named.items():
        if type(value) is int and value >= minimum:
            continue
        if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
            raise _refuse(name, f"a whole number of at least {minimum}", value)


def probability(**named: Any) -> None:
    """Each argument lies strictly between 0 and 1."""
    number(**named)
    for name, value in named.items():
        if not 0 < value < 1:
            raise _refuse(name, "strictly between 0 and 1", value)


def share(**named: Any) -> None:
    """Each argument lies in [0, 1]."""
    number(**named)
    for name, value in named.items():
        if not 0 <= value <= 1:
            raise _refuse(name, "between 0 and 1", value)


def at_most(limit_name: str, limit: float, **named: Any) -> None:
    """Each argument is at most `limit`, which has a name of its own."""
    number(**named)
    for name, value in named.items():
        if value > limit:
            raise _refuse(name, f"at most {limit_name} ({limit})", value)


def interval(name: str, value: Any) -> tuple[float, float]:
    """`value` is a pair of finite numbers, the first smaller; returned as floats."""
    try:
        low, high = value
    except (TypeError, ValueError):
        raise _refuse(name, "a pair (low, high)", value) from None
    number(**{f"{name}[0]": low, f"{name}[1]": high})
    first, last = float(low), float(high)  # compared as floats: two large whole numbers may be one float
    if not first < last or not isfinite(last - first):
        raise _refuse(name, "a pair (low, high) with low < high", value)
    return first, last


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """`value` is one of the words in `choices`."""
    if value not in choices:
        raise _refuse(name, "one of " + ", ".join(map(repr, choices)), value)


def options(function: Callable[P, R]) -> Callable[P, R]:
    """Make `function` refuse an option that it does not have in words, with the nearest that it has.

    >>> options(lambda *, rows: rows)(row=3)
    Traceback (most recent call last):
        ...
    holdfast.errors.InvalidArgument: There is no option 'row'. Did you mean 'rows'?
    """

    @wraps(function)
    def checked(*args: P.args, **named: P.kwargs) -> R:
        try:
            return function(*args, **named)
        except TypeError:
            declared = signature(function).parameters.items()
            known = [name for name, each in declared if each.kind in _NAMED and name != "self"]
            for name in named:
                if name not in known:
                    near = get_close_matches(name, known, n=1)
                    hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}."
                    raise InvalidArgument(f"There is no option {name!r}. {hint}", name=name) from None
            raise

    return checked


_NAMED = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
