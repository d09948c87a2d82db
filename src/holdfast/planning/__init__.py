"""From a goal to numbers: rows per query, flips, and which guarantee to stand on."""

from holdfast.planning.planner import GUARANTEES, MECHANISMS, Alternative, Plan, plan

__all__ = ["GUARANTEES", "MECHANISMS", "Alternative", "Plan", "plan"]
