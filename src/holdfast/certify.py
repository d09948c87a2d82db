"""From what was released to what may be believed: intervals for the population, by the plan's guarantee."""

from dataclasses import dataclass
from functools import lru_cache
from math import inf, log, sqrt

from holdfast.errors import InvalidArgument
from holdfast.guarantees import information, posterior
from holdfast.guarantees.mathematics.concentration import (
    clopper_pearson,
    clopper_pearson_width,
    hoeffding_radius,
    laplace_radius,
)
from holdfast.guarantees.mathematics.debias import debias
from holdfast.mechanisms.base import Release, clip
from holdfast.mechanisms.laplace import Laplace
from holdfast.mechanisms.noise import grid_bits
from holdfast.planning import Plan
from holdfast.queries.query import Query

Interval = tuple[float, float]
ROUNDING = 2.0**-53
MOST_DRAWS = 10**15  # rows that one answer can read: more would not make it better


@dataclass(frozen=True)
class Estimate:
    """A released value and its interval, in the units of the question."""

    value: float
    low: float
    high: float


def certify(plan: Plan, query: Query, release: Release, *, draws: int) -> list[Estimate]:
    """Return one estimate for a share, mean or group, one for each outcome of a histogram."""
    if query.kind == "histogram":
        pairs = [
            (_outcome_value(plan, query, release, outcome, draws), _outcome(plan, query, release, outcome, draws))
            for outcome in range(query.outcomes)
        ]
    elif query.kind == "group":
        pairs = [(release.answer, _group(plan, release, draws))]
    else:
        pairs = [(release.answer, _outcome(plan, query, release, 1, draws))]
    return [_in_units(query, value, interval) for value, interval in pairs]


def accuracy_at(plan: Plan, draws: int) -> float:
    """Return the accuracy of one answer from this many draws under the plan (coins only)."""
    must_vary(plan)
    width = float(clopper_pearson_width(draws, _level(plan)))
    return min(1.0, width / (1 - 2 * plan.flip_probability) + _population_step(plan))


def must_vary(plan: Plan) -> None:
    """Refuse plans whose answers all read the same number of rows."""
    if plan.mechanism != "coins" or plan.guarantee not in ("posterior", "information"):
        raise InvalidArgument(
            f"One answer cannot be made wider or narrower under {plan.guarantee} with {plan.mechanism};"
            " plan with coins, or ask at the plan's own accuracy."
        )


def draws_for(plan: Plan, accuracy: float) -> int | None:
    """Return the fewest draws whose accuracy is at most this, or None if no number of draws is enough."""
    if accuracy_at(plan, MOST_DRAWS) > accuracy:
        return None
    low, high = 1, MOST_DRAWS
    while low < high:
        middle = (low + high) // 2
        if accuracy_at(plan, middle) <= accuracy:
            high = middle
        else:
            low = middle + 1
    return low


def _population_step(plan: Plan) -> float:
    """Return the part of the error that no number of draws removes."""
    if plan.guarantee == "posterior":
        return sqrt(_chi(plan)) / 2
    return sqrt(plan.constants["radius"] / (2 * plan.rows))


def _chi(plan: Plan) -> float:
    return plan.constants.get("chi", inf)  # left out of the ledger's JSON when infinite: no promise, [0, 1]


def _level(plan: Plan) -> float:
    """Return the two-sided level of one exact interval."""
    return _level_of(plan.guarantee, plan.constants.get("beta2", 0.0), plan.confidence, plan.statements)


@lru_cache(maxsize=1024)
def _level_of(guarantee: str, beta2: float, confidence: float, statements: int) -> float:
    if guarantee == "posterior":
        return posterior.level(beta2, k=statements)
    if guarantee == "information":
        return beta2 / statements
    return (1 - confidence) / statements  # split: the rows are fresh, nothing else can fail


