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
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from hashlib import sha256
from typing import Any

from sqlalchemy import delete, func, insert, select, update

from holdfast.cancel import Work
from holdfast.errors import (
    BudgetExhausted,
    HoldfastError,
    InvalidArgument,
    LedgerUnavailable,
    PlanConflict,
    QuotaExhausted,
)
from holdfast.ledger.concurrency import duplicate
from holdfast.questions.answer import AnyAnswer
from holdfast.questions.budget import Budget
from holdfast.questions.price import Price, write_answers
from holdfast.questions.question import Question
from holdfast.service.database import TokenDatabase, read, reservations, write, write_transaction
from holdfast.service.datasets import LEAST, Datasets, ServedDataset, Usage
from holdfast.service.errors import ProtocolError
from holdfast.service.idempotency import IdempotencyKeys, check_key
from holdfast.service.lanes import Lane, Lanes, Unfinished, WritingLane
from holdfast.service.monitoring import Metrics
from holdfast.service.schemas import MAX_ROWS, AskIn
from holdfast.service.settings import Settings
from holdfast.service.tokens import Token
from holdfast.session.answering import Answering, Unwritten
from holdfast.session.session import Session

RESERVATION_SECONDS = 120.0  # an older reservation must belong to a process that died
FOREVER = 1e12  # seconds since 1970: when the reservation of a draw that nobody sees ends
SMALL_WORK = 20_000_000  # steps; a tenth of a second at most
PATIENCE = 0.5  # seconds to wait before checking whether the answer is stored and whether the caller is still there

Response = dict[str, Any]
Requested = tuple[Session, Question] | None
Steps = Generator[Requested, AnyAnswer, Response]
Outcome = Response | Callable[[], Response] | Unfinished | None
Asked = Callable[[], AskIn]  # reads the question
Gone = Callable[[], Awaitable[bool]]  # whether the caller has left


class QuotaReservation:
    """A reservation. `kept`: how many answers stay held after the block: draws that are paid for but never shown."""

    def __init__(self) -> None:
        self.kept = 0


class Quotas:
    """The quota reservations of all server processes."""

    def __init__(self, database: TokenDatabase) -> None:
        self._engine = database.relaxed

    @contextmanager
    def reserve(
        self,
        usage: Usage,
        work: Work,
        written: Callable[[], bool],
        *,
        analyst: str,
        dataset: str,
        quota: int,
        answers: int,
    ) -> Iterator[QuotaReservation]:
        """Hold this many answers of the quota during the block; refuse if fewer are left.

        If the block fails after rows were drawn, the budget has paid, so the answers stay held, unless the answer is
        `written` to the ledger after all, and counted there.
        """
        reservation = {"id": secrets.token_hex(16), "analyst": analyst, "dataset": dataset, "answers": answers}
        this, now = reservations.c.id == reservation["id"], time.time()
        with write_transaction(self._engine) as connection:
            if self._engine.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(f"holdfast {dataset} {analyst}"))))
            connection.execute(delete(reservations).where(reservations.c.expires <= now))
            reserved = connection.scalar(_reserved(analyst, dataset))
            connection.execute(insert(reservations).values(reservation | {"expires": now + RESERVATION_SECONDS}))
        held, work.begun = (
            QuotaReservation(),
            False,
        )  # an earlier step of the same request had its own
        try:
            left = max(0, quota - usage.by_analyst()[analyst] - int(reserved or 0))
            if answers > left:
                message = (
                    f"Your quota cannot pay for this: it costs {write_answers(answers)}, and {left:,} of"
                    f" {quota:,} are left. Repeating an earlier question is free; the admin can raise the quota."
                )
                raise QuotaExhausted(message, cost=answers, left=left, total=quota, unit="answers")
            yield held
        except BaseException as error:
            paid = work.begun and not (isinstance(error, LedgerUnavailable) and _is_true(written))
            held.kept = answers if paid else 0
            raise
        finally:
            if held.kept:
                write(self._engine, update(reservations).where(this).values(answers=held.kept, expires=FOREVER))
            else:
                write(self._engine, delete(reservations).where(this))

    def lost(self, analyst: str, dataset: str) -> int:
        """Return how many answers went to draws that were never shown."""
        kept = _reserved(analyst, dataset).where(reservations.c.expires >= FOREVER)
        return int(read(self._engine, kept)[0]["answers"])


def _is_true(written: Callable[[], bool]) -> bool:
    try:
        return written()
    except HoldfastError:  # the ledger cannot be read
        return False


