"""dp-accounting as oracle: no step the planner may take composes to more than it was allowed.

The oracle's privacy loss distributions are discretized pessimistically, so it may overestimate a little; the claims
below leave more room than that. The exact distribution of k randomized responses is computed as well: randomized
response is the worst pure-DP mechanism, adaptive or not.
"""

from math import exp, log

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.stats import binom

from holdfast.guarantees.mathematics.privacy import advanced_step, coin_epsilon, zcdp_epsilon, zcdp_step

GOALS = [(0.5, 1e-6, 100), (0.1, 1e-9, 1000), (1.0, 1e-3, 10), (0.9, 0.4, 30), (0.002, 1e-5, 5000)]


def exact_delta(eps0: float, epsilon: float, k: int) -> float:
    """The least delta of k randomized responses with eps0 each, at this epsilon (Kairouz, Oh and Viswanath)."""
    lies = np.arange(k + 1)
    loss = (k - 2 * lies) * eps0
    law = binom.pmf(lies, k, 1 / (1 + exp(eps0)))
    return float(np.sum(law * np.maximum(0.0, -np.expm1(epsilon - loss))))


def oracle_epsilon(eps0: float, delta: float, k: int, *, laplace: bool) -> float:
    step = min(1e-3, eps0 / 50)
    if laplace:
        one = pld.from_laplace_mechanism(1 / eps0, value_discretization_interval=step)
    else:
        one = pld.from_randomized_response(2 / (1 + exp(eps0)), 2, value_discretization_interval=step)
    return float(one.self_compose(k).get_epsilon_for_delta(delta))


@pytest.mark.parametrize("laplace", [True, False])
@pytest.mark.parametrize("step", [advanced_step, zcdp_step])
@pytest.mark.parametrize(("epsilon", "delta", "k"), GOALS)
def test_the_steps_stay_within_their_allowance(step, epsilon, delta, k, laplace):
    assert oracle_epsilon(step(epsilon, delta, k=k), delta, k, laplace=laplace) <= epsilon


@pytest.mark.parametrize("step", [advanced_step, zcdp_step])
@pytest.mark.parametrize("k", [1, 2, 3, 10, 100, 10_000])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("delta", [0.5, 0.1, 1e-3, 1e-9])
def test_no_pure_mechanism_breaks_the_allowance(step, epsilon, delta, k):
    assert exact_delta(step(epsilon, delta, k=k), epsilon, k) <= delta


@pytest.mark.parametrize(("eps0", "delta", "k"), [(0.01, 1e-6, 100), (0.2, 1e-4, 50), (0.5, 1e-2, 40)])
def test_the_total_is_an_upper_bound_and_not_a_wild_one(eps0, delta, k):
    true = oracle_epsilon(eps0, delta, k, laplace=False)
    assert true <= zcdp_epsilon(eps0, delta, k=k) <= 2 * true


def test_the_oracle_and_the_exact_law_agree():
    eps0, delta, k = 0.1, 1e-4, 64
    epsilon = oracle_epsilon(eps0, delta, k, laplace=False)
    assert exact_delta(eps0, epsilon, k) <= delta <= exact_delta(eps0, epsilon * 0.98, k)


def test_a_step_twice_as_large_is_caught():
    """The oracle can say no: without the factor the paper's lemma hides, the allowance is broken."""
    epsilon, delta, k = 0.5, 1e-6, 100
    assert oracle_epsilon(3 * advanced_step(epsilon, delta, k=k), delta, k, laplace=False) > epsilon
    assert oracle_epsilon(1.6 * zcdp_step(epsilon, delta, k=k), delta, k, laplace=False) > epsilon


def test_a_coin_costs_what_randomized_response_costs():
    """On one row the sampled coin is randomized response; on n rows the worst pair of neighbors is 0 and 1 of n."""
    assert coin_epsilon(0.2, n=1) == pytest.approx(log(0.8 / 0.2))
