"""What does one answer cost, compared with touching its rows at all and with reading every row?

Hypothesis: a share from 12,000 rows costs at most twice the floor (draw the row numbers, take, average), from 100,000
rows at most 1.5 times; a mean in a group at most 2.5 times and a histogram at most three times its floor, and a share
in each of 16 groups at most three times a share; on 10^8 rows a share is at least 70 times faster than the fastest
exact scan and 1,000 times faster than OpenDP; and its cost does not grow with the table.

Refuted if a ratio below misses its goal. "New text" parses and compiles a text never seen before; "known text" was
looked at with `price` before it is asked, so that it is parsed but not in the ledger. The floor draws with the same
generator, and allocates what it takes. Next to scans, holdfast asks in bursts, as a session does, on whose rows nobody
scans in between: ratios are for the answers from the eleventh on. The first ten find the caches filled with the rows of
a scan, and are shown apart. (In bursts of 40 instead of 100, ratios at 10^8 rows are lower: 67 to the fastest exact
scan in two runs, which is how this was found to matter.) DuckDB's samples and every scan answer one question about the
rows at hand; only holdfast's interval is for the population and for 10,000 questions at once. OpenDP and diffprivlib
add noise, and promise privacy instead. The mean in a group finds out where its values lie and is then asked in slices,
from twice the rows, in some ten steps; that makes it up to a half narrower, and slower than "uncut", which is one step.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import duckdb
import numpy as np
import polars as pl
from benchmarks import diffpriv, flights
from benchmarks.measure import Found, Table, Times, alternate, digits, main, medians, rounded, shown
from benchmarks.without_location import WithoutLocation

import holdfast as hf
from holdfast.randomness import Randomness

FEW, MANY, QUERIES, TURN, COLD, KNOWN = 12_000, 100_000, 10_000, 10, 10, 2_500
BURSTS = {"share": 100, "group": 40, "histogram": 40}  # the last two cost more of a session's budget
AFTER = "holdfast, first after a scan"
OVER_FLOOR = {
    "share, known text": 2.0,
    "share of 100,000, known text": 1.5,
    "group, known text": 2.5,
    "group, uncut, known text": 2.5,
    "histogram, known text": 3.0,
}
SQL = {
    "share": "SELECT avg((delay > 15)::INT) FROM {}",
    "group": "SELECT avg(distance) FROM {} WHERE carrier = 'UA'",
    "histogram": "SELECT carrier, count(*) FROM {} GROUP BY carrier",
}


class Asking:
    """One session, and questions that no ledger has an answer to yet."""

    def __init__(self, source: Any, known: int = KNOWN) -> None:
        self.session = hf.Session(WithoutLocation(source), queries=QUERIES)
        self._numbers: Iterator[int] = count(1)
        self._known = [f"delay > {14 + number / 1e6:.6f}" for number in range(known)]
        for text in self._known:
            self.session.price(text)

    def share(self, rows: int, *, new: bool = False) -> Any:
        text = f"delay > {15 + next(self._numbers) / 1e6:.6f}" if new else self._known.pop()
        return self.session.mean(text, rows_per_query=rows)

    def group(self, rows: int, *, slices: str | None = None) -> Any:
        asked = {"within": (0, 5_000), "where": "carrier = 'UA'", "rows_per_query": rows + next(self._numbers)}
        return self.session.mean("distance", slices=slices, **asked)

    def groups(self, rows: int) -> Any:
        number, others = next(self._numbers), [f"{carrier}*" for carrier in flights.CARRIERS]  # which do not occur
        return self.session.mean(
            "delay > 15", by="carrier", groups=[*flights.CARRIERS, *others], rows_per_query=rows + number
        )

    def histogram(self, rows: int) -> Any:
        number = next(self._numbers)
        return self.session.histogram("carrier", categories=flights.CARRIERS, rows_per_query=rows + number)


def overhead(found: Found, n: int, frame: pl.DataFrame, asking: Asking, repeats: int) -> None:
    """Holdfast and its floor."""
    rng = Randomness().generator()
    delay, distance = frame["delay"].to_numpy(), frame["distance"].to_numpy()
    carrier = frame["carrier"].to_physical().to_numpy()

    def floor_share(rows: int) -> Any:
        return (delay.take(rng.integers(0, n, rows)) > 15).mean()

    def floor_group(rows: int) -> Any:
        drawn = rng.integers(0, n, rows)
        return distance.take(drawn)[carrier.take(drawn) == 6].mean()

    def floor_histogram(rows: int) -> Any:
        return np.bincount(carrier.take(rng.integers(0, n, rows)), minlength=9)

    contenders: dict[str, Callable[[], object]] = {
        "share, floor": lambda: floor_share(FEW),
        "share, known text": lambda: asking.share(FEW),
        "share, new text": lambda: asking.share(FEW, new=True),
        "share of 100,000, floor": lambda: floor_share(MANY),
        "share of 100,000, known text": lambda: asking.share(MANY),
        "share of 100,000, new text": lambda: asking.share(MANY, new=True),
        "group, floor": lambda: floor_group(FEW),
        "group, known text": lambda: asking.group(FEW),
        "group, uncut, known text": lambda: asking.group(FEW, slices="none"),
        "16 groups, known text": lambda: asking.groups(FEW),
        "histogram, floor": lambda: floor_histogram(FEW),
        "histogram, known text": lambda: asking.histogram(FEW),
    }
    times = alternate(contenders, repeats, warm=5, block=TURN)
    found.raw[f"overhead, n = {n:,}"] = rounded(times)
    table = Table(
        f"Overhead over the floor, n = {n:,}",
        ["question", "rows read", "floor", "holdfast", "times the floor", "by minima"],
    )
    middle = medians(times)
    for name in (name for name in contenders if "floor" not in name and "16" not in name):
        floor = f"{name.partition(',')[0] if '100,000' not in name else 'share of 100,000'}, floor"
        ratio = middle[name] / middle[floor]
        least = min(times[name]) / min(times[floor])
        rows = MANY if "100,000" in name else FEW
        table.rows.append(
            [name, f"{rows:,}", shown(middle[floor]), shown(middle[name]), f"{ratio:.2f}", f"{least:.2f}"]
        )
        found.ratio(f"{name} over floor, n = {n:,}", ratio, goal=OVER_FLOOR.get(name))
    several = middle["16 groups, known text"] / middle["share, known text"]
    found.ratio(f"16 groups over one share, n = {n:,}", several, goal=3.0)
    found.tables.append(table)
    found.notes.append(f"At n = {n:,}, a share in each of 16 groups takes {several:.2f} times what one share takes.")


def scans(found: Found, n: int, frame: pl.DataFrame, path: Path, source: Any, repeats: int, largest: bool) -> None:
    """Holdfast and everyone who reads the table; a budget of its own for every question."""
    asking = Asking(source)
    delay, distance = frame["delay"].to_numpy(), frame["distance"].to_numpy()
    carrier = frame["carrier"].to_physical().to_numpy()
    database = duckdb.connect(str(path.with_suffix(".duckdb")))
    database.execute(f"CREATE TABLE IF NOT EXISTS flights AS SELECT * FROM '{path}'")
    bernoulli, system = (f"{100 * FEW / n:.6f} PERCENT ({how})" for how in ("bernoulli", "system"))
    dp = OpenDP(n)

    def duck(question: str, source: str) -> Callable[[], object]:
        return lambda: database.execute(SQL[question].format(source)).fetchall()

    def sampled(columns: str, how: str) -> str:
        return f"(SELECT {columns} FROM flights USING SAMPLE {how})"

    asked: Times = {name: [] for name in ("after a scan", "warm")}

    def burst(question: str, ask: Callable[[int], Any]) -> Callable[[], object]:
        def asking_on() -> None:
            for number in range(BURSTS[question]):
                begin = perf_counter()
                ask(FEW)
                asked["after a scan" if number < COLD else "warm"].append(perf_counter() - begin)

        return asking_on

    polars_group = (pl.col("distance").filter(pl.col("carrier") == "UA")).mean()
    every: dict[str, dict[str, Callable[[], object]]] = {
        "share": {
            "holdfast": burst("share", asking.share),
            "numpy": lambda: (delay > 15).mean(),
            "Polars": lambda: frame.select((pl.col("delay") > 15).mean()),
            "DuckDB table": duck("share", "flights"),
            "DuckDB Parquet": duck("share", f"'{path}'"),
            "DuckDB sample, rows": duck("share", sampled("delay", f"{FEW} ROWS")),
            "DuckDB sample, bernoulli": duck("share", sampled("delay", bernoulli)),
            "DuckDB sample, system": duck("share", sampled("delay", system)),
            "OpenDP": lambda: dp.mean((delay > 15).astype(np.float64)),
        },
        "group": {
            "holdfast": burst("group", Asking(source, known=0).group),
            "numpy": lambda: distance[carrier == 6].mean(),
            "Polars": lambda: frame.select(polars_group),
            "DuckDB table": duck("group", "flights"),
            "DuckDB Parquet": duck("group", f"'{path}'"),
            "DuckDB sample, rows": duck("group", sampled("distance, carrier", f"{FEW} ROWS")),
            "DuckDB sample, bernoulli": duck("group", sampled("distance, carrier", bernoulli)),
            "DuckDB sample, system": duck("group", sampled("distance, carrier", system)),
            "OpenDP": lambda: dp.group_mean(np.where(carrier == 6, distance, 0.0), carrier == 6),
        },
        "histogram": {
            "holdfast": burst("histogram", Asking(source, known=0).histogram),
            "numpy": lambda: np.bincount(carrier),
            "Polars": lambda: frame["carrier"].value_counts(),
            "DuckDB table": duck("histogram", "flights"),
            "DuckDB Parquet": duck("histogram", f"'{path}'"),
            "DuckDB sample, rows": duck("histogram", sampled("carrier", f"{FEW} ROWS")),
            "DuckDB sample, bernoulli": duck("histogram", sampled("carrier", bernoulli)),
            "DuckDB sample, system": duck("histogram", sampled("carrier", system)),
            "OpenDP": lambda: dp.histogram(carrier.astype(np.int32)),
        },
    }
    table = Table(f"One answer next to a scan, n = {n:,}", ["contender", "rows read", "share", "group", "histogram"])
    columns: dict[str, Times] = {}
    with diffpriv.Timer(delay, distance, carrier) as timer:
        for question, contenders in every.items():
            if timer.ready:
                contenders["diffprivlib"] = partial(timer, question)
            times = alternate(contenders, repeats, warm=1, most_seconds=20.0)
            times |= {"holdfast": asked["warm"][BURSTS[question] - COLD :], AFTER: asked["after a scan"][COLD:]}
            for each in asked:
                asked[each] = []
            if "diffprivlib" in times:
                times["diffprivlib"] = timer.seconds[question][1:]  # its own clock: the pipe is not its fault
            found.raw[f"{question}, n = {n:,}"] = rounded(times)
            columns[question] = times
    database.close()
    for name in [
        "holdfast",
        AFTER,
        *(name for name in every["share"] if name != "holdfast"),
        *(() if timer.ready else ("diffprivlib",)),
    ]:
        cells = []
        for question, times in columns.items():
            if name not in times:
                cells.append(timer.why)
                continue
            middle = medians(times)
            ratio = middle[name] / middle["holdfast"]
            cells.append(shown(middle[name]) + ("" if "holdfast" in name else f" ({digits(ratio)}x)"))
            if "holdfast" not in name:
                goal = 1_000.0 if name == "OpenDP" and largest and question == "share" else None
                compared(found, f"{question}: {name}", middle[name], middle, n, goal)
        read = f"{FEW:,}" if "holdfast" in name else f"all, keeps {FEW:,}" if "sample" in name else "all"
        table.rows.append([name, "some blocks" if "system" in name else read, *cells])
    found.tables.append(table)
    exact = ("numpy", "Polars", "DuckDB table", "DuckDB Parquet")
    for question, times in columns.items():
        middle = medians(times)
        goal = 70.0 if largest and question == "share" else None
        compared(found, f"{question}: fastest exact", min(middle[name] for name in exact), middle, n, goal)


def compared(found: Found, name: str, theirs: float, middle: dict[str, float], n: int, goal: float | None) -> None:
    """Keep a contender's ratio to holdfast, question after question and right after a scan."""
    found.ratio(f"{name} / holdfast, n = {n:,}", theirs / middle["holdfast"], goal=goal, better="higher")
    found.ratio(f"{name} / {AFTER}, n = {n:,}", theirs / middle[AFTER], better="higher")


