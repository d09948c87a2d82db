"""Values with intervals as a picture: a dot and a bar for each, the numbers beside it, light and dark.

Matplotlib draws them, and is imported when something is drawn. A `Picture` shows itself in a notebook, in the theme of
the reader's browser; elsewhere it is saved to a file.
"""

from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from io import BytesIO
from math import isnan, nan
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import polars as pl

from holdfast import check, notebook
from holdfast.errors import InvalidArgument, MissingExtra
from holdfast.guarantees.statistic import TOO_FEW as TOO_FEW_HELD
from holdfast.questions.estimate import NUMBERS, TOO_FEW, Estimate, Interval, labeled_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THEMES: Mapping[str, Mapping[str, str]] = {  # the colors of Okabe and Ito, on paper and on a dark page
    "light": {"page": "#ffffff", "text": "#222222", "faint": "#767676", "grid": "#e6e6e6", "mark": "#0072b2"},
    "dark": {"page": "#16181c", "text": "#e8e8e8", "faint": "#9a9a9a", "grid": "#33363c", "mark": "#56b4e9"},
}
MOST_LINES = 60
ROW, TOP, BOTTOM, NOTE = 0.26, 0.34, 0.36, 0.2  # inches: one line, above and below the axes, the note
WIDTH, LETTER = 4.6, 0.072  # inches: the axes, one letter of a label
TITLE = 0.17  # inches: every further line of a title
LONGEST_LABEL, LONGEST_TITLE = 60, 70
SHARES = "between 0 and 1"  # a title
DPI = 130


@dataclass(frozen=True)
class Line:
    """One interval: its label, value (NaN: none), ends, and the text written beside it.

    `open` draws the dot as a circle. An interval without a value is faint, unless it has an `outcome` in words. Of
    lines below each other that have one `question`, the first is labeled with it.
    """

    label: str
    value: float
    low: float
    high: float
    text: str
    open: bool = False
    outcome: bool = False
    question: str = ""


@dataclass(frozen=True)
class Panel:
    """Intervals on one scale, drawn below each other; `bounds` are the limits of the scale, if it has any."""

    title: str
    lines: tuple[Line, ...]
    bounds: Interval | None = None


class Picture:
    """A picture of intervals.

    Parameters
    ----------
    panels
        What to draw, side by side.
    note
        A remark below the panels.
    """

    def __init__(self, panels: Sequence[Panel], note: str = "") -> None:
        self._panels = [_shortened(panel) for panel in panels if panel.lines]
        if not self._panels:
            raise InvalidArgument("There is nothing to draw: no intervals.", name="panels")
        self._note = note

    def save(self, path: str | Path, theme: str = "light") -> Path:
        """Write the picture to a file.

        Parameters
        ----------
        path
            The file; its suffix sets the format: .png, .svg or .pdf.
        theme
            "light" or "dark".

        Returns
        -------
        Path
            Where it is.
        """
        figure = self.figure(theme)
        figure.savefig(path, dpi=DPI, facecolor=figure.get_facecolor(), metadata={})
        return Path(path)

    def figure(self, theme: str = "light") -> "Figure":
        """Return a Matplotlib figure.

        Parameters
        ----------
        theme
            "light" or "dark".
        """
        check.one_of("theme", theme, tuple(THEMES))
        need_matplotlib()
        from matplotlib.figure import Figure

        colors, panels, note = THEMES[theme], self._panels, NOTE if self._note else 0.0
        boxes, width, height = _side_by_side(panels) if _alike(panels) else _stacked(panels)
        height += note
        figure = Figure(figsize=(width, height), facecolor=colors["page"])
        for panel, (left, bottom, across, up) in zip(panels, boxes, strict=True):
            place = (left / width, (bottom + note) / height, across / width, up / height)
            _draw(figure.add_axes(place), panel, colors)
        if self._note:
            figure.text(0.1 / width, 0.07 / height, self._note, color=colors["faint"], fontsize=7.5)
        return figure

    def _repr_html_(self) -> str:
        try:
            light, dark = (_embedded(self.figure(theme)) for theme in ("light", "dark"))
        except MissingExtra as missing:
            return notebook.paragraphs(repr(self), str(missing))
        words = "; ".join(f"{line.label} {line.text}".strip() for panel in self._panels for line in panel.lines)
        return (
            f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
            f'<img src="{light}" alt="{escape(words)}" style="max-width:100%"></picture>'
        )

    def __repr__(self) -> str:
        count = sum(len(panel.lines) for panel in self._panels)
        return f"<Picture of {count} interval{'' if count == 1 else 's'}; save(path) writes it>"


class Pictured(ABC):
    """An answer, or several: whatever can be drawn as a picture."""

    @abstractmethod
    def plot(self) -> Picture:
        """Return a picture: a dot and a bar for every interval. A notebook shows it; `save(path)` writes it."""


Box = tuple[float, float, float, float]  # inches: left, bottom, width, height


