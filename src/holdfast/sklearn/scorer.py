"""Score models on the rows of a session: every score is an answer, charged to the ledger, valid under any search.

    search = GridSearchCV(model, grid, scoring=scorer(session, "accuracy", features=[...], target="late"))

The rows that cross-validation passes in are ignored: the model is judged on the session's rows. Its score comes with an
interval for the population, and all intervals of the search hold at once (`answers`).

If the session only checks guesses (`hold_back`), the rows passed in provide the guess: the score on them is checked on
the held rows. If the guess holds, it is the score; if not, the score is the end of its margin that the held rows lie
beyond. A search whose guesses hold costs next to nothing, however long it is.

`confusion` and `calibration` show how a classifier errs: one histogram counts the rows in each cell (actual and
predicted label), for the price of one answer per cell. Precision, recall and F1 are ratios of these shares; their
ranges over all values that the four intervals allow hold together with all other answers of the session.

`board_scorer(board, cases, ids)` submits to a board what the model predicts for its cases, which are public: the board
reveals a score only if it is better than all before, and the search selects the model that climbed highest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any, Protocol, cast

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from holdfast import check
from holdfast.board import Board
from holdfast.errors import InvalidArgument
from holdfast.guarantees.statistic import TOO_HIGH, TOO_LOW
from holdfast.questions.answer import Answer
from holdfast.questions.check import ERRORS, CheckAnswer
from holdfast.questions.confusion import ConfusionAnswer
from holdfast.questions.mean import GroupsAnswer
from holdfast.questions.submit import SubmitAnswer, metric_of
from holdfast.session.session import Session
from holdfast.sklearn.estimators import Label

Array = NDArray[np.float64]
LARGEST = float(np.finfo(np.float32).max)
SHARES = ("accuracy", "precision", "recall", "f1", "roc_auc")
METRICS = (*SHARES, "brier", "log_loss", "absolute_error", "squared_error")


class Predictor(Protocol):
    """What is scored: a fitted model, of scikit-learn or one that predicts like those, whatever it takes as inputs."""

    def predict(self, X: Any) -> NDArray[Any]:
        """Return a prediction for each row."""


class Classifier(Predictor, Protocol):
    """What metrics of probabilities and of ranks need in addition."""

    classes_: NDArray[Any]

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each of `classes_`, for each row."""

    def decision_function(self, X: Any) -> Array:
        """Return scores; needed only in place of probabilities."""


