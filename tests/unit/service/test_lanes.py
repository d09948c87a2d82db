"""In a lane everybody has a turn: one person fills a part of the threads, and the rest of the queue goes round."""

import asyncio
import os
import threading
import time
from collections.abc import Callable

import pytest

import holdfast as hf
from holdfast.service.lanes import Lane, Lanes


def blocked(order: list[str], name: str, go: threading.Event) -> Callable[[], str]:
    def work() -> str:
        order.append(name)
        go.wait(30)
        return name

    return work


async def until(done: Callable[[], bool]) -> None:
    while not done():  # the test's own timeout ends a hang
        await asyncio.sleep(0.005)


def test_one_person_fills_a_part_of_the_threads_only() -> None:
    async def main() -> None:
        lane, order, go = Lane("test", 3, each=2, waiting=10), [], threading.Event()
        hers = [lane.submit("eve", blocked(order, f"eve {i}", go)) for i in range(5)]
        his = lane.submit("ana", blocked(order, "ana", go))
        await until(lambda: len(order) == 3)
        assert sorted(order) == ["ana", "eve 0", "eve 1"]
        go.set()
        assert await his == "ana"
        assert await asyncio.gather(*hers) == [f"eve {i}" for i in range(5)]
        lane.close()

    asyncio.run(main())


def test_free_threads_go_round_the_persons_who_wait() -> None:
    async def main() -> None:
        lane, order, go = Lane("test", 1, each=1, waiting=10), [], threading.Event()
        first = lane.submit("first", blocked(order, "first", go))
        asked = [lane.submit(name[0], blocked(order, name, go)) for name in ("a1", "a2", "a3", "b1", "b2", "c1")]
        go.set()
        await asyncio.gather(first, *asked)
        assert order == ["first", "a1", "b1", "c1", "a2", "b2", "a3"]
        lane.close()

    asyncio.run(main())


def test_too_many_that_wait_are_refused_and_others_are_not() -> None:
    async def main() -> None:
        lane, order, go = Lane("test", 1, each=1, waiting=2), [], threading.Event()
        waiting = [lane.submit("eve", blocked(order, f"eve {i}", go)) for i in range(3)]
        with pytest.raises(hf.TooManyRequests) as refused:
            lane.submit("eve", blocked(order, "eve 3", go))
        assert refused.value.fields["retry_after"] > 0
        waiting.append(lane.submit("ana", blocked(order, "ana", go)))
        waiting[1].cancel()  # who leaves the queue makes room in it, and is never begun
        waiting.append(lane.submit("eve", blocked(order, "eve 4", go)))
        go.set()
        done = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(done[1], asyncio.CancelledError)
        assert sorted(order) == ["ana", "eve 0", "eve 2", "eve 4"]
        lane.close()

    asyncio.run(main())


def test_a_caller_who_leaves_does_not_free_the_thread() -> None:
    async def main() -> None:
        lane, order, go = Lane("test", 1, each=1, waiting=2), [], threading.Event()
        left = lane.submit("eve", blocked(order, "eve", go))
        await until(lambda: order == ["eve"])
        left.cancel()
        stays = lane.submit("ana", blocked(order, "ana", go))
        assert not (await asyncio.wait({stays}, timeout=0.05))[0]
        assert order == ["eve"]
        go.set()
        assert await stays == "ana"
        lane.close()

    asyncio.run(main())


def test_closing_waits_for_what_was_begun_and_for_no_longer_than_it_may() -> None:
    async def main() -> None:
        order, stays, ends = [], threading.Event(), threading.Event()
        lane = Lane("test", 2, each=1, waiting=2)
        lane.submit("eve", blocked(order, "eve", ends)).cancel()  # who asked has left, and it is paid for
        lane.submit("ana", blocked(order, "ana", stays))
        never = lane.submit("ana", blocked(order, "never", ends))
        await until(lambda: len(order) == 2)
        threading.Timer(0.1, ends.set).start()
        begin = time.monotonic()
        lane.close(0.3)
        assert 0.3 <= time.monotonic() - begin < 5
        assert len(lane._begun) == 1  # that of ana, which did not end
        assert not never.done()
        stays.set()
        lane.close(30)
        assert not lane._begun
        assert sorted(order) == ["ana", "eve"]

    asyncio.run(main())


def test_an_error_is_the_callers_and_the_lane_goes_on() -> None:
    def broken() -> None:
        raise ZeroDivisionError

    async def main() -> None:
        lane = Lane("test", 1, each=1, waiting=2)
        with pytest.raises(ZeroDivisionError):
            await lane.run("eve", broken)
        assert await lane.run("eve", lambda: 7) == 7
        lane.close()

    asyncio.run(main())


def without_threads(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Have the system start no thread so many times."""
    start, failed = threading.Thread.start, []

    def failing(thread: threading.Thread) -> None:
        if len(failed) < times and thread.name.startswith("holdfast"):
            failed.append(1)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", failing)
    return failed


@pytest.mark.parametrize("times", [1, 2, 7])
def test_work_waits_while_no_thread_can_be_started(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        lane, begun = Lane("test", 2, each=1, waiting=2), []
        failed = without_threads(monkeypatch, times)
        asked = [lane.submit("eve", lambda: begun.append("eve")), lane.submit("ana", lambda: begun.append("ana"))]
        await asyncio.wait_for(asyncio.gather(*asked), 10)
        assert len(failed) == times
        assert sorted(begun) == ["ana", "eve"]  # each once
        for person in ("eve", "ana"):
            assert await asyncio.wait_for(lane.run(person, lambda: 7), 10) == 7
        assert not lane.turns.running
        lane.close()

    asyncio.run(main())


def test_threads_that_there_are_do_the_work_of_those_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        lane, order, go = Lane("test", 2, each=2, waiting=2), [], threading.Event()
        first = lane.submit("eve", blocked(order, "first", go))
        await until(lambda: order == ["first"])
        without_threads(monkeypatch, 10**9)
        second = lane.submit("eve", blocked(order, "second", go))
        await asyncio.sleep(0.1)
        assert order == ["first"]
        go.set()
        assert await asyncio.wait_for(asyncio.gather(first, second), 10) == ["first", "second"]
        assert order == ["first", "second"]
        lane.close()

    asyncio.run(main())


def test_what_is_still_to_begin_never_does_once_the_lane_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        lane, begun = Lane("test", 2, each=1, waiting=2), []
        without_threads(monkeypatch, 10**9)
        asked = lane.submit("eve", lambda: begun.append("eve"))
        lane.close(30)
        assert not lane.busy
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert begun == []

    asyncio.run(main())


def test_a_thread_that_raises_stop_iteration_keeps_nobody_waiting() -> None:
    async def main() -> None:
        lane = Lane("test", 1, each=1, waiting=2)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(lane.run("eve", lambda: next(iter(()))), 10)
        assert await asyncio.wait_for(lane.run("eve", lambda: 7), 10) == 7
        lane.close()

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system does not pin threads")
def test_the_heavy_lane_works_without_the_processors_that_it_began_with(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(*args: object) -> None:
        raise OSError(22, "Invalid argument")

    async def main() -> None:
        lanes = Lanes(each=1, waiting=2, write=lambda answers: list(answers))
        assert await asyncio.wait_for(lanes.heavy.run("eve", lambda: 7), 10) == 7
        lanes.close()

    monkeypatch.setattr(os, "sched_setaffinity", taken)
    asyncio.run(main())
