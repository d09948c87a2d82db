"""Tables as text, and HTML for notebooks: tables, and bars that show how much is left, in light and dark themes."""

from collections.abc import Collection, Sequence
from html import escape

BLUE, ORANGE = "#2b8cc4", "#d55e00"  # visible on white and on black
TRACK = 'fill="currentColor" fill-opacity=".22"'
FAINT = "opacity:.75"
WIDTH = 160
SHORT = 32  # cells of up to this many characters stay on one line
_CELL = "padding:.25em .7em;text-align:"


class Svg(str):
    """A drawing made by holdfast. Text that merely looks like one, such as a category in the data, is escaped."""

    __slots__ = ()


def aligned(lines: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> list[str]:
    """Return the lines of a table as text, its columns aligned: those in `right` to the right, others to the left.

    >>> aligned([["a", "n"], ["bc", "10"]], right=[1])
    ['a    n', 'bc  10']
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [
        [cell.rjust(width) if place in right else cell.ljust(width) for place, (cell, width) in enumerate(cells)]
        for cells in (zip(line, widths, strict=True) for line in lines)
    ]
    return ["  ".join(cells).rstrip() for cells in padded]


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)) -> str:
    """Return a table; `Svg` cells are drawn, the text of all others is escaped.

    >>> table(["a"], [["<svg>"]]).count("&lt;")
    1
    """

    def cells(row: Sequence[str], tag: str) -> str:
        sides = ("left" if place in left else "right" for place in range(len(row)))
        drawn = [isinstance(cell, Svg) for cell in row]
        shown = (cell if svg else escape(cell) for cell, svg in zip(row, drawn, strict=True))
        short = (svg or len(cell) <= SHORT for cell, svg in zip(row, drawn, strict=True))
        long = "" if tag == "th" else f"min-width:{SHORT // 2}em"  # headings get no minimum width
        width = ("white-space:nowrap" if fits else long for fits in short)
        styled = zip(sides, width, shown, strict=True)
        return "".join(f'<{tag} style="{_CELL}{side};{wide}">{cell}</{tag}>' for side, wide, cell in styled)

    head = f"<thead><tr>{cells(headings, 'th')}</tr></thead>" if any(headings) else ""
    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    inside = f'<table style="font-variant-numeric:tabular-nums">{head}<tbody>{body}</tbody></table>'
    return f'<div style="overflow-x:auto">{inside}</div>'


def meter(part: float, label: str, width: int = WIDTH) -> Svg:
    """Draw a part of a whole, between 0 and 1; `label` is for screen readers."""
    return Svg(
        f'<svg width="{width}" height="10" role="img" aria-label="{escape(label)}">'
        f'<rect width="{width}" height="10" rx="3" {TRACK}/>'
        f'<rect width="{min(max(part, 0.0), 1.0) * width:.1f}" height="10" rx="3" fill="{BLUE}"/></svg>'
    )


def paragraphs(title: str, *texts: str) -> str:
    """Return a title and sentences under it."""
    return "".join([f"<div><strong>{escape(title)}</strong></div>", *(f"<div>{escape(text)}</div>" for text in texts)])


def small(text: str) -> str:
    """Return small print."""
    return f'<small style="{FAINT}">{escape(text)}</small>'
