"""`holdfast.open`: whatever holds a table becomes a row source.

Other packages can teach it more: whatever is registered in `ROW_SOURCES` (or is an entry point of the group
"holdfast.row_sources") is a callable that returns a row source for data it recognizes, and None otherwise. It is asked
only about data that nothing here recognizes.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from holdfast.errors import InvalidArgument, RowSourceError
from holdfast.registry import Registry
from holdfast.rows.folder import FolderRows
from holdfast.rows.ingest import FORMATS, ingest_file
from holdfast.rows.memory import memory_rows
from holdfast.rows.source import RowSource, RowVerbs, Table
from holdfast.schema import Type

ROW_SOURCES: Registry[Callable[[object], RowSource | None]] = Registry("holdfast.row_sources")


def open_rows(
    data: Table,
    *,
    name: str | None = None,
    folder: str | Path | None = None,
    progress: bool | None = None,
    complete: Collection[str] = (),
    types: Mapping[str, str] | None = None,
    unit: str | None = None,
) -> RowSource:
    """Open a table: a file, a column folder, a frame, a dict of arrays, or a row source of one's own.

    A Parquet, CSV or Arrow file is rewritten once as a folder of columns, and read from there ever after; a file whose
    size or time of change differs is read again. The folder remembers what was declared.

    Analysts see names, types, and whether values may be missing. None of it is observed: values may be missing unless
    the header of the file or the type of the array rules it out, or the column is declared complete.

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
    complete
        Columns whose values are never missing (neither NULL nor NaN): a mean of one costs 1 answer instead of 2. A
        column that has missing values is refused, which tells something about the sample: declare what you know.
    types
        The types of columns of a CSV file: "boolean", "integer", "number", "text", "date" or "timestamp". Left out: the
        first 10,000 rows decide, and a value further down that does not fit is refused.
    unit
        The column that says which rows belong together, such as "patient". Then what is drawn and counted is a unit,
        whose rows may depend on each other; the column itself cannot be asked about. A folder remembers it.
    """
    complete, declared = _column_names(complete), _types(types)
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise InvalidArgument(f"name must be a text that is not empty; got {name!r}.", name="name")
    if isinstance(data, str | Path):
        return _open_path(data, name, folder, progress, complete, declared, unit)
    if folder is not None:
        raise InvalidArgument("folder must be left out unless a file is opened; write the frame to Parquet first.")
    if declared:
        raise InvalidArgument("types must be left out unless a CSV file is opened; convert the columns.", name="types")
    if isinstance(data, RowVerbs):
        _refuse_complete(complete, unit)
        return data
    if isinstance(data, Mapping):
        return memory_rows(data, name=name or "data", complete=complete, unit=unit)
    if hasattr(data, "collect_schema") and hasattr(data, "collect") and not hasattr(data, "get_columns"):
        raise InvalidArgument("data must be a table, not a lazy frame; collect() it first.", name="data")
    if hasattr(data, "columns") and hasattr(data, "shape") and len(data.shape) == 2:
        return memory_rows(data, name=name or "data", complete=complete, unit=unit)
    found = _registered(data)
    if found is not None:
        _refuse_complete(complete, unit)
        return found
    raise InvalidArgument(
        "data must be a path, a Polars, pandas or PyArrow frame, a dict of arrays, or a row source;"
        f" got {type(data).__name__}.",
        name="data",
    )


def _open_path(
    data: str | Path,
    name: str | None,
    folder: str | Path | None,
    progress: bool | None,
    complete: Collection[str],
    types: dict[str, Type],
    unit: str | None,
) -> RowSource:
    path = Path(data)
    if path.is_dir():
        if folder is not None or types:
            given = "types" if folder is None else "folder"
            raise InvalidArgument(f"{given} must be left out when a holdfast folder is opened.", name=given)
        rows = FolderRows(path, name=name, complete=complete)
        if unit not in (None, rows.schema.unit):
            raise InvalidArgument(
                f"unit must be left out when a holdfast folder is opened; open the original file with unit={unit!r},"
                " which writes the folder anew.",
                name="unit",
            )
        return rows
    if path.suffix.lower() not in FORMATS:
        found = _registered(data)
        if found is not None:
            _refuse_complete(complete, unit)
            return found
        known = ", ".join(FORMATS)
        raise RowSourceError(f"{path} has no known ending; it must be one of {known}, or a holdfast folder.")
    if not path.is_file():
        raise RowSourceError(f"No file {path}.", path=str(path))
    target = Path(folder) if folder is not None else path.with_name(f"{path.name}.holdfast")
    stem = name or path.stem
    return ingest_file(path, target, name=stem, progress=progress, complete=complete, types=types, unit=unit)


def _column_names(complete: Collection[str]) -> tuple[str, ...]:
    if isinstance(complete, str) or not all(isinstance(name, str) for name in complete):
        raise InvalidArgument(f"complete must be a list of column names; got {complete!r}.", name="complete")
    return tuple(complete)


def _types(types: Mapping[str, str] | None) -> dict[str, Type]:
    try:
        return {name: Type(type_) for name, type_ in (types or {}).items()}
    except ValueError:
        known = ", ".join(Type)
        raise InvalidArgument(f"types must be of {known}; got {types!r}.", name="types") from None


def _refuse_complete(complete: Collection[str], unit: str | None) -> None:
    for given, name in ((complete, "complete"), (unit, "unit")):
        if given:
            raise InvalidArgument(
                f"{name} must be left out for a row source, whose schema says it; declare it when opening.", name=name
            )


def _registered(data: object) -> RowSource | None:
    return next((found for opener in ROW_SOURCES.all() if (found := opener(data)) is not None), None)
