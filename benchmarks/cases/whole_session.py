"""What do 10,000 questions cost, each chosen after the last answer, and how wrong is the worst answer?

Hypothesis: on 10^7 rows, holdfast answers 10,000 new texts of 12,000 rows each in under 5 seconds without a ledger
file, and no interval misses; everyone who scans takes 10 times as long or more. Under an analyst who hunts for flukes,
naive means and Thresholdout stray further than chance allows, holdfast stays within its promise.

Refuted if the seconds, a ratio or a count below says otherwise. The thresholds follow the last answer; the population
is known exactly, so errors are errors. Those who scan are timed on fewer questions and scaled, as the table says.
Such thresholds are too simple to be overfitted, so naive means do well in the first table; the second one has the
hostile analyst, on few enough rows that the attack can be run. OpenDP splits epsilon 1 over all questions.
"""

from collections.abc import Callable
from math import exp, log
from pathlib import Path
from time import perf_counter
from typing import Any

import duckdb
import polars as pl
from benchmarks import flights
from benchmarks.cases.one_answer import OpenDP
from benchmarks.measure import Found, Table, main, shown
from benchmarks.without_location import WithoutLocation

import holdfast as hf
from holdfast.lab.attack import attack
from holdfast.lab.baselines import Thresholdout
from holdfast.queries.build import build_mean
from holdfast.randomness import Randomness

ROWS_READ = 12_000
Ask = Callable[[float], tuple[float, float]]  # threshold -> value, claimed half-width


def population(threshold: float) -> float:
    """Return the share of all flights that are later than this."""
    return exp(-(threshold + 10) / 20)


def adaptive_session(ask: Ask, count: int, most_seconds: float) -> dict[str, Any]:
    """Ask, each question chosen after the last answer; return what it took and how wrong it was."""
    threshold, worst, missed, waits = 15.0, 0.0, 0, []
    for step in range(1, count + 1):
        begin = perf_counter()
        value, width = ask(threshold)
        waits.append(perf_counter() - begin)
        error = abs(value - population(threshold))
        worst, missed = max(worst, error), missed + (error > width)
        threshold = 40 * value + 20 * (step * 0.6180339887 % 1) - 8 + 1e-7 * step  # never the same question twice
        if sum(waits) > most_seconds:
            break
    return {"asked": len(waits), "seconds": sum(waits), "worst": worst, "missed": missed, "waits": waits}


def contenders(n: int, queries: int, path: Path, frame: pl.DataFrame) -> dict[str, Ask]:
    """Return everyone who answers, by name."""
    source = hf.open(path, progress=False)
    sampled = hf.Session(WithoutLocation(source), queries=queries)
    planned = hf.Session(WithoutLocation(source), queries=queries)
    split = hf.Session(WithoutLocation(source), queries=queries, guarantee="split")
    database = duckdb.connect(str(path.with_suffix(".duckdb")))
    database.execute(f"CREATE TABLE IF NOT EXISTS flights AS SELECT * FROM '{path}'")
    delay, rng = frame["delay"].to_numpy(), Randomness().generator()
    holdout = Thresholdout(threshold=4 / n**0.5, sigma=1 / n**0.5, budget=queries, key=1)
    private, nothing = OpenDP(n, queries).mean, float("inf")

    def session(asked: hf.Session, rows: int | None) -> Ask:
        def ask(threshold: float) -> tuple[float, float]:
            answer = asked.mean(f"delay > {threshold:.9f}", rows_per_query=rows)
            return answer.value, max(answer.high - answer.value, answer.value - answer.low)

        return ask

    def thresholdout(threshold: float) -> tuple[float, float]:
        query = build_mean(f"delay > {threshold:.9f}", source.schema)
        return holdout.release(query, source, rng).values[0], nothing

    def duck(threshold: float) -> tuple[float, float]:
        asked = database.execute(f"SELECT avg((delay > {threshold:.9f})::INT) FROM flights").fetchone()
        return float((asked or (0,))[0]), nothing

    return {
        "holdfast, 12,000 rows each": session(sampled, min(ROWS_READ, sampled.plan.rows_per_query)),
        "holdfast, as planned": session(planned, None),
        "splitting": session(split, None),
        "Polars, naive": lambda threshold: (frame.select((pl.col("delay") > threshold).mean()).item(), nothing),
        "DuckDB, naive": duck,
        "Thresholdout": thresholdout,
        "OpenDP, epsilon 1 split": lambda threshold: (private((delay > threshold).astype(float)), nothing),
    }


