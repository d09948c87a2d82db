"""What leaves a mechanism: all that anybody learns of the rows, in the forms that guarantees can certify."""

from dataclasses import dataclass

GRID = 40  # values that get noise are rounded to multiples of 2^-40


def grid_bits(count: int) -> int:
    """Return how fine a grid `count` values in [0, 1] may use without their sum leaving 62 bits."""
    return max(1, min(GRID, 62 - int(count).bit_length()))


@dataclass(frozen=True)
class Release:
    """The values that are read off, in [0, 1] before bounds are applied; one for each number that was asked."""

    values: tuple[float, ...]
    draws: int


@dataclass(frozen=True)
class Tally(Release):
    """How often each outcome came up among `draws` randomized draws; `reported` are the outcomes that were asked."""

    counts: tuple[int, ...]
    reported: tuple[int, ...]

    def count(self, part: int) -> int:
        """Return how often the part-th outcome that was asked came up."""
        return self.counts[self.reported[part]]

    def members(self, group: int) -> tuple[int, int]:
        """Return how many draws gave zero and one in a group."""
        return self.counts[2 * group + 1], self.counts[2 * group + 2]


@dataclass(frozen=True)
class NoisyMeans(Release):
    """Means of `draws` sampled rows each, one for every statistical query, plus noise; not clipped.

    `scale` is that of the noise; `grid` is how far rounding to its grid can move a mean.
    """

    means: tuple[float, ...]
    scale: float
    grid: float


HOLDS, TOO_LOW, TOO_HIGH, TOO_FEW = OUTCOMES = ("holds", "too low", "too high", "too few rows")


@dataclass(frozen=True)
class Cell(Release):
    """Whether a guess holds: its `outcome`, and no value.

    `rows` is how many rows speak at least: all of them, or the declared number of a group.
    """

    rows: int
    outcome: str


@dataclass(frozen=True)
class ExactMeans(Release):
    """Exact means of `draws` rows that nobody has asked before; `counts` where rows were counted, not averaged."""

    means: tuple[float, ...]
    counts: tuple[int | None, ...]


@dataclass(frozen=True)
class GridCell(Release):
    """Which cell of a fixed grid a mean falls into, counted from 1. Shown only if it is better than all before."""

    cell: int
