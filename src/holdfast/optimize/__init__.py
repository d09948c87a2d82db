"""Minimize convex losses over the population: descent whose gradients are statistical queries."""

from holdfast.optimize import losses
from holdfast.optimize.boosting import runs_for
from holdfast.optimize.planner import DescentPlan, Problem, plan_descent

__all__ = ["DescentPlan", "Problem", "losses", "plan_descent", "runs_for"]
