"""Contenders of the attack lab: mechanisms by name, with settings for a given number of rows and questions.

name           what it does                                  what it promises for all answers at once
naive          the mean of all rows                          Hoeffding: true only for questions chosen beforehand
split          fresh rows for every question                 Hoeffding on its share of the rows
thresholdout   the reusable holdout of 2015                  nothing here
laplace        all rows + Laplace noise                      the information guarantee
gaussian       all rows + Gaussian noise                     the information guarantee
a1             sampled rows + Laplace noise                  the information guarantee
coins          sampled rows as coins                         the best guarantee of coins

A contender can also be any mechanism, a plan, or the settings of a session.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, Protocol

from numpy.random import Generator
from scipy.special import ndtri

from holdfast import check
from holdfast.errors import InvalidArgument, PlanInfeasible
from holdfast.guarantees.guarantee import full_scan_margin
from holdfast.guarantees.information import Information
from holdfast.guarantees.plan import Plan
from holdfast.guarantees.split import Split
from holdfast.guarantees.terms import Goal
from holdfast.lab.analysts import Dialogue
from holdfast.lab.baselines import FullGaussian, FullLaplace, Naive, Releaser, Thresholdout
from holdfast.lab.populations import RowQuestion
from holdfast.mechanisms.coins import Coins
from holdfast.mechanisms.fresh_rows import FreshRows
from holdfast.mechanisms.noisy_means import Laplace, require
from holdfast.questions.question import Drawing, mechanism_of
from holdfast.rows.draws import Order
from holdfast.rows.source import RowSource
from holdfast.session.planning import plan

TEXTBOOK_ERROR = 0.05  # failure probability of one answer's interval, for a mechanism without a guarantee


# -- oracles: a contender at work on one sample -------------------------------------------------------------------


@dataclass(frozen=True)
class Reply:
    """One answer with its interval."""

    value: float
    low: float
    high: float
    rows_read: int


class QueryOracle(Protocol):
    """Answers questions about one sample."""

    def answer(self, question: RowQuestion) -> Reply:
        """Answer the next question."""


class ResumableOracle(QueryOracle, Protocol):
    """An oracle whose state after a transcript can be restored."""

    def recall(self, question: RowQuestion, answer: float) -> None:
        """Move to the state after giving this answer."""


def converse(dialogue: Dialogue, oracle: QueryOracle) -> Iterator[tuple[RowQuestion, Reply]]:
    """Let an analyst ask an oracle to the end of the dialogue; yield every question with its reply."""
    try:
        question = next(dialogue)
        while True:
            reply = oracle.answer(question)
            yield question, reply
            question = dialogue.send(reply.value)
    except StopIteration:
        return


class MechanismOracle:
    """A copy of a mechanism, which keeps its state between questions; intervals are value ± `half_width`."""

    def __init__(self, mechanism: Releaser, source: RowSource, rng: Generator, *, half_width: float = 0.0) -> None:
        self._mechanism = deepcopy(mechanism)
        self._source, self._rng, self._half_width = source, rng, half_width

    def answer(self, question: RowQuestion) -> Reply:
        """Release the answer to the next question."""
        release = self._mechanism.release(question, self._source, self._rng)
        self._advance()
        (value,) = release.values
        return Reply(value, max(0.0, value - self._half_width), min(1.0, value + self._half_width), release.draws)

    def recall(self, question: RowQuestion, answer: float) -> None:
        """Move on without answering."""
        if isinstance(self._mechanism, Thresholdout):
            raise InvalidArgument(
                "Thresholdout cannot be resumed: its state is not a function of its answers. Replay it from the"
                " start instead."
            )
        self._advance()

    def _advance(self) -> None:
        if isinstance(self._mechanism, FreshRows):
            self._mechanism = replace(self._mechanism, start=self._mechanism.start + self._mechanism.draws)


class PlanOracle:
    """The mechanism and the intervals of a session with this plan, but no ledger, which would slow the lab down."""

    def __init__(self, plan: Plan, source: RowSource, rng: Generator) -> None:
        # A session's ledger fixes the order in which fresh rows are used up; here the world's generator does.
        self._drawing = Drawing(source, rng, plan.standing, Order(rng.bytes(32)))
        self._standing, self._charge, self._statements = plan.standing.answering(), 0, 0

    def answer(self, question: RowQuestion) -> Reply:
        """Draw, release, certify."""
        drawing, draws = self._drawing, self._place(question)
        (estimate,) = drawing.estimates(question, draws)
        rows_read = mechanism_of(drawing.guarantee).rows_read(question.statistic, draws, len(drawing.source))
        return Reply(estimate.guess, estimate.low, estimate.high, rows_read)

    def recall(self, question: RowQuestion, answer: float) -> None:
        """Advance by one question; if the guarantee uses rows up, use up this answer's rows."""
        drawing, draws = self._drawing, self._place(question)
        if drawing.guarantee.in_order and drawing.order is not None:
            drawing.order = drawing.order.after(drawing.answering.charge(question.statistic, draws))

    def _place(self, question: RowQuestion) -> int:
        """Assign the question its place, as a ledger would; return how many rows it draws."""
        statistic, before = question.statistic, self._statements
        draws = self._standing.rows_at(before)
        self._charge += self._standing.charge(statistic, draws)
        self._statements += statistic.intervals
        self._drawing.guarantee = self._standing.at(self._charge, before, statistic.intervals)
        return draws


