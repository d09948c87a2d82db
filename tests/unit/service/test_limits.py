"""A bucket is filled at a steady rate and holds no more than the burst; processes share connections."""

import asyncio
import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.service import app, connections, rates
from holdfast.service.lanes import Lanes


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(rates.time, "monotonic", lambda: now[0])
    return now


def test_the_burst_is_given_at_once_and_then_the_rate(clock: list[float]) -> None:
    bucket = rates.RateLimiter(2.0, 3)
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
    bucket = rates.RateLimiter(1.0, 2)
    clock[0] += 1e6
    bucket.take("ana", 2)
    with pytest.raises(hf.TooManyRequests):
        bucket.take("ana")


def test_more_than_the_burst_drains_a_full_bucket(clock: list[float]) -> None:
    bucket = rates.RateLimiter(1.0, 5)
    bucket.take("ana", 50)
    with pytest.raises(hf.TooManyRequests):
        bucket.take("ana")


def test_buckets_are_each_ones_own_and_the_oldest_are_forgotten(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "MAX_BUCKETS", 2)
    bucket = rates.RateLimiter(1.0, 1)
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


def admit(monkeypatch: pytest.MonkeyPatch, clock: Clock, count: int, shares: app.Shares, every: float = 0.0) -> None:
    """Have so many connections come; the clock notes how the process pauses."""
    monkeypatch.setattr(connections, "time", clock)
    open_ = connections.Connections(most=10**6, each=None, shares=shares)
    for number in range(count):
        assert open_.admit(Arrived(f"10.0.0.{number % 9}")) is None  # type: ignore[arg-type]
        clock.now += every


@pytest.fixture
def shares(tmp_path: Path) -> app.Shares:
    app.Shares.of_processes(2, str(tmp_path / "shares"))
    return app.Shares(str(tmp_path / "shares"))


def test_who_has_more_connections_waits_until_another_process_has_caught_up(
    monkeypatch: pytest.MonkeyPatch, shares: app.Shares
) -> None:
    class Other(Clock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            shares._counts[1] += len(self.sleeps) % 5 == 0  # takes a connection now and then

    clock = Other()
    admit(monkeypatch, clock, 12, shares)
    assert list(shares._counts) == [12, 11]
    assert len(clock.sleeps) == 5 * 11  # one ahead is as good as even


def test_who_connects_all_the_time_stops_a_process_for_a_small_part_of_it(
    monkeypatch: pytest.MonkeyPatch, shares: app.Shares
) -> None:
    clock = Clock()
    admit(monkeypatch, clock, 20_000, shares, every=1e-4)
    passed = clock.now - 100.0
    assert 0.9 * connections.PAUSES < sum(clock.sleeps) <= connections.PAUSES + connections.PAUSED * passed
    assert max(clock.sleeps) <= connections.LONGEST_PAUSE


SECOND = """
import sys
from holdfast.service.app import Shares
shares = Shares(sys.argv[1])
print(shares._mine, shares.lead(7), flush=True)
sys.stdin.read()
"""


@pytest.mark.slow  # three processes, each of which imports the server
def test_every_process_has_a_number_of_its_own_and_leaves_it_to_the_next(tmp_path: Path, shares: app.Shares) -> None:
    def other() -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", SECOND, str(tmp_path / "shares")]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    assert (shares._mine, shares.lead(3)) == (0, 3)
    with other() as second, other() as third:  # one of them finds no number free, and does not wait for anybody
        assert sorted([second.stdout.readline(), third.stdout.readline()]) == ["-1 0\n", "1 4\n"]
        assert shares.lead(9) == 2
        second.kill(), third.kill()
    with other() as fourth:
        assert fourth.stdout.readline() == "1 0\n"
        fourth.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a thread choose its processors")
def test_a_pinned_process_keeps_to_one_processor_except_for_heavy_work(tmp_path: Path, shares: app.Shares) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("needs two processors")
    found = []

    async def look(second: app.Shares) -> None:
        lanes = Lanes(each=1, waiting=1, write=lambda _: [])
        second.pin()
        every = (lanes.reads, lanes.asks, lanes.heavy)
        places = [await one.submit("ana", lambda *_: os.sched_getaffinity(0)) for one in every]
        found.append((os.sched_getaffinity(0), *places))
        lanes.close()

    def process(second: app.Shares) -> None:
        thread = threading.Thread(target=lambda: asyncio.run(look(second)))  # this thread shall run anywhere
        thread.start()
        thread.join()

    process(shares)
    shares._mine = 1
    process(shares)
    app.Shares.of_processes(len(allowed) + 1, str(tmp_path / "many"))
    process(app.Shares(str(tmp_path / "many")))
    one, two, all_ = {allowed[0]}, {allowed[1]}, set(allowed)
    assert found == [(one, one, one, all_), (two, two, two, all_), (all_, all_, all_, all_)]


def test_workers_serve_without_telling_each_other_on_a_disk_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(count: int, path: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.delenv(app.SHARES, raising=False)
    monkeypatch.setattr(app.Shares, "of_processes", full)
    with app._sharing(2):
        assert app._shares() is None
