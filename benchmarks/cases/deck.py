"""What do draws made beforehand save, and what do they cost?

Hypothesis: a share of 12,000 rows from a deck, through a session with its ledger in memory, takes at most 0.6 of the
floor of random access to a table that does not fit the caches (drawing row numbers, `numpy.take`, one comparison), and
inside `tally` at most 0.1; from a cold disk a deck is at least 100 times faster than random rows; dealing takes at most
6 times as long as one scan of the files by Polars, by the clock and in CPU, in under 500 MB; a deck is dealt from
PostgreSQL at a million rows a second.

Refuted if a printed ratio misses its goal at full size. At the small size everything fits the caches, and goals are not
set. Contenders take turns in one process, ten answers in a row each, as a session asks them: the first one after a
reader of random rows finds the caches emptied. The table is ten links to one file, which is scanned and dealt ten
times: writing ten of them would take longer than what is measured; a hundred links are 10^9 rows. Random rows are read
from a column of the deck itself, which is as long as the table's. Scans and deals are the better of two: memory that a
virtual machine has not used for a while is made by its host first, ten times slower than it is filled. Cold: the system
is asked to forget the file before every repetition, which then maps it anew; disks that cache by themselves flatter
random rows. The first answer from a cold deck waits for the disk like any read; what is compared with the goal is the
mean of twenty answers in a row, as a session asks them, and the first one is shown beside it. Memory is the largest
resident set of a process that does nothing but deal, in which files that are mapped count as well. A table of ten times
the rows is dealt once, and a deck of as many cards asked beside random rows of a column as long as that table: a deck's
answers take the same time, random rows miss more caches. A sample by DuckDB or Polars reads the files, and Lance's
`take` its own format; none is what the guarantee needs (draws with replacement, fresh for every question). They are
here for comparison.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
from benchmarks import environment
from benchmarks.measure import Found, Table, alternate, digits, main, medians, rounded, shown

import holdfast
from holdfast.queries.build import build_mean
from holdfast.randomness import Randomness
from holdfast.rows.decks.deck import Deck
from holdfast.rows.decks.used import UsedFile

DRAWS = 12_000
LINKS = 10
TURN = 10  # answers in a row
DEALER = """
import json, sys, time
from pathlib import Path
from holdfast.rows.decks.deal import deal
from holdfast.rows.scans import files
files._require_apart = lambda where, linked: None
begin, before = time.perf_counter(), time.process_time()
deal(sys.argv[1], sys.argv[2], cards=float(sys.argv[3]), progress=False)
seconds, cpu = time.perf_counter() - begin, time.process_time() - before
peak = 1024 * int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
print(json.dumps({"seconds": seconds, "cpu": cpu, "peak": peak}))
"""
VALUES = Path("0001") / "00000.values.npy"  # of the first column of a deck
LANCE = """
import json, sys, time
import lance, numpy as np, pyarrow.parquet as pq
path, out, draws, repeats = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
table = lance.write_dataset(pq.read_table(path, columns=["x"]), out)
rng, n, times = np.random.default_rng(1), table.count_rows(), []
for _ in range(repeats + 1):
    begin = time.perf_counter()
    np.greater(table.take(rng.integers(0, n, draws), columns=["x"])["x"].to_numpy(), 0.5).mean()
    times.append(time.perf_counter() - begin)
