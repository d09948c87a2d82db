"""One question over HTTP or from an agent. `Session` answers it; this adds the caller's name, quota and key.

Every question starts in the lane for small work. A question that was asked before is answered there at once; one that
takes much work continues in the lane for heavy work. While a request waits for a thread, the lane for reads looks for a
stored answer, so that neither slow evaluations nor a ledger that is locked elsewhere delay an answer that exists.

Answers are written at the ticks of a coarse clock, and sent once they are written. So the time that an evaluation took,
which may depend on the rows, is rounded up for the caller, for anybody who watches the ledger, and for anybody who
waits for the same answer.

A quota is one analyst's part of a dataset's budget. It is counted in the ledger, as the budget is, and in the same
currency: answers. The price of a question is reserved before anything is drawn, and the reservation ends after the
answer is committed. A request reads other reservations first and the ledger second, so every process counts an answer
in progress at least once; between commit and end of the reservation it may be counted twice, and a retry then finds it
counted once. The reservation never ends if the draw was called off, or if another server answered the question first:
the budget has paid for the draw.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

from sqlalchemy import Engine, delete, func, insert, select, update

from holdfast.cancel import Work
from holdfast.errors import BudgetExhausted, HoldfastError, InvalidArgument, LedgerUnavailable, QuotaExhausted
from holdfast.ledger.concurrency import duplicate
from holdfast.questions.answer import AnyAnswer
from holdfast.questions.budget import Budget
from holdfast.questions.price import Price, write_answers
from holdfast.questions.question import Question
from holdfast.service.database import TokenDatabase, read, reservations, write, write_transaction
from holdfast.service.datasets import LEAST, Datasets, ServedDataset
from holdfast.service.errors import ProtocolError
from holdfast.service.idempotency import IdempotencyKeys, check_key
from holdfast.service.lanes import Lane, Lanes, Unfinished, WritingLane
from holdfast.service.monitoring import Metrics
from holdfast.service.schemas import MAX_ROWS, AskIn
from holdfast.service.settings import Settings
from holdfast.service.tokens import Token
from holdfast.session.answering import Answering, Prepared, Unwritten
from holdfast.session.session import Session

RESERVATION_SECONDS = 120.0  # an older reservation must belong to a process that died
FOREVER = 1e12  # seconds since 1970: when the reservation of a draw that nobody sees ends
SMALL_WORK = 20_000_000  # steps; a tenth of a second at most
PATIENCE = 0.5  # seconds to wait before checking whether the answer is stored and whether the caller is still there

Response = dict[str, Any]
Outcome = Response | Callable[[], Response] | Unfinished | None
Asked = Callable[[], AskIn]  # reads the question
Gone = Callable[[], Awaitable[bool]]  # whether the caller has left


class Quotas:
    """The quota reservations of all server processes."""

    def __init__(self, database: TokenDatabase) -> None:
        self._engine = database.relaxed

    def reserve(
        self, served: ServedDataset, token: Token, questions: Sequence[Question], work: Work
    ) -> "QuotaReservation":
        """Hold what these questions take of the token's quota, if it has one, during `work`; refuse if less is left."""
        held = QuotaReservation(self._engine, served, questions, work)
        if token.quota is not None:
            held.open(token.name, token.quota)
        return held

    def lost(self, analyst: str, dataset: str) -> int:
        """Return how many answers went to draws that were never shown."""
        kept = _reserved(analyst, dataset).where(reservations.c.expires >= FOREVER)
        return int(read(self._engine, kept)[0]["answers"])


class QuotaReservation:
    """Answers of a quota that are held from before they are drawn until they are committed."""

    def __init__(self, engine: Engine, served: ServedDataset, questions: Sequence[Question], work: Work) -> None:
        self._engine, self._served, self._questions, self._work = engine, served, questions, work
        self._costs: list[tuple[str | None, int]] = []  # of each question: its identity, and how many answers it takes
        self._id = ""

    def open(self, analyst: str, quota: int) -> None:
        """Hold what the questions cost; refuse if less is left."""
        answering, dataset, new = self._served.session.answering, self._served.name, self._questions
        prices = [answering.price_of(new[0])] if len(new) == 1 else answering.prices_of(new).each
        self._costs = [(one.identity, of_quota(price)) for one, price in zip(new, prices, strict=True)]
        answers, now = sum(cost for _, cost in self._costs), time.time()
        if not answers:
            return
        self._id, self._work.begun = secrets.token_hex(16), False  # an earlier look had a reservation of its own
        held = {"id": self._id, "analyst": analyst, "dataset": dataset, "answers": answers}
        with write_transaction(self._engine) as connection:
            if self._engine.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(f"holdfast {dataset} {analyst}"))))
            connection.execute(delete(reservations).where(reservations.c.expires <= now))
            reserved = connection.scalar(_reserved(analyst, dataset))
            connection.execute(insert(reservations).values(held | {"expires": now + RESERVATION_SECONDS}))
        try:
            left = max(0, quota - self._served.usage.by_analyst()[analyst] - int(reserved or 0))
            if answers > left:
                message = (
                    f"Your quota cannot pay for this: it costs {write_answers(answers)}, and {left:,} of"
                    f" {quota:,} are left. Repeating an earlier question is free; the admin can raise the quota."
                )
                raise QuotaExhausted(message, cost=answers, left=left, total=quota, unit="answers")
        except BaseException as error:
            self.close(error)
            raise

    def close(self, error: BaseException | None = None) -> None:
        """End the reservation, but hold on to answers that are paid for and never shown.

        Those are draws that were dropped since another process had answered first; and after an error, if rows were
        drawn, all of them, unless they are in the ledger after all, and counted there.
        """
        if not self._id:
            return
        failed = error is not None and self._work.begun
        if failed and isinstance(error, LedgerUnavailable):
            failed = not self._is_written()
        kept = sum(cost for identity, cost in self._costs if failed or identity in self._work.dropped)
        this = reservations.c.id == self._id
        keep = update(reservations).where(this).values(answers=kept, expires=FOREVER)
        write(self._engine, keep if kept else delete(reservations).where(this))

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(error)

    def _is_written(self) -> bool:
        try:
            return all(map(self._served.session.answering.is_answered, self._questions))
        except HoldfastError:  # the ledger cannot be read
            return False


