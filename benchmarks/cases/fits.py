"""Are whole fits a matter of seconds, and how many rows should a step read?

Hypothesis: odd against even digits on a million rows take less than two seconds; ten digits, one against the rest, on
four million rows less than twenty; both within two points of scikit-learn's accuracy. At a fixed number of coins for
each coordinate, 3,000 rows a step take less time than 1,000 and lose no accuracy worth mentioning.

Refuted if a printed time is above its goal. Rows are resampled from scikit-learn's digits, so the population is known:
accuracy is that on the 1,797 originals, to which scikit-learn itself is fitted. Packs are made during the fit and
counted. Seconds are those of this machine, with whatever else it does; processor time stands beside them. The floor
draws row numbers, gathers the same lines from a row-major array in single precision, and multiplies once.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from benchmarks.measure import Found, Table, main

import holdfast as hf
from holdfast.randomness import Randomness
from holdfast.sklearn import LogisticRegression

PIXELS, COINS, ROWS_A_STEP = 64, 100_000, (1_000, 3_000, 6_000, 12_000)
GOAL_TWO, GOAL_TEN = 2.0, 20.0
Columns = dict[str, np.ndarray[Any, Any]]


def digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    from sklearn.datasets import load_digits

    found: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] = load_digits(return_X_y=True)
    return found


def table(n: int, seed: int) -> Columns:
    pixels, digit = digits()
    drawn = np.random.default_rng(seed).integers(0, len(pixels), n)
    columns: Columns = {f"p{j}": pixels[drawn, j].astype(np.uint8) for j in range(PIXELS)}
    return columns | {"digit": digit[drawn].astype(np.uint8), "odd": digit[drawn] % 2 == 1}


def reference(two: bool) -> float:
    """Return the accuracy of scikit-learn's own fit to the population."""
    from sklearn.linear_model import LogisticRegression as Plain

    pixels, digit = digits()
    target = digit % 2 if two else digit
    return float(Plain(C=1e3, max_iter=3_000).fit(pixels / 16, target).score(pixels / 16, target))


def fitted(rows: Any, *, two: bool, coins: int, step: int, seed: int | None = None) -> tuple[float, float, float, int]:
    """Fit; return accuracy, seconds, seconds of the processor, and rows drawn."""
    pixels, digit = digits()
    ell = max(1, step // (PIXELS + 1))
    model = LogisticRegression(
        bounds=(0, 16), radius=20 if two else 10, iterations=max(1, coins // ell), rows_per_coordinate=ell
    )
    names = [f"p{j}" for j in range(PIXELS)]
    with hf.Session(rows, queries=400, guarantee="exchange", seed=seed) as session:
        begin, worked = time.perf_counter(), time.process_time()
        if two:
            model.fit_session(session, names, "odd")
        else:
            model.fit_session(session, names, "digit", classes=list(range(10)))
        seconds, worked = time.perf_counter() - begin, time.process_time() - worked
    predicted = model.predict(pl.DataFrame(pixels, names))
    right = predicted == (digit % 2 == 1) if two else predicted == digit
    return float(right.mean()), seconds, worked, sum(answer.rows_read for answer in model.answers_)


def floor(n: int, draws: int) -> float:
    """Return the seconds that gathering as many lines takes, in pieces that fit into the cache."""
    rng, piece = Randomness().generator(), 4_000
    packed = np.zeros((n, PIXELS + 1), np.float32)
    lines, point = np.empty((piece, PIXELS + 1), np.float32), np.zeros(PIXELS + 1)
    begin = time.perf_counter()
    for _ in range(draws // piece):
        packed.take(rng.integers(0, n, piece), axis=0, out=lines, mode="clip")
        lines.astype(np.float64) @ point
    return time.perf_counter() - begin


def run(small: bool, scratch: Path) -> Found:
    """Digits, two classes and ten; and how many rows a step should read."""
    found = Found("Whole fits")
    million, millions, coins = (20_000, 30_000, 500) if small else (1_000_000, 4_000_000, COINS)
    whole = Table("Digits", ["fit", "rows", "rows drawn", "seconds", "processor", "floor", "accuracy", "scikit-learn"])
    for two, n, many in ((True, million, coins), (False, millions, coins * 6 // 5)):
        accuracy, seconds, worked, draws = fitted(hf.open(table(n, 1)), two=two, coins=many, step=3_000)
        name = "odd or even" if two else "ten, one against the rest"
        row = [name, f"{n:,}", f"{draws:,}", f"{seconds:.1f}", f"{worked:.1f}", f"{floor(n, draws):.1f}"]
        whole.rows.append([*row, f"{accuracy:.3f}", f"{reference(two):.3f}"])
        found.raw[name] = {"rows": n, "draws": draws, "seconds": seconds, "processor": worked, "accuracy": accuracy}
        if not small:
            goal = GOAL_TWO if two else GOAL_TEN
            found.ratio(f"seconds of {name} / {goal:g}", seconds / goal, goal=1.0)
    steps = Table(
        f"Odd or even, {million:,} rows, {coins:,} coins a coordinate",
        ["rows a step", "steps", "processor seconds", "accuracy"],
    )
    rows = hf.open(table(million, 1))
    fitted(rows, two=True, coins=coins, step=3_000)  # packs are made
    for step in ROWS_A_STEP[:2] if small else ROWS_A_STEP:
        tried = [fitted(rows, two=True, coins=coins, step=step, seed=seed) for seed in ((1,) if small else (1, 2, 3))]
        found.raw[f"step {step}"] = [{"accuracy": each[0], "processor": each[2]} for each in tried]
        accuracies = [each[0] for each in tried]
        steps.rows.append(
            [
                f"{step:,}",
                f"{coins // (step // (PIXELS + 1)):,}",
                f"{np.median([each[2] for each in tried]):.2f}",
                f"{min(accuracies):.3f} to {max(accuracies):.3f}",
            ]
        )
    found.tables += [whole, steps]
    return found


if __name__ == "__main__":
    main(run)
