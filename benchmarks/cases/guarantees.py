"""What do a guarantee and a check cost in time?

Hypothesis: which guarantee certifies an answer does not show in its time (exchange over posterior, at most 1.1); a
check of all held rows costs at most 1.3 times the same scan in Polars, where the scan is what takes time, and a sampled
check at most 1.1 times an answer that draws as many rows.

Refuted if a ratio below misses its goal. Of 100,000 rows a scan takes less than everything else that a question takes
(its text, its place, its entry); that table has no goal. Polars scans the same rows in memory, text as text, the
fastest way that is known to us; the time of a check is all of it, from the text of the question to the ledger's entry,
in memory. Times are of the process's own work, all threads together: on a busy machine the clock says little about
scans this short.
"""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from time import process_time
from typing import Any

import polars as pl
from benchmarks import flights
from benchmarks.measure import Found, Table, Times, medians, rounded, shown
from benchmarks.measure import main as run_case
from benchmarks.without_location import WithoutLocation

import holdfast as hf

DRAWS, QUERIES = 12_000, 10_000
COMPLETE = ("delay", "distance", "carrier")


def own_time(contenders: dict[str, Callable[[], object]], repeats: int, block: int = 1) -> Times:
    """Time each contender in turn by the work of this process; the first turn is not counted."""
    times: Times = {name: [] for name in contenders}
    for turn in range(repeats + 1):
        for name, run in contenders.items():
            begin = process_time()
            for _ in range(block):
                run()
            if turn:
                times[name].append((process_time() - begin) / block)
    return times


def by_guarantee(found: Found, source: Any, repeats: int) -> None:
    """The same question under both guarantees of coins."""
    number = count(1)

    def asking(guarantee: str) -> Callable[[], object]:
        session = hf.Session(WithoutLocation(source), queries=QUERIES, guarantee=guarantee)
        return lambda: session.mean(f"delay > {15 + next(number) / 1e6:.6f}", rows_per_query=DRAWS)

    times = own_time({name: asking(name) for name in ("exchange", "posterior")}, repeats, block=20)
    middle = medians(times)
    found.raw["by guarantee"] = rounded(times)
    table = Table(f"A share from {DRAWS:,} rows, by guarantee", ["guarantee", "an answer"])
    table.rows = [[name, shown(middle[name])] for name in times]
    found.tables.append(table)
    found.ratio("exchange over posterior", middle["exchange"] / middle["posterior"], goal=1.1)


def checks(found: Found, n: int, source: Any, frame: pl.DataFrame, repeats: int, goal: float | None) -> None:
    """Checks of all rows next to scans; sampled ones next to answers, where there is a goal."""
    session = hf.Session(WithoutLocation(source), guarantee="checks")
    coins = hf.Session(WithoutLocation(source), queries=QUERIES)
    number, ua, late = count(1), pl.col("carrier") == "UA", pl.col("delay") > 15
    aa, within = pl.col("carrier") == "AA", pl.col("distance").clip(0, 5_000)

    def text() -> str:
        return f"delay > {15 + next(number) / 1e7:.7f}"

    def guess(base: float) -> float:
        return base + next(number) / 1e7

    group = {"where": "carrier = 'UA'", "at_least": n // 100}
    every: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "share of a number": (lambda: session.check(text(), 0.3, 0.01), lambda: frame.select(late.mean())),
        "share of a text": (
            lambda: session.check("carrier = 'UA'", guess(0.1), 0.01),
            lambda: frame.select(ua.mean()),
        ),
        "mean": (
            lambda: session.check("distance", guess(2_500), 20, within=(0, 5_000)),
            lambda: frame.select(within.mean()),
        ),
        "share in a group": (
            lambda: session.check(text(), 0.3, 0.01, **group),
            lambda: frame.select(late.filter(ua).mean()),
        ),
        "mean in a group": (
            lambda: session.check("distance", guess(2_500), 20, within=(0, 5_000), **group),
            lambda: frame.select(within.filter(ua).mean()),
        ),
        "difference of two groups": (
            lambda: session.check(text(), 0.0, 0.01, **group, versus="carrier = 'AA'"),
            lambda: frame.select(late.filter(ua).mean() - late.filter(aa).mean()),
        ),
    }
    table = Table(f"A check of all of {n:,} held rows, next to Polars", ["check of a", "holdfast", "Polars", "ratio"])
    for name, (ours, theirs) in every.items():
        times = own_time({"holdfast": ours, "Polars": theirs}, repeats)
        middle = medians(times)
        found.raw[f"{name}, n = {n:,}"] = rounded(times)
        ratio = middle["holdfast"] / middle["Polars"]
        table.rows.append([name, shown(middle["holdfast"]), shown(middle["Polars"]), f"{ratio:.2f}"])
        found.ratio(f"check of a {name} over Polars, n = {n:,}", ratio, goal=goal)
    found.tables.append(table)
    if goal is None:
        return
    sampled, share = hf.Session(WithoutLocation(source), guarantee="checks"), float(frame.select(late.mean()).item())
    three = {
        "a guess that holds": lambda: sampled.check(text(), share, 0.02, rows_per_query=DRAWS),
        "a wrong guess": lambda: session.check(text(), share + 0.1, 0.02, rows_per_query=DRAWS),
        "answer": lambda: coins.mean(text(), rows_per_query=DRAWS),
    }
    times = own_time(three, 2 * repeats, block=10)
    found.raw["sampled"] = rounded(times)
    middle = medians(times)
    for name in list(three)[:2]:
        ratio = middle[name] / middle["answer"]
        found.ratio(f"sampled check of {name} over an answer of {DRAWS:,} rows", ratio, goal=1.1)


def run(small: bool, scratch: Path) -> Found:
    """Guarantees and checks."""
    found = Found("Guarantees and checks")
    sizes = (200_000, 20_000) if small else (10_000_000, 100_000)
    for n in sizes:
        path = flights.parquet(scratch, n)
        source = hf.open(path, progress=False, complete=COMPLETE)
        frame = pl.read_parquet(path).rechunk().with_columns(pl.col("carrier").cast(pl.String))
        if n == sizes[0]:
            by_guarantee(found, source, 2 if small else 25)
        checks(found, n, source, frame, 2 if small else 15, 1.3 if n == sizes[0] else None)
    return found


if __name__ == "__main__":
    run_case(run)
