"""A lane whose works share their writes: nothing is written twice, handed over unwritten, or held up by another."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from math import inf
from queue import SimpleQueue
from typing import Any

import pytest

import holdfast as hf
from holdfast.cancel import about_to_wait
from holdfast.service import lanes
from holdfast.service.lanes import Unfinished, WritingLane


class Draft(Unfinished):
    def __init__(self, name: str, due: float = -inf) -> None:
        self.name, self.due = name, due


class Writer:
    """Writes drafts, and notes which together."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.go = threading.Event()
        self.go.set()
        self.fails: BaseException | None = None

    def __call__(self, drafts: list[Draft]) -> list[object]:
        self.batches.append([draft.name for draft in drafts])
        assert self.go.wait(30)
        if self.fails is not None:
            raise self.fails
        return [f"{draft.name}, written" for draft in drafts]


def draft(name: str) -> Callable[[Any], object]:
    return lambda again: Draft(name)


def run(test: Callable[[WritingLane, Writer], Awaitable[None]], *, threads: int = 4, each: int = 2) -> Writer:
    writer = Writer()

    async def main() -> None:
        lane = WritingLane("test", threads, each=each, waiting=100, write=writer)
        try:
            await asyncio.wait_for(test(lane, writer), 30)
        finally:
            lane.close()

    asyncio.run(main())
    return writer


async def until(done: Callable[[], bool]) -> None:
    while not done():  # the test's own timeout ends a hang
        await asyncio.sleep(0.002)


def test_everything_is_written_once_and_handed_over_afterwards() -> None:
    async def test(lane: WritingLane, writer: Writer) -> None:
        asked = [lane.submit(f"person {i % 7}", draft(f"draft {i}")) for i in range(200)]
        assert await asyncio.gather(*asked) == [f"draft {i}, written" for i in range(200)]

    writer = run(test)
    written = [name for batch in writer.batches for name in batch]
    assert sorted(written) == sorted(f"draft {i}" for i in range(200))
    assert max(map(len, writer.batches)) <= lanes.MOST_TOGETHER


def test_what_comes_during_a_write_is_written_together() -> None:
    async def test(lane: WritingLane, writer: Writer) -> None:
        writer.go.clear()
        first = lane.submit("first", draft("first"))
        await until(lambda: writer.batches == [["first"]])
        others = [lane.submit(f"person {i}", draft(f"draft {i}")) for i in range(10)]
        await until(lambda: sum(len(each.answers) for each in lane._unwritten.values()) == 10)
        assert not first.done()
        assert not any(one.done() for one in others)  # nothing is seen before it is written
        writer.go.set()
        assert await first == "first, written"
        await asyncio.gather(*others)

    assert [len(batch) for batch in run(test).batches] == [1, 10]


def test_neither_work_nor_a_write_that_hangs_holds_up_the_others() -> None:
    async def test(lane: WritingLane, writer: Writer) -> None:
        go = threading.Event()
        hung = [lane.submit("eve", lambda again, i=i: go.wait(30) and i) for i in range(5)]
        assert await lane.submit("bob", draft("his")) == "his, written"
        await until(lambda: lane.turns.running["eve"] == 2)  # a part of the threads
        writer.go.clear()
        unwritten = lane.submit("carol", draft("hers"))
        await until(lambda: writer.batches[-1] == ["hers"])
        assert await lane.submit("dave", lambda again: "stored") == "stored"
        assert not unwritten.done()
        assert lane.turns.running["eve"] == 2
        writer.go.set()
        go.set()
        assert await asyncio.gather(unwritten, *hung) == ["hers, written", *range(5)]

    run(test)


def test_work_that_waits_for_the_disk_lets_others_go_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "STALL", 60.0)

    async def test(lane: WritingLane, writer: Writer) -> None:
        go = threading.Event()

        def waits(again: object) -> object:
            about_to_wait()
            return go.wait(30) and "waited"

        slow = lane.submit("eve", waits)
        await until(lambda: lane.turns.running["eve"] == 1)
        assert await lane.submit("bob", draft("his")) == "his, written"
        assert not slow.done()
        go.set()
        assert await slow == "waited"

    run(test)


def test_one_thread_is_enough_while_nothing_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "STALL", 60.0)

    async def test(lane: WritingLane, writer: Writer) -> None:
        for _ in range(20):
            await asyncio.gather(*[lane.submit(f"person {i}", draft(f"draft {i}")) for i in range(10)])
        assert lane._started == 1

    run(test)


def test_a_failed_write_is_told_to_each_of_its_drafts_and_to_nobody_else() -> None:
    async def test(lane: WritingLane, writer: Writer) -> None:
        writer.fails = hf.LedgerUnavailable("no room")
        writer.go.clear()
        failed = [lane.submit("ana", draft("a"))]
        await until(lambda: writer.batches == [["a"]])
        writer.go.set()
        failed += [lane.submit("bob", draft("b"))]
        for one in failed:
            with pytest.raises(hf.LedgerUnavailable):
                await one
        writer.fails = None
        assert await lane.submit("ana", draft("c")) == "c, written"
        assert not lane.turns.running

    run(test)