def _alike(panels: Sequence[Panel]) -> bool:
    """Whether all panels have the same line labels, as in a table."""
    return len({tuple(line.label for line in panel.lines) for panel in panels}) == 1


def _side_by_side(panels: Sequence[Panel]) -> tuple[list[Box], float, float]:
    """Return where the axes of each panel are, and the size of the whole."""
    inside, up = WIDTH / len(panels) ** 0.5, ROW * len(panels[0].lines)
    boxes, start = [], 0.0
    for panel in panels:
        left, right = _gutters(panel)
        boxes.append((start + left, BOTTOM, inside, up))
        start += left + inside + right
    return boxes, start, BOTTOM + up + max(map(_above, panels))


def _stacked(panels: Sequence[Panel]) -> tuple[list[Box], float, float]:
    """Return the same for panels below each other, the first on top."""
    gutters = [_gutters(panel) for panel in panels]
    left, right = (max(side) for side in zip(*gutters, strict=True))
    boxes: list[Box] = []
    bottom = 0.0
    for panel in reversed(panels):
        up = ROW * len(panel.lines)
        boxes.insert(0, (left, bottom + BOTTOM, WIDTH, up))
        bottom += BOTTOM + up + _above(panel)
    return boxes, left + WIDTH + right, bottom


def _above(panel: Panel) -> float:
    return TOP + TITLE * panel.title.count("\n")


