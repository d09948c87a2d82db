"""Linear models that learn through a session: declared bounds, one fit per weight vector, weights in features' units.

`fit(X, y)` opens a session on the given rows, planned for `fits` fits: all fits of a process to the same rows share it,
and repeating a fit is free. `fit_session` learns from the rows of an open session, with features named by column, and
its cost is charged there. The session is never a parameter: cloning an estimator copies no data and no budget.
Constructors only store their arguments, as scikit-learn requires: every class is a dataclass of its parameters.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from holdfast import check
from holdfast.errors import BudgetExhausted, InvalidArgument
from holdfast.guarantees.plan import VacuousPlan
from holdfast.optimize.features import INTERCEPT
from holdfast.optimize.fit import AUTO, LOOKS
from holdfast.optimize.losses import Huber, LinearLoss, Logistic, SmoothedHinge, Squared
from holdfast.queries.node import identifier, literal_text
from holdfast.questions.answer import Answer
from holdfast.schema import Category
from holdfast.session.planning import plan
from holdfast.session.session import Session

Array = NDArray[np.float64]
Bounds = tuple[float, float]
Label = Category | np.generic  # one of `classes_`, or as Python writes it
LEAST_ROWS = 20  # fewest rows for which the information guarantee can plan
FEW_CLIPPED = 0.05  # of a feature's values: as many as few standard deviations leave out are clipped without a word


class ClippedFeatures(UserWarning):
    """Many values of a feature lie outside its declared bounds, so the model hardly sees them."""


@dataclass(kw_only=True, eq=False, repr=False)
class LinearModel(BaseEstimator):  # type: ignore[misc]
    """The parameters, which `LogisticRegression` describes, and the two ways to learn."""

    bounds: Bounds | Mapping[str, Bounds] = (-3.0, 3.0)
    radius: float | str = 5.0
    l2: float = 0.0
    iterations: int | None = None
    rows_per_coordinate: int | None = None
    average: str = "suffix"
    confidence: float = 0.95
    fits: int = 1
    random_state: int | np.random.RandomState | None = None

    def _loss(self, features: Mapping[str, Bounds], target: str) -> LinearLoss:
        raise NotImplementedError  # each estimator defines its loss

    # -- learning -----------------------------------------------------------------------------------------------

    def _learn(self, session: Session, features: Sequence[str], targets: Sequence[str]) -> None:
        """Fit once for each target; `coef_` has one row of weights per target, in the features' own units."""
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

    def _bounds_of(self, name: str) -> Bounds:
        if not isinstance(self.bounds, Mapping):
            if np.ndim(self.bounds) > 1:
                raise InvalidArgument(
                    "bounds must be one pair (low, high) for all features, or a pair for each by name, such as"
                    f" {{{name!r}: (0, 24)}}.",
                    name="bounds",
                )
            return check.interval("bounds", self.bounds)
        if name not in self.bounds:
            raise InvalidArgument(f"bounds must be declared for every feature; {name!r} has none.", name="bounds")
        return check.interval(f"bounds of {name!r}", self.bounds[name])

    def _warn_of_clipped(self, X: Array, names: Sequence[str]) -> None:
        bounds = {name: self._bounds_of(name) for name in names}
        lower, upper = np.array(list(bounds.values())).T
        outside = ((lower > X) | (upper < X)).mean(axis=0)
        worst = int(outside.argmax())
        if outside[worst] > FEW_CLIPPED:
            low, high = bounds[names[worst]]
            check.warn(
                f"{outside[worst]:.0%} of the values of {names[worst]!r} lie outside its bounds ({low:g}, {high:g}) and"
                f" are clipped; so it is with {(outside > FEW_CLIPPED).sum()} of {len(names)} features. Declare their"
                " ranges, such as bounds={'age': (0, 100)}, or scale the features first.",
                ClippedFeatures,
            )

    def _own_session(self, X: Array, y: NDArray[Any], targets: int) -> tuple[Session, list[str]]:
        """Open a session in memory for `fits` such fits: d + 3 answers for each model, and 1 for their accuracy.

        Searching for a radius takes a few more.
        """
        check.whole(fits=self.fits)
        names = self._names(X.shape[1])
        self._warn_of_clipped(X, names)
        columns: dict[str, Any] = {name: np.ascontiguousarray(X[:, j]) for j, name in enumerate(names)}
        column = "target" if "target" not in columns else "target of the fit"
        seed = None if self.random_state is None else int(check_random_state(self.random_state).randint(2**31 - 1))
        if len(X) < 2:
            raise InvalidArgument(f"fit must be given at least 2 rows; got n_samples = {len(X)}: 1 sample.", name="X")
        looks = LOOKS if self.radius == AUTO else 0
        queries = self.fits * (targets * (X.shape[1] + 3 + looks) + 1)
        goal: dict[str, Any] = {"queries": queries, "confidence": self.confidence, "mechanism": "coins", "end": True}
        # With too few rows for any promise, other guarantees would turn over so many coins that the fit would be noise;
        # the information guarantee does not.
        few = len(X) >= LEAST_ROWS and plan(rows=len(X), **goal).vacuous
        goal["guarantee"] = "information" if few else "best"
        with warnings.catch_warnings():  # the caller may want only the model, without any promise
            warnings.simplefilter("ignore", VacuousPlan)
            session = Session(columns | {column: y}, seed=seed, **goal)
        return session, [*names, column]

    def _learn_once(self, session: Session, features: Sequence[str], targets: Sequence[str], column: str) -> None:
        """Learn in a session that `fit` opened, certify how good the model is, and close the session."""
        try:
            with session:
                self._learn(session, features, targets)
                self._certify(session, features, column)
        except BudgetExhausted as refusal:
            advice = f"Fits of one process to the same rows share a budget, here for fits={self.fits}; plan for more."
            raise BudgetExhausted(f"{refusal.message} {advice}", **refusal.fields) from None

    def _certify(self, session: Session, features: Sequence[str], column: str) -> None:
        """Ask about more than the loss, for models that have more to certify."""

    def _names(self, count: int) -> list[str]:
        given = getattr(self, "feature_names_in_", None)
        return [f"x{j}" for j in range(count)] if given is None else [str(name) for name in given]

    def _set_features(self, features: Sequence[str]) -> None:
        self.feature_names_in_ = np.array(list(features), dtype=object)
        self.n_features_in_ = len(features)

    # -- predicting ---------------------------------------------------------------------------------------------

    def _linear(self, X: ArrayLike) -> Array:
        """Return <weights, features> plus intercept for every weight vector; features are clipped as in learning."""
        check_is_fitted(self)
        matrix: Array = validate_data(self, X, reset=False, dtype=np.float64)
        scores: Array = np.clip(matrix, self.lower_, self.upper_) @ np.atleast_2d(self.coef_).T + self.intercept_
        return scores


