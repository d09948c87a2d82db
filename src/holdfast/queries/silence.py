"""Nothing that is evaluated may raise or warn about the rows, however the caller has set up numpy and Python.

numpy's own complaints (division by zero, overflow, underflow) are switched off for the thread that evaluates. Warnings
of other code, such as a function from outside, meet a filter in front of the caller's own that ignores everything while
this thread evaluates. `warnings.catch_warnings` would not do: it exchanges the filters of all threads.
"""

import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")


class _ThisThread(threading.local):
    """The evaluations that this thread is in, one inside the other: what numpy does after each."""

    def __init__(self) -> None:
        self.inside: list[np.errstate | None] = []


class _AnyWhileEvaluating:
    """Stands where a filter has the pattern of a message: matches all of them while this thread evaluates.

    Who copies filters by their patterns, as scikit-learn does for every job, gets one that matches nothing.
    """

    pattern = "(?!)"

    def match(self, message: str) -> bool:
        return bool(_this_thread.inside)


_this_thread = _ThisThread()
_filter = ("ignore", _AnyWhileEvaluating(), Warning, None, 0)
_moving = threading.Lock()


def _put_in_front() -> None:
    """Move the filter before those that the caller has added since; it stays there, and does nothing by itself."""
    with _moving:
        filters: list[object] = warnings.filters  # type: ignore[assignment]
        with suppress(ValueError):
            filters.remove(_filter)
        filters.insert(0, _filter)


def _enter(state: np.errstate | None) -> None:
    filters = warnings.filters
    if not filters or filters[0] is not _filter:  # type: ignore[comparison-overlap]
        _put_in_front()
    _this_thread.inside.append(state)


class Silence:
    """Around everything that evaluates rows: a `with` block or a decorator."""

    def __enter__(self) -> None:
        state = np.errstate(all="ignore")
        state.__enter__()
        _enter(state)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state = _this_thread.inside.pop()
        if state is not None:
            state.__exit__(kind, error, trace)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function, silenced."""
        quiet = np.errstate(all="ignore")(function)

        @wraps(function)
        def silenced(*args: P.args, **kwargs: P.kwargs) -> R:
            _enter(None)
            try:
                return quiet(*args, **kwargs)
            finally:
                _this_thread.inside.pop()

        return silenced


silence = Silence()
