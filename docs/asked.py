"""The table of docs/how-to/what-to-ask.md: what an analyst wants, the call, its price, and how wide the answer is."""

import warnings
from collections.abc import Callable
from math import sqrt

import numpy as np
import polars as pl

import holdfast as hf
from holdfast.answer import AnyAnswer, write_end
from holdfast.lab import flights

ROWS, QUESTIONS = 336_776, 500
ERRORS = 1.96  # standard errors: an interval for one question that was fixed beforehand
DELAYS, DISTANCES = "within=(-60, 600)", "within=(0, 5000)"
BEFORE, AFTER = pl.col("carrier") == "UA", pl.col("carrier") == "AA"
LATE = pl.col("dep_delay") > 15

Naive = Callable[[pl.DataFrame], float]  # half the width of the usual interval


def of_mean(value: pl.Expr, where: pl.Expr | None = None) -> Naive:
    """Standard errors of a mean."""

    def width(frame: pl.DataFrame) -> float:
        values = (frame if where is None else frame.filter(where)).select(value.cast(pl.Float64)).to_series().to_numpy()
        return ERRORS * float(values.std()) / sqrt(len(values))

    return width


def both(first: Naive, second: Naive) -> Naive:
    """Standard errors of a difference of independent means."""
    return lambda frame: sqrt(first(frame) ** 2 + second(frame) ** 2)


def times(factor: float, width: Naive) -> Naive:
    """The same on another scale."""
    return lambda frame: factor * width(frame)


def of_deviation(frame: pl.DataFrame) -> float:
    """Standard errors of a standard deviation."""
    values = frame["distance"].to_numpy()
    squares = (values - values.mean()) ** 2
    return ERRORS * float(squares.std()) / (2 * float(values.std()) * sqrt(len(values)))


def of_covariance(frame: pl.DataFrame) -> float:
    """Standard errors of a covariance."""
    x, y = (frame[name].to_numpy().astype(float) for name in ("outcome", "hint"))
    return ERRORS * float(((x - x.mean()) * (y - y.mean())).std()) / sqrt(len(x))


def of_correlation(frame: pl.DataFrame) -> float:
    """Standard errors of a correlation."""
    rho = float(np.corrcoef(frame["outcome"], frame["hint"])[0, 1])
    return ERRORS * (1 - rho * rho) / sqrt(frame.height)


def of_slope(frame: pl.DataFrame) -> float:
    """Standard errors of a slope."""
    x, y = (frame[name].to_numpy().astype(float) for name in ("hint", "outcome"))
    steep = float(np.cov(x, y)[0, 1] / x.var())
    rest = (y - y.mean()) - steep * (x - x.mean())
    return ERRORS * float(rest.std() / x.std()) / sqrt(len(x))


def of_area(frame: pl.DataFrame) -> float:
    """Standard errors of the area under a ROC curve near 1/2 (Hanley and McNeil)."""
    positives = int(frame["outcome"].sum())
    return ERRORS * sqrt((frame.height + 1) / (12 * positives * (frame.height - positives)))


def of_median(frame: pl.DataFrame) -> float:
    """Half the distance of the order statistics around the median."""
    ends = (0.5 - ERRORS * 0.5 / sqrt(frame.height), 0.5 + ERRORS * 0.5 / sqrt(frame.height))
    low, high = np.quantile(frame["dep_delay"].to_numpy(), ends)
    return float(high - low) / 2


# What is wanted, how it is asked, and how wide the usual interval is.
ASKED: tuple[tuple[str, str, Naive], ...] = (
    ("a share", 's.mean("dep_delay > 15")', of_mean(LATE)),
    ("a share in a group", 's.mean("dep_delay > 15", where="carrier = \'UA\'")', of_mean(LATE, BEFORE)),
    (
        "a share in every group (the smallest, 5 %)",
        's.mean("dep_delay > 15", by="carrier", groups=["UA", "AA", "DL", "B6", "HA"])',
        of_mean(LATE, pl.col("carrier") == "HA"),
    ),
    (
        "the difference of two groups",
        's.difference("dep_delay > 15", "carrier = \'UA\'", "carrier = \'AA\'")',
        both(of_mean(LATE, BEFORE), of_mean(LATE, AFTER)),
    ),
    (
        "the difference of two conditions on the same rows",
        's.difference("dep_delay > 15", minus="dep_delay > 20")',
        of_mean(LATE.cast(pl.Int8) - (pl.col("dep_delay") > 20).cast(pl.Int8)),
    ),
    ("a mean", f's.mean("distance", {DISTANCES})', of_mean(pl.col("distance"))),
    ("a mean of a number with few large values", f's.mean("dep_delay", {DELAYS})', of_mean(pl.col("dep_delay"))),
    (
        "the same, in slices",
        f's.mean("dep_delay", {DELAYS}, slices=[0, 60, 200])',
        of_mean(pl.col("dep_delay")),
    ),
    ("a count", 's.count("dep_delay > 60", population=1_000_000)', times(1e6, of_mean(pl.col("dep_delay") > 60))),
    ("a sum", f's.total("distance", {DISTANCES}, population=1_000)', times(1e3, of_mean(pl.col("distance")))),
    ("a standard deviation", f's.std("distance", {DISTANCES})', of_deviation),
    ("a covariance", 's.covariance("outcome", "hint")', of_covariance),
    ("a correlation", 's.correlation("outcome", "hint")', of_correlation),
    ("a slope", 's.slope("hint", "outcome")', of_slope),
    ("shares of categories (the widest)", 's.histogram("carrier", categories=["UA", "AA", "DL"])', of_mean(BEFORE)),
    (
        "the most frequent texts of a column that nobody declared",
        's.top("carrier", longest=2, most=3, alphabet="ABDHLU6")',
        of_mean(BEFORE),
    ),
    ("the area under a ROC curve", f's.auc("dep_delay", "outcome", {DELAYS}, cuts=[-5, 0, 5, 15, 30])', of_area),
    ("a median", f's.quantile("dep_delay", 0.5, {DELAYS})', of_median),
)


def answers(seed: int = 1) -> list[tuple[str, str, AnyAnswer, float]]:
    """Return every line of the table: what is wanted, the call, its answer, and the width of the usual interval."""
    frame = flights.draw(ROWS, np.random.default_rng(seed), signals=0)
    complete = ("dep_delay", "distance")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = hf.Session(frame, queries=QUESTIONS, seed=seed, complete=complete)
    with session as s:
        return [(wanted, call, eval(call, {"s": s}), naive(frame)) for wanted, call, naive in ASKED]


def table() -> str:
    """Return the table."""
    lines = [
        "| wanted | call | answers | width | usual, for one question |",
        "|---|---|---|---|---|",
    ]
    for wanted, call, answer, naive in answers():
        widest = max((one.high - one.low) / 2 for _, one in answer.rows())
        lines.append(f"| {wanted} | `{call}` | {answer.cost} | ±{rounded_up(widest)} | ±{rounded_up(naive)} |")
    return "\n".join(lines) + "\n"


def rounded_up(width: float) -> str:
    """Write a width with two digits."""
    return f"{float(write_end(width, 2, up=True)):,.10g}"
