"""Score models on a board: every score is a submission, and the board reveals it only if it is better than all before.

    search = GridSearchCV(model, grid, scoring=board_scorer(board, cases, ids), cv=ShuffleSplit(1))

The model predicts the board's cases, which are public, and its predictions are submitted. The search selects the model
that climbed highest; `answers` has the intervals.
"""

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from holdfast.board import Board
from holdfast.errors import InvalidArgument
from holdfast.questions.submit import SubmitAnswer, metric_of
from holdfast.sklearn.estimators import Label
from holdfast.sklearn.scorer import Classifier, Predictor


@dataclass
class BoardScorer:
    """A callable for `scoring=`; greater is better, as scikit-learn expects.

    Parameters
    ----------
    board, cases, ids, positive, by
        As for `board_scorer`.
    answers
        The responses to all submissions so far.
    """

    board: Board = field(repr=False)
    cases: ArrayLike = field(repr=False)
    ids: ArrayLike = field(repr=False)
    positive: Label = True  # which label counts as true, where probabilities are scored
    by: str | None = None
    answers: list[SubmitAnswer] = field(default_factory=list, repr=False)

    def __call__(self, estimator: Predictor, X: ArrayLike | None = None, y: ArrayLike | None = None) -> float:
        """Submit what the estimator predicts; X and y are ignored.

        Returns the worse end of the cell that the board reveals (negated if less is better); if it reveals no cell, the
        worst value of the metric, since nothing else is known about a submission that was no better.
        """
        answer = self.board.submit({"id": np.asarray(self.ids), **self._predictions(estimator)}, by=self.by)
        self.answers.append(answer)
        low, high = answer.cell if answer.improved else answer.bounds
        return low if answer.higher else -high

    def _predictions(self, estimator: Predictor) -> dict[str, Any]:
        metric = metric_of(self.board.ladder)
        if not metric.rule.probability:
            return {"prediction": np.asarray(estimator.predict(self.cases))}
        classifier = cast(Classifier, estimator)
        known, chances = list(classifier.classes_), np.asarray(classifier.predict_proba(self.cases))
        if metric.classes:  # a class the model has never seen has probability 0
            unseen = np.zeros(len(chances))
            return {each: chances[:, known.index(each)] if each in known else unseen for each in metric.classes}
        return {"prediction": chances[:, known.index(self.positive)]}


def board_scorer(
    board: Board, cases: ArrayLike, ids: ArrayLike, *, positive: Label = True, by: str | None = None
) -> BoardScorer:
    """Return a scorer for scikit-learn that submits to a board.

    Parameters
    ----------
    board
        The board; it must have labels.
    cases
        The public features of its rows.
    ids
        The ids of the same rows, in the same order.
    positive
        The label whose probability log loss and Brier scores use.
    by
        Who submits.

    Returns
    -------
    BoardScorer
        A callable for `scoring=`.
    """
    if board.ladder.terms.target is None:
        raise InvalidArgument("board must have labels: a model's predictions are compared with them.", name="board")
    return BoardScorer(board, cases, ids, positive, by)
