"""What a check tells: a statistic of all rows is computed, and only the cell that it fell into is released.

Everything the analyst chooses is a function of the cells so far. So the questions that *could* be asked are fixed
before any row is looked at, one for every string of responses, and a union bound over strings pays for adaptivity. A
string is paid for by its weight: strings in which nearly every guess held are few, and cheap.
"""

from math import ceil, exp, lgamma, log, log1p, sqrt

import numpy as np
from numpy.typing import NDArray

from holdfast import check
from holdfast.guarantees.mathematics.concentration import SAFE, kl_range, kl_upper
from holdfast.guarantees.mathematics.theorem import theorem

PIECES = 128  # of the integral in `sampled_range`; more of them change the fourth digit
STEPS = 6  # of a search that goes well
CLOSE = 1e-3  # how near to the end that is sought, as a share of the way from the sample's: always from outside
LEAST, TINY = 1e6, 1e-300  # infinite divergence, and what is never 0
KL_ROUNDING = 1e-15  # how far kl of two doubles may be from its value, on either side

Interval = tuple[float, float]
Numbers = NDArray[np.float64]


@theorem("a sum of 1/(m log^2 m)", proof="checks.md")
def time_share(t: int) -> float:
    """Return the share of the failure probability that the t-th statement may use.

    Statement
        With share(t) = log 2 / ((t+2) log^2(t+2)), the shares of t = 1, 2, ... sum to at most 1: no number of
        statements has to be fixed.

    Not covered
        Two statements under one number.

    >>> sum(time_share(t) for t in range(1, 100_000)) < 1
    True
    """
    check.whole(t=t)
    return log(2) / ((t + 2) * log(t + 2) ** 2)


def _log_count(j: int, most: int) -> float:
    """-log of the weight of j in 0..most: 1/((j+1)(j+2)), made to sum to 1."""
    return log((j + 1) * (j + 2) * (most + 1) / (most + 2))


def _log_binomial(n: int, j: int) -> float:
    return lgamma(n + 1) - lgamma(j + 1) - lgamma(n - j + 1)


@theorem("weights of response strings", proof="checks.md")
def guess_nats(t: int, wrong: int, log_cells: float) -> float:
    """Return the description length, in nats, of the responses before the t-th check of a guess.

    Statement
        w(y) = (t+1)/t / [(j+1)(j+2) C(t-1, j) prod G], where j of the t-1 responses in y were not "holds", and the
        product runs over those of the number G of such responses that the check could have given. For every t the
        weights of all strings sum to 1; nats = -log w.

    Not covered
        A response that is not counted in its check's G ("too few rows" is one).

    Parameters
    ----------
    t
        The number of the check.
    wrong
        How many earlier guesses did not hold.
    log_cells
        The sum of log G over those.
    """
    check.whole(t=t)
    check.whole(0, wrong=wrong)
    check.at_most("the checks before", t - 1, wrong=wrong)
    return SAFE * (_log_count(wrong, t - 1) + _log_binomial(t - 1, wrong) + log_cells)


@theorem("weights of a ladder", proof="boards.md")
def ladder_nats(t: int, improvements: int, cells: int, steps: float) -> float:
    """Return the description length, in nats, of the responses before the t-th submission to a ladder.

    Statement
        A fixed grid of J cells; every response is "no improvement" or a cell better than all cells released before,
        and the first one is always a cell. A string of t-1 >= 1 responses is named by when it improved and by which
        cells: as a set of cells, or by the first one and how many cells up each later one was, few being likelier. With
        m = min(t-1, J) and d_2..d_j the numbers of cells up,
            w(y) = (m+1)/m / [j(j+1) C(t-2, j-1)] * [1/C(J, j) + 1/(J prod d_i (d_i + 1))] / 2,
        and the weights of all strings sum to at most 1. Nothing is told before the first: no nats.

    Not covered
        A grid that is changed, or cells released that are not better.

    >>> ladder_nats(1, 0, 100, 0.0), round(ladder_nats(2, 1, 100, 0.0), 6) == round(log(100), 6)
    (0.0, True)

    Parameters
    ----------
    t
        The number of the submission.
    improvements
        How many earlier ones improved; the first one did.
    cells
        The number J of cells of the grid.
    steps
        The sum of log d(d+1) over improvements after the first, each by d cells; it may be larger.
    """
    check.whole(t=t, cells=cells)
    check.whole(min(1, t - 1), improvements=improvements)
    check.at_most("the submissions before", t - 1, improvements=improvements)
    check.at_most("the cells of the grid", cells, improvements=improvements)
    if t == 1:
        return 0.0
    when = _log_count(improvements - 1, min(t - 1, cells) - 1) + _log_binomial(t - 2, improvements - 1)
    as_set, by_steps = _log_binomial(cells, improvements), log(cells) + steps
    shorter, longer = sorted((as_set, by_steps))
    return SAFE * (when + log(2) + shorter - log1p(exp(shorter - longer)))


