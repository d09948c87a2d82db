"""Does anything get lost, overspent or answered twice if processes are killed, and does memory stay flat?

Hypothesis: processes that ask one ledger, alone and two at a time, on SQLite and on PostgreSQL, are killed with SIGKILL
500 times each, at random moments between opening the ledger and the fifth answer. Every answer that was shown is
in the ledger as shown; none is there twice; whoever asks a question again gets the answer that was shown before; all
that was spent fits within the caps, with no share of them given out twice. And a server that answers 100,000 questions
is no larger after the last of them than after the first 10,000.

Refuted by a single answer that is missing, differs or is there twice, by a share that is spent twice or beyond the
caps, or by a resident size after 100,000 answers that is more than a tenth larger than after 10,000.

A killed process is one of two threads asking at once through `Session`; what it was shown, it says through a pipe, one
line for each answer, before it asks on. Workers are forked from a process that has imported everything. Whoever is
killed is replaced at once by one that first asks again what the other was shown last and was about to be shown: what
was answered is found, the rest is drawn. A ledger is used for 100 kills. The 100,000 questions are asked over HTTP, of
200 rows each, by 16 analysts.
"""

import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from benchmarks.cases.service_load import Served, load
from benchmarks.measure import Found, Table, main

import holdfast as hf

ROWS, KILLS, EACH = 50_000, 500, 100  # kills of a case, and of a ledger
MOST_HEARD, LONGEST = 6, 0.01  # lines that are waited for before a kill, and seconds after them, at most
QUERIES, ROWS_READ, THREADS = 10_000, 200, 2
ASKS, LOOKS = 100_000, (10_000, 50_000, 100_000)
GROWTH = 1.1
NUMBERS = ("value", "low", "high")
PRELOAD = [
    *(
        "holdfast.session.session",
        "holdfast.ledger.sqlite",
        "holdfast.ledger.postgres",
        "holdfast.guarantees.posterior",
    ),
    *("holdfast.guarantees.dp", "holdfast.guarantees.paper", "holdfast.guarantees.split", "randomgen", "sqlglot"),
]


