"""Every figure of the project: colours the colour-blind can tell apart, markers that survive black-and-white print.

A figure is a row of panels, a panel some series over one pair of axes. Experiments and the attack lab say what to draw;
how it looks is decided here. The colours are those of Okabe and Ito.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import MissingExtra

if TYPE_CHECKING:
    from holdfast.lab.report import AttackReport

BLUE, VERMILLION, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
ORANGE, SKY, BLACK, GREY = "#e69f00", "#56b4e9", "#000000", "#777777"

# One contender, one look, in every figure.
LOOKS: Mapping[str, tuple[str, str]] = {
    "coins": (BLUE, "o"),
    "session": (BLUE, "o"),
    "a1": (SKY, "D"),
    "gaussian": (GREEN, "s"),
    "laplace": (PURPLE, "v"),
    "naive": (VERMILLION, "^"),
    "split": (ORANGE, "P"),
    "thresholdout": (BLACK, "X"),
}
_OTHERS = ((GREY, "<"), (BLACK, ">"), (PURPLE, "*"), (GREEN, "h"))
PANEL = (4.3, 3.5)  # inches
DOTS = 110  # an inch
MOST_ACROSS, LEGEND = 4, 8.5  # panels in a row; size of the letters
MOST_TICKS, FEW_POWERS = 7, 100


@dataclass(frozen=True)
class Series:
    """Points to be joined (or not), with an optional band or bars from `low` to `high`."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    look: str = ""  # whose colour and marker; left out: the label's
    line: str = "-"
    marked: bool = True


@dataclass(frozen=True)
class Level:
    """A horizontal or vertical line with a name of its own."""

    label: str
    at: float
    upright: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes. With `categories` the x of a point is the number of its category."""

    title: str
    across: str
    up: str
    series: Sequence[Series]
    levels: Sequence[Level] = ()
    logs: str = ""  # "x", "y" or "xy"
    categories: Sequence[str] = field(default=())


def draw(panels: Sequence[Panel], path: Path, *, same_height: bool = False) -> None:
    """Draw panels side by side with one legend beneath, and write a PNG."""
    try:
        import matplotlib
    except ImportError as missing:
        raise MissingExtra(
            "Pictures need the package matplotlib; install it with: pip install 'holdfast[plot]'."
        ) from missing
    matplotlib.use("agg")
    from matplotlib import pyplot

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
    width, height = PANEL[0] * across, PANEL[1] * down
    with pyplot.rc_context(settings):
        figure, grid = pyplot.subplots(down, across, figsize=(width, height), squeeze=False, sharey=same_height)
        names: dict[str, Any] = {}
        places = list(grid.flat)
        for axes, panel in zip(places, panels, strict=False):
            _fill(axes, panel, names)
        for axes, panel in zip(places, panels, strict=False):  # when all are filled, since heights may be shared
            if "y" not in panel.logs:
                axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        for axes in places[len(panels) :]:
            axes.set_visible(False)
        columns = _columns(list(names), width)
        lines = -(-len(names) // max(1, columns))
        figure.tight_layout(rect=(0, (0.1 + 0.2 * lines) / height, 1, 1))
        figure.legend(
            list(names.values()), list(names), loc="lower center", ncols=columns, frameon=False, fontsize=LEGEND
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=DOTS, metadata={"Software": None})
        pyplot.close(figure)


def _columns(labels: Sequence[str], width: float) -> int:
    """Return how many columns a legend of these labels may have in so many inches.

    >>> _columns(["coins", "naive"], 4.0), _columns(["a label that is rather long"] * 3, 4.0)
    (2, 1)
    """
    longest = max(map(len, labels), default=1)
    return max(1, min(len(labels), int(width / (0.6 + 0.0085 * LEGEND * longest))))


def _fill(axes: Any, panel: Panel, names: dict[str, Any]) -> None:
    for place, series in enumerate(panel.series):
        colour, marker = LOOKS.get(series.look or series.label, _OTHERS[place % len(_OTHERS)])
        style = {"color": colour, "marker": marker if series.marked else "", "linestyle": series.line}
        (handle,) = axes.plot(series.x, series.y, **style, zorder=3)
        if series.low is not None and series.high is not None:
            if panel.categories:
                axes.vlines(series.x, series.low, series.high, color=colour, linewidth=1.5, zorder=2)
            else:
                axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.18, linewidth=0)
        names.setdefault(series.label, handle)
    for axis, letter in ((axes.xaxis, "x"), (axes.yaxis, "y")):
        if letter in panel.logs:
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
    axes.set_xlabel(panel.across)
    axes.set_ylabel(panel.up)


def _logarithmic(axes: Any, axis: Any, letter: str, panel: Panel) -> None:
    """Use a log scale; where it spans few powers of ten, the points' own places are its ticks."""
    from matplotlib.ticker import NullFormatter

    axes.set(**{f"{letter}scale": "log"})
    axis.set_minor_formatter(NullFormatter())
    places = sorted({value for series in panel.series for value in (series.x if letter == "x" else series.y)})
    if letter == "x" and 1 < len(places) <= MOST_TICKS and places[-1] / places[0] < FEW_POWERS:
        axis.set_ticks(places, [f"{place:,.4g}" for place in places])
        axis.set_ticks([], minor=True)


def _level(axes: Any, level: Level) -> None:
    if level.upright:
        axes.axvline(level.at, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
        axes.text(
            level.at, 0.02, f" {level.label}", color=GREY, fontsize=8, transform=axes.get_xaxis_transform(), va="bottom"
        )
    else:
        axes.axhline(level.at, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
        axes.text(
            0.01, level.at, level.label, color=GREY, fontsize=8, transform=axes.get_yaxis_transform(),
            ha="left", va="bottom",
        )  # fmt: skip


def attack_picture(reports: Sequence["AttackReport"], path: Path) -> None:
    """Draw claimed, real and promised error as the questions go by: one panel a mechanism."""
    panels = []
    for report in reports:
        looks = report.looks()
        asked = [look.asked for look in looks]
        name = report.mechanism
        series = [
            Series("real error (median; band up to the worst world)", asked, [look.real for look in looks],
                   [look.real for look in looks], [look.worst for look in looks], look="naive"),
            Series("claimed by the error bars", asked, [look.claimed for look in looks], look="coins"),
        ]  # fmt: skip
        promised = report.promised
        levels = [] if promised is None else [Level("promised for all answers", promised)]
        title = f"{name}, attacked by {report.analyst}"
        panels.append(Panel(title, "questions asked", "error", series, levels, logs="x"))
    draw(panels, path, same_height=True)
