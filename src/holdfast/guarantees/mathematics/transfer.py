"""From private and accurate on the sample to accurate on the population."""

from dataclasses import dataclass
from math import expm1, log

from holdfast import check
from holdfast.guarantees.mathematics.theorem import theorem


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
