"""Spark and Ray on two local workers: the cards of one process, byte for byte, also when a worker is killed.

Not part of `make test`: `make test-engines` installs both, and a Java runtime for Spark.
"""

import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sequences
from holdfast.errors import InvalidArgument
from holdfast.rows.decks import dealing
from holdfast.rows.decks.cards import PLACE, Chance, Dealer
from holdfast.rows.decks.deal import deal
from holdfast.rows.decks.deck import Deck
from holdfast.rows.engines import ENGINES, Task
from holdfast.rows.open import open_rows
from slow_task import SlowTask

ROWS, FILES = 40_000, 8
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    numbers = np.arange(ROWS)
    frame = pl.DataFrame(
        {
            "id": numbers,
            "x": np.where(numbers % 7 == 0, np.nan, numbers / ROWS),
            "kind": pl.Series([None if i % 11 == 0 else f"kind {i % 5}" for i in numbers]),
            "day": pl.Series(numbers % 1_000).cast(pl.Date),
            "at": pl.Series(numbers * 1_000_000).cast(pl.Datetime("us", "UTC")),
        }
    )
    for i, part in enumerate(frame.iter_slices(ROWS // FILES)):
        part.write_parquet(folder / f"part-{i}.parquet")
    return folder


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    sql = pytest.importorskip("pyspark.sql")
    # Two executors in processes of their own, so that one can be killed.
    session = (
        sql.SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.executorEnv.PYTHONPATH", os.pathsep.join(sys.path))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.executor.maxNumFailures", "10")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def ray() -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    path = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", runtime_env=path)
    yield ray
    ray.shutdown()


def fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make two deals of one table equal."""
    monkeypatch.setattr(secrets, "token_bytes", lambda count: b"k" * count)
    monkeypatch.setattr(secrets, "token_hex", lambda count: "deck")


def cards_of(deck: object) -> pl.DataFrame:
    assert isinstance(deck, Deck)
    return pl.concat([cards.frame(np.arange(len(cards))) for cards in deck._deals])


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def killed_meanwhile(marks: Path, generations: int, work: Callable[[], object]) -> object:
    """Do the work, and kill the process that is at it, or the one that started it, once."""
    marks.mkdir()
    done = threading.Event()

    def kill() -> None:
        while not done.is_set():
            for mark in marks.iterdir():
                pid = int(mark.name)
                for _ in range(generations):
                    pid = parent_of(pid)
                (marks / "killed").touch()
                os.kill(pid, signal.SIGKILL)
                return
            time.sleep(0.02)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        return work()
    finally:
        done.set()
        thread.join()
        assert (marks / "killed").exists()


def check_cards(cards: pl.DataFrame, table: Path) -> None:
    rows = pl.read_parquet(table / "*.parquet").sort("id")
    assert cards.equals(rows[cards["id"]].select(cards.columns))


def test_spark_deals_the_same_cards_when_an_executor_is_killed(
    spark: Any, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed(monkeypatch)
    frame = spark.read.parquet(str(table))
    first = deal(frame, tmp_path / "a.deck", cards=30_000, engine="spark")
    cards = cards_of(first)
    check_cards(cards, table)

    marks = tmp_path / "marks"
    monkeypatch.setattr(dealing, "Task", partial(SlowTask, marks=str(marks)))
    again = killed_meanwhile(marks, 2, lambda: deal(frame, tmp_path / "b.deck", cards=30_000, engine="spark"))
    assert cards_of(again).equals(cards)
    here = deal(table, tmp_path / "here.deck", cards=10)
    assert isinstance(first, Deck)
    assert isinstance(here, Deck)
    assert first.fingerprint == here.fingerprint


def test_spark_refuses_rows_without_an_order(spark: Any, table: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="was shuffled"):
        deal(spark.read.parquet(str(table)).repartition(3), tmp_path / "a.deck", cards=10, engine="spark")
    with pytest.raises(InvalidArgument, match="must be a data frame of Spark"):
        deal(table, tmp_path / "a.deck", cards=10, engine="spark")


def test_ray_deals_the_same_cards_when_a_worker_is_killed(
    ray: Any, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed(monkeypatch)
    first = deal(table, tmp_path / "a.deck", cards=30_000, engine="ray")
    cards = cards_of(first)
    check_cards(cards, table)

    marks = tmp_path / "marks"
    monkeypatch.setattr(dealing, "Task", partial(SlowTask, marks=str(marks)))
    again = killed_meanwhile(marks, 0, lambda: deal(table, tmp_path / "b.deck", cards=30_000, engine="ray"))
    assert cards_of(again).equals(cards)
    here = deal(table, tmp_path / "here.deck", cards=10)
    assert isinstance(first, Deck)
    assert isinstance(here, Deck)
    assert first.fingerprint == here.fingerprint


@pytest.fixture(scope="session")
def three_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files, of one row and of two."""
    folder = tmp_path_factory.mktemp("three")
    for i, rows in enumerate(([0], [1, 2])):
        pl.DataFrame({"row": rows}).write_parquet(folder / f"part-{i}.parquet")
    return folder


def test_every_sequence_of_cards_is_as_likely_by_spark(spark: Any, three_rows: Path, tmp_path: Path) -> None:
    made = deal(spark.read.parquet(str(three_rows)), tmp_path / "three.deck", cards=200_000, engine="spark")
    assert sequences.unlikeliness(cards_of(made)["row"].to_numpy()) < sequences.LIMIT


def test_every_sequence_of_cards_is_as_likely_by_ray(ray: Any, three_rows: Path, tmp_path: Path) -> None:
    made = deal(three_rows, tmp_path / "three.deck", cards=200_000, engine="ray")
    assert sequences.unlikeliness(cards_of(made)["row"].to_numpy()) < sequences.LIMIT


def test_engines_are_found_by_name() -> None:
    assert {"spark", "ray"} <= set(ENGINES.names())
    storages = open_rows({"a": np.arange(5)})._storages  # type: ignore[attr-defined]
    task = Task(b"s" * 32, "d", 1.0, storages)
    *cards, summary = task.run("0", [pl.DataFrame({"a": np.arange(5)})])
    assert summary[PLACE].to_list() == [-1]
    plain = list(Dealer(Chance.of(b"s" * 32, "d", "0", 1.0), storages).deal([pl.DataFrame({"a": np.arange(5)})]))
    assert [each.select("a", PLACE).rows() for each in cards] == [each.select("a", PLACE).rows() for each in plain]
