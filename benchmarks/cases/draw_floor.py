"""Is asking a row source nearly as cheap as touching the rows at all?

Hypothesis: a share over 12,000 drawn rows of a float column costs at most three times the floor, which is drawing
the row numbers, `numpy.take` and one pass over what was taken, in memory and from a column folder alike, and the
ratio does not grow with the number of rows.

Refuted if any printed ratio of medians exceeds 3. Both contenders run alternately in one process with one
generator, so a busy machine slows them alike. The query compares with numpy: what an expression costs to evaluate
is another question.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from benchmarks.measure import Found, Table, alternate, main, medians, rounded, shown

from holdfast.guarantees.statistic import OneShare, Statistic
from holdfast.queries.query import Query
from holdfast.randomness import Randomness
from holdfast.rows.open import open_rows
from holdfast.rows.source import RowSource

DRAWS = 12_000


class Above(Query):
    """The share of rows with x > 0.5, compared in numpy."""

    statistic: Statistic = OneShare()
    columns, text = ("x",), "x > 0.5"

    def evaluate(self, rows: pl.DataFrame) -> np.ndarray:
        return rows.get_column("x").to_numpy() > 0.5


def ratios(found: Found, table: Table, n: int, repeats: int, scratch: Path) -> None:
    rng = Randomness().generator()
    x = rng.random(n)
    path = scratch / f"{n}.parquet"
    pl.DataFrame({"x": x}).write_parquet(path)
    sources: dict[str, RowSource] = {"memory": open_rows({"x": x}), "folder": open_rows(path, progress=False)}
    query = Above()
    contenders: dict[str, Callable[[], object]] = {
        "floor": lambda: (x.take(rng.integers(0, n, DRAWS)) > 0.5).mean(),
        **{name: partial(source.tally, query, draws=DRAWS, mass=0.005, rng=rng) for name, source in sources.items()},
    }
    times = alternate(contenders, repeats, warm=repeats // 4)  # buffers, caches and page tables
    found.raw[f"n = {n:,}"] = rounded({name: each[::5] for name, each in times.items()})
    middle = medians(times)
    ratio = {name: middle[name] / middle["floor"] for name in sources}
    table.rows.append(
        [f"{n:,}", shown(middle["floor"]), *(f"{shown(middle[name])} ({ratio[name]:.2f}x)" for name in sources)]
    )
    for name in sources:
        found.ratio(f"tally, {name}, over floor, n = {n:,}", ratio[name], goal=3.0)


def run(small: bool, scratch: Path) -> Found:
    """Cost of one tally against drawing and taking the rows."""
    found = Found("Asking a row source")
    table = Table(f"One tally of {DRAWS:,} rows", ["n", "floor", "rows in memory", "rows in a folder"])
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        for n in (100_000,) if small else (1_000_000, 10_000_000):
            ratios(found, table, n, 20 if small else 300, Path(folder))
    found.tables.append(table)
    return found


if __name__ == "__main__":
    main(run)