@dataclass
class Scorer:
    """A callable for `scoring=`. Errors and losses are negated, since for scikit-learn greater is better.

    Parameters
    ----------
    session, metric, features, target, most, positive
        As for `scorer`.
    answers
        All scores so far, with their intervals.
    """

    session: Session = field(repr=False)
    metric: str
    features: tuple[str, ...]
    target: str
    most: float  # losses and errors are clipped to [0, most]
    positive: Label = True  # which label counts as 1; accuracy and errors need none
    answers: list[Answer | CheckAnswer] = field(default_factory=list, repr=False)

    def __call__(self, estimator: Predictor, X: ArrayLike | None = None, y: ArrayLike | None = None) -> float:
        """Ask the session how good the estimator is on the population; X and y are for sessions that check guesses."""
        if only_checks(self.session):
            return self._checked(estimator, X, y)
        answer: Answer
        if self.metric in _GROUPS:
            answer = self._in_group(estimator)
        elif self.metric == "roc_auc":
            answer = self._area(estimator)
        else:
            within = None if self.metric in SHARES else (0.0, self.most)
            answer = self.session.mean(_ROW_SCORES[self.metric](self, estimator), within=within)
        self.answers.append(answer)
        return answer.value if self.metric in SHARES else -answer.value

    def _checked(self, estimator: Predictor, X: ArrayLike | None, y: ArrayLike | None) -> float:
        """Check the estimator's score on these rows; the margin covers their sampling error and the held rows'."""
        if X is None or y is None:
            raise InvalidArgument("X and y must be given: the estimator's score on them is checked.", name="X")
        given: Any = X  # an array, or a frame of any library
        columns = {name: np.asarray(given)[:, place] for place, name in enumerate(self.features)}
        if hasattr(given, "columns"):
            columns = {name: np.asarray(given[name]) for name in self.features}
        score = self._complete(_ROW_SCORES[self.metric](self, estimator))
        labels = np.asarray(y)
        target = pl.Series(labels.tolist() if labels.dtype.kind == "O" else labels)  # objects: texts or missing values
        row_values = np.asarray(score(pl.DataFrame(columns | {self.target: target})), dtype=np.float64)
        held, within = self.session.plan.terms.rows, None if self.metric in SHARES else (0.0, self.most)
        least_spread = self.most / sqrt(row_values.size)  # a mean is not more precise than one row's worth
        spread = max(float(row_values.std()), least_spread)
        guess, margin = float(row_values.mean()), ERRORS * spread * sqrt(1 / row_values.size + 1 / held)
        if guess - margin <= 0 and guess + margin >= self.most:
            raise InvalidArgument(
                f"X must have more rows: a score on {row_values.size} says nothing about the others.", name="X"
            )
        least = None if within is None else held  # every row has a value
        answer = self.session.check(score, guess, margin, within=within, at_least=least)
        self.answers.append(answer)
        ends = {TOO_LOW: answer.guess + answer.margin, TOO_HIGH: answer.guess - answer.margin}
        value = min(max(ends.get(answer.outcome, answer.guess), 0.0), self.most)
        return value if self.metric in SHARES else -value

    def _complete(self, score: "RowScore") -> "RowScore":
        """Return the same score, clipped and without missing values: a row without a target gets the worst value."""
        if self.metric in SHARES:
            return score
        return lambda rows: np.clip(np.nan_to_num(score(rows), nan=self.most), 0.0, self.most)

    def _in_group(self, estimator: Predictor) -> Answer:
        """Precision and recall are shares in a group of rows. F1 is 2J/(1 + J), increasing in such a share J."""

        def both(rows: pl.DataFrame) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
            real = self.positives(rows)
            return real == 1, self.predicted(estimator, rows) & ~np.isnan(real)

        share, group = _GROUPS[self.metric]
        found = self.session.mean(lambda rows: share(*both(rows)), where=lambda rows: group(*both(rows)))
        if self.metric != "f1":
            return found
        return replace(found, value=_f1(found.value), low=_f1(found.low), high=_f1(found.high))

    def _area(self, estimator: Predictor) -> Answer:
        """Rank by the probability of the positive label or, without one, by the decision mapped to [0, 1]."""

        def squeezed(rows: pl.DataFrame) -> Array:
            ranking = cast(Classifier, estimator)
            decisions: Array = np.asarray(ranking.decision_function(self.inputs(estimator, rows)), dtype=np.float64)
            return np.asarray(expit(decisions if self.positive == ranking.classes_[-1] else -decisions))

        score = (lambda rows: self.probability(estimator, rows)) if hasattr(estimator, "predict_proba") else squeezed
        return self.session.auc(score, self._positive, within=(0.0, 1.0), where=self._known)

    def _positive(self, rows: pl.DataFrame) -> pl.Series:
        found: pl.Series = rows.get_column(self.target) == self.positive
        return found

    def _known(self, rows: pl.DataFrame) -> pl.Series:
        return rows.get_column(self.target).is_not_null()

    def predicted(self, estimator: Predictor, rows: pl.DataFrame) -> NDArray[np.bool_]:
        """Return whether the estimator predicts the positive label.

        Parameters
        ----------
        estimator
            A fitted model.
        rows
            Rows with the columns of the session.
        """
        return np.asarray(np.asarray(estimator.predict(self.inputs(estimator, rows))) == self.positive)

    def inputs(self, estimator: Predictor, rows: pl.DataFrame) -> Array | pl.DataFrame:
        """Return the estimator's inputs: finite numbers, with names if it was fitted with names.

        Parameters
        ----------
        estimator
            A fitted model.
        rows
            Rows with the columns of the session.
        """
        columns = [rows.get_column(name).cast(pl.Float64, strict=False).to_numpy() for name in self.features]
        matrix: Array = np.nan_to_num(np.column_stack(columns), nan=0.0, posinf=0.0, neginf=0.0)
        np.clip(matrix, -LARGEST, LARGEST, out=matrix)  # trees refuse larger values, and retries are slow
        if not hasattr(estimator, "feature_names_in_"):
            return matrix
        return pl.DataFrame(matrix, schema=list(self.features))

    def targets(self, rows: pl.DataFrame) -> Array:
        """Return the target of rows as numbers; NaN where it is missing.

        Parameters
        ----------
        rows
            Rows with the columns of the session.
        """
        numbers: Array = rows.get_column(self.target).cast(pl.Float64, strict=False).to_numpy()
        return numbers

    def positives(self, rows: pl.DataFrame) -> Array:
        """Return 1 where the target is the positive label, 0 where it is another; NaN where it is missing.

        Parameters
        ----------
        rows
            Rows with the columns of the session.
        """
        numbers: Array = self._positive(rows).cast(pl.Float64).to_numpy()
        return numbers

    def probability(self, estimator: Predictor, rows: pl.DataFrame) -> Array:
        """Return the estimator's probability of the positive label.

        Parameters
        ----------
        estimator
            A fitted model.
        rows
            Rows with the columns of the session.
        """
        classifier = cast(Classifier, estimator)
        column = list(classifier.classes_).index(self.positive)
        chances: Array = classifier.predict_proba(self.inputs(estimator, rows))[:, column]
        return chances