# -- contenders ---------------------------------------------------------------------------------------------------


class Contender(Protocol):
    """Something that answers, with its settings and its promise."""

    @property
    def name(self) -> str:
        """The contender's name."""

    @property
    def promised(self) -> float | None:
        """The largest error of any answer, with the lab's confidence; None if nothing is promised."""

    @property
    def noise(self) -> float | None:
        """The variance added to the mean of the rows, near a share of one half; None if it is not a fixed number."""

    def start(self, source: RowSource, rng: Generator) -> QueryOracle:
        """Start answering questions about a sample."""


@dataclass(frozen=True)
class MechanismContender:
    """A mechanism alone, with the textbook 95% interval for each answer, as if questions were not adaptive.

    `deviation` is the standard deviation of an answer; by default, that of the mean of all rows plus the noise.
    """

    name: str
    mechanism: Releaser
    promised: float | None
    noise: float | None
    deviation: float | None = None

    def start(self, source: RowSource, rng: Generator) -> QueryOracle:
        """Start with a copy of the mechanism."""
        deviation = self.deviation
        if deviation is None:
            deviation = sqrt(1 / (4 * len(source)) + (self.noise or 0.0))
        return MechanismOracle(self.mechanism, source, rng, half_width=float(ndtri(1 - TEXTBOOK_ERROR / 2)) * deviation)


@dataclass(frozen=True)
class PlanContender:
    """A session's plan: its mechanism, its intervals, its promise."""

    plan: Plan
    name: str = "session"

    @property
    def promised(self) -> float:
        """The plan's margin."""
        return self.plan.margin

    @property
    def noise(self) -> float | None:
        """The variance that coins add; None for other mechanisms."""
        standing = self.plan.standing
        if not issubclass(mechanism_of(standing), Coins):
            return None
        return added_variance(Coins.under(standing, self.plan.rows_per_query, None), self.plan.rows)

    def start(self, source: RowSource, rng: Generator) -> QueryOracle:
        """Start with nothing spent."""
        return PlanOracle(self.plan, source, rng)


def contender(
    mechanism: str | Releaser | Plan | Mapping[str, Any], *, rows: int, queries: int, confidence: float = 0.95
) -> Contender:
    """Return a contender from a name, a mechanism, a plan, or the settings of a session.

    >>> contender("naive", rows=1_000, queries=1).promised < 0.05
    True
    """
    if isinstance(mechanism, Plan):
        return PlanContender(mechanism)
    if isinstance(mechanism, Mapping):
        settings: dict[str, Any] = {"queries": queries, "confidence": confidence} | dict(mechanism)
        return PlanContender(plan(rows=rows, **settings))
    if isinstance(mechanism, str):
        check.one_of("mechanism", mechanism, MECHANISM_NAMES)
        return _NAMED[mechanism](Goal(rows, queries, confidence))
    return MechanismContender(type(mechanism).__name__.lower(), mechanism, None, added_variance(mechanism, rows))


