"""The paper's sizes: each demand of the proofs is met at the size, and not far below it."""

from dataclasses import replace
from math import exp, log

import pytest

from holdfast.errors import InvalidArgument
from holdfast.guarantees.mathematics import privacy, sizes

GOALS = [(0.1, 0.05, 1000), (0.5, 0.2, 1), (0.02, 0.001, 10**6), (0.9, 0.5, 10**9)]


def a1_fails(size: sizes.Size, n: int, demand: privacy.Demand, *, replacement: bool) -> float:
    """Union bound on the chance that one of its answers strays by more than alpha_S, a query."""
    half = demand.alpha_on_sample / 2
    sampling = 2 * exp(-2 * size.ell * half**2)
    invert = privacy.epsilon_with_replacement if replacement else privacy.epsilon_without_replacement
    noise = 1 / (size.ell * invert(size.epsilon_per_query, ell=size.ell, n=n))
    return sampling + exp(-half / noise)


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize(("alpha", "beta", "k"), GOALS)
def test_a1_meets_the_transfer_theorem(alpha, beta, k, replacement):
    size = sizes.a1(alpha, beta, k, replacement=replacement)
    demand = privacy.statistical_queries(alpha, beta)
    steps = size.epsilon_per_query * 2 * (2 * k * log(1 / demand.delta)) ** 0.5
    assert steps == pytest.approx(demand.epsilon)
    assert k * a1_fails(size, size.n, demand, replacement=replacement) <= demand.beta_on_sample * (1 + 1e-9)
    if size.n > 2 * size.ell:
        fewer = int(size.n * 0.99)
        assert k * a1_fails(size, fewer, demand, replacement=replacement) > demand.beta_on_sample


def test_a1_takes_a_price_from_elsewhere():
    cheaper = sizes.a1(0.1, 0.05, 1000, epsilon0=privacy.zcdp_step(0.1 / 64, 0.1 * 0.05 / 32, k=1000))
    assert cheaper.n < sizes.a1(0.1, 0.05, 1000).n


@pytest.mark.parametrize(("alpha", "beta", "k"), GOALS)
def test_a3_meets_the_transfer_theorem(alpha, beta, k):
    size = sizes.a3(alpha, beta, k)
    demand = privacy.sampling_queries(alpha, beta, k=k)
    assert size.ell == 1
    assert size.n >= demand.least_rows
    assert size.mass <= demand.alpha_on_sample
    assert privacy.coin_epsilon(size.mass, n=size.n) <= size.epsilon_per_query * (1 + 1e-9)


def test_averages_of_flips_ask_for_all_their_flips():
    size = sizes.cq_by_scq(0.1, 0.05, 100)
    assert size == replace(sizes.a3(0.05, 0.025, 100 * size.ell), ell=size.ell)
    assert 2 * exp(-size.ell * 0.1**2 / 2) <= 0.05 / 200


@pytest.mark.parametrize("size", [sizes.a1, sizes.a3, sizes.cq_by_scq, sizes.scq_by_cq])
@pytest.mark.parametrize("wrong", [(0.0, 0.1, 5), (0.1, 1.0, 5), (0.1, 0.1, 0), (1.5, 0.1, 5)])
def test_nonsense_is_refused(size, wrong):
    with pytest.raises(InvalidArgument, match="must be"):
        size(*wrong)


@pytest.mark.parametrize("size", [sizes.a1, sizes.a3, sizes.cq_by_scq, sizes.scq_by_cq])
def test_more_is_dearer(size):
    plain = size(0.1, 0.05, 1000).n
    assert size(0.09, 0.05, 1000).n > plain
    assert size(0.1, 0.04, 1000).n >= plain
    assert size(0.1, 0.05, 1200).n > plain
