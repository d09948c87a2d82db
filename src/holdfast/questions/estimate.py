"""A value with its interval: in the units of a question, and written so that no end is rounded inward."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil, floor, inf, isfinite, isnan, log10, nan, nextafter
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import notebook

if TYPE_CHECKING:
    from holdfast.questions.answer import Answer

Interval = tuple[float, float]
ROUNDING = 2.0**-53
STEPS = 16  # roundings, each relative to a number or to 1, that `outward` makes up for
SEPARATED = 10_000  # numbers from here on get thousands separators
FEWEST = 12  # at most this many digits before the decimal point are rounded to zeros
LONG = 1e15  # numbers from here on are written as powers of ten
ANYTHING = 1e100  # an end this far out means that the interval is unbounded
SAYS_NOTHING = 0.9  # share of the declared range: an interval wider than this is shown without a value
TOO_FEW = "too few rows to tell"
NUMBERS = ("value", "low", "high", "share_low", "share_high")  # what is said of a group, besides its values


class Estimate(NamedTuple):
    """A value and its interval, in the units of the question. The value is NaN where the interval says nothing."""

    value: float
    low: float
    high: float

    @property
    def too_few(self) -> bool:
        """Whether there were too few rows to tell: then there is no value."""
        return isnan(self.value)

    @property
    def guess(self) -> float:
        """The value, or the middle of the interval if there is none: for callers that need some number."""
        return (self.low + self.high) / 2 if self.too_few else self.value

    @classmethod
    def within(cls, bounds: Interval, value: float, interval: Interval, *, alone: bool = False) -> "Estimate":
        """Stretch from [0, 1] to the bounds, rounding ends outward; the value is clipped to its interval.

        An interval that covers nearly all of the bounds says nothing, and the value becomes NaN, unless it stands
        `alone`: its guarantee promises no interval. Ends that cross, which happens when counts contradict each other
        (more rarely than an interval misses), are swapped.
        """
        low, high = bounds
        first, last = interval
        if first > last:
            first, last = last, first
        wide = last - first > SAYS_NOTHING
        if bounds != (0.0, 1.0):
            # Four roundings, each by at most ROUNDING times the size of what is rounded: high - low and its multiple,
            # at most twice the larger bound each, then the sum and the end itself, at most once each. Six in all; and
            # two more if the bounds are a multiple of others (`times`).
            slack = 8.01 * ROUNDING * max(abs(low), abs(high))
            first, last = low + (high - low) * first, low + (high - low) * last
            first, last = max(low, first - slack), min(high, last + slack)
            value = low + (high - low) * value
        if wide and not alone:
            return cls(nan, first, last)
        return cls(first if value < first else last if value > last else value, first, last)

    def to_json(self) -> dict[str, Any]:
        """Return value, low and high; a missing value is null."""
        return {"value": None if isnan(self.value) else self.value, "low": self.low, "high": self.high}

    def to_result(self, bounds: Interval) -> dict[str, Any]:
        """Return the result of an answer that is this one number, declared to lie within `bounds`."""
        value = None if isnan(self.value) else self.value
        return {"value": value, "low": self.low, "high": self.high, "bounds": list(bounds)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Estimate":
        """Read what `to_json` wrote."""
        return cls(nan if values["value"] is None else values["value"], values["low"], values["high"])

    @property
    def decimals(self) -> int:
        """How many decimals the interval's width justifies; negative: that many digits before the point are zeros."""
        width, digits = self.high - self.low, 4
        if width == 0 and self.low % 1 == 0:  # known exactly, such as the number of rows
            return 0
        while digits > -FEWEST and width > 10.0 ** (2 - digits) * 5:
            digits -= 1
        return digits

    def rounded(self) -> tuple[str, str, str]:
        """Return value, low and high as text, with as many decimals as the width justifies, ends rounded outward."""
        return write_estimate(self, self.decimals)


def outward(interval: Interval) -> Interval:
    """Return an interval that was computed in a few steps, widened by more than their rounding errors.

    >>> low, high = outward((0.5, 2.0))
    >>> 0.5 - 1e-14 < low < 0.5, 2.0 < high < 2.0 + 1e-14
    (True, True)
    """
    low, high = min(interval[0], ANYTHING), max(interval[1], -ANYTHING)
    return low - STEPS * ROUNDING * (1 + abs(low)), high + STEPS * ROUNDING * (1 + abs(high))


