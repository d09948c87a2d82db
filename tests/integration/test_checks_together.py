"""Checks of several askers at once: each interval is that of the responses committed before it, in their order."""

import subprocess
import sys
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast as hf
from holdfast.guarantees.checks import CODED
from holdfast.guarantees.mathematics.checks import failure_nats, full_range, guess_nats, time_share
from holdfast.ledger import Answered, Cost, open_ledger
from holdfast.ledger.backup import backup, restore
from holdfast.ledger.opening import forget_all
from holdfast.ledger.witness import FileWitness, content_of
from holdfast.rows.open import open_rows
from ledger_writer import environment

ROWS, CHECKS, BETA1 = 5_000, 60, 0.05 * 0.8 * (1 - CODED)

CHECKER = f"""
import sys, threading
import numpy as np
import polars as pl
import holdfast as hf

session = hf.Session({{"x": np.arange({ROWS}) / {ROWS}}}, guarantee="checks", ledger=sys.argv[1], complete=["x"])

def check(thread):
    for number in range({CHECKS}):
        guess = 0.5 if number % 3 else 0.9
        session.check(pl.col("x"), guess, 0.01 + number / 1e5 + thread / 1e8 + float(sys.argv[2]) / 1e9, within=(0, 1))

threads = [threading.Thread(target=check, args=[number]) for number in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
session.close()
"""


def replayed(session: hf.Session, rows: int) -> tuple[int, int]:
    """Compare every interval with the theorem's, from the responses before it; return the checks and wrong guesses."""
    wrong = checks = 0
    for entry in session.ledger.entries():
        answer, margin = entry.answer, entry.answer["margin"]
        guess = answer["guess"]
        cell = {"holds": (guess - margin, guess + margin), "too high": (0.0, guess - margin)}[answer["outcome"]]
        nats = guess_nats(checks + 1, wrong, wrong * log(2))
        failed, under_way = answer.get("failed", 0), answer.get("under_way", 0)
        nats += failure_nats(checks + failed + under_way + 1, failed)
        expected = full_range(cell, n=rows, level=BETA1 * time_share(checks + 1), nats=nats)
        assert (answer["low"], answer["high"]) == pytest.approx(expected, abs=1e-9)
        checks, wrong = checks + 1, wrong + (answer["outcome"] != "holds")
        assert entry.cost == Cost(int(answer["outcome"] != "holds"), 1)
    return checks, wrong


def test_two_processes_with_two_threads_each_keep_the_count(tmp_path: Path) -> None:
    place = str(tmp_path / "checks.ledger")
    command = [sys.executable, "-c", CHECKER, place]
    checkers = [subprocess.Popen([*command, str(number)], env=environment()) for number in (1, 2)]
    assert [checker.wait(timeout=600) for checker in checkers] == [0, 0]
    data: dict[str, Any] = {"x": np.arange(ROWS) / ROWS}
    with hf.Session(data, guarantee="checks", ledger=place, complete=["x"]) as session:
        checks, wrong = replayed(session, ROWS)
        assert (checks, wrong) == (4 * CHECKS, 4 * CHECKS // 3)
        assert session.ledger.answered == Answered(wrong, checks)
        session.ledger.verify()


def test_what_was_told_stays_told_when_a_ledger_is_restored(tmp_path: Path) -> None:
    """Places that were taken before the backup and answered after it are counted, too."""
    data, place, copy = {"x": np.arange(ROWS) / ROWS}, tmp_path / "checks.ledger", tmp_path / "copy"
    rows = open_rows(data, complete=["x"])
    witness = FileWitness(tmp_path / "witness", content_of(rows.fingerprint))
    with hf.Session(rows, guarantee="checks", ledger=place) as session:
        session.ledger.watch(witness)
        for number in range(10):  # fast: places are taken ahead
            session.check("x", 0.9, 0.01 + number / 1e6, within=(0, 1))
        backup(place, copy)
        for number in range(10, 14):
            session.check("x", 0.5 if number % 2 else 0.9, 0.01 + number / 1e6, within=(0, 1))
        told = session.ledger.answered
    assert told == Answered(12, 14)
    for part in tmp_path.glob("checks.ledger*"):
        part.unlink()
    forget_all()
    restore(copy, place, fingerprint=rows.fingerprint, witnesses=[witness])
    with open_ledger(place, dataset=rows.name, fingerprint=rows.fingerprint, witnesses=[witness]) as ledger:
        assert ledger.answered == told
        ledger.verify()
