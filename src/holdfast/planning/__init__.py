"""From a goal to numbers: rows per query, flips, and which guarantee to stand on."""

from holdfast.planning.plan import Alternative, Plan, plan

__all__ = ["Alternative", "Plan", "plan"]
