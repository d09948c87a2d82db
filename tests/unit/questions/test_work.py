"""What a question takes in steps: from its text and its rows alone, more for text, more the longer it can get."""

import numpy as np
import pytest

import holdfast as hf
from holdfast.questions.question import RELEASE_WORK


@pytest.fixture(scope="module")
def session() -> hf.Session:
    rows = {"x": np.arange(5_000.0), "y": np.arange(5_000.0), "u": [f"row {i}" for i in range(5_000)]}
    return hf.Session(hf.open(rows, complete=["x", "y", "u"]), queries={"mean": 50, "flip": 1_000})


def steps_of_a_row(session: hf.Session, query: str) -> float:
    question = session.prepare(query)
    return (question.work - RELEASE_WORK) / question.rows_read


def test_more_operations_take_more_and_text_most(session: hf.Session) -> None:
    queries = [
        "x > 1",
        "x > 1 AND y > 1",
        "x * y + x - y > 1 AND y > 1",
        "UPPER(u) = 'ROW 1'",
        "UPPER(u || u || u) = 'ROW 1'",
        "LENGTH(REPLACE(u, 'r', 'rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr')) > 9",
    ]
    found = [steps_of_a_row(session, query) for query in queries]
    assert found == sorted(found)
    assert found[-1] > 100 * found[0]


def test_a_group_counts_too(session: hf.Session) -> None:
    assert session.prepare("x > 1", where="u LIKE 'a%'").work > session.prepare("x > 1").work


def test_work_grows_with_the_rows_and_with_the_releases(session: hf.Session) -> None:
    few, many = (session.prepare("x > 1", rows_per_query=rows).work - RELEASE_WORK for rows in (1_000, 10_000))
    assert many == 10 * few
    one, ten = (session.prepare("x", "quantile", q=0.5, within=(0, 5_000), steps=steps).work for steps in (1, 10))
    assert ten == 10 * one
    assert session.prepare("x > 1", "flips", count=100).work == RELEASE_WORK + 100 * steps_of_a_row(session, "x > 1")


def test_a_fit_pays_for_each_step_and_for_what_its_features_take(session: hf.Session) -> None:
    def fit(feature: str, iterations: int) -> int:
        loss = hf.losses.Logistic(features={feature: (0, 5_000)}, target="y > 9")
        options = {"radius": 1, "iterations": iterations, "rows_per_coordinate": 10}
        return session.prepare(loss, "minimize", **options).work

    assert fit("x", 200) - fit("x", 100) > 100 * RELEASE_WORK
    assert fit("LENGTH(u || u)", 100) > fit("x", 100)
