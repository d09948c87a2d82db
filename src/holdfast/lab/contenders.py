"""Who answers in the attack lab: mechanisms by name, with settings made for so many rows and questions.

name           what                                          what it promises for all answers at once
naive          the mean of all rows                          Hoeffding: true only for questions chosen beforehand
split          fresh rows for every question                 Hoeffding on its share of the rows
thresholdout   the reusable holdout of 2015                  nothing here
laplace        all rows + Laplace noise                      the information guarantee
gaussian       all rows + Gaussian noise                     the information guarantee
a1             sampled rows + Laplace noise                  the information guarantee
coins          sampled rows as coins                         the best guarantee of coins

or anyone's own mechanism, or the settings of a session.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, Protocol

from scipy.special import ndtri

from holdfast import check
from holdfast.errors import PlanInfeasible
from holdfast.guarantees.mathematics.concentration import hoeffding_radius
from holdfast.lab.analysts.answering import MechanismOracle
from holdfast.lab.analysts.base import Randomness, RowQuestion
from holdfast.lab.baselines import FullGaussian, FullLaplace, Naive, Thresholdout
from holdfast.mechanisms.base import Mechanism
from holdfast.mechanisms.coins import Coins
from holdfast.mechanisms.fresh_rows import FreshRows
from holdfast.mechanisms.laplace import Laplace
from holdfast.planning import Plan, plan
from holdfast.planning.strategies import Goal, Numbers, information_coins, information_laplace, split
from holdfast.questions import Desk
from holdfast.rows.source import RowSource

MECHANISM_NAMES = ("naive", "split", "thresholdout", "laplace", "gaussian", "a1", "coins")
SINGLE = 0.05  # a lone error bar is the textbook's 95 %


@dataclass(frozen=True)
class Told:
    """One answer, and the error bar that comes with it."""

    value: float
    low: float
    high: float
    rows_read: int


class Answering(Protocol):
    """A contender at work on one sample."""

    def tell(self, question: RowQuestion) -> Told:
        """Answer the next question."""
        ...


class Contender(Protocol):
    """A mechanism with settings. `promised` is for all answers at once, `noise` the variance it adds to each."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def promised(self) -> float | None:
        """The largest error of any answer, with the lab's confidence; None: it promises nothing."""
        ...

    @property
    def noise(self) -> float | None:
        """The variance added to the mean of the rows; None where it is no fixed number."""
        ...

    def begin(self, source: RowSource, rng: Randomness) -> Answering:
        """Begin on a sample."""
        ...


@dataclass(frozen=True)
class Bare:
    """A mechanism alone. The error bar of an answer is that of chance, ignoring that questions were chosen."""

    name: str
    mechanism: Mechanism
    promised: float | None
    noise: float | None
    deviation: float | None = None

    def begin(self, source: RowSource, rng: Randomness) -> Answering:
        """Begin with a copy of the mechanism."""
        return _BareAnswering(self, source, rng)


class _BareAnswering:
    def __init__(self, bare: Bare, source: RowSource, rng: Randomness) -> None:
        self._oracle = MechanismOracle(bare.mechanism, source, rng)
        deviation = bare.deviation
        if deviation is None:
            deviation = sqrt(1 / (4 * len(source)) + (bare.noise or 0.0))
        self._bar = float(ndtri(1 - SINGLE / 2)) * deviation

    def tell(self, question: RowQuestion) -> Told:
        release = self._oracle.release(question)
        value = release.answer
        return Told(value, max(0.0, value - self._bar), min(1.0, value + self._bar), release.rows_read)


@dataclass(frozen=True)
class Planned:
    """A session's plan: the same desk, mechanism and certificate as in a session, without a ledger."""

    plan: Plan
    name: str = "session"

    @property
    def promised(self) -> float:
        """The plan's accuracy."""
        return self.plan.accuracy

    @property
    def noise(self) -> float | None:
        """1/(4 ell), for coins."""
        if self.plan.mechanism != "coins":
            return None
        return 1 / (4 * self.plan.rows_per_query * (1 - 2 * self.plan.flip_probability) ** 2)

    def begin(self, source: RowSource, rng: Randomness) -> Answering:
        """Begin with nothing asked."""
        terms = self.plan.to_dict()
        if self.plan.guarantee == "split":  # an order of the rows, as a session draws one
            terms["constants"] = dict(self.plan.constants) | {"order": float(rng.integers(0, 2**48))}
        return _PlannedAnswering(Plan.from_dict(terms), source, rng)


