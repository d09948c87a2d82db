"""All figures: colors that color-blind readers can tell apart, markers that survive black-and-white print.

A figure is a row of panels; a panel is some series over one pair of axes. Experiments and attacks choose what to draw;
this module decides how it looks. The colors are those of Okabe and Ito.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.questions.plot import need_matplotlib

if TYPE_CHECKING:
    from holdfast.lab.attack import AttackReport
    from holdfast.lab.demo import Discovery, SecondAct

BLUE, VERMILLION, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
ORANGE, SKY, BLACK, GRAY = "#e69f00", "#56b4e9", "#000000", "#777777"
PALE_BLUE = "#a6cbe3"

# Color and marker of each contender, the same in every figure.
STYLES: Mapping[str, tuple[str, str]] = {
    "coins": (BLUE, "o"),
    "session": (BLUE, "o"),
    "a1": (SKY, "D"),
    "gaussian": (GREEN, "s"),
    "laplace": (PURPLE, "v"),
    "naive": (VERMILLION, "^"),
    "split": (ORANGE, "P"),
    "thresholdout": (BLACK, "X"),
    "guide": (GRAY, ""),
}
_OTHERS = ((GRAY, "<"), (BLACK, ">"), (PURPLE, "*"), (GREEN, "h"))
LINES = {1.0: ":", 3.0: "--"}  # line styles of slopes; other slopes are dash-dotted
PANEL_INCHES = (4.3, 3.5)
DPI = 110
MOST_ACROSS = 4  # panels in a row
LEGEND_POINTS = 8.5
MOST_TICKS, NARROW_RANGE = 7, 100  # a log axis with few points in two decades: ticks at the points


@dataclass(frozen=True)
class Series:
    """Points to be joined (or not), with an optional band or bars from `low` to `high`."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    style: str = ""  # which entry of STYLES to use; by default, the label's
    line: str = "-"
    marked: bool = True
    bars: bool = False  # draw low to high as bars instead of a band


def guide(label: str, series: Series, slope: float) -> Series:
    """Return a line of this slope on log axes, just below the largest value of a series.

    Dotted if the slope is 1 or -1, dashed if it is 3 or -3, dash-dotted otherwise.
    """
    top = max(series.y)
    at = series.x[list(series.y).index(top)]
    ends = [min(series.x), max(series.x)]
    heights = [0.7 * top * (x / at) ** slope for x in ends]
    return Series(label, ends, heights, style="guide", line=LINES.get(abs(slope), "-."), marked=False)


@dataclass(frozen=True)
class Level:
    """A labeled horizontal or vertical line."""

    label: str
    at: float
    vertical: bool = False


