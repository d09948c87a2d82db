"""Boards on worlds so small that the best submitter can be computed.

Rows are independent and need not be identical; a submission is any prediction for each row. The submitter knows the
laws and plays to make some interval miss: dynamic programming over all strategies gives the largest probability that
anybody reaches; docs/proofs/boards.md says that it is at most beta. The same program with a mutilated interval must
find a submitter who beats beta. In worlds of units, all rows of a unit have one label, and predictions of their own.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import pairwise, product
from math import exp, log, prod

import numpy as np
import pytest

from examples import QUICK
from holdfast.guarantees.ladder import COMPARED, ROWS, UNITS, Apart, Ladder, SubmissionsSoFar
from holdfast.guarantees.mathematics.checks import full_range, ladder_nats, paired_range, time_share
from holdfast.guarantees.mathematics.concentration import kl_lower, kl_range
from holdfast.guarantees.terms import PlainAmounts

BETA = 0.02  # less than any one sample of a small world, so that no miss goes unnoticed
Interval = tuple[float, float]
Ends = Callable[[Ladder, int, SubmissionsSoFar], Interval]  # board, cell of the score, what was told -> interval


def board(rows: int, step: float, about: str = "labels") -> Ladder:
    named = {
        "metric": "accuracy",
        "id": "id",
        "target": "label",
        "low": 0.0,
        "high": 1.0,
        "clip": 0.001,
        "classes": "[]",
    }
    return Ladder.grid(rows, confidence=1 - BETA, step=step, scale=1.0, about=about, **named)


def proved(ladder: Ladder, cell: int, climbed: SubmissionsSoFar) -> Interval:
    return ladder.certify(cell, climbed)


def length(ladder: Ladder, climbed: SubmissionsSoFar) -> float:
    t = climbed.submissions + 1
    return log(2 / (BETA * time_share(t))) + ladder_nats(
        t, climbed.improvements, ladder.terms.cells, climbed.units / UNITS
    )


def halved(ladder: Ladder, cell: int, climbed: SubmissionsSoFar) -> Interval:
    return kl_range(ladder.known_range(cell, climbed), n=ladder.terms.rows, r=length(ladder, climbed) / 2)


def rows_alone(ladder: Ladder, cell: int, climbed: SubmissionsSoFar) -> Interval:
    return ladder.known_range(cell, climbed)


def shifted(ladder: Ladder, cell: int, climbed: SubmissionsSoFar) -> Interval:
    """Say of a submission that did not improve what is said of one that did: the interval of the best cell."""
    return ladder.certify(max(cell, climbed.best), climbed._replace(best=0))


Predicted = tuple[tuple[int, ...], ...]  # of each unit, of each of its rows


def all_predictions(laws: list[tuple[float, ...]], sizes: list[int]) -> list[Predicted]:
    return list(product(*(product(range(len(law)), repeat=size) for law, size in zip(laws, sizes, strict=True))))


def score(predicted: Predicted, drawn: tuple[int, ...]) -> Fraction:
    """The mean over units of the share of their rows that are right."""
    shares = [Fraction(unit.count(y), len(unit)) for unit, y in zip(predicted, drawn, strict=True)]
    return sum(shares, Fraction(0)) / len(shares)


def best_submitter(
    laws: list[tuple[float, ...]],
    step: float,
    rounds: int,
    ends: Ends,
    sizes: list[int] | None = None,
    n: int | None = None,
) -> float:
    """Return the largest probability, over all strategies, that some interval misses; `n` is what it is made for."""
    ladder, units = board(n or len(laws), step), sizes or [1] * len(laws)
    labels = list(product(*(range(len(law)) for law in laws)))
    chance = [prod(law[y] for law, y in zip(laws, drawn, strict=True)) for drawn in labels]
    menu = []
    for predicted in all_predictions(laws, units):
        scores = [score(predicted, drawn) for drawn in labels]
        truth = sum(p * float(each) for p, each in zip(chance, scores, strict=True))
        menu.append((truth, [min(ladder.terms.cells, each // ladder.eta + 1) for each in scores]))

    @cache
    def interval(cell: int, climbed: SubmissionsSoFar) -> Interval:
        return ends(ladder, cell, climbed)

    @cache
    def best(alive: frozenset[int], climbed: SubmissionsSoFar) -> float:
        if climbed.submissions == rounds:
            return 0.0
        most = 0.0
        for truth, cells in menu:
            reached = 0.0
            for told in {max(cells[i], climbed.best) for i in alive}:
                left = frozenset(i for i in alive if max(cells[i], climbed.best) == told)
                improved = told > climbed.best
                low, high = interval(told if improved else 1, climbed)
                if low <= truth <= high:
                    reached += best(left, climbed.after(told))
                else:
                    reached += sum(chance[i] for i in left)
            most = max(most, reached)
        return most

    return best(frozenset(range(len(labels))), SubmissionsSoFar(0, 0, 0))


Ahead = Callable[[Ladder, Interval, SubmissionsSoFar, Apart], Interval]


def best_rival(
    laws: list[tuple[float, ...]], step: float, rounds: int, ahead: Ahead, sizes: list[int] | None = None
) -> float:
    """Return the largest probability, over all strategies, that some comparison with the best so far misses."""
    ladder, units = board(len(laws), step), sizes or [1] * len(laws)
    labels = list(product(*(range(len(law)) for law in laws)))
    chance = [prod(law[y] for law, y in zip(laws, drawn, strict=True)) for drawn in labels]
    menu = all_predictions(laws, units)
    scores = {p: [score(p, y) for y in labels] for p in menu}
    value = {p: sum(map(float.__mul__, chance, map(float, scores[p]))) for p in menu}
    cells = {p: [min(ladder.terms.cells, each // ladder.eta + 1) for each in scores[p]] for p in menu}

    @cache
    def best(alive: frozenset[int], climbed: SubmissionsSoFar, champion: Predicted) -> float:
        if climbed.submissions == rounds:
            return 0.0
        most = 0.0
        for p in menu:
            reached = 0.0
            for told in {max(cells[p][i], climbed.best) for i in alive}:
                left = frozenset(i for i in alive if max(cells[p][i], climbed.best) == told)
                missed = False
                if told > climbed.best and champion:
                    (worse, better), (low, high) = ladder.cell(climbed.best), ladder.cell(told)
                    differ = [sum(map(int.__ne__, *pair)) / len(pair[0]) for pair in zip(p, champion, strict=True)]
                    apart = Apart(sum(differ), sum(each**2 for each in differ))
                    low, high = ahead(ladder, (low - better, high - worse), climbed, apart)
                    missed = not low <= value[p] - value[champion] <= high
                following = p if told > climbed.best else champion
                reached += sum(chance[i] for i in left) if missed else best(left, climbed.after(told), following)
            most = max(most, reached)
        return most

    return best(frozenset(range(len(labels))), SubmissionsSoFar(0, 0, 0), ())


def compared(ladder: Ladder, told: Interval, climbed: SubmissionsSoFar, apart: Apart) -> Interval:
    return ladder.ahead(told, climbed, apart)


def compared_on_the_rows(ladder: Ladder, told: Interval, climbed: SubmissionsSoFar, apart: Apart) -> Interval:
    return told


RIVALS = [
    ([(0.99, 0.01)] * 4, 0.25, 3, None),
    ([(0.5, 0.5), (0.9, 0.1), (0.2, 0.8)], 0.2, 3, None),
    ([(0.99, 0.01), (0.9, 0.1), (0.2, 0.8)], 0.2, 2, [2, 1, 3]),
]


@pytest.mark.parametrize(("laws", "step", "rounds", "sizes"), RIVALS)
def test_no_submitter_makes_comparisons_miss_more_often_than_their_share_of_beta(
    laws: list[tuple[float, ...]], step: float, rounds: int, sizes: list[int] | None
) -> None:
    assert best_rival(laws, step, rounds, compared, sizes) <= COMPARED * BETA
    assert best_rival(laws, step, rounds, compared_on_the_rows, sizes) > BETA


@pytest.mark.parametrize("laws", [[0.5] * 8, [0.05] * 10, [0.01, 0.3, 0.5, 0.9, 0.99]])
@pytest.mark.parametrize("level", [0.5, 0.2, 0.05, 0.001])
def test_differences_of_rows_stray_no_further_than_their_squares_allow(laws: list[float], level: float) -> None:
    """All samples: row i, which has the label 1 with the probability laws[i], differs by +r_i or -r_i."""
    reach = [1.0, 0.5, 0.25, 1.0, 0.1, 0.3, 0.7, 1.0, 0.2, 0.9][: len(laws)]
    n, truth = 2 * len(laws), sum(r * (2 * p - 1) for r, p in zip(reach, laws, strict=True))
    sizes = {"n": n, "most": sum(reach), "squares": sum(r * r for r in reach)}
    outside = dict.fromkeys((False, True), 0.0)
    for drawn in product((1, -1), repeat=len(laws)):
        chance = prod(p if y > 0 else 1 - p for p, y in zip(laws, drawn, strict=True))
        found = sum(r * y for r, y in zip(reach, drawn, strict=True)) / n
        low, high = paired_range((found, found), **sizes, level=level, nats=0.0)
        for halved, by in ((False, 1.0), (True, 0.5)):
            outside[halved] += chance * (not found - by * (found - low) <= truth / n <= found + by * (high - found))
    assert outside[False] <= level
    if laws[0] == 0.5 and level == 0.05:
        assert outside[True] > level  # half as wide is too narrow


# One row, whose t-th label is as likely as the halved exponent lets a first wrong answer be: only one row is so tight.
_STEP = 0.05
_TOLD = [SubmissionsSoFar(0, 0, 0), *(SubmissionsSoFar(t, 1, 1) for t in range(1, 4))]
_RARE = [0.95 * kl_lower(1 - _STEP, length(board(1, _STEP), climbed) / 2) for climbed in _TOLD]
TIGHT = [(*_RARE, 1 - sum(_RARE))], _STEP, len(_RARE)
FAIR = (0.5, 0.5)
WORLDS = [
    ([FAIR, FAIR, FAIR, FAIR], 0.25, 3),
    ([FAIR, (0.9, 0.1), (0.2, 0.8), FAIR], 0.25, 3),
    ([(0.1, 0.9), (0.05, 0.95), (0.6, 0.4)], 0.2, 4),
    ([(0.3, 0.3, 0.4), (0.1, 0.2, 0.7), (0.05, 0.05, 0.9)], 0.34, 3),
    TIGHT,
]


@pytest.mark.parametrize(("laws", "step", "rounds"), WORLDS[2:3] if QUICK else WORLDS)
def test_no_submitter_beats_beta(laws: list[tuple[float, ...]], step: float, rounds: int) -> None:
    assert best_submitter(laws, step, rounds, proved) <= BETA


OF_UNITS = [
    ([(0.99, 0.01)] * 3, 0.05, 1, [4, 4, 4]),
    ([(0.5, 0.5), (0.95, 0.05), (0.2, 0.8)], 0.2, 2, [1, 4, 2]),
]


@pytest.mark.parametrize(("laws", "step", "rounds", "sizes"), OF_UNITS)
def test_no_submitter_beats_beta_by_units_of_rows_that_are_all_alike(
    laws: list[tuple[float, ...]], step: float, rounds: int, sizes: list[int]
) -> None:
    assert best_submitter(laws, step, rounds, proved, sizes) <= BETA


def test_rows_that_are_counted_as_units_are_beaten() -> None:
    laws, step, rounds, sizes = OF_UNITS[0]
    assert best_submitter(laws, step, rounds, proved, sizes, n=sum(sizes)) > BETA


@pytest.mark.parametrize("mutant", [halved, rows_alone])
def test_submitters_beat_intervals_that_forget_something(mutant: Ends) -> None:
    assert best_submitter(*TIGHT, mutant) > BETA


def test_a_submission_that_did_not_improve_has_one_end_only() -> None:
    assert best_submitter([(0.99, 0.01)] * 6, 0.1, 2, shifted) > BETA


@pytest.mark.parametrize(("t", "grid"), [(1, 4), (2, 4), (3, 4), (6, 3), (9, 5)])
def test_weights_of_all_histories_sum_to_one(t: int, grid: int) -> None:
    """Those of sets sum to 1 exactly, those of steps to less, as the grid ends: so all of them to between 1/2 and 1."""

    def total(climbed: SubmissionsSoFar) -> float:
        if climbed.submissions == t - 1:
            return exp(-ladder_nats(t, climbed.improvements, grid, climbed.units / UNITS))
        same = total(climbed.after(0)) if climbed.best else 0.0  # the first response is a cell
        return same + sum(total(climbed.after(cell)) for cell in range(climbed.best + 1, grid + 1))

    assert 0.5 < total(SubmissionsSoFar(0, 0, 0)) <= 1 + 1e-12


def test_steps_that_are_forgotten_or_a_grid_that_moves_break_the_weights() -> None:
    """With a grid that is moved after every improvement any cell may follow any other; steps must all be paid for."""

    def total(at: int, t: int, climbed: SubmissionsSoFar, grid: int, moving: bool) -> float:
        if at == t:
            steps = climbed.units / UNITS if moving else 0.0
            return exp(-ladder_nats(t, min(climbed.improvements, grid), grid, steps))
        same = total(at + 1, t, climbed.after(0), grid, moving) if climbed.improvements else 0.0
        start = climbed._replace(best=0) if moving else climbed
        better = (start.after(cell) for cell in range(start.best + 1, grid + 1))
        return same + sum(total(at + 1, t, each, grid, moving) for each in better)

    assert total(1, 5, SubmissionsSoFar(0, 0, 0), 5, True) > 1.5
    assert total(1, 5, SubmissionsSoFar(0, 0, 0), 8, False) > 1.5


@pytest.mark.parametrize("cells", [2, 7, 200, 10_000])
def test_what_was_told_is_read_back_from_what_entries_cost(cells: int) -> None:
    ladder, rng = board(100, 1 / cells), np.random.default_rng(cells)
    climbed, charge = SubmissionsSoFar(0, 0, 0), 0
    for cell in rng.integers(1, ladder.terms.cells + 1, 50).tolist() + list(range(1, ladder.terms.cells + 1)):
        after = climbed.after(cell)
        price = ladder.charge_of(climbed, after)
        assert price <= ladder.most_charge
        climbed, charge = after, charge + price
        assert ladder.so_far(PlainAmounts(charge, climbed.submissions)) == climbed
    assert ladder.most_charge * 10**8 < ladder.terms.charge  # a hundred million submissions


@pytest.mark.parametrize("step", [0.3, 0.25, 0.1, 0.005, 0.07])
def test_cells_are_half_open_and_cover_all_scores(step: float) -> None:
    ladder = board(100, step)
    edges = [ladder.cell(cell) for cell in range(1, ladder.terms.cells + 1)]
    assert edges[0][0] == 0.0
    assert edges[-1][1] == 1.0
    assert all(before[1] == after[0] for before, after in pairwise(edges))
    assert ladder.eta == Fraction(str(step))


def test_an_interval_about_these_rows_is_what_is_told() -> None:
    ladder, climbed = board(1_000, 0.01, ROWS), SubmissionsSoFar(50, 7, 60)
    assert ladder.certify(71, climbed) == pytest.approx((0.70, 0.71), abs=1e-11)
    assert ladder.certify(12, climbed) == pytest.approx((0.0, 0.60), abs=1e-11)


def test_small_steps_up_cost_less_than_any_set_of_cells() -> None:
    """Ten improvements of two cells each, on 200 cells: 16 nats less than as a set; never more than one more."""
    climbed = SubmissionsSoFar(0, 0, 0).after(120)
    for _ in range(9):
        climbed = climbed.after(climbed.best + 2)
    t, j, grid = 101, climbed.improvements, 200
    as_set = ladder_nats(t, j, grid, 1e9)
    assert as_set - ladder_nats(t, j, grid, climbed.units / UNITS) == pytest.approx(16, abs=1)
    assert as_set == pytest.approx(log(2) + 4.7 + 28.2 + 37.6, abs=1)


def test_what_comparisons_about_the_population_would_cost_everybody() -> None:
    """The numbers of the proof: on how many rows two models differ, told in steps of sqrt(2), at each improvement."""
    told = log(2 * log(14_042) / log(2))
    assert told == pytest.approx(3.3, abs=0.05)
    for improvements, wider in ((5, 1.12), (10, 1.17)):
        length = log(2 / (0.05 * time_share(100))) + ladder_nats(100, improvements, 200, 1e9)
        assert (1 + (improvements - 1) * told / length) ** 0.5 == pytest.approx(wider, abs=0.005)


def test_published_widths() -> None:
    """Radius plus step after ten improvements on a grid of .005, whatever their cells: not wider than published."""
    for n, k, width in [(10**5, 10**3, 0.0286), (10**6, 10**4, 0.0133), (10**4, 10**4, 0.0878)]:
        reach = full_range((0.5, 0.505), n=n, level=0.05 * time_share(k), nats=ladder_nats(k, 10, 200, 1e9))
        assert 0.9 * width < reach[1] - 0.505 + 0.005 <= width
