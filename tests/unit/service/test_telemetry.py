"""Spans say which route was asked and how it ended, and nothing of what was asked."""

from pathlib import Path

import pytest

from holdfast.service import monitoring
from serving import Running, settings, table


def test_requests_become_spans_without_what_was_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(monitoring, "_tracer", lambda: provider.get_tracer("holdfast"))
    with Running(settings(table(tmp_path, rows=300))) as server, server.client(server.token("ana")) as client:
        assert client.post("/api/v1/datasets/flights/ask", json={"query": "carrier = 'zebra'"}).status_code == 200
        assert client.get("/nothing/of/the/kind").status_code == 404
    spans = kept.get_finished_spans()
    asked = next(span for span in spans if span.attributes["http.response.status_code"] == 200)
    assert asked.attributes["http.route"].startswith("/api/v1/datasets/{name}")
    assert asked.end_time >= asked.start_time
    written = "".join(span.to_json() for span in spans)
    assert "zebra" not in written  # no digits: numbers of spans are random
    assert "flights" not in written
    provider.shutdown()


def test_without_the_extra_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring, "_tracer", lambda: None)
    monitoring.trace_request("GET", "/", 200, 1.0)
