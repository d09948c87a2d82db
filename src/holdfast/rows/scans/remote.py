"""Tables elsewhere: files in an object store, Delta and Iceberg tables, PostgreSQL.

Polars reads what is in an object store; obstore, built on the same library and configured by the same environment
variables, lists it. Exactly the listed objects are read, and the list is made again afterwards: if an object was added,
removed or replaced meanwhile, the list has other names, tags, versions, sizes or times. A lake is read at one version,
and a database in one transaction: later writes are not seen.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from glob import has_magic
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import polars as pl

from holdfast.errors import InvalidArgument, MissingExtra, RowSourceError
from holdfast.rows.scans.files import FORMATS, FileScan
from holdfast.rows.scans.scan import BATCH, UNREADABLE, LazyScan, Origin, Scan, cut
from holdfast.rows.scans.texts import UTF8, Dialect

REMOTE = ("s3://", "gs://", "gcs://", "az://", "abfs://", "abfss://")
_SIGNED = re.compile(r"[?&](sig|X-Amz-Signature|X-Goog-Signature)=", re.IGNORECASE)
DELTA, ICEBERG = "delta:", "iceberg:"
POSTGRES = ("postgresql://", "postgres://")
_BATCH_BYTES = 2 << 20  # small, so that the server keeps sending while rows are processed here


def scan_objects(address: object, dialect: Dialect) -> "ObjectScan | None":
    """Return the scan of files in an object store, or of all Parquet files in a folder there; None for other data."""
    if not isinstance(address, str) or not address.startswith(REMOTE):
        return None
    if Path(address).suffix.lower() not in FORMATS:
        address = f"{address.rstrip('/')}/**/*.parquet"
    return ObjectScan(address, dialect)


class ObjectScan(FileScan):
    """Files in an object store: those that existed when the scan was created."""

    def __init__(self, address: str, dialect: Dialect) -> None:
        super().__init__(address, (), dialect)
        if dialect.encoding.lower() not in UTF8:
            raise InvalidArgument("encoding must be utf-8 for files in an object store.", name="encoding")
        self._sources = listed(address).addresses

    def origin(self) -> Origin:
        """Return the current state from names, sizes, times, tags and versions."""
        return Origin(self.where, listed(self.where).state, self._dialect.how, self._dialect.declared)

    def moment(self) -> str:
        """The same as `origin`: a store tells no more."""
        return self.origin().state

    @property
    def _partitioned(self) -> bool:
        """Whether names of folders are columns."""
        return any("=" in part for source in self._sources for part in str(source).split("/")[3:-1])


@dataclass(frozen=True)
class Listed:
    """The objects that an address names, in order, and their state."""

    addresses: tuple[str, ...]
    state: str


def listed(address: str) -> Listed:
    """List the objects of an address, which may be a pattern.

    Parameters
    ----------
    address
        For example "s3://lake/events/*.parquet". It never contains a password or a signature, since folders store it.
    """
    refuse_credentials(address)
    try:
        import obstore
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError:
        raise MissingExtra(
            "Files in an object store need obstore. Install it with: pip install 'holdfast[objects]'.", extra="objects"
        ) from None
    parts = urlsplit(address)
    scheme = {"gcs": "gs"}.get(parts.scheme, parts.scheme)
    key, base = address.split("://", 1)[1].partition("/")[2], f"{parts.scheme}://{parts.netloc}"
    try:
        matches = re.compile(_pattern(key))
    except re.error:
        raise RowSourceError(f"{address} is not a pattern: what is in brackets is not a range.", path=address) from None
    try:
        store = from_url(f"{scheme}://{parts.netloc}")
        found = [each for batch in obstore.list(store, prefix=_prefix(key)) for each in batch]
    except (BaseError, OSError, ValueError) as problem:  # its text may quote credentials
        raise RowSourceError(
            f"Cannot read {address}: {type(problem).__name__}. Are the store's credentials, region and account in the"
            " environment?",
            path=address,
        ) from None
    chosen = sorted((each for each in found if matches.fullmatch(each["path"])), key=lambda each: str(each["path"]))
    if not chosen:
        raise RowSourceError(f"Cannot read {address}: there is no such file.", path=address)
    lines = [
        f"{each['path']} {each['size']} {each['e_tag']} {each['version']} {each['last_modified'].isoformat()}"
        for each in chosen
    ]
    return Listed(tuple(f"{base}/{each['path']}" for each in chosen), sha256("\n".join(lines).encode()).hexdigest())


def refuse_credentials(address: str) -> None:
    """Refuse an address that contains a secret, which folders, ledgers and messages would repeat."""
    if urlsplit(address).password is not None or _SIGNED.search(address):
        shown = address.split("://", 1)[0]
        raise InvalidArgument(
            f"data must be an address without credentials, such as {shown}://bucket/events/: put those into the"
            " environment, as the store's own tools expect them.",
            name="data",
        )


def _prefix(key: str) -> str | None:
    """Return the folder that contains all keys of a pattern: a store can list by whole path segments only."""
    parts = key.split("/")
    fixed = next((i for i, part in enumerate(parts) if has_magic(part)), len(parts) - 1)
    return "/".join(parts[:fixed]) or None


def _pattern(key: str) -> str:
    r"""Return a regular expression for a pattern of keys.

    >>> [bool(re.fullmatch(_pattern("a/**/*.p"), key)) for key in ("a/x.p", "a/b/c/x.p", "a/b/x.q", "b/x.p")]
    [True, True, False, False]
    """
    written = []
    for token in re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", key):
        known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
        if token.startswith("[") and token.endswith("]"):
            written.append("[" + token[1:-1].replace("!", "^", 1) + "]" if token[1] == "!" else token)
        else:
            written.append(known.get(token) or re.escape(token))
    return "".join(written)


def scan_lake(data: object, version: int | None) -> "LakeScan | None":
    """Return the scan of a Delta or Iceberg table; None for anything else.

    A local folder is recognized; other tables are named as "delta:s3://lake/events" or
    "iceberg:s3://lake/events/metadata/v7.metadata.json", or given as tables of `deltalake` or `pyiceberg`.
    """
    kind = type(data).__module__.partition(".")[0]
    if kind == "deltalake" and hasattr(data, "table_uri"):
        return DeltaScan(str(data.table_uri), data.version() if version is None else version)  # type: ignore[attr-defined]
    if kind == "pyiceberg" and hasattr(data, "metadata_location"):
        return IcebergScan(data, str(data.metadata_location), version)
    if not isinstance(data, str | Path):
        return None
    text, folder = str(data), Path(data)
    refuse_credentials(text.removeprefix(DELTA).removeprefix(ICEBERG))
    if text.startswith(DELTA) or (folder / "_delta_log").is_dir():
        return DeltaScan(text.removeprefix(DELTA), version)
    if text.startswith(ICEBERG):
        return IcebergScan(text.removeprefix(ICEBERG), text, version)
    newest = sorted((folder / "metadata").glob("*.metadata.json"), key=lambda each: each.stat().st_mtime)
    return IcebergScan(str(newest[-1]), text, version) if newest else None


class LakeScan(LazyScan):
    """A table with versions."""

    def _place(self, where: str) -> None:
        self.where = where
        local = Path(where.removeprefix(DELTA).removeprefix(ICEBERG).removeprefix("file://"))
        self.path = local.absolute() if local.is_dir() else None
        self.name = local.name.removesuffix(".metadata.json") or "data"


class DeltaScan(LakeScan):
    """A Delta table. One with deletion vectors or other features that Polars does not read is refused."""

    format = "a Delta table"

    def __init__(self, uri: str, version: int | None) -> None:
        try:
            from deltalake import DeltaTable
            from deltalake.exceptions import DeltaError
        except ImportError:
            raise MissingExtra(
                "A Delta table needs deltalake. Install it with: pip install 'holdfast[delta]'.", extra="delta"
            ) from None
        self._place(uri)
        try:
            self._table: Any = DeltaTable(uri, version=version)
        except (DeltaError, OSError):  # its text may quote credentials
            which = "" if version is None else f" at version {version}"
            raise RowSourceError(f"Cannot read {uri}{which} as a Delta table.") from None

    def origin(self) -> Origin:
        """Return the version and the table's id: a table that is created again starts over with its versions."""
        return Origin(self.where, f"Delta version {self._table.version()} of {self._table.metadata().id}")

    def moment(self) -> str:
        """Also include the files of the table and their order."""
        return sha256("\n".join([self.origin().state, *self._table.file_uris()]).encode()).hexdigest()

    def lazy(self) -> pl.LazyFrame:
        """Scan the version that was opened."""
        features = self._table.protocol().reader_features or []
        if "deletionVectors" in features:
            raise RowSourceError(
                f"{self.where} has deletion vectors, which mark rows as deleted that its files still hold; rewrite it"
                " without them: REORG TABLE ... APPLY (PURGE)."
            )
        return pl.scan_delta(self._table)


