"""How many whole answers a second, 12,000 rows each and every one durable, are eight writers given by one ledger?

Hypothesis: on two cores and a disk that syncs 2,000 times a second or more, 8 processes, and 8 threads that share one
session, are given at least 1,000 answers a second: drawn, evaluated, certified, committed and synced before they are
shown.

Refuted if the rate of either is below 1,000 where the disk's own rate, measured in the same run, allows it. A
"known text" was looked at with `price` before, so that it is parsed but not in the ledger; a "new text" is also parsed
while it is asked. The goal is for both. Known texts were added after new ones had stayed below it in earlier trials
(845 to 965), to see what parsing costs.
"""

import multiprocessing
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from benchmarks.measure import Found, Table, main

import holdfast as hf

ROWS, ROWS_READ, WRITERS = 1_000_000, 12_000, 8


def syncs(folder: Path, count: int) -> float:
    """Return how often a second the disk syncs 4 KB."""
    descriptor = os.open(folder / "probe", os.O_CREAT | os.O_WRONLY)
    begin = time.perf_counter()
    for _ in range(count):
        os.write(descriptor, b"x" * 4_096)
        os.fdatasync(descriptor)
    os.close(descriptor)
    return count / (time.perf_counter() - begin)


def ask(session: hf.Session, writer: int, count: int, known: bool, start: Any, spans: Any) -> None:
    """Ask `count` questions that nobody asked before; say when, and how long each took."""
    mine = session.for_analyst(f"writer {writer}")
    texts = [f"x > 0.{writer:02d}{number:06d}1" for number in range(count)]
    mine.price("x > 0.5")  # what is imported late is imported now
    for text in texts if known else ():
        mine.price(text, rows_per_query=ROWS_READ)
    start.wait()
    begin, waits = time.time(), []
    for text in texts:
        asked = time.perf_counter()
        mine.mean(text, rows_per_query=ROWS_READ)
        waits.append(time.perf_counter() - asked)
    spans.put((begin, time.time(), waits))


def opened(folder: str) -> hf.Session:
    return hf.Session(f"{folder}/table.parquet", ledger=f"{folder}/table.ledger")


def ask_in_process(folder: str, *rest: Any) -> None:
    with opened(folder) as session:
        ask(session, *rest)


def rate(
    folder: Path, count: int, turn: int, *, writers: int, processes: bool, known: bool
) -> tuple[float, list[float]]:
    """Return answers a second of so many writers, and every wait; each turn asks questions of its own."""
    context: Any = multiprocessing.get_context("spawn")
    start, spans = context.Barrier(writers), context.Queue()
    numbers = range(turn * writers, (turn + 1) * writers)
    with opened(str(folder)) as shared:
        kind, work, first = (
            (context.Process, ask_in_process, str(folder)) if processes else (threading.Thread, ask, shared)
        )
        workers = [kind(target=work, args=(first, number, count, known, start, spans)) for number in numbers]
        for worker in workers:
            worker.start()
        finished = [spans.get() for _ in workers]
        for worker in workers:
            worker.join()
    seconds = max(end for _, end, _ in finished) - min(begin for begin, _, _ in finished)
    waits = sorted(wait for _, _, each in finished for wait in each)
    return len(waits) / seconds, waits


def run(small: bool, scratch: Path) -> Found:
    """Durable answers per second through Session, next to the disk's own rate."""
    found = Found("Committed answers")
    count, writers = (10, 2) if small else (1_000, WRITERS)
    table = Table(
        f"Answers of {ROWS_READ:,} rows, {writers} writers on one ledger file",
        ["writers", "a second", "median wait", "longest wait"],
    )
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = Path(name)
        x = np.random.default_rng(1).random(ROWS // (10 if small else 1))
        pl.DataFrame({"x": x}).write_parquet(folder / "table.parquet")
        with hf.Session(folder / "table.parquet", queries=100_000, ledger=folder / "table.ledger") as session:
            session.mean("x > 0.5", rows_per_query=ROWS_READ)  # the first answer begins the ledger and fixes the plan
        synced = syncs(folder, 40 if small else 1_000)
        table.rows.append(["write 4 KB and sync, one writer", f"{synced:,.0f}", "", ""])
        cases = [(kind, text) for kind in ("processes", "threads") for text in ("known", "new")]
        for turn, (kind, text) in enumerate(cases):
            answers, waits = rate(
                folder, count, turn, writers=writers, processes=kind == "processes", known=text == "known"
            )
            name = f"{writers} {kind}, {text} texts"
            found.raw[name] = [answers, *(float(f"{wait:.4g}") for wait in waits[:: max(1, len(waits) // 500)])]
            shown = [f"{wait * 1e3:.2f} ms" for wait in (waits[len(waits) // 2], waits[-1])]
            table.rows.append([name, f"{answers:,.0f}", *shown])
            goal = 1.0 if not small and synced >= 2_000 else None
            found.ratio(f"{name}: answers a second / 1,000", answers / 1_000, goal=goal, better="higher")
            found.ratio(f"{name}: answers a second / syncs a second", answers / synced, better="higher")
        with hf.Session(folder / "table.parquet", ledger=folder / "table.ledger") as session:
            head = session.ledger.verify()
        found.notes.append(
            f"The ledger was re-checked: {head.seq:,} answers, each once."
            " Threads share one session and one interpreter, so two cores help them little."
        )
    found.tables.append(table)
    return found


if __name__ == "__main__":
    main(run)
