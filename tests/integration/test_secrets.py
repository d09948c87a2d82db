"""Attacks on secrets: nothing an analyst can read tells which rows come next, or which table this is.

The analyst reads all there is: plan, answers, receipts, history, errors, every page and every response over HTTP, and
takes every number and every run of hexadecimal digits in them for the key of the row order. With the right one he can
ask a sorted file for what the next rows over-represent.
"""

import json
import logging
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from counting_rows import CountingRows
from holdfast.errors import BudgetExhausted, HoldfastError, InvalidArgument, PlanConflict, RowSourceError
from holdfast.ledger import Cost
from holdfast.rows import draws
from holdfast.rows.memory import memory_rows
from holdfast.session.session import Session
from serving import Running, settings

ROWS, QUERIES = 4_000, 8
GET_ONLY = {"name": "sorted", "seq": "0", "id": "1"}


class Listening(CountingRows):
    """Notes which rows are drawn: what the analyst wants to know beforehand."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self.drawn: list[Any] = []

    def sample(self, query: Any, selection: Any, rng: Any) -> Any:
        self.drawn.append(selection.indices(len(self), rng))
        return super().sample(query, selection, rng)


def keys_in(text: str) -> Iterator[Any]:
    """Take everything that might be a key for one."""
    for digits in set(re.findall(r"\d+", text)):
        number = int(digits)
        yield number
        yield digits.encode().ljust(32, b"\0")
        if number < 2**256:
            yield number.to_bytes(32)
            yield number.to_bytes(32, "little")
    for run in set(re.findall(r"[0-9a-f]{32,}", text)):
        yield int(run, 16)
        yield bytes.fromhex(run[: len(run) // 2 * 2])
        yield sha256(run.encode()).digest()


def blocks(key: Any, start: int, count: int) -> Iterator[list[int]]:
    """The next rows, if this is the key."""
    try:
        yield draws.permuted_block(key, ROWS, start, count).tolist()
    except (InvalidArgument, TypeError, ValueError):
        return


def predicted(texts: list[str], start: int, drawn: list[int]) -> list[Any]:
    """Return the keys found in the texts that name the rows that were drawn."""
    keys = {key for text in texts for key in keys_in(text)}
    assert len(keys) > 100
    return [key for key in keys for block in blocks(key, start, len(drawn)) if sorted(block) == sorted(drawn)]


def everything_shown(session: Session) -> list[str]:
    shown: list[Any] = [
        session.plan,
        session.plan._repr_html_(),
        session.plan.to_dict(),
        session.plan.standing.terms,
        session,
        session.ledger,
        session.budget,
        session.schema,
        session.price("x > 7"),
        session.prepare("x > 7"),
        session.ledger.terms,
        session.ledger.head,
        *session.history().to_dicts(),
        *session.ledger.entries(),
        *(session.receipt(seq).to_dict() for seq in range(session.ledger.head.seq + 1)),
    ]
    return [repr(each) for each in shown]


@pytest.mark.parametrize("seed", [None, 5])
def test_nothing_that_is_shown_tells_which_rows_come_next(seed: int | None) -> None:
    rows = Listening(memory_rows({"x": np.arange(ROWS)}))
    with Session(rows, queries=QUERIES, guarantee="split", seed=seed) as session:
        for number in range(QUERIES - 1):
            answer = session.mean(f"x > {number}")
            texts = [*everything_shown(session), repr(answer), str(answer.to_dict())]
            spent = session.ledger.spent.charge
            session.mean(f"x > {number} or x < -5")
            assert predicted(texts, spent, rows.drawn[-1]) == []
            if session.budget.answers_left < 3:
                break


def test_the_attack_works_on_an_order_that_is_shown() -> None:
    """The mutant: a key that is among the texts is found."""
    key = bytes(range(32))
    drawn = draws.permuted_block(key, ROWS, 40, 20).tolist()
    texts = [" ".join(map(str, range(200))), json.dumps({"order": key.hex()})]
    assert predicted(texts, 40, drawn) == [key]
    assert predicted([texts[0], json.dumps({"order": int.from_bytes(key)})], 40, drawn) == [key]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    path = tmp_path / "sorted.parquet"
    pl.DataFrame({"x": np.arange(ROWS)}).write_parquet(path)
    plan = {"queries": QUERIES, "guarantee": "split"}
    with Running(settings(path, dataset=plan, data_folder=str(tmp_path))) as running:
        yield running


def everything_served(server: Running, **token: Any) -> list[str]:
    texts = []
    api = "/api/v1/datasets/sorted"
    with server.client(server.token(**token)) as client:
        for number in range(3):
            texts.append(client.post(f"{api}/ask", json={"query": f"x > {number}"}).text)
            texts.append(client.post(f"{api}/price", json={"query": f"x > {number}"}).text)
        texts += [client.post(f"{api}/dry-run", json={"query": "x > 1"}).text]
        texts += [
            client.post(f"{api}/ask", json=wrong).text for wrong in ({"query": "y"}, {"query": "x > 9", "z": 1}, [])
        ]
        texts += [client.post(f"{api}/verify").text]
        for route in server.app.routes:
            if "GET" in (getattr(route, "methods", None) or ()):
                for seq in range(4):
                    path = route.path.format_map(GET_ONLY | {"seq": seq})
                    for accept in ("application/json", "text/html"):
                        response = client.get(path, headers={"Accept": accept})
                        texts += [response.text, str(response.headers)]
    return texts


def parts(secret: bytes, size: int = 16) -> set[str]:
    return {secret.hex()[i : i + size] for i in range(2 * len(secret) - size + 1)}


@pytest.mark.parametrize("admin", [False, True])
def test_nothing_that_is_served_tells_which_rows_come_next(
    server: Running, admin: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    texts = everything_served(server, name="eve", admin=admin)
    session = server.state.datasets.get("sorted", server.state.admin).session
    rows = Listening(session._rows)
    session.answering.plan.standing.draws._drawers = rows, None
    start = session.ledger.spent.charge
    session.mean("x > 77")
    texts.append(caplog.text)
    assert predicted(texts, start, rows.drawn[-1]) == []
    served = "\n".join(texts).lower()
    fingerprint = rows.fingerprint
    for hidden in (
        session.ledger._store.secret(),
        session.ledger.key("order of rows"),
        session.ledger.key("fingerprint"),
    ):
        assert hidden.hex() not in served
        assert not any(part in served for part in parts(hidden))
    assert fingerprint not in served
    assert '"rows"' in served
    assert served.count("fingerprint") >= 1  # the keyed one, in the first receipt


def test_no_text_of_a_session_shows_a_secret_or_the_fingerprint(tmp_path: Path) -> None:
    place = tmp_path / "a.ledger"
    rows, texts = memory_rows({"x": np.arange(ROWS)}), []

    def refused(kind: type[HoldfastError], act: Any) -> None:
        with pytest.raises(kind) as error:
            act()
        texts.append(repr((error.value, str(error.value), error.value.fields)))

    with Session(rows, queries=QUERIES, end=True, ledger=place) as session:
        for number in range(QUERIES):
            texts.append(repr(session.mean(f"x > {number}")))
        refused(BudgetExhausted, lambda: session.mean("x > 99"))
        refused(BudgetExhausted, lambda: session.ledger.reserve(session.ledger.caps))
        texts += everything_shown(session)
        store = session.ledger._store
        answering, first = session.answering, next(session.ledger.entries())
        texts += [repr(vars(one)) for one in (session, answering, answering.plan)]
        texts.append(repr(answering._drawing(first.place, Cost(1, 1))))
        hidden = (
            parts(store.secret()) | parts(session.ledger.key("order of rows")) | parts(bytes.fromhex(rows.fingerprint))
        )
    refused(RowSourceError, lambda: Session({"x": np.arange(ROWS) + 1}, ledger=place))
    refused(PlanConflict, lambda: Session(rows, queries=QUERIES + 1, ledger=place))
    shown = "\n".join(texts).lower()
    assert [part for part in hidden if part in shown] == []
    assert "fingerprint" in shown


def test_a_seed_repeats_the_order_of_rows() -> None:
    answers = []
    for seed in (7, 7, 8):
        with Session({"x": np.arange(ROWS)}, queries=QUERIES, guarantee="split", seed=seed) as session:
            answers.append(session.mean("x", within=(0, ROWS)).value)
    assert answers[0] == answers[1] != answers[2]
