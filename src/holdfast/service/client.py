"""`holdfast.connect`: the verbs and answers of a `Session`, from a server.

    data = hf.connect("https://data.example.org", token="hf_...")
    data.mean("dep_delay > 15")

Every question carries an idempotency key, so one whose answer got lost on the way is sent again and charged once.
`connect_async` gives the same verbs to be awaited. Errors are those of the library, rebuilt from what the server said.
"""

import asyncio
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from holdfast.answer import Answer, AnyAnswer, FlipsAnswer, HistogramAnswer, MinimumAnswer
from holdfast.budget import Budget, Quote
from holdfast.ledger import Head, Receipt
from holdfast.planning import Plan
from holdfast.schema import Schema
from holdfast.service import wire

if TYPE_CHECKING:
    import httpx
    import polars as pl

PAGE = 1_000


def connect(url: str, token: str, *, dataset: str | None = None, timeout: float = 60.0) -> "RemoteSession":
    """Return a session on a server. `dataset` may be left out if the token reaches only one."""
    line = wire.needed_httpx().Client(**wire.line_options(url, token, timeout))
    try:
        return RemoteSession(line, dataset)
    except BaseException:
        line.close()
        raise


async def connect_async(
    url: str, token: str, *, dataset: str | None = None, timeout: float = 60.0
) -> "AsyncRemoteSession":
    """Return a session on a server whose verbs are awaited."""
    session = AsyncRemoteSession(wire.needed_httpx().AsyncClient(**wire.line_options(url, token, timeout)), dataset)
    try:
        await session.choose()
    except BaseException:
        await session.close()
        raise
    return session


def datasets_at(url: str, token: str, *, timeout: float = 60.0) -> list[str]:
    """Return the names of the datasets that a token reaches."""
    with wire.needed_httpx().Client(**wire.line_options(url, token, timeout)) as line:
        said = wire.succeeded(wire.read(line.get("datasets")))
    return [str(one["name"]) for one in said["datasets"]]


class RemoteSession:
    """A dataset on a server. The verbs, answers and errors are those of `Session`."""

    def __init__(self, line: "httpx.Client", dataset: str | None) -> None:
        self._line = line
        self.dataset = wire.chosen(self._send("GET", "datasets"), dataset)

    def mean(
        self,
        query: str,
        *,
        within: tuple[float, float] | None = None,
        where: str | None = None,
        rows_per_query: int | None = None,
        accuracy: float | None = None,
    ) -> Answer:
        """Return a share, or the mean of a number declared `within` bounds; see `Session.mean`."""
        options: dict[str, Any] = {"within": within, "where": where}
        options |= {"rows_per_query": rows_per_query, "accuracy": accuracy}
        return cast(Answer, self.ask(query, "mean", **options))

    def histogram(
        self, query: str, *, categories: Any = None, bins: Any = None, rows_per_query: int | None = None
    ) -> HistogramAnswer:
        """Return the share of each declared category or bin; see `Session.histogram`."""
        options = {"categories": categories, "bins": bins, "rows_per_query": rows_per_query}
        return cast(HistogramAnswer, self.ask(query, "histogram", **options))

    def quantile(
        self, query: str, q: float, *, within: tuple[float, float], where: str | None = None, steps: int | None = None
    ) -> Answer:
        """Return an interval for a quantile; see `Session.quantile`."""
        return cast(Answer, self.ask(query, "quantile", q=q, within=within, where=where, steps=steps))

    def flip(self, query: str) -> int:
        """Return 0 or 1; see `Session.flip`."""
        return self.flips(query, 1).bits[0]

    def flips(self, query: str, count: int) -> FlipsAnswer:
        """Return `count` new flips; see `Session.flips`."""
        return cast(FlipsAnswer, self.ask(query, "flips", count=count))

    def minimize(self, loss: Any, *, radius: float | None = None, **options: Any) -> MinimumAnswer:
        """Return a point of small population loss, for one of the built-in losses; see `Session.minimize`."""
        return cast(MinimumAnswer, self.ask(loss, "minimize", radius=radius, **options))

    def ask(self, query: Any, kind: str = "mean", *, retry_key: str | None = None, **options: Any) -> AnyAnswer:
        """Ask by kind; see `Session.ask`."""
        said = self._send(
            "POST", self._path("ask"), wire.question(kind, query, options), key=retry_key or wire.new_key()
        )
        return wire.answer_of(said["answer"])

    def price(self, query: Any, kind: str = "mean", **options: Any) -> Quote:
        """Say what a question would cost; reads nothing, spends nothing."""
        return Quote(**self._send("POST", self._path("price"), wire.question(kind, query, options))["price"])

    def dry_run(self, query: Any, kind: str = "mean", **options: Any) -> AnyAnswer:
        """Answer from made-up rows; reads nothing, spends nothing."""
        return wire.answer_of(self._send("POST", self._path("dry-run"), wire.question(kind, query, options))["answer"])

    @property
    def budget(self) -> Budget:
        """What is left to ask, for everyone together."""
        return Budget(**self._send("GET", self._path("budget"))["budget"])

    @property
    def plan(self) -> Plan:
        """The plan that stands."""
        return Plan.from_dict(self._send("GET", self._path("plan"))["plan"])

    @property
    def schema(self) -> Schema:
        """Column names and types. Never values."""
        return wire.schema_of(self._send("GET", self._path("schema")))

    @property
    def head(self) -> Head:
        """The ledger's newest entry."""
        return Head(**self._send("GET", self._path("head"))["head"])

    def receipt(self, answer: Answer | HistogramAnswer | int) -> Receipt:
        """Return the proof that an answer is in the ledger."""
        return Receipt.from_dict(self._send("GET", self._path(f"receipts/{wire.seq_of(answer)}"))["receipt"])

    def history(self) -> "pl.DataFrame":
        """Return every answer so far, whoever asked, as a frame."""
        rows: list[dict[str, Any]] = []
        start: int | None = 1
        while start is not None:
            page = self._send("GET", self._path(f"history?start={start}&limit={PAGE}"))
            rows += page["rows"]
            start = page["next"]
        return wire.frame_of(rows)

    def close(self) -> None:
        """Let go of the connection."""
        self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session on {self.dataset} at {self._line.base_url}: {self.budget}."

    def _path(self, what: str) -> str:
        return wire.path_of(self.dataset, what)

    def _send(self, method: str, path: str, body: Any = None, key: str | None = None) -> dict[str, Any]:
        httpx, attempt = wire.needed_httpx(), 0
        while True:
            attempt += 1
            try:
                said = wire.read(self._line.request(method, path, json=body, headers=wire.headers(key)))
            except httpx.TransportError as error:
                said = wire.unreachable(error)
            wait = wire.wait_before(said, attempt)
            if wait is None:
                return wire.succeeded(said)
            time.sleep(wait)


