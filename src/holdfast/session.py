"""The story of a question.

    (1) queries      the question is checked against the schema; nothing is read
    (2) planning     the plan that stands says how many rows and flips it takes
    (6) ledger       asked before? then it is free. Too dear? then it is refused
    (3) rows         some rows are drawn,
    (4) mechanisms   coins are tossed and flipped,
    (5) certify      and what may be released becomes an interval for the population
    (6) ledger       answer and cost are committed together, durably
    (7) answer       and only then shown

Whoever asks, from Python, the command line or over HTTP, asks through `Session`.
"""

import json
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import cache
from inspect import signature
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import polars as pl

from holdfast import questions
from holdfast.answer import Answer, AnyAnswer, FlipsAnswer, HistogramAnswer, MinimumAnswer, from_body, from_entry
from holdfast.beginning import Wanted, ledger_beside
from holdfast.budget import Budget, Quote
from holdfast.errors import InvalidArgument, PlanConflict
from holdfast.history import history_frame
from holdfast.ledger import BudgetMoved, Cost, Ledger, Receipt, check_analyst, exists, open_ledger
from holdfast.planning import Plan
from holdfast.planning.present import sentence
from holdfast.queries.synthetic import synthetic_rows
from holdfast.questions import BUILDERS, Desk, Question
from holdfast.randomness import Randomness
from holdfast.rows.memory import memory_rows
from holdfast.rows.open import open_rows

MADE_UP_ROWS = 1_000

_signature = cache(signature)  # there are five


