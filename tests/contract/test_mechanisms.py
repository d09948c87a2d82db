"""What every mechanism owes: a price before any row is read, the rows it says it reads, an answer in [0, 1]."""

from collections.abc import Callable
from math import isfinite

import numpy as np
import pytest

from counting_rows import CountingRows
from holdfast.errors import BudgetExhausted, HoldfastError, InvalidArgument
from holdfast.lab.baselines import CoinFromMean, FullGaussian, FullLaplace, Naive, Thresholdout
from holdfast.mechanisms.base import Mechanism, intervals
from holdfast.mechanisms.coins import Coins, bits
from holdfast.mechanisms.fresh_rows import FreshRows
from holdfast.mechanisms.laplace import Laplace
from holdfast.queries.query import Query
from holdfast.rows.open import open_rows
from toy_queries import Group, Histogram, Mean, Share

MECHANISMS: dict[str, Callable[[], Mechanism]] = {
    "coins": lambda: Coins(draws=7, flip_probability=0.05),
    "laplace": lambda: Laplace(draws=2, epsilon=0.5),
    "laplace with replacement": lambda: Laplace(draws=7, epsilon=0.5, replacement=True),
    "fresh rows": lambda: FreshRows(draws=2, key=11),
    "full laplace": lambda: FullLaplace(epsilon=0.5),
    "full gaussian": lambda: FullGaussian(sigma=0.2),
    "thresholdout": lambda: Thresholdout(threshold=0.1, sigma=0.05, budget=100, key=11),
    "naive": Naive,
    "coin from mean": lambda: CoinFromMean(epsilon=0.5),
}
QUERIES: dict[str, Query] = {
    "share": Share(),
    "mean": Mean(),
    "mean with bounds": Mean(bounds=(-10.0, 10.0)),
    "group": Group(),
    "histogram": Histogram(),
}
TABLES = {
    "two rows": {"x": [0.0, 1.0], "g": [1.0, 0.0]},
    "an empty group": {"x": [0.2, 0.8, 0.4], "g": [0.0, 0.0, 0.0]},
    "everybody in the group": {"x": [0.2, 0.8, 0.4], "g": [1.0, 1.0, 1.0]},
    "the lower bound": {"x": [0.0] * 5, "g": [1.0, 0.0, 1.0, 0.0, 1.0]},
    "the upper bound": {"x": [1.0] * 5, "g": [1.0, 0.0, 1.0, 0.0, 1.0]},
    "beyond the bounds": {"x": [-1e300, 1e300, 0.5], "g": [1.0, 1.0, 0.0]},
    "fifty rows": {"x": list(np.linspace(0, 1, 50)), "g": [1.0, 0.0] * 25},
}


def table(name: str) -> CountingRows:
    columns = {column: np.array(values) for column, values in TABLES[name].items()}
    return CountingRows(open_rows(columns, name=name))


@pytest.fixture(params=MECHANISMS)
def mechanism(request: pytest.FixtureRequest) -> Mechanism:
    return MECHANISMS[request.param]()


@pytest.fixture(params=QUERIES)
def query(request: pytest.FixtureRequest) -> Query:
    return QUERIES[request.param]


@pytest.fixture(params=TABLES)
def rows(request: pytest.FixtureRequest) -> CountingRows:
    return table(request.param)


def test_the_price_is_known_before_any_row_is_read(mechanism, query, rows):
    price = mechanism.price(query, len(rows))
    assert rows.rows_read == rows.tallies == rows.samples == 0
    assert price == mechanism.price(query, len(rows))
    assert isinstance(price.flips, int)
    assert price.flips >= 0
    assert price.intervals == {"group": 2, "histogram": query.outcomes}.get(query.kind, 1) == intervals(query)
    assert price.epsilon is None or price.epsilon > 0


def test_rows_read_are_the_rows_priced_and_the_rows_reported(mechanism, query, rows, seed):
    price = mechanism.price(query, len(rows))
    release = mechanism.release(query, rows, np.random.default_rng(seed))
    assert release.rows_read == price.rows_read == rows.rows_read