@theorem("Description length with Chernoff's bound", proof="checks.md")
def full_range(cell: Interval, *, n: int, level: float, nats: float) -> Interval:
    """Return where the population's value lies, if the mean of all n rows fell into the cell.

    Statement
        With level = beta share(t) and nats = -log w(responses before), q(D) lies in
        [klL(inf cell, L/n), klU(sup cell, L/n)], L = log(2/level) + nats, for all t at once but for beta.

    Not covered
        Rows that also answered something else; a cell chosen after the scan.

    >>> low, high = full_range((0.2, 0.3), n=10**6, level=0.01, nats=10.0)
    >>> low < 0.2 and 0.3 < high
    True
    """
    return kl_range(cell, n=n, r=log(2 / level) + nats)


@theorem("Differences of groups of rows that are not identical", proof="checks.md")
def two_groups_length(length: float) -> float:
    """Return the exponent that a difference of two groups takes, if one of the same size for a mean takes `length`.

    Statement
        Rows are independent, not identical; two groups share no row and have at least N rows each. A value of
        (1 + X_A - X_B)/2 further above (or below) its like in the population than 2N kl = L has at most the probability
        (g e^(L/g) + 1) e^-L, for every whole g; so L with that at most e^-length.

    Not covered
        Groups that share rows. (Rows that are identical take no more than `length`.)

    >>> 3.5 < two_groups_length(20.0) - 20.0 < 4.5
    True
    """
    check.positive(length=length)

    def more(total: float) -> float:
        pieces = max(1.0, ceil(total))
        return log(pieces * exp(total / pieces) + 1)

    total = length
    while total - more(total) < length:
        total = (length + more(total)) * SAFE + 1e-12
    return total


@theorem("The same for sampled rows, in one step", proof="checks.md")
def sampled_range(cell: Interval, *, n: int, draws: int, level: float, sample_level: float, nats: float) -> Interval:
    """Return where the population's value lies, if the mean of `draws` sampled rows fell into the cell.

    Statement
        With x = log(2/sample_level) and L = log(2/level) + nats, the upper end is the smallest d >= klU(b, x/draws),
        b the upper end of the cell, with
            int_0^x exp(-z - n kl_-(klU(b, z/draws) || d)) dz <= exp(-L),
        kl_-(s || d) being kl for s < d and 0 otherwise; never above klU(klU(b, x/draws), L/n). The lower end is its
        mirror image.

    Not covered
        Draws shared with another check; a number of draws that depends on them.
    """
    lower, upper = _peeled_uppers(
        (1 - cell[0], cell[1]), n=n, draws=draws, x=log(2 / sample_level), length=log(2 / level) + nats
    )
    return 1 - lower, upper


@theorem("A comparison row by row, by Hoeffding's bound", proof="boards.md")
def paired_range(told: Interval, *, n: int, most: float, squares: float, level: float, nats: float) -> Interval:
    """Return how far one submission is ahead of an earlier one, if the mean difference of the n rows is `told`.

    Statement
        Row i can differ by r_i at most, which is fixed before its label is looked at. With R the sum of r_i and Q that
        of their squares, the mean difference if labels were drawn anew lies within sqrt(2 L Q)/n of that of the rows,
        L = log(2/level) + nats, and within R/n of 0, for all t at once but for beta.

    Not covered
        r_i that depend on labels: of scores that were made from them, or of cases that are drawn anew, too.

    >>> low, high = paired_range((0.02, 0.03), n=10_000, most=500.0, squares=500.0, level=0.01, nats=10.0)
    >>> round(low, 4), round(high, 4)
    (0.0076, 0.0424)
    """
    width = SAFE * sqrt(2 * (log(2 / level) + nats) * squares) / n
    reach = SAFE * most / n
    return max(-reach, told[0] - width), min(reach, told[1] + width)


