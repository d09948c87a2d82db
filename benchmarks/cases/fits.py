"""Are whole fits a matter of seconds, and how many rows should a step read?

Hypothesis: odd against even digits on a million rows take less than two seconds; ten digits, one against the rest, on
four million rows less than twenty; both within two points of scikit-learn's accuracy. At a fixed number of coins for
each coordinate, 3,000 rows a step take less time than 1,000 and lose no accuracy worth mentioning. Packed rows change
no fit by a single bit.

Refuted if a printed time is above its goal, or a weight differs. Rows are resampled from scikit-learn's digits, so the
population is known: accuracy is that on the 1,797 originals, to which scikit-learn itself is fitted. Packs are made
during the fit and counted. Where the accuracy of ten digits goes: exact gradients of the population, with the same
steps in the same ball, show what coins cost; more coins, how they pay; scikit-learn, what fitting without a ball is
worth. "The same rows by column" repeats the fit of one digit, seeded, without packs: what differs is the time.

Beside them, on fewer rows, which they read again and again: scikit-learn, diffprivlib (epsilon 1, one fit, no session),
and descent on noisy full gradients, its steps doubled until it takes three times as long. Seconds are those of this
machine, with whatever else it does; processor time stands beside them. The floor draws row numbers, gathers the same
lines from a row-major array in single precision, and multiplies once.
"""

import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
from benchmarks import diffpriv
from benchmarks.measure import Found, Table, main

import holdfast as hf
from holdfast.lab.full_gradient import FullGradient
from holdfast.optimize.descent import Descent
from holdfast.optimize.domain import Ball
from holdfast.randomness import Randomness
from holdfast.rows import packs
from holdfast.sklearn import LogisticRegression

PIXELS, COINS, ROWS_A_STEP = 64, 100_000, (1_000, 3_000, 6_000, 12_000)
USUAL = 3_000  # rows a step
RADIUS = {"odd": 20.0, "digit": 15.0}
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


NAMES = [f"p{j}" for j in range(PIXELS)]


