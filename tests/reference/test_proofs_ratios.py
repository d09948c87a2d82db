"""The range of a share of shares, against every division of a small number of rows."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations_with_replacement, product

import pytest

from holdfast.guarantees.mathematics.shares import ratio_range

ROWS = 5
Interval = tuple[float, float]
Box = tuple[tuple[Fraction, Fraction], ...]


def boxes() -> Iterator[Box]:
    """All boxes whose ends are shares of so many rows."""
    ends = list(combinations_with_replacement([Fraction(i, ROWS) for i in range(ROWS + 1)], 2))
    yield from product(ends, repeat=3)


def enumerated(box: Box) -> tuple[Fraction, Fraction] | None:
    """Return the smallest and largest ratio in the box; None where nothing fits, and (0, 1) where one has no value.

    The extremes are taken at corners, whose shares are multiples of 1/ROWS, so that trying those is enough.
    """
    found = []
    for p in range(ROWS + 1):
        for q in range(ROWS + 1 - p):
            shares = (Fraction(p, ROWS), Fraction(q, ROWS), Fraction(ROWS - p - q, ROWS))
            if all(low <= share <= high for share, (low, high) in zip(shares, box, strict=True)):
                if p + q == 0:
                    return Fraction(0), Fraction(1)
                found.append(Fraction(p, p + q))
    return (min(found), max(found)) if found else None


def agrees(ratio: Callable[..., Interval]) -> bool:
    """Whether a function finds the exact range in every box, and is never inside it."""
    for box in boxes():
        exact = enumerated(box) or (Fraction(0), Fraction(1))  # nothing fits: nothing is known
        low, high = ratio(*[(float(one), float(other)) for one, other in box])
        if not (low <= exact[0] <= exact[1] <= high and exact[0] - low < 1e-12 and high - exact[1] < 1e-12):
            return False
    return True


def test_the_range_is_exact_in_every_small_box() -> None:
    assert agrees(ratio_range)


def no_sum(part: Interval, rest: Interval, others: Interval) -> Interval:
    return ratio_range(part, rest)


def wrong_corner(part: Interval, rest: Interval, others: Interval) -> Interval:
    low, high = ratio_range(part, (rest[0], rest[0]), others)
    return low, high


def values_only(part: Interval, rest: Interval, others: Interval) -> Interval:
    p, q = sum(part) / 2, sum(rest) / 2
    return (p / (p + q), p / (p + q)) if p + q else (0.0, 1.0)


@pytest.mark.parametrize("mutant", [no_sum, wrong_corner, values_only])
def test_other_ranges_are_not(mutant: Callable[..., Interval]) -> None:
    assert not agrees(mutant)
