"""A bucket is filled at a steady rate and holds no more than the burst."""

import pytest

import holdfast as hf
from holdfast.service import limits


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
