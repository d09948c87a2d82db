"""What a release reveals about the rows, in nats and in the common currency: draws with two outcomes.

Valid for any mixture of coins, sampling counting queries and noisy answers whose cost is stated in such draws.
"""

from holdfast import check
from holdfast.guarantees.mathematics import theorem


@theorem("here (one draw)", proof="information.md")
def draw_cost(outcomes: int) -> int:
    """Return the cost, in draws with two outcomes, of one draw with this many outcomes.

    Statement
        One row drawn uniformly with replacement, c outcomes, each with extra mass 1/n: for every sample of
        n >= max(c, 2) rows, sum_i KL(P || P_-i) <= (c-1)/(2n). A coin is a draw with two outcomes.

    Not covered
        Draws without replacement; extra mass below 1/n.

    >>> draw_cost(2), draw_cost(3)
    (1, 2)
    """
    check.whole(2, outcomes=outcomes)
    return outcomes - 1


@theorem("here; Laplace by pure-DP, Gaussian by leave-one-out", proof="information.md")
def private_cost(eps0: float, *, n: int) -> float:
    """Return the cost, in draws with two outcomes, of a pure eps0-DP answer.

    Statement
        An eps0-DP answer tells at most n eps0^2/2 nats, as much as n^2 eps0^2 coins.

    Not covered
        (epsilon, delta)-DP answers.

    >>> round(private_cost(0.001, n=1000), 6)
    1.0
    """
    check.positive(eps0=eps0, n=n)
    return n * n * eps0 * eps0


@theorem("here; reference law with mean ((n-1) mean_-i + 1/2)/n", proof="information.md")
def gaussian_cost(sigma: float, *, n: int) -> float:
    """Return the cost, in draws with two outcomes, of the full mean plus Gaussian noise of deviation sigma.

    Statement
        At most 1/(8 sigma^2 n) nats, as much as 1/(4 sigma^2) coins.

    Not covered
        Means of values outside [0, 1] (rescale sigma).

    >>> gaussian_cost(0.005, n=10**6)
    10000.0
    """
    check.positive(sigma=sigma, n=n)
    return 1 / (4 * sigma * sigma)


@theorem("here (a whole adaptive session)", proof="information.md")
def session_nats(charge: float, *, n: int) -> float:
    """Return a bound on what the transcript tells about the rows.

    Statement
        I(S; transcript) <= B/(2n) nats for B coins, however adaptively they were chosen; only the cap B is fixed
        in advance.

    Not covered
        Anything that reaches the analyst besides the released outcomes.

    >>> session_nats(2_000, n=1_000)
    1.0
    """
    check.positive(n=n)
    return charge / (2 * n)
