"""Claimed against real, as the questions go by: in the terminal, and as a PNG where matplotlib is installed."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from holdfast.lab.demo.discovery import REAL, Look
from holdfast.lab.demo.story import Dig

HEIGHT, GAP = 15, 3
NAIVE, HOLDFAST, PALE, GREY = "#d55e00", "#0072b2", "#a6cbe3", "#555555"


def terminal(dig: Dig) -> str:
    """Draw with characters: ● naive claim, ┃ holdfast's interval, ─ what is real."""
    looks = [*dig.holdfast, *dig.naive]
    bottom, top = min(look.low for look in looks), max(look.high for look in looks)

    def line(share: float) -> int:
        return round((HEIGHT - 1) * (top - share) / (top - bottom))

    columns = [_column(ours, theirs, line) for ours, theirs in zip(dig.holdfast, dig.naive, strict=True)]
    lines = []
    for height in range(HEIGHT):
        share = top - (top - bottom) * height / (HEIGHT - 1)
        label = f"{100 * share:5.1f} % " if height % 2 == 0 or height == line(REAL) else " " * 8
        if height == line(REAL):
            label = f"{100 * REAL:5.1f} % "
        background = "─" if height == line(REAL) else " "
        lines.append(label + (GAP * background).join(column.get(height, background) for column in columns).rstrip())
    first, last = dig.holdfast[0].asked, dig.holdfast[-1].asked
    width = (GAP + 1) * (len(columns) - 1) + 1
    axis = f"{first:,}".ljust(width // 2) + f"{last:,} questions".rjust(width - width // 2)
    key = "● what naive means claim   ┃ holdfast's interval   ─ what is real"
    return "\n".join([*lines, " " * 8 + axis, " " * 8 + key])


def _column(ours: Look, theirs: Look, line: Callable[[float], int]) -> dict[int, str]:
    column = dict.fromkeys(range(line(ours.high), line(ours.low) + 1), "┃")
    column[line(theirs.value)] = "●"
    return column


def png(dig: Dig, path: Path, *, rows: int) -> bool:
    """Draw the picture; False if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        return False
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), dpi=150, layout="constrained")
    asked = [look.asked for look in dig.naive]
    ours, theirs = dig.holdfast, dig.naive
    middle = [100 * look.value for look in ours]
    below = [100 * (look.value - look.low) for look in ours]
    above = [100 * (look.high - look.value) for look in ours]
    axes.axhline(100 * REAL, color=GREY, linewidth=1, linestyle="--", zorder=2.5)
    axes.errorbar(asked, middle, yerr=(below, above), fmt="o", markersize=5, color=HOLDFAST, ecolor=PALE, elinewidth=5)
    axes.plot(asked, [100 * look.value for look in theirs], color=NAIVE, linewidth=2.2, marker=".", zorder=3)
    last = theirs[-1]
    claim = f"naive mean: {100 * last.value:.1f} % ± {100 * (last.high - last.value):.1f}"
    distance = f"{dig.error_bars:.0f} error bars from what is real"
    axes.set_ylim(top=100 * max(look.high for look in (*ours, *theirs)) + 0.9)
    axes.text(0.99, 0.98, f"{claim}, {distance}", color=NAIVE, ha="right", va="top", transform=axes.transAxes)
    told = f"holdfast: {dig.misses} of {dig.questions:,} intervals miss what is real"
    axes.text(0.99, 0.02, told, color=HOLDFAST, ha="right", va="bottom", transform=axes.transAxes)
    axes.text(1.01, 100 * REAL, "real", color=GREY, va="center", transform=axes.get_yaxis_transform())
    axes.set_xlabel(f"questions asked about the same {rows:,} rows")
    axes.set_ylabel("rows the rule gets right, %")
    axes.set_title("A rule dug out of pure noise: claimed and real", loc="left")
    axes.xaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:,.0f}"))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
    pyplot.close(figure)
    return True
