"""How many answers a second can be committed, all durable, when eight writers share one ledger?

Hypothesis: on two cores and a disk that syncs 2,000 times a second or more, 8 writers, threads or processes, commit at
least 1,000 times a second, at least a third as often as one writer with bare sqlite3 and the same settings; and
queueing on a lock file keeps the longest wait below that of SQLite's own sleeping, at little cost in rate.

Refuted if a printed rate of 8 queueing writers is below 1,000, if its ratio to bare sqlite3 is below 1/3, or if the
longest wait of 8 queueing processes is not below that of 8 processes that do not queue.
"""

import argparse
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

from holdfast.ledger import Cost, Ledger, open_ledger

WRITERS = 8
TERMS = {"caps": {"flips": 10**15, "intervals": 10**12}}
QUESTION = {"kind": "share", "text": "dep_delay > 15", "where": None}
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
    tail = (
        f"   median {ordered[len(ordered) // 2] * 1e3:7.2f} ms, longest {ordered[-1] * 1e3:7.1f} ms" if ordered else ""
    )
    print(f"{name:<38}{count / seconds:>10,.0f} a second{tail}")
    return count / seconds


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


def main() -> None:
    parser = argparse.ArgumentParser(description="Durable commits a second, by kind and number of writers.")
    parser.add_argument("--small", action="store_true", help="few commits")
    parser.add_argument("--folder", help="where to write: a folder on the disk in question")
    parser.add_argument("--postgres", help="URL of a PostgreSQL database to try as well")
    options = parser.parse_args()
    count = 400 if options.small else 16_000
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        folder = Path(scratch)
        syncs(folder, count // 4)
        floor = bare(folder, count // 4)
        with opened(str(folder / "one.ledger")) as ledger:
            begin = time.perf_counter()
            waits = write(ledger, count // 4)
            report("ledger file, one writer", len(waits), time.perf_counter() - begin, waits)
        rates = [
            threads("ledger file, 8 threads", str(folder / "threads.ledger"), count),
            processes("ledger file, 8 processes", str(folder / "processes.ledger"), count),
        ]
        processes("ledger file, 8 processes not queueing", str(folder / "busy.ledger"), count, queueing=False)
        print("    8 writers against bare sqlite3: " + ", ".join(f"{rate / floor:.2f}" for rate in rates))
        if options.postgres:
            threads("PostgreSQL, 8 threads", options.postgres, count // 4)
            processes("PostgreSQL, 8 processes", options.postgres, count // 4)
        with opened(None) as memory:
            timed("ledger in memory, one writer", count, lambda: write(memory, count))
        with opened(str(folder / "threads.ledger")) as ledger:
            timed("re-checking at opening, entries", count, ledger.verify)


if __name__ == "__main__":
    main()
