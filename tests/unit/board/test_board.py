"""Boards: metrics, matching of ids, what is refused before anything is charged, what is told, what is kept."""

import random
from collections.abc import Callable, Iterator
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import holdfast as hf
from examples import examples
from holdfast.guarantees.ladder import ABOUT, SubmissionsSoFar
from holdfast.ledger import FileWitness, content_of
from holdfast.ledger.opening import forget_all
from holdfast.queries.submission import METRICS, Metric
from holdfast.questions import KINDS
from holdfast.rows.disk.folder import FolderRows

IDS = [f"case {number}" for number in range(8)]
LABELS = ["a", "b", "a", "c", "a", "b", "b", "a"]
Table = dict[str, list[Any]]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    forget_all()
    yield
    forget_all()


def labels() -> Table:
    return {"id": IDS, "label": LABELS}


def predictions(right: int) -> Table:
    """So many right ones, in another order than the labels."""
    said = [label if number < right else "none" for number, label in enumerate(LABELS)]
    return {"id": IDS[::-1], "prediction": said[::-1]}


def small(**options: Any) -> hf.Board:
    return hf.Board(labels(), **{"step": 0.25, **options})


# -- what is told ----------------------------------------------------------------------------------------------------


def test_what_is_foreseen_gets_no_narrower_with_more_improvements() -> None:
    """With 5,000 rows, a hundred improvements in a row reveal less than ten and then others."""
    cases = list(range(5_000))
    with hf.Board({"id": cases, "label": [case % 2 for case in cases]}, step=0.01) as board:
        widths = [width for _, width in board.session.budget.outlook]
    assert widths == sorted(widths)


def test_what_is_foreseen_before_the_first_submission_holds_for_one_improvement_in_a_hundred() -> None:
    with hf.Board({"id": list(range(3_000)), "label": [case % 2 for case in range(3_000)]}) as board:
        foreseen = dict(board.session.budget.outlook)
        ladder = board.session.plan.standing
    for improvements in (1, 10, 100):
        revealed = SubmissionsSoFar(0, 0, 0)
        for submission in range(100 * improvements):
            revealed = revealed.after(revealed.best + (submission % 100 == 0))
        assert (revealed.submissions, revealed.improvements) == (100 * improvements, improvements)
        assert foreseen[improvements] == pytest.approx(ladder.width(revealed))


def test_improvements_are_told_with_their_cell_and_others_with_an_end() -> None:
    with small() as board:
        first, same, better, worse = (board.submit(predictions(right)) for right in (4, 5, 6, 0))
    assert [one.improved for one in (first, same, better, worse)] == [True, False, True, False]
    assert [one.cell for one in (first, same, better, worse)] == [(0.5, 0.75), (0.0, 0.75), (0.75, 1.0), (0.0, 1.0)]
    assert first.low < 0.5 < 0.75 < first.high
    assert worse.low == 0.0


def test_the_last_cell_includes_a_perfect_score() -> None:
    with small() as board:
        assert board.submit(predictions(8)).cell == (0.75, 1.0)
        assert not board.submit(predictions(7)).improved


@pytest.mark.parametrize("about", ABOUT)
def test_every_answer_says_what_its_interval_is_about(about: str) -> None:
    with small(about=about) as board:
        answer = board.submit(predictions(4))
    assert answer.about == about
    assert ABOUT[about] in repr(answer)
    assert ABOUT[about] in answer._repr_html_()
    assert answer.population == ABOUT[about]
    assert (answer.interval == pytest.approx(answer.cell, abs=1e-9)) == (about == "rows")


@pytest.mark.parametrize("wrong", range(1, 10))
def test_an_exact_interval_holds_a_score_at_the_end_of_its_cell(wrong: int) -> None:
    labels = {"id": list(range(20)), "label": [True] * 20}
    said = [float(place >= wrong) for place in range(20)]
    with hf.Board(labels, metric="brier", about="rows", step=0.01) as board:
        answer = board.submit({"id": labels["id"], "prediction": said})
    assert answer.low < wrong / 20 <= answer.high
    assert answer.high - answer.low < 0.01 + 1e-12


