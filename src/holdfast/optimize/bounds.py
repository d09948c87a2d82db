"""From a settled run to what is promised of the population's excess loss, under the plan that stands."""

from dataclasses import dataclass
from math import inf

from holdfast.guarantees import information
from holdfast.guarantees.mathematics import descent as theorems
from holdfast.optimize.boosting import Choice
from holdfast.optimize.descent import Descent
from holdfast.planning import Plan


@dataclass(frozen=True)
class Excess:
    """`likely` holds together with all intervals of the session, for whatever loss was chosen; None: no such promise.

    `expected` is an expectation over the whole session, and needs a loss range R that was fixed in advance. If answers
    decided how large the loss is (its bounds, its domain), only the excess divided by R has expectation at most
    `expected`/R: a loss may be made large exactly when the coins misled.
    """

    expected: float | None
    likely: float | None


def excess(plan: Plan, descent: Descent, *, runs: int = 1, choice: Choice | None = None, regret: float = inf) -> Excess:
    """Return both bounds; neither is larger than the largest excess there can be.

    `regret` is that of the chosen run, once there was one.
    """
    ranges, domain = descent.objective.ranges, descent.domain
    apart = difference_range(descent)
    most = apart + descent.objective.l2 / 2 * domain.norm**2
    expected = likely = None
    if plan.mechanism != "coins" or plan.flip_probability >= 1 / plan.rows:
        behind = 0.0 if choice is None else choice.loss()
        nats = information.session_nats(plan.flips, n=plan.rows)
        step = theorems.information_step(apart, nats=nats, n=plan.rows)
        expected = min(most, descent.expected_excess() + behind + step)
    if plan.guarantee in ("posterior", "information"):
        beta = plan.constants["beta2"] / plan.statements
        on_rows = _on_rows(descent, beta, runs, choice, regret)
        if on_rows < inf and plan.guarantee == "posterior":
            chi = plan.constants.get("chi", inf)
            bound = theorems.posterior_excess(on_rows, R=apart, lipschitz=ranges.lipschitz, H=ranges.curvature, chi=chi)
            likely = min(most, bound)
        elif on_rows < inf:
            likely = min(most, on_rows + theorems.radius_step(apart, r=plan.constants["radius"], n=plan.rows))
    return Excess(expected, likely)


def difference_range(descent: Descent) -> float:
    """Return R: the most by which a row's loss can differ between two points of the domain, l2 left out."""
    low, high = descent.objective.ranges.values
    return min(high - low, descent.objective.ranges.lipschitz * descent.domain.diameter)


def _on_rows(descent: Descent, beta: float, runs: int, choice: Choice | None, regret: float) -> float:
    """Return a bound on the excess on the rows that fails with probability at most beta; inf if there is none."""
    sure = descent.likely_excess(beta / runs, regret)  # for every run, hence for the chosen one
    if choice is None or 2.0**-runs > beta / 2:
        return sure
    boosted = 2 * descent.expected_excess() + choice.loss(beta / 2)
    # The posterior theorem needs a bound on conditional expectations, which boosting by chance does not give.
    return boosted if sure == inf else sure
