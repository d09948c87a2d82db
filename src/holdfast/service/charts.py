"""Small SVG charts. Colors come from the style sheet, so they follow dark mode; labels say what they show."""

from collections.abc import Mapping, Sequence
from math import ceil, floor
from typing import Any

from markupsafe import Markup

from holdfast.answer import TOO_FEW, pixels, write_end
from holdfast.guarantees.plan import write_margin

WIDTH, HEIGHT, EDGE = 640, 220, 34


def number(x: float | None) -> str:
    """Format a number with at most five digits; None: it cannot be told."""
    if x is None:
        return TOO_FEW
    return f"{x:,.0f}" if abs(x) >= 10_000 else f"{x:.4g}"


def low_end(x: float) -> str:
    """Format the lower end of an interval, rounded down."""
    return f"{floor(x):,}" if abs(x) >= 10_000 else write_end(x, 4, up=False)


def high_end(x: float) -> str:
    """Format the upper end of an interval, rounded up."""
    return f"{ceil(x):,}" if abs(x) >= 10_000 else write_end(x, 4, up=True)


def interval_bar(answer: Mapping[str, Any]) -> Markup:
    """Draw an interval inside its declared bounds."""
    first, last = answer["bounds"]
    span = (last - first) or 1.0
    low, high = (300 * (answer[name] - first) / span for name in ("low", "high"))
    mark = Markup("")
    if answer["value"] is not None:
        place = 300 * (answer["value"] - first) / span - 1
        mark = Markup('<rect class="value" x="{:.2f}" y="0" width="2" height="16"/>').format(place)
    label = f"{number(answer['value'])}, between {low_end(answer['low'])} and {high_end(answer['high'])}"
    return Markup(
        '<svg class="bar" viewBox="-2 0 304 16" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<rect class="track" x="0" y="7" width="300" height="2"/>'
        '<rect class="range" x="{}" y="3" width="{}" height="10" rx="2"/>{}</svg>'
    ).format(label, *pixels(low, max(high, low + 1.5), 2), mark)


def gauge(left: int, total: int) -> Markup:
    """Draw the share of the budget that is left."""
    share = left / total if total else 0.0
    return Markup(
        '<svg class="gauge" viewBox="0 0 300 14" preserveAspectRatio="none" role="img"'
        ' aria-label="{:,} of {:,} answers left"><rect class="track" width="300" height="14" rx="3"/>'
        '<rect class="{}" width="{:.2f}" height="14" rx="3"/></svg>'
    ).format(left, total, "left" if share > 0.1 else "left low", 300 * share)


def answers_over_time(points: Sequence[Mapping[str, Any]]) -> Markup:
    """Draw every interval in order, as a share of its declared bounds."""
    if not points:
        return Markup('<p class="empty">No answers yet.</p>')
    step = (WIDTH - 2 * EDGE) / len(points)

    def y(share: float) -> float:
        return HEIGHT - EDGE - share * (HEIGHT - 2 * EDGE)

    marks = Markup("").join(
        Markup(
            '<g><title>#{p[seq]}: {p[question]} = {} [{}, {}]</title><line class="range" x1="{x:.1f}" x2="{x:.1f}"'
            ' y1="{low:.1f}" y2="{high:.1f}"/>{mark}</g>'
        ).format(
            *(number(point["value"]), low_end(point["low"]), high_end(point["high"])),
            low=ceil(10 * y(low)) / 10,  # downwards is positive, and ends are rounded outwards
            high=floor(10 * y(high)) / 10,
            mark=_dot(x, value if value is None else y(value)),
            p=point,
            x=x,
        )
        for place, point in enumerate(points)
        for x, (value, low, high) in [(EDGE + step * (place + 0.5), point["shares"])]
    )
    grid = Markup("").join(
        Markup('<line class="grid" x1="{}" x2="{}" y1="{y:.1f}" y2="{y:.1f}"/><text x="4" y="{:.1f}">{}</text>').format(
            EDGE, WIDTH - EDGE, y(share) + 4, label, y=y(share)
        )
        for share, label in ((0.0, "low"), (0.5, ""), (1.0, "high"))
    )
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="Answers {first} to {last} with their intervals,'
        ' as shares of their declared bounds; the table below has the numbers">{}{}<text x="{}" y="{y}">#{first}</text>'
        '<text x="{}" y="{y}" text-anchor="end">#{last}</text></svg>'
    ).format(
        *(WIDTH, HEIGHT, grid, marks, EDGE, WIDTH - EDGE), y=HEIGHT - 10, first=points[0]["seq"], last=points[-1]["seq"]
    )


def _dot(x: float, y: float | None) -> Markup:
    """Draw a value, if there is one."""
    if y is None:
        return Markup("")
    return Markup('<circle class="value" cx="{:.1f}" cy="{:.1f}" r="2.5"/>').format(x, y)


def margins(alternatives: Sequence[Mapping[str, Any]]) -> Markup:
    """Draw the margin of every guarantee that reaches the goal, as bars: shorter is better."""
    reached = [one for one in alternatives if one["margin"] is not None]
    if not reached:
        return Markup("")
    bars = Markup("").join(
        Markup(
            '<text x="0" y="{t}">{one[guarantee]} {one[mechanism]}</text><rect class="{}" x="190" y="{}"'
            ' width="{width:.1f}" height="14" rx="2"/><text x="{:.1f}" y="{t}">{}</text>'
        ).format(
            "chosen" if one["note"] == "this plan" else "other",
            24 * place + 4,
            196 + width,
            write_margin(one["margin"]),
            one=one,
            width=width,
            t=24 * place + 16,
        )
        for place, one in enumerate(reached)
        for width in [max(1.0, 350 * min(1.0, one["margin"]))]
    )
    return Markup(
        '<svg class="chart bars" viewBox="0 0 640 {}" role="img" aria-label="Margin of every guarantee;'
        ' the table has the numbers">{}</svg>'
    ).format(24 * len(reached) + 8, bars)
