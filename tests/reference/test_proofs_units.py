"""Units and weights by enumeration: what docs/proofs/units.md states, on populations small enough to write down.

A unit is a tuple of rows, each 0 or 1. Every sample of n units and every transcript is enumerated; the exchange theorem
is checked on worlds of units as it is on worlds of rows (ghost_worlds.py). The two mistakes the page warns of,
rows planned as units and rows drawn uniformly from unequal units, go through the same functions and must fail.
"""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest

from ghost_worlds import Array, Coin, World, play
from holdfast.guarantees.mathematics import exchange

SLACK = 1e-9
MASS = 0.1
Unit = tuple[int, ...]
KINDS: tuple[Unit, ...] = ((1,), (0,), (0, 0, 0, 1), (1, 1, 1, 1, 1, 0))
CAP = 6


def mean(unit: Unit) -> Array:
    """A random row of the unit."""
    share = sum(unit) / len(unit)
    return np.array([1 - share, share])


def some(unit: Unit) -> Array:
    """Whether any row says yes."""
    return np.array([0.0, 1.0] if any(unit) else [1.0, 0.0])


def capped(unit: Unit) -> Array:
    """A coin with the bias min(sum, 2)/2."""
    bias = min(sum(unit), 2) / 2
    return np.array([1 - bias, bias])


def every_row(unit: Unit) -> Array:
    """Excluded, 0 or 1: one of max(N, cap) places, and the row there."""
    places = max(len(unit), CAP)
    return np.array([places - len(unit), len(unit) - sum(unit), sum(unit)]) / places


LAWS = (mean, some, capped, every_row)


def worlds(count: int) -> list[World]:
    """Return sessions about units: each draw asks one of the quantities, chosen from what was released."""
    rng = np.random.default_rng(15)
    made = []
    for _ in range(count):
        n, kinds = int(rng.integers(1, 4)), int(rng.integers(2, 4))
        units = [KINDS[place] for place in rng.choice(len(KINDS), kinds, replace=False)]
        tables = [np.array([law(unit) for unit in units]) for law in LAWS]
        depth = 3 if n * kinds < 9 else 2

        def choose(
            rng: np.random.Generator,
            world: World,
            at: int,
            here: Array,
            tables: list[Array] = tables,
            n: int = n,
            depth: int = depth,
        ) -> Coin | None:
            if at == depth:
                return None
            rule = tables[int(rng.integers(len(tables)))]
            return Coin(np.broadcast_to(rule, (n, *rule.shape)), MASS)

        law = rng.dirichlet(np.ones(kinds))
        world = play(rng, np.broadcast_to(law, (n, kinds)), choose)
        world.units = units  # type: ignore[attr-defined]
        made.append(world)
    return made


def group_misses(j_is: Callable[[Array, World], Array], weight: Callable[[Unit], float]) -> int:
    """Return how often the row-weighted mean is outside the interval for a group with weights."""
    missed, used = 0, 0
    for world in worlds(60):
        units: list[Unit] = world.units  # type: ignore[attr-defined]
        d, d_t = world.populations[0], world.share().mean(axis=0)
        information = np.maximum(0, world.given_transcript(world.information))
        js = j_is(2 * information / world.n, world)
        share, accepted = np.array([mean(unit)[1] for unit in units]), np.array([weight(unit) for unit in units])
        true = float((accepted * share) @ d / (accepted @ d))
        for g, top, j in zip(accepted @ d_t, (accepted * share) @ d_t, js, strict=True):
            if j < 1e-9 or g <= j:
                continue
            used += 1
            mu = min(1.0, top / g)
            low, high = exchange.group_lower(mu, g, j), exchange.group_upper(mu, g, j)
            missed += not low - SLACK <= true <= high + SLACK
    assert used > 300
    return missed


def test_the_row_weighted_mean_is_a_group_with_weights() -> None:
    assert group_misses(lambda j, world: j, lambda unit: len(unit) / CAP) == 0


def test_rows_planned_as_units_are_caught() -> None:
    """J for as many observations as there are rows, on average, is missed."""

    def for_rows(j: Array, world: World) -> Array:
        units: list[Unit] = world.units  # type: ignore[attr-defined]
        return np.asarray(j / float(np.array([len(unit) for unit in units]) @ world.populations[0]))

    assert group_misses(for_rows, lambda unit: len(unit) / CAP) > 0


