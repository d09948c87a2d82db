"""How far an average strays from its mean: Hoeffding, Chernoff with Bernoulli divergence, exact binomial."""

from collections.abc import Callable
from functools import partial
from math import ceil, exp, expm1, inf, isinf, lgamma, log, log1p, pi, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from holdfast import check
from holdfast.guarantees.mathematics import special
from holdfast.guarantees.mathematics.theorem import theorem

SAFE = 1 + 1e-12  # rounding of a root always goes to the safe side
ULP = 4e-16  # and so does rounding of a sum near 1
BETA_SAFE = 1e-10  # relative amount by which ends of exact binomial intervals are moved outward, to cover rounding
MOST_STEPS, CONVERGED = 8, 5e-9  # most steps to such an end; what the last step may give away, relatively
MANY_TRIALS = 1e8  # above this, a Beta density from differences of large logarithms has too few correct digits
FEW = 12  # up to this many counts, one by one is faster than an array
NORMAL = NormalDist()
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
    low = binomial_low(successes, trials, beta / 2) if successes > 0 else 0.0
    return low, 1.0 - binomial_low(trials - successes, trials, beta / 2) if successes < trials else 1.0


@theorem("here (ends by tangents)", proof="concentration.md")
def binomial_low(successes: int, trials: int, tail: float) -> float:
    """Return the largest p with P(Bin(trials, p) >= successes) <= tail, rounded down; `successes` must be positive.

    For a single count. scipy is used only if it is already imported: importing it takes as long as ten thousand calls.

    Statement
        The probability is F(p), the distribution function of the Beta law of a = successes, b = trials - a + 1. log F
        is concave in u = log p, so it is below its tangents: from every u, Newton's step leads to where F is at most
        `tail`. Halley's steps lead close to the end; the last step is Newton's, and gives away next to nothing.

    Not covered
        Rounding in F: the end is moved outward by BETA_SAFE. A tail above 1/2.

    >>> abs(binomial_low(1, 10, 0.025) - (1 - 0.975 ** (1 / 10))) < 1e-10
    True
    """
    if successes == trials:
        return _outwards(exp(log(tail) / trials))
    k, rest, goal, z = float(successes), float(trials - successes), log(tail), -NORMAL.inv_cdf(tail)
    scale = lgamma(k) + lgamma(rest + 1) - lgamma(trials + 1.0)
    if 2 * k - 1 <= z * z:  # the tail is nearly C(trials, successes) p^successes
        u = min(-1e-9, (goal + log(k) + scale) / k)
    else:
        u = log(_cornish_fisher(k - 0.5, trials, z, sqrt))
    law = None if special.at_hand() and trials <= MANY_TRIALS else _UpperTail(successes, trials)
    for _ in range(MOST_STEPS):
        p = exp(u)
        reached = special.beta_law(k, rest + 1, p) if law is None else 0.0
        if reached > TINY:
            slope, curve = exp(k * u + rest * log1p(-p) - scale) / reached, k - rest * p / (1 - p)
            step = (goal - log(reached)) / slope
        else:
            law = law or _UpperTail(successes, trials)
            logarithm, slope, curve = law.at(p)
            step = (goal - logarithm) / slope
        bend = step * (curve - slope) / 2
        p = exp(u + step)
        if abs(step * bend) <= CONVERGED * (1 - p):
            return _outwards(p)
        u += step / (1 + max(bend, -0.5))
    law = law or _UpperTail(successes, trials)
    return max(0.0, _halved(lambda p: exp(law.at(p)[0]), tail, inner=successes / trials, outer=0.0) - ULP)


def _outwards(p: float) -> float:
    return max(0.0, p - p * (1 - p) * BETA_SAFE - ULP)


