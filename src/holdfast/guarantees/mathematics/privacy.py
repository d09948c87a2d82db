"""What a release reveals about the rows: in nats, and as differential privacy.

Nats are counted in a common currency, draws with two outcomes (coins), for any mixture of coins, sampling counting
queries and noisy answers. Of privacy there is what it is worth on all rows where only some are drawn, what many private
steps cost together, and how far private and accurate answers can be from the population.
"""

from dataclasses import dataclass
from math import expm1, log, log1p, sqrt

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


@theorem("Balle, Barthe and Gaboardi 2018, Theorem 9", proof="amplification.md")
def without_replacement(epsilon: float, *, ell: int, n: int) -> float:
    """Return the epsilon, on n rows, of an epsilon-DP step run on ell of them.

    Statement
        M is epsilon-DP on ell rows (replace one row), and I is a uniform ell-subset of {1..n}, independent of M's
        coins. Then x -> M(x_I) is epsilon'-DP on n rows, with
            epsilon' = log(1 + (ell/n) (e^epsilon - 1)).

    Not covered
        Add-or-remove-one neighbors; subsets whose membership is revealed.

    >>> round(without_replacement(1.0, ell=10, n=1_000), 6)
    0.017037
    >>> without_replacement(1.0, ell=1_000, n=1_000)  # no subsampling, no gain
    1.0
    """
    check.positive(epsilon=epsilon, ell=ell)
    check.at_most("n", n, ell=ell)
    return log1p(ell / n * expm1(epsilon))


def epsilon_without_replacement(amplified: float, *, ell: int, n: int) -> float:
    """Invert `without_replacement`: what may be spent on the drawn rows.

    >>> round(epsilon_without_replacement(0.017036863236176657, ell=10, n=1_000), 9)
    1.0
    """
    check.positive(amplified=amplified, ell=ell)
    check.at_most("n", n, ell=ell)
    return log1p(n / ell * expm1(amplified))


@theorem("here; the printed form (Bun et al. 2015) fails for ell >= 2", proof="amplification.md")
def with_replacement(epsilon: float, *, ell: int, n: int) -> float:
    """Return the epsilon, on n rows, of an epsilon-DP step run on ell draws with replacement.

    Statement
        M is epsilon-DP on ell rows (replace one). Drawing ell rows independently and uniformly from n and running
        M on them is epsilon'-DP on n rows, with
            epsilon' = ell log(1 + (e^epsilon - 1)/n),
        and no smaller number holds for every M. At n = 1 it is ell * epsilon: the one row is drawn ell times.

    Not covered
        Add-or-remove-one neighbors; draws that are revealed.

    >>> round(with_replacement(0.5, ell=3, n=1), 12)
    1.5
    """
    check.positive(epsilon=epsilon, ell=ell)
    check.whole(n=n)
    return ell * log1p(expm1(epsilon) / n)


def epsilon_with_replacement(amplified: float, *, ell: int, n: int) -> float:
    """Invert `with_replacement`: what may be spent on the drawn rows.

    >>> round(epsilon_with_replacement(1.5, ell=3, n=1), 12)
    0.5
    """
    check.positive(amplified=amplified, ell=ell)
    check.whole(n=n)
    return log1p(n * expm1(amplified / ell))


@theorem("Fish, Reyzin and Rubinstein, lem:sampling, with its exact constant", proof="amplification.md")
def coin_epsilon(mass: float, *, n: int) -> float:
    """Return the exact epsilon, on n rows, of one sampled coin turned over with probability `mass`.

    Statement
        Draw one of n rows uniformly, release q(row) in {0, 1}, turned over with probability a. The largest log-ratio
        over neighboring samples and both answers is log(1 + (1-2a)/(a n)), reached at a count of 0 or n.

    Not covered
        a = 0, which protects nothing; a > 1/2, which says the opposite.

    >>> round(coin_epsilon(0.25, n=1), 12) == round(log1p(2), 12)
    True
    """
    check.positive(mass=mass, n=n)
    check.at_most("1/2", 0.5, mass=mass)
    return log1p((1 - 2 * mass) / (mass * n))


@theorem("Dwork, Rothblum and Vadhan 2010 (lemma:composition)", proof="composition.md")
def advanced_step(epsilon: float, delta: float, *, k: int) -> float:
    """Return the epsilon each of k steps may spend, by the paper's lemma.

    Statement
        0 < epsilon <= 1, delta <= 1/2. k adaptive steps, each eps0-DP with
            eps0 = epsilon / (2 sqrt(2k log(1/delta))),
        are together (epsilon, delta)-DP.

    Not covered
        epsilon above 1 or delta above 1/2; it loses a factor of about two against `zcdp_step`.

    >>> advanced_step(0.5, 1e-6, k=100) < zcdp_step(0.5, 1e-6, k=100)
    True
    """
    check.positive(epsilon=epsilon, k=k)
    check.probability(delta=delta)
    check.at_most("1", 1.0, epsilon=epsilon)
    check.at_most("1/2", 0.5, delta=delta)
    return epsilon / (2 * sqrt(2 * k * log(1 / delta)))


