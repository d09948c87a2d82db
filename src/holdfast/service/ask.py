"""One question over HTTP. `Session` answers it; this adds the caller's name, quota and idempotency key.

A quota is one analyst's part of a dataset's budget, counted where the budget is, in the ledger, and in its currency:
answers. The price of a question is reserved before anything is drawn, and the reservation ends after the answer is
committed. A request reads other reservations first and the ledger second, so an answer in progress is counted at least
once, by any process; between commit and end of the reservation it may be counted twice, and a retry then finds it
counted once.
"""

import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from sqlalchemy import delete, func, insert, select

from holdfast.answer import AnyAnswer
from holdfast.errors import HoldfastError, InvalidArgument, PlanConflict, QuotaExhausted
from holdfast.questions.price import write_answers
from holdfast.questions.question import Question
from holdfast.service.database import TokenDatabase, reservations, write, write_transaction
from holdfast.service.datasets import LEAST, ServedDataset, Usage
from holdfast.service.idempotency import IdempotencyKeys, check_key
from holdfast.service.monitoring import Metrics
from holdfast.service.schemas import MAX_ROWS, AskIn
from holdfast.service.tokens import Token
from holdfast.session import Session

RESERVATION_SECONDS = 120.0  # after which a reservation must belong to a process that died


class Quotas:
    """The quota reservations of all server processes."""

    def __init__(self, database: TokenDatabase) -> None:
        self._engine = database.relaxed

    @contextmanager
    def reserve(self, usage: Usage, *, analyst: str, dataset: str, quota: int, answers: int) -> Iterator[None]:
        """Hold this many answers of the quota during the block; refuse if fewer are left."""
        reservation = {"id": secrets.token_hex(16), "analyst": analyst, "dataset": dataset, "answers": answers}
        same = (reservations.c.analyst == analyst) & (reservations.c.dataset == dataset)
        now = time.time()
        with write_transaction(self._engine) as connection:
            if self._engine.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(f"holdfast {dataset} {analyst}"))))
            connection.execute(delete(reservations).where(reservations.c.expires <= now))
            reserved = connection.scalar(select(func.coalesce(func.sum(reservations.c.answers), 0)).where(same))
            connection.execute(insert(reservations).values(reservation | {"expires": now + RESERVATION_SECONDS}))
        try:
            left = max(0, quota - usage.by_analyst()[analyst] - int(reserved or 0))
            if answers > left:
                message = (
                    f"Your quota cannot pay for this question: it costs {write_answers(answers)}, and {left:,} of"
                    f" {quota:,} are left. Repeating an earlier question is free; the admin can raise the quota."
                )
                raise QuotaExhausted(message, cost=answers, left=left, total=quota, unit="answers")
            yield
        finally:
            write(self._engine, delete(reservations).where(reservations.c.id == reservation["id"]))


@dataclass(frozen=True)
class AskService:
    """Asks, prices and tries out questions on behalf of a token."""

    quotas: Quotas
    idempotency: IdempotencyKeys
    metrics: Metrics

    def ask(self, served: ServedDataset, token: Token, ask: AskIn, key: str | None = None) -> dict[str, Any]:
        """Answer one question; with a key, once."""
        if key is None:
            return self._ask(served, token, ask, None)
        check_key(key)
        request = _digest("ask", served.name, ask.canonical())
        before = self.idempotency.find(token.id, key, request)
        if before is not None:
            return before
        response = self._ask(served, token, ask, _digest(token.id, key, request))
        self.idempotency.store(token.id, key, request, response)
        return response

    def batch(self, served: ServedDataset, token: Token, asks: list[AskIn], key: str | None = None) -> dict[str, Any]:
        """Answer several questions in order. An error is one result among others; earlier answers stand."""
        check_key(key)
        for ask in asks:
            if ask.problem is not None:  # refused as a whole, before anything is asked
                ask.call(served.session.prepare)
        results = []
        for number, ask in enumerate(asks):
            try:
                results.append(self.ask(served, token, ask, None if key is None else _digest(key, str(number))))
            except HoldfastError as error:
                results.append(error.to_dict())
        return {"ok": True, "results": results}

    def price(self, served: ServedDataset, token: Token, ask: AskIn) -> dict[str, Any]:
        """Return what a question costs."""
        price = served.session.price_of(_prepare(served.session, ask))
        priced = {"price": price.to_dict(), "text": str(price), "left": self.left(served, token)}
        return {"ok": True, "dataset": served.name} | priced

    def dry_run(self, served: ServedDataset, token: Token, ask: AskIn) -> dict[str, Any]:
        """Answer from made-up rows."""
        _prepare(served.session, ask)
        return self._response(served, token, ask.call(served.session.dry_run))

    def left(self, served: ServedDataset, token: Token) -> dict[str, Any]:
        """Return the answers left in the budget and in the token's quota."""
        answers, quota = served.session.budget.answers_left, token.quota
        if quota is not None:
            quota = max(0, quota - served.usage.by_analyst()[token.name])
        return {"answers": answers, "quota": quota}

    def _ask(self, served: ServedDataset, token: Token, ask: AskIn, key: str | None) -> dict[str, Any]:
        session = served.session.for_analyst(token.name)
        plan = session.plan
        try:
            answer = self._answer(served, token, session, _prepare(session, ask, key))
        except PlanConflict:
            if session.plan is plan:
                raise
            # Another process began the ledger this moment, under its plan; the question is built for that one.
            answer = self._answer(served, token, session, _prepare(session, ask, key))
        self.metrics.count_answer(served.name, cached=answer.cached)
        return self._response(served, token, answer)

    def _answer(self, served: ServedDataset, token: Token, session: Session, question: Question) -> AnyAnswer:
        """Answer within the quota."""
        reservation: AbstractContextManager[None] = nullcontext()
        if token.quota is not None:
            price = session.price_of(question)
            if not price.cached:
                answers = max(LEAST, price.answers)
                reservation = self.quotas.reserve(
                    served.usage, analyst=token.name, dataset=served.name, quota=token.quota, answers=answers
                )
        with reservation:
            return session.answer(question)

    def _response(self, served: ServedDataset, token: Token, answer: AnyAnswer) -> dict[str, Any]:
        return {"ok": True, "dataset": served.name, "answer": answer.to_dict(), "left": self.left(served, token)}


def _prepare(session: Session, ask: AskIn, key: str | None = None) -> Question:
    """Check and price a question; refuse one that would occupy a thread for long."""
    question = ask.call(session.prepare, idempotency_key=key)
    if question.rows_read > MAX_ROWS:
        rows = f"{question.rows_read:,}"
        raise InvalidArgument(f"A question over HTTP must read at most {MAX_ROWS:,} rows; this one reads {rows}.")
    return question


def _digest(*parts: str) -> str:
    return sha256("\n".join(parts).encode()).hexdigest()
