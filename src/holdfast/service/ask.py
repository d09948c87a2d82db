"""Questions over HTTP or from an agent. `Session` answers them; this adds the caller's name, quota and key.

Every question starts in the lane for small work. A question that was asked before is answered there at once; one that
takes much work continues in the lane for heavy work. While a request waits for a thread, the lane for reads looks for a
stored answer, so that neither slow evaluations nor a ledger that is locked elsewhere delay an answer that exists.

A list of questions, or a SELECT, is one piece of heavy work: one reservation, one transaction, all or none.

Answers are written at the ticks of a coarse clock, and sent once they are written. So the time that an evaluation took,
which may depend on the rows, is rounded up for the caller, for anybody who watches the ledger, and for anybody who
waits for the same answer.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

from holdfast.cancel import Work
from holdfast.errors import BudgetExhausted, HoldfastError, InvalidArgument, QuotaExhausted
from holdfast.ledger.concurrency import duplicate
from holdfast.ledger.store import Spent
from holdfast.questions.answer import AnyAnswer
from holdfast.questions.batch import Prices
from holdfast.questions.budget import answers_left, write_answers
from holdfast.questions.options import plain
from holdfast.questions.question import Question
from holdfast.questions.sql import Selected, select
from holdfast.service.calls import read_answer
from holdfast.service.database import Body, IdempotencyKeys, TokenDatabase, check_key
from holdfast.service.datasets import Datasets, QuotaReservation, Quotas, ServedDataset, of_quota
from holdfast.service.errors import ProtocolError
from holdfast.service.lanes import Lane, Lanes, Unfinished, WritingLane
from holdfast.service.monitoring import Metrics
from holdfast.service.rates import RateLimiter
from holdfast.service.schemas import MAX_BATCH, MAX_ROWS, AskIn, QuestionModels
from holdfast.service.settings import Settings
from holdfast.service.tokens import Token
from holdfast.session.answering import Answering, Prepared, Unwritten
from holdfast.session.session import Session

SMALL_WORK = 20_000_000  # steps; a tenth of a second at most

Response = dict[str, Any]
Outcome = Body | Callable[[], Body] | Unfinished | None
Asked = Callable[[], AskIn]  # reads the question
Gone = Callable[[], Awaitable[bool]]  # whether the caller has left


class AskService:
    """Asks, prices and tries out questions on behalf of a token; each question of a list counts as a request."""

    def __init__(
        self,
        settings: Settings,
        database: TokenDatabase,
        datasets: Datasets,
        questions: QuestionModels,
        metrics: Metrics,
        lanes: Lanes,
        limits: RateLimiter,
    ) -> None:
        self.quotas, self.idempotency = Quotas(database), IdempotencyKeys(database)
        self.datasets, self.metrics = datasets, metrics
        self.questions, self._lanes, self._limits = questions, lanes, limits
        self._most_work, self._tick = settings.max_work, settings.tick
        self._spent: dict[str, Spent] = {}  # of each dataset, as last read

    def ask(
        self, name: str, token: Token, asked: Asked, key: str | None = None, *, gone: Gone | None = None
    ) -> Awaitable[Body]:
        """Answer one question; with a key, only once."""
        work = Work(self._tick)
        new = partial(AskRequest, self, name, token, self._counted(token, asked), key, work)
        caller = Caller(self._lanes, token, key, work, gone, lambda: new().look_up())
        return caller.answer(self._lanes.asks, lambda again: new().begin(again))

    async def batch(
        self, name: str, token: Token, asks: list[AskIn], key: str | None, *, gone: Gone | None = None
    ) -> Body:
        """Answer several questions, all of them or none; a refusal says which question it is about."""
        check_key(key)
        self._take(token, sum(one.count for one in asks))
        await self._lanes.reads.run(token.name, partial(self._check, name, token, asks))
        response = await self._answered(name, token, asks, key, gone)
        await self._lanes.reads.run(token.name, response.encoded)
        return response

    async def sql(self, name: str, token: Token, text: str, key: str | None, *, gone: Gone | None = None) -> Body:
        """Answer a SELECT. One that the budget or the quota cannot pay for is refused as a whole."""
        check_key(key)
        selected, asks = await self._lanes.reads.run(token.name, partial(self._affordable, name, token, text))
        results = (await self._answered(name, token, asks, key, gone))["results"]
        return await self._lanes.reads.run(token.name, partial(self._table, name, token, selected, results))

    def _take(self, token: Token, questions: int) -> None:
        """Count each of these questions, also those in lists, as a request; they came with one, which was counted."""
        if questions > 1:
            self._limits.take(token.id, questions - 1)

    def _counted(self, token: Token, asked: Asked) -> Asked:
        """Return what reads a question, and counts it where it is read for the first time."""
        taken = False

        def read() -> AskIn:
            nonlocal taken
            ask = asked()
            if not taken:
                self._take(token, ask.count)
                taken = True
            return ask

        return read

    def _answered(
        self, name: str, token: Token, asks: Sequence[AskIn], key: str | None, gone: Gone | None
    ) -> Awaitable[Body]:
        """Answer several questions together, in the lane for heavy work."""
        work = Work(self._tick)
        act = partial(self._together, name, token, asks, key, work)
        return Caller(self._lanes, token, key, work, gone).answer(self._lanes.heavy, act)

    # -- in a thread ----------------------------------------------------------------------------------------------

    def price(self, served: ServedDataset, token: Token, ask: AskIn) -> Response:
        """Return what a question costs."""
        self._take(token, ask.count)
        session = served.session
        price = session.answering.price_of(session.answering.look_to_come(self.prepare(session, ask)))
        priced = {"price": price.to_dict(), "text": str(price), "left": self.left(served, token)}
        return {"ok": True, "dataset": served.name} | priced

    def dry_run(self, served: ServedDataset, token: Token, ask: AskIn) -> Response:
        """Answer from made-up rows."""
        self._take(token, ask.count)
        self.prepare(served.session, ask)
        return self.response(served, token, ask.call(served.session.dry_run))

    def left(self, served: ServedDataset, token: Token, after: int | None = None) -> dict[str, Any]:
        """Return the answers left in the budget and in the token's quota.

        `after`: the numbers may be as of any moment since that entry was written, so that answers that are written
        together read the ledger once.
        """
        spent, quota = self._spent.get(served.name), token.quota
        if spent is None or after is None or spent.answers < after:
            spent = self._spent[served.name] = served.session.ledger.spent
        if quota is not None:
            used = served.usage.by_analyst()[token.name] + self.quotas.lost(token.name, served.name)
            quota = max(0, quota - used)
        return {"answers": answers_left(served.plan.standing, spent), "quota": quota}

    def response(self, served: ServedDataset, token: Token, answer: AnyAnswer) -> Body:
        """Return an answer as JSON for the response."""
        left = self.left(served, token, None if answer.cached else answer.seq)
        return Body(ok=True, dataset=served.name, answer=answer.to_dict(), left=left)

    def prepare(self, session: Session, ask: AskIn, key: str | None = None) -> Question:
        """Check and price a question."""
        return self.require_small(ask.call(session.prepare, idempotency_key=key))

    def require_small(self, question: Question) -> Question:
        """Return the question; refuse one that would occupy a thread for long."""
        if question.rows_read > MAX_ROWS:
            rows = f"{question.rows_read:,}"
            raise InvalidArgument(f"A question over HTTP must read at most {MAX_ROWS:,} rows; this one reads {rows}.")
        work = max(question.work, question.rows_read)
        if work > self._most_work:
            raise InvalidArgument(
                f"A question over HTTP must take at most {self._most_work:,} steps (rows, times what a row takes);"
                f" this one takes {work:,}. Read fewer rows, or ask something simpler: text takes more than numbers,"
                " and more the longer it can get.",
                work=work,
                max_work=self._most_work,
            )
        return question

    # -- several questions, in a thread -------------------------------------------------------------------------------

    def _together(self, name: str, token: Token, asks: Sequence[AskIn], key: str | None, work: Work) -> Body:
        """Answer all questions together; with a key, only once."""
        served, keys = self.datasets.get(name, token), self.idempotency
        request = digest("batch", name, *(ask.canonical() for ask in asks))
        before = None if key is None else keys.find(token.id, key, request)
        if before is not None:
            return before
        session = served.session_of(token.name)

        def build() -> list[Question]:
            found = []
            for number, ask in enumerate(asks, start=1):
                own = None if key is None else digest(token.id, key, request, str(number))
                with _about(number, len(asks)):
                    found.append(self.prepare(session, ask, own))
            return found

        def answer(questions: list[Question]) -> list[AnyAnswer]:
            with self.quotas.reserve(served, token, questions, work):
                return session.answering.answer_all(questions)

        with served.naming:
            given = Prepared(session.answering.plan, build).answered(answer)
        for one in given:
            self.metrics.count_answer(name, cached=one.cached)
        response = Body(ok=True, results=[self.response(served, token, one) for one in given])
        if key is not None and not all(one.cached for one in given):
            keys.store(token.id, key, request, response)
        return response

    def prices(self, served: ServedDataset, token: Token, asks: Sequence[AskIn]) -> Response:
        """Return what questions cost together."""
        self._take(token, sum(one.count for one in asks))
        questions = [ask.call(served.session.prepare) for ask in asks]
        return self._priced(served, token, served.session.answering.prices_of(questions))

    def sql_prices(self, served: ServedDataset, token: Token, text: str) -> Response:
        """Return what a SELECT costs."""
        return self._priced(served, token, self.price_sql(served, token, text))

    def price_sql(self, served: ServedDataset, token: Token, text: str) -> Prices:
        """Return what a SELECT costs; each question in it counts as a request: pricing takes as long as asking."""
        self._take(token, len(_selected(served, text).questions))
        return served.session.price_sql(text)

    def _priced(self, served: ServedDataset, token: Token, prices: Prices) -> Response:
        facts = {"text": str(prices), "left": self.left(served, token)}
        return {"ok": True, "dataset": served.name} | prices.to_dict() | facts

    def _table(self, name: str, token: Token, selected: Selected, results: list[Response]) -> Body:
        """Return the table of a SELECT, encoded, and what is left."""
        frame = selected.frame([read_answer(one["answer"]) for one in results])
        left = self.left(self.datasets.get(name, token), token)
        rows = [plain(list(row)) for row in frame.rows()]
        response = Body(ok=True, dataset=name, columns=frame.columns, rows=rows, results=results, left=left)
        response.encoded()
        return response

    def _check(self, name: str, token: Token, asks: list[AskIn]) -> None:
        """Refuse a batch as a whole if a question in it cannot be read, before anything is asked."""
        served = self.datasets.get(name, token)
        for ask in asks:
            if ask.problem is not None:
                ask.call(served.session.prepare)

    def _affordable(self, name: str, token: Token, text: str) -> tuple[Selected, list[AskIn]]:
        """Return the questions of a SELECT; refuse one that the budget or the quota cannot pay for."""
        served = self.datasets.get(name, token)
        with served.naming:
            selected = _selected(served, text)
            if len(selected.questions) > MAX_BATCH:
                raise InvalidArgument(
                    f"A SELECT over HTTP must be at most {MAX_BATCH} questions, with all groups; this one is"
                    f" {len(selected.questions)}.",
                    name="sql",
                )
            self._take(token, len(selected.questions))
            prices = served.session.price_sql(text)
        left, of_theirs = self.left(served, token), sum(map(of_quota, prices.each))
        if not prices.affordable:
            raise _too_expensive_select(BudgetExhausted, "budget", prices.answers, left["answers"])
        if left["quota"] is not None and of_theirs > left["quota"]:
            raise _too_expensive_select(QuotaExhausted, "quota", of_theirs, left["quota"])
        return selected, [self.questions.read(question) for question in selected.questions]


class AskRequest(Unfinished):
    """One question of one caller, from what was sent to the response. Each attempt at it is an object of its own.

    A small question is drawn by `begin`, written by `write_together` along with others, and ended by `respond`. A heavy
    one is only prepared by `begin`; `finish` does the rest in one thread.
    """

    def __init__(self, service: AskService, name: str, token: Token, asked: Asked, key: str | None, work: Work) -> None:
        self._service, self._token, self._key, self._work = service, token, key, work
        self._served = service.datasets.get(name, token)
        self._session = self._served.session_of(token.name)
        self._asked, self._answering = asked, self._session.answering

    def look_up(self) -> Body | None:
        """Return the response if the question was answered before; draw nothing."""
        with self._served.naming:
            before = self._prepare()
            if before is not None or self._takes_more_than(-1):
                return before
            return self._response(self._answering.answer(self._prepared.built))

    def begin(self, again: Callable[[], None]) -> Outcome:
        """Draw the answer and return this object, or return the response if there is one already.

        Return `finish` if the work is heavy, and None if somebody else is answering the same question; then `again` is
        called when they are done.
        """
        with self._served.naming:
            before = self._prepare()
            if before is not None:
                return before
            if self._takes_more_than(SMALL_WORK):
                return self.finish
            return self._prepared.answered(partial(self._draw, again))

    def respond(self, outcome: AnyAnswer | Exception) -> Body | Exception:
        """Return the response after the commit, or the error, which is for this caller alone."""
        try:
            with self._served.naming:
                with self._held:
                    if isinstance(outcome, Exception):
                        raise outcome
                    identity = self._prepared.built.identity
                    if outcome.cached and identity is not None:  # another process answered first
                        self._work.dropped.add(identity)
                return self._response(outcome)
        except Exception as error:  # noqa: BLE001  the others that were written together are not affected
            return error

    def finish(self) -> Body:
        """Answer in this thread, with all the looks that follow."""
        with self._served.naming:
            answer = self._prepared.answered(self._answer)
            question = self._prepared.built
            while (following := self._answering.next_look(question)) is not None:
                try:
                    question = self._service.require_small(following)
                    answer = self._answer(question)
                except (BudgetExhausted, InvalidArgument):
                    break  # keep the result of the looks so far, which is paid for
            return self._response(answer)

    def _prepare(self) -> Body | None:
        """Read, check and price the question. If its key was used before, return the response that was given then."""
        ask, ledger_key = self._asked(), None
        if self._key is not None:
            check_key(self._key)
            self._request = digest("ask", self._served.name, ask.canonical())
            before = self._service.idempotency.find(self._token.id, self._key, self._request)
            if before is not None:
                return before
            ledger_key = digest(self._token.id, self._key, self._request)
        prepare = partial(self._service.prepare, self._session, ask, ledger_key)
        self._prepared = Prepared(self._answering.plan, prepare)
        return None

    def _takes_more_than(self, work: int) -> bool:
        """Whether a new answer takes more work than this, or the question may be looked at several times."""
        question = self._prepared.built
        large = question.work > work and not self._answering.is_answered(question)
        return large or question.after is not None

    def _draw(self, again: Callable[[], None], question: Question) -> Outcome:
        self._held = self._reserve(question)
        try:
            drawn = self._answering.draw(question, again)
        except BaseException as error:
            self._held.close(error)
            raise
        if isinstance(drawn, Unwritten):  # the reservation stays open until it is written
            self.unwritten, self.beside, self.due = drawn, drawn.answering.ledger, self._work.due
            return self
        self._held.close()
        return None if drawn is None else self._response(drawn)

    def _answer(self, question: Question) -> AnyAnswer:
        with self._reserve(question):
            return self._answering.answer(question)

    def _reserve(self, question: Question) -> QuotaReservation:
        return self._service.quotas.reserve(self._served, self._token, [question], self._work)

    def _response(self, answer: AnyAnswer) -> Body:
        service, served, token = self._service, self._served, self._token
        service.metrics.count_answer(served.name, cached=answer.cached)
        response = service.response(served, token, answer)
        if self._key is not None and not answer.cached:  # a cached answer is found in the ledger again, free of charge
            service.idempotency.store(token.id, self._key, self._request, response)
        return response


def write_together(requests: list[AskRequest]) -> list[object]:
    """Commit the answers of these requests, all to one ledger, in one transaction; return responses and errors."""
    outcomes: Sequence[AnyAnswer | Exception]
    try:
        outcomes = Answering.write_all([one.unwritten for one in requests])
    except Exception as error:  # noqa: BLE001  raised in each of the requests
        outcomes = [duplicate(error) for _ in requests]
    return [one.respond(outcome) for one, outcome in zip(requests, outcomes, strict=True)]


@dataclass
class Caller:
    """Somebody who waits while their request makes its way through the lanes.

    `look_up` looks for a stored answer while the request waits for a thread.
    """

    lanes: Lanes
    token: Token
    key: str | None
    work: Work
    gone: Gone | None
    look_up: Callable[[], Body | None] | None = None
    begun: bool = False  # whether a thread works on the request

    async def answer(self, lane: Lane | WritingLane, act: Callable[..., Outcome]) -> Body:
        """Return what `act` returns in the lane, continued in the lane for heavy work if it returns a function.

        Call off the work if its caller leaves; report a failure after rows were drawn on the coarse clock, too.
        """
        try:
            outcome = await self._outcome(lane, act)
            if callable(outcome):
                outcome = await self._outcome(self.lanes.heavy, outcome)
        except (asyncio.CancelledError, ProtocolError):
            if self.key is None:
                self.work.cancel()
            else:  # the caller may come back for the answer
                self.lanes.unattended.add(self.work)
            raise
        except Exception:  # also an unexpected one, which the rows may have caused
            if self.work.begun:
                await asyncio.sleep(self.work.due - time.monotonic())
            raise
        assert isinstance(outcome, Body)
        return outcome

    async def _outcome(self, lane: Lane | WritingLane, act: Callable[..., Outcome]) -> Outcome:
        """Return what `act` returns in the lane; meanwhile look for a stored answer, and watch the caller."""
        self.begun = False
        watching: list[asyncio.Task[None]] = []
        loop, result = asyncio.get_running_loop(), lane.submit(self.token.name, partial(self._run, act))
        alarm = self.lanes.slow.set(lambda: watching.append(loop.create_task(self._watch(result))))
        try:
            return await result
        finally:
            alarm.cancel()
            for task in watching:
                task.cancel()

    def _run(self, act: Callable[..., Outcome], *again: Callable[[], None]) -> Outcome:
        self.begun = True
        return self.work.run(partial(act, *again))

    async def _watch(self, result: "asyncio.Future[Outcome]") -> None:
        try:
            if not self.begun and self.look_up is not None:
                with suppress(HoldfastError):  # the lane refuses it with the same error
                    stored = await self.lanes.reads.run(self.token.name, self.look_up)
                    if not (stored is None or self.begun or result.done()):
                        result.set_result(stored)
            while self.gone is not None and not result.done():
                if await self.gone():
                    raise ProtocolError(499)
                await asyncio.sleep(self.lanes.slow.seconds)
        except Exception as error:  # noqa: BLE001  raised where the result is waited for
            if not result.done():
                result.set_exception(error)


def digest(*parts: str) -> str:
    """Return one key made of several texts."""
    return sha256("\n".join(parts).encode()).hexdigest()


def _too_expensive_select(refusal: type[BudgetExhausted], payer: str, cost: int, left: int) -> HoldfastError:
    return refusal(
        f"The {payer} cannot pay for this SELECT: it costs {write_answers(cost)}, and {left:,} are left."
        " Ask for fewer groups.",
        cost=cost,
        left=left,
        unit="answers",
    )


def _selected(served: ServedDataset, text: str) -> Selected:
    return select(text, served.session.schema, served.plan.terms.all_rows)


@contextmanager
def _about(number: int, count: int) -> Iterator[None]:
    """Add the number of the question to a refusal."""
    try:
        yield
    except HoldfastError as error:
        if count > 1:
            error.message = f"Question {number}: {error.message}"
        raise