@dataclass(frozen=True)
class Chart:
    """One pair of axes. With `categories` the x of a point is the number of its category."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    levels: Sequence[Level] = ()
    log: str = ""  # "x", "y" or "xy"
    categories: Sequence[str] = field(default=())


def draw(panels: Sequence[Chart], path: Path, *, same_height: bool = False) -> None:
    """Draw panels side by side with one legend beneath, and write a PNG."""
    pyplot = _pyplot()
    settings: Any = {
        "font.size": 9,
        "axes.titlesize": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#e6e6e6",
        "grid.linewidth": 0.6,
        "lines.markersize": 4.5,
        "lines.linewidth": 1.5,
    }
    across = min(len(panels), MOST_ACROSS)
    down = -(-len(panels) // across)
    width, height = PANEL_INCHES[0] * across, PANEL_INCHES[1] * down
    with pyplot.rc_context(settings):
        figure, grid = pyplot.subplots(down, across, figsize=(width, height), squeeze=False, sharey=same_height)
        names: dict[str, Any] = {}
        frames = list(grid.flat)
        for axes, panel in zip(frames, panels, strict=False):
            _fill(axes, panel, names)
        for axes, panel in zip(frames, panels, strict=False):  # only after all are filled, since they may share heights
            if "y" not in panel.log:
                axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        for axes in frames[len(panels) :]:
            axes.set_visible(False)
        columns = _columns(list(names), width)
        lines = -(-len(names) // max(1, columns))
        figure.tight_layout(rect=(0, (0.1 + 0.2 * lines) / height, 1, 1))
        figure.legend(
            list(names.values()), list(names), loc="lower center", ncols=columns, frameon=False, fontsize=LEGEND_POINTS
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=DPI, metadata={"Software": None})
        pyplot.close(figure)


def _pyplot() -> Any:
    need_matplotlib()
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot


def _columns(labels: Sequence[str], width: float) -> int:
    """Return how many columns a legend of these labels may have in a given width in inches.

    >>> _columns(["coins", "naive"], 4.0), _columns(["a label that is rather long"] * 3, 4.0)
    (2, 1)
    """
    longest = max(map(len, labels), default=1)
    return max(1, min(len(labels), int(width / (0.6 + 0.0085 * LEGEND_POINTS * longest))))


def _fill(axes: Any, panel: Chart, names: dict[str, Any]) -> None:
    for number, series in enumerate(panel.series):
        color, marker = STYLES.get(series.style or series.label, _OTHERS[number % len(_OTHERS)])
        style = {"color": color, "marker": marker if series.marked else "", "linestyle": series.line}
        (handle,) = axes.plot(series.x, series.y, **style, zorder=3)
        if series.low is not None and series.high is not None:
            if panel.categories or series.bars:
                axes.vlines(series.x, series.low, series.high, color=color, linewidth=1.5, zorder=2)
            else:
                axes.fill_between(series.x, series.low, series.high, color=color, alpha=0.18, linewidth=0)
        names.setdefault(series.label, handle)
    for axis, letter in ((axes.xaxis, "x"), (axes.yaxis, "y")):
        if letter in panel.log:
            _logarithmic(axes, axis, letter, panel)
    for level in panel.levels:
        _level(axes, level)
    if panel.categories:
        turned = max(map(len, panel.categories)) * len(panel.categories) > 40
        axes.set_xticks(
            range(len(panel.categories)),
            panel.categories,
            rotation=35 if turned else 0,
            ha="right" if turned else "center",
            rotation_mode="anchor" if turned else None,
        )
        axes.set_xlim(-0.6, len(panel.categories) - 0.4)
    axes.set_title(panel.title, loc="left")
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)


def _logarithmic(axes: Any, axis: Any, letter: str, panel: Chart) -> None:
    """Use a log scale; where it spans less than two decades, put ticks at the points, or at 1, 2 and 5."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set(**{f"{letter}scale": "log"})
    axis.set_minor_formatter(NullFormatter())
    first, last = axis.get_view_interval()
    if letter == "y" and last / first < NARROW_RANGE:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(StrMethodFormatter("{x:,.4g}"))
    points = sorted({x for series in panel.series for x in series.x})
    if letter == "x" and 1 < len(points) <= MOST_TICKS and points[-1] / points[0] < NARROW_RANGE:
        axis.set_ticks(points, [f"{point:,.4g}" for point in points])
        axis.set_ticks([], minor=True)


def _level(axes: Any, level: Level) -> None:
    if level.vertical:
        axes.axvline(level.at, color=GRAY, linewidth=1, linestyle=(0, (4, 3)))
        axes.text(
            level.at, 0.02, f" {level.label}", color=GRAY, fontsize=8, transform=axes.get_xaxis_transform(), va="bottom"
        )
    else:
        axes.axhline(level.at, color=GRAY, linewidth=1, linestyle=(0, (4, 3)))
        axes.text(
            0.01, level.at, level.label, color=GRAY, fontsize=8, transform=axes.get_yaxis_transform(),
            ha="left", va="bottom",
        )  # fmt: skip


def attack_picture(reports: Sequence["AttackReport"], path: Path) -> None:
    """Draw claimed, actual and promised error as the questions go by: one panel for each mechanism."""
    panels = []
    for report in reports:
        points = report.checkpoints()
        asked, actual = [point.asked for point in points], [point.actual for point in points]
        worst, claimed = [point.worst for point in points], [point.claimed for point in points]
        series = [
            Series("actual error (median; band up to the worst world)", asked, actual, actual, worst, style="naive"),
            Series("claimed by the intervals", asked, claimed, style="coins"),
        ]
        levels = [] if report.promised is None else [Level("promised for all answers", report.promised)]
        title = f"{report.mechanism}, attacked by {report.analyst}"
        panels.append(Chart(title, "questions asked", "error", series, levels, log="x"))
    draw(panels, path, same_height=True)


