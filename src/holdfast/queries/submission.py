"""A submission to a board: a prediction for every row, scored where the rows with the labels are.

A metric says how a prediction is scored against a label: one row at a time, between a declared lowest and highest
value. The score is turned into a *gain* between 0 and 1, where more is better; a board's grid is a grid of gains.
"""

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.guarantees.statistic import GRID, OneMean, OutcomeShares, Statistic
from holdfast.queries.query import Query, Values
from holdfast.schema import Type

Interval = tuple[float, float]
Gains = NDArray[np.float64]
_KEYS = secrets.randbits(63), secrets.randbits(63)
CLIP = 0.001  # the least probability that log loss uses: one row costs at most log(1000)
CELLS = ("true positives", "false positives", "false negatives", "true negatives")


@dataclass(frozen=True)
class Rule:
    """The definition of one metric."""

    means: str
    higher: bool  # whether more of it is better
    targets: tuple[Type, ...]  # types that labels may have; empty: submissions bring their own scores
    predicts: Type | None  # the type of predictions; None: the labels' type
    gain: Callable[["Metric", pl.DataFrame, pl.Series], Gains]
    bounded: bool = False  # whether a range of labels or scores must be declared
    probability: bool = False  # whether predictions are probabilities
    listed: bool = False  # whether predictions are labels that may be listed
    differs: Callable[[pl.DataFrame, pl.DataFrame], NDArray[np.bool_]] | None = None  # if gains are 0 or 1


@dataclass(frozen=True)
class Metric:
    """A metric with its numbers: `within` is the declared range of labels or scores, `clip` the least probability.

    `classes` are the labels that get a probability, one column each; if empty, the only column is the probability of
    true. Where predictions are labels, they are all that a prediction may be; if empty, it may be anything.
    """

    name: str
    within: Interval = (0.0, 1.0)
    clip: float = CLIP
    classes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, name: str, within: Interval | None = None, clip: float | None = None, classes: Sequence[str] | None = None
    ) -> "Metric":
        """Return the metric of this name; refuse options that it does not take, or needs and lacks."""
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
        if classes is not None and not rule.probability and not rule.listed:
            raise InvalidArgument(
                f"classes must be left out for {name}: they are for accuracy and for probabilities.", name="classes"
            )
        if classes is not None and (len(set(classes)) < 2 or not all(isinstance(each, str) for each in classes)):
            raise InvalidArgument(f"classes must be two labels or more, as text; got {classes!r}.", name="classes")
        if clip is not None:
            check.probability(clip=clip)
            check.at_most("a half", 0.5, clip=clip)
        bounds = (0.0, 1.0) if within is None else check.interval("within", within)
        return cls(name, bounds, clip or CLIP, tuple(dict.fromkeys(classes or ())))

    @property
    def rule(self) -> Rule:
        """The definition of the metric."""
        return METRICS[self.name]

    @property
    def bounds(self) -> Interval:
        """The lowest and the highest value that it can have."""
        low, high = self.within
        largest = {"absolute_error": high - low, "squared_error": (high - low) ** 2, LOG_LOSS: log(1 / self.clip)}
        largest |= {BRIER: 2.0} if self.classes else {}
        return self.within if not self.rule.targets else (0.0, largest.get(self.name, 1.0))

    @property
    def text(self) -> str:
        """Its name, as people read it."""
        return self.name.replace("_", " ")

    def apart(self, one: pl.DataFrame, other: pl.DataFrame) -> Gains:
        """Return how far the gains of two predictions for each row can differ, whatever its label is."""
        if self.rule.differs is not None:
            return self.rule.differs(one, other).astype(np.float64)
        # A difference of errors is monotone in the label, so it is largest at an end of the labels' range.
        ends: Sequence[object] = self.classes or ((True, False) if self.rule.probability else self.within)
        labels = [pl.Series([end]).new_from_index(0, one.height) for end in ends]
        differences = [np.abs(self.gains(one, label) - self.gains(other, label)) for label in labels]
        largest: Gains = np.max(differences, axis=0)
        return largest

    def gains(self, predictions: pl.DataFrame, targets: pl.Series) -> Gains:
        """Return what each row gains, in [0, 1]."""
        return np.clip(np.nan_to_num(self.rule.gain(self, predictions, targets), nan=0.0), 0.0, 1.0)


