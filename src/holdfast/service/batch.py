"""Several questions over HTTP or from an agent: a list, or a SELECT. One reservation, one transaction, all or none."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from holdfast.cancel import Work
from holdfast.errors import BudgetExhausted, HoldfastError, InvalidArgument, QuotaExhausted
from holdfast.questions.answer import AnyAnswer
from holdfast.questions.batch import Prices
from holdfast.questions.options import plain
from holdfast.questions.price import write_answers
from holdfast.questions.question import Question
from holdfast.questions.sql import Selected, select
from holdfast.service.ask import AskService, Gone, Response, digest, of_quota
from holdfast.service.calls import read_answer
from holdfast.service.datasets import Datasets, ServedDataset
from holdfast.service.idempotency import check_key
from holdfast.service.lanes import Lanes
from holdfast.service.limits import RateLimiter
from holdfast.service.schemas import MAX_BATCH, AskIn, QuestionModels
from holdfast.service.tokens import Token
from holdfast.session.answering import Prepared


class BatchService:
    """Asks and prices lists of questions on behalf of a token; each question counts as a request."""

    def __init__(
        self, service: AskService, datasets: Datasets, questions: QuestionModels, lanes: Lanes, limits: RateLimiter
    ) -> None:
        self._service, self._datasets, self._questions = service, datasets, questions
        self._lanes, self._limits = lanes, limits

    async def batch(self, name: str, token: Token, asks: list[AskIn], key: str | None, *, gone: Gone) -> Response:
        """Answer several questions, all of them or none; a refusal says which question it is about."""
        check_key(key)
        self._limits.take(token.id, len(asks) - 1)
        await self._lanes.reads.run(token.name, partial(self._check, name, token, asks))
        return await self._answered(name, token, asks, key, gone)

    async def sql(self, name: str, token: Token, text: str, key: str | None, *, gone: Gone | None = None) -> Response:
        """Answer a SELECT. One that the budget or the quota cannot pay for is refused as a whole."""
        check_key(key)
        selected, asks = await self._lanes.reads.run(token.name, partial(self._affordable, name, token, text))
        results = (await self._answered(name, token, asks, key, gone))["results"]
        frame = selected.frame([read_answer(one["answer"]) for one in results])
        table = {"columns": frame.columns, "rows": [plain(list(row)) for row in frame.rows()]}
        left = await self._lanes.reads.run(token.name, partial(self._left, name, token))
        return {"ok": True, "dataset": name, **table, "results": results, "left": left}

    async def _answered(
        self, name: str, token: Token, asks: Sequence[AskIn], key: str | None, gone: Gone | None
    ) -> Response:
        return await self._service.answer_list(token, partial(self._together, name, token, asks, key), key, gone)

    # -- in a thread ----------------------------------------------------------------------------------------------

    def _together(self, name: str, token: Token, asks: Sequence[AskIn], key: str | None, work: Work) -> Response:
        """Answer all questions together; with a key, only once."""
        served, keys = self._datasets.get(name, token), self._service.idempotency
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
                    found.append(self._service.prepare(session, ask, own))
            return found

        def answer(questions: list[Question]) -> list[AnyAnswer]:
            with self._service.quotas.reserve(served, token, questions, work):
                return session.answering.answer_all(questions)

        with served.naming:
            given = Prepared(session.answering.plan, build).answered(answer)
        for one in given:
            self._service.metrics.count_answer(name, cached=one.cached)
        response = {"ok": True, "results": [self._service.response(served, token, one) for one in given]}
        if key is not None and not all(one.cached for one in given):
            keys.store(token.id, key, request, response)
        return response

    def prices(self, served: ServedDataset, token: Token, asks: Sequence[AskIn]) -> Response:
        """Return what questions cost together."""
        self._limits.take(token.id, len(asks) - 1)
        questions = [ask.call(served.session.prepare) for ask in asks]
        return self._priced(served, token, served.session.answering.prices_of(questions))

    def sql_prices(self, served: ServedDataset, token: Token, text: str) -> Response:
        """Return what a SELECT costs."""
        return self._priced(served, token, self.price_sql(served, token, text))

    def price_sql(self, served: ServedDataset, token: Token, text: str) -> Prices:
        """Return what a SELECT costs; each question in it counts as a request: pricing takes as long as asking."""
        self._count(token, _selected(served, text))
        return served.session.price_sql(text)

    def _count(self, token: Token, selected: Selected) -> None:
        """Count each question of a SELECT as a request; the SELECT was counted as one."""
        self._limits.take(token.id, max(0, len(selected.questions) - 1))

    def _priced(self, served: ServedDataset, token: Token, prices: Prices) -> Response:
        facts = {"text": str(prices), "left": self._service.left(served, token)}
        return {"ok": True, "dataset": served.name} | prices.to_dict() | facts

    def _left(self, name: str, token: Token) -> dict[str, Any]:
        return self._service.left(self._datasets.get(name, token), token)

    def _check(self, name: str, token: Token, asks: list[AskIn]) -> None:
        """Refuse a batch as a whole if a question in it cannot be read, before anything is asked."""
        served = self._datasets.get(name, token)
        for ask in asks:
            if ask.problem is not None:
                ask.call(served.session.prepare)

    def _affordable(self, name: str, token: Token, text: str) -> tuple[Selected, list[AskIn]]:
        """Return the questions of a SELECT; refuse one that the budget or the quota cannot pay for."""
        served = self._datasets.get(name, token)
        with served.naming:
            selected = _selected(served, text)
            if len(selected.questions) > MAX_BATCH:
                raise InvalidArgument(
                    f"A SELECT over HTTP must be at most {MAX_BATCH} questions, with all groups; this one is"
                    f" {len(selected.questions)}.",
                    name="sql",
                )
            self._count(token, selected)
            prices = served.session.price_sql(text)
        left = self._service.left(served, token)
        for name_, refusal, amount in (("budget", BudgetExhausted, None), ("quota", QuotaExhausted, left["quota"])):
            cost = prices.answers if amount is None else sum(map(of_quota, prices.each))
            short = not prices.affordable if amount is None else cost > amount
            if short:
                there = left["answers"] if amount is None else amount
                raise refusal(
                    f"The {name_} cannot pay for this SELECT: it costs {write_answers(cost)}, and {there:,} are left."
                    " Ask for fewer groups.",
                    cost=cost,
                    left=there,
                    unit="answers",
                )
        return selected, [self._questions.read(question) for question in selected.questions]


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