class IcebergScan(LakeScan):
    """An Iceberg table, at one snapshot. One with delete files is refused, as its data files hold the deleted rows."""

    format = "an Iceberg table"

    def __init__(self, table: Any, where: str, version: int | None) -> None:
        self._place(where)
        try:
            from pyiceberg.table import StaticTable, Table
        except ImportError:
            raise MissingExtra(
                "An Iceberg table needs pyiceberg. Install it with: pip install 'holdfast[iceberg]'.", extra="iceberg"
            ) from None
        try:
            self._table = table if isinstance(table, Table) else StaticTable.from_metadata(table)
        except (OSError, ValueError):
            raise RowSourceError(f"Cannot read {where} as an Iceberg table.") from None
        newest = self._table.current_snapshot()
        if newest is None:
            raise RowSourceError(f"{where} is empty; holdfast needs at least one row.")
        self._snapshot = newest.snapshot_id if version is None else version
        if self._table.snapshot_by_id(self._snapshot) is None:
            raise InvalidArgument(f"version must be a snapshot of {where}; got {version}.", name="version")

    def origin(self) -> Origin:
        """Return the snapshot."""
        return Origin(self.where, f"Iceberg snapshot {self._snapshot}")

    def lazy(self) -> pl.LazyFrame:
        """Scan the snapshot that was opened."""
        try:
            deletes = any(task.delete_files for task in self._table.scan(snapshot_id=self._snapshot).plan_files())
        except ValueError:  # deletes by value, which pyiceberg cannot plan
            deletes = True
        if deletes:
            raise RowSourceError(
                f"{self.where} has delete files, which mark rows as deleted that its data files still hold; rewrite it"
                " without them: CALL system.rewrite_data_files(...)."
            )
        os.environ.setdefault("POLARS_ICEBERG_PLANNER", "pyiceberg")  # else Polars warns that another one is faster
        return pl.scan_iceberg(self._table, snapshot_id=self._snapshot)