def fitted(
    rows: Any, target: str, *, coins: int, step: int = USUAL, seed: int | None = None, classes: Any = range(10)
) -> tuple[LogisticRegression, float, float]:
    """Fit; return the model, seconds, and seconds of the processor."""
    ell = max(1, step // (PIXELS + 1))
    model = LogisticRegression(
        bounds=(0, 16), radius=RADIUS[target], iterations=max(1, coins // ell), rows_per_coordinate=ell
    )
    with hf.Session(rows, queries=400, guarantee="exchange", seed=seed) as session:
        begin, worked = time.perf_counter(), time.process_time()
        if target == "odd":
            model.fit_session(session, NAMES, "odd")
        else:
            model.fit_session(session, NAMES, "digit", classes=list(classes))
        seconds, worked = time.perf_counter() - begin, time.process_time() - worked
    return model, seconds, worked


def accuracy(model: LogisticRegression) -> float:
    """Return how often the model is right on the population."""
    pixels, digit = digits()
    predicted = model.predict(pl.DataFrame(pixels, NAMES))
    return float((predicted == (digit % 2 == 1 if len(model.classes_) == 2 else digit)).mean())


def drawn(model: LogisticRegression) -> int:
    """Return how many rows the fits of a model drew."""
    return sum(answer.rows_read for answer in model.answers_)


def of_exact_gradients(schema: Any, steps: int) -> float:
    """Return the accuracy of ten digits by descent on the population's own gradients."""
    pixels, digit = digits()
    lines = np.column_stack([pixels / 8.0 - 1.0, np.ones(len(pixels))])
    domain, scores = Ball(RADIUS["digit"], PIXELS + 1), []
    for one in range(10):
        objective = hf.losses.Logistic(dict.fromkeys(NAMES, (0, 16)), target=f"digit = {one}").bind(schema, domain)

        def gradient(point: Any, *_: object, yes: Any = digit == one) -> Any:
            return lines.T @ (1 / (1 + np.exp(-lines @ point)) - yes) / len(lines)

        run = Descent(objective, domain, gradient, steps, "suffix")  # type: ignore[arg-type]
        scores.append(lines @ run.run(None, Randomness().generator()).point)  # type: ignore[arg-type]
    return float((np.argmax(scores, axis=0) == digit).mean())


def where_accuracy_goes(found: Found, n: int, coins: int, measured: float, more: int) -> Table:
    """Say what coins, their number, packing and the ball each cost the ten digits."""
    from sklearn.linear_model import LogisticRegression as Plain
    from sklearn.multiclass import OneVsRestClassifier

    pixels, digit = digits()
    columns = table(n, 1)
    rows, steps = hf.open(columns), coins // (USUAL // (PIXELS + 1))
    ball = f"norm at most {RADIUS['digit']:g}"
    goes = Table("Ten digits, where the accuracy goes", ["fit", "ball", "accuracy", "processor seconds"])
    goes.rows.append([f"coins, {coins:,} a coordinate (above)", ball, f"{measured:.3f}", ""])
    model, _, worked = fitted(rows, "digit", coins=more * coins)
    goes.rows.append([f"coins, {more * coins:,}", ball, f"{accuracy(model):.3f}", f"{worked:.1f}"])
    exact = of_exact_gradients(rows.schema, steps)
    goes.rows.append([f"exact gradients of the population, {steps:,} steps as above", ball, f"{exact:.3f}", ""])
    for name, plain in (
        ("scikit-learn, one against the rest", OneVsRestClassifier(Plain(C=1e3, max_iter=3_000))),
        ("scikit-learn, ten at once", Plain(C=1e3, max_iter=3_000)),
    ):
        score = plain.fit(pixels / 16, digit).score(pixels / 16, digit)
        goes.rows.append([name, "none", f"{score:.3f}", ""])
    packed, _, quick = fitted(rows, "digit", coins=coins // 4, seed=1, classes=[0, 1])
    with mock.patch.object(packs, "MOST_BYTES", 0):
        by_column, _, slow = fitted(hf.open(columns), "digit", coins=coins // 4, seed=1, classes=[0, 1])
    apart = float(np.abs(packed.coef_ - by_column.coef_).max())
    found.raw["packed and by column"] = {"largest difference": apart, "packed": quick, "by column": slow}
    goes.rows.append([f"one digit, {coins // 4:,} coins, seeded, packed", ball, "", f"{quick:.1f}"])
    same = "the same to the last bit" if apart == 0 else f"weights differ by up to {apart:.1e}"
    goes.rows.append(["the same rows by column", ball, same, f"{slow:.1f}"])
    return goes


def beside(n: int, coins: int, *, small: bool) -> Table:
    """Fit the same rows by other means, odd or even; from 0 to 16 stretched to -1 to 1, as holdfast does."""
    from sklearn.linear_model import LogisticRegression as Plain

    pixels, digit = digits()
    columns = table(n, 2)
    x, y = np.column_stack([columns[name] for name in NAMES]) / 8.0 - 1.0, columns["odd"]
    compared = Table(f"Odd or even, {n:,} rows", ["contender", "seconds", "rows read", "accuracy", "promise"])
    fit, ours, _ = fitted(hf.open(columns), "odd", coins=coins)
    promise = "loss and accuracy of the population, in a session that goes on"
    compared.rows.append(["holdfast", f"{ours:.1f}", f"{drawn(fit):,}", f"{accuracy(fit):.3f}", promise])

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
    rows, domain = hf.open(columns), Ball(RADIUS["odd"], PIXELS + 1)
    objective = hf.losses.Logistic(dict.fromkeys(NAMES, (0, 16)), target="odd").bind(rows.schema, domain)
    steps, spent = 5, 0.0
    while spent < 3 * ours:
        begin = time.perf_counter()
        oracle = FullGradient(objective, n, sigma=0.5 / np.sqrt(n))
        ended = Descent(objective, domain, oracle, steps, "suffix").run(rows, Randomness().generator())
        spent, steps = time.perf_counter() - begin, 2 * steps
    order = [objective.names.index(name) for name in NAMES]
    point = [*ended.point[order], ended.point[-1]]
    tell(f"noisy full gradients, {steps // 2} steps", spent, point, f"{n * steps // 2:,}", "by its noise")
    return compared


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
    for target, n, many in (("odd", million, coins), ("digit", millions, coins * 6 // 5)):
        model, seconds, worked = fitted(hf.open(table(n, 1)), target, coins=many)
        name, draws, right = (
            "odd or even" if target == "odd" else "ten, one against the rest",
            drawn(model),
            accuracy(model),
        )
        row = [name, f"{n:,}", f"{draws:,}", f"{seconds:.1f}", f"{worked:.1f}", f"{floor(n, draws):.1f}"]
        whole.rows.append([*row, f"{right:.3f}", f"{reference(target == 'odd'):.3f}"])
        found.raw[name] = {"rows": n, "draws": draws, "seconds": seconds, "processor": worked, "accuracy": right}
        if not small:
            goal = GOAL_TWO if target == "odd" else GOAL_TEN
            found.ratio(f"seconds of {name} / {goal:g}", seconds / goal, goal=1.0)
    steps = Table(
        f"Odd or even, {million:,} rows, {coins:,} coins a coordinate",
        ["rows a step", "steps", "processor seconds", "accuracy"],
    )
    rows = hf.open(table(million, 1))
    fitted(rows, "odd", coins=coins)  # packs are made
    for step in ROWS_A_STEP[:2] if small else ROWS_A_STEP:
        tried = [fitted(rows, "odd", coins=coins, step=step, seed=seed) for seed in ((1,) if small else (1, 2))]
        accuracies, times = [accuracy(model) for model, _, _ in tried], [worked for _, _, worked in tried]
        found.raw[f"step {step}"] = {"accuracy": accuracies, "processor": times}
        steps.rows.append(
            [
                f"{step:,}",
                f"{coins // (step // (PIXELS + 1)):,}",
                f"{np.median(times):.2f}",
                f"{min(accuracies):.3f} to {max(accuracies):.3f}",
            ]
        )
    goes = where_accuracy_goes(found, million, coins * 6 // 5, right, 1 if small else 2)
    found.tables += [whole, goes, steps]
    found.tables.append(beside(million // 5, coins, small=small))
    return found


if __name__ == "__main__":
    main(run)