def _cornish_fisher(k: Any, n: Any, z: Any, root: Callable[[Any], Any]) -> Any:
    """Return approximately the p whose binomial law has the same tail beyond k as the normal law has beyond z.

    It is the end of Wilson's interval, refined by a Cornish-Fisher expansion.
    """
    square = z * z
    half, skew, span = square / 2, (square - 1) / 6, n + square
    p = k * (1 + 2 * skew / n) - skew
    p = (p + half - z * root(p - p * p / n + half / 2)) / span
    spread = p - p * p
    p = k - skew + 2 * skew * p + z * (6 * skew + (2 * square - 14) * spread) / (72 * root(n * spread))
    return (p + half - z * root(p - p * p / n + half / 2)) / span


class _UpperTail:
    """P(Bin(n, p) >= k) for p below k/n, 0 < k < n: the first term by Loader's formula, times a sum of ratios.

    C. Loader, Fast and accurate computation of binomial probabilities (2000): the term is
    sqrt(n / (2 pi k (n-k))) exp(d(n) - d(k) - d(n-k) - n kl(k/n || p)), where d is what Stirling's formula leaves out.
    """

    def __init__(self, k: int, n: int) -> None:
        self.k, self.n, self.rest = float(k), float(n), float(n - k)
        beyond = _beyond_stirling(self.n) - _beyond_stirling(self.k) - _beyond_stirling(self.rest)
        self.scale = beyond + 0.5 * log(self.n / (2 * pi * self.k * self.rest))
        self.ratios = np.empty(0)  # of each term to the one before, divided by the odds

    def at(self, p: float) -> tuple[float, float, float]:
        """Return the logarithm of the tail, its slope in log p, and a number from which callers get its curvature."""
        odds = p / (1 - p)
        # Each ratio is at least a factor of exp(-1/rest) below the one before: what is left out is e^-36, relatively.
        first = -log(self.rest / (self.k + 1) * odds)
        terms = ceil(min(self.rest, 36 / first if first > 0 else inf, 8.5 * sqrt(self.rest) + 1))
        if len(self.ratios) < terms:
            j = np.arange(1.2 * terms + 1)  # a little more, for the next p
            self.ratios = (self.rest - j) / (j + (self.k + 1))
        total = 1 + float(np.add.reduce(np.multiply.accumulate(self.ratios[:terms] * odds)))
        reached = self.scale - self.n * _kl(self.k / self.n, p) + log(total)
        return reached, self.k / total, self.k - self.rest * odds


def _beyond_stirling(n: float) -> float:
    """log(n!) - log(sqrt(2 pi n) (n/e)^n)."""
    if n < 16:
        return lgamma(n + 1) - (n + 0.5) * log(n) + n - 0.5 * log(2 * pi)
    return (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / n**2) / n**2) / n**2) / n**2) / n


def _halved(tail: Callable[[float], Any], level: float, *, inner: float, outer: float) -> float:
    """Return an end with a tail of at most `level`, by bisection between `inner` (too near) and `outer` (not)."""
    for _ in range(100):
        middle = (inner + outer) / 2
        if tail(middle) <= level * (1 - 1e-9):  # more than the tail's own rounding
            outer = middle
        else:
            inner = middle
    return outer


def clopper_pearsons(successes: Any, trials: Any, beta: Any) -> tuple[Any, Any]:
    """Return the ends of `clopper_pearson` for arrays of counts; `trials` and `beta` may be arrays, or one for all."""
    successes = np.asarray(successes, dtype=float)
    count = len(successes)
    if count <= FEW and special.at_hand():  # faster one by one
        each = (np.broadcast_to(one, count).tolist() for one in (successes, trials, beta))
        lows, highs = np.array(list(map(clopper_pearson, *each))).reshape(count, 2).T
        return lows, highs
    trials, tail = _twice(trials), _twice(beta) / 2
    both = np.concatenate([successes, successes])
    both[count:] = (trials - both)[count:]
    ends = binomial_lows(both, trials, tail)
    return ends[:count], np.minimum(1.0, 1.0 - ends[count:])


def _twice(x: Any) -> Any:
    x = np.asarray(x, dtype=float)
    return np.concatenate([x, x]) if x.ndim else x