def test_answers_are_shares_whatever_the_rows_say(mechanism, query, rows, seed):
    rng = np.random.default_rng(seed)
    for _ in range(5):
        release = mechanism.release(query, rows, rng)
        assert 0 <= release.answer <= 1
        assert all(isfinite(value) for value in release.values)
        assert all(count >= 0 for count in release.counts)


def test_what_leaves_has_plain_types(mechanism, query, rows, seed):
    release = mechanism.release(query, rows, np.random.default_rng(seed))
    assert type(release.answer) is float
    assert type(release.rows_read) is int
    assert {type(count) for count in release.counts} <= {int}
    assert {type(value) for value in release.values} <= {float}


def test_counts_or_values_are_there_for_every_statistic(mechanism, query, rows, seed):
    release = mechanism.release(query, rows, np.random.default_rng(seed))
    if isinstance(mechanism, Coins):
        assert len(release.counts) == query.outcomes
        assert sum(release.counts) == mechanism.draws
        assert release.values == ()
    elif isinstance(mechanism, CoinFromMean):
        assert sorted(release.counts) == [0, 1]
    else:
        assert len(release.values) == intervals(query)


@pytest.mark.parametrize("name", ["naive", "fresh rows"])
def test_what_is_exact_is_exact(name, seed):
    rows = table("two rows")
    for query, answer in [(Share(), 0.5), (Mean(), 0.5), (Group(), 0.0), (Histogram(), 0.5)]:
        release = MECHANISMS[name]().release(query, rows, np.random.default_rng(seed))
        assert release.answer == answer
    assert MECHANISMS[name]().release(Histogram(), rows, np.random.default_rng(seed)).values == (0.5, 0, 0, 0.5)


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "coin from mean"])
def test_an_empty_group_has_no_opinion(name, seed):
    """Noise may make it look inhabited; without noise the answer is in the middle."""
    rows = table("an empty group")
    release = MECHANISMS[name]().release(Group(), rows, np.random.default_rng(seed))
    if name in ("naive", "fresh rows"):
        assert release.answer == 0.5
    assert 0 <= release.answer <= 1


def test_group_and_histogram_parts_are_what_they_say(seed):
    rows = table("fifty rows")
    group = Naive().release(Group(), rows, np.random.default_rng(seed))
    x, g = np.array(TABLES["fifty rows"]["x"]), np.array(TABLES["fifty rows"]["g"])
    assert group.values == pytest.approx((g.mean(), (x * g).mean()))
    assert group.answer == pytest.approx(x[g > 0.5].mean())
    histogram = Naive().release(Histogram(), rows, np.random.default_rng(seed))
    assert sum(histogram.values) == pytest.approx(1)


def test_fresh_rows_count_what_they_count(seed):
    rows = table("fifty rows")
    fresh = FreshRows(draws=50, key=3)
    rng = np.random.default_rng(seed)
    assert fresh.release(Share(), rows, rng).counts == (25,)
    assert fresh.release(Group(), rows, rng).counts == (25,)
    assert sum(fresh.release(Histogram(), rows, rng).counts) == 50
    assert fresh.release(Mean(), rows, rng).counts == ()


@pytest.mark.parametrize("blocks", [2, 5, 25])
def test_fresh_rows_never_use_a_row_twice(blocks, seed):
    """Every row says its own number, so the values of the blocks name their rows."""
    rows = CountingRows(open_rows({"x": np.arange(50) / 64.0}, name="numbered"))
    each = 50 // blocks
    used: list[int] = []
    seen: list[np.ndarray] = []

    class Listening(Mean):
        def evaluate(self, frame):
            seen.append(frame["x"].to_numpy())
            return super().evaluate(frame)

    for start in range(0, 50, each):
        FreshRows(draws=each, key=99, start=start).release(Listening(), rows, np.random.default_rng(seed))
    for values in seen:
        used += [round(value * 64) for value in values]
    assert sorted(used) == list(range(50))