def _reserved(analyst: str, dataset: str) -> Any:
    total = func.coalesce(func.sum(reservations.c.answers), 0).label("answers")
    return select(total).where(reservations.c.analyst == analyst, reservations.c.dataset == dataset)


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
        self._datasets, self._lanes = datasets, lanes
        self._most_work, self._tick = settings.max_work, settings.tick
        self._budgets: dict[str, Budget] = {}  # of each dataset, as last read

    # -- asking, in the event loop --------------------------------------------------------------------------------

    async def ask(
        self, name: str, token: Token, asked: Asked, key: str | None = None, *, gone: Gone | None = None
    ) -> Response:
        """Answer one question; with a key, only once."""
        work = Work(self._tick)
        steps = partial(self._steps, name, token, asked, key, work)
        return await self._answered(self._lanes.asks, token, work, partial(_begin, steps, work), steps, key, gone)

    async def answer_list(
        self, token: Token, act: Callable[[Work], Response], key: str | None, gone: Gone | None
    ) -> Response:
        """Return what `act` answers, in the lane for heavy work."""
        work = Work(self._tick)
        return await self._answered(self._lanes.heavy, token, work, partial(act, work), None, key, gone)

    async def _answered(
        self,
        lane: Lane | WritingLane,
        token: Token,
        work: Work,
        act: Callable[..., Outcome],
        steps: Callable[[int], Steps] | None,
        key: str | None,
        gone: Gone | None,
    ) -> Response:
        """Return what `act` returns in the lane, continued in the lane for heavy work if it returns a function.

        Call off the work if its caller leaves; report a failure after rows were drawn on the coarse clock, too.
        """
        try:
            outcome = await self._done(lane, token, work, act, steps, gone)
            if callable(outcome):
                outcome = await self._done(self._lanes.heavy, token, work, outcome, steps, gone)
        except (asyncio.CancelledError, ProtocolError):
            if key is None:  # with a key, the caller may come back for the answer
                work.cancel()
            raise
        except Exception:  # also an unexpected one, which the rows may have caused
            if work.begun:
                await asyncio.sleep(work.due - time.monotonic())
            raise
        assert isinstance(outcome, dict)
        return outcome

    async def _done(
        self,
        lane: Lane | WritingLane,
        token: Token,
        work: Work,
        act: Callable[..., Outcome],
        steps: Callable[[int], Steps] | None,
        gone: Gone | None,
    ) -> Outcome:
        """Return what `act` returns in the lane; meanwhile look for a stored answer, and watch the caller."""
        begun = False

        def run(*again: Callable[[], None]) -> Outcome:
            nonlocal begun
            begun = True
            return work.run(partial(act, *again))

        async def watch() -> None:
            try:
                if not begun and steps is not None:
                    with suppress(HoldfastError):  # the lane refuses it with the same error
                        stored = await self._lanes.reads.run(token.name, partial(_look_up, steps))
                        if not (stored is None or begun or result.done()):
                            result.set_result(stored)
                while gone is not None and not result.done():
                    if await gone():
                        raise ProtocolError(499)
                    await asyncio.sleep(PATIENCE)
            except Exception as error:  # noqa: BLE001  raised where the result is waited for
                if not result.done():
                    result.set_exception(error)

        watching: list[asyncio.Task[None]] = []
        loop, result = asyncio.get_running_loop(), lane.submit(token.name, run)
        timer = loop.call_later(PATIENCE, lambda: watching.append(loop.create_task(watch())))
        try:
            return await result
        finally:
            timer.cancel()
            for task in watching:
                task.cancel()

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

    def _steps(self, name: str, token: Token, asked: Asked, key: str | None, work: Work, most_work: int) -> Steps:
        """Yield the question, receive its answer by `send`, and return the response.

        Before that, yield None if it takes more than `most_work`: the rest may run in another thread.
        """
        served = self._datasets.get(name, token)
        with served.naming():
            ask, session = asked(), served.session_of(token.name)
            request, ledger_key = "", None
            if key is not None:
                check_key(key)
                request = digest("ask", served.name, ask.canonical())
                before = self.idempotency.find(token.id, key, request)
                if before is not None:
                    return before
                ledger_key = digest(token.id, key, request)
            plan = session.plan
            question = self.prepare(session, ask, ledger_key)
            large = question.work > most_work and not session.answering.is_answered(question)
            if large or question.after is not None:
                yield None
            try:
                answer = yield from self._within_quota(served, token, session, question, work)
            except PlanConflict:
                if session.plan is plan:
                    raise
                # Another process has just begun the ledger with its own plan: build the question for that plan.
                question = self.prepare(session, ask, ledger_key)
                answer = yield from self._within_quota(served, token, session, question, work)
            while (following := session.answering.next_look(question)) is not None:
                try:
                    question = self._require_small(following)
                    answer = yield from self._within_quota(served, token, session, question, work)
                except (BudgetExhausted, InvalidArgument):
                    break  # keep the result of the looks so far, which is paid for
            self.metrics.count_answer(served.name, cached=answer.cached)
            response = self.response(served, token, answer)
            if key is not None and not answer.cached:  # a cached answer is found in the ledger again, free of charge
                self.idempotency.store(token.id, key, request, response)
            return response

    def _within_quota(
        self, served: ServedDataset, token: Token, session: Session, question: Question, work: Work
    ) -> Generator[Requested, AnyAnswer, AnyAnswer]:
        if token.quota is None:
            return (yield session, question)
        answers = of_quota(session.answering.price_of(question))
        with self.held(served, token, answers, work, lambda: session.answering.is_answered(question)) as held:
            answer = yield session, question
            if answer.cached and work.begun:  # drawn here, but another process answered first
                held.kept = answers
            return answer

    def held(
        self, served: ServedDataset, token: Token, answers: int, work: Work, written: Callable[[], bool]
    ) -> AbstractContextManager[QuotaReservation]:
        """Hold this many answers of the token's quota, if it has one, during a block; `written`: as for `reserve`."""
        if token.quota is None or answers == 0:
            return nullcontext(QuotaReservation())
        held = {"analyst": token.name, "dataset": served.name, "quota": token.quota}
        return self.quotas.reserve(served.usage, work, written, **held, answers=answers)  # type: ignore[arg-type]

    def response(self, served: ServedDataset, token: Token, answer: AnyAnswer) -> Response:
        """Return an answer as JSON for the response."""
        left = self.left(served, token, None if answer.cached else answer.seq)
        return {"ok": True, "dataset": served.name, "answer": answer.to_dict(), "left": left}

    def prepare(self, session: Session, ask: AskIn, key: str | None = None) -> Question:
        """Check and price a question; refuse one that would occupy a thread for long."""
        return self._require_small(ask.call(session.prepare, idempotency_key=key))

    def _require_small(self, question: Question) -> Question:
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


