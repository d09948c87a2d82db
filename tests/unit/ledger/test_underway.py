"""Whose questions are under way: a process that says so now is believed, and nobody else is.

Two processes on one ledger are played by two `Ledger` objects that do not share what is under way, or are two.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.guarantees.terms import NO_CAP
from holdfast.ledger import Answered, Asking, Cost, Drawn, Ledger, open_ledger, underway
from holdfast.ledger import ledger as ledgers
from holdfast.ledger.store import Place
from ledger_writer import environment

ONE = Cost(0, 1)
TERMS = {"caps": {"charge": NO_CAP, "intervals": NO_CAP}}

BEGINS = """
import sys
from holdfast.ledger import Asking, Cost, open_ledger
ledger = open_ledger(sys.argv[1], dataset="data", fingerprint="f")
asking = Asking()
ledger.reserve(Cost(0, 1), asking)
print("begun", flush=True)
for line in sys.stdin:
    asking.ended = True
    print("ended", flush=True)
"""


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Ledger, Ledger]]:
    monkeypatch.setattr(underway, "PATIENCE", 5.0)
    opened = []
    for _ in range(2):
        monkeypatch.setattr(ledgers, "_shared", {})  # as another process would have it
        opened.append(open_ledger(tmp_path / "a.ledger", dataset="data", fingerprint="f"))
        opened[0].begin(TERMS)
        assert opened[-1].begun
    yield opened[0], opened[1]
    for ledger in opened:
        ledger.close()


def begin(ledger: Ledger) -> tuple[Place, Asking]:
    asking = Asking()
    return ledger.reserve(ONE, asking), asking


def commit(ledger: Ledger, place: Place) -> Answered:
    """Commit an answer at the place; return what it is certified with."""
    seen: list[Answered] = []

    def finish(answer: dict[str, Any], so_far: Answered) -> tuple[dict[str, Any], Cost]:
        seen.append(so_far)
        return answer, ONE

    asked = Drawn(place, key=None, question={"kind": "check"}, answer={}, cost=ONE, rows_read=1, finish=finish)
    ledger.commit(asked)
    return seen[-1]


def checked(ledger: Ledger) -> tuple[int, int]:
    place, asking = begin(ledger)
    so_far = commit(ledger, place)
    asking.ended = True
    return so_far.failed, so_far.under_way


def test_what_another_process_is_answering_has_not_failed(two: tuple[Ledger, Ledger]) -> None:
    one, other = two
    places = [begin(other) for _ in range(3)]
    assert checked(one) == (0, 3)
    for place, asking in places:
        commit(other, place)
        asking.ended = True
    assert checked(one) == (0, 0)


def test_it_has_failed_once_it_has_ended(two: tuple[Ledger, Ledger]) -> None:
    one, other = two
    (_, ended), _ = begin(other), begin(other)
    assert checked(one) == (0, 2)
    ended.ended = True
    assert checked(one) == (1, 1)


def test_what_ends_when_it_is_the_turn_of_the_other_has_failed(
    two: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is asked then, and not before: what it said earlier would not count the failure."""
    one, other = two
    _, ending = begin(other)
    (place, _), write = begin(one), one._store.write

    def ends_in_between(decide: Callable[[Any], None]) -> Any:
        def after_the_end(transaction: Any) -> None:
            ending.ended = True
            decide(transaction)

        return write(after_the_end)

    monkeypatch.setattr(one._store, "write", ends_in_between)
    assert commit(one, place).failed == 1


def test_who_reads_another_state_of_the_ledger_is_not_believed(
    two: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As who has open what was there before an older copy: places there are other questions' here."""
    one, other = two
    begin(other)
    old = other._store.tip()
    assert checked(one) == (0, 1)
    monkeypatch.setattr(other._store, "tip", lambda: old)
    assert checked(one) == (1, 0)


@pytest.mark.parametrize("answer", [b"", b" 1", b"10", b"\xff\xff 1", b"x" * 100_000])
def test_an_answer_that_is_none_counts_for_nothing(
    two: tuple[Ledger, Ledger], answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    begin(other)
    monkeypatch.setattr(other._stock.under_way, "_report", lambda: answer)
    assert checked(one) == (1, 0)


@pytest.fixture
def beginner(two: tuple[Ledger, Ledger]) -> Iterator[subprocess.Popen[str]]:
    """Another process that is answering a question."""
    command = [sys.executable, "-c", BEGINS, two[0].location]
    with subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process
        process.kill()


def test_whoever_is_killed_has_failed(two: tuple[Ledger, Ledger], beginner: subprocess.Popen[str]) -> None:
    assert checked(two[0]) == (0, 1)
    beginner.kill()
    beginner.wait()
    assert checked(two[0]) == (1, 0)
    own = two[0]._stock.under_way._listening
    assert own is not None
    (left,) = set(folder(two[0]).iterdir()) - {own[1]}
    os.utime(left, (1, 1))
    assert checked(two[0]) == (1, 0)
    assert not left.exists()


def folder(ledger: Ledger) -> Path:
    return Path(f"{ledger.location}-asking")


def test_whoever_is_stopped_counts_as_failed_until_it_goes_on(
    two: tuple[Ledger, Ledger], beginner: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(underway, "PATIENCE", 0.05)
        beginner.send_signal(signal.SIGSTOP)
        assert checked(two[0]) == (1, 0)
    beginner.send_signal(signal.SIGCONT)
    assert checked(two[0]) == (0, 1)
    assert beginner.stdin is not None
    assert beginner.stdout is not None
    beginner.stdin.write("end\n")
    beginner.stdin.flush()
    assert beginner.stdout.readline() == "ended\n"
    assert checked(two[0]) == (1, 0)


def test_a_child_does_not_speak_for_its_parent_and_the_parent_goes_on(two: tuple[Ledger, Ledger]) -> None:
    one, other = two
    begin(other)
    if (child := os.fork()) == 0:
        os._exit(int(other._stock.under_way._listening is not None))
    assert os.waitpid(child, 0)[1] == 0
    assert checked(one) == (1, 0)  # until it asks again, nobody hears of it
    begin(other)
    assert checked(one) == (0, 2)


def test_only_the_owner_may_ask_and_nothing_is_left(two: tuple[Ledger, Ledger], tmp_path: Path) -> None:
    one, other = two
    begin(one), begin(other)
    assert folder(one).stat().st_mode & 0o777 == 0o700
    assert len(list(folder(one).iterdir())) == 2
    one.close()
    other.close()
    assert not folder(one).exists()


def test_a_folder_with_a_long_name_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("long" * 30)
    deep.mkdir()
    with open_ledger(deep / "a.ledger", dataset="data", fingerprint="f") as ledger:
        ledger.begin(TERMS)
        begin(ledger)
        listens = ledger._stock.under_way._listening is not None
        assert listens or sys.platform != "linux"


def test_without_sockets_others_have_failed(two: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = two
    with monkeypatch.context() as patched:
        patched.delattr(socket, "AF_UNIX")
        begin(other)
        assert checked(one) == (1, 0)
