"""Bounded linear regression, with the squared loss or Huber's."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from holdfast.optimize.losses import Huber, LinearLoss, Squared
from holdfast.session import Session
from holdfast.sklearn.linear import Array, LinearModel


class LinearRegression(RegressorMixin, LinearModel):  # type: ignore[misc]
    """Least squares for a target within declared `target_bounds`; values outside are clipped, predictions too."""

    def __init__(
        self,
        *,
        target_bounds: tuple[float, float] = (-3.0, 3.0),
        bounds: Any = (-3.0, 3.0),
        radius: float = 1.0,
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
        self.target_bounds = target_bounds

    def _loss(self, features: Mapping[str, Any], target: str) -> LinearLoss:
        return Squared(features, target, target_within=self.target_bounds, l2=self.l2)

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from these rows, in a session that is opened for this fit alone."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        session, (*features, column) = self._own_session(X, np.asarray(y, dtype=np.float64), 1)
        with session:
            self._learn(session, features, [column])
        return self

    def fit_session(self, session: Session, features: Sequence[str], target: str) -> Self:
        """Learn from the rows of a session; `target` is a column or an expression."""
        self._learn(session, list(features), [target])
        self._set_features(features)
        return self

    def _learn(self, session: Session, features: Sequence[str], targets: Sequence[str]) -> None:
        super()._learn(session, features, targets)
        self.coef_, self.intercept_ = self.coef_[0], self.intercept_[0]

    def predict(self, X: Any) -> Array:
        """Return predictions, clipped to the target's bounds."""
        return np.clip(self._linear(X)[:, 0], *self.target_bounds)


class HuberRegressor(LinearRegression):
    """The same with Huber's loss: quadratic up to `delta`, a share of half the target's range, linear beyond."""

    def __init__(
        self,
        *,
        delta: float = 0.25,
        target_bounds: tuple[float, float] = (-3.0, 3.0),
        bounds: Any = (-3.0, 3.0),
        radius: float = 1.0,
        l2: float = 0.0,
        iterations: int | None = None,
        rows_per_coordinate: int | None = None,
        average: str = "suffix",
        confidence: float = 0.95,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            target_bounds=target_bounds,
            bounds=bounds,
            radius=radius,
            l2=l2,
            iterations=iterations,
            rows_per_coordinate=rows_per_coordinate,
            average=average,
            confidence=confidence,
            random_state=random_state,
        )
        self.delta = delta

    def _loss(self, features: Mapping[str, Any], target: str) -> LinearLoss:
        return Huber(features, target, target_within=self.target_bounds, l2=self.l2, delta=self.delta)
