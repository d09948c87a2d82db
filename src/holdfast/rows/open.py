"""`holdfast.open`: whatever holds a table becomes a row source."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import InvalidArgument, RowSourceError
from holdfast.rows.base import RowSource
from holdfast.rows.folder import FolderRows
from holdfast.rows.ingest import ingested
from holdfast.rows.memory import memory_rows
from holdfast.rows.scan import FORMATS


def open_rows(
    data: Any,
    *,
    name: str | None = None,
    folder: str | Path | None = None,
    progress: bool | None = None,
) -> RowSource:
    """Open a table: a file, a column folder, a frame or a dict of arrays.

    A Parquet, CSV or Arrow file is rewritten once as a folder of columns, `<file>.holdfast` beside it or
    `folder`, and read from there ever after; a file whose size or time of change differs is read again.
    `progress` shows a bar while that happens (left out: only on a terminal). `name` defaults to the file's
    name without its ending, or "data".
    """
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise InvalidArgument(f"name must be a text that is not empty; got {name!r}.", name="name")
    if isinstance(data, str | Path):
        return _open_path(Path(data), name, folder, progress)
    if folder is not None:
        raise InvalidArgument("folder must be left out unless a file is opened; write the frame to Parquet first.")
    if all(hasattr(data, verb) for verb in ("tally", "gather", "schema", "fingerprint")):
        source: RowSource = data
        return source
    if isinstance(data, Mapping):
        return memory_rows(data, name=name or "data")
    if hasattr(data, "collect_schema") and hasattr(data, "collect") and not hasattr(data, "get_columns"):
        raise InvalidArgument("data must be a table, not a lazy frame; collect() it first.", name="data")
    if hasattr(data, "columns") and hasattr(data, "shape") and len(data.shape) == 2:
        return memory_rows(data, name=name or "data")
    raise InvalidArgument(
        f"data must be a path, a Polars, pandas or PyArrow frame, or a dict of arrays; got {type(data).__name__}.",
        name="data",
    )


def _open_path(path: Path, name: str | None, folder: str | Path | None, progress: bool | None) -> FolderRows:
    if path.is_dir():
        if folder is not None:
            raise InvalidArgument("folder must be left out when a holdfast folder is opened.", name="folder")
        return FolderRows(path, name=name)
    if path.suffix.lower() not in FORMATS:
        known = ", ".join(FORMATS)
        raise RowSourceError(f"{path} has no known ending; it must be one of {known}, or a holdfast folder.")
    if not path.is_file():
        raise RowSourceError(f"No file {path}.", path=str(path))
    target = Path(folder) if folder is not None else path.with_name(f"{path.name}.holdfast")
    return ingested(path, target, name=name or path.stem, progress=progress)