class Session:
    """A dataset that answers questions, each chosen after the last answer, with intervals that stay true.

    `data` is a path, a frame, a dict of arrays or an opened source. `queries` or `accuracy` sets the plan when the
    ledger begins; later sessions resume it. `ledger` is a path or a database URL; left out, it lies beside the data, or
    in memory for data in memory. `seed` is for tests: draws become predictable and the ledger says so.
    """

    def __init__(
        self,
        data: Any,
        *,
        queries: int | Mapping[str, int] | None = None,
        accuracy: float | None = None,
        confidence: float | None = None,
        ledger: str | Path | None = None,
        guarantee: str = "best",
        mechanism: str = "best",
        seed: int | None = None,
        analyst: str | None = None,
    ) -> None:
        wanted = Wanted(queries, accuracy, confidence, guarantee, mechanism)
        check_analyst(analyst)
        self._randomness = Randomness(seed)
        self._rows: Any = open_rows(data)
        location = ledger_beside(self._rows) if ledger is None else ledger
        terms = None
        if not exists(location, self._rows.name):
            begun = wanted.begin(len(self._rows), self._randomness)
            caps = {"flips": begun.flips, "intervals": begun.statements}
            terms = begun.to_dict() | {"caps": caps}
        try:
            self._ledger = self._open(location, terms)
        except PlanConflict:
            if terms is None:
                raise
            terms = None  # somebody began it this very moment: their plan stands
            self._ledger = self._open(location, None)
        self._randomness.skip(self._ledger.head.seq)  # a seed must not draw the same coins again for later questions
        self.plan = Plan.from_dict(self._ledger.terms)
        if terms is None:
            wanted.must_match(self.plan, self._ledger.location)
        self._analyst = analyst
        self._desk = Desk(self.plan, self._rows.schema)

    def _open(self, location: str | Path | None, terms: dict[str, Any] | None) -> Ledger:
        return open_ledger(
            location,
            dataset=self._rows.name,
            fingerprint=self._rows.fingerprint,
            terms=terms,
            reproducible=self._randomness.reproducible,
        )

    # -- asking -------------------------------------------------------------------------------------------------

    def mean(
        self,
        query: Any,
        *,
        within: tuple[float, float] | None = None,
        where: Any = None,
        rows_per_query: int | None = None,
        accuracy: float | None = None,
    ) -> Answer:
        """Return the share of rows for which `query` is true, or the mean of a number declared `within` bounds.

        `where` restricts to a group; missing values are left out of a mean and count as false in a share.
        `rows_per_query` or `accuracy` (in the units of the answer) spends more or less on this one answer.
        """
        options = {"within": within, "where": where, "rows_per_query": rows_per_query, "accuracy": accuracy}
        return cast(Answer, self._ask(questions.mean(self._desk, query, **options)))

    def histogram(
        self, query: Any, *, categories: Any = None, bins: Any = None, rows_per_query: int | None = None
    ) -> HistogramAnswer:
        """Return the share of each declared category (or bin) and of everything else, in one pass."""
        question = questions.histogram(
            self._desk, query, categories=categories, bins=bins, rows_per_query=rows_per_query
        )
        return cast(HistogramAnswer, self._ask(question))

    def quantile(
        self,
        query: Any,
        q: float,
        *,
        within: tuple[float, float],
        where: Any = None,
        steps: int = questions.QUANTILE_STEPS,
    ) -> Answer:
        """Return an interval for the `q` quantile of a number declared `within` bounds, by bisection."""
        question = questions.quantile(self._desk, query, q, within=within, where=where, steps=steps)
        return cast(Answer, self._ask(question))

    def flip(self, query: Any) -> int:
        """Return 0 or 1, with expectation near the share of rows for which `query` is true."""
        return self.flips(query, 1).bits[0]

    def flips(self, query: Any, count: int) -> FlipsAnswer:
        """Return `count` new flips and the interval of their average."""
        return cast(FlipsAnswer, self._ask(questions.flips(self._desk, query, count)))

    def ask(self, query: Any, kind: str = "mean", *, retry_key: str | None = None, **options: Any) -> AnyAnswer:
        """Ask by kind: "mean", "histogram", "quantile" or "flips", with that verb's options.

        A question that is new each time (flips) gets its first answer again when the same analyst sends it again with
        the same `retry_key`.
        """
        question = self._question(self._desk, kind, query, options)
        if retry_key is not None and not isinstance(retry_key, str):
            raise InvalidArgument(f"retry_key must be text; got {type(retry_key).__name__}.", name="retry_key")
        if question.identity is None and retry_key is not None:
            retried = [retry_key, self.analyst, question.kind, question.text, question.price.flips]
            question = replace(question, identity=json.dumps({"retry": retried}))
        return self._ask(question)

    def minimize(self, loss: Any, *, radius: float | None = None, box: Any = None, **options: Any) -> MinimumAnswer:
        """Return a point of small population loss in a ball or box, and the interval of its loss.

        `loss` is one of `holdfast.losses`, or one's own. `excess` is the promise to reach, or `iterations` and
        `rows_per_coordinate` what to spend; `average`, `mechanism`, `runs` and `select` are explained in the guide
        to optimisation.
        """
        chosen = {"radius": radius, "box": box} | options
        return cast(MinimumAnswer, self._ask(self._question(self._desk, "minimize", loss, chosen)))

    def _ask(self, question: Question) -> AnyAnswer:
        if question.identity is not None:
            standing = self._ledger.find(question.identity)
            if standing is not None:
                return from_entry(standing, self.plan, cached=True)
        cost = Cost(question.price.flips, question.price.intervals)
        self._ledger.require(cost)
        while True:
            # Fresh rows are taken in order: if somebody took these meanwhile, the answer is dropped unseen.
            start = self._ledger.spent.flips if self.plan.guarantee == "split" else None
            body = question.run(self._rows, self._randomness.generator(), start or 0)
            try:
                entry, fresh = self._ledger.commit(
                    key=question.identity,
                    question=question.describe(),
                    answer=body,
                    cost=cost,
                    rows_read=question.price.rows_read,
                    analyst=self._analyst,
                    expected_flips=start,
                )
            except BudgetMoved:
                self._ledger.require(cost)
                continue
            return from_entry(entry, self.plan, cached=not fresh)

    # -- looking before paying ----------------------------------------------------------------------------------

    def price(self, query: Any, kind: str = "mean", **options: Any) -> Quote:
        """Say what a question would cost; reads nothing, spends nothing."""
        question = self._question(self._desk, kind, query, options)
        asked = question.identity is not None and self._ledger.find(question.identity) is not None
        left = self._ledger.left
        price = question.price
        return Quote(
            question=question.text,
            flips=price.flips,
            queries=price.intervals,
            rows_read=price.rows_read,
            accuracy=question.accuracy,
            cached=asked,
            affordable=asked or (price.flips <= left.flips and price.intervals <= left.intervals),
        )

    def dry_run(self, query: Any, kind: str = "mean", **options: Any) -> AnyAnswer:
        """Answer from made-up rows: the same checks and the same shape, nothing read, nothing spent."""
        desk = Desk(self.plan, self._rows.schema, most_draws=MADE_UP_ROWS)
        question = self._question(desk, kind, query, options)
        cost, caps = Cost(question.price.flips, question.price.intervals), self._ledger.caps
        if cost.flips > caps.flips or cost.intervals > caps.intervals:
            self._ledger.require(cost)  # could never be asked
        rng = self._randomness.generator()
        invented = memory_rows(synthetic_rows(self._rows.schema, MADE_UP_ROWS, rng), name="made up")
        body = question.run(invented, rng, 0)
        return from_body(question.describe(), body, self.plan, rows_read=0, cost=0)

    @staticmethod
    def _question(desk: Desk, kind: str, query: Any, options: Mapping[str, Any]) -> Question:
        if kind == "minimize":
            from holdfast.optimize.question import minimize as build  # late: most sessions never optimise
        elif isinstance(kind, str) and kind in BUILDERS:
            build = BUILDERS[kind]
        else:
            known = ", ".join([*BUILDERS, "minimize"])
            raise InvalidArgument(f"kind must be one of {known}; got {kind!r}.", name="kind")
        try:
            _signature(build).bind(desk, query, **options)
        except TypeError as wrong:
            raise InvalidArgument(f"{kind} cannot be asked this way: {wrong}.", name="options") from None
        return build(desk, query, **options)

    # -- what stands --------------------------------------------------------------------------------------------

    @property
    def budget(self) -> Budget:
        """What is left to ask, for everyone together."""
        return Budget.of(self.plan, self._ledger.spent)

    @property
    def schema(self) -> Any:
        """Column names and types. Never values."""
        return self._rows.schema

    @property
    def analyst(self) -> str | None:
        """Whose name goes on the answers; `for_analyst` puts another one there."""
        return self._analyst

    @property
    def ledger(self) -> Any:
        """The ledger: entries, head, verify."""
        return self._ledger

    def receipt(self, answer: AnyAnswer | int) -> Receipt:
        """Return the proof that an answer is in the ledger, checkable by a third party against a published head."""
        seq: Any = answer if isinstance(answer, int) else getattr(answer, "seq", answer)
        if seq is None:
            raise InvalidArgument("A dry run is in no ledger, so there is no receipt for it.")
        return self._ledger.receipt(seq)

    def verify_data(self) -> None:
        """Read and hash all the data again; raise RowSourceError if it is not what the ledger was begun with."""
        self._rows.verify_content()

    def history(self) -> pl.DataFrame:
        """Return every answer so far, whoever asked, as a frame."""
        return history_frame(self._ledger.entries())

    def for_analyst(self, analyst: str | None) -> "Session":
        """Return this session as another analyst sees it: same data, same ledger, their name on the answers."""
        check_analyst(analyst)
        other = copy(self)
        other._analyst = analyst
        return other

    def close(self) -> None:
        """Let go of the ledger."""
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        seeded = " Seeded: reproducible, not for shared use." if self._ledger.reproducible else ""
        return f"Session on {self._rows.name} ({len(self._rows):,} rows): {self.budget}.{seeded}\n{sentence(self.plan)}"