def of_quota(price: Price) -> int:
    """Return how many answers of a quota a question takes, also where it takes none of the budget, as a check."""
    return 0 if price.cached else max(LEAST, price.answers)


class _Answering(Unfinished):
    """A request whose answer is drawn but not written yet."""

    def __init__(self, steps: Steps, answer: Unwritten, due: float) -> None:
        self.steps, self.answer, self.beside, self.due = steps, answer, answer.answering.ledger, due


def _begin(new_steps: Callable[[int], Steps], work: Work, again: Callable[[], None]) -> Outcome:
    """Take the steps up to the commit.

    Return the rest of the work as a function if it is heavy, and None if somebody else is answering the same question.
    """
    steps = new_steps(SMALL_WORK)
    try:
        requested = next(steps)
        while requested is not None:
            session, question = requested
            try:
                answer = session.answering.draw(question, again)
            except Exception as error:  # noqa: BLE001  the steps handle it
                requested = steps.throw(error)
                continue
            if answer is None:
                steps.close()
                return None
            if isinstance(answer, Unwritten):
                return _Answering(steps, answer, work.due)
            requested = steps.send(answer)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    return partial(_finish, steps)


def _finish(steps: Steps, requested: Requested = None) -> Response:
    """Take all remaining steps, in this thread; `requested`: what the last one yielded."""
    try:
        requested = requested or next(steps)
        while requested is not None:
            session, question = requested
            try:
                answer = session.answering.answer(question)
            except Exception as error:  # noqa: BLE001  the steps handle it
                requested = steps.throw(error)
            else:
                requested = steps.send(answer)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("the rest is done in this thread")


def _look_up(new_steps: Callable[[int], Steps]) -> Response | None:
    """Return the response if the question was answered before; draw nothing."""
    steps = new_steps(-1)
    try:
        requested = next(steps)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    if requested is not None:
        return _finish(steps, requested)
    steps.close()
    return None


def write_together(requests: list[_Answering]) -> list[object]:
    """Commit the answers of these requests, all to one ledger, in one transaction; return responses and errors."""
    outcomes: Sequence[AnyAnswer | Exception]
    try:
        outcomes = Answering.write_all([one.answer for one in requests])
    except Exception as error:  # noqa: BLE001  raised in each of the requests
        outcomes = [duplicate(error) for _ in requests]
    return [_respond(one.steps, outcome) for one, outcome in zip(requests, outcomes, strict=True)]


def _respond(steps: Steps, outcome: AnyAnswer | Exception) -> object:
    """Take the steps after the commit; return the response, or the error for this caller only."""
    try:
        if isinstance(outcome, Exception):
            steps.throw(outcome)
        else:
            steps.send(outcome)
    except StopIteration as done:
        return done.value
    except Exception as error:  # noqa: BLE001  only this caller is told; the rest of the batch is not affected
        return error
    raise AssertionError("one answer is enough")


def digest(*parts: str) -> str:
    """Return one key made of several texts."""
    return sha256("\n".join(parts).encode()).hexdigest()
