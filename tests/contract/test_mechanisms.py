"""What every mechanism owes: the rows it announced before any was read, values in [0, 1], plain types."""

from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np
import pytest

from counting_rows import CountingRows
from holdfast.errors import BudgetExhausted, HoldfastError, InvalidArgument, NotCovered
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.ladder import Ladder
from holdfast.guarantees.statistic import ExactMeans, NoisyMeans, Release, Tally
from holdfast.lab.baselines import CoinFromMean, FullGaussian, FullLaplace, Naive, Releaser, Thresholdout
from holdfast.mechanisms import MECHANISMS as REGISTERED
from holdfast.mechanisms.cells import Cells, Grid
from holdfast.mechanisms.coins import Coins, bits
from holdfast.mechanisms.fresh_rows import FreshRows
from holdfast.mechanisms.noisy_means import Gaussian, Laplace
from holdfast.queries.query import Query
from holdfast.questions.question import mechanism_of
from holdfast.rows.draws import Order
from holdfast.rows.open import open_rows
from holdfast.session.planning import plan
from planned import PAIRS, planned
from toy_queries import Group, Histogram, Mean, Share

KEY = bytes(range(32))
OF_SESSIONS: dict[str, Callable[[], Any]] = {
    "coins": lambda: Coins(draws=7, mass=0.05),
    "laplace": lambda: Laplace(draws=2, epsilon=0.5),
    "laplace with replacement": lambda: Laplace(draws=7, epsilon=0.5, replacement=True),
    "fresh rows": lambda: FreshRows(draws=2, key=KEY),
    "gaussian": lambda: Gaussian(sigma=0.2),
}
ALL_ROWS = {"gaussian"}  # reads them all, however many there are
MECHANISMS: dict[str, Callable[[], Releaser]] = OF_SESSIONS | {
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


@pytest.fixture(params=QUERIES)
def query(request: pytest.FixtureRequest) -> Query:
    return QUERIES[request.param]


@pytest.mark.parametrize("name", MECHANISMS)
def test_what_leaves_is_plain_and_within_range_whatever_the_rows_say(name, query, seed):
    statistic = query.statistic
    for rows in map(table, TABLES):
        rng = np.random.default_rng(seed)
        mechanism = MECHANISMS[name]()
        for _ in range(3):
            before = rows.rows_read
            release = mechanism.release(query, rows, rng)
            read = rows.rows_read - before
            scans = name in ALL_ROWS or name not in OF_SESSIONS
            announced = len(rows) if scans else mechanism.rows_read(statistic, mechanism.draws, len(rows))
            assert read == announced
            check_release(release, query, 1 if name == "coin from mean" else len(statistic.reported) or 1)
            assert type(release.draws) is int


def check_release(release: Release, query: Query, values: int) -> None:
    """Shares in [0, 1], and counts or means for every statistical query behind them."""
    statistic = query.statistic
    assert {type(value) for value in release.values} == {float}
    assert all(0 <= value <= 1 for value in release.values)
    assert len(release.values) == values
    if isinstance(release, Tally):
        assert {type(count) for count in release.counts} == {int}
        assert len(release.counts) == statistic.outcomes
        assert sum(release.counts) == release.draws
        assert min(release.counts) >= 0
    elif isinstance(release, NoisyMeans | ExactMeans):
        assert {type(mean) for mean in release.means} == {float}
        assert len(release.means) == statistic.intervals
        assert all(isfinite(mean) for mean in release.means)
    if isinstance(release, NoisyMeans):
        assert release.scale > 0
        assert release.grid >= 0
    if isinstance(release, ExactMeans):
        assert len(release.counts) == statistic.intervals
        assert {type(count) for count in release.counts} <= {int, type(None)}


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_a_mechanism_takes_its_numbers_from_the_guarantee(pair):
    standing: Guarantee = planned(*pair).standing
    made = mechanism_of(standing).under(standing, 12, Order(KEY, 5))
    if isinstance(made, Gaussian):
        assert made.sigma == standing.terms.sigma
        return
    assert made.draws == 12
    if isinstance(made, Coins):
        assert made.mass == standing.coin_mass
    elif isinstance(made, Laplace):
        assert made.epsilon == standing.epsilon_for(12)
        assert not made.replacement
    else:
        assert (made.key, made.start) == (KEY, 5)
        assert "key" not in repr(made)


def test_every_mechanism_of_a_session_keeps_this_contract():
    """But for checks and boards, which release no values."""
    assert set(REGISTERED.names()) - {"cells", "grid"} == {name.replace(" ", "_") for name in OF_SESSIONS}


def test_cells_and_the_grid_serve_one_guarantee_each():
    scored = {"metric": "accuracy", "id": "id", "target": "b", "low": 0.0, "high": 1.0, "clip": 0.001, "classes": "[]"}
    ladder = Ladder.grid(100, confidence=0.95, step=None, scale=1.0, about="labels", **scored)
    checks = plan(rows=100, queries=1, guarantee="checks").standing
    assert Cells.under(checks, 100, None).draws == Grid.under(ladder, 100, None).draws == 100
    for other in (ladder, planned("exchange", "coins").standing):
        with pytest.raises(NotCovered, match="says nothing about checks"):
            Cells.under(other, 100, None)
    for other in (checks, planned("exchange", "coins").standing):
        with pytest.raises(NotCovered, match="says nothing about submissions"):
            Grid.under(other, 100, None)


def test_fresh_rows_need_an_order():
    for pair in PAIRS:
        with pytest.raises(NotCovered, match="says nothing about fresh rows"):
            FreshRows.under(planned(*pair).standing, 10, None)
        if pair[0] != "split":
            with pytest.raises(NotCovered, match="says nothing about fresh rows"):
                FreshRows.under(planned(*pair).standing, 10, Order(KEY))


@pytest.mark.parametrize("name", ["naive", "fresh rows"])
def test_what_is_exact_is_exact(name, seed):
    rows = table("two rows")
    for query, value in [(Share(), 0.5), (Mean(), 0.5), (Group(), 0.0), (Histogram(), 0.5)]:
        release = MECHANISMS[name]().release(query, rows, np.random.default_rng(seed))
        assert release.values[0] == value
    assert MECHANISMS[name]().release(Histogram(), rows, np.random.default_rng(seed)).values == (0.5, 0, 0, 0.5)


@pytest.mark.parametrize("name", ["naive", "fresh rows"])
def test_an_empty_group_is_answered_in_the_middle(name, seed):
    """Where there is noise it may look inhabited; without noise nothing is known of it."""
    release = MECHANISMS[name]().release(Group(), table("an empty group"), np.random.default_rng(seed))
    assert release.values == (0.5,)


def test_the_parts_of_groups_and_histograms_are_what_they_say(seed):
    rows = table("fifty rows")
    group = Naive().release(Group(), rows, np.random.default_rng(seed))
    x, g = np.array(TABLES["fifty rows"]["x"]), np.array(TABLES["fifty rows"]["g"])
    assert group.means == pytest.approx((g.mean(), (x * g).mean()))
    assert group.values[0] == pytest.approx(x[g > 0.5].mean())
    histogram = Naive().release(Histogram(), rows, np.random.default_rng(seed))
    assert sum(histogram.means) == pytest.approx(1)


def test_fresh_rows_count_what_they_count(seed):
    rows = table("fifty rows")
    fresh = FreshRows(draws=50, key=KEY)
    rng = np.random.default_rng(seed)
    assert fresh.release(Share(), rows, rng).counts == (25,)
    assert fresh.release(Group(), rows, rng).counts == (25, None)
    assert sum(fresh.release(Histogram(), rows, rng).counts) == 50
    assert fresh.release(Mean(), rows, rng).counts == (None,)


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
        FreshRows(draws=each, key=KEY, start=start).release(Listening(), rows, np.random.default_rng(seed))
    for values in seen:
        used += [round(value * 64) for value in values]
    assert sorted(used) == list(range(50))


def test_fresh_rows_run_out_before_reading(seed):
    rows = table("fifty rows")
    with pytest.raises(BudgetExhausted, match=r"^Splitting has 3 fresh rows left and needs 10\.$") as caught:
        FreshRows(draws=10, key=KEY, start=47).release(Share(), rows, np.random.default_rng(seed))
    assert caught.value.fields == {"cost": 10, "left": 3, "total": 50, "unit": "rows"}
    assert rows.rows_read == 0


@pytest.mark.parametrize("query", [Share(), Histogram()], ids=["share", "histogram"])
def test_thresholdout_stops_before_it_can_overspend(query, seed):
    rows, rng = table("fifty rows"), np.random.default_rng(seed)
    mechanism = Thresholdout(threshold=1e-9, sigma=1e-9, budget=9, key=5)
    most = query.statistic.intervals
    for _ in range(1000):
        if mechanism.budget < most:
            break
        mechanism.release(query, rows, rng)
    assert 0 <= mechanism.budget < most
    read = rows.rows_read
    with pytest.raises(BudgetExhausted, match="Thresholdout can report") as caught:
        mechanism.release(query, rows, rng)
    assert caught.value.fields["total"] == 9
    assert rows.rows_read == read


def test_more_distinct_rows_than_there_are_is_refused_before_reading(seed):
    rows, rng = table("fifty rows"), np.random.default_rng(seed)
    with pytest.raises(InvalidArgument, match=r"must be at most n \(50\)"):
        Laplace(draws=51, epsilon=1.0).release(Share(), rows, rng)
    assert rows.rows_read == 0
    assert Laplace(draws=51, epsilon=1.0, replacement=True).release(Share(), rows, rng).draws == rows.rows_read == 51


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Coins(draws=0, mass=0.1),
        lambda: Coins(draws=5, mass=0.0),
        lambda: Coins(draws=5, mass=0.6),
        lambda: Laplace(draws=0, epsilon=1.0),
        lambda: Laplace(draws=5, epsilon=0.0),
        lambda: FreshRows(draws=0, key=KEY),
        lambda: FreshRows(draws=5, key=KEY[:15]),
        lambda: FreshRows(draws=5, key=KEY, start=-1),
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


def test_bits_are_the_counts_in_some_order(seed):
    rows = table("fifty rows")
    rng = np.random.default_rng(seed)
    release = Coins(draws=40, mass=0.05).release(Share(), rows, rng)
    found = bits(release, rng)
    assert (found.count(0), found.count(1)) == release.counts
    assert set(found) <= {0, 1}
