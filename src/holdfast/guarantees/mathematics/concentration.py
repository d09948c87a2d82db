"""How far an average strays from its mean: Hoeffding, Chernoff with Bernoulli divergence, exact binomial."""

from collections.abc import Callable
from math import exp, expm1, inf, isinf, log, log1p, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from holdfast import check
from holdfast.guarantees.mathematics import special
from holdfast.guarantees.mathematics.theorem import theorem

SAFE = 1 + 1e-12  # rounding of a root always goes to the safe side
ULP = 4e-16  # and so does rounding of a sum near 1
BETA_SAFE = 1e-10  # ends of exact binomial intervals are moved outwards by as much, relatively, for all rounding
MOST_STEPS, CONVERGED = 8, 5e-9  # to such an end, and what the last step may give away, relatively
MANY_TRIALS = 1e8  # above this the density of a Beta law, from differences of large logarithms, has too few digits
TINY = 1e-290  # below this p, kl(p || q) is kl(0 || q) to the last digit, and gap/p would overflow


@theorem("Hoeffding 1963, Theorem 2", proof="concentration.md")
def hoeffding_radius(ell: float, beta: float) -> float:
    """Return t with P(|mean of ell draws - its expectation| >= t) <= beta.

    Statement
        X_1..X_ell in [0, 1], independent, or drawn without replacement from a finite list. Then
            t = sqrt(log(2/beta) / (2 ell)).

    Not covered
        Draws chosen after looking at the data; a number of draws that depends on them.

    >>> round(hoeffding_radius(530, 0.05 / 1000), 4)
    0.1
    """
    check.positive(ell=ell, beta=beta)
    return sqrt(log(2 / beta) / (2 * ell))


@theorem("Laplace tail", proof="concentration.md")
def laplace_radius(scale: float, beta: float) -> float:
    """Return t with P(|Lap(scale)| >= t) = beta, exactly.

    Statement
        P(|Lap(b)| >= t) = exp(-t/b), so t = b log(1/beta).

    Not covered
        Noise rounded to a grid coarser than the scale.

    >>> laplace_radius(1.0, 1.0)
    0.0
    """
    check.positive(scale=scale, beta=beta)
    return scale * max(0.0, log(1 / beta))


@theorem("Clopper and Pearson 1934", proof="concentration.md")
def clopper_pearson(successes: int, trials: int, beta: float) -> tuple[float, float]:
    """Return an interval that contains the bias of a coin with probability at least 1 - beta.

    Statement
        X ~ Bin(trials, p), `trials` fixed before the first toss. With the quantiles of the Beta law
            low = Q(beta/2; X, trials-X+1),   high = Q(1-beta/2; X+1, trials-X),
        each tail misses p with probability at most beta/2, for every p. No tosses: [0, 1].

    Not covered
        Looking again after more tosses: that is a new interval, from new tosses only.

    >>> clopper_pearson(0, 0, 0.05)
    (0.0, 1.0)
    >>> low, high = clopper_pearson(0, 10, 0.05)
    >>> low, round(high, 4) == round(1 - 0.025 ** (1 / 10), 4)
    (0.0, True)
    """
    low = binomial_end(successes, trials, beta / 2) if successes > 0 else 0.0
    high = binomial_end(successes, trials, beta / 2, upper=True) if successes < trials else 1.0
    return low, high