class _PlannedAnswering:
    def __init__(self, made: Plan, source: RowSource, rng: Randomness) -> None:
        self._desk, self._source, self._rng = Desk(made, source.schema), source, rng
        self._used = 0

    def tell(self, question: RowQuestion) -> Told:
        draws = self._desk.plan.rows_per_query
        price = self._desk.price(question, draws)
        (said,) = self._desk.release(question, draws, self._source, self._rng, self._used)
        self._used += price.flips
        return Told(said.value, said.low, said.high, price.rows_read)


def contender(
    mechanism: str | Mechanism | Plan | Mapping[str, Any], *, rows: int, queries: int, confidence: float = 0.95
) -> Contender:
    """Return a contender from a name, a mechanism of one's own, a plan, or the settings of a session."""
    if isinstance(mechanism, Plan):
        return Planned(mechanism)
    if isinstance(mechanism, Mapping):
        settings = {"queries": queries, "confidence": confidence} | dict(mechanism)
        return Planned(plan(rows=rows, **settings))
    if not isinstance(mechanism, str):
        return Bare(type(mechanism).__name__.lower(), mechanism, None, _noise(mechanism, rows))
    check.one_of("mechanism", mechanism, MECHANISM_NAMES)
    if mechanism == "coins":
        return Planned(plan(rows=rows, queries=queries, confidence=confidence, mechanism="coins"), "coins")
    return _BARE[mechanism](rows, queries, 1 - confidence)


def _noise(mechanism: Mechanism, rows: int) -> float | None:
    """Return the variance a known mechanism adds, about a share near one half."""
    if isinstance(mechanism, Naive):
        return 0.0
    if isinstance(mechanism, Coins):
        return 1 / (4 * mechanism.draws * (1 - 2 * mechanism.flip_probability) ** 2)
    if isinstance(mechanism, FullGaussian):
        return mechanism.sigma**2
    if isinstance(mechanism, FullLaplace):
        return 2 / (rows * mechanism.epsilon) ** 2
    if isinstance(mechanism, Laplace):
        left = 1 if mechanism.replacement else 1 - mechanism.draws / rows
        return 2 * mechanism.scale(rows) ** 2 + left / (4 * mechanism.draws)
    return None


def _naive(rows: int, queries: int, beta: float) -> Bare:
    return Bare("naive", Naive(), min(1.0, hoeffding_radius(rows, beta / queries)), 0.0)


def _split(rows: int, queries: int, beta: float) -> Bare:
    numbers = _found(split(Goal(rows, queries, beta)), rows, queries)
    share = FreshRows(draws=numbers.rows_per_query, key=0)
    return Bare("split", share, numbers.accuracy, None, 1 / sqrt(4 * numbers.rows_per_query))


def _thresholdout(rows: int, queries: int, beta: float) -> Bare:
    # The published experiment: threshold 4/sqrt(n), noise 1/sqrt(n); the budget never runs out.
    made = Thresholdout(threshold=4 / sqrt(rows), sigma=1 / sqrt(rows), budget=queries, key=0)
    return Bare("thresholdout", made, None, None, 1 / sqrt(2 * rows))


def _laplace(rows: int, queries: int, beta: float) -> Bare:
    numbers = _found(information_laplace(Goal(rows, queries, beta, rows)), rows, queries)
    made = FullLaplace(epsilon=numbers.constants["epsilon"])
    return Bare("laplace", made, numbers.accuracy, _noise(made, rows))


def _a1(rows: int, queries: int, beta: float) -> Bare:
    numbers = _found(information_laplace(Goal(rows, queries, beta)), rows, queries)
    made = Laplace(draws=numbers.rows_per_query, epsilon=numbers.constants["epsilon"])
    return Bare("a1", made, numbers.accuracy, _noise(made, rows))


def _gaussian(rows: int, queries: int, beta: float) -> Bare:
    numbers = _found(information_coins(Goal(rows, queries, beta)), rows, queries)
    sigma = 1 / sqrt(4 * numbers.rows_per_query)  # costs as many flips as the coins of that plan
    quantile = sigma * float(ndtri(1 - numbers.constants["beta2"] / (2 * queries)))
    promised = min(1.0, quantile + sqrt(numbers.constants["radius"] / (2 * rows)))
    return Bare("gaussian", FullGaussian(sigma=sigma), promised, sigma**2)


def _found(numbers: Numbers | None, rows: int, queries: int) -> Numbers:
    """Refuse where a mechanism cannot be set up at all."""
    if numbers is None:
        raise PlanInfeasible(
            f"This mechanism cannot answer {queries:,} questions on {rows:,} rows; bring more rows.", rows=rows
        )
    return numbers


_BARE = {
    "naive": _naive,
    "split": _split,
    "thresholdout": _thresholdout,
    "laplace": _laplace,
    "gaussian": _gaussian,
    "a1": _a1,
}
