"""What can be minimized: convex losses of one row at a point.

A linear loss sees z = <point, features> and the target y. Its features have declared bounds and are scaled from them;
its slope in z has a known range on the domain, so each gradient coordinate is a statistical query. Any object with the
attributes of `Loss` is a loss too.
"""

from dataclasses import dataclass
from numbers import Real
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.guarantees.mathematics import special
from holdfast.optimize.features import (
    INTERCEPT,
    SCALES,
    Bounds,
    FeatureLines,
    Features,
    LinearObjective,
    Matrix,
    TargetLines,
    declared,
    feature_ranges,
    number,
)
from holdfast.optimize.objective import Domain, Ranges, with_zero
from holdfast.schema import Schema

Vector = NDArray[np.float64]
Interval = tuple[float, float]


@runtime_checkable
class Loss(Protocol):
    """A loss of your own. `gradients` and `values` get a batch, but must treat each row by itself.

    Row gradients are clipped to `gradient_range` (one pair for all coordinates) and losses to `value_range`; bounds on
    the excess are valid only if clipping changes nothing. Optional attributes: `l2` (an exact term), `curvature`
    (strong convexity of the mean loss without l2; rows on which the loss fails have the largest loss and no curvature,
    so leave it out if there may be such rows), `lipschitz` (the largest norm of a row's gradient), `names`, `text`, and
    `identity` (a text that is the same for two losses exactly if they are equal).
    """

    dimension: int
    columns: tuple[str, ...]
    gradient_range: Interval
    value_range: Interval

    def values(self, rows: pl.DataFrame, point: Vector) -> ArrayLike:
        """Return one loss per row.

        Parameters
        ----------
        rows
            A batch of rows, with the `columns`.
        point
            Where the loss is computed.
        """

    def gradients(self, rows: pl.DataFrame, point: Vector) -> ArrayLike:
        """Return one gradient per row: shape (rows, dimension).

        Parameters
        ----------
        rows, point
            As for `values`.
        """


