"""What a run is made of, as the plan that stands allows it: mechanism, coins a coordinate, how runs are compared."""

from math import ceil, sqrt

from holdfast import check
from holdfast.errors import PlanConflict
from holdfast.optimize.boosting import SELECTORS, Choice, CoinChoice, Contest, ExponentialChoice
from holdfast.optimize.gradient import CoinGradient, LaplaceGradient
from holdfast.optimize.objective import Objective
from holdfast.planning import Plan

ROWS_A_STEP = 1_000  # enough that a step is mostly rows, not overhead
LEAST_ITERATIONS = 100
LAPLACE_ITERATIONS = 100


def mechanism_of(plan: Plan, wanted: str | None) -> str:
    """Return "coins" or "laplace"; refuse what the plan's guarantee does not cover."""
    if wanted is not None:
        check.one_of("mechanism", wanted, ("coins", "laplace"))
    if plan.mechanism not in ("coins", "laplace"):
        raise PlanConflict(
            "This session answers from fresh rows, each used once, and a fit would use them up. Open one with"
            " guarantee='posterior' (and a ledger of its own) to fit models; few questions are planned by splitting"
            " unless you say so.",
            guarantee=plan.guarantee,
        )
    if wanted is None or wanted == plan.mechanism:
        return plan.mechanism
    if plan.guarantee != "information":
        raise PlanConflict(
            f"This session stands on the {plan.guarantee} guarantee with {plan.mechanism}, which does not cover"
            f" {wanted}; leave mechanism out, or plan with guarantee='information'.",
            guarantee=plan.guarantee,
        )
    return wanted


def _mass(plan: Plan) -> float:
    return plan.flip_probability if plan.mechanism == "coins" else 1 / plan.rows


def _epsilon(plan: Plan, draws: int) -> float:
    """Return the plan's epsilon, or the one at which an answer costs as many flips as `draws` coins."""
    if plan.mechanism == "laplace":
        return plan.constants["epsilon"]
    return sqrt(draws) / plan.rows * (1 - 1e-12)  # so that rounding never charges one flip more


def oracle_of(plan: Plan, objective: Objective, kind: str, ell: int | None) -> CoinGradient | LaplaceGradient:
    """Return where gradients come from; by default some ROWS_A_STEP rows a step, if LEAST_ITERATIONS remain."""
    if ell is not None:
        check.whole(rows_per_coordinate=ell)
    if kind == "coins":
        if ell is None:
            wide = ceil(ROWS_A_STEP / len(objective.names))
            ell = max(1, min(wide, plan.rows_per_query // LEAST_ITERATIONS))
        return CoinGradient(objective, ell, _mass(plan))
    ell = plan.rows_per_query if ell is None else ell
    check.at_most("rows", plan.rows, rows_per_coordinate=ell)
    return LaplaceGradient(objective, ell, _epsilon(plan, ell), plan.rows)


def default_iterations(plan: Plan, oracle: CoinGradient | LaplaceGradient, kind: str) -> int:
    """Return the default: as many coins a coordinate as one ordinary answer of the plan takes."""
    return max(1, plan.rows_per_query // oracle.ell) if kind == "coins" else LAPLACE_ITERATIONS


def default_selector(kind: str) -> str:
    """Return how runs are compared where the caller does not say."""
    return "coins" if kind == "coins" else "exponential"


def choice_of(plan: Plan, contest: Contest, runs: int, select: str) -> Choice:
    """Return how runs are compared; the exponential mechanism needs a plan that covers it."""
    check.one_of("select", select, SELECTORS)
    if select == "coins":
        mechanism_of(plan, "coins")
        return CoinChoice(contest, runs, plan.rows_per_query, _mass(plan))
    mechanism_of(plan, "laplace")
    draws = min(plan.rows, plan.rows_per_query)
    return ExponentialChoice(contest, runs, draws, _epsilon(plan, draws), plan.rows)
