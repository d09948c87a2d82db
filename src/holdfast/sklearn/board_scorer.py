"""Score models on a board: every score is a submission, told only if it is better than all before.

    search = GridSearchCV(model, grid, scoring=board_scorer(board, cases, ids), cv=ShuffleSplit(1))

The rows that cross-validation hands over are ignored: the model predicts the board's cases, which are public, and its
predictions are submitted. The model that a search prefers is the one that climbed highest; `answers` has the intervals.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from holdfast.board import Board
from holdfast.errors import InvalidArgument
from holdfast.questions.submit import SubmitAnswer, metric_of


@dataclass
class BoardScorer:
    """A callable for `scoring=`, for which more is better, as scikit-learn wants it."""

    board: Board
    cases: Any
    ids: Sequence[Any]
    positive: Any = True  # which label counts as true, where probabilities are scored
    by: str | None = None
    answers: list[SubmitAnswer] = field(default_factory=list)

    def __call__(self, estimator: Any, X: Any = None, y: Any = None) -> float:
        """Submit what the estimator predicts; X and y are ignored.

        Returns the worse end of the cell that the board tells (negated, if less is better); if it tells no cell, the
        worst value of the metric: nothing else is known of a submission that was no better.
        """
        answer = self.board.submit({"id": np.asarray(self.ids), **self._predictions(estimator)}, by=self.by)
        self.answers.append(answer)
        low, high = answer.cell if answer.improved else answer.bounds
        return low if answer.higher else -high

    def _predictions(self, estimator: Any) -> dict[str, Any]:
        metric = metric_of(self.board.ladder)
        if not metric.rule.probability:
            return {"prediction": np.asarray(estimator.predict(self.cases))}
        known, chances = list(estimator.classes_), np.asarray(estimator.predict_proba(self.cases))
        if metric.classes:  # one that the model has never seen has no chance
            unseen = np.zeros(len(chances))
            return {each: chances[:, known.index(each)] if each in known else unseen for each in metric.classes}
        return {"prediction": chances[:, known.index(self.positive)]}


def board_scorer(
    board: Board, cases: Any, ids: Sequence[Any], *, positive: Any = True, by: str | None = None
) -> BoardScorer:
    """Return a scorer for scikit-learn that submits to a board.

    `cases` are the public features of the board's rows, and `ids` name them, in the same order; `positive` is the label
    whose probability is scored by log loss and Brier scores, `by` who submits.
    """
    if board.ladder.terms.target is None:
        raise InvalidArgument("board must have labels: a model's predictions are compared with them.", name="board")
    return BoardScorer(board, cases, ids, positive, by)
