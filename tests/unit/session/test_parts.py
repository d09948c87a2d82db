"""`hold_back`: a split by chance, once; whole on disk; nobody gets around it."""

import stat
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.cli.output import spell
from holdfast.errors import InvalidArgument, PlanConflict, RowSourceError, UnknownName
from holdfast.ledger import SharedBudget
from holdfast.ledger.opening import forget_all
from holdfast.rows.open import open_rows
from holdfast.session.parts import NamesRows

ROWS = 1_000


def table(rows: int = ROWS, seed: int = 5) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "id": np.arange(rows),
            "x": rng.random(rows),
            "color": rng.choice(["red", "blue"], rows),
            "maybe": pl.Series([None if number % 5 == 0 else number % 7 for number in range(rows)]),
        }
    )


def held_rows(session: hf.Session) -> pl.DataFrame:
    rows = session._rows
    return rows.frame(np.arange(len(rows)))  # type: ignore[attr-defined,no-any-return]


def test_every_row_is_in_one_part_and_chance_says_in_which() -> None:
    whole = table()
    frame, session = hf.hold_back(whole, 0.3, id="id", seed=1)
    assert (frame.height, session.plan.rows) == (300, 700)
    both = pl.concat([frame.drop("id"), held_rows(session)])
    assert both.sort(both.columns).equals(whole.drop("id").sort(both.columns))
    assert frame.columns == whole.columns
    assert not frame["id"].is_sorted()
    other, _ = hf.hold_back(whole, 0.3, id="id", seed=2)
    assert set(frame["id"]) != set(other["id"])


def test_the_split_does_not_depend_on_the_content() -> None:
    one, _ = hf.hold_back(table(seed=1), id="id", seed=9)
    other, _ = hf.hold_back(table(seed=2), id="id", seed=9)
    assert one["id"].equals(other["id"])


@pytest.mark.slow
def test_every_row_is_shown_equally_often() -> None:
    """400 splits of 20 rows in half. By Hoeffding one of them is shown outside 140..260 times by chance 6e-7."""
    shown = np.zeros(20)
    for seed in range(400):
        frame, _ = hf.hold_back({"n": np.arange(20), "x": np.ones(20)}, id="n", seed=seed)
        shown[frame["n"].to_numpy()] += 1
    assert shown.sum() == 4_000
    assert (shown >= 140).all()
    assert (shown <= 260).all()


@pytest.mark.parametrize(
    "again",
    [
        lambda data: hf.hold_back(data, 0.2, id="id"),
        lambda data: hf.hold_back(data, id=["id", "x"]),
        lambda data: hf.Session(data, queries=10),
        lambda data: hf.Session(data, guarantee="checks"),
    ],
)
@pytest.mark.parametrize("on_disk", [True, False])
def test_a_table_is_split_once_and_never_asked_as_a_whole(again: Any, on_disk: bool, tmp_path: Path) -> None:
    data: Any = table()
    if on_disk:
        data.write_parquet(tmp_path / "t.parquet")
        data = tmp_path / "t.parquet"
    _, session = hf.hold_back(data, id="id")
    assert session.ledger.begun
    if on_disk:
        session.close()
        forget_all()  # another process
    with pytest.raises(InvalidArgument, match="were split into"):
        again(data)


@pytest.mark.parametrize("on_disk", [True, False])
@pytest.mark.parametrize("unit", [None, "color"])
def test_the_same_call_returns_the_same_parts_and_the_ledger_goes_on(
    on_disk: bool, unit: str | None, tmp_path: Path
) -> None:
    """As a cell of a notebook that is run again, in the same process or after a restart."""
    data: Any = table().with_columns(pl.Series("color", [f"c{number % 50}" for number in range(ROWS)]))
    if on_disk:
        data.write_parquet(tmp_path / "t.parquet")
        data = tmp_path / "t.parquet"
    frame, first = hf.hold_back(data, 0.4, id="id", unit=unit)
    checked = first.check("x < 0.5", guess=0.5, margin=0.3)
    if on_disk:
        first.close()
        forget_all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SharedBudget)
        same, second = hf.hold_back(data, 0.4, id="id", unit=unit)
    assert same.equals(frame)
    assert held_rows(second).equals(held_rows(first))
    again = second.check("x < 0.5", guess=0.5, margin=0.3)
    assert (again.cached, again.interval) == (True, checked.interval)
    assert second.check("x < 0.2", margin=0.3).guess is not None  # from the exploration part
    assert second.ledger.first == first.ledger.first


def test_another_split_of_a_file_is_refused_with_the_code_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table().write_parquet("t.parquet")
    hf.hold_back("t.parquet", id="id")[1].close()
    for options, which in (
        ({"explore": 0.3, "id": "id"}, "another value of explore"),
        ({"id": ["id", "x"]}, "another value of id"),
    ):
        with pytest.raises(InvalidArgument, match=f"before, with {which}. Go on") as refused:
            hf.hold_back("t.parquet", **options)
        assert "holdfast.Session('t.held.holdfast'), and t.explore.parquet is there to look at." in str(refused.value)
        worded = spell(str(refused.value), {})
        assert 'check what you find with holdfast ask t.held.holdfast "a condition" --kind check, and' in worded
    with pytest.raises(PlanConflict, match="confidence"):
        hf.hold_back("t.parquet", id="id", confidence=0.99)
    with pytest.raises(InvalidArgument, match="have a ledger already"):
        hf.hold_back("t.parquet", id="id", ledger="other.ledger")
    with hf.Session("t.held.holdfast") as session:
        assert session.budget is not None


