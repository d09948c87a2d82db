"""How a classifier errs on the population: its four cells and all that follows from them, and its calibration.

One histogram says how many rows are in each cell (what is, and what is predicted), for the price of one answer a cell.
Precision, recall and F1 are shares of shares; their ranges over everything that the four intervals allow hold together
with all other answers of the session.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast import check
from holdfast.answer import Answer, Estimate, rounded_alike
from holdfast.guarantees.mathematics.ratios import ratio_range
from holdfast.pictures import Picture
from holdfast.questions.groups import GroupsAnswer
from holdfast.questions.histogram import HistogramAnswer
from holdfast.session import Session
from holdfast.sklearn.scorer import scorer

CELLS = ("true positives", "false positives", "false negatives", "true negatives")
Interval = tuple[float, float]


@dataclass(frozen=True, repr=False)
class Confusion:
    """The four cells of a classifier, as shares of the population, and what follows from them.

    Parameters
    ----------
    answer
        The histogram of the cells; rows without a label are "other".
    """

    answer: HistogramAnswer

    @property
    def cells(self) -> dict[str, Answer]:
        """The share of each cell."""
        return {name: answer for name, (_, answer) in zip(CELLS, self.answer.answers, strict=False)}

    @property
    def accuracy(self) -> Answer:
        """The share of rows that are predicted right, of those with a label."""
        return self._ratio(("true positives", "true negatives"), ("false positives", "false negatives"))

    @property
    def precision(self) -> Answer:
        """The share of positives among those predicted to be."""
        return self._ratio(("true positives",), ("false positives",))

    @property
    def recall(self) -> Answer:
        """The share of positives that are found."""
        return self._ratio(("true positives",), ("false negatives",))

    @property
    def specificity(self) -> Answer:
        """The share of negatives that are left alone."""
        return self._ratio(("true negatives",), ("false positives",))

    @property
    def f1(self) -> Answer:
        """The harmonic mean of precision and recall: 2J/(1 + J), where J is the share of hits among all that count."""
        found = self._ratio(("true positives",), ("false positives", "false negatives"))
        values = (found.value, found.low, found.high)
        value, low, high = (2 * jaccard / (1 + jaccard) for jaccard in values)
        return replace(found, value=value, low=low, high=high)

    def _ratio(self, part: Sequence[str], rest: Sequence[str]) -> Answer:
        """Return the share of some cells among these and others."""
        every = {**self.cells, "other": self.answer.answers[-1][1]}
        others = [name for name in every if name not in (*part, *rest)]
        sums = [_sum([every[name] for name in names]) for names in (part, rest, others)]
        shares = [sum(every[name].value for name in names) for names in (part, rest)]
        interval = ratio_range(*sums)
        value = shares[0] / sum(shares) if sum(shares) > 0 else 0.5
        found = Estimate.within((0.0, 1.0), value, interval)
        return Answer(found.value, found.low, found.high, self.answer.record)

    def _scores(self) -> list[tuple[str, Answer]]:
        return [(name, getattr(self, name)) for name in ("accuracy", "precision", "recall", "specificity", "f1")]

    def _lines(self) -> list[tuple[str, str, str]]:
        named = [*self.cells.items(), *self._scores()]
        texts = rounded_alike([Estimate(one.value, one.low, one.high) for _, one in named])
        return [(name, value, f"[{low}, {high}]") for (name, _), (value, low, high) in zip(named, texts, strict=True)]

    def plot(self) -> Picture:
        """Return a picture of the scores."""
        record = self.answer.record
        return HistogramAnswer(tuple(self._scores()), record).plot()

    def __repr__(self) -> str:
        lines = self._lines()
        width = max(len(name) for name, _, _ in lines)
        return "\n".join(
            [*(f"{name:<{width}}  {value}  {ends}" for name, value, ends in lines), self.answer.record.small_print]
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{name}</td><td>{value}</td><td>{ends}</td></tr>" for name, value, ends in self._lines()
        )
        return f"<table>{rows}</table><small>{escape(self.answer.record.small_print)}</small>"


def _sum(answers: Sequence[Answer]) -> Interval:
    return sum(one.low for one in answers), sum(one.high for one in answers)


def confusion(
    session: Session, estimator: Any, *, features: Sequence[str], target: str, positive: Any = True
) -> Confusion:
    """Return the four cells of a classifier on the population, and precision, recall and F1, for 5 answers.

    `positive` is the label that counts as positive; rows without a label are in no cell.
    """
    judge = scorer(session, "accuracy", features=features, target=target, positive=positive)

    def cell(rows: pl.DataFrame) -> NDArray[np.float64]:
        real, predicted = judge.positives(rows) == 1, judge.predicted(estimator, rows)
        code = np.where(real, np.where(predicted, 0.0, 2.0), np.where(predicted, 1.0, 3.0))
        known = rows.get_column(target).is_not_null().to_numpy()
        return np.where(known, code, np.nan)

    return Confusion(session.histogram(cell, categories=[0.0, 1.0, 2.0, 3.0]))


def calibration(
    session: Session, estimator: Any, *, features: Sequence[str], target: str, positive: Any = True, bins: int = 5
) -> GroupsAnswer:
    """Return how often the label is positive, by the estimator's probability, in `bins` equal parts of [0, 1].

    One question for all bins, and two answers for each; a model is calibrated where the interval meets the bin. Bins
    with too few rows say so. The groups are called by the middle of their bins.
    """
    check.whole(2, bins=bins)
    check.at_most("the most bins", 50, bins=bins)
    judge = scorer(session, "brier", features=features, target=target, positive=positive)
    middles = [(2 * place + 1) / (2 * bins) for place in range(bins)]

    def positives(rows: pl.DataFrame) -> Any:
        return judge.positives(rows) == 1

    def middle(rows: pl.DataFrame) -> NDArray[np.float64]:
        chance = np.clip(judge.probability(estimator, rows), 0.0, 1.0)
        return np.asarray(middles)[np.minimum((chance * bins).astype(np.int64), bins - 1)]

    return session.mean(positives, by=middle, groups=middles)
