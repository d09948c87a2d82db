"""Whose questions are under way: a process that says so now is believed, and nobody else is.

Two processes on one ledger are played by two `Ledger` objects that do not share what is under way, or are two.
"""

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.guarantees.terms import NO_CAP
from holdfast.ledger import Answered, Asking, Cost, Drawn, Ledger, open_ledger, underway
from holdfast.ledger import ledger as ledgers
from holdfast.ledger.store import Place
from holdfast.ledger.underway import UnderWay
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
    return commit_all(ledger, [place])[-1]


def commit_all(ledger: Ledger, places: list[Place]) -> list[Answered]:
    seen: list[Answered] = []

    def finish(answer: dict[str, Any], so_far: Answered) -> tuple[dict[str, Any], Cost]:
        seen.append(so_far)
        return answer, ONE

    ledger.commit_all(
        [
            Drawn(place, key=None, question={"kind": "check"}, answer={}, cost=ONE, rows_read=1, finish=finish)
            for place in places
        ]
    )
    return seen


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
        os.waitpid(beginner.pid, os.WUNTRACED)  # until it has stopped: one of its threads may still be answering
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


def test_a_session_that_is_closed_does_not_silence_another_of_its_process(two: tuple[Ledger, Ledger]) -> None:
    one, other = two
    begin(other)
    with open_ledger(other.location, dataset="data", fingerprint="f") as again:
        assert checked(again) == (0, 1)
    assert checked(one) == (0, 1)


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


# -- no process is counted twice, and nobody else is heard -------------------------------------------------------------


def interrupted(line: int, act: Callable[[], object]) -> bool:
    """Interrupt at this line of the module that `act` comes to; return whether it came so far."""
    left, came, seen = line, False, set[tuple[Any, int]]()

    def interrupt(frame: Any, event: str, _: Any) -> Any:
        nonlocal left, came
        here = frame, frame.f_lineno  # a second time: the end of a `with`, where no signal is handled
        if frame.f_code.co_filename == underway.__file__ and event == "line" and here not in seen:
            seen.add(here)
            left -= 1
            if left < 0:
                sys.settrace(None)
                came = True
                raise KeyboardInterrupt
        return interrupt

    before = sys.gettrace()
    try:
        sys.settrace(interrupt)
        with suppress(KeyboardInterrupt):
            act()
    finally:
        sys.settrace(before)
        seen.clear()  # its frames trace themselves: their sockets would be closed at some collection, in another test
    return came


def sockets() -> int:
    """How many sockets of this kind are open, whether or not anybody can still close them."""
    found = [each for each in gc.get_objects() if isinstance(each, socket.socket) and each.fileno() >= 0]
    return sum(each.family == socket.AF_UNIX for each in found)


@pytest.mark.parametrize("what", ["begins to listen", "closes"])
@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
def test_whoever_is_interrupted_is_counted_once(two: tuple[Ledger, Ledger], what: str) -> None:
    """By others, and by itself: twice, and as many failures would go unnoticed. Soon it is heard again."""
    one, other = two
    begin(one)
    listens = other._stock.under_way
    for line in range(60):
        if what == "closes":
            begin(other)
            came = interrupted(line, listens.close)
        else:
            listens.close()
            came = interrupted(line, lambda: listens.listen(other._store.asking_folder, other._watch.tip))
        until, heard = time.monotonic() + 10, -1
        while time.monotonic() < until:
            begin(other)
            tip = other._store.tip()
            assert tip is not None
            assert listens.elsewhere(other._store.asking_folder, tip) == 1  # the one that `one` is answering
            heard = one._stock.under_way.elsewhere(one._store.asking_folder, tip)
            assert heard in (0, listens.here(tip.places))
            if heard:
                break
        assert heard > 0
        if not came:
            break
    assert 5 < line < 59


