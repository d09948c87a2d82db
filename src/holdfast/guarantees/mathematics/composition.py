"""What many private steps cost together, however adaptively they are chosen."""

from math import log, sqrt

from holdfast import check
from holdfast.guarantees.mathematics.theorem import theorem


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
