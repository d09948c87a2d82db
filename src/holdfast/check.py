"""The one place that words range errors: `<name> must be <rule>; got <value>.` Refusals end at the caller's line.

>>> positive(rows_per_query=0)
Traceback (most recent call last):
    ...
holdfast.errors.InvalidArgument: rows_per_query must be positive; got 0.
"""

import os
import sys
import warnings
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, isfunction, signature
from math import isfinite
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

from holdfast.errors import HoldfastError, InvalidArgument

FULL_TRACEBACKS = "HOLDFAST_FULL_TRACEBACKS"  # a variable of the environment, for those who work on holdfast

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")


def _refuse(name: str, rule: str, value: object, hint: str = "") -> InvalidArgument:
    return InvalidArgument(f"{name} must be {rule}; got {value!r}.{hint}", name=name)


def percent(value: float) -> str:
    """Say how a percentage is written, if this can be one."""
    return f" For {value:g} % write {value / 100:g}." if 2 <= value <= 100 else ""


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
            hint = f" Write {int(value):_}." if isinstance(value, float) and value.is_integer() else ""
            raise _refuse(name, f"a whole number of at least {minimum}", value, hint)


def probability(**named: Any) -> None:
    """Each argument lies strictly between 0 and 1."""
    number(**named)
    for name, value in named.items():
        if not 0 < value < 1:
            raise _refuse(name, "strictly between 0 and 1", value, percent(value))


def share(**named: Any) -> None:
    """Each argument lies in [0, 1]."""
    number(**named)
    for name, value in named.items():
        if not 0 <= value <= 1:
            raise _refuse(name, "between 0 and 1", value, percent(value))


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

    Its refusals end at the caller's line, as those of `public` do.

    >>> options(lambda *, rows: rows)(row=3)
    Traceback (most recent call last):
        ...
    holdfast.errors.InvalidArgument: There is no option 'row'. Did you mean 'rows'?
    """

    @wraps(function)
    def checked(*args: P.args, **named: P.kwargs) -> R:
        __tracebackhide__ = True
        try:
            return function(*args, **named)
        except HoldfastError as error:
            cut(error)
            raise
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


def public(cls: type[C]) -> type[C]:
    """Make the refusals of a class end at the caller's line: the way to them says nothing about a user's mistake.

    Only a `HoldfastError` is cut short, which is what holdfast refuses; any other error would be a bug, and all of its
    way is shown.
    """
    for name, method in list(vars(cls).items()):
        if isfunction(method) and not name.startswith("_"):
            setattr(cls, name, _refusing(method))
    return cls


def _refusing(function: Callable[P, R]) -> Callable[P, R]:
    @wraps(function)
    def refusing(*args: P.args, **named: P.kwargs) -> R:
        __tracebackhide__ = True  # IPython and pytest then leave this frame out, too
        try:
            return function(*args, **named)
        except HoldfastError as error:
            cut(error)
            raise

    return refusing


def cut(error: HoldfastError) -> None:
    """Leave the way to a refusal out. What it was raised in the middle of stays, unless it says `from None` itself.

    That may be a bug, and a refusal to let go of something after it.
    """
    if not os.environ.get(FULL_TRACEBACKS):
        error.with_traceback(None)


def warn(sentence: str, category: type[Warning]) -> None:
    """Warn at the line outside of holdfast that led here."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "holdfast":
        level, frame = level + 1, frame.f_back
    warnings.warn(sentence, category, stacklevel=level)


_NAMED = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
