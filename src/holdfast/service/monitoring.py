"""Logs, metrics and spans: what happened, never what was asked or answered, never a secret.

A log line is one JSON object on standard error. Query texts are left out, since a caller may have written a person's
name into one. So are the messages of unexpected errors, which might quote a value; where they happened is enough to
find them. Lines are written in batches a few times per second, because one write per request would make every request
wait for the interpreter lock. An error is written at once, with everything before it.

Metrics are in Prometheus' text format, which is simple enough to write by hand. They count this process only.

Spans are for OpenTelemetry, with the extra `telemetry`: which route, how it ended, how long it took. As in logs, never
what was asked or answered. The process's own OpenTelemetry settings decide where the spans go
(`opentelemetry-instrument holdfast serve ...`); without an SDK they go nowhere.
"""

import json
import logging
import sys
import threading
import time
import traceback
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from itertools import accumulate
from typing import Any

from pydantic_core import to_json

from holdfast.errors import EvaluationFailed, HoldfastError
from holdfast.questions.budget import Budget

BATCH_SECONDS = 0.1
LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_METHODS = ("GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS")
_Labels = tuple[tuple[str, str], ...]

_log = logging.getLogger("holdfast.service")
_BLANK = vars(logging.LogRecord(_log.name, logging.INFO, __file__, 0, "", None, None))


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= getattr(record, "facts", {})
        try:
            return to_json(line, fallback=str).decode()
        except ValueError:  # a lone surrogate
            return json.dumps(line, default=str)


class _BatchingHandler(logging.StreamHandler[Any]):
    """Writes records in batches; errors at once. Adding a record takes no lock."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._records: deque[logging.LogRecord] = deque()
        self._pending = threading.Event()
        threading.Thread(target=self._write_batches, name="holdfast log", daemon=True).start()

    def handle(self, record: logging.LogRecord) -> bool:
        """Add a record to the batch; flush if it is serious."""
        self._records.append(record)
        if record.levelno > logging.INFO:
            self.flush()
        elif not self._pending.is_set():
            self._pending.set()
        return True

    def flush(self) -> None:
        """Write the batch."""
        with self.lock:  # type: ignore[union-attr]
            records = [self._records.popleft() for _ in range(len(self._records))]
            if records:
                self.stream.write("".join(self.format(record) + self.terminator for record in records))
            super().flush()

    def _write_batches(self) -> None:
        while True:  # until the process ends: reconfiguring `logging` closes every handler, but this one must continue
            self._pending.wait()
            time.sleep(BATCH_SECONDS)
            self._pending.clear()
            self.flush()


def start_logging(level: str = "INFO") -> None:
    """Write to standard error from now on."""
    handler = _BatchingHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter())
    _log.handlers[:] = [handler]
    _log.propagate = False
    _log.setLevel(level)


def log_event(event: str, **facts: Any) -> None:
    """Log one line."""
    if _log.isEnabledFor(logging.INFO):
        # A copy, because a new record would look up the caller's line, the thread and the process for every request.
        record = logging.LogRecord.__new__(logging.LogRecord)
        record.__dict__.update(_BLANK, msg=event, created=time.time(), facts=facts)
        _log.handle(record)


def log_error(event: str, error: BaseException, **facts: Any) -> None:
    """Log an error's class and the lines of code where it happened; its message only if it is one of holdfast's."""
    if isinstance(error, EvaluationFailed):
        error = error.__context__ or error  # what happened, which the caller is not told
    frames = traceback.extract_tb(error.__traceback__)[-12:]
    where = [f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} {frame.name}" for frame in frames]
    if isinstance(error, HoldfastError):  # its message quotes no data, and names the file or server
        facts["reason"] = error.message
    _log.error(event, extra={"facts": facts | {"error": type(error).__name__, "where": where}})


def flush_logs() -> None:
    """Write the batch: the process is about to end."""
    for handler in _log.handlers:
        handler.flush()


class Metrics:
    """Counters of requests and answers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, str]] = Counter()  # by method, route and status
        self._latencies = [0] * (len(LATENCY_BUCKETS) + 1)  # not cumulative; `text` adds them up
        self._seconds = 0.0
        self._answers: Counter[tuple[str, str]] = Counter()  # by dataset, and whether asked before

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        known = method if method in _METHODS else "other"
        with self._lock:
            self._requests[known, route, str(status)] += 1
            self._seconds += seconds
            self._latencies[bisect_left(LATENCY_BUCKETS, seconds)] += 1

    def count_answer(self, dataset: str, *, cached: bool) -> None:
        """Count one answer."""
        with self._lock:
            self._answers[dataset, "true" if cached else "false"] += 1

    def text(self, budgets: Iterable[tuple[str, Budget]]) -> str:
        """Return all metrics; `budgets` are pairs of a dataset's name and its budget."""
        with self._lock:
            requests = _labeled(("method", "route", "status"), self._requests)
            answers = _labeled(("dataset", "cached"), self._answers)
            lines = _family("holdfast_requests_total", "counter", "Requests served.", requests)
            lines += ["# HELP holdfast_request_seconds Time to serve.", "# TYPE holdfast_request_seconds histogram"]
            cumulative = list(accumulate(self._latencies))
            for bound, number in zip([*LATENCY_BUCKETS, "+Inf"], cumulative, strict=True):
                lines += [f'holdfast_request_seconds_bucket{{le="{bound}"}} {number}']
            lines += [f"holdfast_request_seconds_sum {self._seconds:.6f}"]
            lines += [f"holdfast_request_seconds_count {cumulative[-1]}"]
            lines += _family("holdfast_answers_total", "counter", "Answers given.", answers)
        rows = list(budgets)
        labels = [((("dataset", name),), budget) for name, budget in rows]
        left = [(label, budget.answers_left) for label, budget in labels if budget.answers_left is not None]
        total = [(label, budget.answers_total) for label, budget in labels if budget.answers_total is not None]
        margin = [(label, budget.margin) for label, budget in labels]
        lines += _family("holdfast_budget_left", "gauge", "Answers left in the plan, where there is one.", left)
        lines += _family("holdfast_budget_total", "gauge", "Answers in the plan in total, where there is one.", total)
        lines += _family("holdfast_margin", "gauge", "The margin of an ordinary answer now.", margin)
        return "\n".join(lines) + "\n"


