"""Pick one of many candidates, better ones more likely: the exponential mechanism.

    release  r with probability proportional to exp(epsilon u(r) / (2 sensitivity))

is epsilon-DP when replacing one row moves no score u(r) by more than `sensitivity`. Used by the monitor A2 and by the
boosted descent A4+.
"""

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.guarantees.mathematics import theorem


def probabilities(scores: Sequence[float], *, epsilon: float, sensitivity: float) -> NDArray[np.float64]:
    """Return the law of the released index."""
    check.positive(epsilon=epsilon, sensitivity=sensitivity)
    exponents = np.asarray(scores, dtype=np.float64) * (epsilon / (2 * sensitivity))
    if exponents.ndim != 1 or len(exponents) == 0 or not np.isfinite(exponents).all():
        raise InvalidArgument("scores must be a non-empty list of finite numbers.")
    weights = np.exp(exponents - exponents.max())
    law: NDArray[np.float64] = weights / weights.sum()
    return law


def choose(scores: Sequence[float], *, epsilon: float, sensitivity: float, rng: Generator) -> int:
    """Return the index of the released candidate."""
    law = probabilities(scores, epsilon=epsilon, sensitivity=sensitivity)
    return min(int(np.searchsorted(np.cumsum(law), rng.random(), side="right")), len(law) - 1)


@theorem("Bassily et al. 2016 (lem:exp_mech_accuracy)", proof="transfer.md")
def expected_loss(candidates: int, *, epsilon: float, sensitivity: float) -> float:
    """Return a bound on how far the released score is below the best one, in expectation.

    Statement
        E[u(released)] >= max u - (2 sensitivity/epsilon) log(candidates).

    Not covered
        A worst case: single releases can be further below.

    >>> expected_loss(1, epsilon=1.0, sensitivity=0.1)
    0.0
    """
    check.whole(candidates=candidates)
    check.positive(epsilon=epsilon, sensitivity=sensitivity)
    return float(2 * sensitivity / epsilon * np.log(candidates))
