"""Small SVG charts. Colors come from the style sheet, so they follow dark mode; labels say what they show.

Horizontal positions are percentages, so a chart fills its container and its text is never stretched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10, nan
from typing import Any

from markupsafe import Markup

from holdfast.questions.estimate import ANYTHING, SEPARATED, TOO_FEW, Estimate, pixels, rounded_alike, write_far

LEAST_SPAN = 1e-300  # a smaller span cannot be divided into steps
MOST_STEPS = 5  # between the ticks of an axis, so that their numbers fit on a phone
PLAIN = 6  # digits before or after the point; numbers with more are written as powers of ten
NEAR = 1e-9  # of a step: tolerance for rounding errors
DECIMALS = 3  # of a percentage
MILLION = 1e6


def number(x: float | None) -> str:
    """Format a number with at most five digits; None means too few rows to tell."""
    if x is None:
        return TOO_FEW
    if abs(x) >= ANYTHING:
        return write_far(x, 4, up=x > 0)
    return f"{x:,.0f}" if abs(x) >= 10_000 else f"{x:.4g}"


def low_end(x: float) -> str:
    """Format the lower end of an interval, rounded down."""
    return f"{floor(x):,}" if 10_000 <= abs(x) < ANYTHING else write_far(x, 4, up=False)


def high_end(x: float) -> str:
    """Format the upper end of an interval, rounded up."""
    return f"{ceil(x):,}" if 10_000 <= abs(x) < ANYTHING else write_far(x, 4, up=True)


def margin(x: float) -> str:
    """Write a margin in the units of its question, rounded up."""
    return f"±{ceil(x):,}" if 1_000 <= x < ANYTHING else f"±{write_far(x, 3, up=True)}"


@dataclass(frozen=True)
class Scale:
    """An axis from one round number to another, with a tick at every step."""

    low: float
    high: float
    step: float

    @classmethod
    def over(cls, numbers: Sequence[float]) -> "Scale":
        """Return the axis that holds all of these.

        >>> scale = Scale.over([0.163, 0.291])
        >>> scale.ticks
        ['0.15', '0.20', '0.25', '0.30']
        """
        low, high = min(numbers), max(numbers)
        span = max((high - low) or abs(high) or 1.0, LEAST_SPAN)
        size = 10.0 ** floor(log10(span / MOST_STEPS))
        for step in (size * times for times in (1, 2, 5, 10, 20)):
            first, last = floor(low / step + NEAR), ceil(high / step - NEAR)
            if last - first <= MOST_STEPS:
                break
        return cls(min(first * step, low), max(max(last, first + 1) * step, high), step)

    def at(self, x: float) -> float:
        """Return the place of a number, in percent."""
        return 100 * (x - self.low) / (self.high - self.low)

    @property
    def numbers(self) -> list[float]:
        """Return where the ticks are."""
        first, last = round(self.low / self.step), round(self.high / self.step)
        return [place * self.step for place in range(first, last + 1)]

    @property
    def ticks(self) -> list[str]:
        """Return the labels of the ticks, all with the decimals that the step needs."""
        digits = max(0, -floor(log10(self.step) + NEAR))
        if digits > PLAIN or max(abs(self.low), abs(self.high)) >= 10.0**PLAIN:
            return self._far_ticks()
        # Thousands are separated where they are in the numbers beside them.
        return [f"{x:,.{digits}f}" if abs(x) >= SEPARATED else f"{x:.{digits}f}" for x in self.numbers]

    def _far_ticks(self) -> list[str]:
        """Return what the ticks of large or small numbers say: millions where that is short, or powers of ten."""
        digits = max(0, -floor(log10(self.step / MILLION) + NEAR))
        if digits <= 2 and max(abs(self.low), abs(self.high)) < 10.0**PLAIN * MILLION:
            return [f"{x / MILLION:,.{digits}f}M" if x else "0" for x in self.numbers]
        return [f"{x:.4g}" for x in self.numbers]

    def axis(self) -> Markup:
        """Draw the ticks' numbers."""
        drawn = Markup("").join(
            Markup('<text x="{:.2f}%" y="14" text-anchor="middle">{}</text>').format(self.at(x), text)
            for x, text in zip(self.numbers, self.ticks, strict=True)
        )
        return Markup('<svg class="axis" aria-hidden="true">{}</svg>').format(drawn)

    def grid(self) -> Markup:
        """Draw a thin line at every tick, and a stronger one at zero inside the axis."""
        return Markup("").join(
            Markup('<line class="{}" x1="{x:.2f}%" x2="{x:.2f}%" y1="0" y2="100%"/>').format(
                "zero" if x == 0 and self.low < 0 < self.high else "grid", x=self.at(x)
            )
            for x in self.numbers
        )


