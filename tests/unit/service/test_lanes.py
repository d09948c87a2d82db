"""In a lane everybody has a turn: one person fills a part of the threads, and the rest of the queue goes round."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

import holdfast as hf
from holdfast.service import lanes
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


def test_a_list_that_is_paid_for_and_waits_for_its_tick_is_written_before_the_lanes_are_closed() -> None:
    async def main() -> None:
        some, begun, written = Lanes(each=1, waiting=1, write=list, tick=0.2), threading.Event(), []

        def answer_list() -> None:
            begun.set()
            time.sleep(0.2)
            written.append("a list")

        some.heavy.submit("eve", answer_list).cancel()  # she has left
        begun.wait(30)
        some.close()
        assert written == ["a list"]

    asyncio.run(main())


def test_lanes_are_closed_though_something_in_them_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "ENDING", 0.05)

    async def main() -> None:
        some, order, go = Lanes(each=1, waiting=1, write=list), [], threading.Event()
        hangs = some.heavy.submit("eve", blocked(order, "hangs", go))
        await until(lambda: order == ["hangs"])
        some.close()
        assert not hangs.done()
        go.set()

    asyncio.run(main())
