"""New answers leave on a coarse clock; what was stored leaves at once."""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast as hf
from holdfast.service import ask as asking

TICK = 0.01


def slept(monkeypatch: pytest.MonkeyPatch, took: float, outcome: Any) -> list[float]:
    """Return what is slept after an answer that took so many seconds."""
    now, sleeps = [100.0], []

    async def sleep(seconds: float) -> None:
        sleeps.append(seconds)

    async def answering() -> Any:
        now[0] += took
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(asking.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(asking, "asyncio", SimpleNamespace(sleep=sleep))
    service = asking.AskService.__new__(asking.AskService)
    service._tick = TICK
    with pytest.raises(type(outcome)) if isinstance(outcome, Exception) else nullcontext():
        asyncio.run(service.on_the_clock(answering()))
    return sleeps


def answer(*, cached: bool) -> dict[str, Any]:
    return {"ok": True, "answer": {"cached": cached}}


@pytest.mark.parametrize("took", [0.0002, 0.0013, 0.0099, 0.0101, 0.0437])
def test_time_is_rounded_up_to_the_next_tick(monkeypatch: pytest.MonkeyPatch, took: float) -> None:
    for outcome in (
        answer(cached=False),
        {"ok": True, "results": [answer(cached=True), answer(cached=False)]},
        {"ok": True, "results": [answer(cached=True), {"ok": False}]},
        hf.ServiceUnavailable("called off"),
    ):
        (seconds,) = slept(monkeypatch, took, outcome)
        ticks = (took + seconds) / TICK
        assert ticks == pytest.approx(round(ticks), abs=1e-6)
        assert 0 <= seconds <= TICK


def test_what_was_stored_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for outcome in (answer(cached=True), {"ok": True, "results": [answer(cached=True)] * 2}):
        assert slept(monkeypatch, 0.0013, outcome) == []
