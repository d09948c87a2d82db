"""`hold_back`: a split by chance, once; whole on disk; nobody gets around it."""

import stat
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.errors import InvalidArgument, RowSourceError, UnknownName
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
        lambda data: hf.hold_back(data, id="id"),
        lambda data: hf.hold_back(data, 0.2, id="id"),
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
        "Column 'id' differs in every row. If it names rows, those seen tell which are held, so ask nothing about it. A"
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