def _draw(axes: Any, panel: Panel, colors: Mapping[str, str]) -> None:
    lines, (low, high) = panel.lines, _scale(panel)
    axes.set_facecolor(colors["page"])
    for place, line in enumerate(lines):
        known = not isnan(line.value)
        color, alpha = (colors["mark"], 0.45) if known or line.outcome else (colors["faint"], 0.35)
        axes.hlines(place, line.low, line.high, color=color, linewidth=3.2, alpha=alpha, zorder=2)
        if known:
            inside = colors["page"] if line.open else color
            axes.plot(
                line.value, place, marker="o", markersize=5.5, markerfacecolor=inside, markeredgecolor=color, zorder=3
            )
    axes.set_xlim(low, high)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.locator_params(axis="x", nbins=6)
    axes.set_yticks(range(len(lines)), [line.label for line in lines], fontsize=8.5, color=colors["text"])
    numbers = axes.secondary_yaxis("right")
    numbers.set_yticks(range(len(lines)), [line.text for line in lines], fontsize=8, color=colors["faint"])
    numbers.tick_params(length=0)
    numbers.spines["right"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", colors=colors["faint"], labelsize=8)
    axes.grid(axis="x", color=colors["grid"], linewidth=0.6, zorder=0)
    axes.set_title(panel.title, loc="left", fontsize=9.5, color=colors["text"])
    for side in axes.spines.values():
        side.set_visible(False)


def _scale(panel: Panel) -> Interval:
    """Return the ends of the axis: all intervals with some padding, cut off at the bounds."""
    low, high = min(line.low for line in panel.lines), max(line.high for line in panel.lines)
    air = 0.06 * (high - low or abs(high) or 1.0)
    if panel.bounds is None:
        return low - air, high + air
    edge = 0.012 * (panel.bounds[1] - panel.bounds[0])  # room for a whole dot on a bound
    return max(low - air, panel.bounds[0] - edge), min(high + air, panel.bounds[1] + edge)


def _shortened(panel: Panel) -> Panel:
    """Keep only the last lines if there are too many, and shorten labels and titles that are too long."""
    title, lines = panel.title, panel.lines
    if len(lines) > MOST_LINES:
        title, lines = f"{title} (the last {MOST_LINES} of {len(lines):,})", lines[-MOST_LINES:]
    above = ["", *(line.question for line in lines)]
    labels = [
        f"{line.question}: {line.label}" if line.question not in ("", before) else line.label
        for line, before in zip(lines, above, strict=False)
    ]
    kept = tuple(replace(line, label=_short(label)) for line, label in zip(lines, labels, strict=True))
    return Panel(fill(title, LONGEST_TITLE, max_lines=3, placeholder=" …"), kept, panel.bounds)


def _short(label: str) -> str:
    """Leave out the middle of a long label: its end tells the categories of one question apart."""
    half = (LONGEST_LABEL - 1) // 2
    return label if len(label) <= LONGEST_LABEL else f"{label[:half]}…{label[-half:]}"


def _gutters(panel: Panel) -> tuple[float, float]:
    """Return the inches that labels and numbers take."""
    longest = (max(len(line.label) for line in panel.lines), max(len(line.text) for line in panel.lines))
    left, right = (0.22 + LETTER * count for count in longest)
    return left, right


def _embedded(figure: "Figure") -> str:
    written = BytesIO()
    figure.savefig(written, format="svg", facecolor=figure.get_facecolor(), metadata={"Date": None})
    return f"data:image/svg+xml;base64,{b64encode(written.getvalue()).decode()}"


def need_matplotlib() -> None:
    """Refuse to draw without Matplotlib."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as missing:
        raise MissingExtra(
            "Pictures need the package matplotlib; install it with: pip install 'holdfast[plot]'.", extra="plot"
        ) from missing


# -- what is drawn --------------------------------------------------------------------------------------------------


def picture_lines(labeled: Sequence[tuple[str, Estimate]]) -> list[Line]:
    """Return intervals as lines of a picture; the numbers beside them are rounded outward, with equal decimals."""
    return [
        Line(label, one.value, one.low, one.high, f"{value}  {interval}")
        for (_, one), (label, value, interval) in zip(labeled, labeled_lines(labeled), strict=True)
    ]


def plot(shown: Pictured | pl.DataFrame) -> Picture:
    """Return a picture: a dot and a bar for every interval. A notebook shows it; `save(path)` writes it.

    Parameters
    ----------
    shown
        An answer or several, `Session.history()`, the standings of a board, or the frame of `Session.sql`. In a
        history, answers to questions that were registered beforehand have a full dot, the others a circle, if there
        are both.
    """
    if isinstance(shown, Pictured):
        return shown.plot()
    if not isinstance(shown, pl.DataFrame):
        raise InvalidArgument(f"plot takes answers or a frame of them; got {type(shown).__name__}.", name="shown")
    if {"low", "high"} <= set(shown.columns) and {"value", "outcome"} & set(shown.columns):
        return _of_lines(shown)
    aggregates = aggregates_of(shown)
    if not aggregates:
        raise InvalidArgument("plot takes a frame with value, low and high, or with x, x_low and x_high.", name="shown")
    return _of_table(shown, aggregates)


def _of_lines(frame: pl.DataFrame) -> Picture:
    """Draw a frame with a line for each interval: questions between 0 and 1 on one axis, others by their kind."""
    rows = frame.rows(named=True)
    listed = [row.get("registered") is not None for row in rows]
    mixed = any(listed) and not all(listed)
    asked = [row.get("seq", place) for place, row in enumerate(rows)]
    beyond = {seq for seq, row in zip(asked, rows, strict=True) if row["low"] < 0 or row["high"] > 1}
    titled: dict[str, list[dict[str, Any]]] = {SHARES: []}
    for seq, row in zip(asked, rows, strict=True):
        titled.setdefault(row.get("kind", "other numbers") if seq in beyond else SHARES, []).append(row)
    panels = []
    for title, chosen in titled.items():
        bounds = (0.0, 1.0) if title == SHARES else None
        lines = picture_lines([(_label(row), _estimate(row, "value", "low", "high")) for row in chosen])
        marked = [_marked(line, row, mixed) for line, row in zip(lines, chosen, strict=True)]
        panels.append(Panel(title, tuple(marked), bounds))
    return Picture(panels, "full dots: registered beforehand; circles: not" if mixed else "")


def _of_table(frame: pl.DataFrame, aggregates: Mapping[str, tuple[str, str]]) -> Picture:
    """Draw the table of a SELECT: a panel for each aggregate."""
    numbers = {*aggregates, *(end for both in aggregates.values() for end in both)}
    keys = [name for name in frame.columns if name not in numbers]
    rows = frame.rows(named=True)
    labels = [", ".join(str(row[key]) for key in keys) for row in rows]
    panels = []
    for name, ends in aggregates.items():
        estimates = [_estimate(row, name, *ends) for row in rows]
        panels.append(Panel(name, tuple(picture_lines(list(zip(labels, estimates, strict=True))))))
    return Picture(panels)


def _marked(line: Line, row: Mapping[str, Any], mixed: bool) -> Line:
    """Return a line with what else its row says: its question, what came of a check, whether it was registered."""
    outcome, question = row.get("outcome"), row.get("question") if row.get("category") is not None else None
    return replace(
        line,
        text=line.text if outcome is None else line.text.replace(TOO_FEW, outcome),
        outcome=outcome not in (None, TOO_FEW_HELD),
        open=mixed and row["registered"] is None,
        question=question or "",
    )


def _label(row: Mapping[str, Any]) -> str:
    """Return the category of a line, or its question; of a submission, who it is by and its name."""
    for names in (("category",), ("question",), ("by", "name")):
        parts = [str(row[name]) for name in names if row.get(name) is not None]
        if parts:
            return ": ".join(parts)
    return ", ".join(str(value) for name, value in row.items() if name not in NUMBERS)


def _estimate(row: Mapping[str, Any], value: str, low: str, high: str) -> Estimate:
    found = row.get(value)
    return Estimate(nan if found is None else found, row[low], row[high])


def aggregates_of(frame: pl.DataFrame) -> dict[str, tuple[str, str]]:
    """Return the columns of aggregates in the frame of a SELECT, each with the columns of its low and high ends."""
    ends = {name: (f"{name}_low", f"{name}_high") for name in frame.columns}
    return {name: both for name, both in ends.items() if set(both) <= ends.keys()}