def test_the_same_predictions_again_are_free_in_any_order_and_form(tmp_path: Path) -> None:
    table = pl.DataFrame(predictions(5))
    with small() as board:
        first = board.submit(table, by="one", name="first")
        table.write_csv(tmp_path / "p.csv")
        table.sort("id").write_parquet(tmp_path / "p.parquet")
        table.write_ndjson(tmp_path / "p.jsonl")
        forms: list[Any] = [table.to_pandas(), table.to_dict(as_series=False), table.rename({"prediction": "label"})]
        for form in [*forms, *(tmp_path / name for name in ("p.csv", "p.parquet", "p.jsonl"))]:
            again = board.submit(form, by="other")
            assert again.cached
            assert again.receipt == first.receipt
        assert board.standings().height == 1


def test_standings_have_the_best_first_and_no_rank_for_what_was_no_better() -> None:
    with small() as board:
        for right, team in ((2, "one"), (1, "two"), (4, "three"), (6, "one")):
            board.submit(predictions(right), by=team, name=f"with {right}")
        found = board.standings()
    assert found["by"].to_list() == ["one", "three", "one", "two"]
    assert found["rank"].to_list() == [1, 2, 3, None]
    assert found["name"].to_list() == ["with 6", "with 4", "with 2", "with 1"]


def test_intervals_widen_with_improvements_and_say_so() -> None:
    rng = np.random.default_rng(1)
    truth, ids = rng.integers(0, 2, 2_000), np.arange(2_000)
    with hf.Board({"id": ids, "label": truth}) as board:
        before = board.session.budget
        board.submit({"id": ids, "prediction": rng.integers(0, 2, 2_000)})
        after = board.session.budget
    assert before.margin < after.margin
    assert [more for more, _ in after.outlook] == [0, 1, 10, 100]
    assert [width for _, width in after.outlook] == sorted(width for _, width in after.outlook)
    assert "no limit on submissions" in str(after)


# -- refusals --------------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[Callable[[pl.DataFrame], Any], str]] = {
    "missing": (lambda table: table.head(5), "a row for every id"),
    "double": (lambda table: table.vstack(table.head(1)), "every id once"),
    "unknown": (lambda table: table.with_columns(pl.col("id").str.replace("case 3", "case 33")), "ids of the board"),
    "no ids": (lambda table: table.drop("id"), "column 'id'"),
    "null id": (
        lambda table: table.with_columns(pl.col("id").str.replace("case 3", "x").replace("x", None)),
        "missing",
    ),
    "number as id": (lambda table: table.with_columns(pl.int_range(8).alias("id")), "must be text"),
    "number as label": (lambda table: table.with_columns(pl.lit(1.5).alias("prediction")), "must be text"),
    "null": (lambda table: table.with_columns(pl.lit(None).cast(pl.String).alias("prediction")), "complete"),
    "no predictions": (lambda table: table.select("id"), "column 'prediction'"),
    "two columns": (lambda table: table.rename({"prediction": "x"}).with_columns(y=pl.lit("a")), "column 'prediction'"),
    "no table": (lambda table: 7, "a file, a frame"),
    "no such file": (lambda table: "nothing.csv", "can be read"),
    "other ending": (lambda table: "predictions.xlsx", "must be a file of"),
    "ragged": (lambda table: {"id": ["a", "b"], "prediction": ["a"]}, "equal length"),
}


@pytest.mark.parametrize("what", WRONG)
def test_bad_predictions_are_refused_and_nothing_is_charged(what: str) -> None:
    spoil, message = WRONG[what]
    with small() as board:
        with pytest.raises(hf.InvalidArgument, match=message):
            board.submit(spoil(pl.DataFrame(predictions(5))))
        assert board.session.ledger.spent == hf.Board(labels(), step=0.25).session.ledger.spent
        assert board.session.ledger.spent.intervals == 0
        assert board.submit(predictions(5)).seq == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, 1.1])
