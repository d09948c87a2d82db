"""What all estimators share: declared bounds, one fit for each weight vector, weights in the features' own units.

`fit(X, y)` opens a session of its own on the given rows and spends it on this one fit. `fit_session` learns from the
rows of an open session, named by columns, and its cost is charged there. The session is never a parameter: cloning
an estimator copies no data and no budget.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.guarantees.plan import VacuousPlan, plan
from holdfast.optimize.features import INTERCEPT
from holdfast.optimize.losses import LinearLoss
from holdfast.session import Session

Array = NDArray[np.float64]
LEAST_ROWS = 20  # of the information guarantee


class LinearModel(BaseEstimator):  # type: ignore[misc]
    """The parameters and the two ways to learn.

    Parameters
    ----------
    bounds
        The declared range of the features: one pair for all, or a mapping by name. Values outside are clipped.
    radius
        Look for weights in a ball of this radius, for features scaled to [-1, 1].
    l2
        The factor of half the squared norm of the scaled weights.
    iterations, rows_per_coordinate, average
        What to spend, and which points of the descent are averaged; as for `Session.minimize`.
    confidence
        Of the session that `fit` opens.
    random_state
        Makes the session that `fit` opens reproducible.
    """

    def __init__(
        self,
        *,
        bounds: Any = (-3.0, 3.0),
        radius: float = 5.0,
        l2: float = 0.0,
        iterations: int | None = None,
        rows_per_coordinate: int | None = None,
        average: str = "suffix",
        confidence: float = 0.95,
        random_state: Any = None,
    ) -> None:
        self.bounds = bounds
        self.radius = radius
        self.l2 = l2
        self.iterations = iterations
        self.rows_per_coordinate = rows_per_coordinate
        self.average = average
        self.confidence = confidence
        self.random_state = random_state

    def _loss(self, features: Mapping[str, Any], target: str) -> LinearLoss:
        raise NotImplementedError

    # -- learning -----------------------------------------------------------------------------------------------

    def _learn(self, session: Session, features: Sequence[str], targets: Sequence[str]) -> None:
        """Fit once for each target; `coef_` has one line of weights for each, in the features' own units."""
        declared = {name: self._bounds_of(name) for name in features}
        answers = [
            session.minimize(
                self._loss(declared, target),
                radius=self.radius,
                iterations=self.iterations,
                rows_per_coordinate=self.rows_per_coordinate,
                average=self.average,
            )
            for target in targets
        ]
        self.lower_, self.upper_ = np.array(list(declared.values())).T
        models = [answer.coefficients or {} for answer in answers]
        self.coef_ = np.array([[model[name] for name in features] for model in models])
        self.intercept_ = np.array([model[INTERCEPT] for model in models])
        self.answers_ = answers
        self.n_iter_ = max(answer.iterations for answer in answers)

    def _bounds_of(self, name: str) -> tuple[float, float]:
        if not isinstance(self.bounds, Mapping):
            return check.interval("bounds", self.bounds)
        if name not in self.bounds:
            raise InvalidArgument(f"bounds must be declared for every feature; {name!r} has none.", name="bounds")
        return check.interval(f"bounds of {name!r}", self.bounds[name])

    def _own_session(self, X: Array, y: Any, targets: int) -> tuple[Session, list[str]]:
        """Open a session in memory whose whole budget is this fit: (d + 2) answers for each weight vector."""
        names = self._names(X.shape[1])
        columns: dict[str, Any] = {name: np.ascontiguousarray(X[:, j]) for j, name in enumerate(names)}
        column = "target" if "target" not in columns else "target of the fit"
        seed = None if self.random_state is None else int(check_random_state(self.random_state).randint(2**31 - 1))
        if len(X) < 2:
            raise InvalidArgument(f"fit must be given at least 2 rows; got n_samples = {len(X)}: 1 sample.", name="X")
        queries = targets * (X.shape[1] + 2)
        goal: dict[str, Any] = {"queries": queries, "confidence": self.confidence, "mechanism": "coins"}
        # Where rows are too few for any promise, the posterior plan would replace nearly every coin; this one does not.
        few = len(X) >= LEAST_ROWS and plan(rows=len(X), **goal).vacuous
        goal["guarantee"] = "information" if few else "best"
        with warnings.catch_warnings():  # who fits a model to few rows may well want no more than the model
            warnings.simplefilter("ignore", VacuousPlan)
            session = Session(columns | {column: y}, seed=seed, **goal)
        return session, [*names, column]

    def _names(self, count: int) -> list[str]:
        given = getattr(self, "feature_names_in_", None)
        return [f"x{j}" for j in range(count)] if given is None else [str(name) for name in given]

    def _set_features(self, features: Sequence[str]) -> None:
        self.feature_names_in_ = np.array(list(features), dtype=object)
        self.n_features_in_ = len(features)

    # -- predicting ---------------------------------------------------------------------------------------------

    def _linear(self, X: Any) -> Array:
        """Return <weights, features> for every weight vector; features are clipped as they were for learning."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        scores: Array = np.clip(X, self.lower_, self.upper_) @ np.atleast_2d(self.coef_).T + self.intercept_
        return scores


def sql_literal(value: Any) -> str:
    """Write a class label as it reads in a query."""
    if isinstance(value, bool | np.bool_):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float | np.integer | np.floating):
        return repr(value.item() if isinstance(value, np.generic) else value)
    return "'" + str(value).replace("'", "''") + "'"


def sql_name(column: str) -> str:
    """Write a column name as it reads in a query."""
    return '"' + column.replace('"', '""') + '"'