def added_variance(mechanism: Releaser, rows: int) -> float | None:
    """Return the variance that a known mechanism adds to the mean of the rows, near a share of one half.

    >>> added_variance(FullGaussian(sigma=0.5), 100)
    0.25
    """
    if isinstance(mechanism, Naive):
        return 0.0
    if isinstance(mechanism, Coins):
        return 1 / (4 * mechanism.draws * (1 - 2 * mechanism.mass) ** 2)
    if isinstance(mechanism, FullGaussian):
        return mechanism.sigma**2
    if isinstance(mechanism, FullLaplace):
        return 2 / (rows * mechanism.epsilon) ** 2
    if isinstance(mechanism, Laplace):
        unread = 1 if mechanism.replacement else 1 - mechanism.draws / rows
        return 2 * mechanism.scale(rows) ** 2 + unread / (4 * mechanism.draws)
    return None


# -- contenders by name -------------------------------------------------------------------------------------------


def _naive(goal: Goal) -> Contender:
    return MechanismContender("naive", Naive(), full_scan_margin(goal.rows, goal.queries, goal.beta), 0.0)


def _split(goal: Goal) -> Contender:
    terms = Split.plan(goal, "fresh_rows")
    if terms is None:
        raise _too_few_rows("split", goal)
    fresh = FreshRows(draws=terms.rows_per_query, key=bytes(32))
    return MechanismContender("split", fresh, terms.margin, None, 1 / sqrt(4 * terms.rows_per_query))


def _thresholdout(goal: Goal) -> Contender:
    # As in the published experiment: threshold 4/sqrt(n), noise 1/sqrt(n), no budget. Its code, github.com/andyljones/
    # thresholdout at 6e0d620, uses normal noise of that deviation, and adds no noise to the threshold.
    n = goal.rows
    holdout = Thresholdout(threshold=4 / sqrt(n), sigma=1 / sqrt(n), budget=goal.queries, key=0)
    return MechanismContender("thresholdout", holdout, None, None, 1 / sqrt(2 * n))


def _laplace(goal: Goal) -> Contender:
    require("laplace")
    guarantee = _information("laplace", replace(goal, rows_per_query=goal.rows), "laplace")
    scan = FullLaplace(epsilon=guarantee.epsilon_for(goal.rows))
    return MechanismContender("laplace", scan, guarantee.terms.margin, added_variance(scan, goal.rows))


def _a1(goal: Goal) -> Contender:
    require("laplace")
    guarantee = _information("a1", goal, "laplace")
    sampled = Laplace.under(guarantee, guarantee.terms.rows_per_query, None)
    return MechanismContender("a1", sampled, guarantee.terms.margin, added_variance(sampled, goal.rows))


def _gaussian(goal: Goal) -> Contender:
    terms = _information("gaussian", goal, "coins").terms
    sigma = 1 / sqrt(4 * terms.rows_per_query)  # costs as much as the coins of these terms
    quantile = sigma * float(ndtri(1 - terms.beta2 / (2 * goal.queries)))
    promised = min(1.0, quantile + sqrt(terms.radius / (2 * goal.rows)))
    return MechanismContender("gaussian", FullGaussian(sigma=sigma), promised, sigma**2)


def _coins(goal: Goal) -> Contender:
    best = plan(rows=goal.rows, queries=goal.queries, confidence=goal.confidence, mechanism="coins")
    return PlanContender(best, "coins")


def _information(name: str, goal: Goal, mechanism: str) -> Information:
    terms = Information.plan(goal, mechanism)
    if terms is None:
        raise _too_few_rows(name, goal)
    return Information(terms)


def _too_few_rows(name: str, goal: Goal) -> PlanInfeasible:
    return PlanInfeasible(
        f"{name} cannot answer {goal.queries:,} questions on {goal.rows:,} rows; use more rows or fewer questions.",
        rows=goal.rows,
    )


_NAMED: Mapping[str, Callable[[Goal], Contender]] = {
    "naive": _naive,
    "split": _split,
    "thresholdout": _thresholdout,
    "laplace": _laplace,
    "gaussian": _gaussian,
    "a1": _a1,
    "coins": _coins,
}
MECHANISM_NAMES = tuple(_NAMED)
