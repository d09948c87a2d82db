"""One question over HTTP. Everything that answers is in `Session`; here it gets a name, a quota and a retry key."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from holdfast.budget import Quote
from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.service.datasets import Served
from holdfast.service.failures import shape
from holdfast.service.people import Person
from holdfast.service.quotas import Quotas
from holdfast.service.retries import Retries, check_key
from holdfast.service.shapes import MOST_DRAWS, Ask, Batch


@dataclass(frozen=True)
class Asking:
    """What an ask needs beside the dataset."""

    quotas: Quotas
    retries: Retries

    def ask(self, served: Served, person: Person, ask: Ask, key: str | None = None) -> dict[str, Any]:
        """Answer one question; with a key, once."""
        if key is None:
            return self._ask(served, person, ask, None)
        check_key(key)
        request = _digest("ask", served.name, ask.model_dump_json())
        before = self.retries.find(person.id, key, request)
        if before is not None:
            return before
        said = self._ask(served, person, ask, _digest(person.id, key, request))
        self.retries.keep(person.id, key, request, said)
        return said

    def batch(self, served: Served, person: Person, batch: Batch, key: str | None = None) -> dict[str, Any]:
        """Answer several in order. A refusal is one result among others; what was answered stays answered."""
        check_key(key)
        results = []
        for number, ask in enumerate(batch.asks):
            one = None if key is None else _digest(key, str(number))
            try:
                results.append(self.ask(served, person, ask, one))
            except HoldfastError as error:
                results.append(shape(error))
        return {"ok": True, "results": results}

    def price(self, served: Served, person: Person, ask: Ask) -> dict[str, Any]:
        """Say what a question costs."""
        query, kind, options = ask.asked()
        quote = _readable(served.session.price(query, kind, **options))
        said = {"price": quote.to_dict(), "said": str(quote), "left": self.left(served, person)}
        return {"ok": True, "dataset": served.name, "kind": ask.kind} | said

    def dry_run(self, served: Served, person: Person, ask: Ask) -> dict[str, Any]:
        """Answer from made-up rows."""
        query, kind, options = ask.asked()
        answer = served.session.dry_run(query, kind, **options)
        return self._said(served, person, ask, answer.to_dict())

    def left(self, served: Served, person: Person) -> dict[str, Any]:
        """Return what is left for everyone, and of this person's quota."""
        answers = served.session.budget.queries_left
        if person.quota is None:
            return {"answers": answers, "quota": None}
        return {"answers": answers, "quota": max(0, person.quota - served.usage.of(person.name))}

    def _ask(self, served: Served, person: Person, ask: Ask, retry_key: str | None) -> dict[str, Any]:
        query, kind, options = ask.asked()
        session = served.session.for_analyst(person.name)
        holding: AbstractContextManager[None] = nullcontext()
        if person.quota is not None or kind == "minimize" or ask.accuracy is not None or ask.steps is not None:
            quote = _readable(session.price(query, kind, **options))
            if person.quota is not None and not quote.cached:
                holding = self.quotas.reserved(
                    served.usage,
                    analyst=person.name,
                    dataset=served.name,
                    quota=person.quota,
                    answers=quote.queries,
                )
        with holding:
            answer = session.ask(query, kind, retry_key=retry_key, **options)
        return self._said(served, person, ask, answer.to_dict())

    def _said(self, served: Served, person: Person, ask: Ask, answer: dict[str, Any]) -> dict[str, Any]:
        left = self.left(served, person)
        return {"ok": True, "dataset": served.name, "kind": ask.kind, "answer": answer, "left": left}


def _readable(quote: Quote) -> Quote:
    """Refuse a question that would keep a thread busy for long, when its price is asked already."""
    if quote.rows_read > MOST_DRAWS and not quote.cached:
        raise InvalidArgument(
            f"A question over HTTP must read at most {MOST_DRAWS:,} rows; this one reads {quote.rows_read:,}."
        )
    return quote


def _digest(*parts: str) -> str:
    return sha256("\n".join(parts).encode()).hexdigest()