def test_probabilities_must_be_probabilities(value: float) -> None:
    with hf.Board({"id": [1, 2, 3], "label": [0, 1, 1]}, metric="brier") as board:
        with pytest.raises(hf.InvalidArgument, match=r"finite|between 0 and 1"):
            board.submit({"id": [1, 2, 3], "prediction": [0.5, 0.5, value]})
        assert board.session.ledger.spent.intervals == 0


ODD: list[Any] = [None, 1, 1.5, "x", True, [], {}, [1], [None], {"a": 1}, 10**30, float("inf"), "1", "true", "\ud800"]


def test_whatever_is_sent_is_read_or_refused() -> None:
    """Nothing else happens to what anybody may send: no other exception, which a server would log."""
    rng, form = random.Random(1), KINDS["submit"].subject.form
    boards = [small(), hf.Board({"id": [1, 2, 3]}, metric="score", within=(0, 5))]
    tables: list[Any] = list(ODD)
    for _ in range(examples(300)):
        rows = rng.choice([0, 1, 3, 3, 8])
        names = rng.sample(["id", "prediction", "label", "", "x"], rng.randint(0, 3))
        columns: dict[str, Any] = {name: [rng.choice([*ODD, *IDS]) for _ in range(rows)] for name in names}
        tables.append(columns | ({"id": rng.choice([IDS, [1, 2, 3], 7])} if rng.random() < 0.7 else {}))
        text = "".join(rng.choice('id,prediction\n"abc123{}[]:.\t-e \x00\x01') for _ in range(rng.randint(0, 40)))
        tables += [text, f"id,prediction\n{text}", f'{{"id": 1, "prediction": {text}']
    refused = 0
    for table in tables:
        for board in boards:
            try:
                board.session.prepare(form.from_json(table), "submit")
            except hf.InvalidArgument:
                refused += 1
    assert refused > len(tables)


BAD_BOARDS: list[tuple[dict[str, Any], str]] = [
    ({"metric": "f1"}, "metric must be one of"),
    ({"metric": "absolute_error"}, "within must be given"),
    ({"within": (0, 1)}, "within must be left out"),
    ({"clip": 0.1}, "clip must be left out"),
    ({"metric": "brier"}, "classes must be given"),
    ({"metric": "brier", "classes": ["a", "b"]}, "classes must hold all labels"),
    ({"metric": "log_loss", "classes": ["a"]}, "two labels or more"),
    ({"metric": "exact_match", "classes": ["a", "b"]}, "classes must be left out"),
    ({"classes": ["a", "b"]}, "classes must hold all labels"),
    ({"target": "truth"}, "column 'truth'"),
    ({"step": 0.6}, "half the range"),
    ({"step": 1e-9}, "number of steps"),
    ({"about": "everything"}, "about must be one of"),
    ({"confidence": 1.0}, "confidence must be"),
]


@pytest.mark.parametrize(("options", "message"), BAD_BOARDS)
def test_a_board_that_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(hf.InvalidArgument, match=message):
        hf.Board(labels(), **options)


@pytest.mark.parametrize(
    "table",
    [
        {"id": ["a", "a"], "label": ["x", "y"]},
        {"id": ["a", None], "label": ["x", "y"]},
        {"id": ["a", "b"], "label": ["x", None]},
        {"id": ["a"], "label": ["x"]},
        {"id": [1.5, 2.5], "label": ["x", "y"]},
    ],
)
def test_labels_must_be_complete_and_named_once(table: Table) -> None:
    with pytest.raises(hf.InvalidArgument, match=r"labels must|id must"):
        hf.Board(table)


