"""How a prediction is scored against a label: one row at a time, between a declared lowest and highest value.

Every metric is turned into a *gain* between 0 and 1, where more is better: that is what a board's grid is made of.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.schema import Type

Interval = tuple[float, float]
Gains = NDArray[np.float64]
CLIP = 0.001  # the least probability that log loss takes: one row costs at most log(1000)


@dataclass(frozen=True)
class Rule:
    """What one metric is."""

    means: str
    higher: bool  # whether more of it is better
    targets: tuple[Type, ...]  # that labels may have; none: submissions bring their own scores
    predicts: Type | None  # what predictions must be; None: of the labels' type
    gain: Callable[["Metric", pl.Series, pl.Series], Gains]
    bounded: bool = False  # whether a range of labels or scores must be declared
    probability: bool = False  # whether predictions are probabilities


@dataclass(frozen=True)
class Metric:
    """A metric with its numbers: `within` is the declared range of labels or scores, `clip` the least probability."""

    name: str
    within: Interval = (0.0, 1.0)
    clip: float = CLIP

    @classmethod
    def of(cls, name: str, within: Interval | None = None, clip: float | None = None) -> "Metric":
        """Return the metric of this name; refuse numbers that it does not have, or lacks."""
        check.one_of("metric", name, tuple(METRICS))
        rule = METRICS[name]
        if rule.bounded and within is None:
            raise InvalidArgument(
                f"within must be given for {name}: the range that values lie in, as (low, high).", name="within"
            )
        if not rule.bounded and within is not None:
            raise InvalidArgument(f"within must be left out for {name}.", name="within")
        if name != LOG_LOSS and clip is not None:
            raise InvalidArgument(f"clip must be left out for {name}; it is for {LOG_LOSS}.", name="clip")
        if clip is not None:
            check.probability(clip=clip)
            check.at_most("a half", 0.5, clip=clip)
        return cls(name, (0.0, 1.0) if within is None else check.interval("within", within), clip or CLIP)

    @property
    def rule(self) -> Rule:
        """What it is."""
        return METRICS[self.name]

    @property
    def bounds(self) -> Interval:
        """The lowest and the highest value that it can have."""
        low, high = self.within
        largest = {"absolute_error": high - low, "squared_error": (high - low) ** 2, LOG_LOSS: log(1 / self.clip)}
        return self.within if not self.rule.targets else (0.0, largest.get(self.name, 1.0))

    @property
    def text(self) -> str:
        """Its name, as people read it."""
        return self.name.replace("_", " ")

    def gains(self, predictions: pl.Series, targets: pl.Series) -> Gains:
        """Return what each row gains, in [0, 1]."""
        return np.clip(np.nan_to_num(self.rule.gain(self, predictions, targets), nan=0.0), 0.0, 1.0)

    def values(self, gains: Interval) -> Interval:
        """Return low and high of the metric, from those of its gain; ends rounded outward by the caller."""
        low, high = self.bounds
        first, last = gains if self.rule.higher else (1 - gains[1], 1 - gains[0])
        return low + (high - low) * first, low + (high - low) * last


def _same(metric: Metric, predictions: pl.Series, targets: pl.Series) -> Gains:
    return (predictions == targets).to_numpy().astype(np.float64)  # neither has missing values


def _same_text(metric: Metric, predictions: pl.Series, targets: pl.Series) -> Gains:
    first, other = (_plain(texts) for texts in (predictions, targets))
    return _same(metric, first, other)


def _plain(texts: pl.Series) -> pl.Series:
    return texts.str.to_lowercase().str.replace_all(r"\s+", " ").str.strip_chars()


def _apart(metric: Metric, predictions: pl.Series, targets: pl.Series) -> Gains:
    """Return how far predictions are from labels, as a share of the declared range."""
    low, high = metric.within
    first, other = (np.clip(values.cast(pl.Float64).to_numpy(), low, high) for values in (predictions, targets))
    shares: Gains = np.abs(first - other) / (high - low)
    return shares


def _right(predictions: pl.Series, targets: pl.Series) -> Gains:
    """Return the probability that was given to what is true."""
    given = predictions.cast(pl.Float64).to_numpy()
    chances: Gains = np.where(targets.cast(pl.Boolean).to_numpy(), given, 1 - given)
    return chances


def _log_gain(metric: Metric, predictions: pl.Series, targets: pl.Series) -> Gains:
    gains: Gains = 1 - np.log(np.clip(_right(predictions, targets), metric.clip, 1.0)) / log(metric.clip)
    return gains


def _given(metric: Metric, predictions: pl.Series, targets: pl.Series) -> Gains:
    low, high = metric.within
    shares: Gains = (predictions.cast(pl.Float64).to_numpy() - low) / (high - low)
    return shares


LOG_LOSS = "log_loss"
_LABELS = (Type.BOOL, Type.INT, Type.STRING)
_NUMBERS, _BINARY = (Type.INT, Type.FLOAT), (Type.BOOL, Type.INT)
METRICS = {
    "accuracy": Rule("the share of predictions that equal the label", True, _LABELS, None, _same),
    "exact_match": Rule(
        "the share of texts that equal the label, but for case and spaces", True, (Type.STRING,), None, _same_text
    ),
    "absolute_error": Rule(
        "the mean distance, of values clipped to the declared range",
        False,
        _NUMBERS,
        Type.FLOAT,
        lambda metric, one, other: 1 - _apart(metric, one, other),
        bounded=True,
    ),
    "squared_error": Rule(
        "the mean squared distance, of values clipped to the declared range",
        False,
        _NUMBERS,
        Type.FLOAT,
        lambda metric, one, other: 1 - _apart(metric, one, other) ** 2,
        bounded=True,
    ),
    LOG_LOSS: Rule(
        "-log of the probability given to the truth, which counts as at least the clip",
        False,
        _BINARY,
        Type.FLOAT,
        _log_gain,
        probability=True,
    ),
    "brier": Rule(
        "the mean squared distance of the probability from 0 or 1",
        False,
        _BINARY,
        Type.FLOAT,
        lambda metric, one, other: 1 - (1 - _right(one, other)) ** 2,
        probability=True,
    ),
    "score": Rule("the mean of scores that a trusted program made", True, (), Type.FLOAT, _given, bounded=True),
    "loss": Rule(
        "the mean of losses that a trusted program made",
        False,
        (),
        Type.FLOAT,
        lambda metric, one, other: 1 - _given(metric, one, other),
        bounded=True,
    ),
}