RowScore = Callable[[pl.DataFrame], Any]


def only_checks(session: Session) -> bool:
    """Whether the session only checks guesses and gives no other answers."""
    return session.plan.standing.only_kind is not None


def _accuracy(score: Scorer, estimator: Predictor) -> RowScore:
    def right(rows: pl.DataFrame) -> Any:
        predicted = pl.Series(np.asarray(estimator.predict(score.inputs(estimator, rows))))
        return (rows.get_column(score.target) == predicted).fill_null(False)

    return right


def _brier(score: Scorer, estimator: Predictor) -> RowScore:
    return lambda rows: (score.probability(estimator, rows) - score.positives(rows)) ** 2


def _log_loss(score: Scorer, estimator: Predictor) -> RowScore:
    def loss(rows: pl.DataFrame) -> Any:
        chance, yes = score.probability(estimator, rows), score.positives(rows)
        given = np.where(yes == 1, chance, 1 - chance) + 0 * yes  # NaN if the label is missing
        return np.minimum(-np.log(np.maximum(given, np.exp(-score.most))), score.most)

    return loss


def _absolute_error(score: Scorer, estimator: Predictor) -> RowScore:
    return lambda rows: np.abs(estimator.predict(score.inputs(estimator, rows)) - score.targets(rows))


def _squared_error(score: Scorer, estimator: Predictor) -> RowScore:
    return lambda rows: (estimator.predict(score.inputs(estimator, rows)) - score.targets(rows)) ** 2


def _f1(jaccard: float) -> float:
    return 2 * jaccard / (1 + jaccard)


Both = Callable[[NDArray[np.bool_], NDArray[np.bool_]], NDArray[np.bool_]]  # actual, predicted -> chosen
_GROUPS: dict[str, tuple[Both, Both]] = {  # which share, among which rows
    "precision": (lambda real, predicted: real, lambda real, predicted: predicted),
    "recall": (lambda real, predicted: predicted, lambda real, predicted: real),
    "f1": (lambda real, predicted: real & predicted, lambda real, predicted: real | predicted),
}
_ROW_SCORES: dict[str, Callable[[Scorer, Predictor], RowScore]] = {
    "accuracy": _accuracy,
    "brier": _brier,
    "log_loss": _log_loss,
    "absolute_error": _absolute_error,
    "squared_error": _squared_error,
}