@dataclass(frozen=True)
class LinearLoss:
    """What all losses of linear models share.

    Parameters
    ----------
    features
        Columns (or row-wise expressions) with bounds, or a list of them with the same bounds `within`.
    target
        A column or an expression.
    within
        The bounds of all features, if those are a list.
    target_within
        The bounds of the target, if it is a number.
    l2
        The factor of half the squared norm of the point, intercept included.
    intercept
        Whether the model has a constant term.
    scale
        How features are scaled from their bounds: "symmetric" (to [-1, 1]) or "unit" (to [0, 1]).
    """

    features: Features
    target: str
    within: Bounds = None
    target_within: Bounds = None
    l2: float = 0.0
    intercept: bool = True
    scale: str = "symmetric"

    target_range: ClassVar[Interval] = (-1.0, 1.0)  # what declared target bounds are stretched to
    predicts_target: ClassVar[bool] = True  # whether z estimates the stretched target itself
    classifies: ClassVar[bool] = False  # whether z > 0 means yes

    def __post_init__(self) -> None:
        check.one_of("scale", self.scale, tuple(SCALES))
        check.number(l2=self.l2)
        if self.l2 < 0:
            raise InvalidArgument(f"l2 must be at least 0; got {self.l2!r}.", name="l2")
        if not isinstance(self.intercept, bool | np.bool_):
            raise InvalidArgument(f"intercept must be true or false; got {self.intercept!r}.", name="intercept")
        if not isinstance(self.target, str):
            raise InvalidArgument(f"target must be a column or an expression; got {self.target!r}.", name="target")
        declared(self.features, self.within)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the coordinates: the features, then the intercept."""
        named = tuple(name for name, _ in declared(self.features, self.within))
        return (*named, INTERCEPT) if self.intercept else named

    @property
    def dimension(self) -> int:
        """How many coordinates a point has."""
        return len(self.names)

    @property
    def text(self) -> str:
        """A readable description."""
        shown = [name for name, _ in declared(self.features, self.within)]
        more = f" and {len(shown) - 6} more" if len(shown) > 6 else ""
        return f"{type(self).__name__} loss of {self.target} on {', '.join(shown[:6])}{more}"

    @property
    def settings(self) -> str:
        """Everything but features and target, as canonical text."""
        own = [name for name in self.__dataclass_fields__ if name not in LinearLoss.__dataclass_fields__]
        values = [(name, getattr(self, name)) for name in (*own, "l2")]  # all as floats: 1 and 1.0 are the same
        written = [f"{name}={float(x) if isinstance(x, Real) else x!r}" for name, x in values]
        return f"{type(self).__name__}({', '.join(written)}, intercept={bool(self.intercept)}, scale={self.scale!r})"

    def bind(self, schema: Schema, domain: Domain) -> LinearObjective:
        """Check against a schema and derive every range; reads no rows.

        Parameters
        ----------
        schema
            The columns of the data.
        domain
            Where the minimum is looked for.

        Returns
        -------
        LinearObjective
            The loss with every range that a guarantee needs.
        """
        numbers = tuple(number(name, bounds, schema) for name, bounds in declared(self.features, self.within))
        bounds = None if self.target_within is None else check.interval("target_within", self.target_within)
        target = number(self.target, bounds, schema)
        matrix = Matrix(FeatureLines(numbers, self.scale), TargetLines(target, self.target_range), self.intercept)
        return LinearObjective(self, matrix, self.ranges(domain))

    def ranges(self, domain: Domain) -> Ranges:
        """Return every range on a domain; needs neither schema nor data.

        Parameters
        ----------
        domain
            Where the minimum is looked for.
        """
        first, last = feature_ranges(self.dimension, self.scale, self.intercept)
        largest = np.maximum(np.abs(first), np.abs(last))
        reach = domain.reach(largest)
        low, high = self.slope_range(reach)
        corners = np.stack([low * first, low * last, high * first, high * last, np.zeros(len(first))])
        steepest = max(abs(low), abs(high)) * float(np.linalg.norm(largest))
        return Ranges(
            lows=corners.min(axis=0),
            highs=corners.max(axis=0),
            values=with_zero(self.value_range(reach)),
            gradient=steepest,
            lipschitz=steepest,
            curvature=self.l2,
        )

    def losses(self, z: Vector, y: Vector) -> Vector:
        """Return the loss for each prediction and target.

        Parameters
        ----------
        z
            Predictions of the linear model.
        y
            Targets, stretched to `target_range`.
        """
        raise NotImplementedError  # every loss defines this and `slopes`

    def slopes(self, z: Vector, y: Vector) -> Vector:
        """Return its derivative in z, a new array.

        Parameters
        ----------
        z, y
            As for `losses`.
        """
        raise NotImplementedError

    def slope_range(self, reach: float) -> Interval:
        """Return the range of the slope for |z| <= reach: it increases in z and decreases in y.

        Parameters
        ----------
        reach
            The largest |z| on the domain.
        """
        low, high = self.target_range
        ends = self.slopes(np.array([-reach, reach]), np.array([high, low]))
        return float(ends[0]), float(ends[1])

    def value_range(self, reach: float) -> Interval:
        """Return the range of the loss for |z| <= reach: convex in z and in y, so largest at a corner.

        Parameters
        ----------
        reach
            As for `slope_range`.
        """
        low, high = self.target_range
        corners = self.losses(np.array([-reach, -reach, reach, reach]), np.array([low, high, low, high]))
        return 0.0, float(corners.max())


@dataclass(frozen=True)
class Squared(LinearLoss):
    """(z - y)^2/2, the target's bounds stretched to [-1, 1].

    Parameters
    ----------
    features, target, within, target_within, l2, intercept, scale
        As for `LinearLoss`.
    """

    def losses(self, z: Vector, y: Vector) -> Vector:
        """Half the squared residual."""
        return (z - y) ** 2 / 2

    def slopes(self, z: Vector, y: Vector) -> Vector:
        """The residual."""
        return z - y


@dataclass(frozen=True)
class Logistic(LinearLoss):
    """log(1 + e^z) - y z: the target is yes or no, or a number with bounds stretched to [0, 1].

    Parameters
    ----------
    features, target, within, target_within, l2, intercept, scale
        As for `LinearLoss`.
    """

    classifies: ClassVar[bool] = True
    predicts_target: ClassVar[bool] = False
    target_range: ClassVar[Interval] = (0.0, 1.0)

    def losses(self, z: Vector, y: Vector) -> Vector:
        """Minus the log-likelihood, without overflow."""
        return np.logaddexp(0.0, z) - y * z

    def slopes(self, z: Vector, y: Vector) -> Vector:
        """Probability minus target."""
        slopes: Vector = special.expit(z) - y
        return slopes


@dataclass(frozen=True)
class Huber(LinearLoss):
    """Quadratic for small residuals, linear beyond.

    Parameters
    ----------
    features, target, within, target_within, l2, intercept, scale
        As for `LinearLoss`.
    delta
        The residual, in units of the stretched target, beyond which the loss is linear.
    """

    delta: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check.positive(delta=self.delta)

    def losses(self, z: Vector, y: Vector) -> Vector:
        """Huber's function of the residual."""
        away = np.abs(z - y)
        near = np.minimum(away, self.delta)
        return near * (away - near / 2)

    def slopes(self, z: Vector, y: Vector) -> Vector:
        """The clipped residual."""
        return np.clip(z - y, -self.delta, self.delta)


