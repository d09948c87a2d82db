"""Nothing that is evaluated may raise or warn about the rows, however the caller has set up numpy and Python.

numpy's own warnings (division by zero, overflow, underflow) are switched off for the thread that evaluates. Warnings
from other code, such as the caller's Python function, are dropped by a filter in front of the caller's own filters,
which ignores everything while this thread evaluates. `warnings.catch_warnings` is not used, because it replaces the
filters of all threads.
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
    """The nested evaluations of this thread: for each, the numpy error state to restore, if it has to be restored."""

    def __init__(self) -> None:
        self.inside: list[np.errstate | None] = []


class _AnyWhileEvaluating:
    """Takes the place of a filter's message pattern: matches all messages while this thread evaluates, else none.

    Code that copies filters by their `pattern`, as scikit-learn does for every job, gets one that matches nothing.
    """

    pattern = "(?!)"

    def match(self, message: str) -> bool:
        return bool(_this_thread.inside)


_this_thread = _ThisThread()
_filter = ("ignore", _AnyWhileEvaluating(), Warning, None, 0)
_moving = threading.Lock()


def _put_in_front() -> None:
    """Move the filter in front of any that the caller has added since; it stays there, idle between evaluations."""
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
    """Wraps everything that evaluates rows, as a `with` block or a decorator."""

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