def test_fresh_rows_run_out_before_reading(seed):
    rows = table("fifty rows")
    with pytest.raises(BudgetExhausted, match=r"^Splitting has 3 fresh rows left and needs 10\.$") as caught:
        FreshRows(draws=10, key=1, start=47).release(Share(), rows, np.random.default_rng(seed))
    assert caught.value.fields == {"cost": 10, "left": 3, "total": 50, "unit": "rows"}
    assert rows.rows_read == 0


@pytest.mark.parametrize("query", [Share(), Histogram()], ids=["share", "histogram"])
def test_thresholdout_stops_before_it_can_overspend(query, seed):
    rows, rng = table("fifty rows"), np.random.default_rng(seed)
    mechanism = Thresholdout(threshold=1e-9, sigma=1e-9, budget=9, key=5)
    for _ in range(1000):
        if mechanism.budget < intervals(query):
            break
        mechanism.release(query, rows, rng)
    assert 0 <= mechanism.budget < intervals(query)
    read = rows.rows_read
    with pytest.raises(BudgetExhausted, match="Thresholdout can report") as caught:
        mechanism.release(query, rows, rng)
    assert caught.value.fields["total"] == 9
    assert rows.rows_read == read


def test_a_histogram_that_would_be_mostly_noise_is_refused_before_reading():
    rows = table("fifty rows")
    with pytest.raises(InvalidArgument, match="it allows 10") as caught:
        Coins(draws=7, flip_probability=0.05).price(Histogram(outcomes=11), len(rows))
    assert caught.value.fields == {"outcomes": 11, "most": 10}
    assert Coins(draws=7, flip_probability=0.05).price(Histogram(outcomes=10), 50).flips == 63
    assert rows.rows_read == 0


def test_more_draws_than_rows_are_refused_before_reading():
    with pytest.raises(InvalidArgument, match=r"draws must be at most rows \(50\)"):
        Laplace(draws=51, epsilon=1.0).price(Share(), 50)
    assert Laplace(draws=51, epsilon=1.0, replacement=True).price(Share(), 50).rows_read == 51


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Coins(draws=0, flip_probability=0.1),
        lambda: Coins(draws=5, flip_probability=0.0),
        lambda: Coins(draws=5, flip_probability=0.6),
        lambda: Laplace(draws=0, epsilon=1.0),
        lambda: Laplace(draws=5, epsilon=0.0),
        lambda: FreshRows(draws=0, key=1),
        lambda: FreshRows(draws=5, key=-1),
        lambda: FreshRows(draws=5, key=1, start=-1),
        lambda: FullLaplace(epsilon=-1.0),
        lambda: FullGaussian(sigma=0.0),
        lambda: Thresholdout(threshold=0.1, sigma=0.1, budget=0, key=1),
        lambda: Thresholdout(threshold=0.0, sigma=0.1, budget=1, key=1),
        lambda: CoinFromMean(epsilon=0.0),
    ],
)
def test_settings_that_protect_nothing_are_refused(wrong):
    with pytest.raises(HoldfastError, match="must be"):
        wrong()


def test_prices_in_flips():
    assert Coins(draws=100, flip_probability=0.01).price(Group(), 1000).flips == 200
    assert Laplace(draws=100, epsilon=0.01).price(Group(), 1000).flips == 200
    assert FullLaplace(epsilon=0.01).price(Share(), 1000).flips == 100
    assert FullGaussian(sigma=0.05).price(Histogram(), 1000).flips == 400
    assert FreshRows(draws=100, key=1).price(Histogram(), 1000).flips == 100
    assert Naive().price(Share(), 1000).flips == 0


def test_bits_are_the_counts_in_some_order(seed):
    rows = table("fifty rows")
    rng = np.random.default_rng(seed)
    release = Coins(draws=40, flip_probability=0.05).release(Share(), rows, rng)
    found = bits(release, rng)
    assert (found.count(0), found.count(1)) == release.counts
    assert set(found) <= {0, 1}