class LinearClassifier(ClassifierMixin, LinearModel):  # type: ignore[misc]
    """One weight vector for two classes, otherwise one per class.

    After `fit`, `certified_accuracy_` is the share of the population that the model gets right, with an interval that
    holds although the model was fitted to the same rows. After `fit_session`, use `scorer` to ask for it.
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from these rows; all fits of this process to them share one budget.

        Parameters
        ----------
        X
            The features of each row; values outside `bounds` are clipped.
        y
            The label of each row.

        Returns
        -------
        Self
            The fitted estimator.
        """
        matrix, labels = validate_data(self, X, y, dtype=np.float64, y_numeric=False)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise InvalidArgument(f"y must have at least 2 classes; got {len(self.classes_)} class.", name="y")
        binary = len(self.classes_) == 2
        asked = 1 if binary else len(self.classes_)
        session, (*features, column) = self._own_session(matrix, codes == 1 if binary else codes, asked)
        targets = [column] if binary else [f"{identifier(column)} = {code}" for code in range(asked)]
        self._learn_once(session, features, targets, column)
        return self

    def _certify(self, session: Session, features: Sequence[str], column: str) -> None:
        """Ask how often the model is right, on the rows it was fitted to; asking about the same model again is free."""
        lower, upper, weights, intercepts = self.lower_, self.upper_, np.atleast_2d(self.coef_), self.intercept_

        def right(rows: pl.DataFrame) -> Any:
            inputs = np.column_stack([rows.get_column(name).to_numpy() for name in features])
            clipped = np.clip(np.nan_to_num(inputs), lower, upper)
            # Row by row, because a matrix product rounds differently in batches of different sizes.
            scores = (clipped[:, None, :] * weights).sum(axis=2) + intercepts
            winners = scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
            return rows.get_column(column).to_numpy() == winners

        model = sha256(weights.tobytes() + intercepts.tobytes()).hexdigest()
        answer = session.ask(right, idempotency_key=f"accuracy of {model}")
        assert isinstance(answer, Answer)
        self.certified_accuracy_ = answer

    def fit_session(
        self, session: Session, features: Sequence[str], target: str, *, classes: Sequence[Label] = (False, True)
    ) -> Self:
        """Learn from the rows of a session.

        Parameters
        ----------
        session
            What is asked.
        features
            Columns of the session.
        target
            With the default classes, a yes-or-no column or expression; with others, a column that contains them.
        classes
            All labels: declared, never read from the data. Two need one fit; more need one fit each.

        Returns
        -------
        Self
            The fitted estimator.
        """
        labels = np.array(list(classes))
        if len(labels) < 2 or len(np.unique(labels)) < len(labels):
            raise InvalidArgument("classes must be at least two different labels.", name="classes")
        self.classes_ = np.sort(labels)
        if list(self.classes_) == [False, True] and self.classes_.dtype == np.bool_:
            targets = [target]
        else:
            asked = self.classes_[1:] if len(labels) == 2 else self.classes_
            targets = [f"{identifier(target)} = {literal_text(label)}" for label in asked.tolist()]
        self._learn(session, list(features), targets)
        self._set_features(features)
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """Return scores: one per row for two classes, one per row and class otherwise.

        Parameters
        ----------
        X
            One row of features for each case.
        """
        scores = self._linear(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class with the largest score.

        Parameters
        ----------
        X
            One row of features for each case.
        """
        check_is_fitted(self)
        scores = self.decision_function(X)
        winners = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[winners]
        return predicted


class LogisticRegression(LinearClassifier):
    """Logistic regression by descent on coins.

    Parameters
    ----------
    bounds
        The declared range of the features: one pair for all, or a mapping by name. Values outside are clipped.
    radius
        Look for weights in a ball of this radius, for features scaled to [-1, 1]; "auto" searches for a radius, for the
        price of six more answers per model.
    l2
        The factor of half the squared norm of the scaled weights.
    iterations, rows_per_coordinate, average
        What to spend, and which points of the descent are averaged; as for `Session.minimize`.
    confidence
        The confidence of the session that `fit` opens.
    fits
        How many different fits to the same rows, by any estimators, that session is planned for.
    random_state
        Makes the session that `fit` opens reproducible, for tests: each has its own budget.
    """

    def _loss(self, features: Mapping[str, Bounds], target: str) -> LinearLoss:
        return Logistic(features, target, l2=self.l2)

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the probability of each class; with more than two, each class's own probability, normalized.

        Parameters
        ----------
        X
            One row of features for each case.
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            yes = expit(scores)
            return np.column_stack([1 - yes, yes])
        each = expit(scores)
        probabilities: Array = each / each.sum(axis=1, keepdims=True)
        return probabilities

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Return the logarithm of `predict_proba`.

        Parameters
        ----------
        X
            One row of features for each case.
        """
        return np.log(np.maximum(self.predict_proba(X), np.finfo(float).tiny))


@dataclass(kw_only=True, eq=False, repr=False)
class LinearSVC(LinearClassifier):
    """A linear support vector machine; the corner of the hinge is rounded.

    Parameters
    ----------
    bounds, radius, l2, iterations, rows_per_coordinate, average, confidence, fits, random_state
        As for `LogisticRegression`.
    smoothing
        The width over which the corner of the hinge is rounded.
    """

    smoothing: float = 0.5

    def _loss(self, features: Mapping[str, Bounds], target: str) -> LinearLoss:
        return SmoothedHinge(features, target, l2=self.l2, smoothing=self.smoothing)


@dataclass(kw_only=True, eq=False, repr=False)
class LinearRegression(RegressorMixin, LinearModel):  # type: ignore[misc]
    """Least squares for a target with a declared range.

    Parameters
    ----------
    bounds, radius, l2, iterations, rows_per_coordinate, average, confidence, fits, random_state
        As for `LogisticRegression`.
    target_within
        The range of the target; predictions are clipped to it.
    clip
        Whether `fit` clips targets to that range, instead of refusing those outside.
    """

    target_within: Bounds = (-3.0, 3.0)
    clip: bool = False
    radius: float | str = 1.0

    def _loss(self, features: Mapping[str, Bounds], target: str) -> LinearLoss:
        return Squared(features, target, target_within=self.target_within, l2=self.l2)

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from these rows; all fits of this process to them share one budget.

        Parameters
        ----------
        X
            The features of each row; values outside `bounds` are clipped.
        y
            The target of each row.

        Returns
        -------
        Self
            The fitted estimator.
        """
        matrix, values = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        low, high = check.interval("target_within", self.target_within)
        outside = int(((values < low) | (values > high)).sum())
        if outside and not self.clip:
            raise InvalidArgument(
                f"{outside:,} of {len(values):,} targets lie outside target_within=({low:g}, {high:g}). Declare the"
                " range you mean, or pass clip=True to fit the model to targets clipped to it.",
                name="target_within",
            )
        session, (*features, column) = self._own_session(matrix, np.asarray(values, dtype=np.float64), 1)
        self._learn_once(session, features, [column], column)
        return self

    def fit_session(self, session: Session, features: Sequence[str], target: str) -> Self:
        """Learn from the rows of a session.

        Parameters
        ----------
        session
            What is asked.
        features
            Columns of the session.
        target
            A column or an expression. Values outside `target_within` are clipped: to refuse them would read data.

        Returns
        -------
        Self
            The fitted estimator.
        """
        self._learn(session, list(features), [target])
        self._set_features(features)
        return self

    def _learn(self, session: Session, features: Sequence[str], targets: Sequence[str]) -> None:
        super()._learn(session, features, targets)
        self.coef_, self.intercept_ = self.coef_[0], self.intercept_[0]

    def predict(self, X: ArrayLike) -> Array:
        """Return predictions, clipped to the target's range.

        Parameters
        ----------
        X
            One row of features for each case.
        """
        return np.clip(self._linear(X)[:, 0], *self.target_within)


@dataclass(kw_only=True, eq=False, repr=False)
class HuberRegressor(LinearRegression):
    """The same with Huber's loss: quadratic for small residuals, linear beyond.

    Parameters
    ----------
    bounds, radius, l2, iterations, rows_per_coordinate, average, confidence, fits, random_state
        As for `LogisticRegression`.
    target_within, clip
        As for `LinearRegression`.
    delta
        The residual, as a part of half the target's range, beyond which the loss is linear.
    """

    delta: float = 0.25

    def _loss(self, features: Mapping[str, Bounds], target: str) -> LinearLoss:
        return Huber(features, target, target_within=self.target_within, l2=self.l2, delta=self.delta)