def _peeled_uppers(cells: Interval, *, n: int, draws: int, x: float, length: float) -> Interval:
    """Return the upper ends for two cells whose upper ends are given: both at once, which takes half the time."""
    least = np.array([kl_upper(b, x / draws) for b in cells])
    most = np.array([kl_upper(float(d), length / n) for d in least])
    ends = np.linspace(0, x, PIECES + 1)
    reach = _kl_uppers(np.array(cells)[:, None], ends[1:] / draws)
    weight = np.exp(-ends[:-1]) - np.exp(-ends[1:])

    def beyond(d: Numbers) -> Numbers:
        """Return the logarithm of the integral over what it may be: it falls in d."""
        # On each piece the first factor is integrated exactly, the second is largest at its end: an upper sum.
        exponents = -n * _kl_below(reach, d[:, None])
        largest = np.maximum(exponents.max(axis=1), -LEAST)
        found: Numbers = largest + np.log(np.exp(exponents - largest[:, None]) @ weight * SAFE + TINY) + length
        return found

    def root(found: Numbers) -> Numbers:
        return np.sqrt(np.maximum(0.0, length - found))  # nearly linear in d, so that a chord meets the end at once

    low, high, below = least, most, beyond(most)
    at_low, at_high = root(beyond(least)), root(below)
    open_ = (least < most) & (below <= 0)  # else two steps are all that is proved
    proved = np.zeros(2, np.bool_)
    for step in range(60):  # both ends close in; what is proved stays proved
        near = CLOSE * (high - least)
        if not (open_ & (high - low > near + 1e-12)).any():
            break
        chord = low + (high - low) * (sqrt(length) - at_low) / np.maximum(at_high - at_low, TINY)
        beside = chord + np.where(proved, -near / 2, near / 2)  # on the other side of it
        halves = step > STEPS and step % 2  # a chord can be slow where the other end never moves
        middle = (low + high) / 2 if halves else chord if step < STEPS // 2 else beside
        middle = np.clip(middle, low + near / 4, high - near / 4)
        found = beyond(middle)
        proved = found <= 0
        moved, kept = open_ & proved, open_ & ~proved
        high, at_high = np.where(moved, middle, high), np.where(moved, root(found), at_high)
        low, at_low = np.where(kept, middle, low), np.where(kept, root(found), at_low)
    return float(high[0]), float(high[1])


def _kl_uppers(b: Numbers, bounds: Numbers) -> Numbers:
    """Return upper bounds of klU(b, .): kl(b || d) is convex in d, so Newton's steps from above stay above."""
    # From kl(b || d) >= (d - b)^2 / 2v for every v that x (1 - x) does not exceed on [b, d]: a quarter, 1 - b, and d;
    # and from leaving b log(1/d) out of it.
    zeros = np.maximum(1 - b, 1e-12)
    far = 1 - zeros * np.exp(-(bounds - b * np.log(np.maximum(b, 1e-300))) / zeros)
    near = b + np.minimum(np.sqrt(2 * np.minimum(0.25, zeros) * bounds), bounds + np.sqrt(bounds * (bounds + 2 * b)))
    least = np.nextafter(b, 1.0)
    d = np.clip(np.minimum(near, far), least, 1 - 1e-15)
    for _ in range(4):
        step = (_kl_below(b, d) - bounds) * d * (1 - d) / (d - b)
        d = np.clip(d - step, least, 1 - 1e-15)
    rounded = SAFE * d + 8 * KL_ROUNDING * d * (1 - d) / np.maximum(d - b, 1e-300)
    return np.where((far < 1) & (b < 1 - 1e-12), np.minimum(rounded, 1.0), 1.0)


def _kl_below(s: Numbers, d: Numbers) -> Numbers:
    """Return a lower bound of kl(s || d) where s < d, and 0 elsewhere; LEAST where it is infinite."""
    with np.errstate(divide="ignore"):
        above = np.maximum(np.log1p(-d), -LEAST)  # d = 1: what is more than this counts as this
    ones = s * np.log(np.maximum(s, 1e-300) / d)
    zeros = (1 - s) * (np.log1p(-np.minimum(s, 1 - 1e-16)) - above)
    return np.where(s < d, np.maximum(0.0, ones + zeros - KL_ROUNDING), 0.0)
