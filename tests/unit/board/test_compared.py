"""An improvement is compared with the best before it, row by row: what can differ, what is told, what is kept."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.ledger.opening import forget_all
from holdfast.queries.submission import Metric
from holdfast.questions.board_files import MOST_STORED
from holdfast.questions.submit import NOT_COMPARED

N = 4_000
IDS = list(range(N))


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    forget_all()
    yield
    forget_all()


def table(right: int, other: str = "none") -> dict[str, list[Any]]:
    return {"id": IDS, "prediction": ["yes"] * right + [other] * (N - right)}


def sealed(**options: Any) -> hf.Board:
    forget_all()
    return hf.Board({"id": IDS, "label": ["yes"] * N}, **{"step": 0.005, **options})


def test_two_that_agree_nearly_everywhere_are_compared_far_more_narrowly_than_by_their_intervals() -> None:
    with sealed() as board:
        first, better = board.submit(table(2_000)), board.submit(table(2_100))
    assert (first.ahead, first.of) == (None, None)
    assert better.of == first.seq
    assert better.ahead is not None
    low, high = better.ahead
    assert -0.025 <= low <= 0.025 <= high <= 0.025 + 1e-9  # 100 rows of 4,000 differ, so it cannot be more
    with sealed(confidence=0.9) as board:
        for right in (2_000, 2_400):
            better = board.submit(table(right))
    low, high = better.ahead or (0, 0)
    assert 0.06 < low < 0.1 <= high
    assert better.low - 0.505 < 0.06 < low  # what the two intervals alone would tell


def test_an_improvement_that_changes_everything_is_told_little() -> None:
    with sealed() as board:
        board.submit(table(2_000))
        low, high = board.submit({"id": IDS, "prediction": ["yes"] * 2_100 + ["other"] * 1_900}).ahead or (0, 0)
    assert low < -0.035
    assert high > 0.08


def test_only_improvements_are_compared_and_only_where_predictions_do_not_tell_labels() -> None:
    with sealed() as board:
        board.submit(table(2_000))
        assert board.submit(table(1_990)).ahead is None
    with sealed(about="population") as board:
        first, better = board.submit(table(2_000)), board.submit(table(2_100))
        assert better.ahead is None
        assert ("better than the best before", NOT_COMPARED) in better.details()  # the reason, in one sentence
        assert NOT_COMPARED not in dict(first.details()).values()
    with hf.Board({"id": IDS}, metric="score", within=(0, 1)) as board:
        board.submit({"id": IDS, "score": [0.2] * N})
        assert board.submit({"id": IDS, "score": [0.3] * N}).ahead is None
    with sealed(about="rows") as board:
        board.submit(table(2_000))
        assert board.submit(table(2_100)).ahead == pytest.approx((0.02, 0.03), abs=1e-9)  # no chance is left


def test_less_is_better_in_an_error() -> None:
    truth = np.linspace(0, 10, N)
    with hf.Board({"id": IDS, "label": truth}, metric="absolute_error", within=(0, 10), step=0.05) as board:
        board.submit({"id": IDS, "prediction": truth + 1})
        answer = board.submit({"id": IDS, "prediction": truth + 0.6})
        low, high = answer.ahead or (0, 0)
        assert 0.25 < low < 0.367 < high < 0.369  # values are clipped to the range
        assert ("ahead of no. 1", "by 0.268 to 0.368, compared row by row") in answer.details()
        assert hf.SubmitAnswer.read(answer.result(), answer.record) == answer


@pytest.mark.parametrize(
    ("name", "options", "labels"),
    [
        ("accuracy", {}, ["a", "A", "b", "c", "x"]),
        ("exact_match", {}, ["a", "B ", "c", "x"]),
        ("absolute_error", {"within": (-1, 3)}, list(np.linspace(-1, 3, 41))),
        ("squared_error", {"within": (-1, 3)}, list(np.linspace(-1, 3, 41))),
        ("log_loss", {}, [True, False]),
        ("brier", {}, [True, False]),
        ("log_loss", {"classes": ["a", "b", "c"]}, ["a", "b", "c"]),
        ("brier", {"classes": ["a", "b", "c"]}, ["a", "b", "c"]),
    ],
)
def test_no_label_makes_gains_differ_by_more_and_some_label_by_as_much(
    name: str, options: dict[str, Any], labels: list[Any]
) -> None:
    metric, rng, rows = Metric.of(name, **options), np.random.default_rng(5), 200

    def predicted() -> pl.DataFrame:
        if metric.classes:
            return pl.DataFrame(rng.dirichlet([0.3] * 3, rows), schema=list(metric.classes))
        if metric.rule.probability:
            return pl.DataFrame({"p": rng.random(rows)})
        if isinstance(labels[0], str):
            return pl.DataFrame({"p": rng.choice(["a", "A", "b", "c", "x"], rows)})
        return pl.DataFrame({"p": rng.uniform(-2, 4, rows)})

    one, other = predicted(), predicted()
    most, reached = metric.apart(one, other), np.zeros(rows)
    for label in labels:
        truth = pl.Series([label] * rows)
        reached = np.maximum(reached, np.abs(metric.gains(one, truth) - metric.gains(other, truth)))
    assert reached == pytest.approx(most, abs=1e-9)


# -- what is kept ----------------------------------------------------------------------------------------------------


def on_disk(folder: Path) -> Path:
    pl.DataFrame({"id": IDS, "label": ["yes"] * N}).write_parquet(folder / "labels.parquet")
    hf.Board(folder / "labels.parquet", step=0.005).close()
    return folder / "labels.board.holdfast"


def test_the_best_is_kept_for_its_owner_alone_and_found_by_the_next_process(tmp_path: Path) -> None:
    place = on_disk(tmp_path)
    with hf.Board(place) as board:
        board.submit(table(2_000))
    forget_all()
    with hf.Board(place) as board:
        assert board.submit(table(2_400)).ahead is not None
        for right in range(3 * MOST_STORED):
            board.submit(table(right))
        kept = list((tmp_path / "labels.board.best").iterdir())
        assert len(kept) <= MOST_STORED + 2
        assert all(path.stat().st_mode & 0o077 == 0 for path in (*kept, tmp_path / "labels.board.best"))
        assert board.submit(table(2_500)).ahead is not None  # the best is still there
        board.verify()


def test_without_what_was_kept_everything_else_is_told(tmp_path: Path) -> None:
    place = on_disk(tmp_path)
    with hf.Board(place) as board:
        board.submit(table(2_000))
        (kept,) = (tmp_path / "labels.board.best").iterdir()
        kept.write_bytes(b"damaged")
        damaged = board.submit(table(2_400))
        assert damaged.improved
        assert damaged.ahead is None
        if os.getuid():
            (tmp_path / "labels.board.best").chmod(0o500)
        assert board.submit(table(2_800)).improved
        (tmp_path / "labels.board.best").chmod(0o700)


def test_in_memory_the_same_is_kept() -> None:
    with sealed() as board:
        for right in (2_000, *range(3 * MOST_STORED), 2_400):
            answer = board.submit(table(right))
        assert answer.ahead is not None
        assert answer.of == 1
