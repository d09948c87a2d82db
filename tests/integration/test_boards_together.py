"""Submissions of several processes at once, in SQLite and in PostgreSQL: each is told what the responses committed
before it leave to tell; killed in the middle, none is lost, none counts twice, and the best stays the best.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.guarantees.ladder import SubmissionsSoFar
from holdfast.ledger.opening import forget_all
from holdfast.session.answering import Answering, Unwritten
from ledger_writer import environment

ROWS, STEP = 1_000, 0.02

SUBMITTER = f"""
import os, sys, threading
import numpy as np
import holdfast as hf

board, ids = hf.Board(sys.argv[1], ledger=sys.argv[2] or None), np.arange({ROWS})

def submit(thread):
    rng = np.random.default_rng([int(sys.argv[3]), thread])
    for right in rng.integers(0, {ROWS}, int(sys.argv[4])):
        order = rng.permutation({ROWS})
        said = np.where(order < right, int(sys.argv[5]), -order * 4 - thread)
        answer = board.submit({{"id": order, "prediction": said}}, by=sys.argv[3])
        low, high = answer.cell
        os.write(1, f"{{answer.receipt}} {{int(answer.improved)}} {{low!r}} {{high!r}}\\n".encode())

threads = [threading.Thread(target=submit, args=[number]) for number in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
board.close()
"""


@pytest.fixture(params=["sqlite", "postgres"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, int]:
    """A board, where its ledger is (empty: beside it), and the label of all its rows.

    One database serves all tests, and one content has one ledger there: so every test has another label.
    """
    ledger = "" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    label = time.time_ns()
    labels = tmp_path / f"labels{label}.parquet"
    pl.DataFrame({"id": np.arange(ROWS), "label": np.full(ROWS, label)}).write_parquet(labels)
    hf.Board(labels, step=STEP, ledger=ledger or None).close()
    forget_all()
    return str(labels.with_name(labels.stem + ".board.holdfast")), ledger, label


def started(places: tuple[str, str, int], number: int, each: int) -> "subprocess.Popen[str]":
    folder, ledger, label = places
    command = [sys.executable, "-c", SUBMITTER, folder, ledger, str(number), str(each), str(label)]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)


def replayed(board: hf.Board) -> SubmissionsSoFar:
    """Go through the ledger from the start: every response and every charge follows from those before it."""
    ladder, climbed, charge = board.ladder, SubmissionsSoFar(0, 0, 0), 0
    for entry in board.session.ledger.entries():
        answer = entry.answer
        cell = round(answer["cell"][1] / STEP) if answer["improved"] else 1
        climbed = climbed._replace(failed=answer.get("failed", 0), under_way=answer.get("under_way", 0))
        assert answer["improved"] == (cell > climbed.best)
        assert (answer["low"], answer["high"]) == pytest.approx(ladder.certify(cell, climbed), abs=1e-12)
        after = climbed.after(cell)
        assert entry.cost.charge == ladder.charge_of(climbed, after)
        climbed, charge = after, charge + entry.cost.charge
    told = board.session.ledger.answered
    assert (told.charge, told.intervals) == (charge, climbed.submissions)
    assert climbed.submissions == board.standings().height
    board.verify()
    return climbed


def test_two_processes_with_two_threads_each_climb_one_ladder(places: tuple[str, str, int]) -> None:
    each = 40
    submitters = [started(places, number, each) for number in (1, 2)]
    said = [one.communicate(timeout=600)[0].split("\n") for one in submitters]
    assert [one.returncode for one in submitters] == [0, 0]
    with hf.Board(places[0], ledger=places[1] or None) as board:
        climbed = replayed(board)
        assert climbed.improvements > 2
        known = {f"{entry.seq}:{entry.hash}" for entry in board.session.ledger.entries()}
    shown = [line.split()[0] for lines in said for line in lines if line]
    assert len(shown) == 4 * each
    assert set(shown) == known  # the same predictions, sent by both, are one entry


def test_killed_in_the_middle_nothing_is_lost_and_nothing_counts_twice(places: tuple[str, str, int], seed: int) -> None:
    chance, shown = random.Random(seed), []
    for round_ in range(2):
        submitters = [started(places, 10 * round_ + number, 10_000) for number in (1, 2)]
        for one in submitters:
            assert one.stdout is not None
            shown.append(one.stdout.readline())  # it is at work
        time.sleep(chance.uniform(0.05, 0.4))
        for one in submitters:
            os.kill(one.pid, signal.SIGKILL)
        shown += [line for one in submitters for line in one.communicate()[0].splitlines(keepends=True)]
    with hf.Board(places[0], ledger=places[1] or None) as board:
        climbed = replayed(board)
        entries = {f"{entry.seq}:{entry.hash}": entry.answer for entry in board.session.ledger.entries()}
        whole = [line.split() for line in shown if line.endswith("\n")]
        assert len(whole) >= 4
        for receipt, improved, low, high in whole:  # what anybody was shown is in the ledger, as it was shown
            assert entries[receipt]["improved"] == bool(int(improved))
            assert entries[receipt]["cell"] == [float(low), float(high)]
        ids = np.arange(ROWS)
        better = board.submit({"id": ids, "prediction": np.full(ROWS, places[2])})
        assert better.improved == (climbed.best < 50)  # the best that was told is still the best


# -- two that are under way at once ----------------------------------------------------------------------------------


def under_way(board: hf.Board, right: int) -> "hf.SubmitAnswer | object":
    ids = np.arange(ROWS)
    session = board.session
    question = session.prepare({"id": ids, "prediction": np.where(ids < right, 1, 0)}, "submit")
    return session.answering.draw(question, lambda: None)


@pytest.mark.parametrize("in_order", [True, False])
def test_the_second_may_be_committed_first(in_order: bool) -> None:
    """Both were scored when 500 were the best; which of them improves is decided by the order of commits alone."""
    with hf.Board({"id": np.arange(ROWS), "label": np.ones(ROWS, np.int64)}, step=STEP) as board:
        board.submit({"id": np.arange(ROWS), "prediction": np.where(np.arange(ROWS) < 500, 1, 0)})
        worse, better = under_way(board, 601), under_way(board, 701)
        order = (worse, better) if in_order else (better, worse)
        first, second = (Answering.write_all([one])[0] for one in order)  # type: ignore[list-item]
        assert isinstance(first, hf.SubmitAnswer)
        assert isinstance(second, hf.SubmitAnswer)
        assert first.improved
        assert second.improved == in_order
        assert second.cell == ((0.7, 0.72) if in_order else (0.0, 0.72))
        assert first.of == 1
        assert second.of == (1 if in_order else None)  # compared with the best that it saw
        kept = str([entry.answer for entry in board.session.ledger.entries()])
        assert ("0.62" in kept) == in_order  # the cell of one that is no improvement any more is nowhere
        assert replayed(board).improvements == (3 if in_order else 2)


def test_both_in_one_transaction_are_told_in_its_order() -> None:
    with hf.Board({"id": np.arange(ROWS), "label": np.ones(ROWS, np.int64)}, step=STEP) as board:
        both = [under_way(board, 701), under_way(board, 601)]
        first, second = Answering.write_all(both)  # type: ignore[arg-type]
        assert isinstance(first, hf.SubmitAnswer)
        assert isinstance(second, hf.SubmitAnswer)
        assert (first.improved, second.improved) == (True, False)
        replayed(board)


def test_one_that_is_under_way_changes_no_interval_and_one_that_was_dropped_counts_as_failed() -> None:
    ids = np.arange(ROWS)
    intervals = []
    for dropped in (None, False, True):
        forget_all()
        with hf.Board({"id": ids, "label": np.ones(ROWS, np.int64)}, step=STEP) as board:
            if dropped is not None:
                unwritten = under_way(board, 900)
                assert isinstance(unwritten, Unwritten)
                unwritten.asking.ended = dropped  # as a server does that cannot write it
            intervals.append(board.submit({"id": ids, "prediction": np.where(ids < 500, 1, 0)}).interval)
            assert replayed(board).submissions == 1
    assert intervals[0] == intervals[1]
    assert intervals[2][0] < intervals[1][0]
    assert intervals[1][1] < intervals[2][1]
