"""A hostile team with a token: malformed and huge tables, odd ids, copies, races; what time or receipts might tell."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import anyio
import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.queries import submission
from holdfast.queries.submission import Metric
from holdfast.service.mcp import Tools
from serving import Running, settings

ROWS = 400
IDS = [f"caf\u00e9 {number}" for number in range(ROWS)]  # one sign; it may also be written as two
LABELS = [number % 2 == 0 for number in range(ROWS)]
API = "/api/v1/datasets/sealed"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("hostile")
    pl.DataFrame({"id": IDS, "label": LABELS}).write_parquet(folder / "sealed.parquet")
    hf.Board(folder / "sealed.parquet", step=0.05).close()
    chosen = settings(folder / "sealed.board.holdfast", dataset={"queries": None})
    (board,) = chosen.datasets.values()
    with Running(replace(chosen, datasets={"sealed": board})) as running:
        yield running


def right(count: int) -> dict[str, list[Any]]:
    return {"id": IDS, "prediction": [label == (number < count) for number, label in enumerate(LABELS)]}


def spent(server: Running) -> tuple[int, int]:
    ledger = server.state.datasets.get("sealed", server.state.admin).session.ledger
    return ledger.spent.answers, ledger.answered.intervals


def csv(rows: list[tuple[str, str]], head: str = "id,prediction") -> str:
    return "\n".join([head, *(f"{id},{said}" for id, said in rows)])


DECOMPOSED = [id.replace("\u00e9", "e\u0301") for id in IDS]
HOSTILE: dict[str, Any] = {
    "ids written as two signs": {"id": DECOMPOSED, "prediction": LABELS},
    "the same id in both spellings": {"id": [*IDS[:-1], DECOMPOSED[0]], "prediction": LABELS},
    "ids with NUL": {"id": [f"{id}\x00" for id in IDS], "prediction": LABELS},
    "ids with spaces": {"id": [f" {id}" for id in IDS], "prediction": LABELS},
    "ids in capitals": {"id": [id.upper() for id in IDS], "prediction": LABELS},
    "an invisible sign": {"id": [f"{id}\u200b" for id in IDS], "prediction": LABELS},
    "half of a surrogate pair": {"id": [*IDS[:-1], "\ud800"], "prediction": LABELS},
    "numbers for true and false": {"id": IDS, "prediction": [int(label) for label in LABELS]},
    "words that are neither": {"id": IDS, "prediction": ["yes"] * ROWS},
    "mixed types": {"id": IDS, "prediction": [True, "true", *LABELS[2:]]},
    "lists in cells": {"id": IDS, "prediction": [[True]] * ROWS},
    "objects in cells": {"id": IDS, "prediction": [{"x": 1}] * ROWS},
    "objects for columns": {"id": {"a": 1}, "prediction": LABELS},
    "columns of other lengths": {"id": IDS, "prediction": LABELS[:-1]},
    "no rows": {"id": [], "prediction": []},
    "ids of a thousand letters": {"id": ["x" * 1_000 + id for id in IDS], "prediction": LABELS},
    "many columns": {str(number): [1] for number in range(5_000)},
    "two columns of predictions": {"id": IDS, "a": LABELS, "b": LABELS},
    "a number": 1e308,
    "a list": [1, 2, 3],
    "open quotation marks": 'id,prediction\n"' + csv([(id, "true") for id in IDS]),
    "too many fields": csv([(id, "true,true") for id in IDS]),
    "columns of one name": csv([(id, "true") for id in IDS], "id,id"),
    "lines of other shapes": "\n".join(json.dumps({"id": id, "prediction": [True]}) for id in IDS),
    "not a number": "\n".join('{"id": "%s", "prediction": NaN}' % id for id in IDS),  # noqa: UP031
    "a deep object": '{"id":' * 2_000,
    "a compressed file": "\x1f\x8b\x08\x00",
    "formulas": csv([("=cmd|' /C calc'!A0", "true") for _ in IDS]),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_malformed_tables_are_refused_in_a_sentence_and_cost_nothing(server: Running, what: str) -> None:
    before = spent(server)
    table = HOSTILE[what]
    with server.client(server.token(f"team {what}", quota=3)) as client:
        body = json.dumps({"kind": "submit", "predictions": table}).encode(errors="surrogatepass")
        for path in ("ask", "price", "dry-run"):
            said = client.post(f"{API}/{path}", content=body, headers={"Content-Type": "application/json"})
            assert said.status_code == (400 if "surrogate" in what else 422), said.text[:300]
            assert said.json()["error"].count(". ") <= 3
            assert len(said.text) < 2_000
            assert "Traceback" not in said.text
        if isinstance(table, str):
            form = {"kind": "submit", "predictions": table}
            page = client.post("/datasets/sealed/ask", data=form, headers={"Accept": "text/html"})
            assert page.status_code in (200, 422)
            assert "Nothing was scored" in page.text or "must be" in page.text
    assert spent(server) == before


MANY = ",".join(f"c{number}" for number in range(2_000))
ENDS = {f"c{number}": 1 for number in range(2_000)}
SHORT = {
    "empty lines under many columns": f"{MANY}\n" + 4_000 * "\n",
    "the same after an empty line": f"\n{MANY}\n" + 4_000 * "\n",
    "a column of its own in every line": "\n".join('{"c%d":1}' % number for number in range(2_000)),  # noqa: UP031
    "an object with many fields, in one line": "\n".join([json.dumps({"id": ENDS}), *4_000 * ["{}"]]),
    "the same in a list": json.dumps({"id": [ENDS, *4_000 * [None]]}),
    "columns without end": ",".join(f"c{number}" for number in range(20_000)),
    "an object with many fields, in one row": {"id": [ENDS, *4_000 * [None]]},
    "the same in a list of a row": {"id": [[ENDS, *4_000 * [{}]]]},
}


@pytest.mark.parametrize("what", SHORT)
def test_a_short_request_makes_no_large_table(server: Running, what: str) -> None:
    # What a line leaves out is filled in: a request of a megabyte became hundreds of gigabytes, and the server died.
    before = spent(server)
    with server.client(server.token(f"short {what}")) as client:
        said = client.post(f"{API}/price", json={"kind": "submit", "predictions": SHORT[what]})
        assert said.status_code == 422
        assert "than were sent" in said.text or "plain values" in said.text
    assert spent(server) == before


def test_what_is_sent_may_be_long_and_have_columns_that_are_not_needed(server: Running) -> None:
    lines = [{"id": id, "prediction": True, "why": {"words": ["so"] * 9}} for id in IDS]
    blank = "\n".join(["id,prediction,why", *(f'{id},true,"{100 * chr(10)}"' for id in IDS)])
    with server.client(server.token("long")) as client:
        for sent in ("\n".join(map(json.dumps, lines)), blank):
            said = client.post(f"{API}/dry-run", json={"kind": "submit", "predictions": sent})
            assert said.status_code == 200, said.text


def test_a_huge_body_is_refused_unread(server: Running) -> None:
    before = spent(server)
    with server.client(server.token("huge")) as client:
        body = b'{"kind": "submit", "predictions": "' + b"x" * 3_000_000 + b'"}'
        said = client.post(f"{API}/ask", content=body, headers={"Content-Type": "application/json"})
        assert said.status_code == 413
    assert spent(server) == before


def test_agents_are_refused_alike(server: Running) -> None:
    session = server.state.datasets.get("sealed", server.state.admin).session
    tools = Tools({"sealed": session})
    before = spent(server)
    for what in ("ids with NUL", "mixed types", "a number", "a deep object"):
        told = anyio.run(tools.call, "submit", {"predictions": HOSTILE[what]})
        assert told.is_error
    assert spent(server) == before


def test_names_are_shown_as_text(server: Running) -> None:
    name = "<script>alert(1)</script>"
    with server.client(server.token("named")) as client:
        sent = {"kind": "submit", "predictions": right(7), "name": name}
        assert client.post(f"{API}/ask", json=sent).status_code == 200
        page = client.get("/datasets/sealed", headers={"Accept": "text/html"}).text
        assert name not in page
        assert "&lt;script&gt;" in page
        for wrong in ("", "x" * 101, "two\nlines", "bell\x07", 7):
            refused = client.post(f"{API}/ask", json=sent | {"predictions": right(8), "name": wrong})
            assert refused.status_code == 422


def test_one_table_sent_many_times_at_once_is_one_submission(server: Running) -> None:
    """And another one, sent by ten at once, improves for all of them or for none: it is one entry."""
    before, token = spent(server), server.token("racer", quota=3)

    def send(number: int) -> dict[str, Any]:
        table = right(300)
        order = np.random.default_rng(number).permutation(ROWS)
        shuffled = {column: [values[place] for place in order] for column, values in table.items()}
        with server.client(token) as client:
            return client.post(f"{API}/ask", json={"kind": "submit", "predictions": shuffled}).json()

    with ThreadPoolExecutor(10) as pool:
        said = list(pool.map(send, range(10)))
    assert len({one["answer"]["receipt"] for one in said}) == 1
    assert spent(server)[0] == before[0] + 1


def test_what_was_no_better_tells_nothing_more_anywhere(server: Running) -> None:
    """Two submissions that are no better, one far below the best and one just below, get the same but for numbers."""
    with server.client(server.token("low")) as client:
        client.post(f"{API}/ask", json={"kind": "submit", "predictions": right(380)})
        seqs = []
        for count in (20, 379):
            said = client.post(f"{API}/ask", json={"kind": "submit", "predictions": right(count)}).json()
            assert not said["answer"]["improved"]
            seqs.append(said["answer"]["seq"])
        proofs = [client.get(f"{API}/receipts/{seq}").json()["receipt"] for seq in seqs]
    first, second = (json.loads(proof["body"]) for proof in proofs)
    for entry in (first, second):  # what differs in any case: who, when, what, and the place, which is taken before
        for name in ("key", "question", "place", "seq", "time"):
            del entry[name]
        for end in ("low", "high"):  # this one by the number of submissions alone
            del entry["answer"][end]
    assert first == second


def test_texts_that_are_equal_are_not_compared_letter_by_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """That would take longer the more of them are right: only their hashes are compared."""
    compared: list[pl.DataType] = []
    equal = pl.Series.__eq__

    def watched(self: pl.Series, other: Any) -> Any:
        compared.append(self.dtype)
        return equal(self, other)

    monkeypatch.setattr(pl.Series, "__eq__", watched)
    texts, said = pl.Series(["a", "b", "c d"]), pl.DataFrame({"p": ["a", "x", "C  d"]})
    assert Metric.of("accuracy").gains(said, texts).tolist() == [1.0, 0.0, 0.0]
    assert Metric.of("exact_match").gains(said, texts).tolist() == [1.0, 0.0, 1.0]
    assert compared
    assert pl.String() not in compared
    assert len(set(submission._KEYS)) == 2
