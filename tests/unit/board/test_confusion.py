"""Precision, recall and F1 on a board: rows of their own, which answer by coins and score nothing."""

import json
import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.ledger.opening import forget_all
from holdfast.rows.disk.folder import FolderRows

N = 20_000
rng = np.random.default_rng(8)
LABELS = rng.random(N) < 0.3
SAID = np.where(rng.random(N) < 0.85, LABELS, ~LABELS)
IDS = np.array([f"q{number:05}" for number in rng.permutation(N)])


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    forget_all()
    yield
    forget_all()


def made(folder: Path, **options: object) -> hf.Board:
    pl.DataFrame({"id": IDS, "label": np.where(LABELS, "spam", "ham")}).write_parquet(folder / "labels.parquet")
    return hf.Board(folder / "labels.parquet", **{"confusion": 0.5, **options})  # type: ignore[arg-type]


def predictions() -> pl.DataFrame:
    return pl.DataFrame({"id": IDS, "prediction": np.where(SAID, "spam", "ham")})


def test_precision_recall_and_f1_have_intervals_around_what_they_are(tmp_path: Path) -> None:
    with made(tmp_path) as board:
        found = board.confusion(predictions(), positive_label="spam", by="team 7")
        again = board.confusion(predictions().reverse(), positive_label="spam")
        other = board.confusion(predictions(), positive_label="ham")
    hits, found_wrongly, overlooked = (LABELS & SAID).sum(), (~LABELS & SAID).sum(), (LABELS & ~SAID).sum()
    truth = {
        "accuracy": (LABELS == SAID).mean(),
        "precision": hits / (hits + found_wrongly),
        "recall": hits / (hits + overlooked),
        "specificity": (~LABELS & ~SAID).sum() / (~LABELS).sum(),
        "f1": 2 * hits / (2 * hits + found_wrongly + overlooked),
    }
    for name, answer in found.scores():
        assert answer.low <= truth[name] <= answer.high
        assert answer.high - answer.low < 0.5
    assert again.receipt == found.receipt
    assert again.cached
    assert (other.recall.low, other.recall.high) != (found.recall.low, found.recall.high)
    assert "f1" in str(found)


def test_the_parts_share_no_row_and_both_take_predictions_for_all(tmp_path: Path) -> None:
    with made(tmp_path, confusion=0.25) as board:
        answer = board.submit(predictions())
        assert answer.rows_read == N - N // 4
        assert board.confusion_session is not None
        assert board.session.plan.terms.confidence == pytest.approx(0.995)
        assert board.confusion_session.plan.terms.confidence == pytest.approx(0.955)
        board.verify()
    scoring, answering = (FolderRows(tmp_path / f"labels.{part}.holdfast").ids("id") for part in ("board", "confusion"))
    assert sorted([*scoring, *answering]) == sorted(IDS)
    forget_all()
    with hf.Board(tmp_path / "labels.board.holdfast") as board:
        assert board.submit(predictions()).cached
        with pytest.raises(hf.InvalidArgument, match="every id of the board"):
            board.submit(predictions()[1:])
        with pytest.raises(hf.InvalidArgument, match="every id of the board"):
            board.confusion(predictions().filter(pl.col("id").is_in(scoring.implode())), positive_label="spam")
    with made(tmp_path, confusion=0.25) as board:  # once more: the same split
        assert board.submit(predictions()).cached


