"""`holdfast.open`: whatever holds a table becomes a row source.

Other packages can teach it more: whatever is registered in `ROW_SOURCES` (or is an entry point of the group
"holdfast.row_sources") is a callable that returns a row source for data it recognizes, and None otherwise. It is asked
only about data that nothing here recognizes.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.errors import InvalidArgument, RowSourceError
from holdfast.registry import Registry
from holdfast.rows.folder import FolderRows
from holdfast.rows.ingest import FORMATS, ingest_file
from holdfast.rows.memory import memory_rows
from holdfast.rows.source import RowSource, RowVerbs, Table

ROW_SOURCES: Registry[Callable[[object], RowSource | None]] = Registry("holdfast.row_sources")


def open_rows(
    data: Table,
    *,
    name: str | None = None,
    folder: str | Path | None = None,
    progress: bool | None = None,
) -> RowSource:
    """Open a table: a file, a column folder, a frame, a dict of arrays, or a row source of one's own.

    A Parquet, CSV or Arrow file is rewritten once as a folder of columns, and read from there ever after; a file whose
    size or time of change differs is read again.

    Parameters
    ----------
    data
        What holds the table.
    name
        What the dataset is called; left out: the file's name without its ending, or "data".
    folder
        Where the columns of a file are written; left out: `<file>.holdfast` beside it.
    progress
        Whether to show a bar while that happens; left out: only on a terminal.
    """
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise InvalidArgument(f"name must be a text that is not empty; got {name!r}.", name="name")
    if isinstance(data, str | Path):
        return _open_path(data, name, folder, progress)
    if folder is not None:
        raise InvalidArgument("folder must be left out unless a file is opened; write the frame to Parquet first.")
    if isinstance(data, RowVerbs):
        return data
    if isinstance(data, Mapping):
        return memory_rows(data, name=name or "data")
    if hasattr(data, "collect_schema") and hasattr(data, "collect") and not hasattr(data, "get_columns"):
        raise InvalidArgument("data must be a table, not a lazy frame; collect() it first.", name="data")
    if hasattr(data, "columns") and hasattr(data, "shape") and len(data.shape) == 2:
        return memory_rows(data, name=name or "data")
    found = _registered(data)
    if found is not None:
        return found
    raise InvalidArgument(
        "data must be a path, a Polars, pandas or PyArrow frame, a dict of arrays, or a row source;"
        f" got {type(data).__name__}.",
        name="data",
    )


def _open_path(data: str | Path, name: str | None, folder: str | Path | None, progress: bool | None) -> RowSource:
    path = Path(data)
    if path.is_dir():
        if folder is not None:
            raise InvalidArgument("folder must be left out when a holdfast folder is opened.", name="folder")
        return FolderRows(path, name=name)
    if path.suffix.lower() not in FORMATS:
        found = _registered(data)
        if found is not None:
            return found
        known = ", ".join(FORMATS)
        raise RowSourceError(f"{path} has no known ending; it must be one of {known}, or a holdfast folder.")
    if not path.is_file():
        raise RowSourceError(f"No file {path}.", path=str(path))
    target = Path(folder) if folder is not None else path.with_name(f"{path.name}.holdfast")
    return ingest_file(path, target, name=name or path.stem, progress=progress)


def _registered(data: object) -> RowSource | None:
    return next((found for opener in ROW_SOURCES.all() if (found := opener(data)) is not None), None)
