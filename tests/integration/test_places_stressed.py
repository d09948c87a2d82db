"""What the theorem about sessions without an end asks of places, while everything happens at once.

Three processes with three threads each ask one ledger; main threads are interrupted by signals, one process forks, one
is killed in mid-flight and another takes its place; some questions are checks, which count in another account. Every
question notes when it was asked, when its place was there (its first row would be drawn then) and when its answer was
committed, on the clock that all processes share. From the notes (docs/proofs/endless.md, "Order"):

- no two questions that began share a number, a part of the charge, or the number of a statement;
- there is an order of all questions in which each comes after those whose answers were there when it was asked, and
  counts the charge of all that come before it. That is so if "does not count" and "was asked after" make no circle;
- the levels of all statements made add up to no more than their part of the failure probability.
"""

import math
import os
import signal
import subprocess
import sys
import time
import uuid
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.guarantees.drawers import COINS, STATEMENTS
from holdfast.guarantees.exchange import Exchange
from holdfast.guarantees.terms import NO_CAP, Goal
from ledger_writer import begun, environment

SECONDS = 1.5
ASKER = """
import os, random, signal, sys, threading, time
from holdfast.guarantees.drawers import COINS, STATEMENTS
from holdfast.ledger import Cost, Drawn, open_ledger
from ledger_writer import fingerprint_of

location, dataset, notes, seed, seconds = *sys.argv[1:4], int(sys.argv[4]), float(sys.argv[5])
end, clock = time.monotonic() + seconds, time.monotonic_ns
most, asked_so_far = (250 if seconds < 10 else 10**9), []  # enough: all pairs of questions are compared
chance = random.Random(seed)

def open_():
    return open_ledger(location, dataset=dataset, fingerprint=fingerprint_of(dataset))

def note(*values):
    os.write(file, (" ".join(map(str, values)) + "\\n").encode())  # one appending write

def ask(ledger, chance):
    check = chance.random() < 0.3
    cost = Cost(COINS, STATEMENTS) if check else Cost(chance.choice([1, 10, 400]), chance.choice([1, 1, 2]))
    asked = clock()
    place = ledger.reserve_all([cost])[0] if chance.random() < 0.1 else ledger.reserve(cost)
    began = clock()
    own = place.number, place.charge, cost.charge, place.intervals, cost.intervals, place.reached
    note("begun", asked, began, *own)
    said = Cost(0, STATEMENTS) if check else cost
    ledger.commit(Drawn(place, key=None, question={}, answer={}, cost=said, rows_read=1))
    note("shown", place.number, clock())

def goes_on():
    return time.monotonic() < end and len(asked_so_far) < most

def keep_asking(ledger, chance):
    while goes_on():
        asked_so_far.append(None)
        ask(ledger, chance)

file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
ledger = open_()
threads = [threading.Thread(target=keep_asking, args=(ledger, random.Random(10 * seed + i))) for i in range(2)]
for thread in threads: thread.start()
if seed % 3 == 0:  # a child goes on with the same ledger, while its parent does
    time.sleep(seconds / 4)
    if os.fork() == 0:
        for _ in range(25):
            ask(ledger, chance)
        os._exit(0)
signal.signal(signal.SIGALRM, signal.default_int_handler)
while goes_on():
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0005, 0.02))
        keep_asking(ledger, chance)
    except KeyboardInterrupt:
        pass
signal.signal(signal.SIGALRM, signal.SIG_IGN)
for thread in threads: thread.join()
if seed % 3 == 0:
    os.wait()
if seed % 2:
    ledger.close()  # else what was taken ahead is given back at the end
"""


class Begun(NamedTuple):
    """A question that has its place; `shown` is inf if its answer never was."""

    asked: int
    began: int
    number: int
    charge: int
    draws: int
    intervals: int
    statements: int
    reached: int
    shown: float = math.inf

    @property
    def check(self) -> bool:
        return self.statements >= STATEMENTS


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    dataset = f"stressed-{uuid.uuid4().hex}"
    if request.param == "file":
        return str(tmp_path / "a.ledger"), dataset
    return request.getfixturevalue("postgres_url"), dataset