def times(size: int, bounds: Interval) -> Interval:
    """Return the bounds of a number that is `size` times as large, rounded outward.

    >>> times(3, (-0.5, 0.5)), times(3, (0.1, 1.1))
    ((-1.5, 1.5), (0.3, 3.3000000000000003))
    """
    return bounds if size == 1 else multiple(Fraction(size), bounds)


def multiple(of: Fraction, bounds: Interval) -> Interval:
    """Return the bounds times a positive number, rounded outward.

    >>> multiple(Fraction(3), (0.0, 0.5))
    (0.0, 1.5)
    """
    low, high = bounds
    return 0.0 - at_least(-of * Fraction(low)), at_least(of * Fraction(high))  # 0, and not -0


def width(bounds: Interval) -> float:
    """Return how far apart the bounds are, rounded up."""
    low, high = bounds
    return at_least(Fraction(high) - Fraction(low))


def at_least(exact: Fraction) -> float:
    """Return the least number that is no smaller.

    >>> at_least(Fraction(1, 2)), at_least(Fraction(1, 3)), 1 / 3
    (0.5, 0.33333333333333337, 0.3333333333333333)
    """
    near = float(exact)
    return near if Fraction(near) >= exact else nextafter(near, inf)


def write_estimate(estimate: "Estimate | Answer", digits: int) -> tuple[str, str, str]:
    """Write value, low and high; ends are rounded outward, because a promise is never rounded in its own favor."""
    value = TOO_FEW if estimate.too_few else _written(estimate.value, digits)
    if max(-estimate.low, estimate.high) >= LONG:
        return value, write_far(estimate.low, 3, up=False), write_far(estimate.high, 3, up=True)
    low, high = round(estimate.low, digits), round(estimate.high, digits)
    if low > estimate.low:
        low = estimate.low - 10.0**-digits
    if high < estimate.high:
        high = estimate.high + 10.0**-digits
    return value, _written(low, digits), _written(high, digits)


def _written(x: float, digits: int) -> str:
    if abs(x) >= LONG:
        return f"{x:.4g}"
    text = f"{round(x, digits) + 0.0:,.{max(digits, 0)}f}"  # no -0.00
    return text if abs(x) >= SEPARATED else text.replace(",", "")


def write_bound(x: float) -> str:
    """Write an end of a scale.

    >>> write_bound(0.0), write_bound(-0.5), write_bound(1.5e9), write_bound(1e200)
    ('0', '-0.5', '1,500,000,000', '1e+200')
    """
    return _written(x, 0) if float(x).is_integer() else f"{x:.6g}"


def rounded_alike(estimates: Sequence[Estimate]) -> list[tuple[str, str, str]]:
    """Write value, low and high of every line of a table, all with the decimals that the narrowest interval justifies.

    >>> rounded_alike([Estimate(0.25, 0.2, 0.3), Estimate(0.5, 0.0, 1.0)])
    [('0.250', '0.200', '0.300'), ('0.500', '0.000', '1.000')]
    """
    digits = max((one.decimals for one in estimates), default=0)
    return [write_estimate(one, digits) for one in estimates]


def written(estimate: "Estimate | Answer") -> tuple[str, str]:
    """Write the value and its interval, whose ends are rounded outwards.

    >>> written(Estimate(value=0.5, low=0.25011, high=0.74989))
    ('0.500', '[0.250, 0.750]')
    """
    value, low, high = estimate.rounded()
    return value, f"[{low}, {high}]"


def labeled_lines(labeled: Sequence[tuple[str, Estimate]]) -> list[tuple[str, str, str]]:
    """Return label, value and interval of every line of a table as text, with equal decimals."""
    texts = rounded_alike([estimate for _, estimate in labeled])
    return [(label, value, f"[{low}, {high}]") for (label, _), (value, low, high) in zip(labeled, texts, strict=True)]


