"""What an analyst wants, the call, its price, and how wide the answer is beside the interval that ignores looking.

Asked of made-up flights, as many as left New York in 2013. The naive interval is that of a textbook, at 95 % for one
question that was fixed beforehand; those of the library hold for 500 questions chosen one after another.
"""

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import polars as pl

import holdfast as hf
from holdfast.lab import flights

ROWS, QUESTIONS = 336_776, 500
DECLARED: dict[str, Any] = {
    "bounds": {"dep_delay": (-60, 600), "distance": (0, 5000)},
    "categories": {"carrier": [each.name for each in flights.CARRIERS]},
}
Z = 1.96
Naive = Callable[[pl.DataFrame], list[float]]


def _mean(of: pl.Expr) -> Naive:
    return lambda rows: [Z * float(rows.select(of.cast(float).std()).item()) / sqrt(rows.height)]


def _in_groups(of: pl.Expr) -> Naive:
    grouped = lambda rows: rows.group_by("carrier").agg(of.cast(float).std() / of.count().sqrt())  # noqa: E731
    return lambda rows: [Z * x for x in grouped(rows).to_series(1)]


def _shares(rows: pl.DataFrame) -> list[float]:
    shares = rows.get_column("carrier").value_counts(normalize=True).get_column("proportion")
    return [Z * sqrt(p * (1 - p) / rows.height) for p in shares]


def _difference(rows: pl.DataFrame) -> list[float]:
    parts = [rows.filter(pl.col("hour") >= 18), rows.filter(pl.col("hour") < 18)]
    return [Z * sqrt(sum(float((part["dep_delay"] > 15).cast(float).var()) / part.height for part in parts))]  # type: ignore[arg-type]


def _median(rows: pl.DataFrame) -> list[float]:
    off = Z * sqrt(0.25 / rows.height)
    low, high = (rows.get_column("dep_delay").quantile(0.5 + sign * off) for sign in (-1, 1))
    return [float((high or 0) - (low or 0)) / 2]


def _spread(rows: pl.DataFrame) -> list[float]:
    x = rows.get_column("dep_delay").to_numpy()
    x = x - x.mean()
    return [Z * sqrt(float((x**4).mean() - (x**2).mean() ** 2) / rows.height) / (2 * float(x.std()))]


def _correlation(rows: pl.DataFrame) -> list[float]:
    r = float(np.corrcoef(rows.get_column("hour"), rows.get_column("distance"))[0, 1])
    return [Z * (1 - r * r) / sqrt(rows.height)]


def _times(scale: float, naive: Naive) -> Naive:
    return lambda rows: [scale * x for x in naive(rows)]


LATE = pl.col("dep_delay") > 15
WANTED: list[tuple[str, str, Naive]] = [
    ("a share", 's.mean("dep_delay > 15")', _mean(LATE)),
    ("a share in each group", 's.mean("dep_delay > 15", by="carrier")', _in_groups(LATE)),
    ("how much two groups differ", 's.difference("dep_delay > 15", "hour >= 18")', _difference),
    ("the share of each category", 's.histogram("carrier")', _shares),
    ("a mean", 's.mean("distance")', _mean(pl.col("distance"))),
    ("a mean with a long tail", 's.mean("dep_delay")', _mean(pl.col("dep_delay"))),
    ("the same in slices", 's.mean("dep_delay", slices=[0, 60, 240])', _mean(pl.col("dep_delay"))),
    ("a median", 's.quantile("dep_delay", 0.5)', _median),
    ("a standard deviation", 's.std("dep_delay")', _spread),
    ("a correlation", 's.correlation("hour", "distance", within=(5, 22))', _correlation),
    ("how many", 's.count("dep_delay > 15")', _times(ROWS, _mean(LATE))),
    ("a total", 's.total("distance")', _times(ROWS, _mean(pl.col("distance")))),
]


def table() -> str:
    """Ask each and write a line for it; for several groups, the narrowest and the widest."""
    rows = flights.draw(ROWS, np.random.default_rng(1), signals=0)
    opened = hf.open(rows, complete=rows.columns)
    lines = ["| wanted | call | answers | ± | naive ± |", "|---|---|---|---|---|"]
    with hf.Session(opened, queries=QUESTIONS, seed=1, **DECLARED) as session:
        for wanted, call, naive in WANTED:
            answer = eval(call, {"s": session})
            half = [(estimate.high - estimate.low) / 2 for _, estimate in answer.rows()]
            lines.append(f"| {wanted} | `{call}` | {answer.cost} | {_written(half)} | {_written(naive(rows))} |")
    return "\n".join(lines) + "\n"


def _written(half: list[float]) -> str:
    least, most = f"{min(half):.2g}", f"{max(half):.2g}"
    least, most = (f"{float(x):,.0f}" if float(x) >= 100 else x for x in (least, most))
    return least if len(half) == 1 else f"{least} to {most}"
