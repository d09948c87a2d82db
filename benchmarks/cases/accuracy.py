"""Where does the accuracy of ten digits go: to coins, to their number, to the ball, or to packing?

Hypothesis: a fit by coins is within two points of exact gradients of the population with the same steps in the same
ball; more coins bring it nearer; and packed rows change no weight by a single bit.

Refuted if a weight differs, or the difference is larger. One million rows are resampled from scikit-learn's digits, so
the population is known: accuracy is that on the 1,797 originals, one digit against the rest. Exact gradients show what
coins cost, scikit-learn what fitting without a ball, or ten classes at once, is worth. "The same rows by column" is the
fit of one digit, seeded, without packs: what differs is the time. Everybody has one core.
"""

import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # read at import

import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
from benchmarks.cases.fits import PIXELS, digits, table
from benchmarks.measure import Found, Table, main

import holdfast as hf
from holdfast.optimize.descent import Descent
from holdfast.optimize.objective import Ball
from holdfast.randomness import Randomness
from holdfast.rows.disk import packs
from holdfast.sklearn import LogisticRegression

RADIUS, ELL, COINS = 15.0, 46, 120_000
NAMES = [f"p{j}" for j in range(PIXELS)]


def fitted(rows: Any, coins: int, classes: Any, seed: int | None = None) -> tuple[LogisticRegression, float]:
    """Fit; return the model, and seconds of the processor."""
    model = LogisticRegression(bounds=(0, 16), radius=RADIUS, iterations=max(1, coins // ELL), rows_per_coordinate=ELL)
    with hf.Session(rows, queries=400, guarantee="exchange", seed=seed) as session:
        begin = time.process_time()
        model.fit_session(session, NAMES, "digit", classes=list(classes))
        return model, time.process_time() - begin


def of_exact_gradients(schema: Any, steps: int) -> float:
    """Return the accuracy of descent on the population's own gradients."""
    pixels, digit = digits()
    lines = np.column_stack([pixels / 8.0 - 1.0, np.ones(len(pixels))])
    domain, scores = Ball(RADIUS, PIXELS + 1), []
    for one in range(10):
        objective = hf.losses.Logistic(dict.fromkeys(NAMES, (0, 16)), target=f"digit = {one}").bind(schema, domain)

        def gradient(point: Any, *_: object, yes: Any = digit == one) -> Any:
            return lines.T @ (1 / (1 + np.exp(-lines @ point)) - yes) / len(lines)

        run = Descent(objective, domain, gradient, steps, "suffix")  # type: ignore[arg-type]
        scores.append(lines @ run.run(None, Randomness().generator()).point)  # type: ignore[arg-type]
    return float((np.argmax(scores, axis=0) == digit).mean())


def run(small: bool, scratch: Path) -> Found:
    """Ten digits by coins, by exact gradients, and by scikit-learn; packed and by column."""
    from sklearn.linear_model import LogisticRegression as Plain
    from sklearn.multiclass import OneVsRestClassifier

    found, pixels, digit = Found("Accuracy of fits"), *digits()
    n, coins = (20_000, 600) if small else (1_000_000, COINS)
    columns = table(n, 1)
    rows, steps, ball = hf.open(columns), coins // ELL, f"norm at most {RADIUS:g}"
    goes = Table(f"Ten digits, {n:,} rows", ["fit", "ball", "accuracy", "processor seconds"])
    right = {}
    for times in (1, 2):
        model, worked = fitted(rows, times * coins, range(10))
        right[times] = float((model.predict(pl.DataFrame(pixels, NAMES)) == digit).mean())
        goes.rows.append([f"{times * coins:,} coins a coordinate", ball, f"{right[times]:.3f}", f"{worked:.1f}"])
    exact = of_exact_gradients(rows.schema, steps)
    goes.rows.append([f"exact gradients of the population, {steps:,} steps", ball, f"{exact:.3f}", ""])
    plain = Plain(C=1e3, max_iter=30 if small else 3_000)
    for name, other in (("one against the rest", OneVsRestClassifier(plain)), ("ten at once", plain)):
        score = other.fit(pixels / 16, digit).score(pixels / 16, digit)
        goes.rows.append([f"scikit-learn, {name}", "none", f"{score:.3f}", ""])
    packed, quick = fitted(rows, coins // 4, [0, 1], seed=1)
    with mock.patch.object(packs, "MOST_BYTES", 0):
        by_column, slow = fitted(hf.open(columns), coins // 4, [0, 1], seed=1)
    apart = float(np.abs(packed.coef_ - by_column.coef_).max())
    goes.rows.append([f"one digit, {coins // 4:,} coins, seeded", ball, "", f"{quick:.1f}"])
    same = "the same to the last bit" if apart == 0 else f"weights differ by up to {apart:.1e}"
    goes.rows.append(["the same rows by column", ball, same, f"{slow:.1f}"])
    found.tables.append(goes)
    found.raw = {"coins": right, "exact": exact, "packed": quick, "by column": slow}
    found.ratio("largest difference of a weight, packed or by column", apart, goal=0.0)
    if not small:
        found.ratio("points of accuracy below exact gradients", 100 * (exact - right[1]), goal=2.0)
    return found


if __name__ == "__main__":
    main(run)
