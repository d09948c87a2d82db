"""Alarms ring after their time, in order and once, unless they were canceled; canceled ones do not accumulate."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.service.alarms import FEW, Alarms

SOON = 0.02


def run(scene: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scene(), 30))  # type: ignore[arg-type]


def test_alarms_ring_in_the_order_in_which_they_were_set_and_not_before_their_time():
    async def scene() -> None:
        loop, alarms, rang = asyncio.get_running_loop(), Alarms(SOON), []
        begin, done = loop.time(), asyncio.Event()
        first = alarms.set(lambda: rang.append((1, loop.time() - begin)))
        await asyncio.sleep(SOON / 4)
        alarms.set(lambda: rang.append((2, loop.time() - begin)))
        alarms.set(done.set)
        await done.wait()
        assert [number for number, _ in rang] == [1, 2]
        assert rang[0][1] >= SOON * 0.9
        assert rang[1][1] >= SOON * 1.15
        assert first.rang
        assert not first.pending

    run(scene)


def test_a_canceled_alarm_never_rings_and_hides_none_behind_it():
    async def scene() -> None:
        alarms, rang, done = Alarms(SOON), [], asyncio.Event()
        canceled = alarms.set(lambda: rang.append("canceled"))
        between = alarms.set(lambda: rang.append("between"))
        alarms.set(done.set)
        canceled.cancel()
        await done.wait()
        assert rang == ["between"]
        assert not canceled.rang
        between.cancel()  # too late, and without effect
        assert between.rang

    run(scene)


def test_an_alarm_may_set_another_and_one_that_fails_silences_none():
    async def scene() -> None:
        loop, alarms, done, failures = asyncio.get_running_loop(), Alarms(SOON), asyncio.Event(), []
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        alarms.set(lambda: 1 / 0)
        alarms.set(lambda: alarms.set(done.set))
        after = alarms.set(lambda: None)
        await done.wait()
        assert after.rang
        assert [type(each) for each in failures] == [ZeroDivisionError]

    run(scene)


def test_one_canceled_while_another_rings_does_not_ring():
    async def scene() -> None:
        alarms, rang, done = Alarms(SOON), [], asyncio.Event()
        alarms.set(lambda: second.cancel())
        second = alarms.set(lambda: rang.append("second"))
        alarms.set(done.set)
        await done.wait()
        assert rang == []

    run(scene)


@pytest.mark.parametrize("held", [True, False])
def test_canceled_alarms_do_not_accumulate_behind_one_that_is_pending(held):
    async def scene() -> None:
        alarms = Alarms(60.0)
        pending = alarms.set(lambda: None)
        if not held:
            pending.cancel()
        for _ in range(100 * FEW):
            alarms.set(lambda: None).cancel()
        assert len(alarms._set) <= 2 * FEW
        assert pending.pending is held

    run(scene)


def test_alarms_go_on_in_another_event_loop():
    alarms = Alarms(SOON)

    async def scene() -> None:
        done = asyncio.Event()
        alarms.set(done.set)
        await done.wait()

    async def left() -> None:
        alarms.set(lambda: None)

    run(scene)
    run(left)
    run(scene)
