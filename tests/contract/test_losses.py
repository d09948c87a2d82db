"""What every loss must keep: it is convex, its gradient is its derivative, and it stays in the ranges it states."""

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.optimize.objective import Ball, Box, Domain, LossAt
from holdfast.queries.evaluate import silence
from holdfast.schema import Column, Schema, Type

BOUNDS = {"a": (-2.0, 3.0), "b": (0.0, 10.0), "flag": None}
SCHEMA = Schema(
    (
        Column("a", Type.FLOAT, True),
        Column("b", Type.INT, False),
        Column("flag", Type.BOOL, False),
        Column("y", Type.FLOAT, True),
        Column("late", Type.BOOL, False),
        Column("count", Type.INT, False),
    )
)
LOSSES = [
    hf.losses.Squared(BOUNDS, "y", target_within=(-5, 5)),
    hf.losses.Squared(BOUNDS, "y", target_within=(-5, 5), scale="unit", intercept=False),
    hf.losses.Logistic(BOUNDS, "late"),
    hf.losses.Logistic(BOUNDS, "y > 1", scale="unit"),
    hf.losses.Huber(BOUNDS, "y", target_within=(-5, 5), delta=0.3),
    hf.losses.SmoothedHinge(BOUNDS, "late", smoothing=0.4),
    hf.losses.Quantile(BOUNDS, "y", target_within=(-5, 5), q=0.8, smoothing=0.1),
    hf.losses.Poisson(BOUNDS, "count", target_within=(0, 6), most=8.0),
    hf.losses.Logistic({"a": (-2, 3), "b * 2 > 7": None}, "late"),
]
EPS = 1e-6
LOOSE = 1e-9  # rounding of values of order 100


def rows(count: int = 200) -> pl.DataFrame:
    rng = np.random.default_rng(3)
    return pl.DataFrame(
        {
            "a": rng.normal(0.5, 2, count),
            "b": rng.integers(-2, 13, count),
            "flag": rng.random(count) < 0.5,
            "y": rng.normal(0, 4, count),
            "late": rng.random(count) < 0.3,
            "count": rng.poisson(2, count),
        }
    )


@pytest.fixture(params=LOSSES, ids=lambda loss: f"{type(loss).__name__}-{loss.scale}-{loss.target}")
def loss(request):
    return request.param


@pytest.fixture(params=["ball", "box"])
def domain(request, loss) -> Domain:
    d = loss.dimension
    return Ball(1.5, d) if request.param == "ball" else Box((-1.0,) * d, (0.5,) * d)


def points(domain: Domain, count: int = 6) -> list[np.ndarray]:
    rng = np.random.default_rng(4)
    return [domain.project(domain.center + 3 * rng.normal(size=domain.center.size)) for _ in range(count)]


def mean_gradient(objective, batch, point):
    each = [objective.coordinates(batch, point, np.full(batch.height, j)) for j in range(point.size)]
    return np.array(each).mean(axis=1)


def test_the_gradient_is_the_derivative(loss, domain):
    objective, batch = loss.bind(SCHEMA, domain), rows()
    for point in points(domain):
        for j, direction in enumerate(np.eye(point.size)):
            ahead, behind = (objective.values(batch, point + s * EPS * direction).mean() for s in (1, -1))
            assert mean_gradient(objective, batch, point)[j] == pytest.approx((ahead - behind) / (2 * EPS), abs=1e-6)


def test_the_loss_is_convex(loss, domain):
    objective, batch = loss.bind(SCHEMA, domain), rows()
    for one, other in zip(points(domain), points(domain)[1:], strict=False):
        ends = (objective.values(batch, one) + objective.values(batch, other)) / 2
        assert (objective.values(batch, (one + other) / 2) <= ends + LOOSE).all()


def test_everything_stays_in_its_range(loss, domain):
    objective, batch = loss.bind(SCHEMA, domain), rows()
    ranges = objective.ranges
    for point in points(domain):
        values = objective.values(batch, point)
        for low, high in (ranges.values, objective.values_at(point)):
            assert values.min() >= low - LOOSE
            assert values.max() <= high + LOOSE
        features, target = objective.matrix.widened(objective.matrix.of(batch))
        slopes = loss.slopes(objective.matrix.predicted(features, point), target)
        raw = objective.matrix.gradients(features, slopes)  # before clipping
        assert (raw >= ranges.lows - LOOSE).all()
        assert (raw <= ranges.highs + LOOSE).all()
        assert np.linalg.norm(raw, axis=1).max() <= ranges.lipschitz + LOOSE
        shares = LossAt(objective, point).evaluate(batch)
        assert shares.min() >= 0
        assert shares.max() <= 1


def test_a_row_with_something_missing_says_nothing(loss, domain):
    objective = loss.bind(SCHEMA, domain)
    batch = rows(3).with_columns(pl.Series("a", [None, float("nan"), float("inf")]))
    point = points(domain)[0]
    values = silence(objective.values)(batch, point)  # as in every evaluation
    slopes = silence(objective.coordinates)(batch, point, np.zeros(3, dtype=np.int64))
    assert (values[:2] == 0).all()
    assert (slopes[:2] == 0).all()
    assert np.isfinite(slopes).all()  # infinity is clipped to the declared bounds


def test_identity_names_exactly_the_loss(loss, domain):
    objective = loss.bind(SCHEMA, domain)
    assert objective.identity is not None
    others = {other.bind(SCHEMA, Ball(1.0, other.dimension)).identity for other in LOSSES if other is not loss}
    assert objective.identity not in others
