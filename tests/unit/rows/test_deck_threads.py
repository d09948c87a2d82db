"""Threads of a deal: results in order, errors where results are asked for, and nothing that runs on."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import sleep

import pytest

from holdfast.rows.decks import threads as threads_
from holdfast.rows.decks.threads import Behind, ThreadPool, ahead, at_once


@contextmanager
def interrupts() -> Iterator[None]:
    """Interrupt five times, as somebody does who leans on Ctrl-C."""
    left = 5

    def interrupt(*args: object) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.01)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_results_come_in_order_whatever_takes_long() -> None:
    def slow(item: int) -> int:
        sleep(0.01 if item % 3 == 0 else 0)
        return -item

    assert list(ahead(slow, range(10))) == at_once(slow, range(10)) == [-i for i in range(10)]
    assert list(ahead(slow, ())) == at_once(slow, ()) == []
    with closing(ThreadPool(3)) as threads:
        assert threads.each(lambda a, b: a + b, [1, 2], [10, 20]) == [11, 22]


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    def divide(item: int) -> float:
        return 1 / item

    with closing(ahead(divide, [2, 0, 4])) as results:
        assert next(results) == 0.5
        with pytest.raises(ZeroDivisionError):
            next(results)
    with pytest.raises(ZeroDivisionError):
        at_once(divide, [1, 0])
    behind = Behind(Path("runs"))
    behind.do(lambda: divide(0) and None)
    with pytest.raises(ZeroDivisionError):
        behind.do(lambda: None)
    behind.do(lambda: divide(0) and None)
    behind.close()  # who has left by an error of his own is not told of another


def test_what_was_to_be_done_behind_is_done_though_it_has_not_begun_when_that_is_closed(tmp_path: Path) -> None:
    done: list[int] = []
    for number in range(300):
        behind = Behind(tmp_path)
        behind.do(lambda number=number: done.append(number))  # type: ignore[misc]
        behind.close()
    assert done == list(range(300))


def test_nothing_is_begun_once_they_are_closed() -> None:
    begun: list[int] = []

    def work(item: int) -> None:
        begun.append(item)
        sleep(0.02)

    results = ahead(work, range(100))
    next(results)
    results.close()
    seen = len(begun)
    sleep(0.1)
    assert len(begun) == seen < 10
    assert not [each for each in threading.enumerate() if each.name == "holdfast deal"]


def take_all(work: Callable[[int], None]) -> None:
    with closing(ahead(work, range(10))) as results:
        list(results)


def wait_behind(work: Callable[[int], None]) -> None:
    behind = Behind(Path("runs"))
    try:
        behind.do(lambda: work(1))
        behind.wait()
    finally:
        behind.close()


@pytest.mark.parametrize("wait", [take_all, wait_behind, lambda work: at_once(work, range(10))])
def test_whoever_is_interrupted_again_and_again_leaves_nothing_running(
    wait: Callable[[Callable[[int], None]], object],
) -> None:
    running: list[int] = []

    def work(item: int) -> None:
        running.append(item)
        sleep(0.3)
        running.remove(item)

    with pytest.raises(KeyboardInterrupt), interrupts():
        wait(work)
    assert not running


def test_whoever_comes_next_waits_for_a_thread_that_was_left(tmp_path: Path) -> None:
    went_on, ended = threading.Event(), []

    def work() -> None:
        went_on.wait()
        sleep(0.05)
        ended.append(True)

    left = Behind(tmp_path)
    left.do(work)
    Behind(tmp_path / "another").close()
    while tmp_path not in threads_._busy:
        sleep(0.001)
    went_on.set()
    Behind(tmp_path).close()
    assert ended
    left.close()
