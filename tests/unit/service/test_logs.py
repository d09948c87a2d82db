"""Lines are gathered and written together; a complaint is written at once."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from holdfast.service import logs
from serving import wait_until


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    stream, logger = io.StringIO(), logging.getLogger("holdfast.service")
    before = logger.handlers[:], logger.propagate, logger.level
    monkeypatch.setattr("sys.stderr", stream)
    logs.begin()
    yield stream
    logger.handlers[:], logger.propagate = before[:2]
    logger.setLevel(before[2])


def events(written: io.StringIO) -> list[str]:
    return [json.loads(line)["event"] for line in written.getvalue().splitlines()]


def test_lines_come_in_order_and_soon(written: io.StringIO) -> None:
    for number in range(3):
        logs.say(f"event {number}", number=number)
    wait_until(lambda: len(events(written)) == 3)
    assert events(written) == ["event 0", "event 1", "event 2"]
    assert json.loads(written.getvalue().splitlines()[2])["number"] == 2
    logs.say("later")
    wait_until(lambda: events(written)[-1] == "later")


def test_a_complaint_waits_for_nobody(written: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "GATHERED_SECONDS", 3_600.0)
    logs.say("before")
    logs.complain("failure", ZeroDivisionError("the value was 42"))
    assert events(written) == ["before", "failure"]
    assert "the value" not in written.getvalue()
    logs.say("after")
    logs.flush()
    assert events(written)[-1] == "after"


def test_lines_come_after_logging_is_configured_anew(written: io.StringIO) -> None:
    """Configuring `logging` closes every handler there is; the web server does so after ours has begun."""
    for handler in logging.getLogger("holdfast.service").handlers:
        handler.close()
    logs.say("still here")
    wait_until(lambda: events(written) == ["still here"])
