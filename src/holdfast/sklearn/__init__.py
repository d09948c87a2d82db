"""scikit-learn estimators that learn through a session, and a scorer that stays valid under search."""

from holdfast.errors import MissingExtra

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError as missing:
    raise MissingExtra(
        "Estimators need the package scikit-learn; install it with: pip install 'holdfast[sklearn]'."
    ) from missing

from holdfast.sklearn.estimators import ClippedFeatures, HuberRegressor, LinearRegression, LinearSVC, LogisticRegression
from holdfast.sklearn.scorer import BoardScorer, Scorer, board_scorer, calibration, confusion, scorer

__all__ = [
    "BoardScorer",
    "ClippedFeatures",
    "HuberRegressor",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "Scorer",
    "board_scorer",
    "calibration",
    "confusion",
    "scorer",
]
