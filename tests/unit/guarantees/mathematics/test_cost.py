"""What a release costs: exact leave-one-out divergences of every small table."""

from itertools import product

import numpy as np
import pytest

from holdfast.errors import InvalidArgument
from holdfast.guarantees.mathematics import privacy


def left_out(counts: tuple[int, ...], mass: float) -> float:
    """sum_i KL(P || P_-i) for a table in which counts[z] rows surely give outcome z."""
    total = 0.0

    def law(these: tuple[int, ...]) -> np.ndarray:
        return (1 - len(counts) * mass) * np.array(these) / sum(these) + mass

    whole = law(counts)
    for z, many in enumerate(counts):
        if many:
            without = law(tuple(count - (y == z) for y, count in enumerate(counts)))
            total += many * float(np.sum(whole * np.log(whole / without)))
    return total


@pytest.mark.parametrize("outcomes", [2, 3, 4])
@pytest.mark.parametrize("n", [5, 8, 13])
def test_a_draw_costs_what_it_says_on_every_table(n, outcomes):
    tables = [counts for counts in product(range(n + 1), repeat=outcomes) if sum(counts) == n]
    worst = max(left_out(counts, 1 / n) for counts in tables)
    assert worst <= privacy.session_nats(privacy.draw_cost(outcomes), n=n)


def test_too_small_a_mass_costs_more():
    n = 13
    worst = max(left_out((count, n - count), 0.01 / n) for count in range(n + 1))
    assert worst > privacy.session_nats(1, n=n)


def test_costs_in_coins():
    assert privacy.private_cost(0.01, n=100) == pytest.approx(1.0)
    assert privacy.gaussian_cost(0.05, n=7) == pytest.approx(100.0)
    assert privacy.session_nats(0, n=5) == 0.0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: privacy.draw_cost(1), "outcomes must be a whole number of at least 2"),
        (lambda: privacy.gaussian_cost(0.0, n=10), "sigma must be positive"),
        (lambda: privacy.private_cost(-1.0, n=10), "eps0 must be positive"),
    ],
)
def test_what_no_theorem_covers_is_refused(call, says):
    with pytest.raises(InvalidArgument, match=says):
        call()
