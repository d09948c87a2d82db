"""The history: one line per released interval, in the order they were given."""

from typing import Any

import numpy as np
import polars as pl

from holdfast.history import SCHEMA, history_frame
from holdfast.session import Session


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
    assert frame.select("value", "low", "high").rows() == [(one.value, one.low, one.high) for one in given]
    assert frame["question"].to_list() == [one.question for one in given]
    assert frame["cost"].to_list() == [one.cost for one in given]
    assert frame["rows_read"].to_list() == [one.rows_read for one in given]
    assert frame["time"].is_sorted()


def test_no_answers_no_lines() -> None:
    assert history_frame([]).equals(pl.DataFrame(schema=SCHEMA))
