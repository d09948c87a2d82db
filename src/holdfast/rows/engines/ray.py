"""Ray Data deals from files: one task for each file and row group, keyed by its name.

Ray runs a task again when a worker is lost. A task is given the names of the rows to read, not the rows, so it reads
the same rows in the same order and deals the same cards; it writes them to a file named after the task, which a second
run replaces.
"""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl

from holdfast.errors import InvalidArgument, MissingExtra, RowSourceError
from holdfast.rows.engines import ENGINES, Engine, Task
from holdfast.rows.scans.files import FileScan, scan_path, scan_paths
from holdfast.rows.scans.remote import REMOTE
from holdfast.rows.scans.scan import BATCH
from holdfast.rows.scans.texts import Dialect

_UNIT = 1 << 22  # rows per task, about


def scan(table: Any) -> FileScan:
    """Return the scan of Parquet files, by path, list or glob, or of a Ray dataset that was read from them."""
    try:
        import ray.data
    except ImportError:
        raise MissingExtra("Ray is not installed: pip install 'holdfast[ray]'.", extra="ray") from None
    if isinstance(table, ray.data.Dataset):
        files = table.input_files()
        if not files:
            raise InvalidArgument("source must be a Ray dataset that was read from Parquet files.", name="source")
        table = [Path("/" + each.removeprefix("file://").lstrip("/")) for each in files]
    found = None
    if isinstance(table, list | tuple):
        found = scan_paths(table, Dialect())
    elif not str(table).startswith(REMOTE):
        found = scan_path(table, Dialect())
    if found is None or found.format != "Parquet":
        raise InvalidArgument("source must be Parquet files for Ray, in folders that its workers see.", name="source")
    return found


def deal(scan: FileScan, task: Task, out: str) -> Iterator[pl.DataFrame]:
    """Run the task on every unit of rows, on Ray's workers, and read what they wrote to `out`."""
    import ray
    import ray.data

    Path(out).mkdir(parents=True, exist_ok=True)
    units = _units(scan)

    def run(unit: dict[str, Any]) -> dict[str, Any]:
        frame = pl.scan_parquet(unit["file"], glob=False, hive_partitioning=False).slice(unit["start"], unit["rows"])
        partition = f"{unit['file']} {unit['start']}"
        batches = frame.collect_batches(maintain_order=True, chunk_size=BATCH)
        name = sha256(partition.encode()).hexdigest()
        parts = 0
        for parts, cards in enumerate(task.run(partition, batches), 1):
            written = Path(out) / f".{name}-{parts}.new"
            cards.write_parquet(written)
            written.replace(Path(out) / f"{name}-{parts}.parquet")
        return {"parts": parts, "name": name}

    try:
        done = ray.data.from_items(units, override_num_blocks=len(units)).map(run).take_all()
    except ray.exceptions.RayError as problem:  # its text may quote values
        raise RowSourceError(f"Ray failed while dealing: {type(problem).__name__}.") from None
    for each in done:
        for part in range(1, each["parts"] + 1):
            path = Path(out) / f"{each['name']}-{part}.parquet"
            yield pl.read_parquet(path, hive_partitioning=False)
            path.unlink()


def _units(scan: FileScan) -> list[dict[str, Any]]:
    """Cut the files into pieces of a few million rows."""
    units = []
    for path in scan.files:
        rows = pl.scan_parquet(path, glob=False, hive_partitioning=False).select(pl.len()).collect().item()
        units += [
            {"file": str(path.absolute()), "start": start, "rows": min(_UNIT, rows - start)}
            for start in range(0, rows, _UNIT)
        ]
    return units


ENGINES.register("ray", Engine(scan, deal))
