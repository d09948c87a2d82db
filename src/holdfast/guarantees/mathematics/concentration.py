"""How far an average strays from its mean: Hoeffding, Chernoff with Bernoulli divergence, exact binomial."""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from math import ceil, exp, expm1, inf, isinf, lgamma, log, log1p, pi, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from holdfast import check
from holdfast.guarantees.mathematics import special, theorem

SAFE = 1 + 1e-12  # rounding of a root always goes to the safe side
ULP = 4e-16  # and so does rounding of a sum near 1
BETA_SAFE = 1e-10  # relative amount by which ends of exact binomial intervals are moved outward, to cover rounding
MOST_STEPS, CONVERGED = 8, 5e-9  # most steps to such an end; what the last step may give away, relatively
MANY_TRIALS = 1e8  # above this, a Beta density from differences of large logarithms has too few correct digits
QUICKLY_INVERTED = 5_000  # trials; with more, scipy's quantile often takes ten times as long
FEW, FEW_ALIKE = 14, 20  # up to so many counts, one by one is faster than arrays; and if trials and level are alike
NORMAL = NormalDist()
_STEPS = range(MOST_STEPS)
# With short arrays, these are nearly twice as fast as Python's numbers.
ZERO, HALF, ONE, _OUTWARD, _ULP, _CONVERGED = map(np.array, (0.0, 0.5, 1.0, BETA_SAFE, ULP, CONVERGED))
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
    tail, failures = float(beta) / 2, trials - successes
    if trials <= QUICKLY_INVERTED and special.at_hand():
        low, beyond = _by_quantile(successes, failures, tail), _by_quantile(failures, successes, tail)
        if low is not None and beyond is not None:
            return low, 1.0 - beyond
    (low, _), (beyond, _) = tangents((successes, failures), trials, tail)
    return low, 1.0 - beyond


def _by_quantile(successes: int, failures: int, tail: float) -> float | None:
    """Return the end that `tangents` finds, by scipy's quantile; None if the distribution function does not confirm it.

    With few trials it takes less time than to begin with an expansion of one's own.
    """
    if not successes:
        return 0.0
    a, b = float(successes), failures + 1.0
    p = special.beta_quantile(a, b, tail)
    end = p - p * (1 - p) * BETA_SAFE - ULP
    return end if special.beta_law(a, b, end) <= tail else None


@theorem("here (ends by tangents)", proof="concentration.md")
def tangents(counts: Iterable[float], trials: float, tail: float) -> list[tuple[float, float]]:
    """Return for each count the largest p with P(Bin(trials, p) >= count) <= tail, rounded down, and a slope there.

    For a few counts. scipy is used only if it is already imported: importing it takes as long as ten thousand counts.

    Statement
        The probability is F(p), the distribution function of the Beta law of a = count, b = trials - a + 1. log F is
        concave in u = log p, so it is below its tangents: from every u, Newton's step leads to where F is at most
        `tail`. Halley's steps lead close to the end; the last step is Newton's, and gives away next to nothing. With
        the slope s of that tangent, the end for a tail e^-y times as large is at least p (1 - y/s), for every y. No
        successes: p = 0, s = inf.

    Not covered
        Rounding in F: the end is moved outward by BETA_SAFE. Rounding in s. A tail above 1/2
        (`binomial_lows` covers it).

    >>> (p, slope), = tangents([1], 10, 0.025)
    >>> abs(p - (1 - 0.975 ** (1 / 10))) < 1e-10, round(slope, 3)
    (True, 0.989)
    """
    if not trials:
        return [(0.0, inf) for _ in counts]
    n, goal, square, whole, expansion = _shared(trials, tail)
    reach, half, quarter, span, skew, more, first, third, second, middle = expansion
    found, beta_law, direct = [], special.beta_law, n <= MANY_TRIALS and special.at_hand()
    few = (square + 1) / 2
    for count in counts:
        k, rest = float(count), n - count
        if not (k and rest):
            end, slope = (exp(goal / n), n) if k else (0.0, inf)
            found.append((max(0.0, end - end * (1 - end) * BETA_SAFE - ULP), slope))
            continue
        b = rest + 1
        scale = lgamma(k) + lgamma(b) - whole
        if k > few:  # as `_start`, written out: calling it would take a fourth of all the time
            share = (k - 0.5) / n
            x = share * more - skew
            p = (x + half - reach * sqrt(x * (1 - x) + quarter)) / span
            q = 1 - p
            spread = p * q
            x = share - (q - p) * (first + third / spread) + (second + middle * spread) / sqrt(spread)
            p = (x + half - reach * sqrt(x * (1 - x) + quarter)) / span
        else:  # if there are few, the tail is nearly C(trials, count) p^count
            p = exp(min(-1e-9, (goal + log(k) + scale) / k))
        law = None if direct else _UpperTail(k, n)
        for _ in _STEPS:
            reached = beta_law(k, b, p) if law is None else 0.0
            if reached > TINY:
                slope, curve = exp(k * log(p) + rest * log1p(-p) - scale) / reached, k - rest * p / (1 - p)
                step = (goal - log(reached)) / slope
            else:
                law = law or _UpperTail(k, n)
                logarithm, slope, curve = law.at(p)
                step = (goal - logarithm) / slope
            end, bend = p * exp(step), step * (curve - slope) / 2
            if abs(step * bend) <= CONVERGED * (1 - end):  # the last step gives away no more
                end = end - end * (1 - end) * BETA_SAFE - ULP
                found.append((end if end > 0.0 else 0.0, slope))
                break
            p *= exp(step / (1 + max(bend, -0.5)))
        else:
            law = law or _UpperTail(k, n)
            end = max(0.0, _halved(law.tail, tail, inner=k / n, outer=0.0) - ULP)
            found.append((end, law.at(end)[1] if end else inf))
    return found


