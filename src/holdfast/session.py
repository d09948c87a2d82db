"""The story of a question.

    1 check      against the schema alone; nothing is read                          queries, questions
    2 price      by the guarantee that stands                                       guarantees
    3 find       asked before? the stored answer, free                              ledger
    4 reserve    the ledger takes the charge and gives a place, durably; or refuses ledger
    5 draw       rows are drawn, and tallied where they live                        rows, mechanisms
    6 certify    what was released becomes an interval for the population           guarantees
    7 commit     the answer, durably; then it is shown                              ledger

What was drawn is paid for, shown or not. A question that is being answered is not drawn for a second time: whoever else
asks it waits for the answer.

Whoever asks, from Python, the command line, over HTTP or as an agent, asks through `Session`.
"""

import json
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar, cast

import polars as pl

from holdfast.answer import AnyAnswer, Record
from holdfast.beside import MADE_UP_ROWS, declare, explored_beside, ledger_beside, made_up, plan_for, witnesses_beside
from holdfast.errors import BudgetExhausted, InvalidArgument, PlanConflict
from holdfast.guarantees.compare import BEST, RowsPerQuery
from holdfast.guarantees.plan import Plan, Queries, VacuousPlan
from holdfast.guarantees.request import PlanRequest
from holdfast.ledger import (
    Cost,
    Drawn,
    Entry,
    Ledger,
    Place,
    Receipt,
    SharedBudget,
    Spent,
    check_analyst,
    open_ledger,
)
from holdfast.optimize.losses import LinearLoss, Loss
from holdfast.queries.build import QueryLike
from holdfast.queries.silence import silence
from holdfast.questions import KINDS, kind_named
from holdfast.questions.batch import MOST_TOGETHER, Answers, Asked, Prices, Questions, build_all, together_of
from holdfast.questions.check import CheckAnswer
from holdfast.questions.history import answer_from, history_frame
from holdfast.questions.mean import MEAN
from holdfast.questions.price import Budget, Price, require_affordable, too_dear
from holdfast.questions.question import Context, Drawing, Kind, Question, standing_at
from holdfast.questions.register import Registered
from holdfast.questions.sql import Selected, select
from holdfast.questions.standings import Standings
from holdfast.questions.verbs import Verbs
from holdfast.randomness import Randomness
from holdfast.rows.deck import Deck, reserved
from holdfast.rows.drawers import Drawers
from holdfast.rows.draws import Order
from holdfast.rows.local import LocalRows, ids_of
from holdfast.rows.open import open_rows
from holdfast.rows.source import RowSource, RowVerbs, Table
from holdfast.rows.units import warn_of_units
from holdfast.schema import Schema

NOTHING_SPENT = Spent(0, 0, 0)
SHARES = "All sessions of this process on these rows share one budget:"
ORDER, DRAWERS = "order of rows", "drawers"  # what the ledger's keys for them are called
A = TypeVar("A", bound=AnyAnswer)