@pytest.mark.parametrize(("dtype", "beyond"), [(pl.UInt64, 2**63), (pl.Int128, 2**63), (pl.Int128, -(2**63) - 1)])
def test_ids_and_labels_must_be_numbers_that_the_board_can_hold(dtype: Any, beyond: int) -> None:
    numbers = pl.Series([2**63 - 1, 5, beyond], dtype=dtype)
    with pytest.raises(hf.InvalidArgument, match="id must be from"):
        hf.Board(pl.DataFrame({"id": numbers, "label": ["x", "y", "z"]}))
    with pytest.raises(hf.HoldfastError, match=r"target must be from|has type Int128"):
        hf.Board(pl.DataFrame({"id": [1, 2, 3], "label": numbers}))


def test_a_board_answers_submissions_only_and_only_a_board_does() -> None:
    with small() as board, pytest.raises(hf.NotCovered, match="This is a board"):
        board.session.mean("label = 'a'")
    with hf.Session({"x": range(3_000)}, queries=1) as session, pytest.raises(hf.NotCovered, match="not a board"):
        session.submit(predictions(3))
    with pytest.raises(hf.InvalidArgument, match="a board is made by"):
        hf.plan(rows=100, queries=10, guarantee="ladder")


# -- metrics ---------------------------------------------------------------------------------------------------------

METRIC_CASES: list[tuple[str, dict[str, Any], list[Any], list[Any], float]] = [
    ("accuracy", {}, [True, False, True, True], [True, True, True, True], 0.75),
    ("accuracy", {}, [3, 1, 2, 2], [3, 1, 1, 1], 0.5),
    ("exact_match", {}, ["New  York", "a", "b", "c"], [" new york", "A", "x", "y"], 0.5),
    ("absolute_error", {"within": (0, 10)}, [0.0, 5.0, 10.0, 2.0], [1.0, 5.0, 99.0, 2.0], 0.25),
    ("squared_error", {"within": (-1, 1)}, [0.0, 0.0, 1.0, 1.0], [1.0, 0.0, 1.0, -1.0], 1.25),
    ("log_loss", {"clip": 0.01}, [1, 0, 1, 1], [0.5, 0.0, 1.0, 0.0], (log(2) + log(100)) / 4),
    ("brier", {}, [True, False, True, True], [0.5, 0.0, 1.0, 0.0], 1.25 / 4),
    ("score", {"within": (0, 5)}, [0, 0, 0, 0], [5.0, 0.0, 2.5, 2.5], 2.5),
    ("loss", {"within": (0, 5)}, [0, 0, 0, 0], [5.0, 0.0, 2.5, 1.5], 2.25),
]


@pytest.mark.parametrize(("name", "options", "truth", "said", "value"), METRIC_CASES)
def test_metrics(name: str, options: dict[str, Any], truth: list[Any], said: list[Any], value: float) -> None:
    ids = ["d", "b", "c", "a"]
    metric = Metric.of(name, **options)
    low, high = metric.bounds
    gain = metric.gains(pl.DataFrame({"prediction": said}), pl.Series(truth)).mean()
    found = low + (high - low) * (gain if metric.rule.higher else 1 - gain)
    assert found == pytest.approx(value, abs=1e-12)
    with hf.Board({"id": ids, "label": truth}, metric=name, step=(high - low) / 50, **options) as board:
        answer = board.submit({"id": ids, "prediction": said})
        best = [high if metric.rule.higher else low] * 4 if not metric.rule.targets else truth
        perfect = board.submit({"id": ids, "prediction": [float(x) for x in best] if metric.rule.predicts else best})
    assert answer.cell[0] - 1e-9 <= value <= answer.cell[1] + 1e-9
    assert answer.low <= value <= answer.high
    assert perfect.improved


