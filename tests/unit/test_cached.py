"""Properties that are computed once: no lock is held meanwhile, which a forked child could not release."""

import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.guarantees.exchange import Exchange

cached_property: Any = type(vars(Exchange)["_j"])  # as the library has it, wherever that comes from


class Slow:
    def __init__(self, wait: threading.Event | None = None) -> None:
        self.wait, self.computing, self.times = wait, threading.Event(), 0

    @cached_property
    def value(self) -> int:
        self.times += 1
        self.computing.set()
        if self.wait is not None:
            self.wait.wait()
        return self.times


def test_it_is_computed_once_and_may_be_set() -> None:
    one, other = Slow(), Slow()
    assert (one.value, one.value, one.times) == (1, 1, 1)
    other.__dict__["value"] = 7
    assert (other.value, other.times) == (7, 0)
    assert Slow.value is vars(Slow)["value"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_is_forked_while_a_thread_computes_one_does_not_wait_for_that_thread() -> None:
    end = threading.Event()
    slow, other = Slow(end), Slow()
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    assert slow.computing.wait(60)
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)  # which ends the child if it waits
            os._exit(0 if other.value == 1 else 1)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    end.set()
    thread.join()
    assert status == 0


def test_nobody_uses_the_one_with_a_lock() -> None:
    source = Path(holdfast.__file__).parent
    imports = re.compile(r"^ *from functools import .*\bcached_property", re.MULTILINE)
    assert [path.name for path in source.rglob("*.py") if imports.search(path.read_text())] == ["cached.py"]
