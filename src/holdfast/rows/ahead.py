"""Work that threads do before its results are needed, in memory that is reused."""

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

THREADS = 2
Item = TypeVar("Item")
Made = TypeVar("Made")


def ahead(work: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """Yield the result for each item, in order, while threads work on the next items."""
    with ThreadPoolExecutor(THREADS) as pool:
        waiting: deque[Future[Made]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class Behind:
    """One background thread that does one task at a time, while the caller continues."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def do(self, work: Callable[[], None]) -> None:
        """Wait for the task before, raising its error if it failed; then start this one."""
        self.wait()
        self._last = self._pool.submit(work)

    def wait(self) -> None:
        """Wait until the last task is done; raises its error if it failed."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """Wait for the last task, ignoring its errors, so that nothing runs after the caller has left."""
        self._pool.shutdown()


class Memory:
    """Arrays that are reused once nothing refers to them any more: allocating new ones costs more than filling them."""

    def __init__(self) -> None:
        self._kept: dict[np.dtype[Any], list[NDArray[Any]]] = {}
        self._lock = threading.Lock()

    def __call__(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        """Return an array whose content is undefined. Thread-safe."""
        with self._lock:
            kept = self._kept.setdefault(dtype, [])
            free = [i for i in range(len(kept)) if sys.getrefcount(kept[i]) <= _UNUSED]
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


def _references_when_unused() -> int:
    """Return how many references this Python counts for an array that only a list refers to."""
    kept = [np.empty(0)]
    return sys.getrefcount(kept[0])


_UNUSED = _references_when_unused()
