"""Spans for OpenTelemetry, with the extra `telemetry`: which route, how it ended, how long it took.

As in logs, never what was asked or answered. Where the spans go is what the process was told by its own OpenTelemetry
settings (`opentelemetry-instrument holdfast serve ...`); without an SDK they go nowhere.
"""

import time
from functools import cache
from typing import Any


@cache
def _tracer() -> Any:
    """Return what makes spans, or None without the extra."""
    try:
        from opentelemetry import trace
    except ModuleNotFoundError:
        return None
    return trace.get_tracer("holdfast")


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
