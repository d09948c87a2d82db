"""Processes and threads that ask through sessions of their own: one budget, spent to the last flip and never beyond."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from holdfast.errors import BudgetExhausted
from holdfast.ledger import check_receipt
from holdfast.rows.draws import permuted_block
from holdfast.session import Session
from ledger_writer import environment

PROCESSES, THREADS = 2, 4

ASKER = """
import json, sys, threading
from holdfast import BudgetExhausted, Session

path, process, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
told = []

def ask(session, name):
    sizes = [7, 3, 1] if session.plan.sampling_queries else [None]
    for size in sizes:
        number = 0
        while True:
            number += 1
            try:
                if size:
                    answer = session.flips("id % 2 = 0", size)
                    told.append([answer.seq, answer.receipt, list(answer.bits)])
                else:  # a question of its own each time, whose value is the mean of the rows it was given
                    text = f"least(id, {10**6 + 1000 * int(name) + number})"
                    answer = session.mean(text, within=(0, 4096))
                    told.append([answer.seq, answer.receipt, answer.value])
            except BudgetExhausted:
                break

with Session(path, analyst=f"process {process}") as session:
    names = [f"{process}{i}" for i in range(threads)]
    print("ready", flush=True)
    sys.stdin.readline()
    workers = [threading.Thread(target=ask, args=(session, name)) for name in names]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
print(json.dumps(told))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "shared.parquet"
    pl.DataFrame({"id": np.arange(2_000)}).write_parquet(file)
    return file


def together(askers: list[subprocess.Popen[str]]) -> list[str]:
    """Let all of them go at once; return what each of them says in the end."""
    for asker in askers:
        assert asker.stdin is not None
        asker.stdin.write("go\n")
        asker.stdin.flush()
    return [asker.communicate()[0] for asker in askers]


def asked_by_all(path: Path) -> list[Any]:
    """Return what every asker was told."""
    commands = [[sys.executable, "-W", "error", "-c", ASKER, str(path), str(i), str(THREADS)] for i in range(PROCESSES)]
    askers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment())
        for command in commands
    ]
    for asker in askers:
        assert asker.stdout is not None
        assert asker.stdout.readline() == "ready\n"
    told = together(askers)
    assert [asker.returncode for asker in askers] == [0] * PROCESSES
    return [line for lines in told for line in json.loads(lines)]


def test_flips_are_spent_to_the_last_one(path: Path) -> None:
    with Session(path, queries={"flip": 600}) as session:
        told = asked_by_all(path)
        entries = list(session.ledger.entries())
        assert session.ledger.spent.flips == 600 == sum(len(bits) for _, _, bits in told)
        assert sorted(seq for seq, _, _ in told) == list(range(1, len(entries) + 1))
        head = session.ledger.verify().hash
        for seq, receipt, bits in told:
            entry = entries[seq - 1]
            assert receipt == f"{seq}:{entry.hash}"
            assert entry.answer["bits"] == "".join(map(str, bits))
            check_receipt(session.receipt(seq), head)
        with pytest.raises(BudgetExhausted):
            session.flip("id > 5")


def test_fresh_rows_are_never_used_twice(path: Path) -> None:
    with Session(path, queries=97, guarantee="split") as session:
        told = {seq: (receipt, value) for seq, receipt, value in asked_by_all(path)}
        each, key = session.plan.rows_per_query, int(session.plan.constants["order"])
        entries = list(session.ledger.entries())
        assert len(told) == len(entries) == 97
        used, start = [], 0
        for entry in entries:
            assert told[entry.seq][0] == f"{entry.seq}:{entry.hash}"
            assert entry.cost.flips == each
            rows = permuted_block(key, 2_000, start, each)
            # The rows' own numbers were averaged, so the answer tells which rows were read.
            assert told[entry.seq][1] == pytest.approx(rows.mean(), rel=1e-12)
            used.extend(rows.tolist())
            start += each
        assert len(set(used)) == len(used) == 97 * each <= 2_000
        session.ledger.verify()