class Session(Verbs):
    """A dataset that answers questions, each chosen after the last answer, with intervals that stay true.

    Parameters
    ----------
    data
        A path, a frame, a dict of arrays or an opened row source.
    queries, margin, confidence
        The plan, if the ledger has not begun: how many questions, or the margin every answer should have, and the
        probability that all answers hold at once. With neither, there is no plan: intervals widen slowly as questions
        go by. With one of them the margin stays the same for as many questions, and widens after them. The ledger
        begins with the first answer; after that the plan stands.
    ledger
        A path or a database URL; left out, it lies beside the data, or in memory for data in memory: then all sessions
        of this process on the same rows share it.
    guarantee, mechanism
        Names, or "best".
    rows_per_query
        Rows that one answer reads: a number, "fast" (at most 12,000), "balanced" (at most 100,000; so if left out) or
        "best" (the number with the smallest margin). `Plan.readings` shows others.
    end
        Whether questions beyond the plan are refused, instead of answered with wider margins.
    rows
        "independent" (so if left out): rows may follow different laws, and answers speak of their average.
        "identical": all follow one law; rare events get narrower intervals. See the guide to data.
    checks
        The share of rows that answer nothing and check guesses instead (`check`), such as 0.2: secret, and no others
        may. Left out, the session answers and does not check.
    seed
        For tests: draws become predictable, and the ledger says so. In memory, each such session has its own budget.
    analyst
        Whose name goes on the answers.
    complete
        Columns of `data` whose values are never missing: see `holdfast.open`.
    unit
        The column that says which rows belong together, such as "patient", if rows are not independent of each other
        but those of different units are. Then n is the number of units, and one draw is one unit.
    bounds, categories, labels
        Declared once, by column: the range of its numbers, its values, what people call it. Then questions may leave
        out `within` and lists of categories. A TOML file beside the data may say the same: see `queries.declared`.
    """

    def __init__(
        self,
        data: Table,
        *,
        queries: Queries | None = None,
        margin: float | None = None,
        confidence: float | None = None,
        ledger: str | Path | None = None,
        guarantee: str = BEST,
        mechanism: str = BEST,
        rows_per_query: RowsPerQuery | None = None,
        end: bool = False,
        rows: str | None = None,
        checks: float | None = None,
        seed: int | None = None,
        analyst: str | None = None,
        complete: Collection[str] = (),
        unit: str | None = None,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        categories: Mapping[str, Sequence[Any]] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._request = PlanRequest(
            queries, margin, confidence, guarantee, mechanism, rows_per_query, end, rows, checks
        )
        check_analyst(analyst)
        self._analyst = analyst
        self._randomness = Randomness(seed)
        self._rows: RowSource = open_rows(data, complete=complete, unit=unit)
        self._schema = declare(self._rows, bounds=bounds, categories=categories, labels=labels)
        self._explored = explored_beside(self._rows)
        # What was opened here is closed here; rows that the caller opened may serve other sessions.
        self._opened = self._rows if isinstance(self._rows, LocalRows | Deck) and self._rows is not data else None
        place = ledger_beside(self._rows) if ledger is None else ledger
        self._ledger: Ledger = open_ledger(
            place,
            dataset=self._rows.name,
            fingerprint=self._rows.fingerprint,
            reproducible=self._randomness.reproducible,
            witnesses=witnesses_beside(self._rows),
        )
        self._shared = place is None and self._ledger.begun  # by other sessions of this process
        self.registered = Registered(self._ledger)
        self._owns_ledger = True
        self._parts: Drawers | None = None  # the two drawers, when rows of them were read
        self._joined = False  # whether the plan is the one that the ledger records
        try:
            if isinstance(self._rows, Deck):
                self._rows.join(self._ledger.first, self._ledger.taken)
            self._resume() if self._ledger.begun else self._plan(plan_for(self._rows, self._request))
        except BaseException:
            self._ledger.close()
            raise
        if self.plan.vacuous and self.plan.standing.answers:
            warnings.warn(self.plan.sentence, VacuousPlan, stacklevel=2)
        if not self._joined:
            warn_of_units(self._schema)
        if self._shared:
            warnings.warn(f"{SHARES} {self.budget}.", SharedBudget, stacklevel=2)

    # -- asking -------------------------------------------------------------------------------------------------

    def flip(self, query: QueryLike) -> int:
        """Return 0 or 1, with expectation near the share of rows for which `query` is true."""
        return self.flips(query, 1).bits[0]

    def ask(
        self,
        query: QueryLike | Loss | LinearLoss,
        kind: str = MEAN.name,
        *,
        idempotency_key: str | None = None,
        **options: object,
    ) -> AnyAnswer:
        """Ask by kind, with that kind's options.

        Parameters
        ----------
        query
            What is asked about; a loss for "minimize".
        kind
            The name of a kind of question, such as "mean".
        idempotency_key
            A question that is new each time (flips, functions) gets its first answer again when the same analyst sends
            it again with the same key.
        **options
            The options of the kind.

        Returns
        -------
        AnyAnswer
            The answer of that kind.
        """
        return self._answer(kind_named(kind), (query,), options, idempotency_key)

    def ask_many(self, questions: Iterable[Asked]) -> Answers:
        """Ask several questions: one reservation, one transaction, all of them or none.

        All are checked, and the budget must be able to pay for all, before the first is asked. What was asked before is
        free here, too. More than 200 take a transaction for each 200.

        Parameters
        ----------
        questions
            Texts, or dicts with the kind and the options of a question, such as ``{"query": "late", "by": "month"}``.
            A `Questions` is registered first: the history tells which were fixed beforehand.
        """
        if isinstance(questions, Questions):
            self.register(questions)
        return Answers(self._answer_many(questions))

    def sql(self, text: str) -> pl.DataFrame:
        """Answer a SELECT with aggregates over the table, with WHERE and with GROUP BY over declared categories.

        Every aggregate is a question of its own kind, for each group; all are asked together, as by `ask_many`.

        Parameters
        ----------
        text
            The statement, such as ``SELECT carrier, AVG(dep_delay > 15) FROM flights GROUP BY carrier``.

        Returns
        -------
        DataFrame
            A line for each group; for an aggregate called x the columns x, x_low and x_high.
        """
        selected = self.select(text)
        return selected.frame(self._answer_many(selected.questions, selected.names) if selected.questions else [])

    def select(self, text: str) -> Selected:
        """Return the questions of a SELECT, checked but not asked: `price_many` takes them. Reads nothing.

        Parameters
        ----------
        text
            The statement, as for `sql`.
        """
        return select(text, self._schema, len(self._rows))

    def _answer_many(self, questions: Iterable[Asked], names: Sequence[str] = ()) -> list[AnyAnswer]:
        context = self._current()
        listed = questions if isinstance(questions, str | Mapping) else list(questions)
        try:
            return self.answer_all(build_all(listed, context, names))
        except PlanConflict:
            if self._context.guarantee is context.guarantee:
                raise
        return self.answer_all(build_all(listed, self._current(), names))

    def _ask_kind(self, kind: Kind[..., A], args: tuple[object, ...], options: Mapping[str, object]) -> A:
        return cast(A, self._answer(kind, args, options, None))

    def _answer(
        self, kind: Kind[..., Any], args: tuple[object, ...], options: Mapping[str, object], key: str | None
    ) -> AnyAnswer:
        context = self._current()
        try:
            return self._or_else(self._keyed(kind.question(context, *args, **options), key))
        except PlanConflict:
            if self._context.guarantee is context.guarantee:
                raise
        # Somebody began the ledger this moment: their plan stands.
        return self._or_else(self._keyed(kind.question(self._current(), *args, **options), key))

    def _or_else(self, question: Question) -> AnyAnswer:
        """Answer; if a guess does not hold, and other rows answer beside those that check, ask them for the value."""
        answer = self._last_look(question)
        if question.otherwise is None or not isinstance(answer, CheckAnswer) or answer.holds:
            return answer
        return replace(answer, value=self._answer(MEAN, (), question.otherwise, None))

    def prepare(
        self,
        query: QueryLike | Loss | LinearLoss,
        kind: str = MEAN.name,
        *,
        idempotency_key: str | None = None,
        **options: object,
    ) -> Question:
        """Return the question, checked and priced but not asked. Reads nothing.

        Parameters
        ----------
        query, kind, idempotency_key, **options
            As for `ask`.
        """
        context = self._current()
        question = self._keyed(kind_named(kind).question(context, query, **options), idempotency_key)
        return replace(question, terms=context.guarantee.terms)

    def answer(self, question: Question) -> AnyAnswer:
        """Answer a question that `prepare` returned; of several looks at one question, this one."""
        self._check_terms(question)
        return self._ledger.in_flight.run(question.identity, partial(self._answer_once, question))

    def _last_look(self, question: Question) -> AnyAnswer:
        """Answer, and look again as long as the question says so."""
        answer = self.answer(question)
        while (following := self.next_look(question)) is not None:
            question = following
            try:
                answer = self.answer(question)
            except BudgetExhausted:
                break  # what the looks so far have shown stands
        return answer

    def next_look(self, question: Question) -> Question | None:
        """Return the next look at a `question` that was answered; None if it has none."""
        entry = None if question.after is None or question.identity is None else self._ledger.find(question.identity)
        if entry is None or question.after is None:
            return None
        context = self._current()
        following = question.after(entry.answer, context)
        return None if following is None else replace(following, terms=context.guarantee.terms)

    def answer_all(self, questions: Sequence[Question]) -> list[AnyAnswer]:
        """Answer questions that `prepare` returned, together: what is new is paid for at once, and written at once."""
        together = together_of(questions, self._is_answered)
        self._check_terms(together)
        require_affordable(together, self.plan.terms, self._ledger.spent)
        answers: list[AnyAnswer] = []
        for start in range(0, len(questions), MOST_TOGETHER):
            some = questions[start : start + MOST_TOGETHER]
            keys = [one.identity for one in some if one.identity is not None]
            answers += self._ledger.in_flight.run_all(keys, partial(self._answer_all_once, some))
        return answers

    def draw(self, question: Question, when_free: Callable[[], None]) -> "AnyAnswer | Unwritten | None":
        """Answer a question, but leave a new answer to be written by `write_all`, together with others.

        Parameters
        ----------
        question
            As `prepare` returned it.
        when_free
            Called, in any thread, when somebody else has answered this question who is at it now; then this returns
            None, and it is to be asked again.
        """
        self._check_terms(question)
        end = self._ledger.in_flight.begin(question.identity, when_free)
        if end is None:
            return None
        drawn: AnyAnswer | Drawn | None = None
        try:
            drawn = self._find_or_draw(question)
        finally:
            if not isinstance(drawn, Drawn):
                end()
        return drawn if isinstance(drawn, AnyAnswer) else Unwritten(self, drawn, end)

    @staticmethod
    def write_all(answers: Sequence["Unwritten"]) -> list[AnyAnswer]:
        """Commit what `draw` returned, all from one ledger, in one transaction; they may be seen after that.

        Parameters
        ----------
        answers
            Each can be written once, whether or not that succeeds.
        """
        try:
            written = answers[0].session.ledger.commit_all([one.drawn for one in answers])
        finally:
            for one in answers:
                one.end()
        return [
            one.session._read(entry, cached=not fresh) for one, (entry, fresh) in zip(answers, written, strict=True)
        ]

    def _check_terms(self, question: Question) -> None:
        if not self._joined:
            self._require_sound()
            self._begin(question)
        if question.terms is not None and question.terms != self._context.guarantee.terms:
            raise PlanConflict("The ledger was begun under another plan since this question was prepared; ask again.")

    def _answer_once(self, question: Question) -> AnyAnswer:
        drawn = self._find_or_draw(question)
        if isinstance(drawn, AnyAnswer):
            return drawn
        entry, fresh = self._ledger.commit(drawn)
        return self._read(entry, cached=not fresh)

    def _answer_all_once(self, questions: Sequence[Question]) -> list[AnyAnswer]:
        found: dict[object, AnyAnswer] = {}  # by identity, or by itself if it is new each time
        new: dict[object, Question] = {}
        for one in questions:
            entry = None if one.identity is None else self._ledger.find(one.identity)
            if entry is None:
                new.setdefault(one.identity or id(one), one)
            else:
                found[one.identity] = self._read(entry, cached=True)
        if new:
            self._require_sound()
            try:
                places = self._ledger.reserve_all([one.cost for one in new.values()])
            except BudgetExhausted:
                raise too_dear(together_of(list(new.values())), self.plan.terms, self._ledger.spent) from None
            drawn = [self._draw(one, place) for one, place in zip(new.values(), places, strict=True)]
            written = self._ledger.commit_all(drawn)
            found |= {
                key: self._read(entry, cached=not fresh) for key, (entry, fresh) in zip(new, written, strict=True)
            }
        return [found[one.identity or id(one)] for one in questions]

    def _find_or_draw(self, question: Question) -> AnyAnswer | Drawn:
        entry = None if question.identity is None else self._ledger.find(question.identity)
        if entry is not None:
            return self._read(entry, cached=True)
        self._require_sound()
        return self._draw(question, self._reserve(question))

    def _draw(self, question: Question, place: Place) -> Drawn:
        with silence:
            result = question.run(self._drawing(place, question.cost))
        return Drawn(
            place,
            key=question.identity,
            question=question.to_json(),
            answer=result,
            cost=question.cost,
            rows_read=question.rows_read,
            analyst=self._analyst,
            finish=None if question.finish is None else partial(question.finish, place.number),
        )

    def _require_sound(self) -> None:
        """Refuse, free of charge, if the data are known to be damaged; reading them would refuse as well."""
        if isinstance(self._rows, LocalRows | Deck):
            self._rows.require_sound()

    def _reserve(self, question: Question) -> Place:
        if isinstance(self._rows, Deck):
            self._rows.require(self._ledger.spent.charge, question.cost.charge)
        try:
            return self._ledger.reserve(question.cost)
        except BudgetExhausted:  # says it in the guarantee's own units
            raise too_dear(question, self.plan.terms, self._ledger.spent) from None

    def _drawing(self, place: Place, cost: Cost) -> Drawing:
        order = Order(self._ledger.key(ORDER), place.charge)
        guarantee = standing_at(self._context.guarantee, place.reached, place.intervals, cost)
        rows, kept = self._drawers_of_the_plan()
        rows = reserved(rows, self._ledger.first, place.charge, cost.charge)
        return Drawing(rows, self._randomness.generator(place.number), guarantee, order, kept=kept)

    def _drawers_of_the_plan(self) -> tuple[RowSource, RowSource | None]:
        """Return the rows that answer, and those that only check guesses, if the plan has such."""
        terms = self.plan.terms
        if terms.all_rows == terms.rows:
            return self._rows, None
        if self._parts is None:
            self._parts = Drawers(self._rows, self._ledger.key(DRAWERS), terms.all_rows - terms.rows)
        return self._parts.asked, self._parts.kept

    def _read(self, entry: Entry, *, cached: bool) -> AnyAnswer:
        return answer_from(entry, self._context.guarantee, cached=cached)

    def _keyed(self, question: Question, key: str | None) -> Question:
        """Give a question that is new each time the identity of its idempotency key."""
        if key is None or question.identity is not None:
            return question
        if not isinstance(key, str):
            raise InvalidArgument(f"idempotency_key must be text; got {type(key).__name__}.", name="idempotency_key")
        retried = [key, self._analyst, question.kind, question.text, question.cost.charge]
        return replace(question, identity=json.dumps({"idempotency": retried}))  # in ASCII: a key may be any text

    # -- looking before paying ----------------------------------------------------------------------------------

    def price(self, query: QueryLike | Loss | LinearLoss, kind: str = MEAN.name, **options: object) -> Price:
        """Return what a question would cost. Reads nothing, spends nothing.

        Parameters
        ----------
        query, kind, **options
            As for `ask`.
        """
        return self.price_of(kind_named(kind).question(self._current(), query, **options))

    def price_many(self, questions: Iterable[Asked]) -> Prices:
        """Return what several questions would cost together. Reads nothing, spends nothing.

        Parameters
        ----------
        questions
            As for `ask_many`.
        """
        return self.prices_of(build_all(questions, self._current()))

    def price_sql(self, text: str) -> Prices:
        """Return what a SELECT would cost. Reads nothing, spends nothing.

        Parameters
        ----------
        text
            The statement, as for `sql`.
        """
        selected = self.select(text)
        return self.prices_of(
            build_all(selected.questions, self._current(), selected.names) if selected.questions else []
        )

    def prices_of(self, questions: Sequence[Question]) -> Prices:
        """Return what questions that `prepare` returned would cost together."""
        return Prices.of(questions, self.plan.standing, self._ledger.spent, self._is_answered)

    def _is_answered(self, question: Question) -> bool:
        return question.identity is not None and self._ledger.find(question.identity) is not None

    def price_of(self, question: Question) -> Price:
        """Return what a question that `prepare` returned would cost."""
        cached = self._is_answered(question)
        if question.forecast is not None:
            question = replace(question, margin=question.forecast(self._ledger.told))
        return Price.of(question, self.plan.standing, self._ledger.spent, cached=cached)

    def dry_run(self, query: QueryLike | Loss | LinearLoss, kind: str = MEAN.name, **options: object) -> AnyAnswer:
        """Answer from made-up rows: the same checks and the same shape, but nothing is read or spent.

        Parameters
        ----------
        query, kind, **options
            As for `ask`.
        """
        context = self._current()
        question = kind_named(kind).question(context, query, **options)
        terms = self.plan.terms
        require_affordable(question, terms, NOTHING_SPENT)  # what could never be asked
        rng = self._randomness.generator()
        invented = made_up(self._schema, rng)
        guarantee, order = context.standing(question.cost), Order(self._randomness.secret())
        with silence:
            result = question.run(Drawing(invented, rng, guarantee, order, most_draws=MADE_UP_ROWS))
            if question.finish is not None:
                result, _ = question.finish(1, result, Cost(0, 0))
        record = Record(question.kind, question.text, guarantee.name, terms.confidence, terms.population)
        return kind_named(question.kind).read(result, record)

    # -- what stands --------------------------------------------------------------------------------------------

    @property
    def budget(self) -> Budget:
        """How wide answers are now and later on, and how many are left where there is an end; for everyone together."""
        self._current()
        return Budget.of(self._context.guarantee, self._ledger.spent, self._ledger.told)

    @property
    def schema(self) -> Schema:
        """Column names, types, and what else is declared. Never what the rows hold."""
        return self._schema

    @property
    def dataset(self) -> str:
        """What the dataset is called."""
        return self._rows.name

    @property
    def analyst(self) -> str | None:
        """Whose name goes on the answers; `for_analyst` puts another one there."""
        return self._analyst

    @property
    def ledger(self) -> Ledger:
        """The ledger: entries, head, verify."""
        return self._ledger

    def receipt(self, answer: AnyAnswer | int) -> Receipt:
        """Return the proof that an answer is in the ledger, checkable by a third party against a published head."""
        seq = answer.seq if isinstance(answer, AnyAnswer) else answer
        if seq is None:
            raise InvalidArgument("A dry run is in no ledger, so there is no receipt for it.")
        return self._ledger.receipt(seq)

    def verify_data(self) -> None:
        """Read and hash all the data again; raise RowSourceError if it is damaged or not what the ledger began with."""
        self._rows.verify()

    def history(self) -> pl.DataFrame:
        """Return every answer so far, whoever asked, as a frame."""
        return history_frame(self._ledger.entries(), self._context.guarantee, self.registered)

    def standings(self) -> pl.DataFrame:
        """Return the submissions to a board: improvements, the best first, then those that were no better."""
        return Standings(self._ledger, lambda: self._current().guarantee).frame()

    def for_analyst(self, analyst: str | None) -> "Session":
        """Return this session as another analyst sees it: same data and ledger, their name on the answers.

        The ledger stays this session's: closing the other one does nothing.
        """
        check_analyst(analyst)
        other = copy(self)
        other._analyst, other._owns_ledger = analyst, False
        return other

    def close(self) -> None:
        """Let go of the ledger; later questions are refused, of those that `for_analyst` returned, too."""
        if self._owns_ledger:
            self._ledger.close()
            if self._opened is not None:
                self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        kind = None if name.startswith("_") else KINDS.find(name)  # kinds that another package registered
        if kind is None:
            raise AttributeError(f"'Session' object has no attribute {name!r}")
        return partial(self.ask, kind=kind.name)

    def __repr__(self) -> str:
        seeded = " Seeded: reproducible, not for shared use." if self._randomness.reproducible else ""
        shared = f"\n{SHARES} {self.budget}." if self._shared else ""
        count = self.schema.units_of(len(self._rows))
        return f"Session on {self._rows.name} ({count}).{seeded}\n{self.plan.sentence}{shared}"

    # -- how it begins ------------------------------------------------------------------------------------------

    def _plan(self, plan: Plan) -> None:
        self.plan = plan if self._schema.unit is None else replace(plan, drawn="units")
        self._context = Context(plan.standing, self._schema, self._explored, partial(ids_of, self._rows))

    def _resume(self) -> None:
        """Take on the plan that the ledger records; refuse one that contradicts it."""
        location = self._ledger.location
        plan = Plan.from_dict(self._ledger.terms or {}, location=f"The ledger {location}")
        if plan.terms.all_rows != len(self._rows):  # the same content, so the same rows, put together in another way
            raise PlanConflict(
                f"The ledger {location} was begun for {plan.rows:,} independent units; opened like this, the same rows"
                f" are {self.schema.units_of(len(self._rows))}. Open them as they were then, by unit=.",
                standing=plan.to_dict(),
            )
        self._request.must_match(plan, location)
        self._plan(plan)
        self._joined = True

    def _current(self) -> Context:
        """Return what questions are built against: the ledger's plan, if somebody else has begun it meanwhile."""
        if not self._joined and self._ledger.begun:
            self._resume()
        if self.plan.terms.ends:
            return self._context
        spent = self._ledger.spent
        return replace(self._context, spent=Cost(spent.charge, spent.intervals))

    def explore(self, data: Table) -> None:
        """Take the guesses that checks leave out from these `data`, which anybody may look at."""
        rows = open_rows(data, unit=None if isinstance(data, RowVerbs) else self.schema.unit)
        self._explored = lambda: rows
        self._context = replace(self._context, explored=self._explored)

    def begin(self) -> None:
        """Begin the ledger now, not with the first answer; if it has begun, its plan stands."""
        if not self._joined:
            self._ledger.begin(self.plan.to_dict(), self._randomness.secret())
            self._resume()

    def _begin(self, question: Question) -> None:
        """Begin the ledger with the first answer; if somebody else did meanwhile, their plan stands."""
        require_affordable(question, self.plan.terms, NOTHING_SPENT)  # a question that is refused begins nothing
        mine = self.plan.terms
        if self._ledger.begin(self.plan.to_dict(), self._randomness.secret()):
            self._joined = True
            return
        self._resume()
        if mine != self.plan.terms:
            raise PlanConflict(
                f"The ledger {self._ledger.location} was begun under another plan this moment: {self.plan.sentence}"
                " Ask again, and the question is built for it.",
                standing=self.plan.to_dict(),
            )


class Unwritten(NamedTuple):
    """An answer that is paid for and not committed: nobody may see it yet. `end` lets others ask the question."""

    session: Session
    drawn: Drawn
    end: Callable[[], None]