def _reserved(analyst: str, dataset: str) -> Any:
    total = func.coalesce(func.sum(reservations.c.answers), 0).label("answers")
    return select(total).where(reservations.c.analyst == analyst, reservations.c.dataset == dataset)


def of_quota(price: Price) -> int:
    """Return how many answers of a quota a question takes, also where it takes none of the budget, as a check."""
    return 0 if price.cached else max(LEAST, price.answers)


class AskService:
    """Asks, prices and tries out questions on behalf of a token."""

    def __init__(
        self,
        settings: Settings,
        datasets: Datasets,
        quotas: Quotas,
        idempotency: IdempotencyKeys,
        metrics: Metrics,
        lanes: Lanes,
    ) -> None:
        self.quotas, self.idempotency, self.metrics = quotas, idempotency, metrics
        self.datasets, self._lanes = datasets, lanes
        self._most_work, self._tick = settings.max_work, settings.tick
        self._budgets: dict[str, Budget] = {}  # of each dataset, as last read

    def ask(
        self, name: str, token: Token, asked: Asked, key: str | None = None, *, gone: Gone | None = None
    ) -> Awaitable[Response]:
        """Answer one question; with a key, only once."""
        work = Work(self._tick)
        new = partial(AskRequest, self, name, token, asked, key, work)
        caller = Caller(self._lanes, token, key, work, gone, lambda: new().look_up())
        return caller.answer(self._lanes.asks, lambda again: new().begin(again))

    def answer_list(
        self, token: Token, act: Callable[[Work], Response], key: str | None, gone: Gone | None
    ) -> Awaitable[Response]:
        """Return what `act` answers, in the lane for heavy work."""
        work = Work(self._tick)
        return Caller(self._lanes, token, key, work, gone).answer(self._lanes.heavy, partial(act, work))

    # -- in a thread ----------------------------------------------------------------------------------------------

    def price(self, served: ServedDataset, token: Token, ask: AskIn) -> Response:
        """Return what a question costs."""
        session = served.session
        price = session.answering.price_of(session.answering.look_to_come(self.prepare(session, ask)))
        priced = {"price": price.to_dict(), "text": str(price), "left": self.left(served, token)}
        return {"ok": True, "dataset": served.name} | priced

    def dry_run(self, served: ServedDataset, token: Token, ask: AskIn) -> Response:
        """Answer from made-up rows."""
        self.prepare(served.session, ask)
        return self.response(served, token, ask.call(served.session.dry_run))

    def left(self, served: ServedDataset, token: Token, after: int | None = None) -> dict[str, Any]:
        """Return the answers left in the budget and in the token's quota.

        `after`: the numbers may be as of any moment since that entry was written, so that answers that are written
        together read the budget once.
        """
        budget, quota = self._budgets.get(served.name), token.quota
        if budget is None or after is None or budget.answers_given < after:
            budget = self._budgets[served.name] = served.session.budget
        if quota is not None:
            used = served.usage.by_analyst()[token.name] + self.quotas.lost(token.name, served.name)
            quota = max(0, quota - used)
        return {"answers": budget.answers_left, "quota": quota}

    def response(self, served: ServedDataset, token: Token, answer: AnyAnswer) -> Response:
        """Return an answer as JSON for the response."""
        left = self.left(served, token, None if answer.cached else answer.seq)
        return {"ok": True, "dataset": served.name, "answer": answer.to_dict(), "left": left}

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

    def look_up(self) -> Response | None:
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

    def respond(self, outcome: AnyAnswer | Exception) -> Response | Exception:
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

    def finish(self) -> Response:
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

    def _prepare(self) -> Response | None:
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

    def _response(self, answer: AnyAnswer) -> Response:
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
    look_up: Callable[[], Response | None] | None = None
    begun: bool = False  # whether a thread works on the request

    async def answer(self, lane: Lane | WritingLane, act: Callable[..., Outcome]) -> Response:
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
        assert isinstance(outcome, dict)
        return outcome

    async def _outcome(self, lane: Lane | WritingLane, act: Callable[..., Outcome]) -> Outcome:
        """Return what `act` returns in the lane; meanwhile look for a stored answer, and watch the caller."""
        self.begun = False
        watching: list[asyncio.Task[None]] = []
        loop, result = asyncio.get_running_loop(), lane.submit(self.token.name, partial(self._run, act))
        timer = loop.call_later(PATIENCE, lambda: watching.append(loop.create_task(self._watch(result))))
        try:
            return await result
        finally:
            timer.cancel()
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
                await asyncio.sleep(PATIENCE)
        except Exception as error:  # noqa: BLE001  raised where the result is waited for
            if not result.done():
                result.set_exception(error)


def digest(*parts: str) -> str:
    """Return one key made of several texts."""
    return sha256("\n".join(parts).encode()).hexdigest()
