"""Lines of numbers kept for all rows say exactly what computing them for the drawn rows says."""

import pickle

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.optimize.gradient import GradientAt, Scales
from holdfast.optimize.objective import AccuracyAt, LossAt, domain_of
from holdfast.rows.disk import packs
from holdfast.rows.draws import WithReplacement

ROWS = 1_000
LOSS = hf.losses.Squared({"a": (-1.0, 2.0), "b * 2": (0.0, 1.0)}, target="c", target_within=(0.0, 0.3))


def table() -> pl.DataFrame:
    rng = np.random.default_rng(5)
    a = rng.normal(size=ROWS)
    a[::7], a[1::50] = np.nan, np.inf
    return pl.DataFrame({"a": a, "b": rng.random(ROWS), "c": rng.random(ROWS)})


def asked(source, query, times=1):
    for _ in range(times):
        values = source.sample(query, WithReplacement(30), np.random.default_rng(3))
    return values


@pytest.fixture(params=["gradient", "loss", "accuracy"])
def query(request):
    objective = LOSS.bind(hf.open(table()).schema, domain_of(3, 1.0, None))
    point = np.array([0.3, -0.4, 0.2])
    if request.param == "gradient":
        return GradientAt(objective, point, Scales(objective.ranges, slices=4))
    return LossAt(objective, point) if request.param == "loss" else AccuracyAt(objective, point)


def kept(source) -> dict:
    return source._packs._kept


def test_a_pack_says_the_same(query):
    source = hf.open(table())
    before = asked(source, query)
    assert not kept(source)
    after = asked(source, query, times=20)
    assert list(kept(source)) == [packing.identity for packing in query.packings]
    assert (before == after).all()
    assert np.ptp(after.astype(float)) > 0


def test_packs_stay_under_their_limit(query, monkeypatch):
    monkeypatch.setattr(packs, "MOST_BYTES", ROWS * 4 - 1)
    source = hf.open(table())
    before, after = asked(source, query), asked(source, query, times=20)
    assert not kept(source)
    assert (before == after).all()


def test_a_whole_fit_is_the_same_to_the_last_bit(monkeypatch):
    """Packing changes where numbers are read from, nothing else: so not how good a fit is."""
    loss = hf.losses.Logistic({"a": (-1.0, 2.0), "b": (0.0, 1.0)}, target="c > 0.5")

    def fitted():
        source = hf.open(table())
        with hf.Session(source, queries=20, guarantee="exchange", seed=1) as session:
            return session.minimize(loss, radius=2, iterations=60, rows_per_coordinate=5), kept(source)

    packed, packs_made = fitted()
    monkeypatch.setattr(packs, "MOST_BYTES", 0)
    by_column, none_made = fitted()
    assert packs_made
    assert not none_made
    assert packed.point == by_column.point
    for one, other in ((packed.loss, by_column.loss), (packed.accuracy, by_column.accuracy)):
        assert (one.value, one.low, one.high) == (other.value, other.low, other.high)


def test_the_oldest_pack_makes_room(monkeypatch):
    objectives = [
        hf.losses.Squared({"b": (0.0, high)}, target="c", target_within=(0.0, 1.0)).bind(
            hf.open(table()).schema, domain_of(2, 1.0, None)
        )
        for high in (1.0, 2.0)
    ]
    features, target = objectives[0].packings
    monkeypatch.setattr(packs, "MOST_BYTES", ROWS * (features.width + target.width) * 4)
    source = hf.open(table())
    for objective in objectives:
        asked(source, LossAt(objective, np.zeros(2)), times=20)
        assert objective.packings[0].identity in kept(source)
        assert len(kept(source)) == 2
    assert objectives[0].packings[0].identity not in kept(source)


class Emptied(dict):
    """What another thread empties right after every look or count."""

    def __contains__(self, name: object) -> bool:
        found = super().__contains__(name)
        self.clear()
        return found

    def __setitem__(self, name: str, value: object) -> None:
        super().__setitem__(name, value)
        self.clear()


@pytest.mark.parametrize("emptied", ["_kept", "_drawn"])
def test_another_thread_may_make_room_at_any_moment(query, emptied):
    """The question is paid for by then: it must be answered, with the pack or without."""
    source = hf.open(table())
    before = asked(source, query, times=20)
    setattr(source._packs, emptied, Emptied(getattr(source._packs, emptied)))
    if emptied == "_drawn":
        kept(source).clear()
    assert (asked(source, query, times=20) == before).all()
    source._packs._make_room(packs.MOST_BYTES)


def test_packs_are_not_pickled(query):
    source = hf.open(table())
    before = asked(source, query, times=20)
    other = pickle.loads(pickle.dumps(source))
    assert not kept(other)
    assert (asked(other, query) == before).all()


def test_a_fit_on_a_deck_reads_every_card_once_and_keeps_none(tmp_path):
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, 20_000)
    pl.DataFrame({"x": x, "y": np.clip(0.5 * x + 0.1, -1, 1)}).write_parquet(tmp_path / "line.parquet")
    deck = hf.deal(tmp_path / "line.parquet", tmp_path / "line.deck", cards=400_000)
    loss = hf.losses.Squared({"x": (-1, 1)}, "y", target_within=(-1, 1))
    with hf.Session(deck, queries=20, guarantee="exchange", seed=1) as session:
        fit = session.minimize(loss, radius=2, iterations=400, rows_per_coordinate=100)
    assert abs(fit.coefficients["x"] - 0.5) < 0.1
    assert abs(fit.coefficients["intercept"] - 0.1) < 0.1
    assert fit.loss.low <= fit.loss.value <= fit.loss.high
    assert fit.rows_read >= 2 * 400 * 100
    assert deck.used.cards >= fit.rows_read
    assert not any(cards._packs._kept for cards in deck._deals)  # no card is read again, so none is kept
