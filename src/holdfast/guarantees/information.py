"""The information guarantee: a session of B flips tells at most B/(2n) nats about the rows.

Every draw gets extra mass 1/n per outcome. Valid for any mixture of coins, sampling counting queries and noisy
answers whose cost is stated in flips.
"""

from math import exp, log, log1p, sqrt

from holdfast import check
from holdfast.guarantees.mathematics import debias as coins
from holdfast.guarantees.mathematics.concentration import SAFE, clopper_pearson, kl, kl_lower, kl_upper
from holdfast.guarantees.mathematics.theorem import theorem

Interval = tuple[float, float]


@theorem("here (one draw)", proof="information.md")
def draw_cost(outcomes: int) -> int:
    """Return the cost, in flips, of one draw with this many outcomes.

    Statement
        One row drawn uniformly with replacement, c outcomes, each with extra mass 1/n: for every sample of
        n >= max(c, 2) rows, sum_i KL(P || P_-i) <= (c-1)/(2n). A flip is a draw with two outcomes.

    Not covered
        Draws without replacement; extra mass below 1/n.

    >>> draw_cost(2), draw_cost(3)
    (1, 2)
    """
    check.whole(2, outcomes=outcomes)
    return outcomes - 1


@theorem("here; Laplace by pure-DP, Gaussian by leave-one-out", proof="information.md")
def private_cost(eps0: float, *, n: int) -> float:
    """Return the cost, in flips, of a pure eps0-DP answer.

    Statement
        An eps0-DP answer tells at most n eps0^2/2 nats, as much as n^2 eps0^2 flips.

    Not covered
        (epsilon, delta)-DP answers.

    >>> round(private_cost(0.001, n=1000), 6)
    1.0
    """
    check.positive(eps0=eps0, n=n)
    return n * n * eps0 * eps0


@theorem("here; reference law with mean ((n-1) mean_-i + 1/2)/n", proof="information.md")
def gaussian_cost(sigma: float, *, n: int) -> float:
    """Return the cost, in flips, of the full mean plus Gaussian noise of deviation sigma.

    Statement
        At most 1/(8 sigma^2 n) nats, as much as 1/(4 sigma^2) flips: the price of ell = 1/(4 sigma^2) coins.

    Not covered
        Means of values outside [0, 1] (rescale sigma).

    >>> gaussian_cost(0.005, n=10**6)
    10000.0
    """
    check.positive(sigma=sigma, n=n)
    return 1 / (4 * sigma * sigma)


@theorem("here (a whole adaptive session)", proof="information.md")
def session_nats(flips: float, *, n: int) -> float:
    """Return a bound on what the transcript tells about the rows.

    Statement
        I(S; transcript) <= B/(2n) nats for B flips, however adaptively they were chosen; only the cap B is fixed
        in advance.

    Not covered
        Anything that reaches the analyst beside the released outcomes.

    >>> session_nats(2_000, n=1_000)
    1.0
    """
    check.positive(n=n)
    return flips / (2 * n)


@theorem("here (simultaneous, adaptive)", proof="information.md")
def radius(flips: float, *, n: int, k: int, beta: float) -> float:
    """Return r: with probability >= 1 - beta, n kl(q(S) || q(D)) <= r for all of k adaptive queries.

    Statement
        r is the smallest number >= log(2k/beta) with kl(beta || 2k e^-r) >= B/(2n).

    Not covered
        More than k queries or B flips.

    >>> radius(1e8, n=10**6, k=10**4, beta=0.04) <= simple_radius(1e8, n=10**6, k=10**4, beta=0.04)
    True
    """
    check.whole(k=k)
    check.probability(beta=beta)
    nats = session_nats(flips, n=n)
    # In y = r - log(2k): f(y) = kl(beta || e^-y) is convex and increasing above log(1/beta). Newton from above.
    y = simple = simple_radius(flips, n=n, k=k, beta=beta) - log(2 * k)
    for _ in range(60):
        x = exp(-y)
        slope = (beta - x) / (1 - x)
        step = (_divergence_from(beta, y) - nats) / slope if slope > 0 else 0.0
        if not step > 1e-13 * y:
            break
        y = max(y - step, log(1 / beta))
    return min(simple, y * SAFE) + log(2 * k)


def _divergence_from(beta: float, y: float) -> float:
    """kl(beta || e^-y), where e^-y may be far too small for a floating-point number."""
    x = exp(-y)
    if x > beta / 1000:
        return kl(beta, x)
    return beta * (y + log(beta)) + (1 - beta) * (log1p(-beta) - log1p(-x))


def simple_radius(flips: float, *, n: int, k: int, beta: float) -> float:
    """Return the simple sufficient form (B/(2n) + h(beta))/beta + log(2k), h the binary entropy."""
    entropy = -beta * log(beta) - (1 - beta) * log(1 - beta)
    return (session_nats(flips, n=n) + entropy) / beta * SAFE + log(2 * k)


def widen(sample: Interval, *, n: float, r: float) -> Interval:
    """Return every d with n kl(s || d) <= r for some s in the interval: from the sample to the population."""
    if n <= 0:
        return 0.0, 1.0
    return kl_lower(sample[0], r / n), kl_upper(sample[1], r / n)


@theorem("here", proof="information.md")
def outcome_interval(count: int, ell: int, *, outcomes: int, n: int, r: float, level: float) -> Interval:
    """Return the interval for the share of one outcome: a share, a mean, one bar of a histogram.

    Statement
        Exact binomial interval of the coins at `level` = beta2/k, both ends debiased with mass 1/n, then all d with
        n kl(s || d) <= r.

    Not covered
        A number of draws decided after the first coin; n < 10 outcomes (refused: mostly noise).
    """
    ends = clopper_pearson(count, ell, level)
    low, high = (coins.debias(p, outcomes=outcomes, mass=1 / n) for p in ends)
    return widen((low, high), n=n, r=r)


@theorem("here (conditional means)", proof="information.md")
def group_interval(ones: int, included: int, ell: int, *, n: int, r: float, level: float) -> Interval:
    """Return the interval for the mean of a group, from draws with outcomes excluded, 0 and 1.

    Statement
        Exact intervals for the included share (from ell) and for the ones among the included (from their number),
        each at `level`; the range of the group mean over both; then widened with n_eff = n g, g the lower end of the
        group's share on the sample. Two of the k intervals, two flips a draw.

    Not covered
        A group that may be empty on the sample: the answer is [0, 1].

    >>> group_interval(0, 0, 100, n=1000, r=10.0, level=0.01)
    (0.0, 1.0)
    """
    mass = 1 / n
    pi = clopper_pearson(included, ell, level)
    theta = clopper_pearson(ones, included, level)
    if pi[0] <= 2 * mass:
        return 0.0, 1.0
    sample = coins.group_mean_range(theta, pi, mass=mass)
    return widen(sample, n=n * coins.group_share(pi[0], mass=mass), r=r)


@theorem("here (sampling counting queries)", proof="information.md")
def sampling_accuracy(*, n: int, r: float) -> float:
    """Return alpha with |E[M(q)] - q(D)| <= alpha for every flip of the session.

    Statement
        A flip has expectation within 1/n of q(S), and q(S) is within sqrt(r/(2n)) of q(D).

    Not covered
        What a single 0 or 1 says: only its expectation is promised.

    >>> round(sampling_accuracy(n=10**6, r=200.0), 6)
    0.010001
    """
    check.positive(n=n)
    return 1 / n + sqrt(r / (2 * n))