def _same(metric: Metric, predictions: pl.DataFrame, targets: pl.Series) -> Gains:
    return equal(predictions.to_series(), targets).astype(np.float64)  # neither has missing values


def _same_text(metric: Metric, predictions: pl.DataFrame, targets: pl.Series) -> Gains:
    return equal(_plain(predictions.to_series()), _plain(targets)).astype(np.float64)


def equal(one: pl.Series, other: pl.Series) -> NDArray[np.bool_]:
    """Return where two series are equal. Texts are compared by their hashes, 128 bits under secret keys.

    Equal texts take longer to compare than different ones, so the time would reveal how many predictions are right.
    """
    if one.dtype != pl.String:
        return (one == other).to_numpy()
    first, second = ((one.hash(key) == other.hash(key)).to_numpy() for key in _KEYS)
    both: NDArray[np.bool_] = first & second
    return both


def _unlike(one: pl.DataFrame, other: pl.DataFrame) -> NDArray[np.bool_]:
    return (one.to_series() != other.to_series()).to_numpy()


def _unlike_text(one: pl.DataFrame, other: pl.DataFrame) -> NDArray[np.bool_]:
    return (_plain(one.to_series()) != _plain(other.to_series())).to_numpy()


def _plain(texts: pl.Series) -> pl.Series:
    return texts.str.to_lowercase().str.replace_all(r"\s+", " ").str.strip_chars()


def _apart(metric: Metric, predictions: pl.DataFrame, targets: pl.Series) -> Gains:
    """Return how far predictions are from labels, as a share of the declared range."""
    low, high = metric.within
    pair = (values.cast(pl.Float64).to_numpy() for values in (predictions.to_series(), targets))
    first, other = (np.clip(values, low, high) for values in pair)
    shares: Gains = np.abs(first - other) / (high - low)
    return shares


def _right(metric: Metric, predictions: pl.DataFrame, targets: pl.Series) -> Gains:
    """Return the probability that was given to the true label."""
    given = predictions.to_numpy()
    if metric.classes:
        places = targets.cast(pl.Enum(metric.classes), strict=False).to_physical().fill_null(0).to_numpy()
        return np.take_along_axis(given, places[:, None].astype(np.int64), axis=1)[:, 0]
    chances: Gains = np.where(targets.cast(pl.Boolean).to_numpy(), given[:, 0], 1 - given[:, 0])
    return chances


def _log_gain(metric: Metric, predictions: pl.DataFrame, targets: pl.Series) -> Gains:
    gains: Gains = 1 - np.log(np.clip(_right(metric, predictions, targets), metric.clip, 1.0)) / log(metric.clip)
    return gains


def _brier_gain(metric: Metric, predictions: pl.DataFrame, targets: pl.Series) -> Gains:
    right = _right(metric, predictions, targets)
    if not metric.classes:
        return 1 - (1 - right) ** 2
    gains: Gains = 1 - (np.square(predictions.to_numpy()).sum(axis=1) - 2 * right + 1) / 2
    return gains


def _given(metric: Metric, predictions: pl.DataFrame, targets: pl.Series) -> Gains:
    low, high = metric.within
    shares: Gains = (predictions.to_series().cast(pl.Float64).to_numpy() - low) / (high - low)
    return shares


