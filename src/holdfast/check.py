"""The one place that words range errors: `<name> must be <rule>; got <value>.` Tracebacks end at the caller's line.

>>> positive(rows_per_query=0)
Traceback (most recent call last):
    ...
holdfast.errors.InvalidArgument: rows_per_query must be positive; got 0.
"""

import os
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, isfunction, signature
from math import inf, isfinite
from numbers import Integral, Real
from typing import Any, ParamSpec, TypedDict, TypeVar

from holdfast.errors import HoldfastError, InvalidArgument

TINIEST = 1e-290  # below, numbers lose digits: the ends of an interval could not be rounded outward
FULL_TRACEBACKS = "HOLDFAST_FULL_TRACEBACKS"  # environment variable, for developers of holdfast

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")


def _refuse(name: str, rule: str, value: object, hint: str = "") -> InvalidArgument:
    return InvalidArgument(f"{name} must be {rule}; got {value!r}.{hint}", name=name)


def percent(value: float) -> str:
    """Return a hint on how to write a percentage, if the value looks like one."""
    return f" For {value:g}% write {value / 100:g}." if 2 <= value <= 100 else ""


def fits(value: Real | float) -> bool:
    """Whether a number is finite as a float."""
    try:
        return isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def number(**named: Any) -> None:
    """Each argument is a finite real number (booleans are not numbers)."""
    for name, value in named.items():
        if (type(value) is float or type(value) is int) and fits(value):
            continue  # the common case: isinstance() with an abstract class takes ten times as long
        if isinstance(value, bool) or not isinstance(value, Real) or not fits(value):
            raise _refuse(name, "a finite number", value)


def _numbers(
    named: dict[str, Any], rule: str, holds: Callable[[Any], bool], hint: Callable[[float], str] = lambda value: ""
) -> None:
    number(**named)
    for name, value in named.items():
        if not holds(value):
            raise _refuse(name, rule, value, hint(value))


def positive(**named: Any) -> None:
    """Each argument is a finite number above zero."""
    _numbers(named, "positive", lambda value: value > 0)


def whole(minimum: int = 1, **named: Any) -> None:
    """Each argument is a whole number, at least `minimum` (10_000.0 is refused: write 10_000)."""
    for name, value in named.items():
        if type(value) is int and value >= minimum:
            continue
        if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
            hint = f" Write {int(value):_}." if isinstance(value, float) and value.is_integer() else ""
            raise _refuse(name, f"a whole number of at least {minimum}", value, hint)


def probability(**named: Any) -> None:
    """Each argument lies strictly between 0 and 1."""
    _numbers(named, "strictly between 0 and 1", lambda value: 0 < value < 1, percent)


def share(**named: Any) -> None:
    """Each argument lies in [0, 1]."""
    _numbers(named, "between 0 and 1", lambda value: 0 <= value <= 1, percent)


def part_of(rows: int, least: tuple[int, int], what: str, **named: float) -> int:
    """Return how many of these rows the share is, at least `least` on either side, which the message calls `what`."""
    ((name, share),) = named.items()
    count = round(share * rows)
    if count < least[0] or rows - count < least[1]:
        raise InvalidArgument(f"{name} must leave {what}; {share:g} of {rows:,} rows does not.", name=name)
    return count


def at_most(limit_name: str, limit: float, **named: Any) -> None:
    """Each argument is at most `limit`, which the message calls `limit_name`."""
    _numbers(named, f"at most {limit_name} ({limit})", lambda value: value <= limit)


def interval(name: str, value: Any) -> tuple[float, float]:
    """`value` is a pair of finite numbers, the first smaller; returned as floats."""
    try:
        low, high = value
    except (TypeError, ValueError):
        raise _refuse(name, "a pair (low, high)", value) from None
    number(**{f"{name}[0]": low, f"{name}[1]": high})
    first, last = float(low), float(high)  # compared as floats: two large integers may round to the same float
    if not first < last or not isfinite(last - first):
        raise _refuse(name, "a pair (low, high) with low < high", value)
    return first, last


def within(name: str, value: Any) -> tuple[float, float]:
    """`value` is an interval that answers may be stretched to: its numbers have all their digits."""
    first, last = interval(name, value)
    if max(-first, last) < TINIEST:
        raise _refuse(name, f"a pair (low, high) with an end beyond {TINIEST:g}", value)
    return first, last


