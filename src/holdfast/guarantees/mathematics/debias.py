"""What the bias of a flipped coin says of the rows: undo the flips.

A draw with c outcomes, each given extra mass a, has the law P_z = (1 - c a) f_z + a, f the law on the rows. The
interval for P is turned into one for f; for a group (two of the outcomes are its 0 and 1) the interval for the included
share and for the ones among the included are turned into one for the group's mean.
"""

from holdfast.guarantees.mathematics.theorem import theorem


@theorem("here", proof="information.md")
def debias(p: float, *, outcomes: int, mass: float) -> float:
    """Return f for P = (1 - c a) f + a, clipped to [0, 1].

    Statement
        f = (P - a)/(1 - c a), an increasing map, so it carries intervals to intervals.

    Not covered
        c a >= 1: nothing but noise.

    >>> debias(0.1, outcomes=2, mass=0.1)
    0.0
    """
    return min(1.0, max(0.0, (p - mass) / (1 - outcomes * mass)))


@theorem("here", proof="information.md")
def group_mean(theta: float, pi: float, *, mass: float) -> float:
    """Return the mean of a group from the law of a draw two of whose outcomes are the group's 0 and 1.

    Statement
        pi = P_0 + P_1 = (1-ca) g + 2a, theta = P_1/pi. Then mu = theta + a (2 theta - 1)/(pi - 2a): increasing in
        theta, and in pi moving away from 1/2 as pi falls.

    Not covered
        pi <= 2a: an empty group.

    >>> group_mean(0.5, 0.3, mass=0.01)
    0.5
    """
    return min(1.0, max(0.0, theta + mass * (2 * theta - 1) / (pi - 2 * mass)))


def group_mean_range(theta: tuple[float, float], pi: tuple[float, float], *, mass: float) -> tuple[float, float]:
    """Return the range of `group_mean` over a rectangle; [0, 1] when the group may be empty."""
    if pi[0] <= 2 * mass:
        return 0.0, 1.0
    low = group_mean(theta[0], pi[0] if theta[0] < 0.5 else pi[1], mass=mass)
    high = group_mean(theta[1], pi[0] if theta[1] > 0.5 else pi[1], mass=mass)
    return low, high


def group_share(pi: float, *, mass: float, outcomes: int = 3) -> float:
    """Return g, the share of rows in the group, from pi = (1-ca) g + 2a; c is 3 if there is one group."""
    return min(1.0, max(0.0, (pi - 2 * mass) / (1 - outcomes * mass)))
