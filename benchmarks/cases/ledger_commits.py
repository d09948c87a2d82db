"""How many answers a second can be committed, all durable, when eight writers share one ledger?

Hypothesis: on two cores and a disk that syncs 2,000 times a second or more, 8 writers, threads or processes, commit at
least 1,000 times a second, at least a third as often as one writer with bare sqlite3 and the same settings; and
queueing on a lock file keeps the longest wait below that of SQLite's own sleeping, at little cost in rate.

Refuted if a printed rate of 8 queueing writers is below 1,000, if its ratio to bare sqlite3 is below 1/3, or if the
longest wait of 8 queueing processes is not below that of 8 processes that do not queue.
"""

import multiprocessing
import os
import sqlite3
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from benchmarks.measure import Found, Table, main

from holdfast.ledger import Cost, Ledger, open_ledger

WRITERS = 8
TERMS = {"caps": {"flips": 10**15, "intervals": 10**12}}
QUESTION = {"kind": "share", "text": "dep_delay > 15", "where": None}
TOLD: dict[str, list[float]] = {}  # a name, then its rate, median and longest wait
ANSWER = {"value": 0.123456, "low": 0.1, "high": 0.15, "counts": [8_766, 1_234]}


def opened(location: str | None, dataset: str = "bench") -> Ledger:
    return open_ledger(location, dataset=dataset, fingerprint="f", terms=TERMS)


def write(ledger: Ledger, count: int) -> list[float]:
    """Commit `count` answers; return how long each took."""
    waits = []
    for _ in range(count):
        begin = time.perf_counter()
        key = uuid.uuid4().hex
        ledger.commit(key=key, question=QUESTION, answer=ANSWER, cost=Cost(10_000, 1), rows_read=10_000)
        waits.append(time.perf_counter() - begin)
    return waits


def report(name: str, count: int, seconds: float, waits: Iterable[float] = ()) -> float:
    ordered = sorted(waits)
    rate = count / seconds
    TOLD[name] = [rate, ordered[len(ordered) // 2], ordered[-1]] if ordered else [rate]
    return rate


def syncs(folder: Path, count: int) -> None:
    descriptor = os.open(folder / "probe", os.O_CREAT | os.O_WRONLY)
    begin = time.perf_counter()
    for _ in range(count):
        os.write(descriptor, b"x" * 4_096)
        os.fsync(descriptor)
    report("write 4 KB and fsync", count, time.perf_counter() - begin)
    os.close(descriptor)


def bare(folder: Path, count: int) -> float:
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE t (seq INTEGER PRIMARY KEY, key TEXT UNIQUE, body TEXT)")
    body = "x" * 400
    begin = time.perf_counter()
    for _ in range(count):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO t (key, body) VALUES (?, ?)", (uuid.uuid4().hex, body))
        connection.execute("COMMIT")
    seconds = time.perf_counter() - begin
    connection.close()
    return report("bare sqlite3, one writer", count, seconds)


def threads(name: str, location: str | None, count: int) -> float:
    with opened(location, uuid.uuid4().hex) as ledger:
        waits: list[float] = []
        workers = [
            threading.Thread(target=lambda: waits.extend(write(ledger, count // WRITERS))) for _ in range(WRITERS)
        ]
        begin = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return report(name, len(waits), time.perf_counter() - begin, waits)


def _process(location: str, dataset: str, count: int, queueing: bool, start: Any, results: Any) -> None:
    if not queueing:
        from holdfast.ledger.sqlite import SqliteStore

        SqliteStore.turn = lambda self: nullcontext()  # type: ignore
    with opened(location, dataset) as ledger:
        start.wait()
        begin = time.time()
        waits = write(ledger, count)
        results.put((begin, time.time(), waits))


def processes(name: str, location: str, count: int, *, queueing: bool = True) -> float:
    context = multiprocessing.get_context("spawn")
    start, results, dataset = context.Barrier(WRITERS), context.Queue(), uuid.uuid4().hex
    opened(location, dataset).close()
    workers = [
        context.Process(target=_process, args=(location, dataset, count // WRITERS, queueing, start, results))
        for _ in range(WRITERS)
    ]
    for worker in workers:
        worker.start()
    told = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    seconds = max(end for _, end, _ in told) - min(begin for begin, _, _ in told)
    waits = [wait for _, _, each in told for wait in each]
    return report(name, len(waits), seconds, waits)


def timed(name: str, count: int, run: Callable[[], object]) -> None:
    begin = time.perf_counter()
    run()
    report(name, count, time.perf_counter() - begin)


def measured(count: int, folder: Path, *, small: bool) -> float:
    """Measure everyone; return the rate of bare sqlite3."""
    TOLD.clear()
    syncs(folder, count // 4)
    floor = bare(folder, count // 4)
    with opened(str(folder / "one.ledger")) as ledger:
        begin = time.perf_counter()
        waits = write(ledger, count // 4)
        report("ledger file, one writer", len(waits), time.perf_counter() - begin, waits)
    threads("ledger file, 8 threads", str(folder / "threads.ledger"), count)
    processes("ledger file, 8 processes", str(folder / "processes.ledger"), count)
    if not small:
        processes("ledger file, 8 processes not queueing", str(folder / "busy.ledger"), count, queueing=False)
    postgres = os.environ.get("HOLDFAST_BENCH_POSTGRES")  # a database to try as well
    if postgres:
        threads("PostgreSQL, 8 threads", postgres, count // 4)
        processes("PostgreSQL, 8 processes", postgres, count // 4)
    with opened(None) as memory:
        timed("ledger in memory, one writer", count, lambda: write(memory, count))
    with opened(str(folder / "threads.ledger")) as ledger:
        timed("re-checking at opening, entries", count, ledger.verify)
    return floor


def run(small: bool, scratch: Path) -> Found:
    """Durable commits a second, by kind and number of writers."""
    found = Found("Ledger: committed answers")
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        floor = measured(160 if small else 8_000, Path(folder), small=small)
    table = Table("Durable commits", ["writers", "a second", "median wait", "longest wait"])
    for name, told in TOLD.items():
        waits = [f"{wait * 1e3:.2f} ms" for wait in told[1:]] or ["", ""]
        table.rows.append([name, f"{told[0]:,.0f}", *waits])
    found.tables.append(table)
    found.raw = dict(TOLD)
    for name in ("ledger file, one writer", "ledger file, 8 threads", "ledger file, 8 processes"):
        goal = None if name.endswith("one writer") else 1 / 3
        found.ratio(f"{name} / bare sqlite3", TOLD[name][0] / floor, goal=goal, better="higher")
    if not small:
        longest = TOLD["ledger file, 8 processes"][2] / TOLD["ledger file, 8 processes not queueing"][2]
        found.ratio("longest wait, queueing / not queueing", longest, goal=1.0)
    found.ratio("bare sqlite3 / fsync", floor / TOLD["write 4 KB and fsync"][0], better="higher")
    return found


if __name__ == "__main__":
    main(run)
