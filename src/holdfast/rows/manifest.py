"""`manifest.json`: what a column folder holds, and which file it was made from.

It is written last, so it vouches for everything else.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import RowSourceError

MANIFEST = "manifest.json"
_FORMAT = "holdfast column folder"
_VERSION = 1


@dataclass(frozen=True)
class Source:
    """The file a folder was made from: unchanged if name, size and time of change are."""

    name: str
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path) -> "Source":
        """Look at a file."""
        try:
            found = path.stat()
        except OSError as problem:
            raise RowSourceError(f"Cannot read {path}: {problem.strerror}.") from None
        return cls(path.name, found.st_size, found.st_mtime_ns)


@dataclass(frozen=True)
class ColumnEntry:
    """One column of a folder."""

    name: str
    type: str  # a label of holdfast.rows.kinds
    nullable: bool
    layout: str  # numbers, coded, packed
    missing: bool  # whether there is a file of validity marks
    bytes: int = 0  # of packed texts
    distinct: int = 0  # texts in the dictionary


@dataclass(frozen=True)
class Manifest:
    """The whole of `manifest.json`."""

    rows: int
    fingerprint: str
    source: Source
    columns: tuple[ColumnEntry, ...]
    files: dict[str, int]  # sizes

    def write(self, folder: Path) -> None:
        """Write and make durable."""
        content = {"format": _FORMAT, "version": _VERSION} | asdict(self)
        with (folder / MANIFEST).open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read, and check that every file has its size."""
        try:
            content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise RowSourceError(f"{folder} is not a holdfast folder: it has no {MANIFEST}.") from None
        except OSError as problem:
            raise RowSourceError(f"Cannot read {folder}: {problem.strerror}.") from None
        except ValueError:
            raise _damaged(folder) from None
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise _damaged(folder)
        if content.get("version") != _VERSION:
            raise RowSourceError(
                f"{folder} has format version {content.get('version')!r}; "
                f"this holdfast reads version {_VERSION}. Open the original file again."
            )
        try:
            manifest = cls._from(content)
        except (KeyError, TypeError, ValueError):
            raise _damaged(folder) from None
        for name, size in manifest.files.items():
            try:
                found = (folder / name).stat().st_size
            except OSError:
                raise RowSourceError(f"{folder} lacks {name}; remove the folder and open again.") from None
            if found != size:
                raise RowSourceError(f"{folder / name} has the wrong size; remove the folder and open again.")
        return manifest

    @classmethod
    def _from(cls, content: dict[str, Any]) -> "Manifest":
        return cls(
            rows=int(content["rows"]),
            fingerprint=str(content["fingerprint"]),
            source=Source(**content["source"]),
            columns=tuple(ColumnEntry(**entry) for entry in content["columns"]),
            files={str(name): int(size) for name, size in content["files"].items()},
        )


def _damaged(folder: Path) -> RowSourceError:
    return RowSourceError(f"{folder / MANIFEST} is damaged; remove the folder and open again.")