def test_only_the_rows_of_a_board_that_answer_tell_it(tmp_path: Path) -> None:
    """Any other table would name its ids in refusals."""
    with hf.Session({"id": IDS[:5_000], "label": LABELS[:5_000]}, queries=50, seed=1) as session:
        with pytest.raises(hf.NotCovered, match="not the rows of a board that answer") as refused:
            session.confusion({"id": ["x"], "prediction": [True]})
        assert "q0" not in str(refused.value)
    with made(tmp_path) as board, pytest.raises(hf.NotCovered, match="not the rows of a board"):
        board.session.ask(predictions(), "confusion")
    forget_all()
    board = hf.Board({"id": [1, 2], "label": ["a", "b"]})
    with board, pytest.raises(hf.NotCovered, match="without rows for confusion"):
        board.confusion({"id": [1, 2], "prediction": ["a", "b"]}, positive_label="a")


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(hf.InvalidArgument, match="labels in memory"):
        hf.Board({"id": [1, 2], "label": ["a", "b"]}, confusion=0.5)
    with pytest.raises(hf.InvalidArgument, match="either side"):
        made(tmp_path, confusion=1e-5)
    with pytest.raises(hf.InvalidArgument, match="mostly noise"):
        made(tmp_path, confusion=0.02)
    assert not list(tmp_path.glob("*.holdfast"))
    pl.DataFrame({"id": [1, 2, 3, 4], "label": [0.5] * 4}).write_parquet(tmp_path / "numbers.parquet")
    with pytest.raises(hf.InvalidArgument, match="labels of a few kinds"):
        hf.Board(tmp_path / "numbers.parquet", metric="absolute_error", within=(0, 1), confusion=0.5)
    made(tmp_path, confusion=None).close()
    with pytest.raises(hf.RowSourceError, match="has no rows for confusion"):
        made(tmp_path)


# -- what a team could try --------------------------------------------------------------------------------------------


def test_no_team_can_tell_which_ids_are_scored_and_which_answer(tmp_path: Path) -> None:
    """Whoever changes one prediction has another submission, wherever its row is: neither name nor price tell."""
    with made(tmp_path) as board:
        first = board.submit(predictions())
        board.confusion(predictions(), positive_label="spam")
        for part in ("board", "confusion"):
            own = FolderRows(tmp_path / f"labels.{part}.holdfast").ids("id")[0]
            other = predictions().with_columns(prediction=pl.when(id=own).then(pl.lit("?")).otherwise("prediction"))
            submitted, told = board.submit(other), board.confusion(other, positive_label="spam")
            assert not submitted.cached
            assert not told.cached
            assert submitted.question != first.question


def test_the_name_of_a_submission_says_nothing_of_its_predictions(tmp_path: Path) -> None:
    """It is keyed: nobody who guesses what another team predicted can try it against a receipt."""
    names = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        with made(tmp_path / folder) as board:
            answer = board.submit(predictions())
            scored = FolderRows(tmp_path / folder / "labels.board.holdfast").ids("id")
            entry = str(board.receipt(answer).to_dict())
        for rows in (predictions(), predictions().filter(pl.col("id").is_in(scored.implode()))):
            content = json.dumps([rows.sort("id")["prediction"].to_list()]).encode()
            assert sha256(content).hexdigest()[:12] not in entry
        names.append(answer.question)
        forget_all()
    assert names[0] != names[1]


def test_rows_that_answered_for_other_labels_are_not_taken_for_these(tmp_path: Path) -> None:
    made(tmp_path).close()
    for folder in ("labels.board.holdfast", "labels.board.best"):
        shutil.rmtree(tmp_path / folder, ignore_errors=True)
    (tmp_path / "labels.board.ledger").unlink(missing_ok=True)
    forget_all()
    with pytest.raises(hf.HoldfastError, match="another share of them"):
        made(tmp_path, confusion=0.25)
    turned = pl.DataFrame({"id": IDS, "label": np.where(LABELS, "ham", "spam")})
    turned.write_parquet(tmp_path / "labels.parquet")
    with pytest.raises(hf.HoldfastError, match="rows of other labels"):
        hf.Board(tmp_path / "labels.parquet", confusion=0.5)


def test_parts_that_share_a_row_are_refused(tmp_path: Path) -> None:
    """As they would be if two people made the board at once, each with a split of their own."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        made(tmp_path / folder).close()
        forget_all()
    for path in (tmp_path / "one").glob("labels.confusion.*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in (tmp_path / "two").glob("labels.confusion.*"):
        path.rename(tmp_path / "one" / path.name)
    with pytest.raises(hf.HoldfastError, match="share rows"):
        hf.Board(tmp_path / "one" / "labels.board.holdfast")
