"""A process may get the number of one that it descends from, and inherits what that knew."""

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast as hf
from holdfast.ledger import Cost, Entry, Follower
from holdfast.process import this_process
from holdfast.randomness import Randomness

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def in_a_child_with_this_number(act: Callable[[], Any]) -> Any:
    """Return what `act` returns in a forked process that has the same number as this one."""
    there, here = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            os.getpid = lambda: parent
            os.write(here, json.dumps(act()).encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(here)
    with os.fdopen(there, "rb") as answer:
        found = answer.read()
    assert os.waitpid(child, 0)[1] == 0
    return json.loads(found)


def test_a_number_is_never_that_of_another_process() -> None:
    assert in_a_child_with_this_number(lambda: this_process.number) != this_process.number


def test_draws_of_an_ancestor_are_not_repeated() -> None:
    randomness = Randomness()

    def drawn() -> list[int]:
        found: list[int] = randomness.generator().integers(0, 2**63, 4).tolist()
        return found

    drawn()
    assert in_a_child_with_this_number(drawn) != drawn()


def test_places_that_an_ancestor_has_taken_ahead_are_not_given_out(tmp_path: Path) -> None:
    data = tmp_path / "t.csv"
    data.write_text("x\n" + "\n".join(map(str, np.arange(2_000) % 7)))
    with hf.Session(data, queries=500) as session:
        for i in range(40):  # fast, so that some are taken ahead
            session.mean(f"x > {i}")
        ahead = {number + 1 for each in session.ledger._stock.now.numbers for number in each}
        number = in_a_child_with_this_number(lambda: session.ledger.reserve(Cost(1, 1)).number)
    assert ahead
    assert number not in ahead


def test_a_ledger_in_memory_is_not_continued() -> None:
    with hf.Session({"x": np.arange(2_000) % 7}, queries=20) as session:
        session.mean("x > 1")

        def again() -> str:
            with pytest.raises(hf.LedgerUnavailable) as refused:
                session.mean("x > 2")
            return str(refused.value)

        assert "cannot be written by a forked process" in in_a_child_with_this_number(again)


def test_a_child_that_is_forked_while_a_thread_reads_the_ledger_reads_it_itself() -> None:
    reading, end, found = threading.Event(), threading.Event(), list[int]()

    def read(entry: Entry) -> None:
        if threading.current_thread() is thread:
            reading.set()
            end.wait()
        found.append(entry.seq)

    with hf.Session({"x": np.arange(2_000) % 7}, queries=20) as session:
        session.mean("x > 1")
        follower = Follower(session.ledger, read)
        thread = threading.Thread(target=lambda: follower.caught_up(lambda: None))
        thread.start()
        assert reading.wait(60)

        def reads() -> list[int]:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)  # which ends the child if it waits
            return follower.caught_up(lambda: found)

        try:
            read_by_child = in_a_child_with_this_number(reads)
        finally:
            end.set()
            thread.join()
    assert read_by_child == found == [1]