def ask_on(data: str, ledger: str, part: int, first: int, shown: Any) -> None:
    """Ask the questions of a part from number `first` on, in two threads, and say what was answered, until killed."""
    saying = threading.Lock()
    with hf.Session(data, ledger=ledger) as session:
        shown.send(None)  # at work from here on

        def ask(thread: int) -> None:
            for number in range(first, QUERIES):
                try:
                    answer = session.mean(f"x > 0.{part}{thread}{number:05d}", rows_per_query=ROWS_READ)
                except hf.BudgetExhausted:
                    return
                with saying:
                    shown.send((answer.question, answer.seq, *(getattr(answer, name) for name in NUMBERS)))

        threads = [threading.Thread(target=ask, args=(thread,)) for thread in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    shown.send("end")


class Asker:
    """A process that asks one part of the questions, and what it was shown."""

    def __init__(self, context: Any, data: str, ledger: str, part: int, first: int = 0) -> None:
        self.part, self.first, (self._shown, theirs) = part, first, context.Pipe(duplex=False)
        self._process = context.Process(target=ask_on, args=(data, ledger, part, first, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def kill(self, chance: random.Random) -> list[Any]:
        """Kill it at a random moment after it has opened the ledger; return what it was shown, to the last line."""
        said = []
        for _ in range(chance.randint(1, MOST_HEARD)):  # the first line is about the ledger
            assert wait([self._shown], 60), "it hangs"
            said.append(self._shown.recv())
        time.sleep(chance.uniform(0, LONGEST))
        os.kill(self._process.pid, signal.SIGKILL)
        try:
            while True:
                said.append(self._shown.recv())
        except (EOFError, OSError):  # all that it said before it was killed
            self._shown.close()
        self._process.join()
        return [one for one in said if isinstance(one, tuple)]


class Shown:
    """All that anybody was shown of one ledger."""

    def __init__(self) -> None:
        self.by_query: dict[str, tuple[Any, ...]] = {}

    def add(self, answers: list[Any]) -> None:
        """Keep answers; the same question always has the same one."""
        for query, *answer in answers:
            assert self.by_query.setdefault(query, tuple(answer)) == tuple(answer), "answered twice"

    def check(self, data: str, ledger: str) -> tuple[int, int]:
        """Compare with the ledger; return how many answers it has, and how many questions were paid for in vain."""
        with hf.Session(data, ledger=ledger) as session:
            kept = session.ledger
            kept.verify()  # the chain, and that no share of the caps was given out twice
            entries = {entry.seq: entry for entry in kept.entries()}
            texts = [entry.question["text"] for entry in entries.values()]
            assert len(set(texts)) == len(texts) == kept.spent.answers, "a question is there twice"
            for query, (seq, *numbers) in self.by_query.items():
                assert entries[seq].question["text"] == query, "an answer is lost"
                assert [entries[seq].answer[name] for name in NUMBERS] == numbers, "the ledger says something else"
            assert min(kept.left.charge, kept.left.intervals) >= 0, "overspent"
            each = next(iter(entries.values())).cost.charge
            return len(entries), kept.spent.charge // each - len(entries)


def killed(context: Any, folder: Path, ledger: str | None, processes: int, kills: int) -> tuple[int, int, float]:
    """Kill askers of one ledger; return its answers, questions paid in vain, and seconds."""
    name = uuid.uuid4().hex
    data, begin = str(folder / f"{name}.parquet"), time.perf_counter()
    pl.DataFrame({"x": np.random.default_rng().random(ROWS)}).write_parquet(data)
    place = ledger or str(folder / f"{name}.ledger")
    with hf.Session(data, ledger=place, queries=QUERIES, end=True) as session:
        session.answering.plan.begin()
    shown, chance = Shown(), random.Random()
    askers = [Asker(context, data, place, part) for part in range(processes)]
    for _ in range(kills):
        asker = askers.pop(0)
        said = asker.kill(chance)
        shown.add(said)
        askers.append(Asker(context, data, place, asker.part, asker.first + max(0, len(said) // THREADS - 1)))
    for asker in askers:
        shown.add(asker.kill(chance))
    return *shown.check(data, place), time.perf_counter() - begin


@contextmanager
def postgres() -> Iterator[str]:
    """A database to try: HOLDFAST_BENCH_POSTGRES, or a private one, as the tests have it."""
    given = os.environ.get("HOLDFAST_BENCH_POSTGRES")
    if given is not None:
        yield given
        return
    sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "support"))
    from private_postgres import private_postgres

    with private_postgres() as url:
        yield url


def kills_of(found: Found, folder: Path, *, small: bool) -> None:
    """Kill, on both sorts of ledgers, one process and two."""
    table = Table("Killed with SIGKILL", ["ledger", "processes", "kills", "answers", "paid in vain", "seconds"])
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    kills, each = (6, 3) if small else (KILLS, EACH)
    with postgres() as url:
        for name, ledger in (("SQLite", None), ("PostgreSQL", url)):
            for processes in (1, 2):
                runs = [killed(context, folder, ledger, processes, each) for _ in range(kills // each)]
                answers, vain, seconds = (sum(values) for values in zip(*runs, strict=True))
                table.rows.append([name, processes, f"{kills:,}", f"{answers:,}", f"{vain:,}", f"{seconds:.0f}"])
                found.raw[f"{name}, {processes}"] = [list(run) for run in runs]
                print(table.rows[-1], file=sys.stderr, flush=True)
    found.tables.append(table)
    found.notes.append(
        "After every hundred kills the ledger was re-checked: every answer that was shown is in it as shown, no"
        " question is there twice, and nothing is overspent. What a killed process had taken and not answered is paid."
    )


def resident(pid: int) -> float:
    """Return the resident size of a process, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no size")


def memory_of(found: Found, folder: Path, *, small: bool) -> None:
    """Ask one server process, and look at its size."""
    table = Table("One server process", ["answers", "resident size", "answers a second since the last look"])
    looks = [look // 100 for look in LOOKS] if small else list(LOOKS)
    sizes: list[float] = []
    with Served(folder, "memory", rows=ROWS, queries=looks[-1], workers=1) as served:
        done = 0
        for look in looks:
            got = load(served.port, served.tokens[:16], 3_600.0, ROWS_READ, first=done, most=look - done)
            assert len(got.answers) == look - done, "an answer is missing"
            done = look
            sizes.append(resident(served.process))
            table.rows.append([f"{look:,}", f"{sizes[-1]:,.0f} MB", f"{got.rate:,.0f}"])
            print(table.rows[-1], file=sys.stderr, flush=True)
    found.tables.append(table)
    found.raw["resident MB"] = sizes
    goal = None if small else GROWTH
    found.ratio(f"resident size after {looks[-1]:,} answers / after {looks[0]:,}", sizes[-1] / sizes[0], goal=goal)


def run(small: bool, scratch: Path) -> Found:
    """Kill processes, and ask a day's worth of questions."""
    found = Found("Endurance: kills, and a day of questions")
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        kills_of(found, Path(name), small=small)
        memory_of(found, Path(name), small=small)
    return found


if __name__ == "__main__":
    main(run)