def scan_postgres(url: str) -> "PostgresScan":
    """Return the scan of `postgresql://user@host/database?table=schema.name`, or `...?query=SELECT ...`."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    table, query = options.pop("table", None), options.pop("query", None)
    shown = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"  # never the password
    if (table is None) == (query is None):
        raise InvalidArgument(
            f"A database URL must name a table or a query: {shown}?table=events, or {shown}?query=SELECT ...",
            name="data",
        )
    address = urlunsplit(parts._replace(query=urlencode(options)))
    return PostgresScan(address, shown, table, query)


class PostgresScan(Scan):
    """Rows as one transaction sees them."""

    def __init__(self, address: str, shown: str, table: str | None, query: str | None) -> None:
        self._address = address
        self._connection: Any = None
        self.where = f"{shown}?table={table}" if table is not None else shown
        self.name = table.rpartition(".")[2] if table is not None else "query"
        quoted = ".".join('"' + part.replace('"', '""') + '"' for part in table.split(".")) if table else ""
        self._query = f"SELECT * FROM {quoted}" if table is not None else (query or "").rstrip().rstrip(";")

    def open(self) -> None:
        """Connect, begin the transaction, and ask for the columns."""
        try:
            from adbc_driver_manager import Error
            from adbc_driver_postgresql import dbapi
        except ImportError:
            raise MissingExtra(
                "Rows in PostgreSQL need ADBC. Install it with: pip install 'holdfast[adbc]'.", extra="adbc"
            ) from None
        self._errors: tuple[type[BaseException], ...] = (Error, *UNREADABLE)
        try:
            self._connection = dbapi.connect(self._address)
            with self._connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                # Otherwise a scan may start where a concurrent one is; the same rows must come in the same order twice.
                cursor.execute("SET LOCAL synchronize_seqscans = off")
                cursor.execute(f"SELECT * FROM ({self._query}) AS rows LIMIT 0")
                found = pl.DataFrame(cursor.fetch_arrow_table())
        except self._errors as problem:
            raise self._failed(problem) from None
        self.take_schema(found.schema)

    def rows(self) -> int | None:
        """Count the rows of the snapshot."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(f"SELECT count(*) FROM ({self._query}) AS rows")
                return int(cursor.fetchone()[0])
        except self._errors as problem:
            raise self._failed(problem) from None

    def batches(self, after: int = 0) -> Iterator[pl.DataFrame]:
        """Copy the rows of the snapshot."""
        try:
            with self._connection.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
                cursor.execute(self._query)
                for batch in cursor.fetch_record_batch():
                    yield from cut(pl.DataFrame(batch), BATCH)
        except self._errors as problem:
            raise self._failed(problem) from None

    def close(self) -> None:
        """End the transaction and the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _failed(self, problem: BaseException) -> RowSourceError:
        """Return an error with only the code of the reason, since its text may quote values."""
        code = getattr(problem, "sqlstate", None)
        return RowSourceError(f"Cannot read {self.where} from PostgreSQL{f' (SQLSTATE {code})' if code else ''}.")
