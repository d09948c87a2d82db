"""Processes and threads that ask through sessions of their own: one plan, one budget, spent to the last answer."""

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
from holdfast.session.session import Session
from ledger_writer import environment

PROCESSES, THREADS = 2, 4

ASKER = """
import json, sys, threading
from holdfast import BudgetExhausted, Session

path, process, threads, plan = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
shown = []

def ask(session, name):
    sizes = [7, 3, 1] if session.plan.flips else [None]
    for size in sizes:
        number = 0
        while True:
            number += 1
            try:
                if size:
                    answer = session.flips("id % 2 = 0", size)
                    shown.append([answer.seq, answer.receipt, list(answer.bits)])
                else:  # a question of its own each time, whose value is the mean of the rows it was given
                    text = f"least(id, {10**6 + 1000 * int(name) + number})"
                    answer = session.mean(text, within=(0, 4096))
                    shown.append([answer.seq, answer.receipt, answer.value])
            except BudgetExhausted:
                break

with Session(path, analyst=f"process {process}", **plan) as session:
    names = [f"{process}{i}" for i in range(threads)]
    print("ready", flush=True)
    sys.stdin.readline()
    workers = [threading.Thread(target=ask, args=(session, name)) for name in names]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
print(json.dumps(shown))
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


def asked_by_all(path: Path, plan: dict[str, Any]) -> list[Any]:
    """Return what every asker was shown. All of them open before anyone begins the ledger."""
    numbers = [[str(path), str(i), str(THREADS), json.dumps(plan)] for i in range(PROCESSES)]
    commands = [[sys.executable, "-W", "error", "-c", ASKER, *each] for each in numbers]
    askers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment())
        for command in commands
    ]
    for asker in askers:
        assert asker.stdout is not None
        assert asker.stdout.readline() == "ready\n"
    shown = together(askers)
    assert [asker.returncode for asker in askers] == [0] * PROCESSES
    return [line for lines in shown for line in json.loads(lines)]


def test_flips_are_spent_to_the_last_one(path: Path) -> None:
    plan = {"queries": {"flip": 600}}
    with Session(path, **plan) as session:
        shown = asked_by_all(path, plan)
        entries = list(session.ledger.entries())
        assert session.ledger.spent.charge == 600 == sum(len(bits) for _, _, bits in shown)
        assert sorted(seq for seq, _, _ in shown) == list(range(1, len(entries) + 1))
        head = session.ledger.verify().hash
        for seq, receipt, bits in shown:
            entry = entries[seq - 1]
            assert receipt == f"{seq}:{entry.hash}"
            assert entry.answer["bits"] == "".join(map(str, bits))
            check_receipt(session.receipt(seq), head)
        with pytest.raises(BudgetExhausted):
            session.flip("id > 5")


def test_fresh_rows_are_never_used_twice(path: Path) -> None:
    plan = {"queries": 97, "guarantee": "split"}
    with Session(path, **plan) as session:
        shown = {seq: (receipt, value) for seq, receipt, value in asked_by_all(path, plan)}
        assert session.budget.answers_left == 0
        each, key = session.plan.rows_per_query, session.ledger.key("order of rows")
        entries = list(session.ledger.entries())
        assert len(shown) == len(entries) == 97
        used = []
        for entry in entries:
            assert shown[entry.seq][0] == f"{entry.seq}:{entry.hash}"
            assert entry.cost.charge == each
            rows = permuted_block(key, 2_000, entry.place.charge, each)
            # The rows' own numbers were averaged, so the answer tells which rows were read.
            assert shown[entry.seq][1] == pytest.approx(rows.mean(), rel=1e-12)
            used.extend(rows.tolist())
        assert len(set(used)) == len(used) == 97 * each <= 2_000
        session.ledger.verify()


MACHINE = """
import json, sys
import holdfast
from holdfast import BudgetExhausted, HoldfastError, Session

path, ledger, name, queries = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
shown, refused = [], None
print("ready", flush=True)
sys.stdin.readline()
try:
    rows = holdfast.open(path, name=name)
    with Session(rows, ledger=ledger, queries=queries, end=True) as session:
        for number in range(1_000):  # the first answer begins the ledger
            shown.append(session.mean(f"id < {number}.{sys.argv[5]}").seq)
except BudgetExhausted:
    pass
except HoldfastError as error:
    refused = str(error)
print(json.dumps([shown, refused]))
"""


@pytest.mark.parametrize(
    ("names", "queries", "refusal"),
    [
        (("same", "same"), (20, 20), None),
        (("one", "other"), (20, 20), "These rows have a ledger"),
        (("same", "same"), (20, 30), "plan"),
    ],
    ids=["same name", "two names", "two plans"],
)
def test_two_machines_that_begin_at_once_have_one_budget(
    names: tuple[str, str], queries: tuple[int, int], refusal: str | None, tmp_path: Path, postgres_url: str
) -> None:
    """They share nothing but the database: each has its own copy of the data, in a folder with a witness of its own."""
    unlike = np.random.default_rng(list(str(tmp_path).encode())).permutation(2_000)  # content of this test's own
    machines = []
    for number, (name, most) in enumerate(zip(names, queries, strict=True)):
        copy = tmp_path / f"machine {number}" / "data.parquet"
        copy.parent.mkdir()
        pl.DataFrame({"id": unlike}).write_parquet(copy)
        own = [str(copy), postgres_url, f"{name}-{tmp_path.name}", str(most), str(1 + number)]
        machines.append(
            subprocess.Popen(
                [sys.executable, "-c", MACHINE, *own],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment(),
            )
        )
    for machine in machines:
        assert machine.stdout is not None
        assert machine.stdout.readline() == "ready\n"
    for machine in machines:
        assert machine.stdin is not None
        machine.stdin.write("go\n")
        machine.stdin.flush()
    got = [json.loads(machine.communicate(timeout=60)[0]) for machine in machines]
    numbers = sorted(number for shown, _ in got for number in shown)
    refusals = [refused for _, refused in got if refused]
    winner = int(bool(got[0][1])) if refusal else 0
    assert numbers == list(range(1, queries[winner] + 1)), got  # one budget, spent to the last answer
    assert len(refusals) == (refusal is not None)
    assert all((refusal or "") in each for each in refusals)