@theorem("here (ends by tangents)", proof="concentration.md")
def binomial_end(successes: int, trials: int, tail: float, *, upper: bool = False) -> float:
    """Return the largest p with P(Bin(trials, p) >= successes) <= tail; if `upper`, the least with P(... <= ...) <= it.

    Statement
        The probability T is the lower tail of the Beta law of a = successes, b = trials - a + 1, or the upper one of
        that of a + 1, b - 1. log T is concave in u = log p, so it is below its tangents: from every u, Newton's step
        leads to where T is at most `tail`. Halley's steps lead near it; the last step is Newton's, and short.

    Not covered
        Rounding in T: the end is moved outwards by BETA_SAFE.

    >>> abs(binomial_end(1, 10, 0.025) - (1 - 0.975 ** (1 / 10))) < 1e-10
    True
    """
    sign, a = (-1, successes + 1.0) if upper else (1, float(successes))
    rest, goal = trials - a, log(tail)
    one, other = (rest + 1, a) if upper else (a, rest + 1)  # the upper tail of p is the lower one of 1 - p
    scale, outwards = float(special.betaln(one, other)), 1 - sign * BETA_SAFE
    u = _begin(one, other, goal, scale, -float(special.ndtri(tail)), upper=upper)
    for _ in range(MOST_STEPS if trials <= MANY_TRIALS else 0):
        p = exp(u)
        below = 1 - p
        reached = float(special.betainc(one, other, below if upper else p)) if below > 0 else 0.0
        slope = sign * exp(a * u + rest * log(below) - scale) / reached if reached > 0 else 0.0  # of log T
        if slope == 0:
            break
        step = (goal - log(reached)) / slope
        bend = step * (a - rest * p / below - slope) / 2
        if abs(step * bend) <= CONVERGED:
            return min(1.0, max(0.0, exp(u + step) * outwards - sign * ULP))
        u += step / (1 + max(bend, -0.5))
    return _halved(successes, trials, tail, upper=upper)


def _begin(one: float, other: float, goal: float, scale: float, z: float, *, upper: bool) -> float:
    """Return a u near which log T is its goal: by Cornish and Fisher, or for small counts as if T were a power."""
    if 2 * one - 1 <= z * z:
        power = exp(min(-1e-9, (goal + log(one) + scale) / one))
        return log1p(-power) if upper else log(power)
    a, z = (other, -z) if upper else (one, z)
    return log(_cornish_fisher(a - 0.5, one + other - 1, z, z * z, sqrt))


def _cornish_fisher(k: Any, n: Any, z: Any, square: Any, root: Callable[[Any], Any]) -> Any:
    """Return about the p for which k is the binomial quantile that z, of this square, is of the normal law."""
    half, skew, span = square / 2, (square - 1) / 6, n + square
    p = k * (1 + 2 * skew / n) - skew
    p = (p + half - z * root(p - p * p / n + half / 2)) / span  # by Wilson
    spread = p - p * p
    p = k - skew + 2 * skew * p + z * (6 * skew + (2 * square - 14) * spread) / (72 * root(n * spread))
    return (p + half - z * root(p - p * p / n + half / 2)) / span


def _halved(successes: float, trials: float, tail: float, *, upper: bool) -> float:
    """Return the same end by halving, between one that is too near and one that is not: where steps do not settle."""
    inner, outer = float(not upper), float(upper)
    a, b = (successes + 1, trials - successes) if upper else (successes, trials - successes + 1)
    for _ in range(100):
        middle = (inner + outer) / 2
        reached = special.betaincc(a, b, middle) if upper else special.betainc(a, b, middle)
        if reached <= tail * (1 - 1e-9):  # more than its own rounding
            outer = middle
        else:
            inner = middle
    return outer


def clopper_pearsons(successes: Any, trials: Any, beta: Any) -> tuple[Any, Any]:
    """Return the ends of `clopper_pearson` for arrays of counts; `trials` and `beta` may be arrays, or one for all."""
    successes, trials, tail = np.asarray(successes, dtype=float), _twice(trials), _twice(beta) / 2
    count = len(successes)
    ends = _binomial_ends(np.concatenate([successes, successes]), trials, tail, count)
    return ends[:count], ends[count:]


def _twice(x: Any) -> Any:
    x = np.asarray(x, dtype=float)
    return np.concatenate([x, x]) if x.ndim else x


def binomial_lows(successes: Any, trials: Any, tail: Any) -> Any:
    """Return, for arrays, the largest p with P(Bin(trials, p) >= successes) <= tail, rounded down; 0 of none."""
    counts = successes + np.zeros(np.shape(tail))
    return _binomial_ends(counts, trials, tail, len(counts))


