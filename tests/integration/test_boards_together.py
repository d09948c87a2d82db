"""Submissions of several processes at once: each is told what the responses committed before it leave to tell."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.guarantees.ladder import Climbed
from ledger_writer import environment

ROWS, EACH, STEP = 1_000, 40, 0.02

SUBMITTER = f"""
import sys, threading
import numpy as np
import holdfast as hf

board, ids = hf.Board(sys.argv[1]), np.arange({ROWS})

def submit(thread):
    rng = np.random.default_rng([int(sys.argv[2]), thread])
    for right in rng.integers(0, {ROWS}, {EACH}):
        order = rng.permutation({ROWS})
        board.submit({{"id": order, "prediction": np.where(order < right, 1, order * 4 + thread)}}, by=sys.argv[2])

threads = [threading.Thread(target=submit, args=[number]) for number in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
board.close()
"""


def test_two_processes_with_two_threads_each_climb_one_ladder(tmp_path: Path) -> None:
    pl.DataFrame({"id": np.arange(ROWS), "label": np.ones(ROWS, np.int64)}).write_parquet(tmp_path / "labels.parquet")
    hf.Board(tmp_path / "labels.parquet", step=STEP).close()
    folder = str(tmp_path / "labels.board.holdfast")
    command = [sys.executable, "-c", SUBMITTER, folder]
    submitters = [subprocess.Popen([*command, str(number)], env=environment()) for number in (1, 2)]
    assert [each.wait(timeout=600) for each in submitters] == [0, 0]
    with hf.Board(folder) as board:
        ladder, climbed, charge = board.ladder, Climbed(0, 0, 0), 0
        for entry in board.session.ledger.entries():
            answer = entry.answer
            cell = round(answer["cell"][1] / STEP) if answer["improved"] else 1
            assert answer["improved"] == (cell > climbed.best)
            assert (answer["low"], answer["high"]) == pytest.approx(ladder.certify(cell, climbed), abs=1e-12)
            after = climbed.after(cell)
            assert entry.cost.charge == ladder.charge_of(climbed, after)
            climbed, charge = after, charge + entry.cost.charge
        told = board.session.ledger.told
        assert (told.charge, told.intervals) == (charge, climbed.submissions)
        assert climbed.improvements > 2
        assert climbed.submissions == board.standings().height
        board.verify()
