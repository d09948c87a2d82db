"""How do time and rows grow with the table and with the number of questions?

Hypothesis: while the table grows 10,000 times, the time of an answer from 12,000 rows grows no more than what touching
that many rows costs (draw, take, average: caches and pages, not work); the thousandth question costs what the first
did; and the rows that a plan reads in all grow slower than the rows that scans read.

Refuted if a ratio below misses its goal. The floor and a fast scan (Polars, in memory) run in turn with holdfast at
every size. The table is one column of bytes, so that 10^9 rows fit: the kindest case for a scan.
"""

from collections.abc import Callable
from pathlib import Path

import polars as pl
from benchmarks import flights
from benchmarks.cases.one_answer import FEW, TURN, Asking
from benchmarks.measure import Figure, Found, Line, Table, alternate, main, medians, rounded, shown

import holdfast as hf
from holdfast.randomness import Randomness


def by_rows(found: Found, small: bool, scratch: Path) -> None:
    """Time per answer against the number of rows."""
    sizes = (10_000, 100_000) if small else tuple(10**power for power in range(5, 10))
    table = Table(
        f"Time of one share against n, {FEW:,} rows drawn",
        ["n", "floor", "holdfast", "times the floor", "Polars scan", "scan / holdfast"],
    )
    lines = [Line(name, [], []) for name in ("holdfast", "floor", "Polars scan")]
    rng, drawn = Randomness().generator(), 3_000 if small else FEW
    for n in sizes:
        path = flights.narrow(scratch, n)
        frame, asking = pl.read_parquet(path).rechunk(), Asking(hf.open(path, progress=False))
        delay = frame["delay"].to_numpy()
        contenders: dict[str, Callable[[], object]] = {
            "floor": lambda delay=delay: (delay.take(rng.integers(0, delay.size, drawn)) > 15).mean(),  # type: ignore[misc]
            "holdfast": lambda asking=asking: asking.share(drawn),  # type: ignore[misc]
            "Polars scan": lambda frame=frame: frame.select((pl.col("delay") > 15).mean()),  # type: ignore[misc]
        }
        for _ in range(50):
            contenders["holdfast"]()
        times = alternate(contenders, 1 if small else 12, most_seconds=10.0, block=TURN)
        found.raw[f"n = {n:,}"] = rounded(times)
        middle = medians(times)
        for line in lines:
            line.x.append(n)
            line.y.append(middle[line.name])
        over = middle["holdfast"] / middle["floor"]
        table.rows.append(
            [
                f"{n:,}",
                *(shown(middle[name]) for name in ("floor", "holdfast")),
                f"{over:.2f}",
                shown(middle["Polars scan"]),
                f"{middle['Polars scan'] / middle['holdfast']:.3g}",
            ]
        )
        found.ratio(f"time over the floor, n = {n:,}", over)
    found.tables.append(table)
    found.figures.append(Figure("growth-rows", "Time of one answer", "rows in the table", "seconds", lines))
    ours, floor, _ = (line.y[-1] / line.y[0] for line in lines)
    found.ratio(f"growth from n = {sizes[0]:,} to {sizes[-1]:,}: holdfast / floor", ours / floor, goal=1.0)


def by_questions(found: Found, small: bool, scratch: Path) -> None:
    """Time per answer against how many were asked before, and rows in all against how many are planned."""
    n, pieces, each = (100_000, 4, 20) if small else (10_000_000, 8, 500)
    asking = Asking(hf.open(flights.parquet(scratch, n), progress=False))
    table = Table(f"Time of one share against the questions asked before, n = {n:,}", ["asked before", "holdfast"])
    kept = []
    for piece in range(pieces):
        contender: dict[str, Callable[[], object]] = {
            "holdfast": lambda: asking.share(3_000 if small else FEW, new=True)
        }
        times = alternate(contender, each, warm=0)
        kept.append(medians(times)["holdfast"])
        found.raw[f"after {piece * each:,} questions"] = rounded({"holdfast": times["holdfast"][::5]})
        table.rows.append([f"{piece * each:,}", shown(kept[-1])])
    found.tables.append(table)
    found.ratio("time of late questions over early ones", kept[-1] / kept[0], goal=1.5)


def rows_in_all(found: Found) -> None:
    """Rows read for a whole plan."""
    table = Table(
        "Rows read in all against k, n = 1,000,000",
        ["k", "rows a question", "holdfast", "full scans", "share of the scans"],
    )
    ours, scans = Line("holdfast", [], []), Line("full scans", [], [])
    for k in (10, 100, 1_000, 10_000, 100_000, 1_000_000):
        plan = hf.plan(rows=1_000_000, queries=k)
        total = k * plan.rows_per_query
        table.rows.append(
            [f"{k:,}", f"{plan.rows_per_query:,}", f"{total:,}", f"{k * 1_000_000:,}", f"{total / k / 1e6:.3%}"]
        )
        for line, value in ((ours, total), (scans, k * 1_000_000)):
            line.x.append(k)
            line.y.append(value)
    found.tables.append(table)
    found.figures.append(Figure("growth-questions", "Rows read in all", "questions", "rows", [ours, scans]))


def run(small: bool, scratch: Path) -> Found:
    """Growth of time and rows."""
    found = Found("Growth")
    by_rows(found, small, scratch)
    by_questions(found, small, scratch)
    rows_in_all(found)
    return found


if __name__ == "__main__":
    main(run)