@dataclass(frozen=True)
class SmoothedHinge(LinearLoss):
    """max(0, 1 - y z), its corner rounded; yes is y = 1 and no is y = -1.

    Parameters
    ----------
    features, target, within, target_within, l2, intercept, scale
        As for `LinearLoss`.
    smoothing
        The width over which the corner is rounded.
    """

    classifies: ClassVar[bool] = True
    predicts_target: ClassVar[bool] = False
    smoothing: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check.positive(smoothing=self.smoothing)

    def losses(self, z: Vector, y: Vector) -> Vector:
        """Huber's function of the missing margin."""
        short = np.maximum(1 - y * z, 0.0)
        near = np.minimum(short, self.smoothing)
        return near * (short - near / 2) / self.smoothing

    def slopes(self, z: Vector, y: Vector) -> Vector:
        """Between -y and 0."""
        return -y * np.clip((1 - y * z) / self.smoothing, 0.0, 1.0)

    def slope_range(self, reach: float) -> Interval:
        """At most 1 either way."""
        return -1.0, 1.0


@dataclass(frozen=True)
class Quantile(LinearLoss):
    """The pinball loss, whose minimizer is a quantile, its corner rounded.

    Parameters
    ----------
    features, target, within, target_within, l2, intercept, scale
        As for `LinearLoss`.
    q
        Which quantile: 0.5 is the median.
    smoothing
        The residual up to which the corner is rounded.
    """

    q: float = 0.5
    smoothing: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        check.probability(q=self.q)
        check.positive(smoothing=self.smoothing)

    def losses(self, z: Vector, y: Vector) -> Vector:
        """The pinball loss averaged over a uniform shift of at most `smoothing`."""
        over = y - z
        near = np.minimum(np.abs(over), self.smoothing)
        rounded = np.abs(over) + (self.smoothing - near) ** 2 / (2 * self.smoothing)
        return (self.q - 0.5) * over + rounded / 2

    def slopes(self, z: Vector, y: Vector) -> Vector:
        """Between -q and 1 - q."""
        return 0.5 - self.q - np.clip((y - z) / self.smoothing, -1.0, 1.0) / 2


@dataclass(frozen=True)
class Poisson(LinearLoss):
    """e^z - y z for counts y in `target_within` (not stretched); linear in z where the rate e^z is large.

    Parameters
    ----------
    features, target, within, target_within, l2, intercept, scale
        As for `LinearLoss`.
    most
        The rate e^z beyond which the loss is linear in z.
    """

    predicts_target: ClassVar[bool] = False
    most: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check.positive(most=self.most)
        if self.target_within is None:
            raise InvalidArgument(
                "target_within must be a pair (low, high) for counts; got None.", name="target_within"
            )
        if check.interval("target_within", self.target_within)[0] < 0:
            raise InvalidArgument(f"target_within must not be negative; got {self.target_within!r}.")

    @property
    def target_range(self) -> Interval:  # type: ignore[override]
        """The declared bounds: counts are not stretched."""
        return check.interval("target_within", self.target_within)

    def losses(self, z: Vector, y: Vector) -> Vector:
        """Minus the log-likelihood up to a constant, linear where the rate exceeds `most`."""
        top = np.log(self.most)
        losses: Vector = np.exp(np.minimum(z, top)) + self.most * np.maximum(z - top, 0.0) - y * z
        return losses

    def slopes(self, z: Vector, y: Vector) -> Vector:
        """Clipped rate minus count."""
        rates: Vector = np.exp(np.minimum(z, np.log(self.most)))
        return rates - y

    def value_range(self, reach: float) -> Interval:
        """Smallest where the rate fits the largest (or smallest) count."""
        low, high = self.target_range
        fits = [np.clip(np.log(max(count, 1e-300)), -reach, reach) for count in (low, high)]
        ends = [reach if count > self.most else fit for count, fit in zip((low, high), fits, strict=True)]
        least = self.losses(np.array(ends), np.array([low, high])).min()
        return float(least), super().value_range(reach)[1]