LOG_LOSS, BRIER = "log_loss", "brier"
_LABELS = (Type.BOOL, Type.INT, Type.STRING)
_NUMBERS = (Type.INT, Type.FLOAT)
METRICS = {
    "accuracy": Rule(
        "the share of predictions that equal the label", True, _LABELS, None, _same, listed=True, differs=_unlike
    ),
    "exact_match": Rule(
        "the share of texts that equal the label, but for case and spaces",
        True,
        (Type.STRING,),
        None,
        _same_text,
        differs=_unlike_text,
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
        _LABELS,
        Type.FLOAT,
        _log_gain,
        probability=True,
    ),
    BRIER: Rule(
        "the mean squared distance of probabilities from 0 or 1, added up over classes",
        False,
        _LABELS,
        Type.FLOAT,
        _brier_gain,
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


@dataclass(frozen=True, eq=False)
class Submission(Query):
    """Predictions in the order of the rows. Row i's value is its gain in whole units of 2^-40, which add up exactly.

    The value depends on row i and on its number i: independent rows may be asked this even if not identically
    distributed.
    """

    metric: Metric
    predictions: pl.DataFrame
    label: str  # the column that predictions are compared with; the ids if submissions bring scores
    numbered: ClassVar[bool] = True

    @property
    def statistic(self) -> Statistic:
        """The mean gain."""
        return OneMean()

    @property
    def columns(self) -> tuple[str, ...]:
        """The labels."""
        return (self.label,)

    @property
    def text(self) -> str:
        """The question in words."""
        return f"{self.metric.text} of a submission"

    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return the gains of these rows, which are the first ones."""
        return self._units(rows, self.predictions[: rows.height])

    def evaluate_parts(self, rows: pl.DataFrame, part: NDArray[np.int64], draw: NDArray[np.int64]) -> Values:
        """Return the gains of these rows, which are consecutive and whose numbers are in `draw`."""
        return self._units(rows, self.predictions[int(draw[0]) : int(draw[-1]) + 1])

    def of_units(self, values: Values, starts: NDArray[np.int64]) -> Values:
        """Return the mean gain of each unit's rows, again in whole units of 2^-40; see `unit_means`."""
        return np.rint(unit_means(values, starts)).astype(np.int64)

    def _units(self, rows: pl.DataFrame, predictions: pl.DataFrame) -> Values:
        gains = self.metric.gains(predictions, rows[self.label])
        units: NDArray[np.int64] = np.rint(gains * 2.0**GRID).astype(np.int64)
        return units


def unit_means(values: NDArray[Any], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean of each unit's values. Units are contiguous: each runs from its start to the next start.

    >>> unit_means(np.array([1, 0, 0, 1]), np.array([0, 3, 4])).tolist()
    [0.3333333333333333, 1.0]
    """
    means: NDArray[np.float64] = np.add.reduceat(values, starts[:-1] - starts[0]) / np.diff(starts)
    return means


@dataclass(frozen=True, eq=False)
class PredictedCells(Query):
    """Which of the four cells a row is in, from its label and from the prediction for its id.

    The prediction is looked up by the row's own id, so the cell is a function of the row, wherever it is drawn.
    """

    ids: pl.Series  # of all rows, sorted
    predicted: NDArray[np.bool_]  # whether each id is predicted to be positive, in the same order
    positive: Any
    id: str
    target: str
    digest: str

    @property
    def statistic(self) -> Statistic:
        """The share of each cell."""
        return OutcomeShares(len(CELLS))

    @property
    def columns(self) -> tuple[str, ...]:
        """The ids and the labels."""
        return self.id, self.target

    @property
    def text(self) -> str:
        """The question in words."""
        return f"confusion of submission {self.digest[:12]}, {self.target} = {str(self.positive)!r} being positive"

    @property
    def identity(self) -> str:
        """Canonical text."""
        return json.dumps({"confusion": self.digest, "positive": self.positive}, sort_keys=True)

    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return the number of each row's cell."""
        places = np.minimum(self.ids.search_sorted(rows[self.id]).to_numpy(), len(self.ids) - 1)
        labels = rows[self.target]
        predicted = self.predicted[places]
        real = equal(labels, pl.Series([self.positive], dtype=labels.dtype).new_from_index(0, labels.len()))
        return np.where(real, np.where(predicted, 0, 2), np.where(predicted, 1, 3))
