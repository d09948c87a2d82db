"""Boards whose rows belong to units: a unit's score is the mean of its rows, a submission's the mean of its units."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import holdfast as hf
from holdfast.cli import app
from holdfast.guarantees.ladder import SubmissionsSoFar
from holdfast.guarantees.mathematics.checks import paired_range
from holdfast.ledger.opening import forget_all

ROWS = 600
RNG = np.random.default_rng(3)
CONVERSATIONS = [f"talk {number}" for number in RNG.choice(90, ROWS, p=np.arange(1, 91) / 4095)]  # of very unlike sizes
LABELS = pl.DataFrame(
    {
        "question": RNG.permutation(ROWS),
        "conversation": CONVERSATIONS,
        "label": RNG.choice(["a", "b", "c"], ROWS),
    }
)
STEP = Fraction(1, 100)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    forget_all()
    yield
    forget_all()


def made(labels: Any, **options: Any) -> hf.Board:
    return hf.Board(labels, id="question", unit="conversation", **{"step": float(STEP)} | options)


def predictions(share: float, seed: int) -> pl.DataFrame:
    """So many right ones, in an order of their own."""
    rng = np.random.default_rng(seed)
    right = pl.Series(rng.random(ROWS) < share)
    said = LABELS["label"].set(~right, "none")
    return LABELS.select("question", said.alias("prediction")).sample(fraction=1.0, shuffle=True, seed=seed)


def score(said: pl.DataFrame) -> Fraction:
    """By hand, in fractions: every conversation alike."""
    both = LABELS.join(said, on="question")
    units: dict[str, list[bool]] = {}
    for row in both.iter_rows(named=True):
        units.setdefault(row["conversation"], []).append(row["label"] == row["prediction"])
    means = [Fraction(sum(right), len(right)) for right in units.values()]
    return sum(means, Fraction(0)) / len(means)


@pytest.mark.parametrize("kept", ["memory", "parquet", "csv"])
def test_every_unit_counts_alike_whatever_its_size(kept: str, tmp_path: Path) -> None:
    labels: Any = LABELS
    if kept != "memory":
        labels = tmp_path / f"labels.{kept}"
        LABELS.write_parquet(labels) if kept == "parquet" else LABELS.write_csv(labels)
    units = LABELS["conversation"].n_unique()
    with made(labels) as board:
        assert board.ladder.terms.rows == units < ROWS
        best = Fraction(0)
        for number, share in enumerate((0.2, 0.4, 0.3, 0.6, 0.9)):
            said = predictions(share, number)
            answer, found = board.submit(said), score(said)
            assert answer.improved == (found // STEP > best // STEP)
            if answer.improved:
                assert answer.cell == pytest.approx((float(found // STEP * STEP), float((found // STEP + 1) * STEP)))
            best = max(best, found)
            assert answer.record.rows_read == ROWS
            assert "every unit (conversation) alike" in answer.question
        by_row = (LABELS.join(said, on="question").select(pl.col("label") == pl.col("prediction"))).to_series().mean()
        assert abs(by_row - float(found)) > 0.01  # so that the two can be told apart
    if kept != "memory":
        with hf.Board(tmp_path / "labels.board.holdfast") as again:
            assert again.submit(said).cached
            assert again.ladder.terms.rows == units
            assert "a unit (conversation), with all its rows" in repr(again)
            assert again.verify()


def test_an_improvement_is_compared_unit_by_unit() -> None:
    first, second = predictions(0.5, 1), predictions(0.9, 2)
    with made(LABELS) as board:
        told = [board.submit(said) for said in (first, second)]
        both = first.join(second, on="question").join(LABELS, on="question")
        differ = both.group_by("conversation").agg((pl.col("prediction") != pl.col("prediction_right")).mean())
        apart = differ["prediction"].to_numpy()
        climbed = SubmissionsSoFar(0, 0, 0).after(round(told[0].cell[1] / float(STEP)))
        low, high = (told[1].cell[0] - told[0].cell[1], told[1].cell[1] - told[0].cell[0])
        expected = board.ladder.ahead((low, high), climbed, (float(apart.sum()), float((apart**2).sum())))  # type: ignore[arg-type]
        assert told[1].ahead == pytest.approx(expected, abs=1e-9)
        assert told[1].of == told[0].seq
    by_rows = paired_range((low, high), n=ROWS, most=1.0, squares=1.0, level=0.5, nats=0.0)
    assert by_rows[1] - by_rows[0] < expected[1] - expected[0]


def test_a_dry_run_checks_ids_and_spends_nothing() -> None:
    with made(LABELS) as board:
        board.session.dry_run(predictions(0.5, 1), "submit")
        assert board.session.ledger.spent.answers == 0
        with pytest.raises(hf.InvalidArgument, match="every id of the board"):
            board.submit(predictions(0.5, 1).head(ROWS - 1))


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (LABELS.drop("conversation"), {}, "column 'conversation'"),
        (LABELS.with_columns(pl.col("conversation").replace("talk 89", None)), {}, "unit must be known for every row"),
        (LABELS, {"unit": "question"}, "another column than those of ids and labels"),
        (LABELS, {"unit": "label"}, "another column than those of ids and labels"),
        (LABELS.with_columns(conversation=pl.lit("one")), {}, "at least two units"),
        (LABELS.with_columns(conversation=pl.col("question") / 2), {}, "unit must be a column of texts"),
        (LABELS, {"confusion": 0.2}, "confusion must be left out with unit"),
    ],
)
def test_what_cannot_name_units_is_refused(labels: pl.DataFrame, options: dict[str, Any], message: str) -> None:
    with pytest.raises(hf.InvalidArgument, match=message):
        hf.Board(labels, **{"id": "question", "unit": "conversation"} | options)


def test_a_board_is_made_once_with_units_or_without(tmp_path: Path) -> None:
    path = tmp_path / "labels.parquet"
    LABELS.write_parquet(path)
    made(path).close()
    made(path).close()  # the same again
    with pytest.raises(hf.HoldfastError, match="was made with the unit 'conversation'"):
        hf.Board(path, id="question", step=float(STEP))
    with pytest.raises(hf.InvalidArgument, match="unit must be left out"):
        hf.Board(tmp_path / "labels.board.holdfast", unit="conversation")


def test_units_on_the_command_line(tmp_path: Path) -> None:
    path, said = tmp_path / "labels.csv", tmp_path / "said.csv"
    LABELS.write_csv(path)
    predictions(0.7, 1).write_csv(said)
    run = CliRunner().invoke
    done = run(app, ["board", "make", str(path), "--id", "question", "--unit", "conversation"])
    assert done.exit_code == 0, done.output
    assert "a unit (conversation)" in " ".join(done.output.split())
    done = run(app, ["board", "submit", str(tmp_path / "labels.board.holdfast"), str(said)])
    assert done.exit_code == 0, done.output
    assert "every unit (conversation) alike: improvement" in " ".join(done.output.split())
