"""Spans for OpenTelemetry, with the extra `telemetry`: which route, how it ended, how long it took.

As in logs, never what was asked or answered. The process's own OpenTelemetry settings decide where the spans go
(`opentelemetry-instrument holdfast serve ...`); without an SDK they go nowhere.
"""

import time
from functools import cache
from typing import Any


@cache
def _telemetry() -> Any:
    """Return OpenTelemetry's `trace` module, or None without the extra."""
    try:
        from opentelemetry import trace
    except ModuleNotFoundError:
        return None
    return trace


@cache
def _tracer_of(provider: Any) -> Any:
    return provider.get_tracer("holdfast")


def _tracer() -> Any:
    """Return the tracer; None without the extra, or if spans would go nowhere."""
    trace = _telemetry()
    provider = None if trace is None else trace.get_tracer_provider()
    return None if provider is None or isinstance(provider, trace.ProxyTracerProvider) else _tracer_of(provider)


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
