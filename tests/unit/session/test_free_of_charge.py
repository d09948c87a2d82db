"""What is free says nothing about the rows: in worlds that share nothing but names, types and size it is the same.

So are the costs, places and rows read of what was paid for. Whatever differs between these worlds, to the letter, would
tell an analyst something that no budget has paid for. (What a check says costs more if the guess is wrong; it says so.)
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from starlette.testclient import TestClient

import holdfast as hf
from holdfast.cli import main
from holdfast.questions.batch import Prices
from holdfast.service.app import build
from holdfast.service.settings import DatasetSettings, Settings

ROWS, UNITS = 1_200, 150


def plain() -> pl.DataFrame:
    """Numbers of moderate size, nothing missing, units of equal size."""
    rng = np.random.default_rng(5)
    return table(
        x=rng.normal(size=ROWS),
        k=rng.integers(0, 3, ROWS),
        s=rng.choice(["a", "b"], ROWS),
        b=rng.random(ROWS) < 0.5,
        u=rng.integers(0, 9, ROWS),
        id=np.arange(ROWS) % UNITS,
    )


def strange() -> pl.DataFrame:
    """Nothing but extremes: every number missing or the least, one long text, one unit with most rows."""
    return table(
        x=np.full(ROWS, np.nan),
        k=[None if i % 2 else -(2**63) for i in range(ROWS)],
        s=["z" * 5_000 if i == 7 else None for i in range(ROWS)],
        b=np.zeros(ROWS, bool),
        u=np.full(ROWS, 255),
        id=np.maximum(0, np.arange(ROWS) - (ROWS - UNITS)),
    )


def table(**columns: Any) -> pl.DataFrame:
    types = {"x": pl.Float64, "k": pl.Int64, "s": pl.String, "b": pl.Boolean, "u": pl.UInt8, "id": pl.Int64}
    return pl.DataFrame(columns, schema=types)


WITHIN = {"within": [0, 1]}
BOTH = {"query": "x", "other": "u", "within": [-1, 1], "other_within": [0, 255]}
QUESTIONS: list[dict[str, Any]] = [
    {"query": "b"},
    {"query": "x", **WITHIN},
    {"query": "x / 0", **WITHIN, "where": "k = 1"},
    {"query": "x", **WITHIN, "weight": "u", "largest_weight": 9},
    {"query": "x", **WITHIN, "slices": [0.1, 0.2]},
    {"query": "b", "by": "k", "groups": [0, 1]},
    {"query": "s LIKE '%a%'", "rows_per_query": 50},
    {"query": "b", "mechanism": "gaussian"},
    {"kind": "difference", "query": "b", "group": "k = 1", "other": "k = 2"},
    {"kind": "histogram", "query": "s", "categories": ["a", "b"]},
    {"kind": "quantile", "query": "x", "q": 0.5, "within": [-1, 1]},
    {"kind": "variance", "query": "x", "within": [-1, 1]},
    {"kind": "correlation", **BOTH},
    {"kind": "slope", **BOTH},
    {"kind": "top", "query": "s", "longest": 2},
    {"kind": "top", "query": "b"},
    {"kind": "register", "questions": ["b", "x > 1"]},
    {"query": "SUM(x)"},
    {"query": "x"},
    {"query": "s = 3"},
    {"query": "nothing"},
]
SELECTS = [
    "SELECT AVG(b), COUNT(*) FROM data WHERE k = 1",
    "SELECT s, AVG(b) FROM data GROUP BY s",
    "SELECT MAX(x) FROM data",
]
PLANS: dict[str, dict[str, Any]] = {
    "file": {"queries": 300},
    "endless": {},
    "units": {"queries": 300, "unit": "id"},
    "split": {"queries": 8, "guarantee": "split"},
}


def written(world: Callable[[], pl.DataFrame], folder: Path) -> Path:
    path = folder / world.__name__ / "data.parquet"
    path.parent.mkdir()
    world().write_parquet(path)
    return path


def tried(act: Callable[[Any], Any], asked: object) -> str:
    try:
        found = act(asked)
    except hf.HoldfastError as error:
        return f"{error.kind}: {error}"
    return f"{found} {found.to_dict()}" if isinstance(found, Prices) else type(found).__name__


def free(session: hf.Session) -> Iterator[str]:
    """Yield all that a session says for nothing."""
    yield from map(str, (session.schema, session, session.plan.to_dict(), session.budget.to_dict()))
    yield from (tried(session.price_many, [question]) for question in QUESTIONS)
    yield from (tried(session.price_sql, text) for text in SELECTS)


def paid(session: hf.Session) -> Iterator[str]:
    """Yield what questions took, and what was refused, in a session that asks them all."""
    yield from (tried(session.ask_many, [question]) for question in QUESTIONS)
    yield from (f"{entry.cost} {entry.place} {entry.rows_read} {entry.question}" for entry in session.ledger.entries())
    yield f"{session.ledger.taken} {session.budget}"


@pytest.mark.filterwarnings("ignore::holdfast.guarantees.plan.VacuousPlan")
@pytest.mark.parametrize("plan", PLANS)
def test_a_session_says_the_same(plan: str, tmp_path: Path) -> None:
    said = []
    for world in (plain, strange):
        data = written(world, tmp_path) if plan == "file" else world()
        with hf.Session(data, **PLANS[plan]) as session:
            said.append([*free(session), *paid(session)])
    assert said[0] == said[1]
    assert len(set(said[0])) > 40


PATHS = ("", "/schema", "/budget", "/plan", "/head", "/history", "/standings", "/receipts/1")


def test_a_server_says_the_same(tmp_path: Path) -> None:
    said, token = [], "t" * 40
    for world in (plain, strange):
        served = DatasetSettings(path=str(written(world, tmp_path)), queries=300)
        app = build(Settings(datasets={"data": served}, admin_token=token, rate=1e6, burst=10**6))
        with TestClient(app, "http://127.0.0.1", headers={"Authorization": f"Bearer {token}"}) as client:
            found = [client.get(f"/api/v1/datasets/data{path}") for path in PATHS]
            found += [client.post("/api/v1/datasets/data/price", json=question) for question in QUESTIONS]
            found += [client.post("/api/v1/datasets/data/sql/price", json={"sql": text}) for text in SELECTS]
            said.append([(one.status_code, one.text) for one in found])
    assert said[0] == said[1]
    assert sum(status == 200 for status, _ in said[0]) > 15


COMMANDS = (["plan"], ["budget"], ["ask", "b", "--price"], ["ask", "x", "--price"])


def test_the_command_line_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for world in (plain, strange):
        monkeypatch.chdir(written(world, tmp_path).parent)
        for name, *rest in COMMANDS:
            with pytest.raises(SystemExit):
                main([name, "data.parquet", *rest])
        shown = capsys.readouterr()
        said.append([each.replace(f"/{world.__name__}/", "/") for each in (shown.out, shown.err)])
    assert said[0] == said[1]
    assert "worth 1 answer" in said[0][0]
    assert "within must say" in said[0][1]
