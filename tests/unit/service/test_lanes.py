"""In a lane everybody has a turn: one person fills a part of the threads, and the rest of the queue goes round."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

import holdfast as hf
from holdfast.service.lanes import Lane


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