def ask_all(location: str, dataset: str, notes: Path) -> list[Begun]:
    """Return what all processes noted."""

    def start(seed: int, seconds: float = SECONDS) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "ignore", "-c", ASKER, location, dataset, str(notes), str(seed), str(seconds)]
        return subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)

    askers = [start(1), start(2, 60), start(3)]  # the second is killed: it must not end by itself before
    while not notes.exists() or notes.stat().st_size < 15_000:  # some 140 questions, however slow the machine
        time.sleep(0.02)
        assert askers[1].poll() is None
    time.sleep(SECONDS / 4)
    os.kill(askers[1].pid, signal.SIGKILL)  # with places ahead, and questions under way
    askers.append(start(5))
    for asker in askers:
        said = asker.communicate(timeout=60)[1]
        assert asker.returncode == (-signal.SIGKILL if asker is askers[1] else 0), said
    lines = [line.split() for line in notes.read_text().splitlines()]
    shown = {int(number): int(when) for kind, number, when, *_ in lines if kind == "shown"}
    found = [Begun(*map(int, values)) for kind, *values in lines if kind == "begun"]
    return [each._replace(shown=shown.get(each.number, math.inf)) for each in found]


def ordered(questions: list[Begun]) -> bool:
    """Whether there is an order in which each counts those before it, and comes after those it could have seen."""
    first: TopologicalSorter[int] = TopologicalSorter()
    for later in questions:
        own = [
            before.number
            for before in questions
            if before is not later
            and (before.shown < later.asked or (later.charge + later.draws > before.reached and not later.check))
        ]
        first.add(later.number, *own)
    try:
        first.prepare()
    except CycleError:
        return False
    return True


def apart(shares: list[tuple[int, int]]) -> bool:
    """Whether no two of these shares, each a start and a size, overlap."""
    return all(start + size <= after for (start, size), (after, _) in pairwise(sorted(shares)))


def test_places_are_what_the_theorem_asks_for(place: tuple[str, str], tmp_path: Path) -> None:
    location, dataset = place
    with begun(location, {"caps": {"charge": NO_CAP, "intervals": NO_CAP}}, dataset=dataset) as ledger:
        questions = ask_all(location, dataset, tmp_path / "notes")
        ledger.verify()
    coins = [each for each in questions if not each.check]
    assert len(coins) > 50
    assert len(questions) > len(coins) + 10
    assert sum(each.shown == math.inf for each in questions) >= 1  # somebody was interrupted, or killed
    # Nothing is given out twice: numbers, draws, statements; of either account alone, too.
    assert len({each.number for each in questions}) == len(questions)
    for part in (questions, coins):
        assert apart([(each.charge, each.draws) for each in part])
        assert apart([(each.intervals, each.statements) for each in part])
    assert apart([(each.charge % COINS, each.draws) for each in coins])
    assert apart([(each.intervals % STATEMENTS, each.statements) for each in coins])
    # Coins count all that was drawn before them.
    assert all(each.reached % COINS >= each.charge % COINS + each.draws for each in coins)
    assert ordered(questions)
    alone = [each._replace(charge=each.charge % COINS, reached=each.reached % COINS) for each in coins]
    assert ordered(alone)
    for each in alone:
        assert each.reached >= sum(other.draws for other in alone if other.shown < each.asked) + each.draws
    # A place that says where it ends itself, and nothing of the others, would be caught.
    assert not ordered([each._replace(reached=each.charge + each.draws) for each in alone])
    terms = Exchange.plan(Goal(10**6, 0, 0.95, ends=False), "coins")
    assert terms is not None
    numbers = [each.intervals % STATEMENTS + 1 + i for each in alone for i in range(each.statements)]
    assert math.e * sum(map(terms.level_at, numbers)) <= terms.later_beta2
