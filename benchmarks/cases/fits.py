"""Are whole fits a matter of seconds, and how many rows should a step read?

Hypothesis: odd against even digits on a million rows take less than two seconds; ten digits, one against the rest, on
four million rows less than twenty; both within two points of scikit-learn's accuracy. At a fixed number of coins for
each coordinate, 3,000 rows a step take less time than 1,000 and lose no accuracy worth mentioning.

Refuted if a printed time is above its goal. Rows are resampled from scikit-learn's digits, so the population is known:
accuracy is that on the 1,797 originals, to which scikit-learn itself is fitted. Packs are made during the fit and
counted. Beside them, on fewer rows, which they read again and again: scikit-learn, diffprivlib (epsilon 1, one fit, no
session), and descent on noisy full gradients, its steps doubled until it takes three times as long. Seconds are those
of this machine, with whatever else it does; processor time stands beside them. The floor draws row numbers, gathers the
same lines from a row-major array in single precision, and multiplies once.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from benchmarks import diffpriv
from benchmarks.measure import Found, Table, main

import holdfast as hf
from holdfast.lab.baselines import FullGradient
from holdfast.optimize.descent import Descent
from holdfast.optimize.objective import Ball
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


def reference(two: bool, *, most: int) -> float:
    """Return the accuracy of scikit-learn's own fit to the population."""
    from sklearn.linear_model import LogisticRegression as Plain

    pixels, digit = digits()
    target = digit % 2 if two else digit
    return float(Plain(C=1e3, max_iter=most).fit(pixels / 16, target).score(pixels / 16, target))


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


def beside(n: int, coins: int, *, small: bool) -> Table:
    """Fit the same rows by other means, odd or even; from 0 to 16 stretched to -1 to 1, as holdfast does."""
    from sklearn.linear_model import LogisticRegression as Plain

    pixels, digit = digits()
    columns = table(n, 2)
    names = [f"p{j}" for j in range(PIXELS)]
    x, y = np.column_stack([columns[name] for name in names]) / 8.0 - 1.0, columns["odd"]
    compared = Table(f"Odd or even, {n:,} rows", ["contender", "seconds", "rows read", "accuracy", "promise"])
    accuracy, ours, _, draws = fitted(hf.open(columns), two=True, coins=coins, step=3_000)
    promise = "loss and accuracy of the population, in a session that goes on"
    compared.rows.append(["holdfast", f"{ours:.1f}", f"{draws:,}", f"{accuracy:.3f}", promise])

    def tell(name: str, seconds: float, point: Any, read: str, promise: str) -> None:
        right = ((pixels / 8.0 - 1.0) @ point[:-1] + point[-1] > 0) == (digit % 2 == 1)
        compared.rows.append([name, f"{seconds:.1f}", read, f"{right.mean():.3f}", promise])

    begin = time.perf_counter()
    model = Plain(C=1e3, max_iter=100).fit(x, y)
    seconds = time.perf_counter() - begin
    tell("scikit-learn", seconds, [*model.coef_[0], *model.intercept_], f"{n:,}, {model.n_iter_[0]} times", "none")
    private = diffpriv.fit(x, y, make=not small)
    if private is None:
        compared.rows.append(["diffprivlib", "not installed here", "", "", ""])
    else:
        tell("diffprivlib, epsilon 1", private[0], private[1], f"{n:,}, up to 200 times", "privacy of one fit")
    rows, domain = hf.open(columns), Ball(20.0, PIXELS + 1)
    objective = hf.losses.Logistic(dict.fromkeys(names, (0, 16)), target="odd").bind(rows.schema, domain)
    steps, spent = 5, 0.0
    while spent < 3 * ours:
        begin = time.perf_counter()
        oracle = FullGradient(objective, n, sigma=0.5 / np.sqrt(n))
        ended = Descent(objective, domain, oracle, steps, "suffix").run(rows, Randomness().generator())
        spent, steps = time.perf_counter() - begin, 2 * steps
    order = [objective.names.index(name) for name in names]
    point = [*ended.point[order], ended.point[-1]]
    tell(f"noisy full gradients, {steps // 2} steps", spent, point, f"{n * steps // 2:,}", "by its noise")
    return compared


def floor(n: int, draws: int) -> float:
    """Return the seconds that gathering as many lines takes, in pieces that fit into the cache."""
    rng, piece = Randomness().generator(), 4_000
    packed = np.ones((n, PIXELS + 1), np.float32)  # zeros would be one page of memory, again and again
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
        whole.rows.append([*row, f"{accuracy:.3f}", f"{reference(two, most=30 if small else 3_000):.3f}"])
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
    found.tables.append(beside(million // 5, coins, small=small))
    return found


if __name__ == "__main__":
    main(run)
