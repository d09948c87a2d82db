"""Log lines are written in batches, errors at once; metrics are what Prometheus reads."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from holdfast.questions.budget import Budget
from holdfast.service import monitoring
from holdfast.service.monitoring import LATENCY_BUCKETS, Metrics
from serving import wait_until


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    stream, logger = io.StringIO(), logging.getLogger("holdfast.service")
    before = logger.handlers[:], logger.propagate, logger.level
    monkeypatch.setattr("sys.stderr", stream)
    monitoring.start_logging()
    yield stream
    logger.handlers[:], logger.propagate = before[:2]
    logger.setLevel(before[2])


def events(written: io.StringIO) -> list[str]:
    return [json.loads(line)["event"] for line in written.getvalue().splitlines()]


def test_lines_are_written_in_order_and_soon(written: io.StringIO) -> None:
    for number in range(3):
        monitoring.log_event(f"event {number}", number=number)
    wait_until(lambda: len(events(written)) == 3)
    assert events(written) == ["event 0", "event 1", "event 2"]
    assert json.loads(written.getvalue().splitlines()[2])["number"] == 2
    monitoring.log_event("later")
    wait_until(lambda: events(written)[-1] == "later")


def test_an_error_is_written_at_once(written: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring, "BATCH_SECONDS", 3_600.0)
    monitoring.log_event("before")
    monitoring.log_error("failure", ZeroDivisionError("the value was 42"))
    assert events(written) == ["before", "failure"]
    assert "the value" not in written.getvalue()
    monitoring.log_event("after")
    monitoring.flush_logs()
    assert events(written)[-1] == "after"


def test_lines_are_written_after_logging_is_reconfigured(written: io.StringIO) -> None:
    """Configuring `logging` closes all handlers; the web server does so after ours has started."""
    for handler in logging.getLogger("holdfast.service").handlers:
        handler.close()
    monitoring.log_event("still here")
    wait_until(lambda: events(written) == ["still here"])


def test_counts_add_up_and_labels_are_escaped() -> None:
    metrics = Metrics()
    for seconds in (0.001, 0.3, 99.0):
        metrics.count_request("GET", "/a", 200, seconds)
    metrics.count_request("BREW", "other", 405, 0.001)
    metrics.count_answer('odd"name\\', cached=True)
    budgets = [("flights", Budget(7, 10, 3, 0.05)), ("trips", Budget(None, None, 3, 0.02, ends=False))]
    lines = metrics.text(budgets).splitlines()
    assert 'holdfast_requests_total{method="GET",route="/a",status="200"} 3' in lines
    assert 'holdfast_requests_total{method="other",route="other",status="405"} 1' in lines
    assert 'holdfast_answers_total{dataset="odd\\"name\\\\",cached="true"} 1' in lines
    assert 'holdfast_budget_left{dataset="flights"} 7' in lines
    assert 'holdfast_margin{dataset="trips"} 0.02' in lines
    assert not any("budget" in line and "trips" in line for line in lines)
    assert f'holdfast_request_seconds_bucket{{le="{LATENCY_BUCKETS[0]}"}} 2' in lines
    assert 'holdfast_request_seconds_bucket{le="+Inf"} 4' in lines
    assert "holdfast_request_seconds_count 4" in lines
    buckets = [int(line.split()[-1]) for line in lines if "_bucket" in line]
    assert buckets == sorted(buckets)
