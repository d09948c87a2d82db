"""How fast one may ask: a bucket of tokens for each person, filled at a steady rate."""

import threading
import time
from collections import OrderedDict

from holdfast.errors import TooManyRequests

MOST_BUCKETS = 10_000


class Rates:
    """One bucket for each name, in this process."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, float(burst)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, name: str, count: float = 1.0) -> None:
        """Take from the bucket, or say when to come back. A count above the burst drains a full bucket."""
        with self._lock:
            now = time.monotonic()
            level, at = self._buckets.pop(name, (self._burst, now))
            level = min(self._burst, level + (now - at) * self._rate)
            wanted = min(count, self._burst)
            enough = level >= wanted
            self._buckets[name] = (level - wanted if enough else level, now)
            if len(self._buckets) > MOST_BUCKETS:
                self._buckets.popitem(last=False)
        if not enough:
            wait = (wanted - level) / self._rate
            raise TooManyRequests(
                f"Requests must be at most {self._rate:g} a second on average. Wait {wait:.2f} s, then try again.",
                retry_after=wait,
            )
