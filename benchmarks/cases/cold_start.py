"""What does it take to begin: importing, the first answer on a file, ingesting it, and the package on disk?

Hypothesis: `import holdfast` takes under 0.3 seconds, ingest writes at least a fifth as many rows a second as Polars
reads from the same file, and its peak memory stays far below the size of a large table.

Refuted if a ratio below misses its goal. Every repetition is a process of its own, contenders in turn.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import flights
from benchmarks.measure import Found, Table, main, medians, rounded, shown

IMPORTS = {
    "holdfast": "import holdfast",
    "python alone": "pass",
    "numpy": "import numpy",
    "Polars": "import polars",
    "DuckDB": "import duckdb",
    "OpenDP": "import opendp.prelude",
    "scikit-learn": "import sklearn.linear_model",
}
FIRST = {
    "holdfast, ingest included": "holdfast.Session({path!r}, queries=1000).mean('delay > 15', rows_per_query=ROWS)",
    "holdfast, folder there": "holdfast.Session({path!r}, queries=1000).mean('delay > 16', rows_per_query=ROWS)",
    "Polars": "pl.scan_parquet({path!r}).select((pl.col('delay') > 15).mean()).collect()",
    "DuckDB": "duckdb.execute(\"SELECT avg((delay > 15)::INT) FROM '{path}'\").fetchall()",
}
CHILD = """
import json, resource, time
begin = time.perf_counter()
{body}
seconds = time.perf_counter() - begin
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))
"""


def alone(body: str) -> tuple[float, float]:
    """Run a body in a process of its own; return its seconds and its peak memory in bytes."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD.replace("{body}", body)],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, peak = json.loads(ran.stdout.splitlines()[-1])
    return seconds, peak


def imports(found: Found, names: Sequence[str], repeats: int) -> None:
    """Time of every import, in turn."""
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(repeats):
        for name in names:
            times[name].append(alone(IMPORTS[name])[0])
    middle = medians(times)
    table = Table("Import", ["package", "median", "fastest"])
    table.rows = [[name, shown(middle[name]), shown(min(times[name]))] for name in names]
    found.tables.append(table)
    found.raw["imports"] = rounded(times)
    found.ratio("import holdfast, seconds / 0.3", min(times["holdfast"]) / 0.3, goal=1.0)
    found.ratio("import holdfast / import Polars", middle["holdfast"] / middle["Polars"])


def first_answers(found: Found, n: int, scratch: Path) -> None:
    """The first answer on a file nobody has opened before."""
    path = scratch / "first.parquet"
    shutil.copy(flights.parquet(scratch, n), path)
    table = Table(f"First answer on a Parquet file, n = {n:,}, import included", ["contender", "time", "peak memory"])
    took: dict[str, tuple[float, float]] = {}
    begin = {"holdfast": "import holdfast", "Polars": "import polars as pl", "DuckDB": "import duckdb"}
    for name, body in FIRST.items():
        asked = body.replace("{path!r}", repr(str(path))).replace("{path}", str(path))
        asked = asked.replace("ROWS", str(min(12_000, n // 100)))
        took[name] = alone(f"{begin[name.partition(',')[0]]}\n{asked}")
        table.rows.append([name, shown(took[name][0]), f"{took[name][1] / 1e6:,.0f} MB"])
    found.tables.append(table)
    found.raw["first answer"] = took
    cleanup(path)


def ingest(found: Found, n: int, scratch: Path) -> None:
    """Rows ingested per second, next to Polars reading the same file into memory."""
    path = scratch / "ingest.parquet"
    shutil.copy(flights.parquet(scratch, n), path)
    read, read_peak = alone(f"import polars as pl\npl.read_parquet({str(path)!r}).rechunk()")
    took, peak = alone(f"import holdfast\nholdfast.open({str(path)!r}, progress=False)")
    folder = path.with_name(path.name + ".holdfast")
    stored = sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())
    table = Table(f"Ingest, n = {n:,}", ["contender", "time", "rows a second", "peak memory", "on disk"])
    table.rows = [
        ["holdfast", shown(took), f"{n / took:,.0f}", f"{peak / 1e6:,.0f} MB", f"{stored / 1e6:,.1f} MB"],
        ["Polars, into memory", shown(read), f"{n / read:,.0f}", f"{read_peak / 1e6:,.0f} MB", "nothing"],
        ["the Parquet file", "", "", "", f"{path.stat().st_size / 1e6:,.1f} MB"],
    ]
    found.tables.append(table)
    found.raw["ingest"] = {"seconds": took, "peak": peak, "polars": read, "stored": stored}
    found.ratio("ingest / Polars read", took / read, goal=5.0 if n >= 10_000_000 else None)
    found.ratio("ingest peak memory / table", peak / stored)
    cleanup(path)


def cleanup(path: Path) -> None:
    """Remove a file, its folder and its ledger."""
    for each in path.parent.glob(f"{path.stem}.*"):
        shutil.rmtree(each) if each.is_dir() else each.unlink()


def size(found: Found) -> None:
    """The package as installed, without what it depends on."""
    import holdfast

    home = Path(str(holdfast.__file__)).parent
    files = [each for each in home.rglob("*") if each.is_file() and each.suffix != ".pyc"]
    table = Table("Package on disk, without dependencies", ["files", "size"])
    total = sum(each.stat().st_size for each in files)
    table.rows.append([f"{len(files):,}", f"{total / 1e6:.2f} MB"])
    found.tables.append(table)
    facts: dict[str, Any] = {"files": len(files), "bytes": total}
    found.raw["package"] = facts


def run(small: bool, scratch: Path) -> Found:
    """Cold start."""
    found = Found("Cold start")
    n = 100_000 if small else 10_000_000
    imports(found, ("holdfast", "Polars") if small else tuple(IMPORTS), 1 if small else 9)
    first_answers(found, n, scratch)
    ingest(found, n, scratch)
    size(found)
    found.notes.append(
        "`import holdfast` leaves numpy, Polars and the rest to be imported when first used; the first answers above"
        " include them."
    )
    return found


if __name__ == "__main__":
    main(run)
