"""The exchange guarantee: nobody can tell the rows from a ghost sample that was never used. The default.

The coins and their exact binomial intervals are those of the posterior guarantee. The step from posterior means to the
population is another theorem, with constants that are fixed in the terms: for every query, asked or not,

    (mu - p)^2 <= J (mu + p - 2 mu p),   J = 2 Ibar/n.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import e, exp, log

import numpy as np
from scipy.special import expit

from holdfast.guarantees import GUARANTEES
from holdfast.guarantees.coins import CoinGuarantee, CoinTerms
from holdfast.guarantees.gaussian import ScansBesideCoins
from holdfast.guarantees.guarantee import Goal, Guarantee
from holdfast.guarantees.mathematics import exchange
from holdfast.guarantees.mathematics.concentration import clopper_pearson_width
from holdfast.guarantees.mathematics.posterior_means import level
from holdfast.guarantees.mathematics.search import Vector, zoom
from holdfast.guarantees.statistic import Interval

MOST_MASS = 0.16  # so that a group, with three outcomes, is still at most half noise
KEPT = (exchange.HALF, 0.1)  # rho: the second is for few rows
FEW_ROWS = 20_000


@dataclass(frozen=True, kw_only=True)
class ExchangeTerms(CoinTerms):
    """The constants of the theorem, fixed before the first question."""

    om2: float
    kap: float
    s: float
    L: float
    L2: float
    rho: float

    @property
    def beta1(self) -> float:
        """The failure probability of the step from posterior means to the population."""
        return exp(-self.L) + exp(-self.L2)

    @cached_property
    def j(self) -> float:
        """J = 2 Ibar/n; inf: no promise."""
        constants = (self.om2, self.kap, self.s, self.L, self.L2)
        return exchange.j(self.rows, exchange.ibar(self.rows, self.charge, self.mass, *constants, rho=self.rho))


class Exchange(CoinGuarantee):
    """Coins with a planned extra mass, by exchanging rows with ghosts: narrowest but for very few questions."""

    terms: ExchangeTerms
    name = "exchange"
    reads = ExchangeTerms

    def __init__(self, terms: ExchangeTerms) -> None:
        super().__init__(terms)
        self._J = terms.j

    @classmethod
    def plan(cls, goal: Goal, mechanism: str) -> ExchangeTerms | None:
        """Return the best rows per answer, mass and constants; nothing is claimed about single flips."""
        return None if goal.flips or goal.rows < 2 else _planned(goal, mechanism)

    @property
    def step(self) -> float:
        """sqrt(J/(2-J))."""
        return float(exchange.worst_case(self._J))

    def widen(self, mean: Interval) -> Interval:
        """By `lo` and `hi`."""
        return exchange.lo(mean[0], self._J), exchange.hi(mean[1], self._J)

    def widen_group(self, mean: Interval, share: float) -> Interval:
        """By `group_lower` and `group_upper`."""
        low, high = mean
        return exchange.group_lower(low, share, self._J), exchange.group_upper(high, share, self._J)

    def by(self, mechanism: str) -> Guarantee:
        """Coins, or scans of all rows with Gaussian noise: one theorem, one failure event, one charge."""
        return self._scans if mechanism in ScansBesideCoins.mechanisms else super().by(mechanism)

    @cached_property
    def _scans(self) -> ScansBesideCoins:
        return ScansBesideCoins(self.terms, name=self.name, J=self._J, level=self._level)


@lru_cache(maxsize=4096)
def _planned(goal: Goal, mechanism: str) -> ExchangeTerms:
    kept = KEPT if goal.rows < FEW_ROWS else KEPT[:1]
    return min((_planned_with(goal, mechanism, rho) for rho in kept), key=lambda terms: terms.margin)


def _planned_with(goal: Goal, mechanism: str, rho: float) -> ExchangeTerms:
    n, k, beta, fixed = goal.rows, goal.queries, goal.beta, goal.rows_per_query

    def margin(log_ell: Vector, log_a: Vector, logit: Vector, log_stretch: Vector) -> Vector:
        ell, a, split, charge = np.exp(log_ell), np.exp(log_a), expit(logit), k * np.exp(log_ell)
        free = exchange.constants(n, charge, a, split * beta, stretch=np.exp(log_stretch))
        nats = exchange.ibar(n, charge, a, free.om2, free.kap, free.s, free.L, free.L2, rho=rho)
        width = clopper_pearson_width(ell, (1 - split) * beta / (e * k)) / (1 - 2 * a)
        J = 2 * nats / n
        total: Vector = width + np.where(J < 1, exchange.worst_case(J), np.sqrt(J))  # beyond 1: which way is down
        return total

    ells = (log(n) * 0.2, log(n)) if fixed is None else (log(fixed), log(fixed))
    box = [ells, (log(1e-7), log(MOST_MASS)), (-6.0, 4.0), (-3.0, 0.7)]
    log_ell, log_a, logit, log_stretch = zoom(margin, box, points=5, levels=12)
    ell = fixed or min(n, max(1, int(np.exp(log_ell) * (1 + 1e-12))))
    a, beta1 = float(np.exp(log_a)), float(expit(logit)) * beta
    free = exchange.constants(n, k * ell, a, beta1, stretch=np.exp(log_stretch))
    own = {name: float(value) for name, value in vars(free).items()} | {"mass": a, "rho": rho, "beta2": beta - beta1}
    terms = goal.met_by(ExchangeTerms, mechanism, margin=1.0, rows_per_query=ell, charge=k * ell, **own)
    width = float(clopper_pearson_width(ell, level(beta - beta1, k=k))) / (1 - 2 * a)
    reached = width + float(exchange.worst_case(terms.j))
    return goal.met_by(ExchangeTerms, mechanism, margin=reached, rows_per_query=ell, charge=k * ell, **own)


GUARANTEES.register(Exchange.name, Exchange)
