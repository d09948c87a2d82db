"""The area under a ROC curve: every step of docs/proofs/auc.md on cases written down; wrong versions must fail."""

import numpy as np
import pytest

from examples import examples
from ghost_worlds import Array
from holdfast.guarantees.mathematics import groups
from holdfast.guarantees.mathematics.concentration import clopper_pearsons
from holdfast.guarantees.mathematics.shares import area_under, level_among

SLACK = 1e-9


def area(positives: Array, negatives: Array) -> float:
    """Return the area of two laws on the same increasing scores."""
    below = np.concatenate([[0.0], negatives.cumsum()[:-1]])
    return float(positives @ (below + negatives / 2))


def above(law: Array, cuts: Array) -> Array:
    return np.array([law[cut:].sum() for cut in cuts])


def test_the_area_is_between_the_staircases_and_reaches_them() -> None:
    rng, reached, one_end, no_doubt = np.random.default_rng(1), [1.0, 1.0], 0, 0
    for _ in range(examples(400)):
        scores, steps = int(rng.integers(3, 9)), int(rng.integers(2, 5))
        cuts = np.sort(rng.choice(np.arange(1, scores), min(steps, scores) - 1, replace=False))
        positives, negatives = rng.dirichlet(np.full(scores, rng.choice([0.2, 1.0])), size=2)
        p, q = above(positives, cuts), above(negatives, cuts)
        off = rng.random((4, len(cuts))) * rng.choice([0.0, 0.2])
        ends = [list(zip(x - below, x + over, strict=True)) for x, (below, over) in ((p, off[:2]), (q, off[2:]))]
        low, high = area_under(*ends)
        truth = area(positives, negatives)
        assert low - SLACK <= truth <= high + SLACK
        reached = [min(reached[0], truth - low), min(reached[1], high - truth)]
        low_both, _ = area_under([(x, x) for x, _ in ends[0]], [(x, x) for x, _ in ends[1]])  # both ends taken low
        one_end += low_both > truth + SLACK
        ties = np.diff([1.0, *q, 0.0]) @ (np.array([1.0, *p]) + np.array([*p, 0.0])) / -2  # steps without doubt inside
        no_doubt += abs(ties - truth) > SLACK
    assert max(reached) < 0.02
    assert one_end > 0
    assert no_doubt > examples(100)


@pytest.mark.parametrize("m", [3, 6])
def test_a_union_within_a_group_over_a_rectangle(m: int) -> None:
    rng, used, as_one = np.random.default_rng(3), 0, 0
    for _ in range(60):
        a, outcomes = float(rng.uniform(0.001, 0.03)), 2 * m + 1
        g, s = float(rng.uniform(0.1, 0.9)), int(rng.integers(2, m))
        law = rng.dirichlet(np.ones(m))
        pi, one = m * a + (1 - outcomes * a) * g, s * a + (1 - outcomes * a) * g * law[:s].sum()
        assert (one - s * a) / (pi - m * a) == pytest.approx(law[:s].sum())
        as_one += abs((one - a) / (pi - m * a) - law[:s].sum()) > 1e-4  # as if the union had the mass of one outcome
        ell = int(rng.integers(50, 5_000))
        included, count = max(1, int(ell * pi)), max(1, int(ell * one))
        ((low, high),), _ = groups.unions_within([count], s, m, included, ell, outcomes=outcomes, mass=a, level=1e-2)
        least, most = clopper_pearsons([included], [ell], [1e-2])
        if least[0] <= m * a:
            continue
        used += 1
        below, over = clopper_pearsons([count], included, level_among(1e-2, least[0], included, ell))
        theta, grid = np.meshgrid(np.linspace(below[0], over[0], 21), np.linspace(least[0], most[0], 21))
        values = np.clip((theta * grid - s * a) / (grid - m * a), 0, 1)
        assert [low, high] == pytest.approx([values.min(), values.max()], abs=1e-9)
    assert used > 30
    assert as_one > 30


def test_cells_one_by_one_are_unions_of_one() -> None:
    counts = [30, 12, 8]
    alone, share = groups.shares_within(counts, 400, mass=0.005, level=1e-3)
    unions, same = groups.unions_within(counts, [1, 1, 1], 3, 50, 400, outcomes=4, mass=0.005, level=1e-3)
    assert alone == pytest.approx(unions)
    assert share == same


def test_the_largest_trace_of_a_draw_of_two_rows() -> None:
    """Of "What a draw of two rows would cost", Step 6: with the mass doubled it is no larger than that of one row."""
    f = np.linspace(0, 0.5, 201)
    for a in (1e-4, 0.01, 0.1, 0.2):
        tau, most = a / (1 - 2 * a), a * (1 - a) / (1 - 2 * a) ** 2
        assert most == pytest.approx(tau + tau**2)
        twice = a * a * (f + most) / (f + 2 * tau) ** 2
        assert twice.max() <= a * (1 - a) / 4 + 1e-15 <= most / 2
        assert (np.diff(twice) <= 0).all()
        if a <= 0.01:  # with the mass of one row it would be larger
            assert (a * a * (f + most) / (f + tau) ** 2).max() > most / 2


def test_exchanging_half_of_the_rows_costs_no_more_than_all() -> None:
    """The same page: (f_A + p)/2 - f_A p <= f + p' - 2 f p', f = (f_A + f_H)/2, p' = (p + f_H)/2."""
    f_a, f_h, p = np.meshgrid(*[np.linspace(0, 1, 41)] * 3)
    f, ghost = (f_a + f_h) / 2, (p + f_h) / 2
    room = f + ghost - 2 * f * ghost - ((f_a + p) / 2 - f_a * p)
    assert room.min() >= -1e-12
    assert room[:, :, 0] == pytest.approx((f_h * (1 - f))[:, :, 0])
    assert room[:, :, -1] == pytest.approx((f * (1 - f_h))[:, :, -1])


def test_tied_scores_count_half_and_their_ends_hold() -> None:
    """Steps are the scores themselves. The staircases of scores that are not told apart would be far too wide."""
    rng, wider = np.random.default_rng(9), 0
    for _ in range(200):
        m = int(rng.integers(2, 6))
        positives, negatives = rng.dirichlet(np.ones(m), size=2)
        true = float(sum(positives[i] * negatives[j] * ((i > j) + (i == j) / 2) for i in range(m) for j in range(m)))
        above = [tuple(law[::-1].cumsum()[-2::-1].tolist()) for law in (positives, negatives)]
        exact = [[(share, share) for share in shares] for shares in above]
        assert area_under(*exact, tied=True) == pytest.approx((true, true), abs=1e-9)
        doubt = [[(max(0, s - rng.random() / 9), min(1, s + rng.random() / 9)) for s in shares] for shares in above]
        low, high = area_under(*doubt, tied=True)
        assert low <= true <= high
        wider += area_under(*doubt)[1] - area_under(*doubt)[0] > 1.5 * (high - low)
    assert wider > 20
