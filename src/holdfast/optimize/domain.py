"""Where the minimizer is searched for: a ball around zero, or a box with declared sides."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import InvalidArgument

Vector = NDArray[np.float64]
FARTHEST = 1e100  # how far from zero a minimizer is looked for: squares of distances must not overflow


class Domain(Protocol):
    """A closed convex set."""

    @property
    def diameter(self) -> float:
        """The largest distance between two of its points."""

    @property
    def center(self) -> Vector:
        """Where descent begins."""

    @property
    def norm(self) -> float:
        """The largest norm of its points."""

    @property
    def text(self) -> str:
        """A readable description."""

    def project(self, point: Vector) -> Vector:
        """Return the nearest point of the set."""

    def reach(self, largest: Vector) -> float:
        """Return the largest |<point, x>| over points of the set and |x_j| <= largest_j."""

    def least(self, direction: Vector) -> float:
        """Return the smallest <direction, point> over points of the set."""


@dataclass(frozen=True)
class Ball:
    """All points whose norm is at most `radius`."""

    radius: float
    dimension: int

    @property
    def diameter(self) -> float:
        """Twice the radius."""
        return 2 * self.radius

    @property
    def center(self) -> Vector:
        """Zero."""
        return np.zeros(self.dimension)

    @property
    def norm(self) -> float:
        """The radius."""
        return self.radius

    @property
    def text(self) -> str:
        """A readable description."""
        return f"norm at most {self.radius:.15g}"

    def project(self, point: Vector) -> Vector:
        """Shrink a point that lies outside."""
        length = float(np.linalg.norm(point))
        return point if length <= self.radius else point * (self.radius / length)

    def reach(self, largest: Vector) -> float:
        """By the Cauchy-Schwarz inequality."""
        return self.radius * float(np.linalg.norm(largest))

    def least(self, direction: Vector) -> float:
        """Attained at the boundary point opposite to the direction."""
        return -self.radius * float(np.linalg.norm(direction))


@dataclass(frozen=True)
class Box:
    """All points with every coordinate within its own bounds."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def diameter(self) -> float:
        """The diagonal."""
        return float(np.linalg.norm(np.subtract(self.high, self.low)))

    @property
    def center(self) -> Vector:
        """The middle."""
        return np.add(self.high, self.low) / 2

    @property
    def norm(self) -> float:
        """The norm of the corner farthest from zero."""
        return float(np.linalg.norm(np.maximum(np.abs(self.low), np.abs(self.high))))

    @property
    def text(self) -> str:
        """A readable description."""
        if len(set(self.low)) == len(set(self.high)) == 1:
            return f"coordinates in [{self.low[0]:.15g}, {self.high[0]:.15g}]"
        return f"coordinates in a box of {len(self.low)} sides"

    def project(self, point: Vector) -> Vector:
        """Clip every coordinate."""
        return np.clip(point, self.low, self.high)

    def reach(self, largest: Vector) -> float:
        """Coordinate by coordinate."""
        return float(np.maximum(np.abs(self.low), np.abs(self.high)) @ largest)

    def least(self, direction: Vector) -> float:
        """Coordinate by coordinate."""
        return float(np.minimum(direction * self.low, direction * self.high).sum())


def domain_of(dimension: int, radius: Any = None, box: Any = None) -> Domain:
    """Return the domain the caller declared: `radius`, or `box` as one pair or one pair for each coordinate."""
    if (radius is None) == (box is None):
        raise InvalidArgument("Give either radius or box: where to look for the minimizer must be declared.")
    if radius is not None:
        check.positive(radius=radius)
        check.at_most("the farthest that is looked", FARTHEST, radius=float(radius))
        return Ball(float(radius), dimension)
    pairs = list(box) if isinstance(box, list) else [box] * dimension
    if len(pairs) != dimension:
        raise InvalidArgument(f"box must have one pair for each of {dimension} coordinates; got {len(pairs)}.")
    sides = [check.interval(f"box[{j}]" if isinstance(box, list) else "box", pair) for j, pair in enumerate(pairs)]
    check.at_most("the farthest that is looked", FARTHEST, box=max(max(-low, high) for low, high in sides))
    return Box(tuple(low for low, _ in sides), tuple(high for _, high in sides))