print(json.dumps([n, times[1:]]))
"""


class Floating(Deck):
    """A deck without a location, so that its ledger is in memory."""

    @property
    def location(self) -> None:  # type: ignore[override]
        return None


def write_table(folder: Path, n: int) -> str:
    """Write the files of a table; return what names them."""
    rng, m = np.random.default_rng(1), n // LINKS
    frame = pl.DataFrame(
        {
            "x": rng.random(m),
            "amount": rng.gamma(2.0, 50.0, m),
            "items": rng.integers(0, 100, m).astype(np.int32),
            "country": rng.choice(np.array(["de", "fr", "us", "jp"]), m),
            "day": pl.Series(rng.integers(0, 3_000, m)).cast(pl.Date),
        }
    )
    folder.mkdir()
    frame.write_parquet(folder / "0.parquet")
    return linked(folder, folder / "0.parquet", range(1, LINKS))


def linked(folder: Path, file: Path, numbers: range) -> str:
    """Link a file into a folder so often; return what names all files there."""
    for i in numbers:
        (folder / f"{i}.parquet").hardlink_to(file)
    return str(folder / "*.parquet")


def dealt_by_a_process(source: str, deck: Path, cards: int) -> dict[str, float]:
    command = [sys.executable, "-c", DEALER, source, str(deck), str(cards)]
    # In the folder of the deck: the note that several files were dealt lies in the current one.
    dealt = subprocess.run(command, check=True, capture_output=True, text=True, cwd=deck.parent)
    found: dict[str, float] = json.loads(dealt.stdout)
    return found


def scanned(files: str) -> tuple[float, float]:
    """Scan files by Polars; return seconds, by the clock and of CPU."""
    begin, cpu = time.perf_counter(), time.process_time()
    pl.scan_parquet(files).select(pl.all().max()).collect(engine="streaming")
    return time.perf_counter() - begin, time.process_time() - cpu


def from_more_rows(found: Found, file: Path, folder: Path, n: int, full: bool) -> None:
    """The same cards from ten times the rows, once."""
    folder.mkdir()
    files = linked(folder, file, range(10 * LINKS))
    seconds, cpu = scanned(files)
    dealt = dealt_by_a_process(files, folder.with_suffix(".deck"), n)
    table = Table(f"Dealing {n:,} cards from {10 * n:,} rows of 5 columns, once", ["", "seconds", "of CPU", "memory"])
    table.rows.append(["Polars, one scan", f"{seconds:.2f}", f"{cpu:.2f}", ""])
    line = [f"{dealt['seconds']:.2f}", f"{dealt['cpu']:.2f}", f"{dealt['peak'] / 1e6:.0f} MB"]
    table.rows.append(["holdfast.deal", *line])
    found.tables.append(table)
    found.raw["dealing from more rows"] = {"scan": [seconds, cpu], "deal": dealt}
    goal = 6.0 if full else None
    found.ratio("deal / one scan by Polars, ten times the rows, by the clock", dealt["seconds"] / seconds, goal=goal)
    found.ratio("dealing ten times the rows, memory in units of 500 MB", dealt["peak"] / 500e6, goal=1.0)


def dealing(found: Found, files: str, deck: Path, n: int, full: bool) -> None:
    scans = [scanned(files) for _ in range(2)]
    seconds, cpu = (min(each) for each in zip(*scans, strict=True))
    deals = []
    for _ in range(2):
        shutil.rmtree(deck, ignore_errors=True)
        deals.append(dealt_by_a_process(files, deck, n))
    dealt = {name: min(each[name] for each in deals) for name in ("seconds", "cpu")}
    dealt["peak"] = max(each["peak"] for each in deals)
    few = dealt_by_a_process(files.replace("*", "0"), deck.with_name("few.deck"), n // LINKS // 100)  # one of the files
    table = Table(
        f"Dealing {n:,} cards from {n:,} rows of 5 columns", ["", "seconds", "of CPU", "ns of CPU a card", "memory"]
    )
    table.rows.append(["Polars, one scan", f"{seconds:.2f}", f"{cpu:.2f}", f"{cpu / n * 1e9:.0f}", ""])
    line = [f"{dealt['seconds']:.2f}", f"{dealt['cpu']:.2f}", f"{dealt['cpu'] / n * 1e9:.0f}"]
    table.rows.append(["holdfast.deal", *line, f"{dealt['peak'] / 1e6:.0f} MB"])
    found.tables.append(table)
    found.raw["dealing"] = {"scans": scans, "deals": deals, "few": few}
    found.ratio("deal / one scan by Polars, by the clock", dealt["seconds"] / seconds, goal=6.0 if full else None)
    found.ratio("deal / one scan by Polars, CPU", dealt["cpu"] / cpu, goal=6.0 if full else None)
    found.ratio("dealing, memory in units of 500 MB", dealt["peak"] / 500e6, goal=1.0)
    size = sum(file.stat().st_size for file in (deck / "0001").iterdir()) / n
    row = few["cpu"] / (n / LINKS)
    found.tables.append(simulated(row, (dealt["cpu"] - row * n) / (0.99 * n), size))


def simulated(row: float, card: float, size: float) -> Table:
    """What a table of 10^11 rows would take, from the cost of a row and of a card measured here: nobody ran it."""
    rows, questions, machines, cores, price = 10**11, 10**5, 50, 8, 0.05
    cards = questions * DRAWS
    margin = holdfast.plan(rows=rows, queries=questions, rows_per_query=DRAWS).margin
    reading, sorting = rows * row / 3600, cards * card / 3600
    lines = [
        ["rows, questions, rows read for each answer", f"{rows:.0e}, {questions:,}, {DRAWS:,}"],
        ["margin of every answer, all at once", f"±{margin:.4f}"],
        ["cards, of the number of rows", f"{cards:,.0f}, {cards / rows:.1%}"],
        ["passes over the table", "1"],
        [f"reading and dealing, {row * 1e9:.0f} ns a row and core", f"{reading:.1f} core hours"],
        [f"on {machines} machines with {cores} cores", f"{reading / machines / cores * 60:.1f} minutes"],
        [f"sorting and writing, {card * 1e9:.0f} ns a card, on one machine", f"{sorting * 60:.1f} core minutes"],
        [f"the deck, {size:.0f} bytes a card", f"{cards * size / 1e9:.0f} GB"],
        ["one answer about one column of 8 bytes reads, in sequence", f"{DRAWS * 8 / 1e3:.0f} kB"],
        [f"at {price} dollars a core hour", f"{(reading + sorting) * price:.2f} dollars"],
    ]
    return Table("Simulated from unit costs measured here, not run: a table of 1e11 rows of 5 columns", ["", ""], lines)


def answers(found: Found, files: str, deck: Path, n: int, repeats: int, full: bool) -> None:
    x = np.load(deck / VALUES, mmap_mode="r")
    times = hot(deck, x[:n], repeats, full)
    slow: dict[str, Callable[[], object]] = {
        "DuckDB, USING SAMPLE of the files": lambda: duckdb.sql(
            f"SELECT avg((x > 0.5)::int) FROM (SELECT x FROM '{files}' USING SAMPLE {DRAWS} ROWS)"
        ).fetchall(),
        "Polars, sample of the column": lambda: (
            pl.scan_parquet(files).select(pl.col("x").sample(DRAWS, with_replacement=True)).collect()["x"] > 0.5
        ).mean(),
    }
    times |= alternate(slow, 1, warm=0)
    times |= by_lance(found, files, deck.with_name("lance"), full)
    compared_with_floor(found, times, n, "", full)


def answers_from_more_rows(found: Found, deck: Path, more: Path, n: int, repeats: int, full: bool) -> None:
    """The same from a deck of ten times the rows, beside a column that is as long as that table."""
    values, column = np.load(deck / VALUES, mmap_mode="r")[:n], more.with_suffix(".npy")
    x = np.lib.format.open_memmap(column, "w+", np.float64, (10 * n,))
    for start in range(0, x.size, n):
        x[start : start + n] = values
    x.flush()
    compared_with_floor(found, hot(more, x, repeats, full), 10 * n, ", ten times the rows", full)
    column.unlink()


def hot(deck: Path, x: np.ndarray[Any, Any], repeats: int, full: bool) -> dict[str, list[float]]:
    """Time a deck beside random rows of a column `x` that is as long as its table."""
    rng, dealt = Randomness().generator(), Floating(deck)
    query = build_mean("x > 0.5", dealt.schema)
    with (
        holdfast.Session(dealt, queries=1_000, rows_per_query=DRAWS) as session,
        tempfile.TemporaryDirectory() as marks,
    ):
        apart = Floating(deck)  # whose mark is elsewhere: of the cards in the deck, those of one ledger are used
        apart._used_here = UsedFile(Path(marks) / "used")
        numbers, whole = count(), len(apart.cards) // DRAWS
        most = min(repeats, whole // 2 - 10)
        # Reserved beforehand, as `tally` finds them; in the second half of the deck, which the session does not reach.
        hands = iter([apart.hand("benchmark", (whole // 2 + i) * DRAWS, DRAWS) for i in range(most + 5)])
        x.sum()  # hot
        contenders: dict[str, Callable[[], object]] = {
            "floor: numpy, random rows": lambda: (x.take(rng.integers(0, x.size, DRAWS)) > 0.5).mean(),
            "tally, a deck": lambda: next(hands).tally(query, draws=DRAWS, mass=0.005, rng=rng),
            "a session on a deck": lambda: session.mean(f"x > {next(numbers)}e-6", rows_per_query=DRAWS),
        }
        turn = TURN if full else 1
        times = alternate(contenders, most // turn, warm=5, block=turn)
    dealt.close()
    return times


def compared_with_floor(found: Found, times: dict[str, list[float]], n: int, what: str, full: bool) -> None:
    middle = medians(times)
    floor = middle["floor: numpy, random rows"]
    table = Table(f"One share from {DRAWS:,} of {n:,} rows, hot", ["", "time", "over the floor"])
    table.rows += [[name, shown(each), f"{digits(each / floor)}x"] for name, each in middle.items()]
    found.tables.append(table)
    found.raw[f"hot{what}"] = rounded({name: each[::5] for name, each in times.items()})
    for name, goal in (("a session on a deck", 0.6), ("tally, a deck", 0.1)):
        found.ratio(f"{name} / floor{what}", middle[name] / floor, goal=goal if full else None)


def by_lance(found: Found, files: str, out: Path, full: bool) -> dict[str, list[float]]:
    """Let Lance take rows of one of the files, in an environment of its own; nothing where it cannot be installed."""
    python = environment.python("lance", "import lance", make=full)
    if python is None:
        found.notes.append("Lance is not installed here.")
        return {}
    command = [str(python), "-c", LANCE, files.replace("*", "0"), str(out), str(DRAWS), "5"]
    n, times = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {f"Lance, take of {n:,} rows": times}


def cold(found: Found, deck: Path, n: int, repeats: int, full: bool) -> None:
    """Read 12,000 values where the system has just forgotten the file: all over it, or in a row."""
    rng = np.random.default_rng(1)

    def forgotten(file: Path) -> np.ndarray[Any, Any]:
        handle = os.open(file, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)
        return np.load(file, mmap_mode="r")

    times: dict[str, list[float]] = {
        "random rows": [],
        "a deck, the first answer": [],
        "a deck, mean of 20 answers": [],
    }
    in_sequence = 20  # a second answer at random would find pages of the first
    for _ in range(repeats):
        values = forgotten(deck / VALUES)
        begin = time.perf_counter()
        values.take(rng.integers(0, n, DRAWS)).mean()
        times["random rows"].append(time.perf_counter() - begin)
        values = forgotten(deck / VALUES)
        start = int(rng.integers(0, n - in_sequence * DRAWS))
        begin = time.perf_counter()
        for i in range(in_sequence):
            values[start + i * DRAWS : start + (i + 1) * DRAWS].mean()
            if i == 0:
                times["a deck, the first answer"].append(time.perf_counter() - begin)
        times["a deck, mean of 20 answers"].append((time.perf_counter() - begin) / in_sequence)
    middle = medians(times)
    table = Table(f"{DRAWS:,} of {n:,} values, cold", ["", "time"])
    table.rows += [[name, shown(each)] for name, each in middle.items()]
    found.tables.append(table)
    found.raw["cold"] = rounded(times)
    random = middle["random rows"]
    for name, goal in (("mean of 20 answers", 100.0), ("the first answer", None)):
        ratio = random / middle[f"a deck, {name}"]
        found.ratio(f"cold: random rows / a deck, {name}", ratio, goal=goal if full else None, better="higher")


def from_postgres(found: Found, scratch: Path, n: int, full: bool) -> None:
    """Deal from a table of PostgreSQL, if there is one to try; connecting and counting are part of it."""
    url = os.environ.get("HOLDFAST_BENCH_POSTGRES", "").replace("+psycopg", "")
    if not url:
        found.notes.append("PostgreSQL was not tried: HOLDFAST_BENCH_POSTGRES names no database.")
        return
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE IF EXISTS holdfast_bench")
        connection.execute(
            "CREATE TABLE holdfast_bench AS SELECT random() AS x, (random() * 100)::int AS items, i % 4 AS country"
            f" FROM generate_series(1, {n}) AS i"
        )
    source = f"{url}{'&' if '?' in url else '?'}table=holdfast_bench"
    dealt = dealt_by_a_process(source, scratch / "postgres.deck", n // 10)
    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE holdfast_bench")
    rate = n / dealt["seconds"]
    found.tables.append(Table(f"A deck from {n:,} rows of PostgreSQL", ["rows a second"], [[f"{rate:,.0f}"]]))
    goal = 1.0 if full else None
    found.ratio("PostgreSQL, rows a second / 1,000,000", rate / 1e6, goal=goal, better="higher")


def run(small: bool, scratch: Path) -> Found:
    """Answers from a deck, and dealing it."""
    found = Found("Decks: draws made beforehand")
    n = 400_000 if small else 100_000_000
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        deck = Path(folder) / "events.deck"
        files = write_table(Path(folder) / "events", n)
        dealing(found, files, deck, n, not small)
        cold(found, deck, n, 3 if small else 5, not small)
        answers(found, files, deck, n, 3 if small else 300, not small)
        more = Path(folder) / "more"
        from_more_rows(found, Path(files.replace("*", "0")), more, n, not small)
        answers_from_more_rows(found, deck, more.with_suffix(".deck"), n, 3 if small else 300, not small)
        from_postgres(found, Path(folder), n // 20, not small)
    return found


if __name__ == "__main__":
    main(run)
