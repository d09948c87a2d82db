"""The area under a ROC curve that is known at a few thresholds, up to intervals."""

from collections.abc import Sequence
from itertools import pairwise

from holdfast.guarantees.mathematics.theorem import theorem

Interval = tuple[float, float]
SLACK = 1e-12  # more than the roundings of a sum of at most a few hundred products


@theorem("here (the area between staircases)", proof="auc.md")
def area_under(positives: Sequence[Interval], negatives: Sequence[Interval], *, tied: bool = False) -> Interval:
    """Return the range of P(a positive scores higher than a negative) + P(they score alike)/2.

    Statement
        Rows have scores; at increasing thresholds the shares of positives, and of negatives, that score at least as
        high lie in these intervals. Then the area lies between that of two staircases: one with the least shares of
        positives and the largest of negatives, each step counted as if negatives came last within it; and the mirrored
        one. If all scores of a step are equal (`tied`), each step counts half.

    Not covered
        Intervals that do not hold at once.

    >>> low, high = area_under([(0.8, 0.8)], [(0.3, 0.3)])
    >>> round(low, 9), round(high, 9)
    (0.56, 0.94)
    >>> low, high = area_under([(0.8, 0.8)], [(0.3, 0.3)], tied=True)
    >>> round(low, 9), round(high, 9)
    (0.75, 0.75)
    """
    low = _staircase([low for low, _ in positives], [high for _, high in negatives], tied=tied)
    high = 1 - _staircase([low for low, _ in negatives], [high for _, high in positives], tied=tied)
    return max(0.0, low - SLACK), min(1.0, high + SLACK)


def _staircase(least: Sequence[float], most: Sequence[float], *, tied: bool) -> float:
    """Return how often one of the first kind is in a higher step than one of the second, at least; ties half."""
    ones, others = [1.0, *least, 0.0], [1.0, *most, 0.0]
    for place in range(len(ones) - 2, 0, -1):  # shares fall: those further up are no larger
        ones[place] = max(ones[place], ones[place + 1])
    for place in range(1, len(others)):
        others[place] = min(others[place], others[place - 1])
    steps = zip(pairwise(others), pairwise(ones), strict=True)
    return sum((first - last) * ((at + above) / 2 if tied else above) for (first, last), (at, above) in steps)
