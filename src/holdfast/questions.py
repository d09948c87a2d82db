"""What can be asked of a session, each question with its price and the steps that answer it.

A `Question` is complete before any row is read: checked against the schema, priced, and named by an identity that says
when two people ask the same thing. Running it touches rows only through mechanisms.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.random import Generator

from holdfast import check
from holdfast.certify import MOST_DRAWS, Estimate, accuracy_at, certify, draws_for, must_vary
from holdfast.errors import InvalidArgument, InvalidQuery, PlanConflict, PlanInfeasible
from holdfast.mechanisms.base import Mechanism, Price
from holdfast.mechanisms.coins import Coins, bits
from holdfast.mechanisms.fresh_rows import FreshRows
from holdfast.mechanisms.laplace import Laplace
from holdfast.planning import Plan
from holdfast.queries.build import build_at_most, build_histogram, build_mean
from holdfast.queries.query import Query
from holdfast.rows.source import RowSource
from holdfast.schema import Schema

QUANTILE_STEPS = 10
MOST_STEPS = 1_000  # halving the widest range of floating-point numbers takes about that many
MOST_PRICES = 1_000  # remembered
LONGEST_QUESTION = 1_000_000  # characters, with all categories

_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode


@dataclass(frozen=True)
class Question:
    """A question that may be asked: its price, and how to answer it (`run` returns the answer's JSON body)."""

    kind: str
    text: str
    identity: str | None
    price: Price
    accuracy: float | None
    bounds: tuple[float, float]
    run: Callable[[RowSource, Generator, int], dict[str, Any]]

    def __post_init__(self) -> None:
        for said in (self.text, self.identity or ""):  # whatever the ledger could not write is refused here
            if len(said) > LONGEST_QUESTION:
                raise InvalidQuery(
                    f"A question must be at most {LONGEST_QUESTION:,} characters long; got {len(said):,}."
                )
            if said.isascii():
                continue
            try:
                said.encode()
            except UnicodeEncodeError:
                raise InvalidQuery("A question must be valid text; got half of a surrogate pair.") from None

    def describe(self) -> dict[str, Any]:
        """Return what the ledger records of the question."""
        return {"kind": self.kind, "text": self.text, "bounds": list(self.bounds)}


@dataclass(frozen=True)
class Desk:
    """Where questions are made ready: the plan that stands and the schema of the data."""

    plan: Plan
    schema: Schema
    most_draws: int | None = None  # a dry run draws no more than this from its made-up rows
    _prices: dict[tuple[str, int, int], Price] = field(default_factory=dict, init=False, repr=False, compare=False)
    _accuracies: dict[int, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def mechanism(self, draws: int, start: int = 0) -> Mechanism:
        """Return the plan's mechanism, for this many draws; `start` counts the fresh rows already used."""
        plan = self.plan
        if self.most_draws is not None:
            draws = min(draws, self.most_draws)
        if plan.mechanism == "coins":
            return _coins(draws, plan.flip_probability)
        if plan.mechanism == "laplace":
            return Laplace(draws=draws, epsilon=plan.constants["epsilon"])
        return FreshRows(draws=draws, key=int(plan.constants["order"]), start=start)

    def price(self, query: Query, draws: int) -> Price:
        """Return what one release costs; refuses questions this plan cannot answer."""
        if self.plan.guarantee == "paper" and self.plan.mechanism == "coins" and query.kind not in ("share", "mean"):
            raise PlanConflict(
                "The paper's averaged coins answer shares and means only; ask without `where`, or plan with"
                " mechanism='laplace'."
            )
        if self.plan.guarantee == "information" and 10 * query.outcomes > self.plan.rows:
            raise InvalidArgument(
                f"A question with {query.outcomes} outcomes needs at least {10 * query.outcomes:,} rows, or its answer"
                f" is mostly noise; there are {self.plan.rows:,}. Ask about fewer categories at once.",
                outcomes=query.outcomes,
                most=self.plan.rows // 10,
            )
        kind = (query.kind, query.outcomes, draws)  # all that a price depends on
        known = self._prices.get(kind)
        if known is None:
            known = self.mechanism(draws).price(query, self.plan.rows)
            if len(self._prices) < MOST_PRICES:
                self._prices[kind] = known
        return known

    def release(self, query: Query, draws: int, source: RowSource, rng: Generator, start: int) -> list[Estimate]:
        """Draw once and certify."""
        if self.most_draws is not None:
            draws, start = min(draws, self.most_draws), 0  # made-up rows do not run out
        release = self.mechanism(draws, start).release(query, source, rng)
        return certify(self.plan, query, release, draws=draws)

    def accuracy(self, draws: int) -> float:
        """Return the accuracy that an answer from this many draws has, as a share of the question's range."""
        if draws == self.plan.rows_per_query:
            return self.plan.accuracy
        known = self._accuracies.get(draws)
        if known is None:
            known = accuracy_at(self.plan, draws)
            if len(self._accuracies) < MOST_PRICES:
                self._accuracies[draws] = known
        return known

    def draws(self, query: Query, rows_per_query: int | None, accuracy: float | None) -> int:
        """Return how many rows one answer reads: the plan's number, or what the caller wants for this one."""
        if rows_per_query is None and accuracy is None:
            return self.plan.rows_per_query
        if rows_per_query is not None and accuracy is not None:
            raise InvalidArgument("Give rows_per_query or accuracy, not both.")
        must_vary(self.plan)
        if rows_per_query is not None:
            check.whole(rows_per_query=rows_per_query)
            check.at_most("the most one answer can read", MOST_DRAWS, rows_per_query=rows_per_query)
            return int(rows_per_query)
        if query.kind == "group":
            raise InvalidArgument(
                "accuracy is for questions about all rows; the accuracy of a group depends on its size."
                " Use rows_per_query to spend more or less."
            )
        check.positive(accuracy=accuracy)
        low, high = query.bounds
        draws = draws_for(self.plan, min(1.0, float(accuracy or 0) / (high - low)))
        if draws is None:
            best = (high - low) * accuracy_at(self.plan, MOST_DRAWS)
            raise PlanInfeasible(
                f"No number of rows makes one answer as accurate as {accuracy:g} under this plan; its limit is"
                f" {best:.3g}. Plan fewer questions to come closer.",
                accuracy=accuracy,
                best_accuracy=best,
            )
        return draws


def mean(
    desk: Desk,
    query: Any,
    *,
    within: Any = None,
    where: Any = None,
    rows_per_query: int | None = None,
    accuracy: float | None = None,
) -> Question:
    """A share, a bounded mean, or either of them in a group."""
    built = build_mean(query, desk.schema, within=within, where=where)
    draws = desk.draws(built, rows_per_query, accuracy)
    price = desk.price(built, draws)

    def run(source: RowSource, rng: Generator, start: int) -> dict[str, Any]:
        (estimate,) = desk.release(built, draws, source, rng, start)
        return {"estimate": _triple(estimate)}

    return Question(
        kind="mean",
        text=built.text,
        identity=_identity(built, draws),
        price=price,
        accuracy=_accuracy(desk, built, draws),
        bounds=built.bounds,
        run=run,
    )


def histogram(
    desk: Desk, query: Any, *, categories: Any = None, bins: Any = None, rows_per_query: int | None = None
) -> Question:
    """The share of every declared category, in one pass."""
    built = build_histogram(query, desk.schema, categories=categories, bins=bins)
    draws = desk.draws(built, rows_per_query, None)

    def run(source: RowSource, rng: Generator, start: int) -> dict[str, Any]:
        estimates = desk.release(built, draws, source, rng, start)
        return {"categories": list(built.labels), "estimates": [_triple(estimate) for estimate in estimates]}

    return Question(
        kind="histogram",
        text=built.text,
        identity=_identity(built, draws),
        price=desk.price(built, draws),
        accuracy=_accuracy(desk, built, draws),
        bounds=(0.0, 1.0),
        run=run,
    )


def flips(desk: Desk, query: Any, count: int = 1) -> Question:
    """Sampling counting queries: `count` coins about one yes-or-no question. Never cached: a coin is new each time."""
    check.whole(count=count)
    check.at_most("the most one answer can read", MOST_DRAWS, count=count)
    count, plan = int(count), desk.plan
    if plan.mechanism != "coins" or plan.guarantee == "posterior":
        raise PlanConflict(
            f"This session stands on the {plan.guarantee} guarantee, which promises nothing about single flips."
            " Plan a session for them: queries={'flip': ...}, or {'mean': ..., 'flip': ...} for both, which runs"
            " under the information guarantee.",
            guarantee=plan.guarantee,
        )
    built = build_mean(query, desk.schema, within=None, where=None)
    if built.kind != "share":
        raise InvalidArgument("A flip asks a yes-or-no question of one row; ask the mean of a number with `mean`.")

    def run(source: RowSource, rng: Generator, start: int) -> dict[str, Any]:
        release = desk.mechanism(count).release(built, source, rng)
        (estimate,) = certify(plan, built, release, draws=sum(release.counts))
        return {"bits": "".join(map(str, bits(release, rng))), "estimate": _triple(estimate)}

    noun = "flip" if count == 1 else f"{count:,} flips"
    return Question(
        kind="flips",
        text=f"{noun} of {built.text}",
        identity=None,
        price=desk.price(built, count),
        accuracy=None,
        bounds=(0.0, 1.0),
        run=run,
    )


def quantile(
    desk: Desk, query: Any, q: float, *, within: Any, where: Any = None, steps: int = QUANTILE_STEPS
) -> Question:
    """An interval for a quantile, by bisection: each step asks which share lies at or below a threshold.

    `steps` questions are charged, whatever they answer. All their intervals hold at once, so the thresholds certainly
    below and certainly not below the quantile bound it.
    """
    check.share(q=q)
    check.whole(steps=steps)
    check.at_most("the most that help", MOST_STEPS, steps=steps)
    low, high = check.interval("within", within)
    steps, draws = int(steps), desk.plan.rows_per_query
    at_most = build_at_most(query, 0.0, desk.schema, where=where)
    each = desk.price(at_most, draws)

    def run(source: RowSource, rng: Generator, start: int) -> dict[str, Any]:
        search = _Bisection(q, low, high)
        for step in range(steps):
            threshold = search.next_threshold()
            asked = replace(at_most, threshold=threshold)
            (estimate,) = desk.release(asked, draws, source, rng, start + step * each.flips)
            search.learn(threshold, estimate)
        return {"estimate": _triple(search.estimate())}

    asked = {"quantile": at_most.identity, "q": float(q), "within": [low, high], "steps": steps, "draws": draws}
    shown = "" if at_most.where is None else f" where {at_most.where.text}"
    return Question(
        kind="quantile",
        text=f"{q:g} quantile of {at_most.value.text} within [{low:.15g}, {high:.15g}]{shown}",
        identity=None if at_most.identity is None else _encode(asked),
        price=Price(steps * each.flips, steps * each.intervals, steps * each.rows_read),
        accuracy=None,
        bounds=(low, high),
        run=run,
    )


class _Bisection:
    """Close in on a quantile from both sides, by thresholds whose shares are known only up to intervals.

    `low`/`high` are proven: the quantile lies between. `doubt` is the range of thresholds whose interval contains q.
    """

    def __init__(self, q: float, low: float, high: float) -> None:
        self.q, self.low, self.high = q, low, high
        self.doubt: tuple[float, float] | None = None
        self.seen: list[tuple[float, float]] = [(high, 1.0)]
        self.start = low

    def next_threshold(self) -> float:
        if self.doubt is None:
            return _middle(self.low, self.high)
        left, right = self.doubt
        if left - self.low >= self.high - right:
            return _middle(self.low, left)
        return _middle(right, self.high)

    def learn(self, threshold: float, share: Estimate) -> None:
        self.seen.append((threshold, share.value))
        if share.high < self.q:
            self.low = max(self.low, threshold)
        elif share.low >= self.q and share.low > 0:  # the 0 quantile is where values begin, not minus infinity
            self.high = min(self.high, threshold)
        elif self.doubt is None:
            self.doubt = (threshold, threshold)
        else:
            self.doubt = (min(self.doubt[0], threshold), max(self.doubt[1], threshold))

    def estimate(self) -> Estimate:
        """Interpolate the shares seen, made monotone, and keep the value inside the proven interval."""
        thresholds, shares = (np.array(column) for column in zip(*sorted(self.seen), strict=True))
        shares = np.maximum.accumulate(shares)
        thresholds, shares = np.concatenate([[self.start], thresholds]), np.concatenate([[0.0], shares])
        value = float(np.interp(self.q, shares, thresholds))
        return Estimate(min(max(value, self.low), self.high), self.low, self.high)


@lru_cache(maxsize=1024)
def _coins(draws: int, flip_probability: float) -> Coins:
    return Coins(draws=draws, flip_probability=flip_probability)  # checked once: most answers use the same


def _triple(estimate: Estimate) -> list[float]:
    return [estimate.value, estimate.low, estimate.high]


def _middle(low: float, high: float) -> float:
    return low + (high - low) / 2  # the sum of two large numbers may be infinite


def _identity(query: Query, draws: int) -> str | None:
    """Return canonical JSON of the question and the rows it reads; written by hand, because every answer needs it."""
    identity = query.identity
    return None if identity is None else f'{{"draws": {draws}, "query": {_encode(identity)}}}'


def _accuracy(desk: Desk, query: Query, draws: int) -> float | None:
    """Return the promised accuracy in the question's units, where one number can say it."""
    if query.kind not in ("share", "mean"):
        return None
    return (query.bounds[1] - query.bounds[0]) * desk.accuracy(draws)


BUILDERS: Mapping[str, Callable[..., Question]] = {
    "mean": mean,
    "histogram": histogram,
    "quantile": quantile,
    "flips": flips,
}