def line(label: str | None, value: float | None, low: float, high: float) -> dict[str, Any]:
    """Return a line for `panel` that has only an interval."""
    return {"category": label, "value": value, "low": low, "high": high, "bounds": (low, high)}


def panel(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return intervals on one axis: every line with its texts, equally rounded, and its drawing; and the axis.

    A line has value (None: too few rows to tell), low, high, bounds; and, if the question is answered by a part of the
    range in which the rows' own value lies, that part as known.
    """
    scale = Scale.over([x for line in lines for x in _shown(line)] or [0.0, 1.0])
    texts = rounded_alike(
        [Estimate(nan if line["value"] is None else line["value"], line["low"], line["high"]) for line in lines]
    )
    drawn = [
        {"verdict": None, "value_text": value, "low_text": low, "high_text": high, "bar": interval_bar(line, scale)}
        | dict(line)
        for line, (value, low, high) in zip(lines, texts, strict=True)
    ]
    return {"lines": drawn, "axis": scale.axis()}


def _shown(line: Mapping[str, Any]) -> list[float]:
    """Return the numbers that the axis must include: the interval, the edges of `known`, and zero for a difference."""
    first, last = line["bounds"]
    edges = [edge for edge in line.get("known") or () if edge not in (first, last)]
    return [line["low"], line["high"], *edges, *([0.0] if first == -last else [])]


def interval_bar(line: Mapping[str, Any], scale: Scale) -> Markup:
    """Draw an interval with a dot at its value, on an axis that it shares with others.

    If only a part of the range is `known`, the dot is drawn only for a value inside it, such as its middle: an edge of
    it, or a guess beyond, is not a value that was measured.
    """
    value, known = line["value"], line.get("known")
    says = "range" if value is not None or known else "nothing"
    is_value = not known or value is None or known[0] < value < known[1]
    label = f"between {low_end(line['low'])} and {high_end(line['high'])}"
    if is_value:
        label = f"{number(value)}, {label}"
    answered = Markup("")
    if known:
        first, last = (min(100.0, max(0.0, scale.at(edge))) for edge in known)
        answered = Markup('<rect class="known" x="{}%" width="{}%" y="0" height="100%"/>').format(
            *pixels(first, last, DECIMALS)
        )
    dot = Markup("")
    if is_value and value is not None:
        dot = Markup('<circle class="value" cx="{:.2f}%" cy="50%" r="5"/>').format(scale.at(value))
    length = pixels(scale.at(line["low"]), scale.at(line["high"]), DECIMALS)
    return Markup(
        '<svg class="bar" role="img" aria-label="{}">{}{}'
        '<rect class="{}" x="{}%" width="{}%" y="10" height="8"/>{}</svg>'
    ).format(label, answered, scale.grid(), says, *length, dot)


def gauge(left: int, total: int) -> Markup:
    """Draw the share of the budget that is left."""
    share = left / total if total else 0.0
    return Markup(
        '<svg class="gauge" role="img" aria-label="{:,} of {:,} answers left"><rect class="track" width="100%"'
        ' height="100%" rx="4"/><rect class="{}" width="{:.2f}%" height="100%" rx="4"/></svg>'
    ).format(left, total, "left" if share > 0.1 else "left low", 100 * share)


def margin_bar(margin: float, most: float, *, promised: bool) -> Markup:
    """Draw a margin as a bar to compare with others: shorter is better; one without a promise is styled differently."""
    share = min(1.0, margin / most)
    return Markup(
        '<svg class="margin" aria-hidden="true"><rect class="{}" width="{:.2f}%" height="100%" rx="3"/></svg>'
    ).format("promised" if promised else "no-promise", max(0.5, 100 * share))