def binomial_highs(successes: Any, trials: Any, tail: Any) -> Any:
    """Return, for arrays, the smallest p with P(Bin(trials, p) <= successes) <= tail, rounded up; 1 of all."""
    return _binomial_ends(successes + np.zeros(np.shape(tail)), trials, tail, 0)


def _binomial_ends(successes: Any, trials: Any, tail: Any, lows: int) -> Any:
    """Return what `binomial_end` does for arrays of counts: of the first ones lower ends, of the others upper ones.

    Counts are few and steps are many, so that it is the number of operations that takes time.
    """
    up, sign = np.zeros(successes.shape), np.ones(successes.shape)
    up[lows:], sign[lows:] = 1.0, -1.0
    with np.errstate(all="ignore"):
        a = np.maximum(1.0, np.minimum(successes + up, trials))  # of none, and of all, it does not matter
        rest = np.maximum(0.0, trials - a)
        b, z, goal = rest + 1, -special.ndtri(tail), np.log(tail)
        scale, one, other = special.betaln(a, b), a.copy(), b.copy()
        one[lows:], other[lows:] = b[lows:], a[lows:]  # the upper tail of p is the lower one of 1 - p
        u = np.log(_cornish_fisher(a - 0.5, trials, z * sign, z * z, np.sqrt))
        few = 2 * one - 1 <= z * z
        if few.any():
            power = np.exp(np.minimum(-1e-9, (goal + np.log(one) + scale) / one))
            u = np.where(few, np.where(up, np.log1p(-power), np.log(power)), u)
        settled, ends = np.zeros(u.shape, dtype=bool), u
        for _ in range(MOST_STEPS):
            p = np.exp(u)
            below = 1 - p
            at = p.copy()
            at[lows:] = below[lows:]
            reached = special.betainc(one, other, at)
            slope = np.exp(a * u + rest * np.log(below) - scale) / reached * sign
            step = (goal - np.log(reached)) / slope
            bend = step * (a - rest * p / below - slope) / 2
            near = np.abs(step * bend) <= CONVERGED  # false for NaN
            ends = np.where(settled, ends, u + step)
            settled |= near
            if settled.all():
                break
            u = u + step / (1 + np.maximum(bend, -0.5))
        ends = np.exp(ends)
        ends += (BETA_SAFE * ends + ULP) * -sign
    some = successes != trials * up  # the ends of none and of all are 0 and 1
    ends = np.where(some, np.minimum(1.0, np.maximum(0.0, ends)), up)
    wrong = some & (~settled | (trials > MANY_TRIALS))
    if wrong.any():
        every = np.broadcast_arrays(successes, trials, tail, up)
        for place in zip(*np.nonzero(wrong), strict=True):
            count, of, level, upper = (each[place] for each in every)
            ends[place] = _halved(count, of, level, upper=bool(upper))
    return ends


def _normal_quantile(level: Any) -> Any:
    """Return where the normal distribution function is `level`; of one number without scipy, to the same digits."""
    return NormalDist().inv_cdf(level) if np.ndim(level) == 0 and level > 0 else special.ndtri(level)


@theorem("Zubkov and Serov 2013, Theorem 1, with Pinsker", proof="concentration.md")
def clopper_pearson_width(ell: Any, beta: Any) -> Any:
    """Return how far an end of `clopper_pearson` can be from successes/ell, whatever is tossed. Takes arrays.

    Statement
        With z = Phi^-1(1 - beta/2), no end is further than z/(2 sqrt(ell)) + 1/ell from X/ell, X = 0..ell: the
        normal quantile, not Hoeffding's, at the price of one toss. (Hoeffding's, if it is smaller.)

    Not covered
        Nothing is lost by it: at ell = 18,000 it exceeds the true maximum by 0.3 %.

    >>> bool(clopper_pearson_width(100, 0.05) >= clopper_pearson(50, 100, 0.05)[1] - 0.5)
    True
    """
    z = -_normal_quantile(beta / 2)
    hoeffding = np.sqrt(np.log(2 / np.asarray(beta, dtype=float)) / (2 * np.asarray(ell, dtype=float)))
    return np.minimum(np.minimum(z / (2 * np.sqrt(ell)) + 1 / np.asarray(ell), hoeffding), 1.0) * SAFE


