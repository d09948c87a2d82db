"""What leaves a mechanism: all that anybody learns about the rows, in the forms that guarantees can certify."""

from dataclasses import dataclass

GRID = 40  # values that get noise are rounded to multiples of 2^-40


def grid_bits(count: int) -> int:
    """Return the number of bits of a grid for `count` values in [0, 1] whose sum must fit in 62 bits."""
    return max(1, min(GRID, 62 - int(count).bit_length()))


@dataclass(frozen=True)
class Release:
    """The released values, in [0, 1] before bounds are applied; one for each number that was asked for."""

    values: tuple[float, ...]
    draws: int


@dataclass(frozen=True)
class Tally(Release):
    """How often each outcome came up among `draws` randomized draws; `reported` are the outcomes asked about."""

    counts: tuple[int, ...]
    reported: tuple[int, ...]

    def count(self, part: int) -> int:
        """Return how often the outcome number `part` of those asked about came up."""
        return self.counts[self.reported[part]]

    def members(self, group: int) -> tuple[int, int]:
        """Return how many draws gave zero, and how many gave one, in a group."""
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

    `rows` is the least number of rows that the guess is about: all of them, or the declared number of a group.
    """

    rows: int
    outcome: str


@dataclass(frozen=True)
class ExactMeans(Release):
    """Exact means of `draws` rows that no earlier question used; `counts` are None where values were averaged."""

    means: tuple[float, ...]
    counts: tuple[int | None, ...]


@dataclass(frozen=True)
class GridCell(Release):
    """Which cell of a fixed grid a mean falls into, counted from 1. Shown only if it is better than all before it."""

    cell: int
