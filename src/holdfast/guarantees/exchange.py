"""The exchange guarantee: nobody can tell the rows from a ghost sample that was never used. The default.

The coins and their exact binomial intervals are those of the posterior guarantee. The step from posterior means to the
population is a different theorem, with constants that are fixed in the terms: for every query, asked or not,

    (mu - p)^2 <= J (mu + p - 2 mu p),   J = 2 Ibar/n.

It holds at all times at once, with the draws so far, so a session need not end: J is the plan's while the planned draws
last, and grows with the draws after that. Several values of om2 are fixed, each with a part of the failure probability,
because the best one for few draws is not the best for many; the smallest J among them is used. Statements beyond the
plan are numbered, and later ones get smaller parts of the failure probability.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import e, exp, inf, log, sqrt
from typing import Any, Self

import numpy as np

from holdfast.cached import cached_property
from holdfast.guarantees import GUARANTEES
from holdfast.guarantees.coins import CoinGuarantee, CoinTerms, as_pairs
from holdfast.guarantees.gaussian import ScansBesideCoins
from holdfast.guarantees.guarantee import Guarantee, Planning
from holdfast.guarantees.mathematics import exchange, groups, moments, special
from holdfast.guarantees.mathematics.checks import time_share
from holdfast.guarantees.mathematics.concentration import SAFE, clopper_pearson_width
from holdfast.guarantees.mathematics.search import Vector, zoom
from holdfast.guarantees.mathematics.shares import level
from holdfast.guarantees.plan import paced, write_margin
from holdfast.guarantees.statistic import Interval
from holdfast.guarantees.terms import NOTHING, Amounts, AnsweredAmounts, Goal, Reading

MOST_MASS = 0.16  # so that a group, with three outcomes, is still at most half noise
RHOS = (exchange.HALF, 0.1)  # the second is tried only with few rows
FEW_ROWS = 20_000
OUTLOOK = (0, 10, 100, 1_000)  # numbers of further answers after which a budget says how wide one will be

# Sessions without an end, and questions beyond a plan.
OM2 = (0.03, 0.1, 0.35, 1.2, 4.0)  # the first for very many draws, the last for few
SLOPE = 4.0  # the t-th answer reads at most this times n/sqrt(t) rows
RESERVE = 0.1  # part of a plan's failure probability that is reserved for questions beyond it
LATER = (0.6, 0.3, 0.1)  # om2 for questions beyond a plan, relative to the plan's
LATER_SLOPE = 0.8  # rows of the first answer beyond a plan, relative to planned ones: about as wide as the last of them
COUNTED = 10_000  # statements whose draws are added up one by one; the rest is approximated
DECADES = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)  # the terms minimize the margins of these questions


@dataclass(frozen=True, kw_only=True)
class ExchangeTerms(CoinTerms):
    """The constants of the theorem, fixed before the first question.

    `om2` and `L` go together, one of each for every extrapolation; `beta2` is for the planned intervals, `later_beta2`
    for those beyond the plan, where the t-th answer reads at most `slope`/sqrt(t) rows.
    """

    om2: tuple[float, ...]
    kap: float
    L: tuple[float, ...]
    L2: float
    rho: float
    later_beta2: float
    slope: float

    @property
    def beta1(self) -> float:
        """The failure probability of the step from posterior means to the population."""
        return sum(exp(-each) for each in self.L) + exp(-self.L2)

    def j_at(self, charge: int) -> float:
        """Return J = 2 Ibar/n after this `charge`: the plan's as long as the plan lasts; inf: no promise."""
        return _smallest_j(self, max(charge, self.charge))

    def level_at(self, statement: int) -> float:
        """Return the level of the exact binomial interval of the statement with this number."""
        if statement <= self.statements:
            return level(self.beta2, k=self.statements)
        return level(self.later_beta2, k=1) * time_share(statement - self.statements)

    def rows_at(self, statement: int) -> int:
        """Return how many rows an ordinary answer reads if it makes the statement with this number."""
        if statement <= self.statements:
            return self.rows_per_query
        return max(1, min(self.rows_per_query, int(self.slope / sqrt(statement))))

    def drawn_by(self, first: int, last: int) -> int:
        """Return the total draws of ordinary answers that make statements `first` to `last`; approximate if many."""
        planned = max(0, min(last, self.statements) - first + 1)
        if last <= self.statements:
            return planned * self.rows_per_query
        start = max(first, self.statements + 1)
        exact = min(last, start + COUNTED)
        numbers = np.arange(start, exact + 1, dtype=float)
        drawn = np.maximum(1, np.minimum(self.rows_per_query, self.slope // np.sqrt(numbers))).sum()
        full = min(last, max(exact, int((self.slope / self.rows_per_query) ** 2)))  # up to here, rows_per_query each
        rest = (full - exact) * self.rows_per_query + 2 * self.slope * (sqrt(last) - sqrt(full))
        return planned * self.rows_per_query + int(drawn) + (int(rest) if last > exact else 0)


@lru_cache(maxsize=4096)
def _smallest_j(terms: ExchangeTerms, charge: int) -> float:
    n, a, kap, rho, identical = terms.rows, terms.mass, terms.kap, terms.rho, terms.identical
    found, pairs = inf, zip(terms.om2, terms.L, strict=True)
    for least, om2, L in sorted((exchange.least_ibar(n, charge, *pair), *pair) for pair in pairs):
        if least > found:  # mostly the second, and all that follow are at least as large
            break
        found = min(found, exchange.ibar_of_one(n, charge, a, om2, kap, L, terms.L2, rho=rho, identical=identical))
    return exchange.j(n, found)


class Exchange(CoinGuarantee):
    """Coins with a planned extra mass, by exchanging rows with ghosts: narrowest except for very few questions."""

    terms: ExchangeTerms
    name = "exchange"
    planning = Planning(("coins",), goes_on=True, takes_unlike_rows=True)
    terms_class = ExchangeTerms

    def __init__(self, terms: ExchangeTerms, charge: int = 0, before: int = 0, statements: int = 1) -> None:
        first, last = before + 1, before + max(1, statements)
        level = terms.level_at(last)
        super().__init__(terms, level if first == last else min(level, terms.level_at(first)))
        self._charge, self._last = charge, last

    @classmethod
    def plan(cls, goal: Goal, mechanism: str) -> ExchangeTerms | None:
        """Return the best rows per answer, mass and constants; nothing is claimed about single flips."""
        if goal.flips or goal.rows < 2:
            return None
        return _planned(goal, mechanism) if goal.queries else _endless(goal, mechanism)

    @classmethod
    def readings(cls, goal: Goal, most: int | None) -> Iterator[Reading]:
        """Planned for this number of questions, and without an end."""
        planned, endless = (paced(cls, each, "coins", most) for each in (goal, replace(goal, queries=0)))
        if planned is not None:
            yield Reading.of("planned", planned.rows_per_query, planned.margin, "then wider")
        if isinstance(endless, ExchangeTerms):
            note = f"{write_margin(endless.margin)} at first, wider as questions go by"
            yield Reading.of("endless", endless.rows_per_query, cls(endless).margin_after(goal.queries - 1), note)

    # -- a question's place --------------------------------------------------------------------------------------

    def at(self, charge: int, before: int, statements: int = 1) -> Self:
        """The levels of its statements, and J with the draws so far; within a plan both are the plan's."""
        within = charge <= self.terms.charge and before + max(1, statements) <= self.terms.statements
        if within or self.terms.ends:  # a plan that ends refuses whatever is beyond it
            return self._within_plan
        return type(self)(self.terms, charge, before, statements)

    @cached_property
    def _within_plan(self) -> Self:
        return self if self._charge <= self.terms.charge and self._last == 1 else type(self)(self.terms)

    def rows_at(self, intervals: int) -> int:
        """As the schedule says."""
        ordinary: int = self.terms.rows_at(intervals + 1)
        return ordinary

    def margin(self, draws: int) -> float:
        """The plan's margin within the plan; otherwise that of this place."""
        planned = self._charge <= self.terms.charge and self._last <= self.terms.statements
        return self.terms.margin if planned and draws == self.terms.rows_per_query else self._margin(draws)

    def outlook(self, spent: Amounts, answered: AnsweredAmounts) -> tuple[tuple[int, float], ...]:
        """The margin of an ordinary answer now, and after more of them; nothing if answers run out instead."""
        if self.terms.ends:
            return ()
        return tuple((more, self.margin_after(more, spent)) for more in OUTLOOK)

    def margin_after(self, more: int, spent: Amounts = NOTHING) -> float:
        """At its place, if all others draw as the schedule says."""
        statement = spent.intervals + more + 1
        drawn = spent.charge + self.terms.drawn_by(spent.intervals + 1, statement)
        return self.at(drawn, statement - 1).margin(self.terms.rows_at(statement))

    # -- what may be believed ------------------------------------------------------------------------------------

    @cached_property
    def _j(self) -> float:
        return self.terms.j_at(self._charge)

    @property
    def step(self) -> float:
        """sqrt(J/(2-J)), or its counterpart for rows that are not identical."""
        return float(exchange.worst_case(self._j, identical=self.terms.identical))

    def widen(self, mean: Interval) -> Interval:
        """By `lo` and `hi`."""
        return exchange.interval(mean, self._j, identical=self.terms.identical)

    def widen_group(self, mean: Interval, share: float) -> Interval:
        """By `group_lower` and `group_upper`."""
        return exchange.group_range(mean, share, self._j, identical=self.terms.identical)

    def widen_all(self, means: Any) -> list[Interval]:
        """The same at once, in arrays."""
        return as_pairs(exchange.intervals(means, self._j, identical=self.terms.identical))

    def widen_groups(self, means: Any, shares: Any) -> list[Interval]:
        """The same at once, in arrays."""
        return as_pairs(exchange.group_ranges(means, shares, self._j, identical=self.terms.identical))

    @property
    def _drawn(self) -> int:
        planned: int = self.terms.charge
        return max(self._charge, planned)

    def by(self, mechanism: str) -> Guarantee:
        """Coins, or scans of all rows with Gaussian noise: one theorem, one failure event, one charge."""
        return self._scans if mechanism in ScansBesideCoins.planning.mechanisms else super().by(mechanism)

    @cached_property
    def _scans(self) -> ScansBesideCoins:
        return ScansBesideCoins(self)

    def spread_step(self, second: float, within: Interval) -> float:
        """By `exchange_spread`."""
        low, high = within
        most = max(low * low, high * high)
        return moments.exchange_spread(self._j, second, most, high - low, identical=self.terms.identical)

    def step_of_difference(self, both: tuple[groups.Known, groups.Known]) -> float:
        """By `exchange_step`."""
        return groups.exchange_step(both, self._j, identical=self.terms.identical)


@lru_cache(maxsize=4096)
def _planned(goal: Goal, mechanism: str) -> ExchangeTerms:
    rhos = RHOS if goal.rows < FEW_ROWS else RHOS[:1]
    return min((_planned_with(goal, mechanism, rho) for rho in rhos), key=lambda terms: terms.margin)


def _planned_with(goal: Goal, mechanism: str, rho: float) -> ExchangeTerms:
    n, k, fixed = goal.rows, goal.queries, goal.rows_per_query
    kept = 0.0 if goal.ends else RESERVE * goal.beta
    beta = goal.beta - kept

    def margin(log_ell: Vector, log_a: Vector, logit: Vector, log_stretch: Vector) -> Vector:
        ell, a, split, charge = np.exp(log_ell), np.exp(log_a), special.expit(logit), k * np.exp(log_ell)
        free = exchange.constants(n, charge, a, split * beta, stretch=np.exp(log_stretch), identical=goal.identical)
        constants = (free.om2, free.kap, free.s, free.L, free.L2)
        nats = exchange.ibar(n, charge, a, *constants, rho=rho, identical=goal.identical)
        width = clopper_pearson_width(ell, (1 - split) * beta / (e * k)) / (1 - 2 * a)
        total: Vector = width + _falling(2 * nats / n, goal.identical)
        return total

    ells = (log(n) * 0.2, log(n)) if fixed is None else (log(fixed), log(fixed))
    box = [ells, (log(1e-7), log(MOST_MASS)), (-6.0, 4.0), (-3.0, 0.7)]
    log_ell, log_a, logit, log_stretch = zoom(margin, box, points=5, levels=12)
    ell = fixed or min(n, max(1, int(np.exp(log_ell) * (1 + 1e-12))))
    a, beta1 = float(np.exp(log_a)), float(special.expit(logit)) * beta
    free = exchange.constants(n, k * ell, a, beta1, stretch=np.exp(log_stretch), identical=goal.identical)
    om2: tuple[float, ...] = (float(free.om2),)
    nats: tuple[float, ...] = (float(free.L),)
    if not goal.ends:
        om2 += tuple(part * om2[0] for part in LATER)
        nats += len(LATER) * (-log(kept / 2 / len(LATER)) * SAFE,)
    own: dict[str, Any] = {"om2": om2, "L": nats, "kap": float(free.kap), "L2": float(free.L2), "rho": rho, "mass": a}
    own |= {"beta2": beta - beta1, "later_beta2": kept / 2, "slope": LATER_SLOPE * ell * sqrt(k)}
    own |= {"rows_per_query": ell, "charge": k * ell}
    return _with_margin(goal.met_by(ExchangeTerms, mechanism, margin=1.0, **own))


def _with_margin(terms: ExchangeTerms) -> ExchangeTerms:
    """Fill in the margin of the first answer."""
    charge = terms.charge or terms.rows_per_query
    width = float(clopper_pearson_width(terms.rows_per_query, terms.level_at(1))) / (1 - 2 * terms.mass)
    step = float(exchange.worst_case(terms.j_at(charge), identical=terms.identical))
    return replace(terms, margin=min(1.0, width + step))


def _falling(J: Any, identical: bool) -> Any:
    """Return the step from posterior means to the population; for J >= 1, a value that leads searches to smaller J."""
    return np.where(J < 1, exchange.worst_case(J, identical=identical), np.sqrt(J))


@lru_cache(maxsize=4096)
def _endless(goal: Goal, mechanism: str) -> ExchangeTerms:
    """Return terms without a plan: the mass, kap and rho that suit questions from the first to the millionth."""
    n, beta1 = goal.rows, goal.beta / 2
    own: dict[str, Any] = {"om2": OM2, "L": len(OM2) * (-log(0.9 * beta1 / len(OM2)) * SAFE,), "beta2": 0.0}
    own |= {"L2": -log(0.1 * beta1) * SAFE, "later_beta2": goal.beta - beta1, "slope": SLOPE * n, "charge": 0}
    own |= {"rows_per_query": goal.rows_per_query or n, "mass": 0.1, "kap": 1.0, "rho": exchange.HALF}
    draft = goal.met_by(ExchangeTerms, mechanism, margin=1.0, **own)
    tried = [_suited(draft, rho) for rho in (RHOS if n < FEW_ROWS else RHOS[:1])]
    return _with_margin(min(tried, key=lambda pair: pair[0])[1])


def _suited(draft: ExchangeTerms, rho: float) -> tuple[float, ExchangeTerms]:
    """Return the terms with the best mass and kap, and the mean of the logarithms of their margins at `DECADES`."""
    n, om2, nats = draft.rows, np.array(draft.om2), np.array(draft.L)
    charges = np.array([draft.drawn_by(1, t) for t in DECADES], dtype=float)[:, None]
    widths = np.array([float(clopper_pearson_width(draft.rows_at(t), draft.level_at(t))) for t in DECADES])
    s = exchange.good_s(n, charges, om2, nats)

    def mean_log(log_a: Vector, log_kap: Vector) -> Vector:
        a, kap = np.exp(log_a)[:, None, None], np.exp(log_kap)[:, None, None]
        constants = (om2, kap, s, nats, draft.L2)
        ibar = exchange.ibar(n, charges, a, *constants, rho=rho, identical=draft.identical).min(axis=2)
        margins = widths / (1 - 2 * a[:, :, 0]) + _falling(2 * ibar / n, draft.identical)
        means: Vector = np.log(np.minimum(margins, 1e3)).mean(axis=1)  # settings that promise nothing count alike
        return means

    box = [(log(1e-5), log(MOST_MASS)), (log(0.02), log(exchange.MOST_KAP))]
    log_a, log_kap = zoom(mean_log, box, points=9, levels=7)
    value = float(mean_log(np.array([log_a]), np.array([log_kap]))[0])
    return value, replace(draft, mass=float(np.exp(log_a)), kap=float(np.exp(log_kap)), rho=rho)


GUARANTEES.register(Exchange.name, Exchange)
