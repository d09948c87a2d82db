"""How many answers a second can be reserved and committed, all durable, by one writer and by eight of one ledger?

Hypothesis: on two cores and a disk that syncs 2,000 times a second or more, one writer commits at least 0.7 times as
often as bare sqlite3 with the same settings (write-ahead log, synchronous=FULL, BEGIN IMMEDIATE) and one narrow table;
8 writers, threads or processes, commit at least 1,000 times a second, at least a third as often; and queueing on a lock
file keeps the longest wait below that of SQLite's own sleeping, at little cost in rate. Where one writer falls short,
"the ledger's tables" tells how much of it is what a ledger stores (two tables and two indexes) and how much is the work
on top (canonical text, hashes, locks).

A commit of the ledger writes four pages of 4 KB to the log (the entry, its two indexes, and where the ledger ends), one
of bare sqlite3 two. Other formats were tried. Without the index by number, three pages, a commit takes 2 to 4% less
time. With where the ledger ends inside the newest entry, two pages, 7% less, but then nothing but a witness would
notice that the newest entries are missing. Pages of 2 KB halve the bytes, which gains nothing that could be measured in
the whole; pages of 1 KB cost time. The rest is Python, about 40 us if nothing else has used the caches and 60 us after
a sync: text and hashes 17, safety looks at files 5 to 9, the place 4, the rest some 160 short calls. With two pages, a
third of that would still have to go for a ratio of 0.7.

Refuted if the ratio of one writer is below 0.7, if a printed rate of 8 queueing writers is below 1,000, if its ratio to
bare sqlite3 is below 1/3, or if the longest wait of 8 queueing processes is not below that of 8 that do not queue.
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
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import Found, Table, alternate, main

from holdfast.ledger import Cost, Drawn, Ledger, open_ledger

WRITERS = 8
BLOCK = 50  # commits; contenders take turns
TERMS = {"caps": {"charge": 10**15, "intervals": 10**12}}
COST = Cost(10_000, 1)
QUESTION = {"kind": "share", "text": "dep_delay > 15", "where": None}
RATES: dict[str, list[float]] = {}  # by name: rate, median and longest wait
PROCESSOR: dict[str, list[float]] = {}  # by name: seconds of processor time for a block of one writer's
ANSWER = {"value": 0.123456, "low": 0.1, "high": 0.15, "counts": [8_766, 1_234]}


def opened(location: str | None, dataset: str = "bench") -> Ledger:
    content = dataset if "://" in str(location) else str(location)  # one content has one ledger
    ledger = open_ledger(location, dataset=dataset, fingerprint=content)
    ledger.begin(TERMS)
    return ledger


def write(ledger: Ledger, count: int) -> list[float]:
    """Reserve and commit `count` answers; return how long each took."""
    waits = []
    for _ in range(count):
        begin = time.perf_counter()
        key = uuid.uuid4().hex
        place = ledger.reserve(COST)
        ledger.commit(Drawn(place, key=key, question=QUESTION, answer=ANSWER, cost=COST, rows_read=10_000))
        waits.append(time.perf_counter() - begin)
    return waits


def report(name: str, count: int, seconds: float, waits: Iterable[float] = ()) -> float:
    ordered = sorted(waits)
    rate = count / seconds
    RATES[name] = [rate, ordered[len(ordered) // 2], ordered[-1]] if ordered else [rate]
    return rate


def syncs(folder: Path, count: int) -> None:
    descriptor = os.open(folder / "probe", os.O_CREAT | os.O_WRONLY)
    begin = time.perf_counter()
    for _ in range(count):
        os.write(descriptor, b"x" * 4_096)
        os.fsync(descriptor)
    report("write 4 KB and fsync", count, time.perf_counter() - begin)
    os.close(descriptor)


def connected(path: Path, *statements: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", *statements):
        connection.execute(statement)
    return connection


def bare(connection: sqlite3.Connection, count: int) -> None:
    """Commit to one narrow table."""
    for _ in range(count):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO t (key, body) VALUES (?, ?)", (uuid.uuid4().hex, "x" * 400))
        connection.execute("COMMIT")


def same_tables(connection: sqlite3.Connection, count: int) -> None:
    """Commit to the ledger's tables what a ledger would, without finding, hashing and checking anything."""
    from holdfast.ledger.sqlite import SQL
    from holdfast.ledger.store import Tip

    (start,) = connection.execute("SELECT count(*) FROM holdfast_entries").fetchone()
    for seq in range(start, start + count):
        key = uuid.uuid4().hex * 2
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(SQL.append, ("bench", seq, key, "x" * 350, key, key, seq, seq))
        connection.execute(SQL.advance, (*Tip(seq, key, seq, seq, key * 8, seq, seq, seq), "bench"))
        connection.execute("COMMIT")


