"""How often: requests of a token, and failed sign-ins from an address."""

import threading
import time
from collections import OrderedDict

from holdfast.errors import TooManyRequests

MAX_BUCKETS = 10_000


class RateLimiter:
    """A token bucket for each name, in this process: filled at a steady rate, holding at most the burst."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, float(burst)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, name: str, count: float = 1.0) -> None:
        """Take from the bucket, or refuse with the time to wait. A count above the burst empties a full bucket."""
        with self._lock:
            now = time.monotonic()
            level, at = self._buckets.pop(name, (self._burst, now))
            level = min(self._burst, level + (now - at) * self._rate)
            needed = min(count, self._burst)
            enough = level >= needed
            self._buckets[name] = (level - needed if enough else level, now)
            if len(self._buckets) > MAX_BUCKETS:
                self._buckets.popitem(last=False)
        if not enough:
            wait = (needed - level) / self._rate
            rule = f"Requests must be at most {self._rate:g} per second on average."
            raise TooManyRequests(f"{rule} Wait {wait:.2f} s, then try again.", retry_after=wait)
