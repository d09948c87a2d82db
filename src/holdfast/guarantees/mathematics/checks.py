"""What a check reveals: a statistic of all rows is computed, and only the cell that it falls into is released.

Everything the analyst chooses is a function of the cells so far. So the questions that *could* be asked are fixed
before any row is looked at, one for every string of responses, and a union bound over strings pays for adaptivity. Each
string pays by its weight: strings in which nearly every guess held are few, and pay little.
"""

from math import ceil, exp, lgamma, log, log1p, pi, sqrt
from statistics import NormalDist

import numpy as np

from holdfast import check
from holdfast.guarantees.mathematics import theorem
from holdfast.guarantees.mathematics.concentration import SAFE, kl_range, kl_upper

PIECES = 192  # pieces of the integral in `sampled_range`; more of them change only the fourth digit
STEPS = 60  # most steps of a search, which usually takes three
CLOSE = 2e-4  # precision of a searched end, relative to its distance from the cell's end; the error is outward
SUMMED = 1 + 1e-9  # bounds the rounding of the sum of the pieces: each is a difference of two close numbers
TINY = 1e-300  # stands for 0 where a logarithm is taken
KL_ROUNDING = 1e-15  # rounding error of kl of two doubles, relative to the sum of its terms' sizes
ROUNDED = 1e-15  # that of a logarithm of a binomial coefficient, relative to the largest of its terms

FAILING = 0.01  # weight of all histories in which something failed; it costs all others 0.01 nats

NORMAL = NormalDist()

Interval = tuple[float, float]
_FRACTIONS = np.arange(1, PIECES + 1) / PIECES


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
    """Return log C(n, j), rounded up: of large logarithms that nearly cancel, few digits are left."""
    whole = lgamma(n + 1)
    return whole - lgamma(j + 1) - lgamma(n - j + 1) + ROUNDED * whole


@theorem("weights of response strings", proof="checks.md")
def guess_nats(t: int, wrong: int, log_cells: float) -> float:
    """Return the description length, in nats, of the responses before the t-th check of a guess.

    Statement
        w(y) = (t+1)/t / [(j+1)(j+2) C(t-1, j) prod G], where j of the t-1 responses in y were not "holds". For each of
        these j, the product has a factor G: the number of responses other than "holds" that the check could have given.
        For every t the weights of all strings sum to 1; nats = -log w.

    Not covered
        A response that is not counted in its check's G ("too few rows" is one).

    Parameters
    ----------
    t
        The number of the check.
    wrong
        How many earlier guesses did not hold.
    log_cells
        The sum of log G over these guesses.
    """
    check.whole(t=t)
    check.whole(0, wrong=wrong)
    check.at_most("the checks before", t - 1, wrong=wrong)
    return SAFE * (_log_count(wrong, t - 1) + _log_binomial(t - 1, wrong) + log_cells)


