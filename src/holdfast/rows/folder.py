"""A folder with one array file per column, mapped into memory: opening it is cheap, however many rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.errors import RowSourceError
from holdfast.rows.append import dictionary_series, file_name
from holdfast.rows.columns import CodedText, Indices, Numbers, PackedText, StoredColumn
from holdfast.rows.kinds import kind_named
from holdfast.rows.local import LocalRows
from holdfast.rows.manifest import ColumnEntry, Manifest
from holdfast.rows.mapped import MappedArray, room_to_warm, warm
from holdfast.schema import Column


class FolderRows(LocalRows):
    """The rows of a column folder. Opening checks the manifest and all file sizes, not the content."""

    def __init__(self, folder: Path, *, name: str | None = None) -> None:
        folder = folder.absolute()  # so that it can be reopened from anywhere
        manifest = Manifest.read(folder)
        if manifest.rows < 1 or not manifest.columns:
            raise RowSourceError(f"{folder} holds no rows; remove it and open the original file again.")
        self._room = room_to_warm()
        self._cold: dict[str, list[MappedArray]] = {}
        self._vast: dict[str, list[MappedArray]] = {}
        super().__init__(
            name or Path(manifest.source.name).stem,
            [
                (
                    Column(entry.name, kind_named(entry.type).type, entry.nullable),
                    kind_named(entry.type),
                    self._open(folder, position, entry, manifest.rows),
                )
                for position, entry in enumerate(manifest.columns)
            ],
            manifest.rows,
            fingerprint=manifest.fingerprint,
            location=folder,
        )

    def __reduce__(self) -> tuple[Any, ...]:  # another process maps the files itself
        return _reopen, (self.location, self.name, self.fingerprint)

    def _touch(self, indices: Indices, columns: Sequence[str]) -> None:
        cold = [mapped for name in columns for mapped in self._cold.pop(name, ())]
        if cold:  # the first to draw from a column warms it up
            self._room = warm(cold, self._room)
        for name in columns:
            for mapped in self._vast.get(name, ()):
                mapped.request(indices)

    def _open(self, folder: Path, position: int, entry: ColumnEntry, rows: int) -> StoredColumn:
        mapped: list[MappedArray] = []

        def array(what: str, dtype: Any, length: int) -> Any:
            mapped.append(MappedArray(folder / file_name(position, what), np.dtype(dtype), length))
            return mapped[-1].array

        kind = kind_named(entry.type)
        valid = array("valid", np.bool_, rows) if entry.missing else None
        stored: StoredColumn
        if entry.layout == "numbers" and kind.numpy is not None:
            stored = Numbers(kind, array("values", kind.numpy, rows), valid)
        elif entry.layout == "coded":
            codes = array("codes", np.uint32, rows)
            texts = array("dictionary.texts", np.uint8, entry.bytes)
            stored = CodedText(
                codes,
                dictionary_series(texts, array("dictionary.starts", np.int64, entry.distinct + 1)),
                valid,
            )
        elif entry.layout == "packed":
            starts = array("starts", np.int64, rows + 1)
            stored = PackedText(starts, array("texts", np.uint8, entry.bytes), valid)
        else:
            raise RowSourceError(f"{folder} has an unknown layout; remove the folder and open again.")
        self._cold[entry.name] = mapped
        self._vast[entry.name] = [each for each in mapped if each.vast and each.array.size in (rows, rows + 1)]
        return stored


def _reopen(folder: Path, name: str, fingerprint: str) -> FolderRows:
    rows = FolderRows(folder, name=name)
    if rows.fingerprint != fingerprint:
        raise RowSourceError(f"{folder} holds other data than before; open it again.")
    return rows