class OpenDP:
    """OpenDP's measurements of n rows, with epsilon 1 split over so many questions."""

    def __init__(self, n: int, queries: int = QUERIES) -> None:
        import opendp.prelude as dp

        dp.enable_features("contrib")
        made: Any = dp.t
        share = dp.vector_domain(dp.atom_domain(bounds=(0.0, 1.0), nan=False), size=n)
        distance = dp.vector_domain(dp.atom_domain(bounds=(0.0, 5_000.0), nan=False), size=n)
        carrier = dp.vector_domain(dp.atom_domain(T="i32"))
        distances = dp.symmetric_distance()
        self.mean: Any = (share, distances) >> made.then_mean() >> dp.m.then_laplace(queries / n)
        self._total: Any = (distance, distances) >> made.then_mean() >> dp.m.then_laplace(5_000.0 * queries / n)
        counted = made.then_count_by_categories(categories=list(range(8)), null_category=False)
        self.histogram: Any = (carrier, distances) >> counted >> dp.m.then_laplace(float(queries))

    def group_mean(self, total: Any, inside: Any) -> float:
        """A group's size is not public: the quotient of two noisy means, as its users write it."""
        return float(self._total(total) / self.mean(inside.astype(np.float64)))


def run(small: bool, scratch: Path) -> Found:
    """One answer: time and rows read."""
    found = Found("One answer")
    sizes = (100_000,) if small else (1_000_000, 10_000_000, 100_000_000)
    for n in sizes:
        path = flights.parquet(scratch, n)
        source = hf.open(path, progress=False)
        frame = flights.frame(scratch, n)
        asking = Asking(source)
        for _ in range(3):
            asking.share(MANY), asking.group(FEW), asking.histogram(FEW)  # pages are mapped in the background
        overhead(found, n, frame, asking, 1 if small else 15)
        asking = Asking(source)  # another session: the first has spent much of its budget
        scans(found, n, frame, path, source, 2 if small else {100_000_000: 5}.get(n, 15), n == 100_000_000)
        answer = asking.share(FEW)
        found.notes.append(
            f"At n = {n:,}, an answer from {FEW:,} rows has an interval of half-width"
            f" {(answer.high - answer.low) / 2:.4f}, for the population, valid for {QUERIES:,} adaptive questions at"
            f" once; at {MANY:,} rows {(lambda a: (a.high - a.low) / 2)(asking.share(MANY)):.4f}."
        )
    return found


if __name__ == "__main__":
    main(run)
