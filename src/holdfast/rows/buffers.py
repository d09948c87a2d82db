"""Memory that is used again: a page that is new to the process costs as much as filling it.

    BufferPool    of one thread, for one evaluation after another
    SharedPool    of several threads, for arrays that pass from one to the other

An array is used again only once nothing refers to it any more.
"""

import sys
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray


def _references(kept: Any, key: Any) -> int:
    """Return how many references this Python counts for an array in a container, with the name that it has here."""
    memory = kept[key]
    return sys.getrefcount(memory)


_UNUSED = _references({0: np.empty(0)}, 0)


class BufferPool(threading.local):
    """Memory that successive evaluations on this thread write into, so that no page is faulted in twice."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, np.dtype[Any]], NDArray[Any]] = {}
        self._used = 0

    def reset(self) -> None:
        """Start over: all memory handed out before may be handed out again, unless it is still referenced."""
        self._used = 0

    def __call__(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        """Return an array whose content is undefined."""
        key = (self._used, dtype)
        self._used += 1
        memory = self._kept.get(key)
        if memory is None or memory.size < count or sys.getrefcount(memory) > _UNUSED:
            memory = self._kept[key] = np.empty(count, dtype)
        return memory[:count]


class SharedPool:
    """Memory that is handed out to any thread, and again once no thread refers to it."""

    def __init__(self) -> None:
        self._kept: dict[np.dtype[Any], list[NDArray[Any]]] = {}
        self._lock = threading.Lock()

    def __call__(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        """Return an array whose content is undefined."""
        with self._lock:
            kept = self._kept.setdefault(dtype, [])
            free = [i for i in range(len(kept)) if _references(kept, i) <= _UNUSED]
            fits = [i for i in free if kept[i].size >= count]
            if fits:
                return kept[min(fits, key=lambda i: kept[i].size)][:count]
            if free:  # too small: replace it
                del kept[free[-1]]
            kept.append(np.empty(count + count // 16, dtype))
            return kept[-1][:count]

    def take(self, values: NDArray[Any], indices: NDArray[np.int64]) -> NDArray[Any]:
        """Return values by their indices, all of which must be in range."""
        # mode="clip" writes straight into `out`; the default mode would use a temporary copy, to fail cleanly
        return values.take(indices, out=self(values.dtype, indices.size), mode="clip")