def write_end(x: float, digits: int, *, up: bool) -> str:
    """Write an end of an interval with this many significant digits, rounded outward: up or down.

    >>> write_end(0.123449, 4, up=False), write_end(0.123401, 4, up=True), write_end(0.25, 4, up=True)
    ('0.1234', '0.1235', '0.25')
    >>> write_end(1_736.2, 3, up=True)
    '1740'
    """
    text = f"{x:.{digits}g}"
    if float(text) != x and (float(text) > x) != up:
        step = 10.0 ** (floor(log10(abs(x))) - digits + 1)
        text = f"{x + step if up else x - step:.{digits}g}"
    return f"{float(text):.0f}" if "e+" in text and abs(x) < LONG else text


def plus_minus(margin: float, digits: int = 3) -> str:
    """Write a margin with this many significant digits, rounded up.

    >>> plus_minus(0.123401), plus_minus(1_736.2), plus_minus(4_655_301)
    ('±0.124', '±1740', '±4,660,000')
    """
    text = write_end(margin, digits, up=True)
    return f"±{float(text):,.0f}" if text.isdigit() and SEPARATED <= margin < LONG else f"±{text}"


def write_far(x: float, digits: int, *, up: bool) -> str:
    """Write an end of an interval that may be unbounded: as "∞" if it is very far out, not with 200 digits.

    >>> write_far(-1e200, 3, up=False), write_far(0.25, 3, up=True)
    ('-∞', '0.25')
    """
    if (x if up else -x) < ANYTHING:
        return write_end(x, digits, up=up)
    return "∞" if up else "-∞"


def pixels(low: float, high: float, decimals: int) -> tuple[str, str]:
    """Write the start and length of a bar, rounded so that it covers everything from low to high."""
    unit = 10**decimals
    first, last = floor(low * unit), ceil(high * unit)
    return f"{first / unit:.{decimals}f}", f"{(last - first) / unit:.{decimals}f}"


def common_scale(estimates: "Sequence[Estimate | Answer]", bounds: Interval) -> Interval:
    """Return round ends, inside the bounds, of a scale for all intervals that say something.

    >>> common_scale([Estimate(0.21, 0.176, 0.246), Estimate(0.16, 0.11, 0.22)], (0.0, 1.0))
    (0.1, 0.3)
    """
    informative = [each for each in estimates if not each.too_few]
    low, high = (
        min((each.low for each in informative), default=0.0),
        max((each.high for each in informative), default=0.0),
    )
    if not (low < high and isfinite(high - low)):
        return bounds
    digits = -floor(log10(high - low))
    unit = 10.0**-digits
    first, last = round(floor(low / unit) * unit, digits), round(ceil(high / unit) * unit, digits)
    return max(min(first, low), bounds[0]), min(max(last, high), bounds[1])


def write_scale(scale: Interval) -> str:
    """Head a column of bars on one scale.

    >>> write_scale((0.0, 0.4))
    'from 0 to 0.4'
    """
    return "from {} to {}".format(*map(write_bound, scale))


def interval_bar(estimate: "Estimate | Answer", bounds: Interval = (0.0, 1.0), width: int = 160) -> notebook.Svg:
    """Draw the interval as a small SVG, on a scale between the bounds."""
    low, high = bounds
    span = (high - low) or 1.0
    a, v, b = (width * min(max((x - low) / span, 0.0), 1.0) for x in (estimate.low, estimate.value, estimate.high))
    mark, shown, color = "", TOO_FEW, notebook.TRACK
    if not estimate.too_few:
        mark = f'<rect x="{v:.1f}" y="1" width="2" height="10" fill="{notebook.ORANGE}"/>'
        shown, color = f"{estimate.value:g}", f'fill="{notebook.BLUE}"'
    start, length = pixels(a + 1, max(b, a + 1) + 1, 1)
    first, last = write_far(estimate.low, 6, up=False), write_far(estimate.high, 6, up=True)
    return notebook.Svg(
        f'<svg width="{width + 2}" height="12" style="vertical-align:middle" role="img"'
        f' aria-label="{shown}, from {first} to {last}">'
        f'<rect x="1" y="5" width="{width}" height="2" {notebook.TRACK}/>'
        f'<rect x="{start}" y="3" width="{length}" height="6" rx="2" {color}/>'
        f"{mark}</svg>"
    )
