"""The story of a question.

    1 check      against the schema alone; nothing is read                          queries, questions
    2 price      by the guarantee that stands                                       guarantees
    3 find       asked before? the stored answer, free                              ledger
    4 reserve    the ledger takes the charge and gives a place, durably; or refuses ledger
    5 draw       rows are drawn, and tallied where they live                        rows, mechanisms
    6 certify    what was released becomes an interval for the population           guarantees
    7 commit     the answer, durably; then it is shown                              ledger

`Session` takes the first two steps when somebody asks; the others are here. What was drawn is paid for, shown or not. A
question that is being answered is not drawn for a second time: whoever else asks it waits for the answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from holdfast.answer import AnyAnswer
from holdfast.beside import cards_taken, explored_beside, ids_beside, plan_for, reach_of, require_dealt_for
from holdfast.cancel import drop
from holdfast.errors import BudgetExhausted, PlanConflict
from holdfast.guarantees.plan import Plan
from holdfast.guarantees.request import PlanRequest
from holdfast.ledger import Cost, Drawn, Entry, Ledger, Place
from holdfast.queries.silence import silence
from holdfast.questions.batch import MOST_TOGETHER, together_of
from holdfast.questions.best import BestKept
from holdfast.questions.history import answer_from
from holdfast.questions.price import require_affordable, too_dear
from holdfast.questions.question import NOTHING_SPENT, Context, Drawing, Question, standing_at
from holdfast.randomness import Randomness
from holdfast.rows.deck import Deck
from holdfast.rows.drawers import DividedRows
from holdfast.rows.draws import Order
from holdfast.rows.local import LocalRows, ids_of, unit_starts_of
from holdfast.rows.source import RowSource
from holdfast.schema import Schema

ORDER, DRAWERS, NAMES = "order of rows", "drawers", "names of submissions"  # what the ledger's keys for them are called


class Answering:
    """Rows, their ledger and their plan: what answers questions that are checked and priced.

    Parameters
    ----------
    rows, schema
        What is asked about, and what is declared of it.
    ledger
        Where it is written.
    request
        What the user said of the plan: it is made from that, unless the ledger has one.
    randomness
        Where coins come from.
    analyst
        Whose name goes on the answers.
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
        self._rows, self._schema, self._ledger = rows, schema, ledger
        self._request, self._randomness, self._analyst = request, randomness, analyst
        self._explored = explored_beside(rows)
        self._joined = False  # whether the plan is the one that the ledger records
        self._resume() if ledger.begun else self._plan(plan_for(rows, request))

    @property
    def ledger(self) -> Ledger:
        """The ledger: entries, head, verify."""
        return self._ledger

    @property
    def cards_taken(self) -> int:
        """How many cards of a deck have been taken by anybody, ahead or not."""
        return cards_taken(self.plan, self._ledger.taken)

    # -- the plan -----------------------------------------------------------------------------------------------

    def _plan(self, plan: Plan) -> None:
        self.plan = replace(plan, unit=self._schema.unit)
        ids, kept = partial(ids_of, self._rows), BestKept(self._ledger, self._rows.location)
        others, starts = ids_beside(self._rows), partial(unit_starts_of, self._rows)
        key = partial(self._ledger.key, NAMES)
        self._context = Context(
            plan.standing,
            self._schema,
            self._explored,
            ids,
            others,
            starts,
            key,
            kept.exchange,
            dealt=isinstance(self._rows, Deck),
        )
        self._drawers: tuple[RowSource, RowSource | None] | None = None  # worked out when rows are read
        self._join_deck()

    def _join_deck(self) -> None:
        """Refuse a deck that cannot be drawn from under this plan, or that another ledger has used."""
        if isinstance(self._rows, Deck):
            require_dealt_for(self._rows, self.plan.terms.mechanism)
            self._rows.join(self._ledger.first, lambda: self.cards_taken)
            self._ledger.reach = partial(reach_of, self.plan, self._rows)

    def _resume(self) -> None:
        """Take on the plan that the ledger records; refuse one that contradicts it."""
        location = self._ledger.location
        plan = Plan.from_dict(self._ledger.terms or {}, location=f"The ledger {location}")
        if (plan.unit, plan.terms.all_rows) != (self._schema.unit, len(self._rows)):  # put together in another way
            then = replace(self._schema, unit=plan.unit).units_of(plan.terms.all_rows)
            again = "without unit=" if plan.unit is None else f"with unit={plan.unit!r}"
            raise PlanConflict(
                f"The ledger {location} was begun for {then}; opened like this, the same data are"
                f" {self._schema.units_of(len(self._rows))}. Open them as they were then, {again}.",
                standing=plan.to_dict(),
            )
        self._request.must_match(plan, location)
        self._plan(plan)
        self._joined = True

    def _current(self) -> Context:
        """Return what questions are built against: the ledger's plan, if somebody else has begun it meanwhile."""
        if not self._joined and self._ledger.begun:
            self._resume()
        if self._context.guarantee.terms.ends:
            return self._context
        return replace(self._context, spent=self._ledger.spent)

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
            self._join_deck()  # another ledger may have used it since it was opened
            self._joined = True
            return
        self._resume()
        if mine != self.plan.terms:
            raise PlanConflict(
                f"The ledger {self._ledger.location} was begun under another plan this moment: {self.plan.sentence}"
                " Ask again, and the question is built for it.",
                standing=self.plan.to_dict(),
            )

    # -- answering ----------------------------------------------------------------------------------------------

    def answer(self, question: Question) -> AnyAnswer:
        """Answer a question that `prepare` returned; of several looks at one question, this one."""
        self._check_terms(question)
        return self._ledger.in_flight.run(question.identity, partial(self._answer_once, question))

    def _last_look(self, question: Question) -> AnyAnswer:
        """Answer, and look again as long as the question says so."""
        answer = self.answer(question)
        while question.after is not None and (following := self.next_look(question)) is not None:
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

    def look_to_come(self, question: Question) -> Question:
        """Return the look at a `question` that would be drawn if it were asked now; without looks, the question."""
        while (following := self.next_look(question)) is not None:
            question = following
        return question

    def answer_all(self, questions: Sequence[Question]) -> list[AnyAnswer]:
        """Answer questions that `prepare` returned, together: what is new is paid for at once, and written at once."""
        if not questions:  # of a SELECT that counts all rows
            return []
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
            written = answers[0].answering.ledger.commit_all([one.drawn for one in answers])
        finally:
            for one in answers:
                one.end()
        return [
            one.answering._read(entry, cached=not fresh) for one, (entry, fresh) in zip(answers, written, strict=True)
        ]

    def _check_terms(self, question: Question) -> None:
        if not self._joined:
            self._require_sound()
            self._begin(question)
        if question.terms is not None and question.terms != self._context.guarantee.terms:
            raise PlanConflict("The ledger was begun under another plan since this question was prepared; ask again.")

    def _answer_once(self, question: Question) -> AnyAnswer:
        drawn = self._find_or_draw(question)
        if not isinstance(drawn, Drawn):
            return drawn
        entry, fresh = self._ledger.commit(drawn)
        return self._read(entry, cached=not fresh)

    def _answer_all_once(self, questions: Sequence[Question]) -> list[AnyAnswer]:
        found: dict[object, AnyAnswer] = {}  # by identity, or by itself if it is new each time
        new: dict[object, Question] = {}
        for one in questions:
            entry = self._find(one)
            if entry is None:
                new.setdefault(one.identity or id(one), one)
            else:
                found[one.identity] = self._read(entry, cached=True)
        if new:
            self._require_sound()
            self._require_room(list(new.values()))
            self._join_cards(list(new.values()))
            try:
                places = self._ledger.reserve_all([one.cost for one in new.values()])
            except BudgetExhausted:
                self._require_cards(list(new.values()))
                raise too_dear(together_of(list(new.values())), self.plan.terms, self._ledger.spent) from None
            drawn = [self._draw(one, place) for one, place in zip(new.values(), places, strict=True)]
            written = self._ledger.commit_all(drawn)
            for one, (_, fresh) in zip(new.values(), written, strict=True):
                if not fresh and one.identity is not None:
                    drop(one.identity)
            found |= {
                key: self._read(entry, cached=not fresh) for key, (entry, fresh) in zip(new, written, strict=True)
            }
        return [found[one.identity or id(one)] for one in questions]

    def _find_or_draw(self, question: Question) -> AnyAnswer | Drawn:
        entry = self._find(question)
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

    def _join_cards(self, questions: Sequence[Question]) -> None:
        """Claim a deck for this ledger; go on with its next cards, if there are any and these questions need them."""
        if isinstance(self._rows, Deck):
            self._rows.claim(self._ledger.first)
            self._rows.reaches(self.cards_taken + self._cards_for(questions))

    def _require_cards(self, questions: Sequence[Question]) -> None:
        """Say in cards why the ledger has refused, if a deck has too few left."""
        if isinstance(self._rows, Deck):
            self._rows.require(self.cards_taken, self._cards_for(questions))

    def _cards_for(self, questions: Sequence[Question]) -> int:
        return sum(cards_taken(self.plan, one.cost) for one in questions)

    def _require_room(self, questions: Sequence[Question]) -> None:
        """Refuse, free of charge, what the ledger could not count: each question, and all of them together."""
        for one in (*questions, *((together_of(questions),) if len(questions) > 1 else ())):
            self._context.guarantee.require_room(self._taken, one.cost.charge, one.cost.intervals)

    def _taken(self) -> tuple[int, int]:
        taken = self._ledger.taken
        return taken.charge, taken.intervals

    def _reserve(self, question: Question) -> Place:
        self._require_room([question])
        self._join_cards([question])
        try:
            return self._ledger.reserve(question.cost)
        except BudgetExhausted:  # says it in the guarantee's own units
            self._require_cards([question])
            raise too_dear(question, self.plan.terms, self._ledger.spent) from None

    def _drawing(self, place: Place, cost: Cost) -> Drawing:
        guarantee = standing_at(self._context.guarantee, place.reached, place.intervals, cost)
        order = Order(self._ledger.key(ORDER), place.charge) if guarantee.in_order else None
        rows, kept = self._drawers_of_the_plan()
        if isinstance(rows, Deck):
            rows = rows.hand(self._ledger.first, cards_taken(self.plan, place), cards_taken(self.plan, cost))
        return Drawing(rows, self._randomness.generator(place.number), guarantee, order, kept=kept)

    def _drawers_of_the_plan(self) -> tuple[RowSource, RowSource | None]:
        """Return the rows that answer, and those that only check guesses, if the plan has such."""
        if self._drawers is None:
            terms = self.plan.terms
            held = terms.all_rows - terms.rows
            parts = DividedRows(self._rows, self._ledger.key(DRAWERS), held) if held else None
            self._drawers = (self._rows, None) if parts is None else (parts.asked, parts.kept)
        return self._drawers

    def _read(self, entry: Entry, *, cached: bool) -> AnyAnswer:
        return answer_from(entry, self._context.guarantee, cached=cached)

    def _is_answered(self, question: Question) -> bool:
        return self._find(question) is not None

    def _find(self, question: Question) -> Entry | None:
        """Return the answer that was given: to this question, or to the usual one, if that read as many rows."""
        if question.identity is None:
            return None
        entry = self._ledger.find(question.identity)
        if entry is not None or question.usual is None:
            return entry
        usual = self._ledger.find(question.usual)
        return usual if usual is not None and usual.rows_read >= question.rows_read else None


class Unwritten(NamedTuple):
    """An answer that is paid for and not committed: nobody may see it yet. `end` lets others ask the question."""

    answering: Answering
    drawn: Drawn
    end: Callable[[], None]
