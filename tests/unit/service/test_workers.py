"""Processes of a server are asked whether they live, without being waited for."""

from multiprocessing import Pipe
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.service import workers


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A worker whose process is made up; `clock` is the time, `runs` whether there is a process."""
    found: Any = workers.Worker.__new__(workers.Worker)
    found.parent_conn, found.child_conn = Pipe()
    found.clock, found.runs = 100.0, True
    found.process = SimpleNamespace(is_alive=lambda: found.runs)
    monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=lambda: found.clock))
    return found


def test_who_is_slow_to_answer_is_alive_and_who_never_does_is_not(worker: Any) -> None:
    for _ in range(3):
        assert worker.is_alive(timeout=5)
        worker.clock += workers.PATIENCE / 4
    assert worker.child_conn.recv() == b"ping"  # asked once, as long as there is no answer
    assert not worker.child_conn.poll()
    worker.child_conn.send(True)
    worker.clock += workers.PATIENCE
    assert worker.is_alive()
    worker.clock += workers.PATIENCE / 2
    assert worker.is_alive()
    worker.clock += workers.PATIENCE / 2
    assert not worker.is_alive()


def test_who_has_ended_is_not_alive(worker: Any) -> None:
    assert worker.is_alive()
    worker.child_conn.close()
    assert not worker.is_alive()
    worker.runs = False
    assert not worker.is_alive()
