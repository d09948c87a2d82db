"""The story of a question.

    1 check      against the schema alone; nothing is read                          queries, questions
    2 price      by the guarantee that stands                                       guarantees
    3 find       asked before? the stored answer, free                              ledger
    4 reserve    the ledger takes the charge and gives a place, durably; or refuses ledger
    5 draw       rows are drawn, and tallied where they live                        rows, mechanisms
    6 certify    what was released becomes an interval for the population           guarantees
    7 commit     the answer, durably; then it is shown                              ledger

Every draw is paid for, whether or not its answer is shown. While one thread answers a question, other threads that ask
the same question wait for that answer instead of drawing again.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, cast

import polars as pl
from numpy.random import Generator
from polars.exceptions import PanicException

from holdfast.cancel import about_to_commit, drop, go_on
from holdfast.errors import (
    BudgetExhausted,
    EvaluationFailed,
    InvalidArgument,
    LedgerDamaged,
    LedgerUnavailable,
    PlanConflict,
    RowSourceError,
    ServiceUnavailable,
)
from holdfast.guarantees.request import PlanRequest
from holdfast.ledger import Answered, Asking, Cost, Drawn, Entry, Ledger, Place
from holdfast.ledger.chain import canonical
from holdfast.queries.evaluate import silence
from holdfast.queries.synthetic import naming, synthetic_rows
from holdfast.questions.answer import AnyAnswer, Record
from holdfast.questions.batch import MOST_TOGETHER, Asked, Prices, build_all, together_of
from holdfast.questions.history import Registered, answer_from
from holdfast.questions.kind import Kind
from holdfast.questions.price import Price, require_affordable, too_expensive
from holdfast.questions.question import NOTHING_SPENT, ROWS_READ, Drawing, Finish, Question, Result, total_of
from holdfast.randomness import Randomness
from holdfast.rows.draws import Order
from holdfast.rows.local import LocalRows
from holdfast.rows.memory import memory_rows
from holdfast.rows.source import RowSource
from holdfast.schema import Schema
from holdfast.session.standing import StandingPlan

MADE_UP_ROWS = 1_000  # of a dry run
FEW_HOSTILE = 0.1  # of them: enough to find what a query cannot take, too few to hide the groups that it asks about
ORDER = "order of rows"  # the purpose for which the ledger derives its key
A = TypeVar("A", bound=AnyAnswer)
B = TypeVar("B")
T = TypeVar("T")
# What may be raised after rows were read: facts about files, the ledger, the plan and the caller, never about values.
OUTSIDE = (RowSourceError, LedgerUnavailable, LedgerDamaged, BudgetExhausted, PlanConflict, ServiceUnavailable)
# Whatever else is raised then may depend on the rows: it becomes one error that is always the same, a response like any
# other, and of a check it is counted as one (docs/proofs/checks.md). What happened is its `__context__`, which no
# traceback prints: whoever looks there looks at the rows.
UNSHOWN = (
    "This question could not be evaluated, for a reason that may depend on the rows and is not shown. It is paid for."
    " Ask another question, and report this one."
)


class Answering:
    """Answers the questions of one analyst to some rows.

    Parameters
    ----------
    rows, schema
        The data, and what is declared about it.
    ledger
        Where charges and answers are written.
    request
        The user's wishes for the plan. They make the plan if the ledger has none yet.
    randomness
        The source of all draws and coins.
    analyst
        The name recorded with the answers.
    """

    def __init__(
        self,
        rows: RowSource,
        schema: Schema,
        ledger: Ledger,
        request: PlanRequest,
        randomness: Randomness,
        analyst: str | None,
    ) -> None:
        self.ledger, self.analyst = ledger, analyst
        self._schema, self._randomness = schema, randomness
        self.plan = StandingPlan(rows, schema, ledger, request, randomness)
        self.registered = Registered(ledger)

    def for_analyst(self, analyst: str | None) -> "Answering":
        """Return the same for another analyst; plan and ledger are shared."""
        other = copy(self)
        other.analyst = analyst
        return other

    # -- one question ---------------------------------------------------------------------------------------------

    def ask(
        self, kind: Kind[..., A], args: tuple[object, ...], options: Mapping[str, object], key: str | None = None
    ) -> A:
        """Check, price and answer a question of this kind, then the questions that its answer leads to."""
        question = self.question(kind, args, options, key)
        if not self.plan.begun_for(question):  # somebody else began the ledger this moment, under another plan
            question = self.question(kind, args, options, key)
        answer = self._answer(question)
        if question.after is not None:
            answer = self._last_look(question, answer)
        if question.completed is not None:
            with suppress(BudgetExhausted):  # cards may be used up; the answer stands all the same
                answer = question.completed(answer, self.ask)
        return cast(A, answer)  # a kind gives answers of its own class

    def question(
        self, kind: Kind[..., Any], args: tuple[object, ...], options: Mapping[str, object], key: str | None = None
    ) -> Question:
        """Return a question of this kind, checked and priced for the plan that stands.

        Its idempotency `key` identifies it if it has no identity of its own, being new each time.
        """
        question = kind.question(self.plan.context(), *args, **options)
        return question if key is None else self._keyed(question, key)

    def answer(self, question: Question) -> AnyAnswer:
        """Answer a question from `prepare`; if it is one of several looks, this look alone."""
        self.plan.require_for(question)
        return self._answer(question)

    def _answer(self, question: Question) -> AnyAnswer:
        (answer,) = self.ledger.in_flight.run(question.identity, partial(self._take_steps, (question,)))
        return answer

    def _take_steps(self, questions: Sequence[Question]) -> list[AnyAnswer]:
        """Take the steps from find to commit, while no other thread answers these questions.

        A question that is in the list twice, or was asked before, is not drawn again.
        """
        new: dict[object, Question] = {}
        known: dict[object, tuple[Entry, bool]] = {}
        for question in questions:
            key = question.identity or id(question)  # id() for a question that is new each time
            if key not in known and (entry := self._find(question)) is not None:
                known[key] = entry, False
            elif key not in known:
                new[key] = question
        if new:
            asking = Asking()
            try:
                places = self._reserve(list(new.values()), asking)
                drawn = [self._draw(question, place) for question, place in zip(new.values(), places, strict=True)]
                known |= zip(new, self._commit(drawn), strict=True)
            finally:
                asking.ended = True
        guarantee = self.plan.standing.context.guarantee
        return [answer_from(guarantee, *known[question.identity or id(question)]) for question in questions]

    def _find(self, question: Question) -> Entry | None:
        """Return the stored answer to this question, or to the usual one if that was worth at least as much."""
        identity, usual = question.identity, question.usual
        entry = None if identity is None else self.ledger.find(identity)
        if entry is not None or usual is None or usual == identity:
            return entry
        entry = self.ledger.find(usual)
        return entry if entry is not None and entry.cost.charge >= question.cost.charge else None

    def _reserve(self, questions: Sequence[Question], asking: Asking) -> list[Place]:
        """Pay for the questions and return their places; refuse, free of charge, what the ledger cannot take."""
        self._randomness.generator()  # what keeps a thread from making its own fails here, before anything is paid
        standing, costs, alone = self.plan.standing, [one.cost for one in questions], len(questions) == 1
        total = costs[0] if alone else total_of(costs)
        for cost in costs if alone else (*costs, total):  # the ledger must be able to count each, and all together
            standing.context.guarantee.require_room(self._taken, cost.charge, cost.intervals)
        standing.draws.expect(costs)
        try:
            if alone:
                return [self.ledger.reserve(total, None if questions[0].finish is None else asking)]
            return self.ledger.reserve_all(costs, asking)
        except BudgetExhausted:  # worded in the guarantee's internal units: say it in answers
            standing.draws.refuse(costs)
            raise too_expensive(total, standing.plan.terms, self.ledger.spent) from None

    def _taken(self) -> tuple[int, int]:
        taken = self.ledger.taken
        return taken.charge, taken.intervals

    def _draw(self, question: Question, place: Place) -> Drawn:
        """Draw and certify at the reserved place."""
        finish = question.finish
        if finish is not None:
            go_on()
        try:
            result = question.result(self._drawing(place, question.cost, question.mechanism))
            return Drawn(
                place,
                key=question.identity,
                question={"kind": question.kind, "text": question.text},
                answer=result,
                cost=question.cost,
                rows_read=result.pop(ROWS_READ, question.rows_read),
                analyst=self.analyst,
                finish=None if finish is None else partial(_finished, finish, place.number),
            )
        except OUTSIDE:
            raise
        except (Exception, PanicException):  # noqa: BLE001  whatever it is
            raise EvaluationFailed(UNSHOWN) from None

    def _drawing(self, place: Place, cost: Cost, mechanism: str | None = None) -> Drawing:
        """Return what a question draws with at its place: rows, guarantee and random generator."""
        standing = self.plan.standing
        guarantee = standing.context.guarantee.at(place.reached, place.intervals, cost.intervals)
        if mechanism is not None:
            guarantee = guarantee.by(mechanism)
        order = Order(self.ledger.key(ORDER), place.charge) if guarantee.in_order else None
        rows, kept = standing.draws.rows_for(place, cost)
        return Drawing(rows, self._randomness.generator(place.number), guarantee, order, kept=kept)

    def _commit(self, drawn: Sequence[Drawn]) -> list[tuple[Entry, bool]]:
        """Write the answers; return each as the ledger has it, and whether it is new: another process may be faster."""
        about_to_commit()
        written = self.ledger.commit_all(drawn)
        for entry, fresh in written:
            if not fresh and entry.key is not None:
                drop(entry.key)
        return written

    def _keyed(self, question: Question, key: str) -> Question:
        if not isinstance(key, str):
            raise InvalidArgument(f"idempotency_key must be text; got {type(key).__name__}.", name="idempotency_key")
        if question.identity is not None:
            return question
        retried = [key, self.analyst, question.kind, question.text, question.cost.charge]
        return replace(question, identity=json.dumps({"idempotency": retried}))  # in ASCII, whatever the key

    # -- several questions ----------------------------------------------------------------------------------------

    def ask_all(self, questions: Iterable[Asked], names: Sequence[str] = ()) -> list[AnyAnswer]:
        """Check, price and answer a list of questions, as `build_all` takes them."""
        listed = questions if isinstance(questions, str | Mapping) else list(questions)
        return Prepared(self.plan, lambda: build_all(listed, self.plan.context(), names)).answered(self.answer_all)

    def answer_all(self, questions: Sequence[Question]) -> list[AnyAnswer]:
        """Answer questions from `prepare` together: one payment and one write for all that are new."""
        if not questions:  # a SELECT that only counts all rows needs no question
            return []
        together = together_of(questions, self.is_answered)
        for question in (together, *questions):  # some may have been prepared before others
            self.plan.require_for(question)
        require_affordable(together.cost, self.plan.standing.plan.terms, self.ledger.spent)
        answers: list[AnyAnswer] = []
        for start in range(0, len(questions), MOST_TOGETHER):
            some = questions[start : start + MOST_TOGETHER]
            keys = [one.identity for one in some if one.identity is not None]
            answers += self.ledger.in_flight.run_all(keys, partial(self._take_steps, some))
        return answers

    # -- answers that are drawn now and written later -------------------------------------------------------------

    def draw(self, question: Question, when_free: Callable[[], None]) -> "AnyAnswer | Unwritten | None":
        """Answer a question, but leave a new answer for `write_all` to write together with others.

        Parameters
        ----------
        question
            As `prepare` returned it.
        when_free
            If another thread is answering this question now, this method returns None and calls `when_free`, in any
            thread, once that thread is done. The caller then asks again.
        """
        self.plan.require_for(question)
        end = self.ledger.in_flight.begin(question.identity, when_free)
        if end is None:
            return None
        asking, drawn = Asking(), None
        try:
            entry = self._find(question)
            if entry is not None:
                return answer_from(self.plan.standing.context.guarantee, entry, fresh=False)
            (place,) = self._reserve((question,), asking)
            drawn = self._draw(question, place)
        finally:
            if drawn is None:
                asking.ended = True
                end()
        return Unwritten(self, drawn, asking, end)

    @staticmethod
    def write_all(answers: Sequence["Unwritten"]) -> list[AnyAnswer]:
        """Commit answers from `draw`, all of one ledger, in one transaction; only then may they be shown.

        Parameters
        ----------
        answers
            Each may be passed here once only, even if writing fails.
        """
        try:
            written = answers[0].answering.ledger.commit_all([one.drawn for one in answers])
        finally:
            for one in answers:
                one.asking.ended = True
            for one in answers:  # only now: whoever waited for one can see that the others have failed, too
                one.end()
        guarantee = answers[0].answering.plan.standing.context.guarantee
        return [answer_from(guarantee, *entry) for entry in written]

    # -- looks at one question ------------------------------------------------------------------------------------

    def _last_look(self, question: Question, answer: AnyAnswer) -> AnyAnswer:
        """Keep looking until the question is satisfied; return the last answer."""
        while (following := self.next_look(question)) is not None:
            question = following
            try:
                answer = self._answer(question)
            except BudgetExhausted:
                break  # the looks so far still stand
        return answer

    def next_look(self, question: Question) -> Question | None:
        """Return the look that follows an answered `question`, or None if it was the last one."""
        entry = None if question.after is None or question.identity is None else self.ledger.find(question.identity)
        if entry is None or question.after is None:
            return None
        context = self.plan.context()
        following = question.after(entry.answer, context)
        return None if following is None else following.under(context.guarantee.terms)

    def look_to_come(self, question: Question) -> Question:
        """Return the look that asking `question` now would draw: the question itself unless it has earlier looks."""
        while (following := self.next_look(question)) is not None:
            question = following
        return question

    # -- looking before paying ------------------------------------------------------------------------------------

    def is_answered(self, question: Question) -> bool:
        """Whether this question has a stored answer, and so is free."""
        return self._find(question) is not None

    def price_of(self, question: Question) -> Price:
        """Return what a question from `prepare` would cost."""
        guarantee, cached = self.plan.now().context.guarantee, self.is_answered(question)
        return Price.of(question, guarantee, self.ledger.spent, self.ledger.answered, cached=cached)

    def prices_of(self, questions: Sequence[Question]) -> Prices:
        """Return what questions from `prepare` would cost together."""
        guarantee = self.plan.now().context.guarantee
        return Prices.of(questions, guarantee, self.ledger.spent, self.ledger.answered, self.is_answered)

    def dry_run(self, kind: Kind[..., Any], args: tuple[object, ...], options: Mapping[str, object]) -> AnyAnswer:
        """Check, then draw and certify with made-up rows, without the other steps: nothing is read or spent.

        Of several looks at one question, the answer is that of the last.
        """
        context = self.plan.context()
        question, terms = kind.question(context, *args, **options), context.guarantee.terms
        require_affordable(question.cost, terms, NOTHING_SPENT)  # refuse what no budget could pay for
        rng = self._randomness.generator()
        invented = _made_up(naming(self._schema, [*args, *options.values()]), rng)
        costs = [question.cost]
        while True:
            guarantee, order = (
                context.by(question.mechanism).certifying(total_of(costs)),
                Order(self._randomness.secret()),
            )
            result = question.result(Drawing(invented, rng, guarantee, order, most_draws=MADE_UP_ROWS))
            following = None if question.after is None else question.after(result, context)
            if following is None:
                break
            question = following
            costs.append(question.cost)
        if question.finish is not None:
            result, _ = question.finish(1, result, Answered(0, 0))
        result = json.loads(canonical(result, "answer"))  # what could not be stored fails here, before it is paid for
        record = Record(question.kind, question.text, guarantee.name, terms.confidence, terms.population)
        return kind.read(result, record)


@silence
def _finished(finish: Finish, number: int, result: Result, answered: Answered) -> tuple[Result, Cost]:
    """Return the final answer of the question at place `number`, and its cost, while the ledger commits it."""
    try:
        return finish(number, result, answered)
    except OUTSIDE:
        raise
    except (Exception, PanicException):  # noqa: BLE001  whatever it is
        raise EvaluationFailed(UNSHOWN) from None


def _made_up(schema: Schema, rng: Generator) -> LocalRows:
    """Return made-up rows; if they have units, about three rows per unit."""
    rows = synthetic_rows(schema, MADE_UP_ROWS, rng, hostile=FEW_HOSTILE)
    if schema.unit is not None:
        rows = rows.with_columns(pl.Series(schema.unit, rng.integers(0, MADE_UP_ROWS // 3, MADE_UP_ROWS)))
    return memory_rows(rows, name="made up", unit=schema.unit)


class Prepared(Generic[B]):
    """A question or a list of questions, built for the plan that stands.

    If somebody else begins the ledger with another plan before it is answered, it is built again for that plan. A
    ledger begins once, so this happens once at most.
    """

    def __init__(self, plan: StandingPlan, build: Callable[[], B]) -> None:
        self._plan, self._build, self._stood = plan, build, plan.now().plan
        self.built = build()

    def answered(self, answer: Callable[[B], T]) -> T:
        """Return what `answer` returns for what was built."""
        try:
            return answer(self.built)
        except PlanConflict:
            if self._plan.standing.plan is self._stood:
                raise
        self.built = self._build()
        return answer(self.built)


class Unwritten(NamedTuple):
    """A paid answer that is not committed, so nobody may see it yet. `end` lets others ask the same question."""

    answering: Answering
    drawn: Drawn
    asking: Asking
    end: Callable[[], None]