def test_parts_of_other_rows_are_not_taken_for_those_of_this_table(tmp_path: Path) -> None:
    one, other = tmp_path / "t.parquet", tmp_path / "t.csv"
    table(seed=1).write_parquet(one)
    table(seed=2).write_csv(other)
    hf.hold_back(one, id="id")[1].close()
    (tmp_path / "away").mkdir()
    for part in [*tmp_path.glob("t.held.*"), tmp_path / "t.explore.parquet"]:
        part.rename(tmp_path / "away" / part.name)
    with pytest.raises(InvalidArgument, match="bring them back to where they were"):
        hf.hold_back(one, id="id")
    hf.hold_back(other, id="id")[1].close()
    with pytest.raises(InvalidArgument, match="were split into"):
        hf.hold_back(one, id="id")


def test_a_split_that_was_interrupted_when_all_was_decided_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.parquet"
    table().write_parquet(path)
    replace = Path.replace
    with monkeypatch.context() as patched:

        def killed(self: Path, target: Path) -> Path:
            if self.name == ".t.explore.parquet":
                raise KeyboardInterrupt
            return replace(self, target)

        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            hf.hold_back(path, id="id")
    assert (tmp_path / "t.held.holdfast").exists()
    assert not (tmp_path / "t.explore.parquet").exists()
    frame, session = hf.hold_back(path, id="id")
    assert frame.height + session.plan.rows == ROWS
    assert pl.read_parquet(tmp_path / "t.explore.parquet").equals(frame)
    session.close()


@pytest.mark.parametrize("on_disk", [True, False])
def test_rows_that_have_answered_cannot_be_held_back(on_disk: bool, tmp_path: Path) -> None:
    data: Any = table()
    if on_disk:
        data.write_parquet(tmp_path / "t.parquet")
        data = tmp_path / "t.parquet"
    with hf.Session(data, queries=10) as session:
        session.mean("x < 0.5")
    with pytest.raises(InvalidArgument, match="have answered questions already"):
        hf.hold_back(data, id="id")


def test_a_file_is_split_on_disk_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "flights.parquet"
    table().write_parquet(path)
    frame, session = hf.hold_back(path, 0.4, id="id")
    first = session.check("x < 0.5")
    session.close()
    assert pl.read_parquet(tmp_path / "flights.explore.parquet").equals(frame)
    private = ["flights.explore.parquet", "flights.held.holdfast", "flights.held.ledger", "flights.held.witness"]
    for name in private:
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) & 0o077 == 0
    left = {file.name for file in tmp_path.iterdir()} - {*private, "flights.held.ledger-lock"}
    assert left == {"flights.parquet", "flights.parquet.holdfast", "flights.parquet.witness"}
    forget_all()
    with hf.Session(tmp_path / "flights.held.holdfast") as later:
        assert later.plan == session.plan
        again = later.check("x < 0.5")  # the guess comes from the file beside it
        assert (again.cached, again.guess) == (True, first.guess)
        assert later.schema.names == ("x", "color", "maybe")
    assert "id" not in open_rows(tmp_path / "flights.held.holdfast").schema.names


def test_parts_that_are_there_are_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table().write_parquet(path)
    (tmp_path / "t.explore.parquet").write_text("mine")
    with pytest.raises(RowSourceError, match="is there already"):
        hf.hold_back(path, id="id")
    assert (tmp_path / "t.explore.parquet").read_text() == "mine"
    assert not (tmp_path / "t.held.holdfast").exists()


def test_columns_that_name_rows_are_warned_of_and_cannot_be_asked_about() -> None:
    """A list of the ids that were seen would name the held rows: every one of them is not on it."""
    with pytest.warns(NamesRows) as caught:
        hf.hold_back(table(), seed=1)
    assert str(caught[0].message) == (
        "Column 'id' differs in every row. If it names rows, those seen reveal which are held: do not ask about it. A"
        " table is split once; next time, id='id' leaves it out."
    )
    _, session = hf.hold_back(table(), id="id", seed=1)
    with pytest.raises(UnknownName, match="No column 'id'"):
        session.check("id in (1, 2, 3)", 0.5, 0.1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"explore": 0.0}, "explore must be strictly between"),
        ({"explore": 1.0}, "explore must be strictly between"),
        ({"explore": 0.9999}, "must leave a row to look at and two"),
        ({"id": ["id", "x", "color", "maybe"]}, "must leave a column"),
        ({"id": "ide"}, "No column 'ide'"),
    ],
)
def test_refusals(options: dict[str, Any], words: str) -> None:
    with pytest.raises(hf.HoldfastError, match=words):
        hf.hold_back(table(), seed=1, **options)


def test_rows_that_were_kept_aside_already_need_no_split() -> None:
    train, test = table(seed=1), table(seed=2)
    with hf.Session(test, guarantee="checks", seed=1) as session:
        session.explore(train)
        assert session.check("x < 0.5").guess == pytest.approx((train["x"] < 0.5).mean(), abs=1e-3)


def test_an_exploration_part_is_not_lost_when_another_thread_begins_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = table(seed=1), table(seed=2)
    with hf.Session(test, guarantee="checks", seed=1) as session:
        begin = session.ledger.begin

        def meanwhile(*args: Any) -> bool:
            session.explore(train)  # as another thread does just now
            return begin(*args)

        monkeypatch.setattr(session.ledger, "begin", meanwhile)
        session.check("x < 0.5", guess=0.5, margin=0.2)
        assert session.check("x < 0.4").guess == pytest.approx((train["x"] < 0.4).mean(), abs=1e-3)


def test_confidence_and_analyst_are_passed_on() -> None:
    _, session = hf.hold_back(table(), id="id", seed=1, confidence=0.99, analyst="ada")
    assert session.plan.confidence == 0.99
    session.check("x < 0.5")
    assert [entry.analyst for entry in session.ledger.entries()] == ["ada"]