def run(small: bool, scratch: Path) -> Found:
    """A session: 10,000 adaptive questions."""
    found = Found("A session of adaptive questions")
    n, queries = (100_000, 200) if small else (10_000_000, 10_000)
    path = flights.parquet(scratch, n)
    frame = flights.frame(scratch, n)
    table = Table(
        f"{queries:,} questions, n = {n:,}",
        ["contender", "timed on", "total", "a question", "rows read in all", "worst error", "intervals that missed"],
    )
    seconds: dict[str, float] = {}
    plan = hf.plan(rows=n, queries=queries)
    read = {
        "holdfast, 12,000 rows each": ROWS_READ,
        "holdfast, as planned": plan.rows_per_query,
        "splitting": n // queries,
    }
    for name, ask in contenders(n, queries, path, frame).items():
        for warm in range(20 if name.startswith("holdfast") else 1):
            if "split" not in name:
                ask(50.0 + warm)
        patience = 2.0 if small else {"holdfast, 12,000 rows each": 60.0}.get(name, 8.0)
        result = adaptive_session(ask, queries - 30 if "holdfast" in name else queries, patience)
        seconds[name] = result["seconds"] / result["asked"] * queries
        scaled = "" if result["asked"] >= queries - 30 else ", scaled"
        promises = name.startswith(("holdfast", "split"))
        table.rows.append(
            [
                name,
                f"{result['asked']:,}{scaled}",
                shown(seconds[name]),
                shown(result["seconds"] / result["asked"]),
                f"{read.get(name, n) * queries:,}",
                f"{result['worst']:.4f}" + (f" of {result['asked']:,}" if scaled else ""),
                str(result["missed"]) if promises else "none given",
            ]
        )
        result["waits"] = [float(f"{wait:.3g}") for wait in result["waits"][:: max(1, result["asked"] // 500)]]
        found.raw[name] = result
    found.tables.append(table)
    first = "holdfast, 12,000 rows each"
    for name, total in seconds.items():
        if name != first:
            found.ratio(f"{name} / {first}", total / seconds[first], better="higher")
    if not small:
        found.ratio("seconds for 10,000 questions at n = 10^7 / 5", seconds[first] / 5, goal=1.0)
    found.notes.append(
        f"The plan for {queries:,} questions reads {plan.rows_per_query:,} rows each and promises"
        f" ±{plan.margin:.4f}; 12,000 rows each buys wider intervals sooner."
        f" OpenDP's noise has scale {queries / n:.2g}, so the worst of {queries:,} answers is off by about"
        f" {queries / n * log(queries):.2g}."
    )
    found.tables.append(attacked(found, small))
    return found


def attacked(found: Found, small: bool) -> Table:
    """The same contenders, and one analyst who hunts for flukes."""
    rows, queries, worlds = (1_000, 201, 2) if small else (10_000, 2_001, 5)
    table = Table(
        f"The worst error when the analyst hunts for flukes: {queries:,} questions, n = {rows:,}, {worlds} worlds",
        ["contender", "worst error", "promised", "promises broken"],
    )
    for name in ("naive", "thresholdout", "split", "laplace", "coins"):
        report = attack(name, "weighted", rows=rows, queries=queries, worlds=worlds, seed=1)
        worst = float(report.largest.max())
        promised = "nothing" if report.promised is None else f"{report.promised:.3f}"
        broken = "-" if report.broken is None else f"{report.broken} of {worlds}"
        table.rows.append([name, f"{worst:.3f}", promised, broken])
        found.raw[f"attack on {name}"] = {"largest": report.largest.tolist(), "promised": report.promised}
    return table


if __name__ == "__main__":
    main(run)