def scale(name: str, size: float) -> None:
    """The answer's own `size`, as the range called `name` makes it, has all its digits and does not overflow."""
    if not TINIEST <= size < inf:
        rule = "narrower" if size > 1 else "wider"
        raise InvalidArgument(f"{name} must be {rule}: the answer's own range would be {size:g} wide.", name=name)


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """`value` is one of the words in `choices`."""
    if value not in choices:
        raise _refuse(name, "one of " + ", ".join(map(repr, choices)), value)


def options(function: Callable[P, R]) -> Callable[P, R]:
    """Make `function` refuse an unknown option with a message that suggests the nearest known one.

    Tracebacks of its refusals end at the caller's line, as with `public`.

    >>> options(lambda *, rows: rows)(row=3)
    Traceback (most recent call last):
        ...
    holdfast.errors.InvalidArgument: There is no option 'row'. Did you mean 'rows'?
    """

    parameters = signature(function).parameters.values()
    known = [each.name for each in parameters if each.kind in _NAMED and each.name != "self"]
    by_place = [each.name for each in parameters if each.kind is Parameter.POSITIONAL_OR_KEYWORD]
    takes_any = any(each.kind is Parameter.VAR_KEYWORD for each in parameters)  # those of `TextFormat`
    known += TextFormat.__annotations__ if takes_any else []

    def unknown(named: Mapping[str, object]) -> InvalidArgument | None:
        name = next((name for name in named if name not in known), None)
        if name is None:
            return None
        return InvalidArgument(f"There is no option {name!r}. {_meant(name, known)}", name=name)

    def too_many(args: Sequence[object]) -> InvalidArgument | None:
        if len(args) <= len(by_place):
            return None
        unnamed = [name for name in by_place if name != "self"]
        such = next(name for name in known if name not in unnamed)
        what = " and ".join(unnamed) or "nothing"
        called = (
            function.__qualname__.removesuffix(".__init__")
            if "self" in by_place
            else function.__name__.removesuffix("_rows")
        )
        return InvalidArgument(
            f"{called} takes only {what} without writing a name; write those of the others, such as {such}=."
        )

    @_refusing
    @wraps(function)
    def checked(*args: P.args, **named: P.kwargs) -> R:
        __tracebackhide__ = True
        if takes_any and (refusal := unknown(named)) is not None:
            raise refusal
        try:
            return function(*args, **named)
        except TypeError:
            if (refusal := unknown(named) or too_many(args)) is not None:
                raise refusal from None
            raise

    return checked


class TextFormat(TypedDict, total=False):
    """How a CSV or JSON lines file is written: options of `open`, and of whatever else takes the path of one."""

    types: Mapping[str, str] | None
    separator: str | None
    encoding: str
    null_values: Collection[str]
    decimal: str


# What other libraries call these.
READING = {each: each for each in TextFormat.__annotations__} | {
    **dict.fromkeys(("sep", "delimiter"), "separator"),
    **dict.fromkeys(("dtype", "dtypes", "schema"), "types"),
    **dict.fromkeys(("na_values", "nan_values"), "null_values"),
}

OPENING = ("folder", "version")


def _meant(name: str, known: Sequence[str]) -> str:
    """Say what may be meant by an option that is not among those that are known."""
    if name in OPENING and name not in known and "data" in known:
        return f"It is an option of open: give holdfast.open(data, {name}=...)."
    reading = READING.get(name)
    near = [reading] if reading in known else get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}."


def public(cls: type[C]) -> type[C]:
    """Make tracebacks of a class's refusals end at the caller's line: inner frames do not explain a user's mistake.

    Only a `HoldfastError` (a refusal) is shortened. Any other error is a bug and keeps its full traceback.
    """
    for name, method in list(vars(cls).items()):
        if isfunction(method) and not name.startswith("_"):
            setattr(cls, name, _refusing(method))
    return cls


def _refusing(function: Callable[P, R]) -> Callable[P, R]:
    @wraps(function)
    def refusing(*args: P.args, **named: P.kwargs) -> R:
        __tracebackhide__ = True  # IPython and pytest hide this frame, too
        try:
            return function(*args, **named)
        except HoldfastError as error:
            cut(error)
            raise

    return refusing


def cut(error: HoldfastError) -> None:
    """Drop a refusal's traceback, but not its context: the exception being handled when it was raised.

    The context may be a bug that was followed by a refusal during cleanup. `raise ... from None` still hides it.
    """
    if not os.environ.get(FULL_TRACEBACKS):
        error.with_traceback(None)


def warn(sentence: str, category: type[Warning]) -> None:
    """Warn at the line of the nearest caller outside holdfast."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "holdfast":
        level, frame = level + 1, frame.f_back
    warnings.warn(sentence, category, stacklevel=level)


_NAMED = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