def scorer(
    session: Session,
    metric: str = "accuracy",
    *,
    features: Sequence[str],
    target: str,
    most: float | None = None,
    positive: Label = True,
) -> Scorer:
    """Return a scorer for scikit-learn that asks the session, one answer per score; precision, recall and F1 take two.

    A session that only checks guesses checks the score on the rows that cross-validation passes in; it has no
    precision, recall, F1 or ROC AUC.

    A row without a target counts as wrong for accuracy, and gets the worst value where guesses are checked; otherwise
    it is left out.

    ROC AUC takes 17: it is computed from the shares of positives and of negatives in eight steps of the probability.

    Parameters
    ----------
    session
        What is asked.
    metric
        "accuracy", "precision", "recall", "f1", "roc_auc", "brier", "log_loss", "absolute_error" or
        "squared_error".
    features
        The columns that the model was fitted to.
    target
        The column of labels or numbers that it predicts.
    most
        What log loss (by default at 5) and errors (where it is required) are clipped to; Brier scores are at most 1
        anyway.
    positive
        Which label counts as 1; accuracy and errors need none.

    Returns
    -------
    Scorer
        A callable for `scoring=`.
    """
    check.one_of("metric", metric, METRICS)
    if only_checks(session) and metric not in _ROW_SCORES:
        raise InvalidArgument(
            f"metric must be a mean over rows where a session checks guesses: one of {', '.join(_ROW_SCORES)}; got"
            f" {metric!r}. A session that answers questions can score it.",
            name="metric",
        )
    for name in (*features, target):
        session.schema[name]
    if not features:
        raise InvalidArgument("features must name at least one column; got none.", name="features")
    if most is None:
        if metric in ("absolute_error", "squared_error"):
            raise InvalidArgument(f"most must be declared for {metric}: larger errors are clipped to it.", name="most")
        most = 5.0 if metric == "log_loss" else 1.0
    check.positive(most=most)
    return Scorer(session, metric, tuple(features), target, float(most), positive)


# -- how a classifier errs --------------------------------------------------------------------------------------------


def confusion(
    session: Session, estimator: Predictor, *, features: Sequence[str], target: str, positive: Label = True
) -> ConfusionAnswer:
    """Return the four cells of a classifier on the population, and precision, recall and F1, for 5 answers.

    Parameters
    ----------
    session
        What is asked.
    estimator
        A fitted classifier.
    features, target
        As for `scorer`.
    positive
        The label that counts as positive.

    Returns
    -------
    ConfusionAnswer
        The four cells; rows without a label are in none.
    """
    judge = scorer(session, "accuracy", features=features, target=target, positive=positive)

    def cell_of_confusion(rows: pl.DataFrame) -> NDArray[np.float64]:
        real, predicted = judge.positives(rows) == 1, judge.predicted(estimator, rows)
        code = np.where(real, np.where(predicted, 0.0, 2.0), np.where(predicted, 1.0, 3.0))
        known = rows.get_column(target).is_not_null().to_numpy()
        return np.where(known, code, np.nan)

    found = session.histogram(cell_of_confusion, categories=[0.0, 1.0, 2.0, 3.0])
    return ConfusionAnswer(found.answers, found.record)


def calibration(
    session: Session,
    estimator: Predictor,
    *,
    features: Sequence[str],
    target: str,
    positive: Label = True,
    bins: int = 5,
) -> GroupsAnswer:
    """Return how often the label is positive, by the estimator's probability, in bins of [0, 1].

    One question covers all bins, at two answers per bin; the model is calibrated in a bin if the interval meets it.

    Parameters
    ----------
    session, estimator, features, target, positive
        As for `confusion`.
    bins
        How many bins of equal width.

    Returns
    -------
    GroupsAnswer
        An answer for each bin, named by its middle. Bins with too few rows say so.
    """
    check.whole(2, bins=bins)
    check.at_most("the most bins", 50, bins=bins)
    judge = scorer(session, "brier", features=features, target=target, positive=positive)
    middles = [(2 * place + 1) / (2 * bins) for place in range(bins)]

    def positive_label(rows: pl.DataFrame) -> Any:
        return judge.positives(rows) == 1

    def predicted(rows: pl.DataFrame) -> NDArray[np.float64]:
        chance = np.clip(judge.probability(estimator, rows), 0.0, 1.0)
        return np.asarray(middles)[np.minimum((chance * bins).astype(np.int64), bins - 1)]

    return session.mean(positive_label, by=predicted, groups=middles)


# -- on a board -------------------------------------------------------------------------------------------------------


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