def demo_picture(discovery: "Discovery", path: Path, *, rows: int) -> None:
    """Draw what plain means claim and what holdfast answers, question after question."""
    ours, naive = discovery.holdfast, discovery.naive
    figure, axes = _beside_truth(100 * discovery.real)
    asked = [look.asked for look in naive]
    middle = [100 * look.value for look in ours]
    below = [100 * (look.value - look.low) for look in ours]
    above = [100 * (look.high - look.value) for look in ours]
    axes.errorbar(asked, middle, yerr=(below, above), fmt="o", markersize=5, color=BLUE, ecolor=PALE_BLUE, elinewidth=5)
    axes.plot(asked, [100 * look.value for look in naive], color=VERMILLION, linewidth=2.2, marker=".", zorder=3)
    last = naive[-1]
    claim = f"plain mean: {100 * last.value:.1f}% ± {100 * (last.high - last.value):.1f}"
    distance = f"{discovery.error_bars:.0f} error bars from the truth"
    lowest, highest = min(look.low for look in (*ours, *naive)), max(look.high for look in (*ours, *naive))
    axes.set_ylim(100 * lowest - 0.9, 100 * highest + 0.9)  # room for a line of text
    axes.text(0.99, 0.98, f"{claim}, {distance}", color=VERMILLION, ha="right", va="top", transform=axes.transAxes)
    axes.set_xlabel(f"questions asked about the same {rows:,} rows")
    axes.set_ylabel("rows the rule gets right, %")
    axes.set_title("A rule found in pure noise: what is claimed, and the truth", loc="left")
    _write(figure, axes, path, f"holdfast: {discovery.misses} of {discovery.questions:,} intervals miss the truth")


def second_act_picture(act: "SecondAct", path: Path) -> None:
    """Draw what the open half claims, what an overused holdout confirms, and what checks say."""
    figure, axes = _beside_truth(50)
    signals = [look.signals for look in act.looks]
    middle = [50 * (look.low + look.high) for look in act.looks]
    reach = [50 * (look.high - look.low) for look in act.looks]
    axes.errorbar(signals, middle, yerr=reach, fmt="none", ecolor=PALE_BLUE, elinewidth=9)
    for label, color, shares in (
        ("claimed by the\nopen half", ORANGE, [100 * look.open_half for look in act.looks]),
        ("confirmed by a\nusual holdout", VERMILLION, [100 * look.holdout for look in act.looks]),
    ):
        axes.plot(signals, shares, color=color, linewidth=2.2, marker="o", zorder=3)
        axes.text(1.01, shares[-1], label, color=color, va="center", transform=axes.get_yaxis_transform())
    axes.set_ylim(bottom=100 * min(look.low for look in act.looks) - 1.5)
    axes.set_ylim(top=100 * max(max(look.open_half, look.high) for look in act.looks) + 1.5)
    axes.set_xlabel(f"signals looked at, in one half of {act.rows:,} rows, and asked about on the other")
    axes.set_ylabel("rows the vote gets right, %")
    axes.set_title("A rule found in the open half: what confirms it, and what does not", loc="left")
    _write(figure, axes, path, f"holdfast: {act.missed} of the intervals of {act.checks:,} checks miss the truth")


def _beside_truth(truth: float) -> tuple[Any, Any]:
    """Return a figure with one pair of axes, and a line at the truth, in percent."""
    figure, axes = _pyplot().subplots(figsize=(8, 4.5), dpi=150, layout="constrained")
    axes.axhline(truth, color=GRAY, linewidth=1, linestyle="--", zorder=2.5)
    axes.text(1.01, truth, "truth", color=GRAY, va="center", transform=axes.get_yaxis_transform())
    return figure, axes


def _write(figure: Any, axes: Any, path: Path, missed: str) -> None:
    from matplotlib.ticker import StrMethodFormatter

    axes.text(0.99, 0.02, missed, color=BLUE, ha="right", va="bottom", transform=axes.transAxes)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
    _pyplot().close(figure)