def test_what_goes_wrong_in_a_work_is_raised_where_it_is_waited_for() -> None:
    async def test(lane: WritingLane, writer: Writer) -> None:
        def wrong(again: object) -> object:
            raise hf.InvalidArgument("no such column")

        with pytest.raises(hf.InvalidArgument, match="no such column"):
            await lane.submit("ana", wrong)
        assert await lane.submit("ana", draft("c")) == "c, written"

    run(test)


def test_work_that_waits_for_somebody_else_is_done_again_when_told() -> None:
    async def test(lane: WritingLane, writer: Writer) -> None:
        told: list[Callable[[], None]] = []

        def work(again: Callable[[], None]) -> object:
            told.append(again)
            return None if len(told) == 1 else "done"

        result = lane.submit("ana", work)
        await until(lambda: len(told) == 1)
        await until(lambda: not lane.turns.running)  # no thread waits meanwhile
        assert await lane.submit("bob", draft("his")) == "his, written"
        assert not result.done()
        threading.Thread(target=told[0]).start()
        assert await result == "done"

    run(test, threads=1)


def test_work_may_be_done_again_before_the_first_time_has_ended() -> None:
    """Whoever answers the same question may end at the very moment somebody leaves word."""

    async def test(lane: WritingLane, writer: Writer) -> None:
        times, second = [], threading.Event()

        def work(again: Callable[[], None]) -> object:
            times.append(threading.get_ident())
            if len(times) == 1:
                again()
                assert second.wait(30)
                return None
            second.set()
            return "done"

        assert await lane.submit("ana", work) == "done"
        assert len(set(times)) == 2
        await until(lambda: not lane.turns.running)

    run(test)


def test_what_nobody_waits_for_is_never_begun_and_too_many_are_refused() -> None:
    async def test(lane: WritingLane, writer: Writer) -> None:
        go, begun = threading.Event(), []
        hung = lane.submit("ana", lambda again: go.wait(30))
        await until(lambda: lane.turns.running["ana"] == 1)
        left = [lane.submit("ana", lambda again, i=i: begun.append(i) or i) for i in range(100)]
        with pytest.raises(hf.TooManyRequests):
            lane.submit("ana", draft("one more"))
        other = lane.submit("bob", draft("his"))  # is not refused
        left[3].cancel()
        again = lane.submit("ana", draft("now there is room"))
        go.set()
        await asyncio.gather(hung, again, other, *(one for one in left if not one.cancelled()))
        assert begun == [i for i in range(100) if i != 3]

    run(test, threads=1, each=1)


def test_persons_take_turns() -> None:
    async def test(lane: WritingLane, writer: Writer) -> None:
        go, order = threading.Event(), []

        def noted(name: str) -> Callable[[object], object]:
            return lambda again: order.append(name) or go.wait(30)

        first = lane.submit("first", noted("first"))
        await until(lambda: order == ["first"])
        rest = [lane.submit(name[0], noted(name)) for name in ("a1", "a2", "a3", "b1", "b2", "c1")]
        go.set()
        await asyncio.gather(first, *rest)
        assert order == ["first", "a1", "b1", "c1", "a2", "b2", "a3"]

    run(test, threads=1, each=1)


def test_results_for_a_loop_that_has_ended_are_dropped() -> None:
    writer, go = Writer(), threading.Event()
    lane = WritingLane("test", 2, each=2, waiting=10, write=writer)
    ended = threading.Event()

    def work(again: object) -> object:
        go.wait(30)
        ended.set()
        return Draft("too late")

    async def main() -> None:
        lane.submit("ana", work)
        await until(lambda: lane.turns.running["ana"] == 1)

    asyncio.run(main())
    go.set()
    assert ended.wait(30)
    for _ in range(1_000):
        if writer.batches:
            break
        threading.Event().wait(0.01)
    assert writer.batches == [["too late"]]  # it was paid for: it is there when it is asked again
    lane.close()