@theorem("weights of failures, by Laplace's rule of succession", proof="checks.md")
def failure_nats(begun: int, failed: int) -> float:
    """Return the description length, in nats, of which ones failed, at most `failed` of all those `begun`.

    Statement
        A check that was begun gives a response or fails; then nobody sees anything of it but that it failed. Let v be
        1 - d if none failed, and d / [(N+1) C(N, f)] if f of N did, d = FAILING. The weights of all ways in which
        checks can respond and fail before the t-th response sum to at most 1, each being w, that of its responses,
        times v; nats = -log v. N may include checks that are still under way, and may be larger; f may be larger.

    Not covered
        Failures that tell more than that they happened; a check that fails later than it would respond; what the moment
        of a failure tells, as any time that is taken.

    >>> round(failure_nats(100, 0), 4), round(failure_nats(100, 1), 1), round(failure_nats(100, 10), 1)
    (0.0101, 13.8, 39.7)

    Parameters
    ----------
    begun
        The number N of checks that were begun, with the one that is answered now: it could have failed as well.
    failed
        The number of those that have failed, or may have.
    """
    check.whole(begun=begun)
    check.whole(0, failed=failed)
    check.at_most("the others begun", begun - 1, failed=failed)
    if failed == 0:
        return -SAFE * log1p(-FAILING)
    return SAFE * (log((begun + 1) / FAILING) + _log_binomial(begun, min(failed, begun // 2)))


@theorem("weights of a ladder", proof="boards.md")
def ladder_nats(t: int, improvements: int, cells: int, steps: float) -> float:
    """Return the description length, in nats, of the responses before the t-th submission to a ladder.

    Statement
        A fixed grid of J cells; every response is "no improvement" or a cell better than all cells released before,
        and the first one is always a cell. A string of t-1 >= 1 responses is described by when it improved and to which
        cells: as a set, or by the first one and how many cells up each later one was, small steps being likelier. With
        m = min(t-1, J) and d_2..d_j the numbers of cells up,
            w(y) = (m+1)/m / [j(j+1) C(t-2, j-1)] * [1/C(J, j) + 1/(J prod d_i (d_i + 1))] / 2,
        and the weights of all strings sum to at most 1. Before the first submission nothing is revealed: 0 nats.

    Not covered
        A grid that is changed, or cells released that are not better.

    >>> ladder_nats(1, 0, 100, 0.0), round(ladder_nats(2, 1, 100, 0.0), 6) == round(log(100), 6)
    (0.0, True)

    Parameters
    ----------
    t
        The number of the submission.
    improvements
        How many earlier ones improved; the first one always does.
    cells
        The number J of cells of the grid.
    steps
        The sum of log d(d+1) over improvements after the first, each by d cells, or a larger number.
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
        [klL(inf cell, L/n), klU(sup cell, L/n)], L = log(2/level) + nats, for all t at once except with probability
        beta.

    Not covered
        Rows that also answered something else; a cell chosen after the scan.

    >>> low, high = full_range((0.2, 0.3), n=10**6, level=0.01, nats=10.0)
    >>> low < 0.2 and 0.3 < high
    True
    """
    return kl_range(cell, n=n, r=log(2 / level) + nats)


@theorem("Differences of groups of rows that are not identical", proof="checks.md")
def two_groups_length(length: float) -> float:
    """Return the exponent that a difference of two groups needs at the same level where a mean needs `length`.

    Statement
        Rows are independent, not identical; two groups share no row and have at least N rows each. The probability that
        (1 + X_A - X_B)/2 is further above (or below) its counterpart in the population than 2N kl = L is at most
        (g e^(L/g) + 1) e^-L, for every whole g. The result is an L for which this is at most e^-length.

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
    x, length = log(2 / sample_level), log(2 / level) + nats
    lower, upper = (_sampled_upper(b, n=n, draws=draws, x=x, length=length) for b in (1 - cell[0], cell[1]))
    return 1 - lower, upper


@theorem("A comparison row by row, by Hoeffding's bound", proof="boards.md")
def paired_range(known_range: Interval, *, n: int, most: float, squares: float, level: float, nats: float) -> Interval:
    """Return how far one submission is ahead of an earlier one, if the mean difference on n rows is in `known_range`.

    Statement
        Gains on row i differ by at most r_i, which is fixed before its label is looked at. With R the sum of r_i and Q
        that of their squares, the mean difference if labels were drawn anew lies within sqrt(2 L Q)/n of that on the
        rows, L = log(2/level) + nats, and within R/n of 0, for all t at once except with probability beta.

    Not covered
        r_i that depend on labels, as for scores that were computed from labels, or if cases are drawn anew, too.

    >>> low, high = paired_range((0.02, 0.03), n=10_000, most=500.0, squares=500.0, level=0.01, nats=10.0)
    >>> round(low, 4), round(high, 4)
    (0.0076, 0.0424)
    """
    width = SAFE * sqrt(2 * (log(2 / level) + nats) * squares) / n
    reach = SAFE * most / n
    return max(-reach, known_range[0] - width), min(reach, known_range[1] + width)


def _sampled_upper(b: float, *, n: int, draws: int, x: float, length: float) -> float:
    """Return an upper end for a cell whose upper end is b: one that is proved, and near the smallest such end."""
    least = kl_upper(b, x / draws)
    if b >= 1 or least >= 1:
        return 1.0
    if _is_sample_alone(b, least, n=n, draws=draws, x=x, length=length):
        return least
    return _peeled_upper(b, least, n=n, draws=draws, x=x, length=length)


def _is_sample_alone(b: float, d: float, *, n: int, draws: int, x: float, length: float) -> bool:
    """Whether d = klU(b, x/draws) is proved without computing the integral, as is usual while guesses hold.

    On its range kl(s || d) is at least (d-s)^2/2v, and d - s(z) is at least s'(x)(x-z), because s is concave. So the
    integrand is bounded by a multiple of a normal density.
    """
    widest = 0.25 if b <= 0.5 <= d else max(b * (1 - b), d * (1 - d))
    spread = sqrt(widest / n) * draws * (d - b) / (d * (1 - d))
    density = spread * sqrt(2 * pi) * NORMAL.cdf(spread)
    return spread**2 / 2 + log(density) + length + 1e-9 <= x


@np.errstate(all="ignore")  # whatever the caller has numpy do about a probability that is next to nothing
def _peeled_upper(b: float, least: float, *, n: int, draws: int, x: float, length: float) -> float:
    most = kl_upper(least, length / n)  # two steps, each of them proved
    if least >= most:
        return most
    # The integral is cut where klU takes even steps from b to its largest value, so that nothing has to be inverted:
    # klU is at most `ones` up to the matching z. The last piece ends where the integral ends.
    ones = b + (least - b) * _FRACTIONS
    zeros = np.maximum(1 - ones, TINY)
    log_ones, log_zeros = np.log(ones), np.log(zeros)
    z = np.zeros(PIECES + 1)
    # draws (kl(b || ones) less its largest rounding error, KL_ROUNDING (2 - log zeros))
    rest = draws * (_entropy(b) - 2 * KL_ROUNDING) - (draws * (1 - b - KL_ROUNDING)) * log_zeros
    np.subtract(rest, (draws * b) * log_ones, out=z[1:])
    z[-1] = x
    tail = np.exp(-np.minimum.accumulate(np.maximum(z, 0.0)[::-1])[::-1])  # increasing, even if rounding disorders z
    weight = tail[:-1] - tail[1:]
    base, weighted = -n * (ones * log_ones + zeros * log_zeros), weight * ones

    def beyond(d: float) -> tuple[float, float]:
        """Return the logarithm of the integral divided by its limit e^-L, which falls in d, and its slope."""
        # On each piece the first factor is integrated exactly, the second is largest at its end: an upper sum. Every
        # product in kl is within four roundings of its value, and the products sum to less than 2 + log 1/(1-d).
        log_d, log_rest = log(d), log(max(1 - d, TINY))  # d = 1: finite, so kl is too small, which is safe
        exponents = base + ones * (n * (log_d - log_rest))
        largest = float(exponents[-1])  # the exponent of the piece next to d
        parts = np.exp(exponents - largest)
        total = float(parts @ weight) * SUMMED + TINY
        mean = float(parts @ weighted) / total
        kl = -n * log_rest - largest - n * KL_ROUNDING * (2 - log_rest)
        return log(total) - kl + length, n * (mean / d - (1 - mean) / max(1 - d, TINY))

    # Begin at the end that a normal approximation gives: of rows and draws together, or of rows after the worst draws.
    more = (n + draws) / n
    apart = sqrt(length * more / draws) if length <= x * more else sqrt(x / draws) + sqrt((length - x) / n)
    low, high = least, most
    d = min(max(least, b + apart * sqrt(2 * least * (1 - least))), most)
    found, slope = beyond(d)
    low, high = (low, d) if found <= 0 else (d, high)
    for step in range(STEPS):  # `high` is always proved
        height = sqrt(max(TINY, length - found))  # nearly linear in d, so a tangent nearly hits the end
        tangent = d + (sqrt(length) - height) * 2 * height / max(TINY, -slope)
        near = CLOSE * (high - b) + 1e-12
        if high - low <= near or (high - max(tangent, least) <= near and found <= 0):
            break
        d = min(max(tangent + near / 2, low + near / 4), high - near / 4) if step % 4 < 3 else (low + high) / 2
        found, slope = beyond(d)
        low, high = (low, d) if found <= 0 else (d, high)
    return high


def _entropy(p: float) -> float:
    """Return p log p + (1 - p) log(1 - p)."""
    return p * log(max(p, TINY)) + (1 - p) * log(max(1 - p, TINY))
