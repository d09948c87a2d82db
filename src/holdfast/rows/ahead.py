"""Work that threads do ahead of whoever needs it, in memory that is used again."""

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
    """Yield what becomes of each item, in order; the next ones are worked on meanwhile."""
    with ThreadPoolExecutor(THREADS) as pool:
        waiting: deque[Future[Made]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class Behind:
    """One thread that does one thing after another, while whoever hands them over goes on; one is in hand at a time."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def do(self, work: Callable[[], None]) -> None:
        """Hand over work, when what was handed over before is done; raises what that has raised."""
        self.wait()
        self._last = self._pool.submit(work)

    def wait(self) -> None:
        """Wait until everything is done; raises what it has raised."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """Wait, whatever comes of it: nothing goes on behind the back of whoever leaves."""
        self._pool.shutdown()


class Memory:
    """Arrays that are handed out again when nobody refers to them any more: fresh ones cost more than filling them."""

    def __init__(self) -> None:
        self._kept: dict[np.dtype[Any], list[NDArray[Any]]] = {}
        self._lock = threading.Lock()

    def __call__(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        """Return an array whose content is undefined. Any thread may ask."""
        with self._lock:
            kept = self._kept.setdefault(dtype, [])
            free = [i for i in range(len(kept)) if sys.getrefcount(kept[i]) <= _UNUSED]
            fits = [i for i in free if kept[i].size >= count]
            if fits:
                return kept[min(fits, key=lambda i: kept[i].size)][:count]
            if free:  # too small: instead of it
                del kept[free[-1]]
            kept.append(np.empty(count + count // 16, dtype))
            return kept[-1][:count]

    def take(self, values: NDArray[Any], indices: NDArray[np.int64]) -> NDArray[Any]:
        """Return values by their indices, all of which are there."""
        # mode="clip" writes straight into `out`; the default would go through a copy to be able to fail cleanly
        return values.take(indices, out=self(values.dtype, indices.size), mode="clip")


def _references_when_unused() -> int:
    """How many references this Python counts for an array that only a list holds."""
    kept = [np.empty(0)]
    return sys.getrefcount(kept[0])


_UNUSED = _references_when_unused()
