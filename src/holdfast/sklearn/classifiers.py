"""Linear classifiers: logistic regression and a smoothed support vector machine; many classes, one against the rest."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from holdfast.errors import InvalidArgument
from holdfast.optimize.losses import LinearLoss, Logistic, SmoothedHinge
from holdfast.session import Session
from holdfast.sklearn.linear import Array, LinearModel, sql_literal, sql_name


class LinearClassifier(ClassifierMixin, LinearModel):  # type: ignore[misc]
    """One weight vector for two classes, one for each class otherwise."""

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from these rows, in a session that is opened for this fit alone."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=False)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InvalidArgument(f"y must have at least 2 classes; got {len(self.classes_)} class.", name="y")
        binary = len(self.classes_) == 2
        asked = 1 if binary else len(self.classes_)
        session, (*features, column) = self._own_session(X, codes == 1 if binary else codes, asked)
        targets = [column] if binary else [f"{sql_name(column)} = {code}" for code in range(asked)]
        with session:
            self._learn(session, features, targets)
        return self

    def fit_session(
        self, session: Session, features: Sequence[str], target: str, *, classes: Sequence[Any] = (False, True)
    ) -> Self:
        """Learn from the rows of a session. `classes` are declared, never read from the data.

        With the default classes `target` is a yes-or-no column or expression; with others it is a column that holds
        them. Two classes are one fit, more are one fit each.
        """
        labels = np.array(list(classes))
        if len(labels) < 2 or len(np.unique(labels)) < len(labels):
            raise InvalidArgument("classes must be at least two different labels.", name="classes")
        self.classes_ = np.sort(labels)
        if list(self.classes_) == [False, True] and self.classes_.dtype == np.bool_:
            targets = [target]
        else:
            asked = self.classes_[1:] if len(labels) == 2 else self.classes_
            targets = [f"{sql_name(target)} = {sql_literal(label)}" for label in asked]
        self._learn(session, list(features), targets)
        self._set_features(features)
        return self

    def decision_function(self, X: Any) -> Array:
        """Return scores: one per row for two classes, one per row and class otherwise."""
        scores = self._linear(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the largest score."""
        check_is_fitted(self)
        scores = self.decision_function(X)
        winners = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[winners]
        return predicted


class LogisticRegression(LinearClassifier):
    """Logistic regression by descent on coins."""

    def _loss(self, features: Mapping[str, Any], target: str) -> LinearLoss:
        return Logistic(features, target, l2=self.l2)

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class; several classes share in proportion to their own."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            yes = expit(scores)
            return np.column_stack([1 - yes, yes])
        each = expit(scores)
        probabilities: Array = each / each.sum(axis=1, keepdims=True)
        return probabilities

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithm of `predict_proba`."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(float).tiny))


class LinearSVC(LinearClassifier):
    """A linear support vector machine; the corner of the hinge is rounded over a width of `smoothing`."""

    def __init__(
        self,
        *,
        smoothing: float = 0.5,
        bounds: Any = (-3.0, 3.0),
        radius: float = 5.0,
        l2: float = 0.0,
        iterations: int | None = None,
        rows_per_coordinate: int | None = None,
        average: str = "suffix",
        confidence: float = 0.95,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            bounds=bounds,
            radius=radius,
            l2=l2,
            iterations=iterations,
            rows_per_coordinate=rows_per_coordinate,
            average=average,
            confidence=confidence,
            random_state=random_state,
        )
        self.smoothing = smoothing

    def _loss(self, features: Mapping[str, Any], target: str) -> LinearLoss:
        return SmoothedHinge(features, target, l2=self.l2, smoothing=self.smoothing)
