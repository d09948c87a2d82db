"""Files whose ledger has begun: a refused call leaves the folder as it was, and says how to go on on every surface."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.cli.output import spell
from holdfast.errors import HoldfastError, PlanConflict, RowSourceError
from holdfast.ledger.opening import forget_all

ASKED = "x < 0.5"


def rows(seed: int = 3, count: int = 2_000) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    person = rng.integers(0, 400, count)
    return pl.DataFrame({"x": rng.random(count).round(3), "person": person, "zip": [f"0{each}" for each in person % 9]})


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    path = tmp_path / "t.parquet"
    rows().write_parquet(path)
    ask(path)
    return path


@pytest.fixture
def semicolons(tmp_path: Path) -> Path:
    """A CSV file that is read as it should be only with options, given once."""
    path = tmp_path / "t.csv"
    rows().write_csv(path, separator=";")
    hf.open(path, separator=";", types={"zip": "text"})
    ask(path)
    return path


def ask(data: Any, **options: Any) -> bool:
    """Ask as another process would; return whether the question had been asked before."""
    forget_all()
    with hf.Session(data, **options) as session:
        return session.mean(ASKED).cached


def kept(path: Path) -> dict[str, tuple[int, bytes]]:
    """All that is beside the file, except what a reader of SQLite leaves."""
    return {
        str(each.relative_to(path.parent)): (each.stat().st_ino, each.read_bytes())
        for each in path.parent.rglob("*")
        if each.is_file() and each != path and ".ledger" not in each.name
    }


UNITS: list[Callable[[Path], object]] = [
    lambda path: ask(path, unit="person"),
    lambda path: ask(path, unit="person", ledger=path.with_name("second.ledger")),
    lambda path: hf.open(path, unit="person"),
    lambda path: hf.plan(path, unit="person"),
    lambda path: hf.hold_back(path, unit="person"),
]


@pytest.mark.parametrize("otherwise", UNITS)
def test_a_refused_unit_is_not_remembered(otherwise: Callable[[Path], object], parquet: Path) -> None:
    before = kept(parquet)
    with pytest.raises(PlanConflict, match="was begun for single rows") as refused:
        otherwise(parquet)
    assert "Leave unit= out to go on." in str(refused.value)
    assert "Leave --unit out to go on." in spell(str(refused.value), {})
    assert kept(parquet) == before
    assert ask(parquet)


def test_the_ledger_of_a_test_is_not_bricked_either(tmp_path: Path) -> None:
    """With a seed there is no witness: only the ledger itself tells whose it is."""
    path = tmp_path / "t.parquet"
    rows().write_parquet(path)
    ask(path, seed=1)
    with pytest.raises(PlanConflict, match="Leave unit= out"):
        ask(path, seed=1, unit="person")
    assert ask(path, seed=1)


def test_a_damaged_ledger_does_not_keep_a_file_from_being_opened(parquet: Path) -> None:
    """As `holdfast restore` does."""
    parquet.with_name("t.parquet.ledger").write_bytes(b"no database" * 1_000)
    parquet.with_name("t.parquet.witness").unlink()
    os.utime(parquet, (1, 1))
    assert len(hf.open(parquet)) == 2_000
    with pytest.raises(HoldfastError):
        ask(parquet)


def test_another_unit_is_refused_and_the_first_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    rows().write_parquet(path)
    ask(path, unit="person")
    with pytest.raises(PlanConflict, match=r"units by 'person'.* Open the data with unit='person'"):
        ask(path, unit="zip")
    assert ask(path)


def test_the_unit_is_the_ledgers_even_if_the_folder_is_gone(parquet: Path) -> None:
    parquet.with_name("t.parquet.holdfast").rename(parquet.with_name("moved"))
    with pytest.raises(PlanConflict, match="Leave unit= out"):
        ask(parquet, unit="person")
    assert not parquet.with_name("t.parquet.holdfast").exists()
    assert ask(parquet)


def test_a_ledger_that_is_elsewhere_counts_too(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "t.parquet", tmp_path / "elsewhere.ledger"
    rows().write_parquet(path)
    ask(path, ledger=elsewhere)
    with pytest.raises(PlanConflict, match=r"elsewhere\.ledger was begun for single rows"):
        hf.open(path, unit="person")
    assert ask(path, ledger=elsewhere)


def test_a_folder_that_remembers_a_unit_which_its_ledger_does_not_have_can_be_removed(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    rows().write_parquet(path)
    ask(path)
    ledger = tmp_path / "t.parquet.ledger"
    ledger.rename(tmp_path / "kept")
    (tmp_path / "t.parquet.witness").unlink()
    hf.open(path, unit="person")
    (tmp_path / "kept").rename(ledger)
    with pytest.raises(PlanConflict, match=r"t.parquet.holdfast remembers one: remove it, and open the file"):
        ask(path)


def test_a_refused_plan_does_not_make_complete_columns_a_trap(parquet: Path) -> None:
    with pytest.raises(PlanConflict):
        ask(parquet, complete=["x"], queries=7)
    with hf.Session(parquet) as session:
        assert session.mean(ASKED).value >= 0
    assert ask(parquet)


DIFFERENTLY: list[dict[str, Any]] = [
    {"separator": ";", "types": {"zip": "integer"}},
    {"separator": ";", "null_values": ["07"]},
    {"null_values": ["07"]},  # without the separator, it cannot be read
    {"separator": ","},
]


@pytest.mark.parametrize("options", DIFFERENTLY)
def test_a_file_that_is_read_differently_is_refused_and_goes_on_as_before(
    options: dict[str, Any], semicolons: Path
) -> None:
    before = kept(semicolons)
    with pytest.raises(RowSourceError, match=r"Read like this, .* Leave out the options that say how it is written"):
        hf.open(semicolons, **options)
    assert kept(semicolons) == before
    assert ask(semicolons)


def test_how_a_file_is_written_is_remembered_when_it_is_read_again(semicolons: Path) -> None:
    os.utime(semicolons, (1, 1))
    assert ask(semicolons)  # the same rows: the same separator and types
    assert hf.open(semicolons).schema["zip"].type == "text"


CHANGED: list[Callable[[Path], object]] = [ask, hf.open, lambda path: ask(path, ledger=path.with_name("second.ledger"))]


@pytest.mark.parametrize("opened", CHANGED)
def test_a_file_that_has_changed_says_so_and_how_to_go_on(opened: Callable[[Path], object], semicolons: Path) -> None:
    old, before = semicolons.read_text(), kept(semicolons)
    semicolons.write_text(old.replace("\n0", "\n1", 1))
    for _ in range(2):
        with pytest.raises(RowSourceError, match="has changed since the ledger") as refused:
            opened(semicolons)
        copy = semicolons.with_name("t.csv.holdfast")
        assert f"go on with those, open their copy: {copy}. " in str(refused.value)
        assert str(refused.value).endswith("begin a ledger of their own: save them under a new name, such as t-2.csv.")
        assert "separator" not in str(refused.value)
        assert kept(semicolons) == before
    assert ask(copy)  # both ways out
    semicolons.rename(semicolons.with_name("t-2.csv"))
    hf.open(semicolons.with_name("t-2.csv"), separator=";")
    assert not ask(semicolons.with_name("t-2.csv"))
    semicolons.write_text(old)
    assert ask(semicolons)


def test_a_file_that_has_changed_and_cannot_be_read_says_both(semicolons: Path) -> None:
    semicolons.write_text("x,person\n1,2\n")
    with pytest.raises(RowSourceError) as refused:
        ask(semicolons)
    first, second = str(refused.value).split(" Besides, it cannot be read as before: ")
    assert "has changed since the ledger" in first
    assert second.startswith(f"{semicolons} has only one column, 'x,person'")


def test_a_folder_of_files_that_has_changed_can_be_copied_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "days").mkdir()
    rows().write_parquet("days/1.parquet")
    ask("days")
    rows(seed=4).write_parquet("days/2.parquet")
    with pytest.raises(RowSourceError) as refused:
        ask("days")
    assert str(refused.value).endswith(" into another folder: holdfast.open('days', folder='days-2.holdfast').")
    assert spell(str(refused.value), {}).endswith("another folder: holdfast open days --folder days-2.holdfast.")
    hf.open("days", folder="days-2.holdfast")
    assert not ask("days-2.holdfast")
    assert ask("days.holdfast")


def test_rows_whose_ledger_is_gone_and_rows_without_one_are_replaced(parquet: Path, tmp_path: Path) -> None:
    for file in tmp_path.glob("t.parquet.ledger*"):
        file.unlink()
    rows(seed=4).write_parquet(parquet)
    assert not ask(parquet)
    other = tmp_path / "u.csv"
    other.write_text("a;b\n1;2\n3;4\n")
    hf.open(other, separator=";", types={"b": "text"})
    other.write_text("a;c\n1;2\n3;4\n5;6\n")
    assert hf.open(other).schema.names == ("a", "c")  # types of columns that are gone are forgotten
    other.write_text("a,c\n1,2\n3,4\n")
    with pytest.raises(
        HoldfastError, match="separated by ',', say so: separator=','; if it is one column, say separator=';'"
    ):
        hf.open(other)
    assert hf.open(other, separator=",").schema.names == ("a", "c")


def test_rows_that_were_put_back_under_an_old_ledger_are_told_where_new_ones_go(parquet: Path) -> None:
    """Without the folder, only the ledger can tell."""
    parquet.with_name("t.parquet.holdfast").rename(parquet.with_name("moved"))
    rows(seed=4).write_parquet(parquet)
    with pytest.raises(RowSourceError, match="belongs to other data") as refused:
        ask(parquet)
    assert str(refused.value).endswith("save them under a new name, or name a new ledger with ledger=.")
    assert spell(str(refused.value), {}).endswith("or name a new ledger with --ledger.")
