"""Is a descent step nearly as cheap as touching its rows at all? And does a whole fit stay far below one epoch a step?

Hypothesis: one step of 65 coordinates and 100 coins each costs at most three times the floor, which is gathering the
same number of rows from one row-major array in single precision with `numpy.take` and one matrix product; it makes at
least five million draws a second; and a whole fit on a million rows with 20 features ends in seconds, having read fewer
rows than one pass over the data takes.

Refuted if the printed ratio of medians exceeds 3, if there are fewer draws a second, or if the fit reads more rows than
there are. The contenders take turns in one process with one generator, so a busy machine slows them alike. A turn is
ten steps in a row, as a fit takes them; "the first" is its first step, which finds the others' rows in the caches,
as happens once in a fit. The floor is generous to numpy: it draws no coins, scales nothing and checks nothing. "By
columns" gathers the same numbers one column after the other: what a step would cost without packed rows.
"""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
from benchmarks.measure import Found, Table, alternate, main, medians, rounded, shown

import holdfast as hf
from holdfast.optimize.gradient import CoinGradient
from holdfast.optimize.objective import Ball
from holdfast.randomness import Randomness

FEATURES, COINS, IN_A_ROW = 64, 100, 10


def table(n: int, features: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    columns = {f"x{j}": rng.uniform(-1, 1, n) for j in range(features)}
    slope = sum((-1) ** j * column for j, column in enumerate(columns.values()))
    return columns | {"y": rng.random(n) < 1 / (1 + np.exp(-slope))}


def loss(features: int) -> hf.losses.Logistic:
    return hf.losses.Logistic({f"x{j}": (-1, 1) for j in range(features)}, target="y")


def step(found: Found, steps: Table, n: int, repeats: int) -> None:
    data = table(n, FEATURES)
    source, rng = hf.open(data), Randomness().generator()
    objective = loss(FEATURES).bind(source.schema, Ball(5.0, FEATURES + 1))
    oracle = CoinGradient(objective, COINS, 0.01)
    point = np.linspace(-0.5, 0.5, FEATURES + 1)
    columns = [column.astype(np.float64) for column in data.values()]
    packed = np.column_stack(columns).astype(np.float32)
    matrix, lines = np.empty((len(columns), oracle.rows_read)), np.empty((oracle.rows_read, len(columns)), np.float32)

    def floor() -> np.ndarray:
        packed.take(rng.integers(0, n, oracle.rows_read), axis=0, out=lines, mode="clip")
        return lines.astype(np.float64) @ point

    def by_columns() -> np.ndarray:
        rows = rng.integers(0, n, oracle.rows_read)
        for j, column in enumerate(columns):
            column.take(rows, out=matrix[j], mode="clip")
        return point @ matrix

    contenders: dict[str, Callable[[], object]] = {
        "floor": floor,
        "by columns": by_columns,
        "step": lambda: oracle(point, source, rng),
    }
    while source._packs._kept == {}:  # made once so many rows have been drawn
        oracle(point, source, rng)
    alternate(contenders, repeats // 4, block=IN_A_ROW)  # buffers, caches and page tables
    times = alternate(contenders, repeats, block=IN_A_ROW)
    found.raw[f"step, n = {n:,}"] = rounded(times)
    middle, first = medians(times), median(times["step"][::IN_A_ROW])
    ratio = middle["step"] / middle["floor"]
    rate = oracle.rows_read / middle["step"]
    million = [f"{oracle.rows_read / seconds / 1e6:.2f}" for seconds in (middle["step"], first)]
    steps.rows.append([f"{n:,}", *(shown(middle[name]) for name in contenders), f"{ratio:.2f}", *million])
    found.ratio(f"step over floor, n = {n:,}", ratio, goal=3.0)
    found.ratio(f"seconds for five million draws, n = {n:,}", 5e6 / rate, goal=1.0)


def fit(found: Found, n: int) -> None:
    with hf.Session(table(n, 20), queries=2_000) as session:
        begin = time.perf_counter()
        answer = session.minimize(loss(20), radius=6, average="suffix")
        seconds = time.perf_counter() - begin
    whole = Table(f"A whole fit, n = {n:,}, 20 features", ["seconds", "steps", "rows read", "one epoch a step"])
    whole.rows.append(
        [f"{seconds:.2f}", f"{answer.iterations:,}", f"{answer.rows_read:,}", f"{n * answer.iterations:,}"]
    )
    found.tables.append(whole)
    found.raw["fit"] = {"seconds": seconds, "steps": answer.iterations, "rows": answer.rows_read}
    if n >= 1_000_000:
        found.ratio(f"rows read / rows there, n = {n:,}", answer.rows_read / n)


def run(small: bool, scratch: Path) -> Found:
    """Cost of a descent step against gathering its rows."""
    found = Found("A descent step")
    steps = Table(
        f"One step, {FEATURES + 1} coordinates, {COINS} coins each",
        ["n", "floor", "by columns", "step", "times the floor", "million draws a second", "the first"],
    )
    for n in (20_000,) if small else (100_000, 1_000_000):
        step(found, steps, n, 4 if small else 20)
    found.tables.append(steps)
    fit(found, 20_000 if small else 1_000_000)
    return found


if __name__ == "__main__":
    main(run)
