"""What do units cost: to put their rows together when a file is opened, and at every answer?

Hypothesis: a file of 10^8 rows in no order, of 10^7 units, is opened by unit in less than a gigabyte of memory beyond
that of plain opening, and at most three times its work; an answer over units, from 12,000 draws, takes at most twice
the time of a plain one, on the same rows.

Refuted if a ratio below misses its goal. What any of a unit's rows say reads ten times as many rows as are drawn; a
plain answer that reads as many stands beside it. Both ways of opening run in processes of their own, so that memory can
be compared; work is processor time, since only one of them waits for a busy disk twice. Answers are whole: drawn,
certified and committed to a ledger in memory, each to a text that is new.
"""

import multiprocessing
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from benchmarks.measure import Found, Table, alternate, main, medians, rounded, shown
from benchmarks.without_location import WithoutLocation

import holdfast as hf
from holdfast.rows.open import open_rows

ROWS, SMALL, PER_UNIT, DRAWS, PIECE = 100_000_000, 200_000, 10, 12_000, 2_000_000
MANY = "plain, ten times the draws"
UNIT = {"plain": None, "by unit": "patient"}


def visits(scratch: Path, rows: int) -> Path:
    """Return a Parquet file of visits in no order, ten for each patient on average; written if it is not there yet."""
    path = scratch / f"visits-{rows}.parquet"
    if not path.exists():
        rng, wards = np.random.default_rng(rows), pa.array(["north", "south", "west"])
        ward = pa.dictionary(pa.int32(), pa.string())
        schema = pa.schema([("patient", pa.int64()), ("cost", pa.float64()), ("age", pa.int16()), ("ward", ward)])
        partial = path.with_suffix(".part")
        with pq.ParquetWriter(partial, schema, use_dictionary=["ward"]) as writer:
            for start in range(0, rows, PIECE):
                count = min(PIECE, rows - start)
                arrays = [
                    pa.array(rng.integers(0, rows // PER_UNIT, count)),
                    pa.array(rng.standard_exponential(count)),
                    pa.array(rng.integers(0, 100, count, dtype=np.int16)),
                    pa.DictionaryArray.from_arrays(pa.array(rng.integers(0, 3, count, dtype=np.int32)), wards),
                ]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
        partial.rename(path)
    return path


def opening(path: Path, folder: Path, unit: str | None, told: Any) -> None:
    """Open a file that was not opened before; tell the seconds, those of work, n, and the most memory in gigabytes."""
    begin, idle = time.perf_counter(), time.process_time()
    rows = open_rows(path, folder=folder, unit=unit, progress=False)
    seconds, work = time.perf_counter() - begin, time.process_time() - idle
    told.put((seconds, work, len(rows), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9))


def ingested(found: Found, path: Path, rows: int, folders: dict[str, Path], *, small: bool) -> None:
    context: Any = multiprocessing.get_context("spawn")
    table = Table(f"Opening {rows:,} rows", ["", "rows a second", "seconds", "of work", "n", "memory, GB"])
    took, work, memory = {}, {}, {}
    for name, unit in UNIT.items():
        told = context.Queue()
        process = context.Process(target=opening, args=(path, folders[name], unit, told))
        process.start()
        took[name], work[name], n, memory[name] = told.get()
        process.join()
        times = [f"{rows / took[name]:,.0f}", f"{took[name]:.1f}", f"{work[name]:.1f}"]
        table.rows.append([name, *times, f"{n:,}", f"{memory[name]:.2f}"])
    found.tables.append(table)
    found.raw |= {"opening, seconds": took, "opening, seconds of work": work, "opening, memory in GB": memory}
    found.ratio("work to open: by unit / plain", work["by unit"] / work["plain"], goal=None if small else 3.0)
    found.ratio("memory: by unit less plain, GB", memory["by unit"] - memory["plain"], goal=None if small else 1.0)


def answered(found: Found, folders: dict[str, Path], repeats: int) -> None:
    """Ask both; what all rows of a unit say together reads ten times as many, and is shown beside them."""
    draws = dict.fromkeys(folders, DRAWS) | {MANY: PER_UNIT * DRAWS}
    sessions = {
        name: hf.Session(WithoutLocation(open_rows(folders.get(name, folders["plain"]))), rows_per_query=count)
        for name, count in draws.items()
    }
    texts = {name: iter([f"age > {number / 1e5:.5f}" for number in range(4 * repeats + 8)]) for name in sessions}

    def ask(name: str, kind: str = "mean", **options: object) -> Callable[[], object]:
        return lambda: sessions[name].ask(next(texts[name]), kind, **options)

    contenders = {
        "plain": ask("plain"),
        "by unit: a random row": ask("by unit"),
        "by unit: every row alike": ask("by unit", rows_per_unit=40),
        "by unit: any of its rows": ask("by unit", "units"),
        MANY: ask(MANY),
    }
    times = alternate(contenders, repeats, warm=2, block=1)
    middle = medians(times)
    table = Table(f"One answer from {DRAWS:,} draws", ["", "time", "to plain"])
    for name, seconds in middle.items():
        table.rows.append([name, shown(seconds), f"{seconds / middle['plain']:.2f}"])
    found.tables.append(table)
    found.raw["answers"] = rounded(times)
    for name in [name for name in contenders if name.startswith("by unit")]:
        found.ratio(f"one answer, {name} / plain", middle[name] / middle["plain"], goal=2)
    found.ratio(f"one answer, by unit: any of its rows / {MANY}", middle["by unit: any of its rows"] / middle[MANY])
    for session in sessions.values():
        session.close()


def run(small: bool, scratch: Path) -> Found:
    """Rows put together by unit: opening and answering."""
    found, rows = Found("Units"), SMALL if small else ROWS
    path = visits(scratch, rows)
    folders = {name: scratch / f"visits-{rows}-{name.replace(' ', '-')}.holdfast" for name in UNIT}
    ingested(found, path, rows, folders, small=small)
    answered(found, folders, 20 if small else 200)
    return found


if __name__ == "__main__":
    main(run)
