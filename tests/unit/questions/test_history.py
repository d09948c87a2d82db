"""The history: one line per released interval, in the order they were given; the ledger keeps exactly the result."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.errors import LedgerDamaged
from holdfast.questions import KINDS
from holdfast.questions.answer import record_of
from holdfast.questions.history import SCHEMA, answer_from, history_frame
from holdfast.session.session import Session
from planned import planned


def data() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {"b": rng.random(5_000) < 0.5, "x": rng.random(5_000), "s": np.array(["a", "b"])[rng.integers(0, 2, 5_000)]}


def test_every_kind_of_answer_has_its_lines() -> None:
    with Session(data(), seed=1, queries={"mean": 60, "flip": 50}, analyst="ada") as session:
        share = session.mean("b")
        histogram = session.histogram("s", categories=["a", "b"])
        flips = session.for_analyst(None).flips("b", 7)
        median = session.quantile("x", 0.5, within=(0, 1))
        session.mean("b")  # free, and no line of its own
        frame = session.history()
    assert dict(frame.schema) == SCHEMA
    assert frame["seq"].to_list() == [1, 2, 2, 2, 3, 4]
    assert frame["kind"].to_list() == ["mean", *["histogram"] * 3, "flips", "quantile"]
    assert frame["category"].to_list() == [None, "a", "b", "other", None, None]
    assert frame["analyst"].to_list() == ["ada"] * 4 + [None, "ada"]
    given = [share, *histogram.values(), flips.average, median]
    assert frame.select("value", "low", "high").rows() == [tuple(one.result().values())[:3] for one in given]
    assert frame["question"].to_list() == [one.question for one in given]
    assert frame["cost"].to_list() == [one.cost for one in given]
    assert frame["rows_read"].to_list() == [one.rows_read for one in given]
    assert frame["time"].is_sorted()


def test_no_answers_no_lines() -> None:
    with Session(data(), seed=1, queries=60) as session:
        frame = history_frame([], planned("posterior", "coins").standing, session.answering.registered)
    assert frame.equals(pl.DataFrame(schema=SCHEMA))


ASKED: dict[str, tuple[Any, dict[str, Any]]] = {
    "mean": ("x", {"within": (0, 2)}),
    "difference": ("b", {"group": "x > 0.5"}),
    "count": ("b", {"population": 1_000}),
    "total": ("x", {"within": (1, 2), "where": "b"}),
    "variance": ("x", {"within": (0, 1)}),
    "std": ("x", {"within": (0, 1), "where": "b"}),
    "covariance": ("x", {"other": "b", "within": (0, 1)}),
    "correlation": ("x", {"other": "b", "within": (0, 1)}),
    "slope": ("x", {"other": "b", "within": (0, 1)}),
    "histogram": ("s", {"categories": ["a", "never seen"]}),
    "auc": ("x", {"positive": "b", "within": (0, 1), "cuts": [0.5]}),
    "top": ("s", {"longest": 1, "most": 2, "alphabet": "ab"}),
    "quantile": ("x", {"q": 0.5, "within": (0, 2), "steps": 4}),
    "flips": ("b", {"count": 9}),
    "minimize": (hf.losses.Logistic({"x": (0, 1)}, "b"), {"radius": 1, "iterations": 2}),
    "check": ("b", {"guess": 0.4, "margin": 0.01}),
    "submit": ({"id": [3, 1, 2], "prediction": [False, True, True]}, {"name": "first"}),
    "confusion": ({"id": list(range(4_000)), "prediction": [False, True] * 2_000}, {}),
    "units": ("b", {"at_least": 2}),
    "register": (["b", {"kind": "quantile", "query": "x", "q": 0.5, "within": [0, 2]}], {}),
}


def types_in(result: Any) -> Any:
    """Return the types of all values in plain JSON, in its shape."""
    if isinstance(result, dict):
        return {name: types_in(value) for name, value in result.items()}
    return [types_in(value) for value in result] if isinstance(result, list) else type(result)


@pytest.mark.parametrize("kind", ASKED)
def test_the_ledger_and_the_wire_have_one_json(kind: str, tmp_path: Path) -> None:
    query, options = ASKED[kind]
    plan: dict[str, Any] = {"guarantee": "checks"} if kind == "check" else {"queries": {"mean": 60, "flip": 50}}
    board = hf.Board({"id": [1, 2, 3], "label": [True, True, True]}) if kind == "submit" else None
    if kind == "confusion":
        pl.DataFrame({"id": range(4_000), "label": [True, False] * 2_000}).write_csv(tmp_path / "labels.csv")
        board = hf.Board(tmp_path / "labels.csv", confusion=0.5)
        assert board.confusion_session is not None
        board.session = board.confusion_session
    if kind == "units":
        plan |= {"unit": "person"}
    given_data = data() | ({"person": np.arange(5_000) // 4} if kind == "units" else {})
    with Session(given_data, seed=1, **plan) if board is None else board.session as session:
        given = session.ask(query, kind, **options)
        (entry,) = session.ledger.entries()
        assert entry.answer == given.result()
        assert types_in(entry.answer) == types_in(given.result())  # a new answer is not decoded
        assert entry.question == {"kind": kind, "text": given.question}
        sent = json.loads(json.dumps(given.to_dict(), allow_nan=False))
        assert KINDS[kind].read(sent, record_of(sent)) == given
        assert answer_from(session.plan.standing, entry) == given


def test_every_kind_is_asked_here() -> None:
    assert set(ASKED) == set(KINDS.names())


def test_an_entry_of_a_kind_that_is_not_installed_is_not_guessed() -> None:
    with Session(data(), seed=1, queries=60) as session:
        session.mean("b")
        (entry,) = session.ledger.entries()
        entry.question["kind"] = "median"
        with pytest.raises(LedgerDamaged, match="of the kind 'median', which this installation does not know"):
            answer_from(session.plan.standing, entry)