@lru_cache(maxsize=64)
def _shared(trials: float, tail: float) -> tuple[float, float, float, float, tuple[float, ...]]:
    """Return what all counts share; a plan fixes trials and tail, so most of its questions share it, too."""
    n, z = float(trials), -NORMAL.inv_cdf(tail)
    return n, log(tail), z * z, lgamma(n + 1), _expansion(n, z, sqrt)


def _expansion(n: Any, z: Any, root: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Return the constants of `_start`."""
    square, reach = z * z, z / root(n)
    skew, third = (square - 1) / (6 * n), ((3 * square + 7) * square - 16) / (1620 * n * n)
    second, middle, wide = (square + 2) * reach / (72 * n), (square - 7) * reach / (36 * n), reach * reach
    return reach, wide / 2, wide / 4, 1 + wide, skew, 1 + 2 * skew, skew + third, 2 * third, second, middle


def _start(share: Any, expansion: tuple[Any, ...]) -> Any:
    """Return about the p whose binomial law has the tail beyond this `share` of n that the normal has beyond z.

    It is the end of Wilson's interval for the share less what a Cornish-Fisher expansion adds: three terms, in falling
    powers of the standard deviation, at the p that the first of them gives.
    """
    reach, half, quarter, span, skew, more, first, third, second, middle = expansion
    x = share * more - skew
    p = (x + half - reach * np.sqrt(x * (1 - x) + quarter)) / span
    rest = 1 - p
    spread = p * rest
    x = share - (rest - p) * (first + third / spread) + (second + middle * spread) / np.sqrt(spread)
    return (x + half - reach * np.sqrt(x * (1 - x) + quarter)) / span


class _UpperTail:
    """P(Bin(n, p) >= k) for p below k/n, 0 < k < n: the first term by Loader's formula, times a sum of ratios.

    C. Loader, Fast and accurate computation of binomial probabilities (2000): the term is
    sqrt(n / (2 pi k (n-k))) exp(d(n) - d(k) - d(n-k) - n kl(k/n || p)), where d is what Stirling's formula leaves out.
    """

    def __init__(self, k: float, n: float) -> None:
        self.k, self.n, self.rest = k, n, n - k
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

    def tail(self, p: float) -> float:
        """Return the tail itself."""
        return exp(self.at(p)[0])


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


def clopper_pearson_each(counts: Sequence[int], trials: int, beta: float) -> list[tuple[float, float]]:
    """Return the interval of `clopper_pearson` for each of several counts of as many trials."""
    if len(counts) <= FEW_ALIKE and trials > QUICKLY_INVERTED and special.at_hand():  # faster one by one
        ends = tangents([*counts, *(trials - count for count in counts)], trials, beta / 2)
        return [(low, 1.0 - beyond) for (low, _), (beyond, _) in zip(ends, ends[len(counts) :], strict=False)]
    if len(counts) <= FEW and special.at_hand():
        return [clopper_pearson(count, trials, beta) for count in counts]
    lows, highs = clopper_pearsons(counts, trials, beta)
    return list(zip(lows.tolist(), highs.tolist(), strict=True))


def clopper_pearson_beside(
    counts: Sequence[int], trials: Sequence[int], betas: Sequence[float]
) -> list[tuple[float, float]]:
    """Return the same, with trials and a beta for each count."""
    if len(counts) <= FEW and special.at_hand():
        return list(map(clopper_pearson, counts, trials, betas))
    lows, highs = clopper_pearsons(counts, np.array(trials, dtype=float), np.array(betas))
    return list(zip(lows.tolist(), highs.tolist(), strict=True))


def clopper_pearsons(successes: Any, trials: Any, beta: Any) -> tuple[Any, Any]:
    """Return the ends of `clopper_pearson` for arrays of counts; `trials` and `beta` may be arrays, or one for all."""
    successes = np.asarray(successes, dtype=float)
    if successes.size <= FEW and special.at_hand():
        each = (np.broadcast_to(one, successes.shape).tolist() for one in (successes, trials, beta))
        lows, highs = np.array(list(map(clopper_pearson, *each))).reshape(successes.size, 2).T
        return lows, highs
    lows, beyond = binomial_lows(np.array((successes, trials - successes)), trials, beta / 2)
    return lows, ONE - beyond


def binomial_lows(successes: Any, trials: Any, tail: Any) -> Any:
    """Return, for arrays, the largest p with P(Bin(trials, p) >= successes) <= tail, rounded down; 0 if no successes.

    The algorithm is that of `tangents`: arrays are short, so the time goes into the number of numpy operations. Trials
    and tail may be one for all counts: then what they share is computed once for a plan.
    """
    with np.errstate(all="ignore"):
        if isinstance(trials, int) and isinstance(tail, float):
            most, (n, goal, square, expansion) = trials, _shared_in_arrays(trials, tail)
        else:
            n, tail = np.asarray(trials, dtype=float), np.asarray(tail, dtype=float)
            most = np.maximum.reduce(n, axis=None)
            goal, square, expansion = _of_arrays(n, tail, most)
        few = successes + successes <= square + ONE
        some_few = np.logical_or.reduce(few, axis=None)
        a = np.maximum(successes, ONE) if some_few else successes  # where there are none, any value will do
        rest = n - a
        b = rest + ONE
        if expansion is None:
            p = special.betaincinv(a, b, tail)
            ends = p - p * (ONE - p) * _OUTWARD - _ULP
            exact = np.logical_and.reduce(special.betainc(a, b, ends) <= tail, axis=None)
        else:
            p, exact = _start((a - HALF) / n, expansion), False
        if not exact:
            scale = special.betaln(a, b)
            if some_few:  # then the tail is nearly C(trials, count) p^count
                p = np.where(few, np.exp(np.minimum(-1e-9, (goal + np.log(a) + scale) / a)), p)
            if not np.logical_and.reduce(rest, axis=None):  # p^n, of which `scale` has too few digits
                p = np.where(rest > ZERO, p, np.exp(goal / n))
            ends = _by_steps(p, a, b, rest, goal, scale)
            ends = ends - ends * (ONE - ends) * _OUTWARD - _ULP
            total = np.add.reduce(ends, axis=None)
            if most > MANY_TRIALS or total != total:  # some are not exact enough, or NaN: they did not settle
                ends = _halved_where(np.isnan(ends) | (n > MANY_TRIALS), ends, a, b, tail)
        if some_few:
            ends = np.where(successes > ZERO, ends, ZERO)
    return np.maximum(ends, ZERO)


@lru_cache(maxsize=64)
def _shared_in_arrays(trials: int, tail: float) -> tuple[Any, ...]:
    """Return what all counts share if trials and tail are the same for all of them."""
    n, goal, square, _, expansion = _shared(trials, tail)
    return *map(np.array, (n, goal, square)), tuple(map(np.array, expansion)) if n > QUICKLY_INVERTED else None


def _of_arrays(n: Any, tail: Any, most: float) -> tuple[Any, Any, Any]:
    """Return the same for each; no expansion where scipy's quantiles take less time than it."""
    z, goal = -special.ndtri(tail), np.log(tail)
    return goal, z * z, _expansion(n, z, np.sqrt) if most > QUICKLY_INVERTED else None


def _by_steps(p: Any, a: Any, b: Any, rest: Any, goal: Any, scale: Any) -> Any:
    """Return where at most MOST_STEPS steps from p lead, NaN where they do not settle.

    An end that has settled stays as it is while others go on, so that it does not depend on them.
    """
    found, done = np.full(p.shape, np.nan), None
    for _ in range(MOST_STEPS):
        reached = special.betainc(a, b, p)
        slope = np.exp(a * np.log(p) + rest * np.log1p(-p) - scale) / reached
        step = (goal - np.log(reached)) / slope
        bend = step * (a - rest * (p / (ONE - p)) - slope) * HALF
        ends = p * np.exp(step)
        near_enough = np.abs(step * bend) <= _CONVERGED * (ONE - ends)  # false for NaN
        found, done = (ends, near_enough) if done is None else (np.where(done, found, ends), done | near_enough)
        if np.logical_and.reduce(done, axis=None):
            return found
        p = p * np.exp(step / (ONE + np.maximum(bend, -HALF)))
    return found if done is None else np.where(done, found, np.nan)


def _halved_where(wrong: Any, ends: Any, a: Any, b: Any, tail: Any) -> Any:
    """Return the `ends`, with those that are `wrong` found by bisection."""
    a, b, tail = (np.broadcast_to(each, ends.shape) for each in (a, b, tail))
    for place in zip(*np.nonzero(wrong), strict=True):
        cumulative: Callable[[float], Any] = partial(special.betainc, a[place], b[place])
        ends[place] = _halved(cumulative, float(tail[place]), inner=1.0, outer=0.0) - ULP  # callers round 1 - it
    return ends


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
