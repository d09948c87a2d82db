"""Everything that a client can request about a dataset, defined once for both sessions of `client.py`.

A `Call` is one request and how its response is read. Nothing here sends anything: the two sessions are made from these
calls, and differ only in how they wait for responses.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote

import polars as pl

from holdfast.errors import HoldfastError, InvalidArgument, UnknownName
from holdfast.guarantees.plan import Plan
from holdfast.ledger import Head, Receipt
from holdfast.optimize.losses import LinearLoss
from holdfast.questions import KINDS, kind_named, missing_verb
from holdfast.questions.answer import AnyAnswer, record_of
from holdfast.questions.batch import Answers, Asked, Prices, Questions
from holdfast.questions.budget import Budget
from holdfast.questions.history import REGISTER, SCHEMA, standings_frame
from holdfast.questions.kind import Kind
from holdfast.questions.mean import MEAN
from holdfast.questions.price import Price
from holdfast.schema import Column, Schema

PAGE_SIZE = 1_000

A = TypeVar("A", bound=AnyAnswer)
T = TypeVar("T")
Payload = dict[str, Any]
Sendable = str | LinearLoss


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request, and how its response is read: as a result, or as the call that must follow."""

    method: str
    path: str
    read: "Callable[[Payload], T | Call[T]]"
    body: Payload | None = None
    key: str | None = None

    def arguments(self) -> Payload:
        """Return the arguments of httpx's `request`."""
        headers = {} if self.key is None else {"Idempotency-Key": self.key}
        return {"method": self.method, "url": self.path, "json": self.body, "headers": headers}


class Calls:
    """The calls about one dataset; the methods of both sessions are made from them."""

    def __init__(self, dataset: str) -> None:
        self.dataset = dataset

    def __getattr__(self, name: str) -> Any:
        kind = None if name.startswith("_") else KINDS.find(name)  # also kinds that other packages registered
        if kind is None:
            raise missing_verb(self, name)
        return partial(cast(Any, self).ask, kind=kind.name)

    def _ask(
        self, /, query: Sendable, kind: str = MEAN.name, *, idempotency_key: str | None = None, **options: object
    ) -> Call[AnyAnswer]:
        """Ask by kind.

        Parameters
        ----------
        query, kind, idempotency_key, **options
            As for `Session.ask`; only text and built-in losses can be sent.

        Returns
        -------
        AnyAnswer
            An answer of that kind.
        """
        return self._kind(kind_named(kind), (query,), options, idempotency_key)

    def _kind(
        self, kind: Kind[..., A], args: tuple[object, ...], options: Mapping[str, object], key: str | None = None
    ) -> Call[A]:
        return Call("POST", self._path("ask"), _answered, _question(kind, args, options), key or uuid.uuid4().hex)

    def _price(self, /, query: Sendable, kind: str = MEAN.name, **options: object) -> Call[Price]:
        """Return what a question would cost. Reads nothing, spends nothing.

        Parameters
        ----------
        query, kind, **options
            As for `ask`.
        """
        body = _question(kind_named(kind), (query,), options)
        return Call("POST", self._path("price"), lambda payload: Price.from_dict(payload["price"]), body)

    def _dry_run(self, /, query: Sendable, kind: str = MEAN.name, **options: object) -> Call[AnyAnswer]:
        """Answer from made-up rows. Reads nothing, spends nothing.

        Parameters
        ----------
        query, kind, **options
            As for `ask`.

        Returns
        -------
        AnyAnswer
            An answer of that kind, which means nothing.
        """
        return Call("POST", self._path("dry-run"), _answered, _question(kind_named(kind), (query,), options))

    def _ask_many(self, /, questions: Iterable[Asked]) -> Call[Answers]:
        """Ask several questions: one reservation, one transaction, all of them or none.

        Parameters
        ----------
        questions
            As for `Session.ask_many`: texts, or dicts with the kind and the options of a question. A `Questions` is
            registered first.

        Returns
        -------
        Answers
            Their answers, in the same order.
        """
        asks = _listed(questions)

        def read(payload: Payload) -> Answers:
            return Answers([read_answer(one["answer"]) for one in payload["results"]])

        batch = Call("POST", self._path("batch"), read, {"asks": asks}, uuid.uuid4().hex)
        if not isinstance(questions, Questions):
            return batch
        body = {"kind": REGISTER.name, "questions": asks}
        return Call("POST", self._path("ask"), lambda _: batch, body, uuid.uuid4().hex)

    def _price_many(self, /, questions: Iterable[Asked]) -> Call[Prices]:
        """Return what several questions would cost together. Reads nothing, spends nothing.

        Parameters
        ----------
        questions
            As for `ask_many`.
        """
        return Call("POST", self._path("batch/price"), Prices.from_dict, {"asks": _listed(questions)})

    def _sql(self, /, text: str) -> Call[pl.DataFrame]:
        """Answer a SELECT of aggregates.

        Parameters
        ----------
        text
            The statement, as for `Session.sql`.

        Returns
        -------
        DataFrame
            As from `Session.sql`.
        """

        return Call("POST", self._path("sql"), read_table, {"sql": text}, uuid.uuid4().hex)

    def _price_sql(self, /, text: str) -> Call[Prices]:
        """Return what a SELECT would cost. Reads nothing, spends nothing.

        Parameters
        ----------
        text
            The statement, as for `Session.sql`.
        """
        return Call("POST", self._path("sql/price"), Prices.from_dict, {"sql": text})

    def _budget(self) -> Call[Budget]:
        """Return what is left to ask, for all analysts together, and of your quota, if you have one."""

        def read(payload: Payload) -> Budget:
            return replace(Budget.from_dict(payload["budget"]), quota=payload["left"]["quota"])

        return Call("GET", self._path("budget"), read)

    def _plan(self) -> Call[Plan]:
        """Return the plan of the dataset."""
        return Call("GET", self._path("plan"), lambda payload: Plan.from_dict(payload["plan"]))

    def _schema(self) -> Call[Schema]:
        """Return column names, types, and what else is declared. Never what the rows hold."""

        def read(payload: Payload) -> Schema:
            return Schema(tuple(map(Column.from_json, payload["columns"])), payload["dataset"])

        return Call("GET", self._path("schema"), read)

    def _head(self) -> Call[Head | None]:
        """Return the ledger's newest entry; None before the first answer."""
        return Call("GET", self._path("head"), lambda payload: payload["head"] and Head(**payload["head"]))

    def _receipt(self, answer: AnyAnswer | int) -> Call[Receipt]:
        """Return the proof that an answer is in the ledger.

        Parameters
        ----------
        answer
            An answer, or its number.
        """
        seq = answer.seq if isinstance(answer, AnyAnswer) else answer
        if seq is None:
            raise InvalidArgument("A dry run is in no ledger, so there is no receipt for it.")
        return Call("GET", self._path(f"receipts/{seq}"), lambda payload: Receipt.from_dict(payload["receipt"]))

    def _history(self) -> Call[pl.DataFrame]:
        """Return all answers so far, of all analysts, as a frame."""
        return self._page(1, ())

    def _page(self, start: int, before: tuple[Payload, ...]) -> Call[pl.DataFrame]:
        """Return the call for one page; `before` are the rows of earlier pages."""

        def read(payload: Payload) -> pl.DataFrame | Call[pl.DataFrame]:
            rows = (*before, *payload["rows"])
            if payload["next"] is not None:
                return self._page(payload["next"], rows)
            return pl.DataFrame(list(rows), schema=SCHEMA, orient="row")

        return Call("GET", self._path(f"history?start={start}&limit={PAGE_SIZE}"), read)

    def _standings(self) -> Call[pl.DataFrame]:
        """Return the submissions to a board: improvements, the best first, then those that were no better."""
        return Call("GET", self._path("standings"), lambda payload: standings_frame(payload["standings"]))

    def _path(self, what: str) -> str:
        return f"datasets/{quote(self.dataset, safe='')}/{what}"


