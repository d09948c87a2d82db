"""How a classifier errs on the population: its four cells and all that follows from them, and its calibration.

One histogram says how many rows are in each cell (what is, and what is predicted), for the price of one answer a cell.
Precision, recall and F1 are shares of shares; their ranges over everything that the four intervals allow hold together
with all other answers of the session.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast import check
from holdfast.questions.confusion import ConfusionAnswer
from holdfast.questions.groups import GroupsAnswer
from holdfast.session import Session
from holdfast.sklearn.scorer import scorer


def confusion(
    session: Session, estimator: Any, *, features: Sequence[str], target: str, positive: Any = True
) -> ConfusionAnswer:
    """Return the four cells of a classifier on the population, and precision, recall and F1, for 5 answers.

    `positive` is the label that counts as positive; rows without a label are in no cell.
    """
    judge = scorer(session, "accuracy", features=features, target=target, positive=positive)

    def cell(rows: pl.DataFrame) -> NDArray[np.float64]:
        real, predicted = judge.positives(rows) == 1, judge.predicted(estimator, rows)
        code = np.where(real, np.where(predicted, 0.0, 2.0), np.where(predicted, 1.0, 3.0))
        known = rows.get_column(target).is_not_null().to_numpy()
        return np.where(known, code, np.nan)

    found = session.histogram(cell, categories=[0.0, 1.0, 2.0, 3.0])
    return ConfusionAnswer(found.answers, found.record)


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
