"""Counts for Prometheus, written by hand: the text format is a page long. Counts are of this process."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_Labels = tuple[tuple[str, str], ...]


class Metrics:
    """What a watcher wants to know."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[_Labels] = Counter()
        self._slots = [0] * (len(BUCKETS) + 1)  # requests by the bucket they fall in; the text adds them up
        self._seconds = 0.0
        self._answers: Counter[_Labels] = Counter()

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        known = method if method in ("GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS") else "other"
        with self._lock:
            self._requests[("method", known), ("route", route), ("status", str(status))] += 1
            self._seconds += seconds
            self._slots[bisect_left(BUCKETS, seconds)] += 1

    def answer(self, dataset: str, *, cached: bool) -> None:
        """Count one answer."""
        with self._lock:
            self._answers[("dataset", dataset), ("cached", str(cached).lower())] += 1

    def text(self, budgets: Iterable[tuple[str, int, int]]) -> str:
        """Return the page; `budgets` are dataset, answers left, answers in all."""
        with self._lock:
            lines = _family("holdfast_requests_total", "counter", "Requests served.", self._requests.items())
            lines += ["# HELP holdfast_request_seconds Time to serve.", "# TYPE holdfast_request_seconds histogram"]
            within = list(accumulate(self._slots))
            for bound, number in zip([*BUCKETS, "+Inf"], within, strict=True):
                lines += [f'holdfast_request_seconds_bucket{{le="{bound}"}} {number}']
            lines += [f"holdfast_request_seconds_sum {self._seconds:.6f}"]
            lines += [f"holdfast_request_seconds_count {within[-1]}"]
            lines += _family("holdfast_answers_total", "counter", "Answers given.", self._answers.items())
        rows = list(budgets)
        left = [((("dataset", name),), left) for name, left, _ in rows]
        total = [((("dataset", name),), total) for name, _, total in rows]
        lines += _family("holdfast_budget_left", "gauge", "Answers left of the budget.", left)
        lines += _family("holdfast_budget_total", "gauge", "Answers of the budget.", total)
        return "\n".join(lines) + "\n"


def _family(name: str, kind: str, help_text: str, values: Iterable[tuple[_Labels, int]]) -> list[str]:
    lines = [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
    for labels, value in sorted(values):
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
        lines.append(f"{name}{{{inside}}} {value}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