@pytest.mark.parametrize(("metric", "value"), [("log_loss", (log(2) + log(5)) / 3), ("brier", (0.5 + 0 + 0.96) / 3)])
def test_probabilities_of_classes_have_a_column_each(metric: str, value: float) -> None:
    chances = {"cat": [0.5, 1.0, 0.4], "dog": [0.5, 0.0, 0.4], "owl": [0.0, 0.0, 0.2]}
    table = {"id": [3, 1, 2], "label": ["dog", "cat", "owl"]}
    classes = ["cat", "dog", "owl"]
    with hf.Board(table, metric=metric, classes=classes, step=0.01) as board:
        answer = board.submit({"id": [3, 1, 2], **chances})
        assert answer.cell[0] <= value <= answer.cell[1]
        assert answer.bounds == (0.0, 2.0 if metric == "brier" else pytest.approx(log(1000)))
        for wrong, message in (({"owl": [0.5] * 3}, "add up to 1"), ({"cat": [1.5] * 3}, "between 0 and 1")):
            with pytest.raises(hf.InvalidArgument, match=message):
                board.submit({"id": [3, 1, 2], **chances, **wrong})
        with pytest.raises(hf.InvalidArgument, match="column for each class"):
            board.submit({"id": [3, 1, 2], "prediction": [0.5] * 3})
        assert board.session.dry_run({"id": [3, 1, 2], **chances}, "submit").made_up


def test_predictions_that_are_none_of_the_declared_classes_are_refused() -> None:
    table = {"id": [1, 2, 3, 4], "label": ["cat", "dog", "cat", "dog"]}
    with hf.Board(table, classes=["cat", "dog", "owl"], step=0.25) as board:
        for said, told in (
            (["Cat", "dog ", "cat", "dog"], "2 are not, such as 'Cat', 'dog '"),
            (["0.1", "0.9", "0.2", "0.7"], "(cat, dog, owl); 4 are not"),
            (["cat", "dog", "cat", "cow"], "1 is not, such as 'cow'"),
        ):
            with pytest.raises(hf.InvalidArgument) as refused:
                board.submit({"id": [1, 2, 3, 4], "prediction": said})
            assert told in str(refused.value)
        assert board.session.ledger.spent.answers == 0
        assert board.submit({"id": [1, 2, 3, 4], "prediction": ["cat", "dog", "cat", "owl"]}).cell == (0.75, 1.0)
    with pytest.raises(hf.InvalidArgument, match="classes must be left out for labels that are not text"):
        hf.Board({"id": [1, 2, 3], "label": [0, 1, 0]}, classes=["0", "1"])


def test_what_is_wrong_with_labels_and_predictions_is_told_by_id() -> None:
    with pytest.raises(hf.InvalidArgument, match=r"1 in 'id' is there twice or more, such as 7\..*with unit="):
        hf.Board({"id": [7, 7, 8], "label": ["a", "b", "a"]})
    with pytest.raises(hf.InvalidArgument, match="'label' has no value in 1 of 3 rows"):
        hf.Board({"id": [6, 7, 8], "label": ["a", None, "a"]})
    with hf.Board({"id": [6, 7, 8], "label": ["a", "b", "a"]}, step=0.25) as board:
        with pytest.raises(hf.InvalidArgument, match="with a value of 'said' for every id; 7 has none"):
            board.submit({"id": [6, 7, 8], "said": ["a", None, "a"]})
        board.submit({"id": [6, 7, 8], "said": ["a", "a", "a"]})
        assert "The best so far is no. 1:" in repr(board)


def test_every_metric_has_a_case() -> None:
    assert {case[0] for case in METRIC_CASES} == set(METRICS)


# -- files -----------------------------------------------------------------------------------------------------------


def test_a_board_on_disk_is_made_once_and_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    pl.DataFrame(labels()).sample(fraction=1, shuffle=True, seed=1).write_csv(path)
    with hf.Board(path, step=0.25) as board:
        first = board.submit(predictions(4), by="one")
        head = board.verify()
    folder = tmp_path / "labels.board.holdfast"
    assert folder.is_dir()
    assert not list(tmp_path.glob("*.parquet"))
    forget_all()
    with hf.Board(folder) as board:
        assert board.submit(predictions(4)).receipt == first.receipt
        assert board.verify() == head
        assert not board.submit(predictions(3)).improved
    with hf.Board(path, step=0.25) as board:
        assert board.standings().height == 2
    with pytest.raises(hf.PlanConflict, match="a board with other settings"):
        hf.Board(path, step=0.125)
    with pytest.raises(hf.InvalidArgument, match="step must be left out"):
        hf.Board(folder, step=0.25)
    pl.DataFrame(labels()).head(5).write_csv(path)
    with pytest.raises(hf.RowSourceError, match="other labels"):
        hf.Board(path, step=0.25)