def _slack(t: float) -> float:
    """t - log(1 + t), without cancellation for small t."""
    if abs(t) < 1e-2:  # alternating series; what is left out is below 3e-15 relatively
        return t * t * (1 / 2 - t * (1 / 3 - t * (1 / 4 - t * (1 / 5 - t * (1 / 6 - t * (1 / 7 - t / 8))))))
    return inf if t <= -1 else t - log1p(t)


def _divergence(p: float, gap: float) -> float:
    """kl(p || p + gap). Written with gap, so that n = 10^12 rows lose no digits."""
    total = 0.0
    if p > TINY:
        total += p * _slack(gap / p)
    if p < 1:
        total += (1 - p) * _slack(-gap / (1 - p))
    return total + (gap if p <= TINY else 0.0) - (gap if p == 1 else 0.0)


@theorem("Bernoulli divergence", proof="concentration.md")
def kl(p: float, q: float) -> float:
    """Return kl(p || q) = p log(p/q) + (1-p) log((1-p)/(1-q)), in nats.

    Statement
        For X_1..X_n independent in [0, 1] with mean m, P(n kl(average || m) >= r) <= 2 exp(-r).

    Not covered
        An average selected after seeing the X_i (that is what the radius of `information` is for).

    >>> round(kl(0.5, 0.25), 12) == round(0.5 * log(4 / 3), 12)
    True
    """
    check.share(p=p, q=q)
    if 0 < q < 1 and (2 * q < p or 2 * (1 - q) < 1 - p):  # far apart: q - p would round q away
        ones = p * (log(p) - log(q)) if p > 0 else 0.0
        return ones + ((1 - p) * (log1p(-p) - log1p(-q)) if p < 1 else 0.0)
    return max(0.0, _divergence(p, q - p))


def kl_upper(p: float, budget: float) -> float:
    """Return the largest q >= p with kl(p || q) <= budget, rounded up."""
    return min(1.0, p + _gap(p, budget) + ULP)


def kl_lower(p: float, budget: float) -> float:
    """Return the smallest q <= p with kl(p || q) <= budget, rounded down."""
    return max(0.0, p - _gap(1 - p, budget) - ULP)


def _gap(p: float, budget: float) -> float:
    room = 1 - p
    if room <= 0 or budget <= 0:
        return 0.0
    if isinf(budget):
        return room
    if p == 0:  # kl(0 || q) = -log(1-q)
        return min(room, -expm1(-budget) * SAFE)
    gap = sqrt(budget / 2)  # Pinsker: the root is not above this
    if gap >= room:
        # Above some q = 1 - room * t the divergence is at least (1-p) log(1/t) - h(p) >= budget.
        entropy = -p * log(p) - room * log(room)
        gap = room * (1 - exp(-(budget + entropy) / room))
        if gap >= room:
            return room
    for _ in range(60):  # Newton on a convex increasing function, from above: never passes the root
        q = p + gap
        slope = gap / (q * (1 - q)) if q < 1 else inf
        step = (_divergence(p, gap) - budget) / slope
        if not step > gap * 1e-14:
            break
        gap -= step
    return min(room, gap * SAFE)


def kl_range(sample: tuple[float, float], *, n: float, r: float) -> tuple[float, float]:
    """Return every d with n kl(s || d) <= r for some s in the interval: from the sample to the population."""
    if n <= 0:
        return 0.0, 1.0
    return kl_lower(sample[0], r / n), kl_upper(sample[1], r / n)