def _question(kind: Kind[..., Any], args: tuple[object, ...], options: Mapping[str, object]) -> Payload:
    """Return a question as JSON. Only text and built-in losses can be sent; code is never sent."""
    kind.check_options(args, options)
    names = [option.name for option in kind.options]
    return kind.to_json({**dict(zip(names, args, strict=False)), **options})


def _listed(questions: Iterable[Asked]) -> list[Payload]:
    """Return several questions as JSON."""
    found = []
    for one in Questions(questions):
        values: dict[str, object] = {"query": one} if isinstance(one, str) else dict(one)
        found.append(kind_named(values.pop("kind", MEAN.name)).to_json(values))
    return found


def require_ok(payload: Payload) -> Payload:
    """Return the payload, or raise the error it describes."""
    if payload["ok"]:
        return payload
    raise _error_classes().get(payload["kind"], HoldfastError)(payload["error"], **payload["details"])


def _error_classes(error: type[HoldfastError] = HoldfastError) -> dict[str, type[HoldfastError]]:
    """Return an error class and all below it, by kind."""
    found = {error.kind: error}
    for below in error.__subclasses__():
        found |= _error_classes(below)
    return found


def names_of(payload: Payload) -> list[str]:
    """Return the names in a list of datasets."""
    return [str(one["name"]) for one in payload["datasets"]]


def choose(dataset: str | None) -> Call[str]:
    """Return the call that finds the dataset to ask: the requested one, or the only one."""

    def read(payload: Payload) -> str:
        names = names_of(payload)
        listed = ", ".join(names) or "none"
        if dataset is None and len(names) == 1:
            return names[0]
        if dataset is None:
            raise InvalidArgument(f"dataset must be given unless the token allows exactly one; it allows: {listed}.")
        if dataset not in names:
            raise UnknownName(f"No dataset {dataset!r} for your token. It allows: {listed}.", name=dataset)
        return dataset

    return Call("GET", "datasets", read)


def read_answer(answer: Mapping[str, Any]) -> AnyAnswer:
    """Rebuild an answer from what `AnyAnswer.to_dict` wrote."""
    found: AnyAnswer = kind_named(answer["kind"]).read(answer, record_of(answer))
    return found


def read_table(payload: Payload) -> pl.DataFrame:
    """Return the table of a SELECT, or raise the error that the payload describes."""
    found = require_ok(payload)
    frame = pl.DataFrame(found["rows"], schema=found["columns"], orient="row", infer_schema_length=None)
    empty = [name for name, dtype in frame.schema.items() if dtype == pl.Null]  # aggregates with too few rows to tell
    return frame.with_columns(pl.col(name).cast(frame.schema[f"{name}_low"]) for name in empty)


def _answered(payload: Payload) -> Any:
    return read_answer(payload["answer"])
