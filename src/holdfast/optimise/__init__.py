"""Minimise convex losses over the population: descent whose gradients are statistical queries."""

from holdfast.optimise import losses
from holdfast.optimise.boosting import runs_for
from holdfast.optimise.planner import DescentPlan, Problem, plan_descent

__all__ = ["DescentPlan", "Problem", "losses", "plan_descent", "runs_for"]