@theorem("Bun and Steinke 2016, Propositions 1.3, 1.4 and Lemma 2.3", proof="composition.md")
def zcdp_epsilon(eps0: float, delta: float, *, k: int) -> float:
    """Return the epsilon of k adaptive eps0-DP steps together, at this delta.

    Statement
        An eps0-DP step is (eps0^2/2)-zCDP, zCDP adds up, and rho-zCDP is (rho + 2 sqrt(rho log(1/delta)), delta)-DP.

    Not covered
        Steps that are only approximately private.

    >>> round(zcdp_epsilon(0.01, 1e-6, k=100), 4)
    0.5307
    """
    check.positive(eps0=eps0, k=k)
    check.probability(delta=delta)
    rho = k * eps0 * eps0 / 2
    return rho + 2 * sqrt(rho * log(1 / delta))


def zcdp_step(epsilon: float, delta: float, *, k: int) -> float:
    """Invert `zcdp_epsilon`: what each of k steps may spend.

    sqrt(rho) = sqrt(L + epsilon) - sqrt(L), L = log(1/delta), written without the canceling difference.
    """
    check.positive(epsilon=epsilon, k=k)
    check.probability(delta=delta)
    nats = log(1 / delta)
    return epsilon / (sqrt(nats + epsilon) + sqrt(nats)) * sqrt(2 / k)


@dataclass(frozen=True)
class Demand:
    """What a mechanism must satisfy on the sample for a transfer theorem to apply."""

    epsilon: float
    delta: float
    alpha_on_sample: float
    beta_on_sample: float
    least_rows: float = 1.0


@theorem("Bassily et al. 2016 (thm:sq_transfer)", proof="transfer.md")
def statistical_queries(alpha: float, beta: float) -> Demand:
    """Return what makes k adaptive statistical queries (alpha, beta)-accurate on the population.

    Statement
        A mechanism that is (alpha/64, alpha beta/32)-DP and (alpha/8, alpha beta/16)-accurate on the sample is
        (alpha, beta)-accurate on the population.

    Not covered
        Sampling counting queries. Using (alpha, beta) itself on the sample, as the proof of thm:lsq does.

    >>> statistical_queries(0.1, 0.05).alpha_on_sample
    0.0125
    """
    check.probability(alpha=alpha, beta=beta)
    return Demand(alpha / 64, alpha * beta / 32, alpha / 8, alpha * beta / 16)


@theorem("Fish, Reyzin and Rubinstein, thm:transfer, repaired", proof="transfer.md")
def sampling_queries(alpha: float, beta: float, *, k: int) -> Demand:
    """Return what makes k adaptive sampling counting queries (alpha, beta)-accurate on the population.

    Statement
        A mechanism that is (alpha/64, alpha beta/16)-DP, whose answers have expectation within alpha/2 of q(S), and
        n >= 1024 log(2k/beta)/alpha^2, is (alpha, beta)-accurate on the population.

    Not covered
        Answers other than 0 and 1. The printed log(k/beta): its proof bounds E|.| by a lemma about |E[.]|; both
        signs of every query must enter the monitor.
    """
    check.probability(alpha=alpha, beta=beta)
    check.whole(k=k)
    return Demand(alpha / 64, alpha * beta / 16, alpha / 2, 0.0, 1024 * log(2 * k / beta) / alpha**2)


@theorem("Fish, Reyzin and Rubinstein, prop:transfer_in_exp, repaired", proof="transfer.md")
def in_expectation(epsilon: float, delta: float) -> float:
    """Return a bound on |E[q(S) - q(D)]| for a query chosen by an (epsilon, delta)-DP interaction.

    Statement
        |E[q_i(S)] - E[q_i(D)]| <= e^epsilon - 1 + delta for every round i, the expectation over sample, mechanism
        and analyst. With (alpha/8, alpha/4)-DP this is at most alpha/2 for alpha <= 1.

    Not covered
        E|q_i(S) - q_i(D)| (the absolute value inside), and expectations conditioned on a prefix of the
        transcript: given a prefix the rows are no longer independent draws from D.

    >>> round(in_expectation(0.1 / 8, 0.1 / 4), 6)
    0.037578
    """
    check.positive(epsilon=epsilon)
    check.number(delta=delta)
    return expm1(epsilon) + delta


@theorem("Jung et al. 2020, Theorem 3.1 with its Section 4 form", proof="transfer.md")
def jung(
    alpha_on_sample: float, beta_on_sample: float, epsilon: float, delta: float, *, c: float, d: float
) -> tuple[float, float]:
    """Return (alpha, beta) on the population for a private mechanism that is accurate on the sample.

    Statement
        (epsilon, delta)-DP and (a, b)-accurate on S for k adaptive statistical queries: for all d > 0 and 0 < c <= 1
            (a + e^epsilon - 1 + c + 2d,  b/c + delta/d)-accurate on the population.

    Not covered
        Queries outside [0, 1] (rescale them).

    >>> alpha, beta = jung(0.01, 1e-6, 0.01, 1e-8, c=0.01, d=0.01)
    >>> round(alpha, 6), round(beta, 9)
    (0.05005, 0.000101)
    """
    check.positive(epsilon=epsilon, c=c, d=d)
    check.at_most("1", 1, c=c)
    return alpha_on_sample + expm1(epsilon) + c + 2 * d, beta_on_sample / c + delta / d
