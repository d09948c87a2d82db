"""Processes that check at the same time, and fail or are killed at any moment: no failure is missed, few are invented.

Every process notes in one file, in one appending write each, what it has begun, that something has failed once others
may know it, that its turn to commit has come, and how many failures it then counted.
"""

import json
import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from random import Random

import pytest

from holdfast.guarantees.terms import NO_CAP
from holdfast.ledger import open_ledger
from ledger_writer import environment

TERMS = {"caps": {"charge": NO_CAP, "intervals": NO_CAP}}

ASKER = """
import json, os, random, sys, time
from functools import partial
from holdfast.ledger import Asking, Cost, Drawn, open_ledger, underway

path, number, lagging = sys.argv[1:]
underway.PATIENCE = 5.0
chance, notes = random.Random(number), os.open(path + ".notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
if float(lagging):  # what another process says is believed for a while
    ask, heard = underway._ask, {}
    def remembered(path, until):
        then, answer = heard.get(path, (0.0, b""))
        if time.monotonic() - then > float(lagging):
            then, answer = heard[path] = time.monotonic(), ask(path, until)
        return answer
    underway._ask = remembered
    underway._named = lambda tip: b"any"

def note(what, value):
    os.write(notes, (json.dumps([what, value]) + "\\n").encode())

ledger = open_ledger(path, dataset="data", fingerprint="f")
write = ledger._store.write

def in_turn(decide):
    def decided(transaction):
        note("turn", number)
        decide(transaction)
    return write(decided)

def finish(answer, so_far):
    note("counted", [number, so_far.failed])
    return answer, Cost(0, 1)

while True:
    asking = Asking()
    place = ledger.reserve(Cost(0, 1), asking)
    note("begun", [number, place.number])
    time.sleep(chance.random() / 200)
    if chance.random() < 0.2:
        asking.ended = True
        note("failed", place.number)
        time.sleep(chance.random() / 50)
        continue
    ledger._store.write = in_turn
    drawn = Drawn(place, key=None, question={"kind": "check"}, answer={}, cost=Cost(0, 1), rows_read=1, finish=finish)
    ledger.commit(drawn)
    del ledger._store.write
    asking.ended = True
    note("done", [number, place.number])
"""


def storm(path: Path, *, seed: int, kills: int, lagging: float = 0.0) -> tuple[int, int, int]:
    """Return how many counts there were, how many were too small, and how many failures too many they had in all."""
    numbers, chance, notes = count(), Random(seed), Path(f"{path}.notes")
    with open_ledger(path, dataset="data", fingerprint="f") as ledger:
        ledger.begin(TERMS)

    def begun() -> tuple[subprocess.Popen[bytes], str]:
        number = f"{seed}-{next(numbers)}"
        command = [sys.executable, "-c", ASKER, str(path), number, str(lagging)]
        return subprocess.Popen(command, env=environment()), number

    askers = [begun() for _ in range(3)]
    shared = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        for _ in range(kills):
            started = len(lines(notes))
            while len(lines(notes)) < started + chance.randrange(50, 150):
                assert all(asker.poll() is None for asker, _ in askers)
            asker, number = askers.pop(0)
            asker.kill()
            asker.wait()
            os.write(shared, (json.dumps(["killed", number]) + "\n").encode())
            askers.append(begun())
    finally:
        os.close(shared)
        for asker, _ in askers:
            asker.kill()
            asker.wait()
    with open_ledger(path, dataset="data", fingerprint="f") as ledger:
        ledger.verify()
        answered = {entry.place.number for entry in ledger.entries()}
    return replayed(lines(notes), answered)


def lines(notes: Path) -> list[bytes]:
    return notes.read_bytes().splitlines() if notes.exists() else []


def replayed(noted: list[bytes], answered: set[int]) -> tuple[int, int, int]:
    open_: dict[str, int] = {}  # by process: the place that it is answering at
    failed, at_turn = set[int](), dict[str, int]()
    counts = missed = invented = 0
    for what, value in map(json.loads, noted):
        if what == "begun":
            open_[value[0]] = value[1]
        elif what == "done":
            open_.pop(value[0])
        elif what == "failed":
            failed.add(value)
        elif what == "killed" and value in open_:
            failed |= {open_.pop(value)} - answered  # it may have been killed after its commit, before it noted that
        elif what == "turn":
            at_turn[value] = len(failed)
        elif what == "counted":
            number, counted = value
            counts += 1
            missed += counted < at_turn[number]
            invented += max(0, counted - len(failed))
    return counts, missed, invented


@pytest.mark.parametrize("seed", range(2))
def test_no_failure_is_missed_and_who_lives_has_not_failed(tmp_path: Path, seed: int) -> None:
    counts, missed, invented = storm(tmp_path / "a.ledger", seed=seed, kills=8)
    assert counts > 50
    assert missed == 0
    assert invented < counts / 2  # 1 or 2 for each, if others were not asked; a killed process may have begun unnoted


def test_who_believes_what_was_said_before_misses_some(tmp_path: Path) -> None:
    counts, missed, _ = storm(tmp_path / "a.ledger", seed=0, kills=6, lagging=0.5)
    assert counts > 50
    assert missed > 0