def test_who_has_waited_leaves_the_rest_to_who_went_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise every wait would add a thread for as long as there is something to do, in the way of the others."""
    monkeypatch.setattr(lanes, "STALL", 60.0)

    async def test(lane: WritingLane, writer: Writer) -> None:
        waited, worked = threading.Event(), threading.Event()

        def waits(again: object) -> object:
            about_to_wait()
            return waited.wait(30) and "waited"

        slow = lane.submit("eve", waits)
        busy = lane.submit("bob", lambda again: worked.wait(30) and "worked")
        await until(lambda: lane.turns.running["bob"] == 1)
        rest = lane.submit("carol", lambda again: "the rest")
        waited.set()
        assert await slow == "waited"
        await until(lambda: len(lane._idle) == 1)
        assert not rest.done()
        worked.set()
        assert [await busy, await rest] == ["worked", "the rest"]

    run(test)


def test_what_is_left_to_a_thread_that_hangs_then_is_written_by_another() -> None:
    async def test(lane: WritingLane, writer: Writer) -> None:
        begun, go = threading.Event(), threading.Event()

        def waits(again: object) -> object:
            about_to_wait()
            assert begun.wait(30)
            return Draft("hers")

        hers = lane.submit("eve", waits)
        await until(lambda: lane.turns.running["eve"] == 1 and not lane._watched)
        lane._watched = True  # as if the event loop were to look once more before she returns, and not after that
        hangs = lane.submit("bob", lambda again: begun.set() or go.wait(30))
        assert await asyncio.wait_for(hers, 5) == "hers, written"
        assert not hangs.done()
        go.set()
        await hangs

    run(test)


def test_who_is_not_the_next_to_be_woken_sees_to_the_rest_once_it_is() -> None:
    """Of two idle threads the upper one writes what is due, and hangs: a ledger is locked elsewhere."""
    lane, lower, upper = (WritingLane("test", 2, each=2, waiting=10, write=Writer()), SimpleQueue(), SimpleQueue())
    lane._idle += [lower, upper]
    lane._unwritten[None] = lanes._Unwritten(None)  # of another ledger
    waits = threading.Thread(target=lane._wait, args=(lower, 0.0), daemon=True)
    waits.start()
    waits.join(3 * lanes.STALL)
    assert waits.is_alive()
    assert lane._idle.pop() is upper
    waits.join(30)
    assert not waits.is_alive()
    assert not lane._idle


def test_the_event_loop_looks_once_at_a_time_though_there_is_nothing_to_do_now_and_then() -> None:
    looks: list[float] = []

    class Loop:
        def call_later(self, seconds: float, *call: object) -> None:
            looks.append(seconds)

    lane = WritingLane("test", 0, each=2, waiting=10, write=Writer())
    for _ in range(5):
        lane.turns.waiting["ana"] = deque()
        lane._look(Loop())  # type: ignore[arg-type]
        del lane.turns.waiting["ana"]  # a thread took it meanwhile
        lane._look(Loop())  # type: ignore[arg-type]
    assert looks == [lanes.STALL]


def test_a_lane_goes_on_once_the_system_has_threads_to_spare_again(monkeypatch: pytest.MonkeyPatch) -> None:
    start, refused = threading.Thread.start, []

    def starts(thread: threading.Thread) -> None:
        if thread.name == "holdfast test" and len(refused) < 5:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starts)

    async def test(lane: WritingLane, writer: Writer) -> None:
        assert await lane.submit("ana", draft("hers")) == "hers, written"
        assert len(refused) == 5

    run(test, threads=2)


def test_what_is_drawn_is_written_though_its_thread_hangs_when_the_lane_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "STALL", 0.2)  # the event loop has not looked yet, and there is no other thread
    monkeypatch.setattr(lanes, "ENDING", 10.0)

    async def test(lane: WritingLane, writer: Writer) -> None:
        begun, closed = threading.Event(), threading.Event()

        def hangs(again: object) -> None:
            begun.set()
            while not (writer.batches or closed.wait(0.01)):
                pass

        lane.submit("eve", lambda again: Draft("drawn", time.monotonic() + 0.05))
        lane.submit("bob", hangs)
        assert begun.wait(30)
        lane.close()
        closed.set()
        assert writer.batches == [["drawn"]]

    run(test)


def test_what_is_being_drawn_when_the_lane_is_closed_is_written() -> None:
    async def test(lane: WritingLane, writer: Writer) -> None:
        begun, go = threading.Event(), threading.Event()

        def slow(again: object) -> object:
            begun.set()
            go.wait(30)
            return Draft("drawn meanwhile", time.monotonic() + 0.1)

        lane.submit("eve", slow)
        await until(begun.is_set)
        threading.Timer(0.1, go.set).start()
        lane.close()
        assert writer.batches == [["drawn meanwhile"]]

    run(test)


def test_what_is_paid_for_is_written_when_it_is_due_though_the_lane_is_closed_and_nobody_waits() -> None:
    due = []

    async def test(lane: WritingLane, writer: Writer) -> None:
        due.append(time.monotonic() + 0.2)
        left = [lane.submit("eve", lambda again, i=i: Draft(f"draft {i}", due[0])) for i in range(2)]
        await until(lambda: sum(len(each.answers) for each in lane._unwritten.values()) == 2)
        for one in left:
            one.cancel()
        lane.close()
        assert time.monotonic() >= due[0]
        assert writer.batches == [["draft 0", "draft 1"]]
        await until(lambda: not any(each.name == "holdfast test" for each in threading.enumerate()))

    run(test)


def test_a_lane_that_is_closed_does_not_wait_for_a_write_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "ENDING", 0.05)

    async def test(lane: WritingLane, writer: Writer) -> None:
        writer.go.clear()
        lane.submit("eve", draft("hers"))
        await until(lambda: writer.batches == [["hers"]])
        lane.close()
        writer.go.set()

    run(test)
