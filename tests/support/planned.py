"""Plans of every guarantee, each worked out once, and releases whose every number is as expected."""

from functools import lru_cache

from holdfast.guarantees.gaussian import GaussianScans
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.plan import Plan
from holdfast.guarantees.statistic import (
    ExactMeans,
    GroupMean,
    NoisyMeans,
    OneShare,
    OutcomeShares,
    Release,
    Statistic,
    Tally,
)
from holdfast.mechanisms import noisy_means
from holdfast.mechanisms.noisy_means import Laplace
from holdfast.queries.query import Query
from holdfast.questions.estimate import Estimate
from holdfast.session.planning import plan

PAIRS = [
    ("exchange", "coins"),
    ("posterior", "coins"),
    ("gaussian", "gaussian"),
    ("information", "coins"),
    ("information", "laplace"),
    ("dp", "laplace"),
    ("paper", "laplace"),
    ("paper", "coins"),
    ("split", "fresh_rows"),
]


@lru_cache
def planned(guarantee: str, mechanism: str) -> Plan:
    """Return a plan for ten questions that says something: the paper's systems need far more rows."""
    rows = 10**12 if guarantee == "paper" else 10**7
    return plan(rows=rows, queries=10, guarantee=guarantee, mechanism=mechanism, rows_per_query="best", end=True)


def covered(guarantee: Guarantee, statistic: Statistic) -> bool:
    """Whether the guarantee answers this: the paper's averaged coins answer shares and means only."""
    coins_of_the_paper = guarantee.name == "paper" and guarantee.terms.mechanism == "coins"
    return not (coins_of_the_paper and statistic.outcomes > 2)


def expected_release(guarantee: Guarantee, statistic: Statistic, share: float, member: float = 0.5) -> Release:
    """Return the release whose every number is as expected, if `share` say one and `member` are in the group."""
    ell = guarantee.terms.rows_per_query
    if isinstance(statistic, OutcomeShares):
        law = [share, *[(1 - share) / (statistic.outcomes - 1)] * (statistic.outcomes - 1)]
        means = tuple(law)
    elif isinstance(statistic, GroupMean):
        law = [1 - member, member * (1 - share), member * share]
        means = (member, member * share)
    else:
        law, means = [1 - share, share], (share,)
    if guarantee.terms.mechanism == "coins":
        mass = guarantee.coin_mass
        counts = [round(ell * ((1 - len(law) * mass) * p + mass)) for p in law]
        counts[counts.index(max(counts))] += ell - sum(counts)
        values = statistic.from_counts(counts, ell, mass=mass)
        return Tally(values, ell, tuple(counts), statistic.reported)
    values = statistic.from_means(means)
    if isinstance(guarantee, GaussianScans):
        return NoisyMeans(values, ell, means, guarantee.terms.sigma, 2.0 ** -noisy_means.grid_bits(ell))
    if guarantee.terms.mechanism == "laplace":
        scale = Laplace(draws=ell, epsilon=guarantee.epsilon_for(ell)).scale(guarantee.terms.rows)
        return NoisyMeans(values, ell, means, scale, 2.0 ** -noisy_means.grid_bits(ell))
    counted = {OneShare: 1, OutcomeShares: len(means), GroupMean: 1}.get(type(statistic), 0)
    return ExactMeans(values, ell, means, tuple(round(m * ell) if i < counted else None for i, m in enumerate(means)))


def certified(guarantee: Guarantee, query: Query, release: Release) -> list[Estimate]:
    """Return the intervals of a release in the question's units, as a session does it."""
    intervals = query.statistic.certify(release, guarantee)
    return [Estimate.within(query.bounds, v, i) for v, i in zip(release.values, intervals, strict=True)]
