"""A bucket is filled at a steady rate and holds no more than the burst; processes share connections."""

import pytest

import holdfast as hf
from holdfast.service import connections, limits


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(limits.time, "monotonic", lambda: now[0])
    return now


def test_the_burst_is_given_at_once_and_then_the_rate(clock: list[float]) -> None:
    bucket = limits.RateLimiter(2.0, 3)
    for _ in range(3):
        bucket.take("ana")
    with pytest.raises(hf.TooManyRequests) as refused:
        bucket.take("ana")
    assert refused.value.fields["retry_after"] == pytest.approx(0.5)
    clock[0] += 0.5
    bucket.take("ana")
    with pytest.raises(hf.TooManyRequests):
        bucket.take("ana")


def test_waiting_long_fills_no_more_than_the_burst(clock: list[float]) -> None:
    bucket = limits.RateLimiter(1.0, 2)
    clock[0] += 1e6
    bucket.take("ana", 2)
    with pytest.raises(hf.TooManyRequests):
        bucket.take("ana")


def test_more_than_the_burst_drains_a_full_bucket(clock: list[float]) -> None:
    bucket = limits.RateLimiter(1.0, 5)
    bucket.take("ana", 50)
    with pytest.raises(hf.TooManyRequests):
        bucket.take("ana")


def test_buckets_are_each_ones_own_and_the_oldest_are_forgotten(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_BUCKETS", 2)
    bucket = limits.RateLimiter(1.0, 1)
    for name in ("ana", "bob", "eve"):
        bucket.take(name)
    with pytest.raises(hf.TooManyRequests):
        bucket.take("eve")
    bucket.take("ana")


class Clock:
    """Time that passes only by sleeping, or when told."""

    def __init__(self) -> None:
        self.now, self.sleeps = 100.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


class Arrived:
    """A connection that does nothing."""

    def __init__(self, address: str) -> None:
        self.address = address


def admitted(monkeypatch: pytest.MonkeyPatch, count: int, *, shared: bool, every: float = 0.0) -> Clock:
    """Have so many connections come, and return how the process paused."""
    clock = Clock()
    monkeypatch.setattr(connections, "time", clock)
    open_ = connections.Connections(most=10**6, each=None, shared=shared)
    for number in range(count):
        assert open_.admit(Arrived(f"10.0.0.{number % 9}")) is None  # type: ignore[arg-type]
        clock.now += every
    return clock


def test_of_several_processes_the_one_with_more_connections_lets_the_others_come_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses = admitted(monkeypatch, 60, shared=True).sleeps
    assert pauses == sorted(pauses)
    assert (min(pauses), max(pauses)) == (connections.PAUSE, connections.LONGEST_PAUSE)
    assert admitted(monkeypatch, 60, shared=False).sleeps == []


def test_who_connects_all_the_time_stops_a_process_for_a_small_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = admitted(monkeypatch, 20_000, shared=True, every=1e-4)
    passed = clock.now - 100.0
    assert sum(clock.sleeps) <= connections.PAUSES + connections.PAUSED * passed
