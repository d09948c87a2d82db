"""Is asking a row source nearly as cheap as touching the rows at all?

Hypothesis: a share over 12,000 drawn rows of a float column costs at most three times the floor, which is drawing
the row numbers, `numpy.take` and one pass over what was taken, in memory and from a column folder alike, and the
ratio does not grow with the number of rows.

Refuted if any printed ratio of medians exceeds 3. Both contenders run alternately in one process with one
generator, so a busy machine slows them alike. The query compares with numpy: what an expression costs to evaluate
is another question.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from holdfast.rng import Randomness
from holdfast.rows.base import RowSource
from holdfast.rows.open import open_rows

DRAWS = 12_000


class Above:
    """The share of rows with x > 0.5, compared in numpy."""

    kind, outcomes, columns, bounds, text, identity = "share", 2, ("x",), (0.0, 1.0), "x > 0.5", "x > 0.5"

    def evaluate(self, rows: pl.DataFrame) -> np.ndarray:
        return rows.get_column("x").to_numpy() > 0.5


def alternate(contenders: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Time each contender in turn, `repeats` times, in microseconds."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in contenders.items():
            begin = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - begin) * 1e6)
    return times


def ratios(n: int, repeats: int, scratch: Path) -> None:
    rng = Randomness().generator()
    x = rng.random(n)
    path = scratch / f"{n}.parquet"
    pl.DataFrame({"x": x}).write_parquet(path)
    sources: dict[str, RowSource] = {"memory": open_rows({"x": x}), "folder": open_rows(path, progress=False)}
    query = Above()
    contenders: dict[str, Callable[[], object]] = {
        "floor": lambda: (x.take(rng.integers(0, n, DRAWS)) > 0.5).mean(),
        **{
            name: lambda source=source: source.tally(query, draws=DRAWS, mass=0.005, rng=rng)
            for name, source in sources.items()
        },
    }
    alternate(contenders, repeats // 4)  # buffers, caches and page tables
    times = alternate(contenders, repeats)
    floor = statistics.median(times["floor"])
    print(f"n = {n:>11,}   floor {floor:7.1f} us")
    for name in sources:
        median = statistics.median(times[name])
        print(f"    {name:<8}{median:8.1f} us   {median / floor:5.2f} times the floor")


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of one tally against drawing and taking the rows.")
    parser.add_argument("--small", action="store_true", help="one small table, few repetitions")
    small = parser.parse_args().small
    with tempfile.TemporaryDirectory() as scratch:
        for n in (100_000,) if small else (1_000_000, 10_000_000, 100_000_000):
            ratios(n, 40 if small else 1_000, Path(scratch))


if __name__ == "__main__":
    main()
