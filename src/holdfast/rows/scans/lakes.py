"""Delta and Iceberg tables, at one version: later writes are not seen."""

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl

from holdfast.errors import InvalidArgument, MissingExtra, RowSourceError
from holdfast.rows.scans.files import refuse_credentials
from holdfast.rows.scans.scan import LazyScan, Origin

DELTA, ICEBERG = "delta:", "iceberg:"


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
