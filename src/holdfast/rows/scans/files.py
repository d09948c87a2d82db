"""Files: Parquet, CSV, Arrow, JSON lines; one, many, or a folder of partitions."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import polars as pl

from holdfast.errors import InvalidArgument, RowSourceError
from holdfast.rows.scans import scan
from holdfast.rows.scans.inference import LOOK_AHEAD
from holdfast.rows.scans.json_lines import JsonLines
from holdfast.rows.scans.parquet import RowGroups, required_columns, row_groups
from holdfast.rows.scans.pieces import Unbroken, in_pieces
from holdfast.rows.scans.scan import UNREADABLE, LazyScan, Origin, skipping, state_of
from holdfast.rows.scans.texts import CsvFiles, Dialect
from holdfast.schema import Type

EXPLORE = ".explore.parquet"  # ends the name of the exploration part of a table that was split
FORMATS = {
    ".parquet": "Parquet",
    ".csv": "CSV",
    ".tsv": "CSV",
    ".arrow": "Arrow",
    ".ipc": "Arrow",
    ".feather": "Arrow",
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
}


class FileScan(LazyScan):
    """Files of one format, in order of their names."""

    def __init__(self, where: str | Path, files: Sequence[Path], dialect: Dialect, *, root: Path | None = None) -> None:
        self.where, self.files, self._dialect, self._root = str(where), files, dialect, root
        self._given = dialect  # without what is recalled
        self._sources: Sequence[Path | str] = files
        self._text: JsonLines | CsvFiles | None = None
        self._counted: int | None = None  # the rows of text files, which take long to count
        first = str(where) if not files else files[0].name
        endings = {Path(name).suffix.lower() for name in ([str(where)] if not files else map(str, files))}
        if len(endings) > 1:
            raise RowSourceError(f"{where} has files of several kinds: {', '.join(sorted(endings))}; name one of them.")
        _require_apart(str(where), files)
        self.format = FORMATS[endings.pop()]
        self.path = root or (files[0] if len(files) == 1 else None)
        self.name = Path(root or first).stem if root or len(files) == 1 else _name_of(str(where))
        if self.format == "JSON lines":
            self.skips_rows = False  # here Polars counts lines, even empty ones
            self.keep = " To keep them, declare their types."
        given = replace(dialect, types=()).given if self.format == "JSON lines" else dialect.given
        if given is not None and self.format != "CSV":
            why = "has its own types" if given == "types" else "is not a CSV file"
            raise InvalidArgument(f"{given} must be left out: {Path(first).name} {why}.", name=given)

    def origin(self) -> Origin:
        """Return the current state from names, sizes and times."""
        state = state_of(self._named(), "st_size", "st_mtime_ns")
        return Origin(Path(self.where).name, state, self._dialect.how, self._dialect.declared)

    def recall(self, origin: Origin) -> None:
        """Read the same text files as before: if no types are given, or no other options, they are as remembered."""
        if self.format not in ("CSV", "JSON lines") or origin.name != self.origin().name:
            return
        before = Dialect.remembered(origin)
        options = self._given if self._given.how else before
        self._dialect = replace(options, types=self._given.types or before.types)

    def moment(self) -> str:
        """Also include inodes, the order of the files, and the times of any change to them.

        Unlike `origin`, this changes when the files are moved or copied.
        """
        numbered = {f"{number} {self._label(path)}": path for number, path in enumerate(self.files)}
        return state_of(numbered, "st_size", "st_mtime_ns", "st_ctime_ns", "st_dev", "st_ino")

    def _named(self) -> dict[str, Path]:
        return {self._label(path): path for path in self.files}

    def _label(self, path: Path) -> str:
        base = self._root or self.files[0].parent
        return str(path.relative_to(base) if path.is_relative_to(base) else path)

    def open(self) -> None:
        """Read the schema, and note which types were inferred."""
        super().open()
        if self.format in ("CSV", "JSON lines"):
            types = ", ".join(f"{name} {storage.type}" for name, storage in self.columns.items())
            self.note = f"Types, as declared or from the first {LOOK_AHEAD:,} rows: {types}"

    def agrees(self, origin: Origin, types: Mapping[str, Type]) -> bool:
        """Whether a folder holds these files in their current state; options left out count as remembered."""
        now = self.origin()
        return (
            (origin.name, origin.state) == (now.name, now.state)
            and now.how in ("", origin.how)
            and types == {**types, **dict(self._dialect.types)}
        )

    def required(self) -> Collection[str]:
        """Return the columns for which the headers of all files rule out missing values."""
        found = [required_columns(path, self.format) for path in self.files]
        return set(frozenset.intersection(*found)) if found else set()

    def lazy(self) -> pl.LazyFrame:
        """Scan in the format of the files."""
        paths: Any = list(self._sources)
        if self.format == "Parquet":
            return pl.scan_parquet(paths, hive_partitioning=self._partitioned, glob=False)
        if self.format == "Arrow":
            return pl.scan_ipc(paths, hive_partitioning=self._partitioned, glob=False)
        if self.format == "JSON lines":
            self._text = JsonLines(self.where, self.files, paths, self._dialect, self.unit)
        else:
            self._text = CsvFiles(self.where, self.files, paths, self._dialect, self._given, self.unit)
        return self._text.lazy()

    def rows(self) -> int | None:
        """Count the rows without reading them."""
        if self._counted is not None:
            return self._counted
        pieces = None if self._text is None else in_pieces(self._text)
        if pieces is None:
            return super().rows()
        try:
            self._counted = sum(int(piece.select(pl.len()).collect(engine="streaming").item()) for piece in pieces)
            return self._counted
        except Unbroken:
            return super().rows()
        except UNREADABLE:
            raise self.damaged() from None

    def reading(self, after: int, rows: int | None) -> Iterator[pl.DataFrame]:
        """Read Parquet files with large row groups page by page, JSON lines in pieces, everything else by Polars."""
        if self.format == "Parquet" and self.files:
            large = RowGroups.of(self.files, self.frame.collect_schema())
            if large is not None:
                return self.sound(large.read(after))
        pieces = in_pieces(self._text) if isinstance(self._text, JsonLines) else None
        if pieces is not None:
            return skipping(self.sound(self.chosen(piece).collect(engine="streaming") for piece in pieces), after)
        return super().reading(after, rows)

    def at_once(self, rows: int | None) -> int:
        """Return how many rows with texts Polars may hand over at once.

        Lines of a text file are as long as values, and the footer of a Parquet file tells how long rows are.
        """
        few = super().at_once(rows)
        if self.format == "Parquet" and self.files:
            groups = [row_groups(path) for path in self.files]
            longest = max((size / count for each in groups for size, count in each or () if count), default=1.0)
            return few if None in groups else max(few, min(scan.BATCH, int(scan.BATCH_BYTES / longest)))
        if self.format not in ("CSV", "JSON lines") or not self.files or not rows:
            return few
        size = sum(path.stat().st_size for path in self.files)
        return max(1, min(scan.BATCH, rows * (scan.BATCH_BYTES // 4) // max(1, size)))

    def close(self) -> None:
        """Delete copies of files in another encoding."""
        if isinstance(self._text, CsvFiles):
            self._text.close()

    @property
    def _partitioned(self) -> bool:
        """Whether names of folders, such as year=2024, are columns."""
        return self._root is not None

    def empty(self) -> RowSourceError:
        """Return the error for a file without a header, by name if there are others."""
        if len(self.files) > 1:
            empty = next((path for path in self.files if path.stat().st_size == 0), None)
            if empty is not None:
                return RowSourceError(f"{empty} is empty, without even a header. Remove it, or name the other files.")
        return super().empty()

    def damaged(self) -> RowSourceError:
        """Return the error for a file that cannot be read; for text, with the line at fault if there is one."""
        fault = None if self._text is None else self._text.fault()
        return super().damaged() if fault is None else RowSourceError(fault)

    def unfit(self, problem: BaseException) -> RowSourceError | None:
        """Return the error for a value that does not fit the type of its column, if that was the problem."""
        return None if self._text is None else self._text.unfit(problem)


def scan_path(path: str | Path, dialect: Dialect) -> FileScan | None:
    """Return the scan of a file, a glob or a folder of Parquet files; None if it is none of these."""
    text, found = str(path), Path(path)
    if found.suffix.lower() in FORMATS and (found.is_file() or not has_magic(text)):
        if not found.is_file():
            raise no_file(found)
        return FileScan(found, [found], dialect)
    if has_magic(text) and not found.exists():
        files = sorted(Path(each) for each in glob(text, recursive=True) if Path(each).is_file())
        if not files:
            raise RowSourceError(f"No file matches {text}{_from_here(found)}.", path=text)
        return FileScan(text, _known(text, files), dialect)
    if found.is_dir():
        files = sorted(each for each in found.rglob("*.parquet") if not _hidden(each.relative_to(found)))
        return FileScan(found, files, dialect, root=found.absolute()) if files else None
    return None


def no_file(path: Path, what: str = "file") -> RowSourceError:
    """Return the error for a file that is not there, which says where it was looked for."""
    near = get_close_matches(path.name, _like(path), n=1, cutoff=0.8)
    hint = f" Did you mean {path.with_name(near[0])}?" if near else ""
    return RowSourceError(f"No {what} {path}{_from_here(path)}.{hint}", path=str(path))


def _like(path: Path) -> list[str]:
    """Return the names of what is in the same folder and could be opened instead."""
    with suppress(OSError):
        return [each.name for each in path.parent.iterdir() if each.suffix.lower() in (*FORMATS, ".holdfast", ".deck")]
    return []


def _from_here(path: Path) -> str:
    """Say where a path begins that does not say it itself."""
    if path.parts[:1] == ("~",):
        return f": '~' is a name here. Write {path.expanduser()}"
    return "" if path.is_absolute() else f" in {Path.cwd()}"


def scan_paths(paths: Collection[str | Path], dialect: Dialect) -> FileScan:
    """Return the scan of several files, read one after another in the order given."""
    files = [Path(each) for each in paths]
    for path in files:
        if not path.is_file():
            raise no_file(path)
    where = f"{files[0]} and {len(files) - 1} more" if len(files) > 1 else str(files[0])
    return FileScan(where, _known(where, files), dialect)


def _known(where: str, files: list[Path]) -> list[Path]:
    for path in files:
        if path.suffix.lower() not in FORMATS:
            raise RowSourceError(f"{where}: {path.name} has no known ending; it must be one of {', '.join(FORMATS)}.")
    return files


def _require_apart(where: str, files: Sequence[Path]) -> None:
    """Refuse files that have rows in common: rows that are there twice are not independent, however many there are."""
    found: dict[tuple[int, int], Path] = {}
    for path in files if len(files) > 1 else ():
        if path.name.endswith(EXPLORE):
            raise RowSourceError(
                f"{where}: {path.name} has rows of a table that was split, which may be among the others. Name the"
                " files to be read."
            )
        try:
            there = path.stat()
        except OSError:  # reading it says what is wrong
            continue
        first = found.setdefault((there.st_dev, there.st_ino), path)
        if first is not path and there.st_ino:  # 0: such a file system numbers no files
            same = path if path == first else f"{first} and {path}"
            raise RowSourceError(
                f"{where}: {same} would be read twice, and each of its rows counted twice; name it once."
            )


def _name_of(where: str) -> str:
    """Name a dataset by the last part of its address that has no pattern."""
    parts = [part for part in re.split(r"[/\\]", where.split(" and ")[0]) if part and not has_magic(part)]
    return Path(parts[-1]).stem if parts else "data"


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)
