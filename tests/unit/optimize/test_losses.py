"""Losses as people and programs write them: formulas, JSON, and back; what is not understood is refused by name."""

import json
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import InvalidArgument
from holdfast.optimize.formulas import BUILT_IN, read_loss, write_loss
from holdfast.optimize.losses import LinearLoss
from holdfast.optimize.objective import Ball
from holdfast.schema import Column, Schema, Type
from own_losses import MeanLoss

SCHEMA = Schema((Column("a", Type.FLOAT, True), Column("b", Type.INT, False), Column("late", Type.BOOL, False)))
LOSSES: list[LinearLoss] = [
    hf.losses.Logistic({"a": (0, 5000), "b": (1, 12)}, "late", l2=0.01),
    hf.losses.Squared(["a", "b"], "a + b", within=(-1, 1), target_within=(0, 9), intercept=False, scale="unit"),
    hf.losses.Huber({"a": (0, 1)}, "a", target_within=(0, 1), delta=0.25),
    hf.losses.SmoothedHinge({"a": (0, 1), "b > 3": None}, "late", smoothing=0.1),
    hf.losses.Quantile({"a": (0, 1)}, "a", target_within=(0, 1), q=0.9),
    hf.losses.Poisson({"a": (0, 1)}, "b", target_within=(0, 6), most=8.0),
]


def identity(loss: LinearLoss) -> str | None:
    return loss.bind(SCHEMA, Ball(1.0, loss.dimension)).identity


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_a_loss_that_travels_as_json_is_the_same_loss(loss: LinearLoss) -> None:
    sent = json.dumps(write_loss(loss))
    for received in (read_loss(json.loads(sent)), read_loss(sent)):
        assert type(received) is type(loss)
        assert identity(received) == identity(loss)


def test_every_built_in_loss_travels() -> None:
    assert {write_loss(loss)["name"] for loss in LOSSES} == set(BUILT_IN)


@pytest.mark.parametrize(
    ("formula", "loss"),
    [
        ("logistic: late ~ a [0, 5000] + b [1, 12]; l2 = 0.01", LOSSES[0]),
        (" logistic :late~a[0,5000]+b[ 1 , 12 ];l2=0.01,", LOSSES[0]),
        ("logistic: late ~ a [0, 5000], b [1, 12]; l2 = 0.01", LOSSES[0]),
        (
            "squared: a + b [0, 9] ~ a [-1, 1] + b [-1, 1]; intercept = false, scale = unit",
            LOSSES[1],
        ),
        ("smoothed_hinge: late ~ a [0, 1] + b > 3; smoothing = 1e-1", LOSSES[3]),
        ("poisson: b [0, 6] ~ a [0, 1]; most = 8", LOSSES[5]),
        (
            "huber: a [0, 1] ~ greatest(a + 0, 0) [0, 1]",
            hf.losses.Huber({"greatest(a + 0, 0)": (0, 1)}, "a", None, (0, 1)),
        ),
    ],
)
def test_formulas(formula: str, loss: LinearLoss) -> None:
    assert identity(read_loss(formula)) == identity(loss)


@pytest.mark.parametrize(
    ("described", "says"),
    [
        ("", "must be a formula such as"),
        ("logistic", "must be a formula such as"),
        ("logistic: late", "must be a formula such as"),
        ("logit: late ~ a [0, 1]", "must be one of squared, logistic"),
        ("logit: late ~ a [0, 1]", "Did you mean 'logistic'?"),
        ("logistic: late ~ a [0, one]", r"Bounds must be two numbers, as in 'distance \[0, 5000\]'"),
        ("logistic: late ~ a [0, 1] + a [0, 2]", "named twice"),
        ("logistic: late ~ a [0, 1]; speed = 3", "The logistic loss has no setting 'speed'"),
        ("logistic: late ~ a [0, 1]; l2 = much", "l2 must be"),
        ("logistic: late ~ a [0, 1]; intercept = no", "intercept must be true or false; got 'no'"),
        ("logistic: late ~ intercept [0, 1]", "features must not contain 'intercept'"),
        ("{", "must be valid JSON or a formula"),
        ('{"name": "logistic"}', "The logistic loss must be given 'features'"),
        ({"features": {}}, "The name of a loss must be one of"),
        ({"name": ["logistic"], "features": {"a": [0, 1]}, "target": "late"}, "The name of a loss must be one of"),
        ({"name": "logistic", "features": {"a": [0, 1]}, "target": 5}, "target must be a column"),
        ({"name": "logistic", "features": {"a": [1, 0]}, "target": "late"}, "bounds of 'a'"),
        ({"name": "logistic", "features": "a", "target": "late"}, "features must be a list"),
    ],
)
def test_what_is_not_understood_is_refused(described: Any, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        read_loss(described)


def test_code_does_not_travel() -> None:
    class Mine(hf.losses.Logistic):
        """A loss that somebody changed."""

    for loss in (MeanLoss(("x",)), Mine({"a": (0, 1)}, "late"), "logistic: late ~ a [0, 1]", None):
        with pytest.raises(InvalidArgument, match="must be built in when a server is asked"):
            write_loss(loss)
