"""What does a check cost, compared with the same scan by Polars and with an answer by coins?

Hypothesis: a check of all held rows, from the question to the committed response, takes at most 1.3 times as long as
Polars takes for the same share or mean of the same rows in memory, from 10^7 rows on; a check of 12,000 sampled rows
takes at most 1.1 times as long as an answer by coins from as many.

Refuted if a ratio of medians below is larger. Contenders take turns in one process. Polars scans with as many threads
as there are cores, and so does a check. Ledgers are in memory, so that neither waits for a disk; every check is a new
one, of a text that was parsed before, and so is every answer.
"""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from benchmarks.measure import Found, Table, Times, alternate, main, medians, rounded, shown

import holdfast as hf

DRAWS, GUESS = 12_000, 0.4
col = pl.col
SCANS: dict[str, tuple[str, dict[str, Any], pl.Expr]] = {
    "share of a number": ("x > 0.3", {}, (col("x") > 0.3).mean()),
    "share of a number, some missing": ("m > 0.3", {}, (col("m") > 0.3).mean()),
    "share of two conditions": ("x > 0 AND i > 100", {}, ((col("x") > 0) & (col("i") > 100)).mean()),
    "mean of a number": ("x", {"within": (-3, 3)}, col("x").clip(-3, 3).mean()),
    "share in a group": (
        "x > 0.3",
        {"where": "c = 'UA'", "at_least": 1_000},
        (col("x") > 0.3).filter(col("c") == "UA").mean(),
    ),
}
GOAL = {"share of a number": 1.3}


def rows(n: int) -> pl.DataFrame:
    """Return a table."""
    rng = np.random.default_rng(1)
    x, carriers = rng.normal(size=n), np.array(["UA", "AA", "DL", "WN"])
    missing = pl.when(col("x") > 2).then(None).otherwise(col("x")).alias("m")
    columns = {"x": x, "i": rng.integers(0, 1_000, n, dtype=np.int32), "c": carriers[rng.integers(0, 4, n)]}
    return pl.DataFrame(columns).with_columns(missing)


def scans(found: Found, n: int, repeats: int) -> None:
    """All rows."""
    frame = rows(n)
    table = Table(f"A check of all {n:,} rows", ["what is checked", "check", "Polars", "ratio"])
    with hf.Session(frame, guarantee="checks", seed=1, complete=["x", "i", "c"]) as session:
        for name in SCANS:
            times = scan(session, frame, name, repeats)
            middle = medians(times)
            ratio = middle["check"] / middle["polars"]
            table.rows.append([name, shown(middle["check"]), shown(middle["polars"]), f"{ratio:.2f}"])
            goal = GOAL.get(name) if n >= 10**7 else None
            found.ratio(f"a check / the same scan by Polars, {name}, n = {n:,}", ratio, goal=goal)
            found.raw[f"{name}, n = {n:,}"] = rounded(times)
    found.tables.append(table)


def scan(session: hf.Session, frame: pl.DataFrame, name: str, repeats: int) -> Times:
    """Check something again and again, each time with another margin; and scan."""
    (text, options, expression), numbers = SCANS[name], count(1)
    contenders: dict[str, Callable[[], object]] = {
        "check": lambda: session.check(text, GUESS, 0.3 + next(numbers) / 1e9, **options),
        "polars": lambda: frame.lazy().select(expression).collect(),
    }
    return alternate(contenders, repeats, warm=2)


def sampled(found: Found, n: int, repeats: int) -> None:
    """Few rows."""
    frame = rows(n).select("x")
    texts = [f"x > {number / 1e6:.6f}" for number in range(3 * repeats)]
    asked, checked = iter(texts), iter(texts)
    with hf.Session(frame, queries=100_000, seed=1) as coins, hf.Session(frame, guarantee="checks", seed=1) as held:
        for text in texts:
            coins.price(text, rows_per_query=DRAWS)
            held.price(text, "check", guess=GUESS, margin=0.3, rows_per_query=DRAWS)
        contenders: dict[str, Callable[[], object]] = {
            "coins": lambda: coins.mean(next(asked), rows_per_query=DRAWS),
            "check": lambda: held.check(next(checked), GUESS, 0.3, rows_per_query=DRAWS),
        }
        times = alternate(contenders, repeats, warm=repeats // 4)
    middle = medians(times)
    ratio = middle["check"] / middle["coins"]
    table = Table(f"{DRAWS:,} sampled rows of {n:,}", ["check", "answer by coins", "ratio"])
    table.rows.append([shown(middle["check"]), shown(middle["coins"]), f"{ratio:.2f}"])
    found.tables.append(table)
    found.ratio(f"a sampled check / an answer by coins, n = {n:,}", ratio, goal=1.1)
    found.raw["sampled"] = rounded(times)


def run(small: bool, scratch: Path) -> Found:
    """Times of checks."""
    found = Found("Checks: a scan, and a sample")
    for n in (200_000,) if small else (1_000_000, 10_000_000):
        scans(found, n, 5 if small else 15)
    sampled(found, 100_000 if small else 1_000_000, 40 if small else 200)
    return found


if __name__ == "__main__":
    main(run)
