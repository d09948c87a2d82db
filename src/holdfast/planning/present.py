"""How a plan looks: a table that a newcomer understands, in a terminal and in a notebook."""

from __future__ import annotations

from html import escape
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.planning.planner import Alternative, Plan

HEADINGS = ("guarantee", "mechanism", "accuracy", "rows", "questions", "rows read each", "")


def error(x: float | None) -> str:
    """Write an accuracy rounded up: a promise is never rounded in its own favour."""
    return "-" if x is None else f"±{min(1.0, ceil(x * 10_000) / 10_000):.4f}"


def sentence(plan: Plan) -> str:
    """Say the plan in one sentence."""
    percent = f"{100 * plan.confidence:g} %"
    what = f"{plan.queries:,} questions" if plan.queries else f"{plan.sampling_queries:,} flips"
    if plan.vacuous:
        return (
            f"{plan.rows:,} rows are too few for {what}: answers would be within {error(plan.accuracy)},"
            " which says nothing. Ask fewer questions, or bring more rows."
        )
    extra = f" and {plan.sampling_queries:,} flips" if plan.queries and plan.sampling_queries else ""
    held = "every answer" if plan.queries else "the expectation of every flip"
    return (
        f"{plan.rows:,} rows can answer {what}{extra}, each chosen after seeing the earlier answers:"
        f" {held} within {error(plan.accuracy)} of the population, all at once, with probability {percent}."
        f" Each answer reads {plan.rows_per_query:,} random rows."
    )


def _cells(alternative: Alternative) -> tuple[str, ...]:
    def count(x: int | None) -> str:
        return "-" if x is None else f"{x:,}"

    return (
        alternative.guarantee,
        alternative.mechanism,
        error(alternative.accuracy),
        count(alternative.rows),
        count(alternative.queries),
        count(alternative.rows_per_query),
        alternative.note,
    )


def plan_text(plan: Plan) -> str:
    """Return the sentence and the table of every guarantee."""
    table = [HEADINGS, *map(_cells, plan.alternatives)]
    widths = [max(len(row[i]) for row in table) for i in range(len(HEADINGS))]
    lines = []
    for row in table:
        cells = [
            cell.ljust(width) if i < 2 or i == len(row) - 1 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return sentence(plan) + ("\n\n" + "\n".join(lines) if plan.alternatives else "")


def plan_html(plan: Plan) -> str:
    """Return the same for a notebook."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in HEADINGS)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _cells(row)) + "</tr>" for row in plan.alternatives
    )
    return f"<p>{escape(sentence(plan))}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
