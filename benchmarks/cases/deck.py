"""What do draws made beforehand save, and what do they cost?

Hypothesis: a share of 12,000 rows from a deck, through a session with its ledger in memory, takes at most 0.6 of the
floor of random access to a table that does not fit the caches (drawing row numbers, `numpy.take`, one comparison), and
inside `tally` at most 0.1; from a cold disk a deck is at least 100 times faster than random rows; dealing takes at most
6 times as much CPU as one scan of the file by Polars, in under 500 MB.

Refuted if a printed ratio misses its goal at full size. At the small size everything fits the caches, and goals are not
set. Contenders take turns in one process. Cold: the system is asked to forget the file before every repetition, which
then maps it anew; disks that cache by themselves flatter random rows. Memory is the largest resident set of a process
that does nothing but deal, in which files that are mapped count as well. A sample by DuckDB or Polars reads the file,
and is not what the guarantee needs (draws with replacement, fresh for every question); it is here for comparison.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
from benchmarks.measure import Found, Table, alternate, main, medians, rounded, shown

import holdfast
from holdfast.queries.build import build_mean
from holdfast.randomness import Randomness
from holdfast.rows.deck import Deck

DRAWS = 12_000
PIECE = 1_000_000
DEALER = """
import json, resource, sys, time
from holdfast.rows.deal import deal
begin = time.perf_counter()
deal(sys.argv[1], sys.argv[2], cards=float(sys.argv[3]), progress=False)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
spent = resource.getrusage(resource.RUSAGE_SELF)
cpu = spent.ru_utime + spent.ru_stime
print(json.dumps({"seconds": time.perf_counter() - begin, "cpu": cpu, "peak": peak}))
"""


class Floating(Deck):
    """A deck without a location, so that its ledger is in memory."""

    @property
    def location(self) -> None:  # type: ignore[override]
        return None


def pieces(n: int) -> Iterator[pl.DataFrame]:
    rng = np.random.default_rng(1)
    for start in range(0, n, PIECE):
        m = min(PIECE, n - start)
        yield pl.DataFrame(
            {
                "x": rng.random(m),
                "amount": rng.gamma(2.0, 50.0, m),
                "items": rng.integers(0, 100, m).astype(np.int32),
                "country": rng.choice(np.array(["de", "fr", "us", "jp"]), m),
                "day": pl.Series(rng.integers(0, 3_000, m)).cast(pl.Date),
            }
        )


def write_table(path: Path, n: int) -> None:
    parts = path.with_name("parts")
    parts.mkdir()
    for i, piece in enumerate(pieces(n)):
        piece.write_parquet(parts / f"{i:05d}.parquet")
    pl.scan_parquet(parts / "*.parquet").sink_parquet(path)
    for part in parts.iterdir():
        part.unlink()


def dealt_by_a_process(path: Path, deck: Path, cards: int) -> dict[str, float]:
    command = [sys.executable, "-c", DEALER, str(path), str(deck), str(cards)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def dealing(found: Found, path: Path, deck: Path, n: int) -> None:
    times: dict[str, list[float]] = {"scan": [], "deal": []}
    dealt = {}
    for target in (deck, deck.with_name("again.deck")):
        begin, cpu = time.perf_counter(), time.process_time()
        pl.scan_parquet(path).select(pl.all().max()).collect(engine="streaming")
        times["scan"].append(time.process_time() - cpu)
        seconds = time.perf_counter() - begin
        dealt = dealt_by_a_process(path, target, n)
        times["deal"].append(dealt["cpu"])
    few = dealt_by_a_process(path, deck.with_name("few.deck"), n // 100)
    columns = ["", "seconds of CPU", "us of CPU a card", "seconds", "memory"]
    table = Table(f"Dealing {n:,} cards from {n:,} rows of 5 columns", columns)
    scan, deal, peak = min(times["scan"]), min(times["deal"]), f"{dealt['peak'] / 1e6:.0f} MB"
    table.rows.append(["Polars, one scan", f"{scan:.2f}", f"{scan / n * 1e6:.3f}", f"{seconds:.2f}", ""])
    row = [f"{deal:.2f}", f"{deal / n * 1e6:.3f}", f"{dealt['seconds']:.2f}", peak]
    table.rows.append(["holdfast.deal", *row])
    found.tables.append(table)
    found.raw["dealing"] = rounded(times)
    full = n >= 10_000_000
    found.ratio("deal / one scan by Polars, CPU", deal / scan, goal=6.0 if full else None)
    found.ratio("dealing, memory in units of 500 MB", dealt["peak"] / 500e6, goal=1.0)
    size = sum(file.stat().st_size for file in (deck / "0001").iterdir()) / n
    found.tables.append(simulated(few["cpu"] / n, (dealt["cpu"] - few["cpu"]) / (0.99 * n), size))


def simulated(row: float, card: float, size: float) -> Table:
    """What a table of 10^11 rows would take, from the cost of a row and of a card measured here: nobody ran it."""
    rows, questions, machines, cores, price = 10**11, 10**5, 50, 8, 0.05
    cards = questions * DRAWS
    margin = holdfast.plan(rows=rows, queries=questions, rows_per_query=DRAWS).margin
    reading, sorting = rows * row / 3600, cards * card / 3600
    lines = [
        ["rows, questions, rows read for each answer", f"{rows:.0e}, {questions:,}, {DRAWS:,}"],
        ["margin of every answer, all at once", f"±{margin:.4f}"],
        ["cards, of the number of rows", f"{cards:.1e}, {cards / rows:.1%}"],
        ["passes over the table", "1"],
        [f"reading and dealing, {row * 1e9:.0f} ns a row and core", f"{reading:.0f} core hours"],
        [f"on {machines} machines with {cores} cores", f"{reading / machines / cores * 60:.0f} minutes"],
        [f"sorting and writing, {card * 1e6:.2f} us a card, on one machine", f"{sorting:.1f} hours"],
        [f"the deck, {size:.0f} bytes a card", f"{cards * size / 1e9:.0f} GB"],
        ["one answer about one column of 8 bytes reads, in sequence", f"{DRAWS * 8 / 1e3:.0f} kB"],
        [f"at {price} dollars a core hour", f"{(reading + sorting) * price:.0f} dollars"],
    ]
    return Table("Simulated from unit costs measured here, not run: a table of 1e11 rows of 5 columns", ["", ""], lines)


def answers(found: Found, path: Path, deck: Path, n: int, repeats: int) -> None:
    rng = Randomness().generator()
    rows = holdfast.open(path, progress=False)
    x = np.load(path.with_name(f"{path.name}.holdfast") / "00000.values.npy", mmap_mode="r")
    dealt = Floating(deck)
    query = build_mean("x > 0.5", rows.schema)
    with holdfast.Session(dealt, queries=1_000, rows_per_query=DRAWS) as session:
        numbers, whole = count(), n // DRAWS
        most = min(repeats, whole // 2 - 10)
        # Reserved beforehand, as `tally` finds them; in the second half of the deck, which the session does not reach.
        hands = iter([dealt.hand("benchmark", (whole // 2 + i) * DRAWS, DRAWS) for i in range(most + 5)])
        np.load(deck / "0001" / "00000.values.npy", mmap_mode="r").sum()  # hot
        contenders: dict[str, Callable[[], object]] = {
            "floor: numpy, random rows": lambda: (x.take(rng.integers(0, n, DRAWS)) > 0.5).mean(),
            "tally, random rows": lambda: rows.tally(query, draws=DRAWS, mass=0.005, rng=rng),
            "tally, a deck": lambda: next(hands).tally(query, draws=DRAWS, mass=0.005, rng=rng),
            "a session on a deck": lambda: session.mean(f"x > {next(numbers)}e-6", rows_per_query=DRAWS),
        }
        times = alternate(contenders, most, warm=5)
    slow: dict[str, Callable[[], object]] = {
        "DuckDB, USING SAMPLE of the file": lambda: duckdb.sql(
            f"SELECT avg((x > 0.5)::int) FROM (SELECT x FROM '{path}' USING SAMPLE {DRAWS} ROWS)"
        ).fetchall(),
        "Polars, sample of the column": lambda: (
            pl.scan_parquet(path).select(pl.col("x").sample(DRAWS, with_replacement=True)).collect()["x"] > 0.5
        ).mean(),
    }
    times |= alternate(slow, 3)
    middle = medians(times)
    floor = middle["floor: numpy, random rows"]
    table = Table(f"One share from {DRAWS:,} of {n:,} rows, hot", ["", "time", "over the floor"])
    table.rows += [[name, shown(each), f"{each / floor:.3g}x"] for name, each in middle.items()]
    found.tables.append(table)
    found.raw["hot"] = rounded({name: each[::5] for name, each in times.items()})
    full = n >= 10_000_000
    found.ratio("a session on a deck / floor", middle["a session on a deck"] / floor, goal=0.6 if full else None)
    found.ratio("tally, a deck / floor", middle["tally, a deck"] / floor, goal=0.1 if full else None)
    dealt.close()
    rows.close()


def cold(found: Found, path: Path, deck: Path, n: int, repeats: int) -> None:
    """Read 12,000 values where the system has just forgotten the file: all over it, or in a row."""
    rng = np.random.default_rng(1)
    column, cards = path.with_name(f"{path.name}.holdfast") / "00000.values.npy", deck / "0001" / "00000.values.npy"

    def forgotten(file: Path) -> np.ndarray:
        handle = os.open(file, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)
        return np.load(file, mmap_mode="r")

    times: dict[str, list[float]] = {"random rows": [], "a deck": []}
    in_sequence = 10  # answers; a second one at random would find pages of the first
    for _ in range(repeats):
        values = forgotten(column)
        begin = time.perf_counter()
        values.take(rng.integers(0, n, DRAWS)).mean()
        times["random rows"].append(time.perf_counter() - begin)
        values = forgotten(cards)
        start = int(rng.integers(0, n - in_sequence * DRAWS))
        begin = time.perf_counter()
        for i in range(in_sequence):
            values[start + i * DRAWS : start + (i + 1) * DRAWS].mean()
        times["a deck"].append((time.perf_counter() - begin) / in_sequence)
    middle = medians(times)
    table = Table(f"{DRAWS:,} of {n:,} values, cold", ["", "time"])
    table.rows += [[name, shown(each)] for name, each in middle.items()]
    found.tables.append(table)
    found.raw["cold"] = rounded(times)
    ratio, full = middle["random rows"] / middle["a deck"], n >= 10_000_000
    found.ratio("cold: random rows / a deck", ratio, goal=100.0 if full else None, better="higher")


def run(small: bool, scratch: Path) -> Found:
    """Answers from a deck, and dealing it."""
    found = Found("Decks: draws made beforehand")
    n = 400_000 if small else 20_000_000
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        path, deck = Path(folder) / "events.parquet", Path(folder) / "events.deck"
        write_table(path, n)
        dealing(found, path, deck, n)
        prepare = [sys.executable, "-c", f"import holdfast; holdfast.open({str(path)!r}, progress=False)"]
        subprocess.run(prepare, check=True)  # in a process of its own: what is mapped is not forgotten
        cold(found, path, deck, n, 3 if small else 10)
        answers(found, path, deck, n, 3 if small else 300)
    return found


if __name__ == "__main__":
    main(run)
