"""One question over HTTP. `Session` answers it; this adds the caller's name, quota and idempotency key.

A quota is one analyst's part of a dataset's budget, counted where the budget is: in the ledger. The cost of an answer
is reserved before it is drawn, and released after it is committed. A request reads other reservations first and the
ledger second, so an answer in progress is counted at least once, by any process; between commit and release it may
be counted twice, and a retry then finds it counted once.
"""

import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from sqlalchemy import delete, func, insert, select

from holdfast.budget import Quote
from holdfast.errors import HoldfastError, InvalidArgument, QuotaExhausted
from holdfast.service.database import TokenDatabase, reservations, write_transaction
from holdfast.service.datasets import ServedDataset, Usage
from holdfast.service.errors import error_payload
from holdfast.service.idempotency import IdempotencyKeys, check_key
from holdfast.service.schemas import MAX_ROWS, AskIn, BatchIn
from holdfast.service.tokens import Token

RESERVATION_SECONDS = 120.0  # after which a reservation must belong to a process that died


class Quotas:
    """The quota reservations of all server processes."""

    def __init__(self, database: TokenDatabase) -> None:
        self._engine = database.relaxed

    @contextmanager
    def reserve(self, usage: Usage, *, analyst: str, dataset: str, quota: int, answers: int) -> Iterator[None]:
        """Hold this many answers of the quota during the block; refuse if fewer are left."""
        reservation = {"id": secrets.token_hex(16), "analyst": analyst, "dataset": dataset, "answers": answers}
        this = reservations.c.id == reservation["id"]
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
                raise QuotaExhausted(
                    f"Your quota cannot pay for this: it costs {answers:,} answers, and {left:,} of {quota:,} are left."
                    " Repeating an earlier question is free; the admin can raise the quota.",
                    cost=answers,
                    left=left,
                    total=quota,
                    unit="answers",
                )
            yield
        finally:
            with write_transaction(self._engine) as connection:
                connection.execute(delete(reservations).where(this))


@dataclass(frozen=True)
class AskService:
    """Asks, prices and tries out questions on behalf of a token."""

    quotas: Quotas
    idempotency: IdempotencyKeys

    def ask(self, served: ServedDataset, token: Token, ask: AskIn, key: str | None = None) -> dict[str, Any]:
        """Answer one question; with a key, once."""
        if key is None:
            return self._ask(served, token, ask, None)
        check_key(key)
        request = _digest("ask", served.name, ask.model_dump_json())
        before = self.idempotency.find(token.id, key, request)
        if before is not None:
            return before
        response = self._ask(served, token, ask, _digest(token.id, key, request))
        self.idempotency.store(token.id, key, request, response)
        return response

    def batch(self, served: ServedDataset, token: Token, batch: BatchIn, key: str | None = None) -> dict[str, Any]:
        """Answer several questions in order. An error is one result among others; earlier answers stand."""
        check_key(key)
        results = []
        for number, ask in enumerate(batch.asks):
            try:
                results.append(self.ask(served, token, ask, None if key is None else _digest(key, str(number))))
            except HoldfastError as error:
                results.append(error_payload(error))
        return {"ok": True, "results": results}

    def price(self, served: ServedDataset, token: Token, ask: AskIn) -> dict[str, Any]:
        """Return what a question costs."""
        query, kind, options = ask.arguments()
        quote = _check_rows(served.session.price(query, kind, **options))
        priced = {"price": quote.to_dict(), "text": str(quote), "left": self.left(served, token)}
        return {"ok": True, "dataset": served.name, "kind": ask.kind} | priced

    def dry_run(self, served: ServedDataset, token: Token, ask: AskIn) -> dict[str, Any]:
        """Answer from made-up rows."""
        query, kind, options = ask.arguments()
        return self._response(served, token, ask, served.session.dry_run(query, kind, **options).to_dict())

    def left(self, served: ServedDataset, token: Token) -> dict[str, Any]:
        """Return the answers left in the budget and in the token's quota."""
        answers, quota = served.session.budget.answers_left, token.quota
        if quota is not None:
            quota = max(0, quota - served.usage.by_analyst()[token.name])
        return {"answers": answers, "quota": quota}

    def _ask(self, served: ServedDataset, token: Token, ask: AskIn, retry_key: str | None) -> dict[str, Any]:
        query, kind, options = ask.arguments()
        session = served.session.for_analyst(token.name)
        reservation: AbstractContextManager[None] = nullcontext()
        if token.quota is not None or kind == "minimize" or ask.margin is not None or ask.steps is not None:
            quote = _check_rows(session.price(query, kind, **options))
            if token.quota is not None and not quote.cached:
                reservation = self.quotas.reserve(
                    served.usage, analyst=token.name, dataset=served.name, quota=token.quota, answers=quote.answers
                )
        with reservation:
            answer = session.ask(query, kind, retry_key=retry_key, **options)
        return self._response(served, token, ask, answer.to_dict())

    def _response(self, served: ServedDataset, token: Token, ask: AskIn, answer: dict[str, Any]) -> dict[str, Any]:
        left = self.left(served, token)
        return {"ok": True, "dataset": served.name, "kind": ask.kind, "answer": answer, "left": left}


def _check_rows(quote: Quote) -> Quote:
    """Refuse a question that would occupy a thread for long, already when its price is requested."""
    if quote.rows_read > MAX_ROWS and not quote.cached:
        raise InvalidArgument(
            f"A question over HTTP must read at most {MAX_ROWS:,} rows; this one reads {quote.rows_read:,}."
        )
    return quote


def _digest(*parts: str) -> str:
    return sha256("\n".join(parts).encode()).hexdigest()