def test_weights_above_one_are_caught() -> None:
    """Without the cap, g would be the mean number of rows, and a group could be larger than everybody."""
    assert group_misses(lambda j, world: j, lambda unit: float(len(unit))) > 0


@pytest.mark.parametrize("largest", [1.0, 3.0])
def test_weighted_groups_for_any_two_laws(largest: float) -> None:
    """The posterior guarantee's form, chi being exactly what lies between the two laws; weights above 1 break it."""
    rng, missed, closest = np.random.default_rng(16), 0, 0.0
    for _ in range(4_000):
        points = int(rng.integers(2, 5))
        d_t, d = rng.dirichlet(np.ones(points)), rng.dirichlet(np.full(points, 20.0))
        d_t = 0.2 * d_t + 0.8 * d
        chi = float((d**2 / d_t).sum() - 1)
        weight, q = largest * rng.random(points), rng.random(points).round(int(rng.integers(0, 2)))
        g = float(weight @ d_t)
        if g <= chi:
            continue
        mu, theta = float((weight * q) @ d_t) / g, float((weight * q) @ d / (weight @ d))
        bound = chi / (g - chi) * mu * (1 - mu)
        missed += (theta - mu) ** 2 > bound * (1 + SLACK) + 1e-15
        closest = max(closest, (theta - mu) ** 2 / max(bound, 1e-12))
    assert closest > 0.5  # within reach
    assert (missed > 0) == (largest > 1)


def told(n: int, law: Array, units: Sequence[Unit], depth: int, *, uniform_rows: bool) -> float:
    """Return I(S; T) in nats of so many draws of a unit's random row; or of a uniformly drawn row of the table."""
    samples = np.array(list(product(range(len(units)), repeat=n)))
    weight = law[samples].prod(axis=1)
    yes, sizes = np.array([sum(unit) for unit in units]), np.array([len(unit) for unit in units])
    means = yes[samples].sum(axis=1) / sizes[samples].sum(axis=1) if uniform_rows else (yes / sizes)[samples].mean(1)
    p = 1 / n + (1 - 2 / n) * means
    ones = np.arange(depth + 1)
    ways = np.array([1.0])
    for _ in range(depth):
        ways = np.convolve(ways, [1.0, 1.0])
    given = ways * p[:, None] ** ones * (1 - p[:, None]) ** (depth - ones)
    return float(np.sum(weight[:, None] * given * np.log(given / (weight @ given))))


def test_a_draw_of_a_unit_tells_no_more_than_half_a_nat_in_n() -> None:
    rng, best, mutant, planned = np.random.default_rng(17), 0.0, 0.0, 0.0
    units: tuple[Unit, ...] = ((0,) * 9, (1,) * 9, (0,), (1,))
    for _ in range(60):
        n, depth, law = int(rng.integers(3, 7)), int(rng.integers(1, 5)), rng.dirichlet([0.3, 0.3, 1.0, 1.0])
        bound = depth / (2 * n)
        rows = n * float(np.array([len(unit) for unit in units]) @ law)
        nats = told(n, law, units, depth, uniform_rows=False)
        best = max(best, nats / bound)
        planned = max(planned, nats / (depth / (2 * rows)))
        mutant = max(mutant, told(n, law, units, depth, uniform_rows=True) / bound)
    assert 0.3 < best <= 1
    assert planned > 1.5  # rows planned as units
    assert mutant > 1.2  # rows drawn uniformly from unequal units


def test_the_places_of_a_unit_give_its_rows_equal_weight() -> None:
    """Outcome laws of all quantities, against their definition in exact numbers."""
    for unit in KINDS:
        excluded, zero, one = every_row(unit)
        assert excluded == pytest.approx(1 - len(unit) / CAP)
        assert one / (zero + one) == pytest.approx(sum(unit) / len(unit))
    heavy: Unit = (1,) * 5 + (0,) * 5  # above the cap: never excluded, each row weighs CAP/10
    assert every_row(heavy)[0] == 0
