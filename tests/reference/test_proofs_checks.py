"""Checks on worlds so small that the best analyst can be computed.

A population on a few points and n rows give finitely many samples. The analyst knows the population and everything
about the method, and plays to make some released interval miss: question, guess and tolerance of every round are
chosen from the cells released so far. Dynamic programming over all strategies gives the largest probability that any
analyst reaches; docs/proofs/checks.md says that it is at most beta. The same program with a mutilated interval must
find an analyst who beats beta: else it could find nothing.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement, product
from math import comb, exp, factorial, inf, log, prod

import numpy as np
import pytest

from examples import QUICK
from holdfast.guarantees.mathematics import checks
from holdfast.guarantees.mathematics.checks import (
    failure_nats,
    full_range,
    guess_nats,
    sampled_range,
    time_share,
    two_groups_length,
)
from holdfast.guarantees.mathematics.concentration import kl, kl_lower, kl_range, kl_upper
from holdfast.ledger.chain import FORMAT
from holdfast.queries.build import build_mean
from holdfast.queries.guess import WORDS, Guess, functions_nats, text_nats
from holdfast.schema import Column, Schema, Type

BETA = 0.3
Interval = tuple[float, float]
Ends = Callable[[Interval, int, int, int, int], Interval]  # cell, n, draws, t, wrong -> interval
LOW, HOLDS, HIGH = 0, 1, 2


def cells(guess: float, tolerance: float) -> list[Interval]:
    low, high = max(0.0, guess - tolerance), min(1.0, guess + tolerance)
    return [(0.0, low), (low, high), (high, 1.0)]


def cell_of(value: float, guess: float, tolerance: float) -> int:
    return LOW if value < guess - tolerance else HIGH if value > guess + tolerance else HOLDS


def nats(t: int, wrong: int) -> float:
    return guess_nats(t, wrong, wrong * log(2))


def proved(cell: Interval, n: int, draws: int, t: int, wrong: int) -> Interval:
    return full_range(cell, n=n, level=BETA * time_share(t), nats=nats(t, wrong))


def halved(cell: Interval, n: int, draws: int, t: int, wrong: int) -> Interval:
    return kl_range(cell, n=n, r=(log(2 / (BETA * time_share(t))) + nats(t, wrong)) / 2)


def without_population(cell: Interval, n: int, draws: int, t: int, wrong: int) -> Interval:
    return cell


@cache
def samples(population: tuple[float, ...], n: int) -> tuple[tuple[tuple[int, ...], float], ...]:
    """Every sample, as counts of the points, and its probability."""
    found = []
    for rows in combinations_with_replacement(range(len(population)), n):
        counts = tuple(rows.count(point) for point in range(len(population)))
        ways = factorial(n) // prod(map(factorial, counts))
        found.append((counts, ways * prod(p**c for p, c in zip(population, counts, strict=True))))
    return tuple(found)


def questions(points: int) -> Iterator[tuple[int, ...]]:
    return (q for q in product((0, 1), repeat=points) if 0 < sum(q) < points)


def best_analyst(population: tuple[float, ...], n: int, rounds: int, ends: Ends) -> float:
    """Return the largest probability, over all strategies, that some interval misses; all rows are scanned."""
    world = samples(population, n)
    menu = []
    for q in questions(len(population)):
        truth = sum(p for p, yes in zip(population, q, strict=True) if yes)
        means = [sum(c for c, yes in zip(counts, q, strict=True) if yes) / n for counts, _ in world]
        for k, tolerance in product(range(n + 1), (0.0, 0.999 / n)):
            where = [cell_of(mean, k / n, tolerance) for mean in means]
            sets = [frozenset(i for i, at in enumerate(where) if at == cell) for cell in (LOW, HOLDS, HIGH)]
            menu.append((truth, cells(k / n, tolerance), sets))
    chance = [p for _, p in world]

    @cache
    def best(alive: frozenset[int], t: int, wrong: int) -> float:
        if t > rounds or not alive:
            return 0.0
        most = 0.0
        for truth, offered, sets in menu:
            reached = 0.0
            for response, (cell, inside) in enumerate(zip(offered, sets, strict=True)):
                left = alive & inside
                if left:
                    low, high = interval(cell, t, wrong)
                    missed = not low <= truth <= high
                    reached += (
                        sum(chance[i] for i in left) if missed else best(left, t + 1, wrong + (response != HOLDS))
                    )
            most = max(most, reached)
        return most

    @cache
    def interval(cell: Interval, t: int, wrong: int) -> Interval:
        return ends(cell, n, n, t, wrong)

    return best(frozenset(range(len(world))), 1, 0)


# One row; the t-th point is as likely as the halved exponent lets a first wrong answer be: only n = 1 is that tight.
_RARE = tuple(0.95 * exp(-(log(2 / (BETA * time_share(t))) + nats(t, 0)) / 2) for t in range(1, 7))
TIGHT = (*_RARE, 1 - sum(_RARE)), 1, len(_RARE)
WORLDS = [
    ((0.5, 0.5), 8, 3),
    ((0.3, 0.3, 0.4), 5, 3),
    ((0.05, 0.15, 0.8), 5, 3),
    ((0.1, 0.1, 0.1, 0.7), 4, 2),
    TIGHT,
]


@pytest.mark.parametrize(("population", "n", "rounds"), WORLDS[:2] if QUICK else WORLDS)
def test_no_analyst_beats_beta(population: tuple[float, ...], n: int, rounds: int) -> None:
    assert best_analyst(population, n, rounds, proved) <= BETA


@pytest.mark.parametrize("mutant", [halved, without_population])
def test_analysts_beat_intervals_that_forget_something(mutant: Ends) -> None:
    assert best_analyst(*TIGHT, mutant) > BETA


# -- questions that are short -----------------------------------------------------------------------------------------


def named(population: tuple[float, ...], nats_of_code: float) -> Ends:
    """Half of beta for the responses, half for questions by their code: all questions of a world cost alike."""

    def ends(cell: Interval, n: int, draws: int, t: int, wrong: int) -> Interval:
        told = log(2 / (BETA / 2 * time_share(t))) + nats(t, wrong)
        return kl_range(cell, n=n, r=min(told, log(2 / (BETA / 2)) + nats_of_code))

    return ends


SHORT = [((0.07,) * 6 + (0.58,), 1, 6), ((0.3, 0.3, 0.4), 5, 3), ((0.05, 0.15, 0.8), 5, 3)]


@pytest.mark.parametrize(("population", "n", "rounds"), SHORT[:2] if QUICK else SHORT)
def test_no_analyst_beats_checks_of_questions_with_a_code(population: tuple[float, ...], n: int, rounds: int) -> None:
    count = len(list(questions(len(population))))
    assert best_analyst(population, n, rounds, named(population, log(count))) <= BETA


def test_an_analyst_beats_a_code_that_is_free() -> None:
    population, n, rounds = SHORT[0]
    assert best_analyst(population, n, rounds, named(population, 0.0)) > BETA


def test_the_chances_of_all_texts_sum_to_at_most_one() -> None:
    """Of one token and its end: every column, word, number and text of two signs at most."""
    columns = ["a", "b c", "AND"]
    digits, letters = "0123456789", [chr(code) for code in range(32, 127) if chr(code) != "'"]
    tokens = ["a", '"a"', '"b c"', *(WORDS - {"AND"}), "AND", '"AND"']
    tokens += [*digits, *(x + y for x in digits for y in digits + ".")]
    tokens += ["''", *(f"'{x}'" for x in letters), *(f"'{x}{y}'" for x in letters for y in letters)]
    assert len(set(tokens)) == len(tokens)
    chances = [exp(-text_nats(token, columns)) for token in tokens]
    assert 0.02 < sum(chances) < 1 / 8  # the end has a chance of 1/8
    others = [chr(code) for code in range(128, 0x20000) if chr(code).isdigit()]  # digits of other scripts are no number
    assert len(others) > 500
    assert sum(exp(-text_nats(x + y, columns)) for x in others for y in others) < 1 / 8 / 16
    assert exp(-text_nats("", columns)) == pytest.approx(1 / 8)
    assert text_nats("a > 15", columns) < text_nats("a > 15 AND a < 1.25", columns)
    assert text_nats("a>15", columns) == text_nats("a > 15", columns)


def test_the_code_is_the_one_that_ledgers_of_this_format_rely_on() -> None:
    """Two codes over the life of a ledger have chances that sum to 2: who changes the code raises the format, too."""
    by_hand = 2 * log(4 * 2 * 2) + 3 * log(4 * 51) + log(4 * 15**4) + log(16 * 96**2) + log(8)
    assert (FORMAT, len(WORDS)) == (4, 51)
    assert text_nats("a > 1.5 AND s = 'x'", ["a", "s"]) == pytest.approx(by_hand, rel=1e-12)


# -- sampled rows -----------------------------------------------------------------------------------------------------


def best_against_samples(share: float, n: int, draws: int, rounds: int, ends: Ends) -> float:
    """Return the same for checks of `draws` sampled rows each; two points, of which the second has this share."""
    counts = np.arange(n + 1)
    start = np.array([comb(n, c) * share**c * (1 - share) ** (n - c) for c in counts])
    menu = []
    for k, tolerance in product(range(draws + 1), (0.0, 0.999 / draws)):
        given = np.zeros((3, n + 1))  # the chance of each cell given the sample
        for x in range(draws + 1):
            tossed = comb(draws, x) * (counts / n) ** x * (1 - counts / n) ** (draws - x)
            given[cell_of(x / draws, k / draws, tolerance)] += tossed
        menu.append((cells(k / draws, tolerance), given))

    def best(alive: np.ndarray, t: int, wrong: int) -> float:
        if t > rounds:
            return 0.0
        most = 0.0
        for offered, given in menu:
            reached = 0.0
            for response, cell in enumerate(offered):
                left = alive * given[response]
                low, high = interval(cell, t, wrong)
                missed = not low <= share <= high
                reached += float(left.sum()) if missed else best(left, t + 1, wrong + (response != HOLDS))
            most = max(most, reached)
        return most

    @cache
    def interval(cell: Interval, t: int, wrong: int) -> Interval:
        return ends(cell, n, draws, t, wrong)

    return best(start, 1, 0)


def proved_sampled(cell: Interval, n: int, draws: int, t: int, wrong: int) -> Interval:
    level = BETA / 2 * time_share(t)
    return sampled_range(cell, n=n, draws=draws, level=level, sample_level=level, nats=nats(t, wrong))


SAMPLED = [(0.5, 6, 3, 2), (0.1, 8, 4, 2), (0.6, 30, 1, 3)]


@pytest.mark.parametrize(("share", "n", "draws", "rounds"), SAMPLED)
def test_no_analyst_beats_sampled_checks(share: float, n: int, draws: int, rounds: int) -> None:
    assert best_against_samples(share, n, draws, rounds, proved_sampled) <= BETA


def test_an_analyst_beats_checks_that_forget_the_sampling_error() -> None:
    assert best_against_samples(0.6, 30, 1, 3, proved) > BETA


@pytest.mark.parametrize("cell", [(0.2, 0.3), (0.0, 0.01), (0.5, 0.5), (0.9, 1.0), (0.0, 1.0)])
@pytest.mark.parametrize(("n", "draws"), [(50, 20), (10_000, 500), (10**6, 10**6), (10**6, 2_000), (10**7, 12_000)])
@pytest.mark.parametrize("length", [0.0, 0.7, 20.0, 200.0])
def test_one_step_is_proved_and_never_wider_than_two(cell: Interval, n: int, draws: int, length: float) -> None:
    x, total = log(2 / 0.01), log(2 / 0.04) + length
    low, high = sampled_range(cell, n=n, draws=draws, level=0.04, sample_level=0.01, nats=length)
    once = kl_range(cell, n=draws, r=x)
    twice = kl_range(once, n=n, r=total)
    assert twice[0] - 1e-9 <= low <= once[0] + 1e-9
    assert once[1] - 1e-9 <= high <= twice[1] + 1e-9

    def integrand(z: np.ndarray, b: float, d: float) -> np.ndarray:
        reach = [kl_upper(b, one / draws) for one in z]
        return np.exp(-z) * np.array([exp(-n * kl(s, d)) if s < d else 1.0 for s in reach])

    z = np.linspace(0, x, 4001)
    for b, d in ((cell[1], high), (1 - cell[0], 1 - low)):
        if kl_upper(b, x / draws) <= d < 1:
            assert np.trapezoid(integrand(z, b, d), z) <= exp(-total) * 1.001  # the rule's own error


def test_a_sample_that_is_always_taken_to_be_enough_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_is_sample_alone", lambda *_, **__: True)
    with pytest.raises(AssertionError):
        test_one_step_is_proved_and_never_wider_than_two((0.2, 0.3), 10**6, 2_000, 20.0)


# -- two groups -------------------------------------------------------------------------------------------------------


PAIRS_OF_GROUPS = [(0.2, 0.3, 0.4, 0.1), (0.05, 0.45, 0.25, 0.25), (0.1, 0.1, 0.1, 0.7)]


def likeliest_stray(population: tuple[float, ...], least: int, rows: int) -> float:
    """Return how many times as likely a difference strays as a mean of so many rows may, at the worst level.

    Points: 0 and 1 in the first group, 0 and 1 in the second. All samples of nine rows; every level that matters.
    """
    a0, a1, b0, b1 = population
    truth = (1 + a1 / (a0 + a1) - b1 / (b0 + b1)) / 2
    strays = []
    for (x0, x1, y0, y1), chance in samples(population, 9):
        if min(x0 + x1, y0 + y1) >= least:
            mean = (1 + x1 / (x0 + x1) - y1 / (y0 + y1)) / 2
            strays.append((rows * kl(mean, truth), mean > truth, chance))
    worst = 0.0
    for above in (True, False):
        for length, side, _ in strays:
            if side is above:
                tail = sum(chance for other, same, chance in strays if same is above and other >= length)
                worst = max(worst, tail * exp(length))
    return worst


@pytest.mark.parametrize("population", PAIRS_OF_GROUPS)
@pytest.mark.parametrize("least", [1, 2, 3])
def test_a_difference_of_groups_strays_no_further_than_a_mean_of_twice_the_rows(
    population: tuple[float, ...], least: int
) -> None:
    assert 0.1 < likeliest_stray(population, least, 2 * least) <= 1 + 1e-9


@pytest.mark.parametrize("population", PAIRS_OF_GROUPS)
def test_a_difference_of_groups_strays_further_than_a_mean_of_four_times_the_rows(
    population: tuple[float, ...],
) -> None:
    assert likeliest_stray(population, 3, 12) > 1.1


Law = tuple[float, float, float, float, float]  # of one row: 0 and 1 in the first group, 0 and 1 in the second, neither


def grouped_rows(rows: list[Law]) -> dict[tuple[int, ...], float]:
    """Return the probability of all counts of 0 and 1 in both groups, of rows that need not be identical."""
    law = {(0, 0, 0, 0): 1.0}
    for row in rows:
        after: dict[tuple[int, ...], float] = {}
        for counts, chance in law.items():
            for z, own in enumerate(row):
                if own:
                    moved = tuple(count + (place == z) for place, count in enumerate(counts))
                    after[moved] = after.get(moved, 0.0) + chance * own
        law = after
    return law


def furthest(strays: list[tuple[float, bool, float]], bound: Callable[[float], float]) -> float:
    """Return the largest ratio of the chance to stray so far, on one side, to what is promised of it."""
    worst = 0.0
    for above in (True, False):
        for length in {length for length, side, _ in strays if side is above and length < inf}:
            tail = sum(chance for other, side, chance in strays if side is above and other >= length)
            worst = max(worst, tail / bound(length))
    return worst


def strays_of(rows: list[Law], least: int, *, both: bool) -> list[tuple[float, bool, float]]:
    """Return how far the first group, or the difference, is from the population, which way, and the chance."""
    a0, a1, b0, b1, _ = np.sum(rows, axis=0)
    truth = (1 + a1 / (a0 + a1) - b1 / (b0 + b1)) / 2 if both else a1 / (a0 + a1)
    found = []
    for (x0, x1, y0, y1), chance in grouped_rows(rows).items():
        if x0 + x1 >= least and (not both or y0 + y1 >= least):
            mean = (1 + x1 / (x0 + x1) - y1 / (y0 + y1)) / 2 if both else x1 / (x0 + x1)
            found.append(((2 if both else 1) * least * kl(mean, truth), bool(mean > truth), chance))
    return found


UNLIKE: list[Law] = [
    (0, 1, 0, 0, 0),
    (0, 0, 1, 0, 0),
    (0.5, 0, 0, 0.5, 0),
]  # whose difference is never the population's


@pytest.mark.parametrize("seed", range(6))
def test_groups_of_rows_that_are_not_identical_stray_no_further(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(20):
        rows = [tuple(law) for law in rng.dirichlet(np.full(5, rng.choice([0.15, 0.5])), int(rng.integers(3, 6)))]
        for least in (1, 2):
            assert furthest(strays_of(rows, least, both=False), lambda length: exp(-length)) <= 1 + 1e-9
            both = furthest(strays_of(rows, least, both=True), two_groups_chance)
            assert both <= 1 + 1e-9


def two_groups_chance(length: float) -> float:
    """Return the smallest e^-x that is promised of an exponent of this length."""
    low, high = 0.0, length
    if two_groups_length(1e-6) > length:
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if two_groups_length(max(middle, 1e-6)) <= length else (low, middle)
    return exp(-low)


def test_a_difference_of_groups_of_unlike_rows_takes_a_larger_exponent() -> None:
    strays = strays_of(UNLIKE, 1, both=True)
    assert furthest(strays, lambda length: exp(-length)) > 1.03  # that of identical rows: wrong
    assert furthest(strays, two_groups_chance) <= 1


@pytest.mark.parametrize("length", [1e-3, 0.5, 3.0, 20.0, 300.0])
def test_the_larger_exponent_is_enough_and_little_more(length: float) -> None:
    total = two_groups_length(length)
    chances = [pieces * exp(total / pieces - total) + exp(-total) for pieces in range(1, 1_000)]
    assert min(chances) <= exp(-length)
    assert two_groups_length(length) <= length + 2 + log(total + 2)


# -- weights ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("t", range(1, 9))
def test_weights_of_all_strings_sum_to_one(t: int) -> None:
    def total(at: int, wrong: int, log_cells: float, alternatives: int) -> float:
        """Sum over all responses; the number of alternatives at a check depends on the responses before it."""
        if at == t:
            return exp(-guess_nats(t, wrong, log_cells))
        failed = total(at + 1, wrong + 1, log_cells + log(alternatives), 1 + (alternatives + at) % 3)
        return total(at + 1, wrong, log_cells, alternatives) + alternatives * failed

    assert total(1, 0, 0.0, 2) == pytest.approx(1, abs=1e-9)


def test_a_response_that_is_not_counted_breaks_the_weights() -> None:
    t, offered, counted = 21, 11, 10
    total = sum(comb(t - 1, j) * offered**j * exp(-guess_nats(t, j, j * log(counted))) for j in range(t))
    assert total > 1.2


def test_shares_of_time_sum_to_at_most_one() -> None:
    many = 10**6
    head = sum(time_share(t) for t in range(1, many))
    tail = log(2) / log(many + 1)  # the integral of log 2 / (m log^2 m) from many + 1 on
    assert head + tail <= 1


def test_ends_invert_the_divergence() -> None:
    low, high = full_range((0.25, 0.5), n=100, level=0.1, nats=3.0)
    length = log(2 / 0.1) + 3
    assert 100 * kl(0.25, low) == pytest.approx(length, rel=1e-9)
    assert 100 * kl(0.5, high) == pytest.approx(length, rel=1e-9)
    assert full_range((0.0, 1.0), n=100, level=0.1, nats=3.0) == (0.0, 1.0)
    assert kl_lower(0.25, inf) == 0.0


# Rows, checks, wrong guesses m, how fine the grid is that a wrong guess is told on (its cells are as wide as this), and
# radii beyond the margin of a guess after m, m/5 and no wrong guesses: worked out independently. Rows in which all of a
# hundred guesses are wrong are left out: what grid they are for is not said.
RADII = """
1e4 1e2 5 .0449 .0496 .0326 .0249
1e4 1e2 20 .0726 .0769 .0452 .0249
1e4 1e3 5 .0517 .0563 .0364 .0279
1e4 1e3 20 .0874 .0912 .0513 .0279
1e4 1e3 100 .1616 .1644 .0882 .0279
1e4 1e4 5 .0578 .0621 .0397 .0303
1e4 1e4 20 .0999 .1034 .0567 .0303
1e4 1e4 100 .1929 .1953 .1004 .0303
1e4 1e6 5 .0684 .0724 .0455 .0345
1e4 1e6 20 .1209 .1239 .0661 .0345
1e4 1e6 100 .2441 .2461 .1215 .0345
1e5 1e2 5 .0151 .0165 .0106 .0079
1e5 1e2 20 .0252 .0264 .0150 .0079
1e5 1e3 5 .0172 .0185 .0117 .0088
1e5 1e3 20 .0295 .0306 .0168 .0088
1e5 1e3 100 .0555 .0563 .0295 .0088
1e5 1e4 5 .0190 .0203 .0128 .0096
1e5 1e4 20 .0332 .0342 .0185 .0096
1e5 1e4 100 .0649 .0656 .0333 .0096
1e5 1e6 5 .0223 .0235 .0146 .0109
1e5 1e6 20 .0396 .0405 .0214 .0109
1e5 1e6 100 .0802 .0808 .0397 .0109
1e6 1e2 5 .0051 .0055 .0034 .0025
1e6 1e2 20 .0086 .0090 .0050 .0025
1e6 1e3 5 .0057 .0061 .0038 .0028
1e6 1e3 20 .0099 .0102 .0055 .0028
1e6 1e3 100 .0190 .0193 .0099 .0028
1e6 1e4 5 .0062 .0066 .0041 .0030
1e6 1e4 20 .0110 .0113 .0060 .0030
1e6 1e4 100 .0218 .0220 .0110 .0030
1e6 1e6 5 .0072 .0076 .0047 .0035
1e6 1e6 20 .0130 .0132 .0069 .0035
1e6 1e6 100 .0264 .0266 .0130 .0035
"""


@pytest.mark.parametrize("line", RADII.split("\n")[1:-1])
def test_published_radii(line: str) -> None:
    """At most 1% wider, and at most 2% narrower (the weights here sum to 1), but for what four digits leave open."""
    n, t, most, width, *radii = map(float, line.split())
    for wrong, radius in zip((most, most // 5, 0), radii, strict=True):
        length = log(2 / (0.05 * time_share(int(t)))) + guess_nats(int(t), int(wrong), wrong * log(1 / width))
        assert 0.98 * radius - 5e-5 <= (length / (2 * n)) ** 0.5 <= 1.01 * radius + 5e-5


def test_a_mean_names_whether_missing_values_are_left_out() -> None:
    """Two questions with one text and one range: a session may declare the column complete, or not."""
    chances = []
    for nullable in (False, True):
        schema = Schema((Column("x", Type.FLOAT, nullable), Column("y", Type.BOOL, False)))
        guess = Guess(build_mean("x", schema, within=(0, 1)), 0.5, 0.1, 1)
        assert guess.group == nullable
        chances.append(exp(-guess.code_nats(schema)))
        text = exp(-functions_nats([each.identity for each in guess.functions], (0.0, 1.0), ("x", "y")))
    assert sum(chances) <= text * (1 + 1e-12)


# -- checks that fail -------------------------------------------------------------------------------------------------


Length = Callable[[int, int, int], float]  # t, wrong, failed -> L


def with_failures(t: int, wrong: int, failed: int) -> float:
    return log(2 / (BETA * time_share(t))) + nats(t, wrong) + failure_nats(t + failed, failed)


def failures_free(t: int, wrong: int, failed: int) -> float:
    return log(2 / (BETA * time_share(t))) + nats(t, wrong)


def failures_that_hold(t: int, wrong: int, failed: int) -> float:
    """As if a check that failed had been answered as expected: it moves the number on, and nothing else."""
    return log(2 / (BETA * time_share(t + failed))) + nats(t + failed, wrong)


def best_saboteur(population: tuple[float, ...], rounds: int, length: Length) -> float:
    """Return what the best analyst reaches who also chooses, for every check, the rows on which it fails.

    There is one row, so a sample is a point; every guess is 1. After the last round a check may still be begun.
    """
    points = len(population)
    subsets = [frozenset(i for i in range(points) if bits >> i & 1) for bits in range(2**points)]
    menu = [(q, sum(population[i] for i in q), fails) for q in subsets[1:-1] for fails in subsets]

    @cache
    def best(alive: frozenset[int], left: int, t: int, wrong: int, failed: int) -> float:
        if left == 0 or not alive:
            return 0.0
        r, most = length(t, wrong, failed), 0.0
        for q, truth, fails in menu:
            reached = best(alive & fails, left - 1, t, wrong, failed + 1)
            for cell, inside, more in (((1.0, 1.0), alive & q - fails, 0), ((0.0, 1.0), alive - q - fails, 1)):
                low, high = kl_range(cell, n=1, r=r)
                if low <= truth <= high:
                    reached += best(inside, left - 1, t + 1, wrong + more, failed)
                else:
                    reached += sum(population[i] for i in inside)
            most = max(most, reached)
        return most

    return best(frozenset(range(points)), rounds, 1, 0, 0)


@pytest.mark.parametrize(
    ("population", "rounds"), [((0.02, 0.03, 0.95), 6), ((0.0001, 0.0003, 0.02, 0.9796), 5), ((1e-5, 2e-5, 0.99997), 6)]
)
def test_no_analyst_beats_beta_who_chooses_when_checks_fail(population: tuple[float, ...], rounds: int) -> None:
    assert 0 < best_saboteur(population, rounds, with_failures) <= BETA


def reached_by_failing(rounds: int, world: Length, length: Length) -> float:
    """Return how often a rare point is named by the checks that fail on it, and its interval then misses.

    There is one row. For every string of responses and failures there is a point on which the checks go that way; it
    is as rare as an interval of the length `world` lets a miss be. Intervals have the given `length`.
    """
    missed = total = 0.0
    for fails in product((False, True), repeat=rounds):
        failed = sum(fails)
        t = rounds - failed + 1
        share = 0.95 * exp(-world(t, 0, failed))
        total += share
        low, _ = kl_range((1.0, 1.0), n=1, r=length(t, 0, failed))
        missed += share if share < low else 0.0
    assert total < 1  # the rest is a point on which no check fails
    return missed


@pytest.mark.parametrize(("mutant", "rounds"), [(failures_free, 7), (failures_that_hold, 9)])
def test_an_analyst_beats_checks_whose_failures_are_free(mutant: Length, rounds: int) -> None:
    assert reached_by_failing(rounds, mutant, mutant) > BETA
    assert reached_by_failing(rounds, mutant, with_failures) <= BETA
    assert reached_by_failing(rounds, with_failures, with_failures) <= BETA


@dataclass(frozen=True)
class Check:
    """A check that is under way: when it fails, if it does, and when it responds otherwise."""

    place: int
    fails_at: int
    ends_at: int


def all_histories(rng: random.Random, responses: int, threads: int = 3) -> Iterator[tuple[str, int, int]]:
    """Follow every way in which checks of several threads respond and fail, up to so many responses and failures.

    What is begun when, and how long it takes, is decided by lot, but from what was seen alone: by the history. Yield
    the history before a response, how many were begun by then, with the one that responds, and how many failed.
    """
    seed, most = rng.random(), 5

    def drawn(history: str, what: str) -> int:
        return random.Random(f"{seed} {history} {what}").randrange(1, 6)

    def begin(history: str, place: int, now: int) -> Check:
        ends = now + drawn(history, f"{place} ends")
        return Check(place, now + (ends - now) * drawn(history, f"{place} fails") // 6, ends)

    def follow(
        history: str, running: tuple[Check, ...], passed: frozenset[int], begun: int
    ) -> Iterator[tuple[str, int, int]]:
        """`passed`: the checks that could have failed by now, and did not."""
        failed, told = history.count("!"), len(history.replace("!", ""))
        moments = [(one.fails_at, 0, one) for one in running if one.place not in passed]
        moments += [(one.ends_at, 1, one) for one in running]
        when, ends, one = min(moments, key=lambda moment: (*moment[:2], moment[2].place))
        others = tuple(each for each in running if each is not one)
        if not ends:
            yield from follow(history, running, passed | {one.place}, begun)
            if failed < most:
                after = history + "!"
                yield from follow(after, (*others, begin(after, begun, when)), passed, begun + 1)
            return
        yield history, begun, failed
        if told + 1 < responses:
            for response in "h<>":
                after = history + response
                yield from follow(after, (*others, begin(after, begun, when)), passed, begun + 1)

    first = tuple(begin("", place, 0) for place in range(threads))
    yield from follow("", first, frozenset(), threads)


def of_failures(begun: int, failed: int) -> float:
    """The weight v(N, f), for the exact number of failures, without the part for histories in which nothing fails."""
    return 1 / ((begun + 1) * comb(begun, failed))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("world", range(6))
def test_weights_of_all_histories_with_failures_sum_to_at_most_one(world: int, threads: int) -> None:
    """Of checks that are under way at the same time, too: which of them fails first is part of the history.

    Not if failures are free, are named among those alone that have ended, or without the one that responds.
    """
    sums = {t: [0.0] * 5 for t in (1, 2, 3)}
    for history, begun, failed in all_histories(random.Random(world), responses=3, threads=threads):
        told = history.replace("!", "")
        t, wrong = len(told) + 1, len(told) - told.count("h")
        ways = [exp(-failure_nats(begun, failed)), of_failures(begun, failed), 1.0]
        ways += [of_failures(t + failed, failed), of_failures(begun - 1, failed)]
        for which, weight in enumerate(ways):
            sums[t][which] += weight * exp(-nats(t, wrong))
    for proved_sum, exact, free, of_ended, without_itself in sums.values():
        assert 0.99 <= proved_sum <= 1 + 1e-12
        assert exact <= 1 + 1e-12
        assert free > 1.5
        if threads == 1:
            assert exact > 0.5
            assert of_ended == pytest.approx(exact)
            assert without_itself > 1.1
    assert max(of_ended for _, _, _, of_ended, _ in sums.values()) > 1.05 or threads == 1


def most_weight(t: int, most: int, *, late: bool = False, lagging: bool = False, unheard: bool = False) -> float:
    """Return the largest sum of the weights of all histories before response t, if up to `most` checks are begun.

    At every moment whoever decides may begin a check, let one that is under way come to the moment of failing, or let
    one respond that did not fail; the choice may depend on everything seen. If `late`, a check may also fail after the
    moment of responding: that it does not respond is seen then, that it failed is counted later. So it is if counts are
    `lagging`: what fails is seen at once, but was said to be under way before. If `unheard`, any number of those that
    are under way may be counted as failed, as where their process does not say that they are.
    """

    def responds(begun: int, open_: int, alive: int, failed: int, silent: int, told: int, wrong: int) -> float:
        if told + 1 == t:
            others = open_ + alive if unheard else 0
            return max(exp(-nats(t, wrong) - failure_nats(begun, failed + more)) for more in range(others + 1))
        return sum(after(begun, open_, alive, failed, silent, told + 1, wrong + more) for more in (0, 1, 1))

    @cache
    def after(begun: int, open_: int, alive: int, failed: int, silent: int, told: int, wrong: int) -> float:
        """`open_`: how many may still fail; `alive`: did not, and have yet to respond; `silent`: will fail late."""
        seen, reached = (told, wrong), [0.0]
        if begun < most:
            reached.append(after(begun + 1, open_ + 1, alive, failed, silent, *seen))
        if open_:
            fails = after(begun, open_ - 1, alive, failed + 1, silent, *seen)
            reached.append(fails + after(begun, open_ - 1, alive + 1, failed, silent, *seen))
        if alive:
            reached.append(responds(begun, open_, alive - 1, failed, silent, *seen))
        if open_ and late:
            fails = after(begun, open_ - 1, alive, failed, silent + 1, *seen)
            reached.append(fails + responds(begun, open_ - 1, alive, failed, silent, *seen))
        if open_ and lagging:
            fails = after(begun, open_ - 1, alive, failed, silent + 1, *seen)
            reached.append(fails + after(begun, open_ - 1, alive + 1, failed, silent, *seen))
        if silent:
            reached.append(after(begun, open_, alive, failed + 1, silent - 1, *seen))
        return max(reached)

    return after(0, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("t", [1, 2, 3])
def test_no_way_to_ask_and_fail_makes_the_weights_sum_to_more_than_one(t: int) -> None:
    """Unless a check fails later than it would respond: then its silence tells, and is not paid for."""
    assert 0.99 <= most_weight(t, t + 6) <= 1
    assert most_weight(t, t + 1, late=True) > 1.5


@pytest.mark.parametrize("t", [1, 2, 3])
def test_nor_if_some_that_are_under_way_count_as_failed_but_if_some_that_failed_do_not(t: int) -> None:
    """A process is believed for what it says when it is the turn of a check to be committed, not for what it held."""
    assert 0.99 <= most_weight(t, t + 4, unheard=True) <= 1
    for most in range(1, 4):
        assert most_weight(t, t + most, lagging=True) > 1 + 0.9 * most


def test_more_failures_never_cost_less() -> None:
    """So numbers that are too large are safe."""
    for begun in (2, 3, 9, 40):
        lengths = [failure_nats(begun, failed) for failed in range(begun)]
        assert lengths == sorted(lengths)
        assert all(failure_nats(begun, f) <= failure_nats(begun + 1, f) for f in range(begun))
        assert all(exp(-failure_nats(begun, f)) <= of_failures(begun, f) for f in range(1, begun))
        assert of_failures(begun, 1) == pytest.approx(100 * exp(-failure_nats(begun, 1)), rel=1e-6)
