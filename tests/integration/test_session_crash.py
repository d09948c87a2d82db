"""Sessions killed while they ask: whatever answer was shown is in the ledger, and the chain is whole."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from holdfast.session.session import Session
from ledger_writer import environment

pytestmark = pytest.mark.slow

KILLS = 6

ASKER = """
import sys
from holdfast import Session

session = Session(sys.argv[1])
number = session.budget.answers_given
while True:
    number += 1
    answer = session.mean(f"x > {number}e-6")
    print(answer.seq, answer.receipt, repr(answer.value), repr(answer.low), repr(answer.high), flush=True)
"""


def test_every_answer_that_was_shown_is_in_the_ledger(tmp_path: Path, seed: int) -> None:
    chance, path, shown = random.Random(seed), tmp_path / "killed.parquet", tmp_path / "shown"
    pl.DataFrame({"x": np.random.default_rng(seed).random(200_000)}).write_parquet(path)
    with Session(path, queries=50_000) as session:
        session.mean("x > 0.5")  # the plan stands from here on
    for _ in range(KILLS):
        before = shown.stat().st_size if shown.exists() else 0
        with shown.open("ab") as output:
            command = [sys.executable, "-W", "error", "-c", ASKER, str(path)]
            asker = subprocess.Popen(command, stdout=output, env=environment())
        try:
            while shown.stat().st_size == before:
                assert asker.poll() is None
                time.sleep(0.005)
            time.sleep(chance.uniform(0, 0.1))
        finally:
            asker.kill()
        assert asker.wait() == -signal.SIGKILL
        complete = shown.read_bytes().rpartition(b"\n")[0]  # the last line may be half a line
        shown.write_bytes(complete + b"\n")
        with Session(path) as session:
            entries = {entry.seq: entry for entry in session.ledger.entries()}
            assert session.ledger.verify().seq == len(entries) == session.budget.answers_given
            lines = [line.split() for line in shown.read_text().splitlines()]
            unseen = len(entries) - 1 - len(lines)
            assert 0 <= unseen <= KILLS  # an unseen answer for each kill at most
            for seq, receipt, *numbers in lines:
                entry = entries[int(seq)]
                assert receipt == f"{seq}:{entry.hash}"
                assert [entry.answer[name] for name in ("value", "low", "high")] == [float(x) for x in numbers]
            assert session.mean("x > 0.5").cached