class AsyncRemoteSession:
    """The same, to be awaited: `await data.mean(...)`, `await data.budget()`."""

    def __init__(self, line: "httpx.AsyncClient", dataset: str | None) -> None:
        self._line = line
        self._wanted = dataset
        self.dataset = dataset or ""

    async def choose(self) -> None:
        """Look which datasets the token reaches, and settle on one."""
        self.dataset = wire.chosen(await self._send("GET", "datasets"), self._wanted)

    async def mean(self, query: str, **options: Any) -> Answer:
        """Return a share or a bounded mean; options as `Session.mean`."""
        return cast(Answer, await self.ask(query, "mean", **options))

    async def histogram(self, query: str, **options: Any) -> HistogramAnswer:
        """Return the share of each category; options as `Session.histogram`."""
        return cast(HistogramAnswer, await self.ask(query, "histogram", **options))

    async def quantile(self, query: str, q: float, **options: Any) -> Answer:
        """Return an interval for a quantile; options as `Session.quantile`."""
        return cast(Answer, await self.ask(query, "quantile", q=q, **options))

    async def flip(self, query: str) -> int:
        """Return 0 or 1."""
        return (await self.flips(query, 1)).bits[0]

    async def flips(self, query: str, count: int) -> FlipsAnswer:
        """Return `count` new flips."""
        return cast(FlipsAnswer, await self.ask(query, "flips", count=count))

    async def minimize(self, loss: Any, *, radius: float | None = None, **options: Any) -> MinimumAnswer:
        """Return a point of small population loss, for one of the built-in losses."""
        return cast(MinimumAnswer, await self.ask(loss, "minimize", radius=radius, **options))

    async def ask(self, query: Any, kind: str = "mean", *, retry_key: str | None = None, **options: Any) -> AnyAnswer:
        """Ask by kind."""
        body = wire.question(kind, query, options)
        return wire.answer_of(
            (await self._send("POST", self._path("ask"), body, key=retry_key or wire.new_key()))["answer"]
        )

    async def price(self, query: Any, kind: str = "mean", **options: Any) -> Quote:
        """Say what a question would cost."""
        return Quote(**(await self._send("POST", self._path("price"), wire.question(kind, query, options)))["price"])

    async def dry_run(self, query: Any, kind: str = "mean", **options: Any) -> AnyAnswer:
        """Answer from made-up rows."""
        return wire.answer_of(
            (await self._send("POST", self._path("dry-run"), wire.question(kind, query, options)))["answer"]
        )

    async def budget(self) -> Budget:
        """Return what is left to ask."""
        return Budget(**(await self._send("GET", self._path("budget")))["budget"])

    async def plan(self) -> Plan:
        """Return the plan that stands."""
        return Plan.from_dict((await self._send("GET", self._path("plan")))["plan"])

    async def schema(self) -> Schema:
        """Return column names and types."""
        return wire.schema_of(await self._send("GET", self._path("schema")))

    async def head(self) -> Head:
        """Return the ledger's newest entry."""
        return Head(**(await self._send("GET", self._path("head")))["head"])

    async def receipt(self, answer: Answer | HistogramAnswer | int) -> Receipt:
        """Return the proof that an answer is in the ledger."""
        return Receipt.from_dict((await self._send("GET", self._path(f"receipts/{wire.seq_of(answer)}")))["receipt"])

    async def history(self) -> "pl.DataFrame":
        """Return every answer so far as a frame."""
        rows: list[dict[str, Any]] = []
        start: int | None = 1
        while start is not None:
            page = await self._send("GET", self._path(f"history?start={start}&limit={PAGE}"))
            rows += page["rows"]
            start = page["next"]
        return wire.frame_of(rows)

    async def close(self) -> None:
        """Let go of the connection."""
        await self._line.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _path(self, what: str) -> str:
        return wire.path_of(self.dataset, what)

    async def _send(self, method: str, path: str, body: Any = None, key: str | None = None) -> dict[str, Any]:
        httpx, attempt = wire.needed_httpx(), 0
        while True:
            attempt += 1
            try:
                said = wire.read(await self._line.request(method, path, json=body, headers=wire.headers(key)))
            except httpx.TransportError as error:
                said = wire.unreachable(error)
            wait = wire.wait_before(said, attempt)
            if wait is None:
                return wire.succeeded(said)
            await asyncio.sleep(wait)