def _labeled(names: tuple[str, ...], counts: Mapping[Any, int]) -> list[tuple[_Labels, float]]:
    return [(tuple(zip(names, values, strict=True)), count) for values, count in counts.items()]


def _family(name: str, kind: str, help_text: str, values: Iterable[tuple[_Labels, float]]) -> list[str]:
    lines = [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
    for labels, value in sorted(values):
        inside = ",".join(f'{label}="{_escape(text)}"' for label, text in labels)
        lines.append(f"{name}{{{inside}}} {value}")
    return lines


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@cache  # decided when the first request ends: by then, whoever runs the process has set up OpenTelemetry or has not
def _tracer() -> Any:
    """Return the tracer; None without the extra, or if spans would go nowhere."""
    try:
        from opentelemetry import trace
    except ModuleNotFoundError:
        return None
    provider = trace.get_tracer_provider()
    return None if isinstance(provider, trace.ProxyTracerProvider) else provider.get_tracer("holdfast")


def trace_request(method: str, route: str, status: int, milliseconds: float) -> None:
    """Record a request that has just ended as a span."""
    tracer = _tracer()
    if tracer is None:
        return
    from opentelemetry.trace import SpanKind

    end = time.time_ns()
    facts = {"http.request.method": method, "http.route": route, "http.response.status_code": status}
    span = tracer.start_span(
        f"{method} {route}", kind=SpanKind.SERVER, attributes=facts, start_time=end - int(milliseconds * 1e6)
    )
    span.end(end_time=end)
