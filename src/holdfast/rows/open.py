"""`holdfast.open`: turn anything that holds a table into a row source.

Other packages can add more: a callable registered in `ROW_SOURCES` (or as an entry point of the group
"holdfast.row_sources") returns a row source for data it recognizes, and None otherwise. It is called only for data that
nothing here recognizes.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from glob import has_magic
from pathlib import Path
from typing import TypeGuard, Unpack

import numpy as np
import polars as pl

from holdfast import check
from holdfast.errors import InvalidArgument, RowSourceError
from holdfast.ledger import exists, file_beside
from holdfast.registry import Registry
from holdfast.rows.columns import warn_of_zones
from holdfast.rows.decks.deck import Deck, is_deck
from holdfast.rows.disk.folder import MANIFEST, FolderRows, Manifest
from holdfast.rows.disk.ingest import asked, ingest
from holdfast.rows.memory import memory_rows
from holdfast.rows.scans.files import FORMATS, no_file, scan_path, scan_paths
from holdfast.rows.scans.remote import POSTGRES, scan_lake, scan_objects, scan_postgres
from holdfast.rows.scans.scan import Scan, scan_stream
from holdfast.rows.scans.texts import Dialect
from holdfast.rows.source import RowSource, RowVerbs, Table
from holdfast.schema import Type

_WEB = ("http://", "https://")
_SHEETS = (".xlsx", ".xls", ".ods")
_IN_MEMORY = ("polars", "pandas", "pyarrow", "modin", "cudf")  # libraries whose tables are in memory
ROW_SOURCES: Registry[Callable[[object], RowSource | None]] = Registry("holdfast.row_sources")


@check.options
def open_rows(
    data: Table,
    *,
    name: str | None = None,
    folder: str | Path | None = None,
    progress: bool | None = None,
    complete: Collection[str] = (),
    types: Mapping[str, str] | None = None,
    separator: str | None = None,
    encoding: str = "utf-8",
    null_values: Collection[str] = (),
    decimal: str = ".",
    version: int | None = None,
    unit: str | None = None,
) -> RowSource:
    """Open a table: files, a column folder, a deck, a frame, a dict of arrays, a stream, or a row source of your own.

    Files (Parquet, CSV, Arrow, JSON lines: one, a glob, a list, a folder of partitions, or an address such as
    s3://lake/events/), Delta and Iceberg tables, PostgreSQL tables, lazy frames and Arrow streams are read once, batch
    by batch, into a folder of columns, and questions are answered from there from then on. Files whose size or time of
    change differs, and tables whose version does, are read again. The folder remembers what was declared.

    Analysts see names, types, and whether values may be missing. None of this is observed from the values: a value may
    be missing unless the header of the file or the type of the array rules it out, or the column is declared complete.

    Parameters
    ----------
    data
        What holds the table. An index of pandas that has a name is a column.
    name
        The name of the dataset; by default, the file's name without its extension, or "data".
    folder
        Where the columns are written; by default, `<file>.holdfast` beside a file, or in the working directory for
        addresses. A stream needs it.
    progress
        Whether to show a progress bar while writing; by default, only on a terminal.
    complete
        Columns whose values are never missing (neither NULL nor NaN): a mean of one costs 1 answer instead of 2. A
        column that does have missing values is refused, which reveals something about the sample, so declare only what
        you know.
    types
        The types of columns of a CSV or JSON lines file: "boolean", "integer", "number", "text", "date" or
        "timestamp". By default, the first 10,000 rows decide; where a few values would, the file is refused, and so is
        a later value that does not fit. JSON lines may leave out a column that is declared.
    separator, encoding, null_values, decimal
        How a CSV file is written: what separates values, for example ";"; its encoding, for example "latin-1"; texts
        that stand for missing values, in addition to the empty one; "," if numbers have decimal commas.
    version
        The version of a Delta table, or the snapshot of an Iceberg table; by default, the newest.
    unit
        The column that says which rows belong together, such as "patient". Then units are drawn and counted, not rows,
        and rows of a unit may depend on each other; the column itself cannot be asked about. A folder remembers it.

    Returns
    -------
    RowSource
        The rows, for `Session` and others that take a table.
    """
    complete = _column_names(complete)
    dialect = dialect_of(types=types, separator=separator, encoding=encoding, null_values=null_values, decimal=decimal)
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise InvalidArgument(f"name must be a non-empty text; got {name!r}.", name="name")
    if isinstance(data, str) and not data:
        raise InvalidArgument("data must say which file or folder; got an empty text.", name="data")
    if isinstance(data, str | Path) and "://" not in str(data):
        _require_path(str(data))
    given = "folder" if folder is not None else dialect.given or ("version" if version is not None else None)
    own = Path(data) if isinstance(data, str | Path) and is_own(Path(data)) else None
    if own is not None:
        if given is not None:
            raise InvalidArgument(f"{given} must be left out when a holdfast folder is opened.", name=given)
        return _open_own(own, name, complete, unit)
    scan = find_scan(data, dialect, version)
    if scan is not None:
        target, called = target_of(scan, folder), name or scan.name
        try:
            return ingest(scan, target, name=called, progress=progress, complete=complete, unit=unit)
        finally:
            scan.close()
    if given is not None and not _is_missing(data):
        raise InvalidArgument(f"{given} must be left out unless a table is read from files or a stream.", name=given)
    if isinstance(data, RowVerbs):
        _refuse_complete(complete, unit)
        return data
    if isinstance(data, Mapping) or _is_frame(data):
        rows = memory_rows(data, name=name or "data", complete=complete, unit=unit)  # type: ignore[arg-type]
        warn_of_zones(rows.storages)
        return rows
    found = next((found for opener in ROW_SOURCES.all() if (found := opener(data)) is not None), None)
    if found is not None:
        _refuse_complete(complete, unit)
        return found
    if isinstance(data, str | Path):
        if str(data).startswith(_WEB):
            raise _on_the_web(str(data))
        raise unknown_path(data)
    hint = ' Name its columns: {"x": values[:, 0]}.' if isinstance(data, np.ndarray) else ""
    hint = " Make it a frame of one column: series.to_frame()." if _is_series(data) else hint
    raise InvalidArgument(
        "data must be a path, a Polars, pandas or PyArrow frame, a dict of arrays, an Arrow stream, or a row source;"
        f" got {type(data).__name__}.{hint}",
        name="data",
    )


def _require_path(data: str) -> None:
    try:
        Path(data).exists()
    except OSError as error:  # it is too long
        raise RowSourceError(f"{data[:60]}... cannot be a path: {error.strerror}.") from None


def _is_missing(data: object) -> bool:
    """Whether it is the path of one file or folder, and there is nothing."""
    if not isinstance(data, str | Path) or "://" in str(data) or has_magic(str(data)):
        return False
    return not Path(data).exists()


def unknown_path(data: str | Path) -> RowSourceError:
    """Return the refusal of a path that is not there, or that names nothing which could be read as a table."""
    path = Path(data)
    if not path.exists() and path.suffix.lower() not in _SHEETS:  # which are not read if they are there, either
        return no_file(path, "folder" if path.suffix in (".holdfast", ".deck") else "file or folder")
    if path.is_dir():
        several = next((ending for ending in FORMATS if any(path.glob(f"*{ending}"))), None)
        hint = "" if several is None else f" All of its {FORMATS[several]} files are '{data}/*{several}'."
        return RowSourceError(f"{data} is not a holdfast folder, a deck, or a folder of Parquet files.{hint}")
    known, hint = ", ".join(FORMATS), _other_ending(path)
    return RowSourceError(f"{data} has no known ending; it must be one of {known}, or a holdfast folder.{hint}")


def _other_ending(path: Path) -> str:
    """Say what to do with a file that is there, but is not read here."""
    match path.suffix.lower():
        case ".gz" | ".zip" | ".bz2" | ".xz" | ".zst":
            return " Unpack it first."
        case "" | ".txt" | ".dat" | ".data":
            return " If it is a CSV file, give it the ending .csv."
        case _:
            return " Read it with pandas or Polars, and give the frame."


def _on_the_web(address: str) -> RowSourceError:
    if Path(address).suffix.lower() in FORMATS:
        return RowSourceError(f"{address} is on the web; download it first, and open the file.")
    return RowSourceError(f"{address} is not a file. A holdfast server is asked with holdfast.connect(url, token).")


def dialect_of(**reading: Unpack[check.TextFormat]) -> Dialect:
    """Return how CSV files are written, from the options of `open_rows`."""
    types, null_values = _types(reading.get("types")), _texts(reading.get("null_values", ()))
    return Dialect(
        reading.get("separator"),
        reading.get("encoding", "utf-8"),
        null_values,
        reading.get("decimal", "."),
        tuple(types.items()),
    )


def find_scan(data: object, dialect: Dialect | None = None, version: int | None = None) -> Scan | None:
    """Return how to read a table batch by batch; None for data in memory or of an unknown kind.

    Parameters
    ----------
    data
        What holds the table.
    dialect
        How CSV files are written.
    version
        The version, of a table that has versions.
    """
    dialect = dialect or Dialect()
    lake = scan_lake(data, version) if _may_be_lake(data) else None
    if lake is None and version is not None and not _is_missing(data):
        raise InvalidArgument("version must be left out unless a Delta or Iceberg table is read.", name="version")
    if isinstance(data, str) and data.startswith(POSTGRES):
        return scan_postgres(data)
    if isinstance(data, str) and data.startswith(_WEB):
        return None
    if isinstance(data, str | Path):
        return lake or scan_objects(data, dialect) or scan_path(data, dialect)
    if _is_list(data):
        return scan_paths(data, dialect)
    if isinstance(data, pl.LazyFrame):
        return scan_stream(data)
    if isinstance(data, RowVerbs | Mapping) or _is_series(data) or _is_frame(data):
        return None
    return lake or scan_stream(data)


def _may_be_lake(data: object) -> bool:
    """Whether it may name a table with versions, or be one."""
    if isinstance(data, str):
        return not data.startswith((*POSTGRES, *_WEB))
    in_memory = isinstance(data, RowVerbs | Mapping | pl.LazyFrame) or _is_series(data) or _is_frame(data)
    return not in_memory and not _is_list(data)


def target_of(scan: Scan, folder: str | Path | None = None) -> Path:
    """Return where the columns of a table are written; a stream must say so."""
    if folder is not None:
        return Path(folder)
    if scan.path is not None and scan.path.name:  # the root folder has no name
        return scan.path.with_name(f"{scan.path.name}.holdfast")
    if not scan.where:
        raise InvalidArgument(
            "folder must say where the rows of a stream are kept: hf.open(source, folder='events.holdfast').",
            name="folder",
        )
    return Path(f"{scan.name}.holdfast")


def known_ledger(scan: Scan) -> str | None:
    """Return the ledger that has begun on a table, or what was made of its rows, as far as the files beside it tell."""
    if not scan.where:
        return None  # a stream
    folder = target_of(scan).absolute()
    with suppress(RowSourceError):  # there may be no folder
        begun = asked(folder, Manifest.read(folder))
        if begun is not None:
            return begun.ledger
    beside = file_beside(folder)
    return str(beside) if exists(beside, scan.name) else None


def _open_own(folder: Path, name: str | None, complete: Collection[str], unit: str | None) -> RowSource:
    if is_deck(folder):
        deck = Deck(folder, name=name, complete=complete)
        if unit not in (None, deck.schema.unit):
            what = "rows" if deck.schema.unit is None else f"units by {deck.schema.unit!r}"
            raise InvalidArgument(
                f"unit must be left out for {folder.name}, whose cards are {what}; deal another deck, with"
                f" unit={unit!r}.",
                name="unit",
            )
        return deck
    rows = FolderRows(folder, name=name, complete=complete)
    if unit not in (None, rows.schema.unit):
        raise InvalidArgument(
            f"unit must be left out when a holdfast folder is opened; open the original file with unit={unit!r},"
            " which writes the folder again.",
            name="unit",
        )
    return rows


def is_own(path: Path) -> bool:
    """Whether a folder was written by holdfast, finished or not."""
    return path.is_dir() and (path.suffix == ".holdfast" or (path / MANIFEST).is_file() or is_deck(path))


def _is_frame(data: object) -> bool:
    """Whether a table is in memory as a whole."""
    shape = getattr(data, "shape", None) if hasattr(data, "columns") else None
    if not isinstance(shape, tuple) or len(shape) != 2:
        return False
    # A DuckDB query has a shape too, but is not yet a table.
    return not hasattr(data, "__arrow_c_stream__") or type(data).__module__.partition(".")[0] in _IN_MEMORY


def _is_series(data: object) -> bool:
    """Whether this is one column; that of pandas would pass for a stream."""
    return isinstance(data, pl.Series) or (hasattr(data, "__arrow_c_stream__") and hasattr(data, "to_frame"))


def _is_list(data: object) -> TypeGuard[Sequence[str | Path]]:
    return isinstance(data, list | tuple) and bool(data) and all(isinstance(each, str | Path) for each in data)


def _column_names(complete: Collection[str]) -> tuple[str, ...]:
    if isinstance(complete, str) or not all(isinstance(name, str) for name in complete):
        raise InvalidArgument(f"complete must be a list of column names; got {complete!r}.", name="complete")
    return tuple(complete)


def _texts(null_values: Collection[str]) -> tuple[str, ...]:
    if isinstance(null_values, str):
        return (null_values,)
    if not isinstance(null_values, Collection) or not all(isinstance(text, str) for text in null_values):
        raise InvalidArgument(f"null_values must be a list of texts; got {null_values!r}.", name="null_values")
    return tuple(null_values)


# What other libraries call types.
_OTHERWISE_CALLED: dict[object, Type] = {
    **dict.fromkeys(("bool", bool), Type.BOOL),
    **dict.fromkeys(("int", "int64", "int32", int), Type.INT),
    **dict.fromkeys(("float", "float64", "float32", "double", float), Type.FLOAT),
    **dict.fromkeys(("str", "string", "object", "category", str), Type.STRING),
    **dict.fromkeys(("datetime", "datetime64", "datetime64[ns]"), Type.DATETIME),
}


def _types(types: Mapping[str, str] | None) -> dict[str, Type]:
    if types is not None and not isinstance(types, Mapping):
        raise InvalidArgument(f"types must be a dict by column names; got {types!r}.", name="types")
    found = {}
    for name, given in (types or {}).items():
        if given not in list(Type):
            known = ", ".join(Type)
            meant = _OTHERWISE_CALLED.get(given) if isinstance(given, Hashable) else None
            hint = "" if meant is None else f" Did you mean {str(meant)!r}?"
            raise InvalidArgument(f"types[{name!r}] must be one of {known}; got {given!r}.{hint}", name="types")
        found[name] = Type(given)
    return found


def _refuse_complete(complete: Collection[str], unit: str | None) -> None:
    for given, name in ((complete, "complete"), (unit, "unit")):
        if given:
            raise InvalidArgument(
                f"{name} must be left out for a row source, whose schema has it; declare it when opening.", name=name
            )