def binomial_lows(successes: Any, trials: Any, tail: Any) -> Any:
    """Return, for arrays, the largest p with P(Bin(trials, p) >= successes) <= tail, rounded down; 0 if no successes.

    The algorithm is that of `binomial_low`, with the Beta law written out here: arrays are short, so the time goes into
    the number of numpy operations.
    """
    some = successes > 0
    with np.errstate(all="ignore"):
        a = np.maximum(successes, 1.0)  # where there are none, any value will do
        rest, goal, z = trials - a, np.log(tail), -special.ndtri(tail)
        b = rest + 1
        scale = special.betaln(a, b)
        u = np.log(_cornish_fisher(a - 0.5, trials, z, np.sqrt))
        few = 2 * a - 1 <= z * z
        if few.any():
            u = np.where(few, np.minimum(-1e-9, (goal + np.log(a) + scale) / a), u)
        done, ends = np.zeros(u.shape, dtype=bool), u
        for _ in range(MOST_STEPS):
            p = np.exp(u)
            reached, odds = special.betainc(a, b, p), p / (1 - p)
            slope = np.exp(a * u - rest * np.log1p(odds) - scale) / reached
            step = (goal - np.log(reached)) / slope
            bend = step * (a - rest * odds - slope) / 2
            ends = np.where(done, ends, np.exp(u + step))
            done |= np.abs(step * bend) <= CONVERGED * (1 - ends)  # false for NaN
            if done.all():
                break
            u = u + step / (1 + np.maximum(bend, -0.5))
        ends = np.where(some, ends - ends * (1 - ends) * BETA_SAFE - ULP, 0.0)
    wrong = some & (~done | (trials > MANY_TRIALS))
    if wrong.any():
        a, b, tail = np.broadcast_arrays(a, b, tail)
        for place in zip(*np.nonzero(wrong), strict=True):
            cumulative: Callable[[float], Any] = partial(special.betainc, a[place], b[place])
            ends[place] = _halved(cumulative, float(tail[place]), inner=1.0, outer=0.0) - ULP  # callers round 1 - it
    return np.maximum(ends, 0.0)


def binomial_highs(successes: Any, trials: Any, tail: Any) -> Any:
    """Return, for arrays, the smallest p with P(Bin(trials, p) <= successes) <= tail, rounded up; 1 if all succeed."""
    return np.minimum(1.0, 1.0 - binomial_lows(trials - successes, trials, tail))


def _normal_quantile(level: Any) -> Any:
    """Return where the normal distribution function is `level`; for a single number without scipy, as accurately."""
    return NORMAL.inv_cdf(level) if np.ndim(level) == 0 and level > 0 else special.ndtri(level)


@theorem("Zubkov and Serov 2013, Theorem 1, with Pinsker", proof="concentration.md")
def clopper_pearson_width(ell: Any, beta: Any) -> Any:
    """Return how far an end of `clopper_pearson` can be from successes/ell, whatever is tossed. Takes arrays.

    Statement
        With z = Phi^-1(1 - beta/2), no end is further than z/(2 sqrt(ell)) + 1/ell from X/ell, X = 0..ell: the
        normal quantile, not Hoeffding's, at the price of one toss. (Hoeffding's, if it is smaller.)

    Not covered
        Nothing is lost by it: at ell = 18,000 it exceeds the true maximum by 0.3%.

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
    return _kl(p, q)


def _kl(p: float, q: float) -> float:
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
    # One Newton step on a convex function ends above the root, wherever it begins: here at the first two terms of a
    # series, which are nearly exact if the budget is small.
    near = sqrt(2 * p * room * budget) + 2 / 3 * (1 - 2 * p) * budget
    if 0 < near < gap:
        gap = min(gap, near - (_divergence(p, near) - budget) * (p + near) * (room - near) / near)
    for _ in range(60):  # from above: never passes the root
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