def with_processor_time(name: str, run: Callable[[], object]) -> None:
    """Run this, and note the processor time that it takes: it says the same beside a busy disk."""
    begin = time.process_time()
    run()
    PROCESSOR.setdefault(name, []).append(time.process_time() - begin)


def one_writer(folder: Path, count: int) -> dict[str, float]:
    """Let one writer of each kind take turns; return the ledger's median ratio to each."""
    from holdfast.ledger.sqlite import SQL
    from holdfast.ledger.store import START

    narrow = connected(folder / "bare.db", "CREATE TABLE t (seq INTEGER PRIMARY KEY, key TEXT UNIQUE, body TEXT)")
    wide = connected(folder / "wide.db", *SQL.tables)
    wide.execute(SQL.begin, ("bench", *START, "", None))
    with opened(str(folder / "one.ledger")) as ledger:
        contenders = {
            "bare sqlite3, one writer": lambda: bare(narrow, BLOCK),
            "bare sqlite3, the ledger's tables": lambda: same_tables(wide, BLOCK),
            "ledger file, one writer": lambda: write(ledger, BLOCK),
        }
        counted = {name: partial(with_processor_time, name, run) for name, run in contenders.items()}
        times = alternate(counted, max(3, count // BLOCK))
        waits = write(ledger, BLOCK)
    narrow.close()
    wide.close()
    for name, seconds in times.items():
        report(name, BLOCK, median(seconds), waits if name.startswith("ledger") else ())
    ours = times.pop("ledger file, one writer")
    return {
        name: median(other / own for other, own in zip(seconds, ours, strict=True)) for name, seconds in times.items()
    }


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

        connect = SqliteStore.connect
        SqliteStore.turn = lambda self: nullcontext()  # type: ignore
        SqliteStore.connect = lambda self, to_write=False: connect(self)  # type: ignore[method-assign]
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
    done = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    seconds = max(end for _, end, _ in done) - min(begin for begin, _, _ in done)
    waits = [wait for _, _, each in done for wait in each]
    return report(name, len(waits), seconds, waits)


def timed(name: str, count: int, run: Callable[[], object]) -> None:
    begin = time.perf_counter()
    run()
    report(name, count, time.perf_counter() - begin)


def measured(count: int, folder: Path, *, small: bool) -> dict[str, float]:
    """Measure everyone; return the ratios of one writer to bare sqlite3."""
    RATES.clear()
    PROCESSOR.clear()
    syncs(folder, count // 4)
    ratios = one_writer(folder, count // 4)
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
    return ratios


def run(small: bool, scratch: Path) -> Found:
    """Durable commits a second, by kind and number of writers."""
    found = Found("Ledger: committed answers")
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        ratios = measured(160 if small else 8_000, Path(folder), small=small)
    table = Table("Durable commits", ["writers", "a second", "median wait", "longest wait"])
    for name, (rate, *waited) in RATES.items():
        waits = [f"{wait * 1e3:.2f} ms" for wait in waited] or ["", ""]
        table.rows.append([name, f"{rate:,.0f}", *waits])
    found.tables.append(table)
    found.raw = dict(RATES)
    for name, ratio in ratios.items():
        goal = 0.7 if name == "bare sqlite3, one writer" else None
        found.ratio(f"ledger file, one writer / {name}", ratio, goal=goal, better="higher")
    ours = median(PROCESSOR.pop("ledger file, one writer"))
    for name, taken in PROCESSOR.items():
        found.ratio(f"processor time, ledger file, one writer / {name}", ours / median(taken))
    floor = RATES["bare sqlite3, one writer"][0]
    for name in ("ledger file, 8 threads", "ledger file, 8 processes"):
        found.ratio(f"{name} / bare sqlite3", RATES[name][0] / floor, goal=1 / 3, better="higher")
    if not small:
        longest = RATES["ledger file, 8 processes"][2] / RATES["ledger file, 8 processes not queueing"][2]
        found.ratio("longest wait, queueing / not queueing", longest, goal=1.0)
    found.ratio("bare sqlite3 / fsync", floor / RATES["write 4 KB and fsync"][0], better="higher")
    return found


if __name__ == "__main__":
    main(run)