def _outcome(plan: Plan, query: Query, release: Release, outcome: int, draws: int) -> Interval:
    """Return the interval for one outcome's share (or for the mean), in [0, 1]."""
    if plan.mechanism == "coins":
        count = release.counts[outcome]
        if plan.guarantee == "posterior":
            return posterior.outcome_interval(
                count,
                draws,
                outcomes=query.outcomes,
                mass=plan.flip_probability,
                chi=_chi(plan),
                level=_level(plan),
            )
        if plan.guarantee == "information":
            return information.outcome_interval(
                count,
                draws,
                outcomes=query.outcomes,
                n=plan.rows,
                r=plan.constants["radius"],
                level=_level(plan),
            )
        if draws != plan.rows_per_query or plan.sampling_queries:
            return 0.0, 1.0  # the paper promises the expectation of a flip, and averages of its own length
        return _around(count / draws, plan.accuracy)
    part = outcome if query.kind == "histogram" else 0
    if plan.guarantee == "split":
        if query.kind == "mean":
            return information.widen((release.answer,) * 2, n=draws, r=log(2 / _level(plan)))
        return clopper_pearson(release.counts[part], draws, _level(plan))
    if plan.guarantee == "information":
        return information.widen(_noisy_on_sample(plan, release, part), n=plan.rows, r=plan.constants["radius"])
    return _around(release.values[part], plan.accuracy + _grid(plan))


def _group(plan: Plan, release: Release, draws: int) -> Interval:
    """Return the interval for the mean of a group, in [0, 1]."""
    if plan.mechanism == "coins":
        included, ones = release.counts[1] + release.counts[2], release.counts[2]
        if plan.guarantee == "posterior":
            return posterior.group_interval(
                ones, included, draws, mass=plan.flip_probability, chi=_chi(plan), level=_level(plan)
            )
        return information.group_interval(
            ones, included, draws, n=plan.rows, r=plan.constants["radius"], level=_level(plan)
        )
    if plan.guarantee == "split":
        return information.widen((release.answer,) * 2, n=release.counts[0], r=log(2 / _level(plan)))
    if plan.guarantee == "information":
        share, total = (_noisy_on_sample(plan, release, part) for part in range(2))
        return information.widen(_ratio(total, share), n=plan.rows * share[0], r=plan.constants["radius"])
    share, total = (_around(value, plan.accuracy + _grid(plan)) for value in release.values)
    return _ratio(total, share)


def _noisy_on_sample(plan: Plan, release: Release, part: int) -> Interval:
    """Return the interval for a statistic on the sample from its noisy answer: noise and subsampling."""
    level = plan.constants["beta2"] / (2 * plan.statements)
    mechanism = Laplace(draws=plan.rows_per_query, epsilon=plan.constants["epsilon"])
    radius = laplace_radius(mechanism.scale(plan.rows), level) + _grid(plan)
    if plan.rows_per_query < plan.rows:
        radius += hoeffding_radius(plan.rows_per_query, level)
    return _around(release.values[part], radius)


def _grid(plan: Plan) -> float:
    """Return how far the noise's grid can move a mean."""
    return 2.0 ** -grid_bits(plan.rows_per_query)


def _around(value: float, radius: float) -> Interval:
    return clip(value - radius), clip(value + radius)


def _ratio(total: Interval, share: Interval) -> Interval:
    """Return the range of total/share; [0, 1] when the share may be zero."""
    if share[0] <= 0:
        return 0.0, 1.0
    return clip(total[0] / share[1]), clip(total[1] / share[0])


def _outcome_value(plan: Plan, query: Query, release: Release, outcome: int, draws: int) -> float:
    if plan.mechanism != "coins":
        return clip(release.values[outcome])
    share = release.counts[outcome] / draws
    return debias(share, outcomes=query.outcomes, mass=plan.flip_probability)


def _in_units(query: Query, value: float, interval: Interval) -> Estimate:
    """Stretch from [0, 1] to the declared bounds, ends rounded outwards; the value is never outside its interval."""
    low, high = query.bounds
    if (low, high) == (0.0, 1.0):
        first, last, middle = *interval, value
    else:
        slack = 4 * ROUNDING * max(abs(low), abs(high))  # three roundings, each relative to numbers no larger
        first, last = (low + (high - low) * x for x in interval)
        first, last = max(low, first - slack), min(high, last + slack)
        middle = low + (high - low) * value
    return Estimate(min(max(middle, first), last), first, last)
