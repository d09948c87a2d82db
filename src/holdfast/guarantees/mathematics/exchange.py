"""The exchange theorem: no question can tell the rows from a ghost sample that was never used.

Exchange every row with a ghost from the same population by a fair bit. What is released says so little about the bits
that their law given the transcript is within Ibar nats of uniform; so the mean of any question under the posterior of
the rows, mu, is near its mean p in the population:

    (mu - p)^2 <= J (mu + p - 2 mu p),   J = 2 Ibar/n.

If rows are independent but not identically distributed, J is a little larger, and p is the mean under the average of
the rows' laws; where J is large, and for groups, a term J/2 is added in the bracket. The free constants (om2, kap, L,
L2, rho) are fixed in advance, from n, B, a and beta alone; s may be any number.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from math import inf, log, sqrt
from typing import Any

import numpy as np

from holdfast.guarantees.mathematics import theorem
from holdfast.guarantees.mathematics.concentration import ONE, SAFE, ULP, ZERO

PROOF = "exchange.md"
MOST_MASS = 0.2  # the theorem's a' is then at most 1/2
MOST_KAP = 4.0
APART = 1.5  # how much larger C is for rows that are not identical
MOST_ALIKE = 0.125  # the largest J at which such rows have nearly the interval of identical ones
NEAREST = {True: 1.0, False: (1 + sqrt(3)) / 2}  # identical or not: this close to 0 or 1, in J, the interval reaches it
LEAST_S, MOST_S = 0.05, 1 - 1e-9
HALF = 0.5  # part of its own mass that an outcome keeps under the extrapolated law; smaller for draws with little mass


@theorem("here (Theorem K)", proof=PROOF)
def ibar(
    n: Any,
    charge: Any,
    mass: Any,
    om2: Any,
    kap: Any,
    s: Any,
    L: Any,
    L2: Any,
    *,
    outcomes: int = 3,
    rho: Any = HALF,
    identical: bool = True,
) -> Any:
    """Return Ibar, a bound on what a session of coins says about the exchanges, in nats; inf: none. Takes arrays.

    Statement
        lam^2 = 1+om2, a' = a(1-a)/(1-2a)^2, d = 1-rho, k_rho = -(log rho + d + d^2/2 + d^3/3)/d^4,
        eps2 = (2/3)/(na) + 2 k_rho (3 om2/(4na^2) + (lam^2+3)/(4n^2a^2)), w = om2 (1+eps2)/2,
        eps3 = 3B (log(1/(rho a)) + 1/2) exp(-2 d^2 n a^2/(om2 + (2/3)(lam+1) d a)),
        k1 = .36 kap a', C = 1.5 (1 + .36 kap (1/2+2a')), theta = kap n a^2, Den = 1 - lam^-2 - w (B/2n) C/(s a' n):
            Ibar = (L + eps3 + w [(B/2n)(1 + k1 + C log(1/(1-s))/(2 s a' n)) + L2/theta])/Den.
        With probability >= 1 - e^-L - e^-L2 the expected divergence of the exchanges' law from uniform, given the
        transcript, is at most Ibar. With two outcomes in every draw (outcomes=2) 3B is 2B, and 1.5 is 1. For rows that
        are not identical C is 1.5 times as large. It holds at all times at once with the draws so far for B.

    Not covered
        Den <= 0; a > .2, kap > 4, rho > 1/2; an extrapolated law that leaves (0, 1) too often (eps3); questions chosen
        with knowledge of the rows.

    >>> bool(170 < ibar(10**6, 47365 * 10**4, 0.0078, 0.183, 0.34, 0.997, 4.1, 10.0) < 174)
    True
    """
    n, a, om2, kap, s, rho = (np.asarray(x, dtype=float) for x in (n, mass, om2, kap, s, rho))
    allowed = (a > 0) & (a <= MOST_MASS) & (om2 > 0) & (kap > 0) & (kap <= MOST_KAP) & (s > 0) & (s < 1)
    allowed = allowed & (rho > 0) & (rho <= HALF)
    a, s, rho = np.where(allowed, a, 0.1), np.where(allowed, s, 0.5), np.where(allowed, rho, HALF)
    om2, kap = np.where(allowed, om2, 1.0), np.where(allowed, kap, 1.0)
    charge = np.asarray(charge, dtype=float)
    with np.errstate(all="ignore"):  # whatever the caller has numpy do about a probability that is next to nothing
        numerator, denominator = _ratio(np, n, charge, a, om2, kap, s, L, L2, rho, outcomes, identical)
        holds = allowed & (denominator > 0)
        return np.where(holds, numerator / np.where(holds, denominator, 1.0), np.inf) * SAFE


def ibar_of_one(
    n: int, charge: float, mass: float, om2: float, kap: float, L: float, L2: float, *, rho: float, identical: bool
) -> float:
    """Return `ibar` for single numbers, with `good_s`, in a fraction of the time that arrays take."""
    s = float(_good_s(max, log, n, charge, om2, L))
    s = min(max(s, LEAST_S), MOST_S)
    if not (0 < mass <= MOST_MASS and om2 > 0 and 0 < kap <= MOST_KAP and 0 < rho <= HALF):
        return inf
    numerator, denominator = _ratio(math, n, charge, mass, om2, kap, s, L, L2, rho, 3, identical)
    return float(numerator / denominator * SAFE) if denominator > 0 else inf


def _ratio(
    m: Any,
    n: Any,
    charge: Any,
    a: Any,
    om2: Any,
    kap: Any,
    s: Any,
    L: Any,
    L2: Any,
    rho: Any,
    outcomes: int,
    alike: bool,
) -> tuple[Any, Any]:
    """Return the numerator and the denominator of Ibar, by the functions of `m`: math, or numpy for arrays."""
    tails, shared = (2.0, 1.0) if outcomes == 2 else (3.0, 1.5)
    shared *= 1.0 if alike else APART
    lam, room, per_row = m.sqrt(1 + om2), 1 - rho, charge / (2 * n)
    most = a * (1 - a) / (1 - 2 * a) ** 2
    k_rho = -(m.log(rho) + room + room**2 / 2 + room**3 / 3) / room**4
    eps2 = 2 / (3 * n * a) + 2 * k_rho * (3 * om2 + (lam**2 + 3) / n) / (4 * n * a * a)
    rare = m.exp(-2 * room**2 * n * a * a / (om2 + 2 / 3 * (lam + 1) * room * a))
    eps3 = tails * charge * (0.5 - m.log(rho * a)) * rare
    C = shared * (1 + 0.36 * kap * (0.5 + 2 * most))
    w = om2 * (1 + eps2) / 2
    trace = per_row * (1 + 0.36 * kap * most - C * m.log1p(-s) / (2 * s * most * n)) + L2 / (kap * n * a * a)
    return L + eps3 + w * trace, om2 / lam**2 - w * per_row * C / (s * most * n)


def j(n: int, ibar: float) -> float:
    """Return J = 2 Ibar/n; inf where it would be 1 or more, and so promise nothing."""
    twice = 2 * float(ibar) / n
    return twice if twice < 1 else inf


@theorem("here (Theorem K, the interval)", proof=PROOF)
def hi(x: float, J: float, *, identical: bool = True) -> float:
    """Return the largest p that a posterior mean of at most x allows, rounded up.

    Statement
        The larger root of (x-p)^2 = J (x + p - 2xp): x(1-J) + J/2 + sqrt(J^2 + 4J(2-J)x(1-x))/2 if x < 1 - J, else 1.
        It grows with x. For rows that are not identical: if J <= 1/8, the same with max(x, J^2) for x, and 1 if that is
        above 1 - J^2; if J > 1/8, J^2/2 is added on the right, and no p is further from x than `worst_case`.

    Not covered
        The posterior guarantee's chi: no value of chi gives this interval.

    >>> round(hi(0.0, 0.01), 9), hi(0.995, 0.01)
    (0.01, 1.0)
    >>> round(hi(0.0, 0.01, identical=False), 9)
    0.010294171
    """
    return interval((0.0, x), J, identical=identical)[1]


@theorem("here (Theorem K, the interval)", proof=PROOF)
def lo(x: float, J: float, *, identical: bool = True) -> float:
    """Return the smallest p that a posterior mean of at least x allows, rounded down: 1 - hi(1-x).

    Statement
        The smaller root of the same equation, (x^2 - Jx)/(the larger), if x > J, else 0; for rows that are not
        identical as for `hi`.

    Not covered
        As for `hi`.

    >>> lo(0.01, 0.01), abs(lo(0.4, 0.01) + hi(0.6, 0.01) - 1) < 1e-11
    (0.0, True)
    """
    return interval((x, 1.0), J, identical=identical)[0]


def interval(mean: tuple[float, float], J: float, *, identical: bool = True) -> tuple[float, float]:
    """Return `lo` of the lower and `hi` of the upper end of an interval for the posterior mean."""
    if identical:
        return _roots(mean[0], mean[1], _equation_of_shares(J, True))
    if not J <= MOST_ALIKE:
        (bottom, top), reach = _roots(*mean, _equation_of_shares(J, False)), float(worst_case(J, identical=False))
        return max(bottom, mean[0] - reach), min(top, mean[1] + reach)
    (low, high), square = mean, J * J
    most = 1 - square
    bottom, top = _roots(low if low < most else most, high if high > square else square, _equation_of_shares(J, True))
    return bottom if bottom >= square else 0.0, top if top <= most else 1.0


def intervals(means: Any, J: float, *, identical: bool = True) -> Any:
    """Return `interval` for many means at once: their lower ends, and their upper ends, in two rows."""
    x = _mirrored(means)
    if identical:
        return _mirrored(_smaller_roots(x, J, 1.0, True))
    if not J <= MOST_ALIKE:
        return _mirrored(np.maximum(_smaller_roots(x, J, 1.0, False), x - worst_case(J, identical=False)))
    square = np.array(J * J)
    bottom = _smaller_roots(np.minimum(x, ONE - square), J, 1.0, True)
    return _mirrored(bottom * (bottom >= square))


def _mirrored(ends: Any) -> Any:
    """Return lower ends as they are, and instead of upper ends their distances from 1; and the other way round."""
    return np.array((ends[0], ONE - ends[1]))


Equation = tuple[float, float, float, float, float, float, float]


def _equation(J: float, r: float, identical: bool) -> Equation:
    """Return what the roots p of (1-J)(x-p)^2 = J (x(1-x) + r p(1-p) + c J) have in common for every x; for `_roots`.

    c is 0, or 1/2 for rows that are not identical; r >= 1 is for groups.
    """
    kept, whole = 1 - J, J * r
    lead, bend = kept + whole, 4 * J * (kept + r)
    least = whole * whole + (0.0 if identical else 2 * J * J * lead)
    return J, J * NEAREST[identical], kept, whole, lead, bend, least


@lru_cache(maxsize=64)
def _equation_of_shares(J: float, identical: bool) -> Equation:
    """Return the equation of shares of all rows: the same for all answers of a plan."""
    return _equation(J, 1.0, identical)


def _roots(low: float, high: float, equation: Equation) -> tuple[float, float]:
    """Return the smaller root of the equation for x = `low`, and the larger for `high`.

    They are rounded outward, and 0 or 1 if x is too near to that, also for J = inf. The smaller root comes from the
    product of both; both roots of x^2 - Jx - cJ^2 are known.
    """
    J, near, kept, whole, lead, bend, least = equation
    bottom, top = 0.0, 1.0
    if low > near:  # both as `_leading_root`, written out, since most answers need nothing else of this module
        x = low if low < 1.0 else 1.0
        leading = kept * x + (whole + sqrt(least + bend * (x * (1 - x)))) / 2
        bottom = (x - near) * (x + near - J) / leading / SAFE - ULP  # J may be rounded, and x next to it
        bottom = bottom if bottom > 0.0 else 0.0
    if high < 1 - near:
        x = high if high > 0.0 else 0.0
        top = (kept * x + (whole + sqrt(least + bend * (x * (1 - x)))) / 2) / lead * SAFE
        top = top if top < 1.0 else 1.0
    return bottom, top


def _smaller_roots(x: Any, J: Any, r: Any, identical: bool) -> Any:
    """Return the same smaller root for arrays; J and r may be arrays, too."""
    if isinstance(J, float) and not J < 1:
        return np.zeros(x.shape)
    near, least = J * NEAREST[identical], _least(J, r, identical)
    bottom = (x - near) * (x + (near - J)) / _leading_root(x, J, r, least)
    return np.maximum(bottom / SAFE - ULP, ZERO)  # callers round 1 - it


def _least(J: Any, r: Any, identical: bool) -> Any:
    """Return what is under the root of `_leading_root` where x is 0 or 1."""
    whole = J * r
    return whole * whole + (0.0 if identical else 2 * J * J * (1 - J + whole))


def _leading_root(x: Any, J: Any, r: Any, least: Any) -> Any:
    """Return lead times the larger root of lead p^2 - (2(1-J)x + Jr) p + x^2 - Jx - cJ^2 = 0, from positive terms."""
    return (1 - J) * x + (J * r + np.sqrt(least + 4 * J * (1 - J + r) * (x * (1 - x)))) / 2


@theorem("here (Theorem K, any bounded function)", proof=PROOF)
def most_over(g: float, J: float, *, identical: bool = True) -> float:
    """Return the largest ratio of a group's share in the population to its posterior share, if the latter is >= g.

    Statement
        hi(g)/g, which falls in g, as hi is concave. For rows that are not identical and J <= 1/8 `hi` jumps from 1-J^2
        to 1, so min(1, hi(g)/(1-J^2))/g, which falls in g and is not below hi(x)/x for any x >= g.

    Not covered
        g = 0.

    >>> most_over(0.5, 0.01) == hi(0.5, 0.01) / 0.5
    True
    """
    top = hi(g, J, identical=identical)
    return (top if identical or not J <= MOST_ALIKE else min(1.0, top / (1 - J * J))) / g


@theorem("here (Theorem K, any bounded function)", proof=PROOF)
def group_upper(mu: float, g: float, J: float, *, identical: bool = True) -> float:
    """Return the largest mean of a group in the population, if its posterior mean is <= mu and posterior share >= g.

    Statement
        k = J/g, r = `most_over(g)`. 1 if k >= 1 or mu is too near to 1 for `hi` with k; else the larger root t of
            (1-k+kr) t^2 - (2(1-k) mu + kr) t + mu^2 - k mu - c k^2 = 0, c = 0, or 1/2 for rows that are not identical.

    Not covered
        g = 0.

    >>> group_upper(0.3, 1.0, 0.01) == hi(0.3, 0.01)
    True
    """
    return group_range((mu, mu), g, J, identical=identical)[1]


@theorem("here (Theorem K, any bounded function)", proof=PROOF)
def group_lower(mu: float, g: float, J: float, *, identical: bool = True) -> float:
    """Return the smallest mean of a group in the population: 1 - group_upper(1-mu).

    Statement
        As for `group_upper`, with the smaller root; 0 if k >= 1 or mu is too near to 0.

    Not covered
        g = 0.

    >>> group_lower(0.5, 0.001, 0.01)
    0.0
    """
    return group_range((mu, mu), g, J, identical=identical)[0]


def group_range(mean: tuple[float, float], g: float, J: float, *, identical: bool = True) -> tuple[float, float]:
    """Return `group_lower` of the lower and `group_upper` of the upper end of an interval for the posterior mean."""
    if not g > J:
        return 0.0, 1.0
    k, r = J / g, most_over(g, J, identical=identical)
    return _roots(mean[0], mean[1], _equation(k, r, identical))


def group_ranges(means: Any, shares: Any, J: float, *, identical: bool = True) -> Any:
    """Return `group_range` for many groups at once, as `intervals` does, from their shares' lower ends."""
    if not J < 1:
        return _mirrored(np.zeros(np.shape(means)))
    known = shares > J
    g, k = shares, J / np.maximum(shares, J)  # where k is 1, nothing is known
    if not np.logical_and.reduce(known):
        g = np.where(known, shares, ONE)
    square = 0.0 if identical or J > MOST_ALIKE else J * J
    least = _least(J, 1.0, identical or square > 0)
    top = _leading_root(np.maximum(g, square), J, 1.0, least)  # 1 or more if g is too near to 1
    if not identical and J > MOST_ALIKE:
        top = np.minimum(top, g + worst_case(J, identical=False))  # as `interval`
    over = np.minimum(ONE, top * (SAFE / (1 - square)))  # by `most_over`
    return _mirrored(_smaller_roots(_mirrored(means), k, over / g, identical))


@theorem("here (Theorem K, the worst case)", proof=PROOF)
def worst_case(J: Any, *, identical: bool = True) -> Any:
    """Return how far p can be from mu, whatever mu is; 1 where nothing is promised. Takes arrays.

    Statement
        |mu - p| <= sqrt(J/(2-J)), for rows that are not identical sqrt(J(1+J)/2); for a function with values in
        [lo, hi], hi-lo times as much.

    Not covered
        Rare events, for which `hi` says much more.

    >>> round(float(worst_case(0.02)), 6) == round(hi(0.45, 0.02) - 0.45, 6)
    True
    """
    J = np.asarray(J, dtype=float)
    some = np.where(J < 1, J, 1.0)
    square = some / (2 - some) if identical else some * (1 + some) / 2
    return np.where(J < 1, np.sqrt(square) * SAFE, 1.0)


@dataclass(frozen=True)
class Constants:
    """The free constants of the theorem: numbers, or arrays of the same shape."""

    om2: Any  # lam^2 - 1: how far the exchanges are extrapolated
    kap: Any
    s: Any
    L: Any  # e^-L and e^-L2 are the two parts of the failure probability
    L2: Any


def constants(n: Any, charge: Any, mass: Any, beta: Any, *, stretch: Any = 1.0, identical: bool = True) -> Constants:
    """Return good constants, each near its own best value; any others would be as valid. Takes arrays.

    `stretch` moves om2 away from its best value to leading order, sqrt(4 L n/B), which is too large for few rows.
    """
    a, per_row = np.asarray(mass, dtype=float), np.asarray(charge, dtype=float) / (2 * n)
    nats = -np.log(beta)
    om2 = stretch * np.sqrt(2 * nats / per_row)
    most = a * (1 - a) / (1 - 2 * a) ** 2
    s = good_s(n, charge, om2, nats)
    about = (1 + om2) * (per_row / 2 + nats / om2)  # Ibar to leading order
    apart = 1.5 * (1.0 if identical else APART) * (0.5 + 2 * most) * (about - np.log1p(-s) / 2) / (s * most * n)
    kap = np.minimum(MOST_KAP, np.sqrt((nats + 4) / (0.36 * (most + apart) * n * a * a * per_row)))
    part = om2 / (2 * kap * n * a * a + om2)  # of beta, for L2
    return Constants(om2, kap, s, -np.log(beta * (1 - part)) * SAFE, -np.log(beta * part) * SAFE)


def good_s(n: Any, charge: Any, om2: Any, L: Any) -> Any:
    """Return a good s. The theorem holds for every s at once, so it may depend on the draws so far. Takes arrays."""
    return np.clip(_good_s(np.maximum, np.log, n, np.asarray(charge, dtype=float), om2, L), LEAST_S, MOST_S)


def least_ibar(n: Any, charge: Any, om2: Any, L: Any) -> Any:
    """Return Ibar to leading order, which it is never below: what is left out only adds above, or takes away below."""
    return (1 + om2) * (charge / (4 * n) + L / om2)


def _good_s(larger: Any, log: Any, n: Any, charge: Any, om2: Any, L: Any) -> Any:
    about = least_ibar(n, charge, om2, L)
    return 1 - 1 / larger(1.05, 2 * about + 2 + log(2 * about))


@theorem("here (Gaussian answers)", proof=PROOF)
def gaussian_ibar(n: Any, charge: Any, om2: Any, s: Any, L: Any, *, identical: bool = True) -> Any:
    """Return Ibar for a session of means of all rows with Gaussian noise, in nats; inf: none. Takes arrays.

    Statement
        Noise of deviation sigma_j on a mean of values in [0, 1]; B = sum_j 1/(4 sigma_j^2), V = B/n.
            Ibar = (L + om2 (V/4)(1 + log(1/(1-s))/(s n)))/(om2/(1+om2) - om2 V/(2 s n)),
        with failure probability e^-L.
        For rows that are not identical, 2 log(1/(1-s)) replaces log(1/(1-s)), and V/(s n) replaces V/(2 s n).
        True also for discrete Gaussian noise on a grid that holds the mean itself.

    Not covered
        A mean that is rounded to the grid after it was taken: round the rows' values instead.

    >>> bool(gaussian_ibar(10**6, 4.7e8, 0.18, 0.997, 4.0) < 170)
    True
    """
    n, om2, s = (np.asarray(x, dtype=float) for x in (n, om2, s))
    V = np.asarray(charge, dtype=float) / n
    apart = 1 if identical else 2
    denominator = om2 / (1 + om2) - apart * om2 * V / (2 * s * n)
    holds = (denominator > 0) & (om2 > 0) & (s > 0) & (s < 1)
    numerator = L + om2 * V / 4 * (1 - apart * np.log1p(-np.where(holds, s, 0.5)) / (s * n))
    return np.where(holds, numerator / np.where(holds, denominator, 1.0), np.inf) * SAFE