@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
def test_what_is_interrupted_leaves_no_socket_to_another_test(two: tuple[Ledger, Ledger]) -> None:
    begin(two[1])
    listens, line = two[1]._stock.under_way, 0
    gc.collect()
    listens.close()
    gc.disable()
    try:
        before, came = sockets(), True
        while came:
            came = interrupted(line, lambda: listens.listen(two[1]._store.asking_folder, two[1]._watch.tip))
            listens.close()
            line += 1
        until = time.monotonic() + 10
        while sockets() > before and time.monotonic() < until:  # a thread that listened ends by and by
            time.sleep(0.01)
        assert sockets() == before
    finally:
        gc.enable()


@contextmanager
def speaker(path: Path, answer: Callable[[], Iterator[bytes]]) -> Iterator[None]:
    """Listen there, and say this to everybody who asks."""
    listening = socket.socket(socket.AF_UNIX)
    with underway._address(path) as address:
        listening.bind(address)
    listening.listen()

    def speak() -> None:
        with suppress(OSError):
            while True:
                asked, _ = listening.accept()
                with asked, suppress(OSError):
                    for part in answer():
                        asked.sendall(part)

    thread = threading.Thread(target=speak)
    thread.start()
    yield
    listening.shutdown(socket.SHUT_RDWR)
    thread.join()
    listening.close()


@pytest.mark.parametrize("mode", [0o700, 0o770, 0o707])
def test_where_others_may_write_nobody_is_believed(two: tuple[Ledger, Ledger], mode: int) -> None:
    one, other = two
    place, _ = begin(one)
    _, asking = begin(other)
    asking.ended = True
    folder(one).chmod(mode)

    def forged() -> Iterator[bytes]:
        tip = one._store.tip()
        assert tip is not None
        yield underway._named(tip) + b" 1"

    with speaker(folder(one) / "forged", forged):
        assert commit(one, place).failed == (0 if mode == 0o700 else 1)


def test_a_link_in_place_of_the_folder_is_not_followed(two: tuple[Ledger, Ledger], tmp_path: Path) -> None:
    """Somebody else may have made it, where both may write; what is in the other folder is none of ours."""
    one, other = two
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    old = elsewhere / "old"
    old.write_text("precious")
    os.utime(old, (1, 1))
    folder(one).symlink_to(elsewhere)
    begin(other)
    assert checked(one) == (1, 0)
    assert [path.name for path in elsewhere.iterdir()] == ["old"]


def test_an_answer_without_end_ends(two: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = two
    _, asking = begin(other)
    asking.ended = True
    place, _ = begin(one)
    until = time.monotonic() + 4

    def endless() -> Iterator[bytes]:
        while time.monotonic() < until:
            yield b"x" * 4_096

    with speaker(folder(one) / "endless", endless):
        assert commit(one, place).failed == 1
        assert time.monotonic() < until - 1


def test_whoever_could_not_listen_any_more_begins_again(two: tuple[Ledger, Ledger]) -> None:
    """As when no descriptor was left for who asked."""
    one, other = two
    begin(other)
    listens = other._stock.under_way
    assert listens._listening is not None
    listens._listening[0].shutdown(socket.SHUT_RDWR)
    until = time.monotonic() + 10
    while listens._listening is not None and time.monotonic() < until:
        time.sleep(0.01)
    begin(other)
    assert checked(one) == (0, 2)


def test_whoever_cannot_listen_may_ask_all_the_same(
    two: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_descriptor_left(*_: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", no_descriptor_left)
        begin(two[1])
    assert checked(two[0]) == (1, 0)


def test_a_list_asks_once(two: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is written in one transaction, while nobody else can write."""
    one, other = two
    begin(other)
    places, asked, elsewhere = one.reserve_all([ONE] * 3, Asking()), [], UnderWay.elsewhere

    def counted(self: UnderWay, *args: Any) -> int:
        asked.append(self)
        return elsewhere(self, *args)

    monkeypatch.setattr(UnderWay, "elsewhere", counted)
    assert [(so_far.failed, so_far.under_way) for so_far in commit_all(one, places)] == [(0, 3), (0, 2), (0, 1)]
    assert len(asked) == 1