def test_types_of_csv_labels_are_read_off_the_file(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("id,label\n3,0.5\n1,1.5\n2,2\n")
    with hf.Board(path, metric="absolute_error", within=(0, 4)) as board:
        answer = board.submit({"id": [1, 2, 3], "prediction": [1.5, 2.0, 0.5]})
    assert answer.cell[0] == 0.0
    assert answer.bounds == (0.0, 4.0)


def test_pandas_labels_and_ids_of_other_integer_types() -> None:
    frame = pd.DataFrame({"id": np.arange(4, dtype=np.int16), "label": [True, False, True, True]})
    with hf.Board(frame) as board:
        assert board.submit(pl.DataFrame({"id": np.arange(4, dtype=np.uint8), "x": [True] * 4})).improved
        assert board.submit({"id": ["0", "1", "2", "3"], "x": ["true", "False", "true", "TRUE"]}).seq == 2


# -- what the ledger keeps -------------------------------------------------------------------------------------------


def test_a_cell_that_is_no_improvement_is_nowhere_in_the_ledger() -> None:
    with small() as board:
        board.submit(predictions(6))
        answers = [board.submit(predictions(right)) for right in (0, 3)]
        entries = list(board.session.ledger.entries(2))
    (low, high) = answers
    assert low.interval[0] == high.interval[0] == 0.0
    assert low.cell == high.cell
    assert [entry.cost.charge for entry in entries] == [0, 0]
    assert {tuple(sorted(entry.answer)) for entry in entries} == {tuple(sorted(answers[0].result()))}


def test_a_dry_run_checks_the_table_and_tells_nothing() -> None:
    with small() as board:
        made_up = board.session.dry_run(predictions(4), "submit")
        assert made_up.made_up
        assert board.session.ledger.spent.intervals == 0
        with pytest.raises(hf.InvalidArgument, match="every id"):
            board.session.dry_run({"id": IDS[:3], "prediction": ["a"] * 3}, "submit")
        price = board.session.price(predictions(4), "submit")
        assert price.answers == 0
        assert price.rows_read == len(IDS)


def test_a_ledger_put_back_knows_the_best_that_was_lost(tmp_path: Path) -> None:
    """What the submissions that were lost had told still counts: they were seen."""
    pl.DataFrame(labels()).write_csv(tmp_path / "labels.csv")
    folder, ledger = tmp_path / "labels.board.holdfast", tmp_path / "labels.board.ledger"
    with hf.Board(tmp_path / "labels.csv", step=0.25) as board:
        board.submit(predictions(2))
        hf.backup(ledger, tmp_path / "copy")
        board.submit(predictions(6))
        before = board.session.ledger.answered
    ledger.unlink()
    forget_all()
    witness = FileWitness(tmp_path / "labels.board.witness", content_of(FolderRows(folder).fingerprint))
    restored = hf.restore(tmp_path / "copy", ledger, witnesses=[witness])
    assert restored.lost == 1
    with hf.Board(folder) as board:
        assert board.session.ledger.answered == before
        assert not any(board.submit(predictions(right)).improved for right in (5, 7, 8))  # the last cell was told


def test_values_between_semicolons_are_said_to_be_one_column(tmp_path: Path) -> None:
    semicolons, commas = tmp_path / "a.csv", tmp_path / "b.csv"
    semicolons.write_text("id;label\n" + "".join(f"{n};{n % 2}\n" for n in range(300)))
    commas.write_text(semicolons.read_text().replace(";", ","))
    with pytest.raises(hf.InvalidArgument, match="they have: id;label, one column; write commas in place of ';'"):
        hf.Board(semicolons)
    with hf.Board(commas) as board, pytest.raises(hf.InvalidArgument, match="it has: id;label, one column; write comm"):
        board.submit(semicolons)
