"""The tables of docs/how-to/what-to-ask.md: what an analyst wants, the call, its price, and how wide the answer is;
and how the same share is had more narrowly."""

import warnings
from collections.abc import Callable
from functools import cache
from math import sqrt

import numpy as np
import polars as pl

import holdfast as hf
from holdfast.lab import populations
from holdfast.questions.answer import AnyAnswer
from holdfast.questions.estimate import write_end

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


def of_spread(name: str, *, root: bool) -> Naive:
    """Standard errors of a variance, or of a standard deviation."""

    def width(frame: pl.DataFrame) -> float:
        values = frame[name].to_numpy()
        error = ERRORS * float(((values - values.mean()) ** 2).std()) / sqrt(len(values))
        return error / (2 * float(values.std())) if root else error

    return width


def of_pair(first: str, second: str, which: str) -> Naive:
    """Standard errors of a covariance, a correlation or a slope."""

    def width(frame: pl.DataFrame) -> float:
        x, y = (frame[name].to_numpy().astype(float) for name in (first, second))
        u, v = x - x.mean(), y - y.mean()
        if which == "covariance":
            said = u * v
        elif which == "slope":
            said = u * (v - float((u * v).mean() / u.var()) * u) / u.var()
        else:
            u, v = u / u.std(), v / v.std()
            said = u * v - float((u * v).mean()) * (u * u + v * v) / 2
        return ERRORS * float(said.std()) / sqrt(len(x))

    return width


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
        "a share in every group (the smallest, 5%)",
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
        "the same, if its range is not cut into slices",
        f's.mean("dep_delay", {DELAYS}, slices="none")',
        of_mean(pl.col("dep_delay")),
    ),
    (
        "the same, of a large group",
        f's.mean("dep_delay", {DELAYS}, where="carrier = \'UA\'")',
        of_mean(pl.col("dep_delay"), BEFORE),
    ),
    ("a count", 's.count("dep_delay > 60", population=1_000_000)', times(1e6, of_mean(pl.col("dep_delay") > 60))),
    ("a sum", f's.total("distance", {DISTANCES}, population=1_000)', times(1e3, of_mean(pl.col("distance")))),
    ("a variance", f's.variance("distance", {DISTANCES})', of_spread("distance", root=False)),
    ("a standard deviation", f's.std("distance", {DISTANCES})', of_spread("distance", root=True)),
    ("the same, of a number with few large values", f's.std("dep_delay", {DELAYS})', of_spread("dep_delay", root=True)),
    ("a covariance", 's.covariance("outcome", "hint")', of_pair("outcome", "hint", "covariance")),
    ("a correlation", 's.correlation("outcome", "hint")', of_pair("outcome", "hint", "correlation")),
    (
        "a correlation of numbers with few large values",
        f's.correlation("distance", "dep_delay", within=(0, 5000), other_{DELAYS})',
        of_pair("distance", "dep_delay", "correlation"),
    ),
    (
        "the same, declared closely (the clipped number's)",
        's.correlation("distance", "dep_delay", within=(0, 5000), other_within=(-15, 60))',
        of_pair("distance", "dep_delay", "correlation"),
    ),
    ("a slope", 's.slope("hint", "outcome")', of_pair("hint", "outcome", "slope")),
    ("shares of categories (the widest)", 's.histogram("carrier", categories=["UA", "AA", "DL"])', of_mean(BEFORE)),
    (
        "the most frequent texts of a column that nobody declared",
        's.top("carrier", longest=2, most=3, alphabet="ABDHLU6")',
        of_mean(BEFORE),
    ),
    ("the most frequent of published texts", 's.top("carrier", most=3)', of_mean(BEFORE)),
    ("the area under a ROC curve", f's.auc("dep_delay", "outcome", {DELAYS})', of_area),
    ("that of a condition", 's.auc("hint", "outcome")', of_area),
    ("a median", f's.quantile("dep_delay", 0.5, {DELAYS})', of_median),
)


# Kinds whose answers have no width to be compared, or another session of their own, and where they are described.
ELSEWHERE = {
    "flips": "kinds", "minimize": "optimize", "register": "together", "units": "units", "check": "check",
    "confusion": "board", "submit": "board",
}  # fmt: skip


def opened(frame: pl.DataFrame, queries: int, seed: int) -> hf.Session:
    """Return a session on made-up flights."""
    complete, categories = ("dep_delay", "distance"), {"carrier": "published"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return hf.Session(frame, queries=queries, seed=seed, complete=complete, categories=categories)


@cache
def answers(seed: int = 1) -> list[tuple[str, str, AnyAnswer, float]]:
    """Return every line of the table: what is wanted, the call, its answer, and the width of the usual interval."""
    frame = populations.draw(ROWS, np.random.default_rng(seed), signals=0)
    with opened(frame, QUESTIONS, seed) as s:
        return [(wanted, call, eval(call, {"s": s}), naive(frame)) for wanted, call, naive in ASKED]


def table() -> str:
    """Return the table."""
    lines = [
        "| wanted | call | answers | width | usual, for one question | times the usual |",
        "|---|---|---|---|---|---|",
    ]
    for wanted, call, answer, naive in answers():
        widest = max((one.high - one.low) / 2 for _, one in answer.rows())
        said = f"±{rounded_up(widest)} | ±{rounded_up(naive)} | {widest / naive:.0f}"
        lines.append(f"| {wanted} | `{call}` | {answer.cost} | {said} |")
    return "\n".join(lines) + "\n"


def narrower(seed: int = 1) -> str:
    """Return how wide one and the same share is, asked in other ways."""
    frame = populations.draw(ROWS, np.random.default_rng(seed), signals=0)
    call, usual = 's.mean("dep_delay > 15"{})', of_mean(LATE)(frame)
    lines = [("as above", f"`{call.format('')}`", hf.plan(rows=ROWS, queries=QUESTIONS).margin)]
    with opened(frame, QUESTIONS, seed) as s:
        more = 4 * s.plan.rows_per_query
        answer = s.mean("dep_delay > 15", rows_per_query=more)
        lines.append((f"{answer.cost} answers for it", f"`{call.format(f', rows_per_query={more}')}`", _half(answer)))
    for queries in (100, 20):
        margin = hf.plan(rows=ROWS, queries=queries).margin
        lines.append((f"a session planned for {queries} questions", f"`queries={queries}`", margin))
    lines.append(("four times the rows", "", hf.plan(rows=4 * ROWS, queries=QUESTIONS).margin))
    _, held = hf.hold_back(frame, explore=0.5, seed=seed)
    with held:
        checked = _half(held.check("dep_delay > 15"))
    lines.append(("half of the rows to look at, and a check on the others", '`held.check("dep_delay > 15")`', checked))
    rows = [f"| {how} | {said} | ±{rounded_up(width)} | {width / usual:.0f} |" for how, said, width in lines]
    return "\n".join(["| way | call | at most | times the usual |", "|---|---|---|---|", *rows]) + "\n"


def _half(answer: AnyAnswer) -> float:
    ((_, one),) = answer.rows()
    return (one.high - one.low) / 2


def rounded_up(width: float) -> str:
    """Write a width with two digits."""
    return f"{float(write_end(width, 2, up=True)):,.10g}"
