"""Column files that grow batch by batch while a table is ingested. Memory holds one batch, never a column."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import DTypeLike, NDArray

from holdfast.rows.columns import PackedText, Storage, code_type
from holdfast.rows.disk.array_files import ArrayFile, BlockHashes, FileEntry, Incomplete
from holdfast.rows.disk.folder import ColumnEntry, file_name
from holdfast.rows.fingerprint import ColumnDigest, Joined, physical, validity
from holdfast.rows.scans.scan import cut, spans
from holdfast.schema import Type

_PIECE = 1 << 18
DICTIONARY_BYTES = 32 << 20  # at most, of one dictionary


class ColumnFiles(ABC):
    """All files of one column. Subclasses store the values; this class marks missing ones and computes hashes."""

    layout = "numbers"

    def __init__(self, folder: Path, position: int, name: str, storage: Storage, *, over: bool = False) -> None:
        self._folder, self._position, self._over = folder, position, over
        self.digest = ColumnDigest(name, storage)
        self.missing = False
        self._open: list[ArrayFile] = []
        self._valid: ArrayFile | None = None

    @abstractmethod
    def append(self, series: pl.Series) -> None:
        """Add one batch."""

    def start_saving(self) -> None:
        """Flush everything, and let the disk begin with it."""
        for file in self._open:
            file.start_saving()

    def so_far(self) -> dict[str, Any]:
        """Flush everything to the operating system; return the state that `go_on` needs."""
        return {"rows": self.digest.rows, "missing": self.missing} | {
            file.path.name: file.so_far() for file in self._open
        }

    def go_on(self, state: dict[str, Any]) -> None:
        """Continue with existing files in the state that `so_far` returned; raise `Incomplete` if they have changed."""
        if self._name("valid") in state:
            self._valid = self._array("valid", np.bool_)
        for file in self._open:
            if file.path.name not in state:
                raise Incomplete
            file.go_on(*state[file.path.name])
        self.missing = state["missing"]
        for size in _pieces(state["rows"]):
            valid = None if self._valid is None else self._valid.read(self.digest.rows, size)
            self._hash_again(size, valid)

    @abstractmethod
    def _hash_again(self, count: int, valid: NDArray[np.bool_] | None) -> None:
        """Add the next rows to the digest, reading them from the files."""

    def close(self) -> None:
        """Make every file durable."""
        for file in self._open:
            file.close()

    def abandon(self) -> None:
        """Close every file, finished or not."""
        for file in self._open:
            file.abandon()

    def entry(self, *, nullable: bool) -> ColumnEntry:
        """Return this column's part of the manifest."""
        name, label = self.digest.name, self.digest.storage.label
        return ColumnEntry(name, label, nullable, self.layout, self.missing, self._valid is not None)

    def files(self) -> dict[str, FileEntry]:
        """Return its files' part of the manifest."""
        return {file.path.name: file.entry() for file in self._open}

    def _array(self, what: str, dtype: DTypeLike, hashed: BlockHashes | None = None) -> ArrayFile:
        path = self._folder / self._name(what)
        file = ArrayFile(path, dtype, hashed, over=self._over and path.exists())
        self._open.append(file)
        return file

    def _name(self, what: str) -> str:
        return file_name(self._position, what)

    def _drop(self, *files: ArrayFile) -> None:
        for file in files:
            self._open.remove(file)
            file.abandon()
            file.path.unlink()

    def _mark(self, valid: NDArray[np.bool_] | None, count: int) -> None:
        if self._valid is None:
            if valid is None:
                return
            self.missing = True
            self._valid = self._array("valid", np.bool_)
            for size in _pieces(self.digest.rows - count):  # all rows before this batch were present
                self._valid.append(np.ones(size, np.bool_))
        self._valid.append(np.ones(count, np.bool_) if valid is None else valid)


class NumberFiles(ColumnFiles):
    """Fixed-width values; with `over`, existing files are overwritten in place."""

    def __init__(self, folder: Path, position: int, name: str, storage: Storage, *, over: bool = False) -> None:
        super().__init__(folder, position, name, storage, over=over)
        assert storage.numpy is not None
        self._values = self._array("values", storage.numpy, self.digest.values)

    def append(self, series: pl.Series) -> None:
        """Add one batch; NaN counts as missing, and stays NaN in the file."""
        values, valid = physical(series, self.digest.storage)
        self.add(values, valid)
        if self.digest.storage.type is Type.FLOAT and not self.missing:
            self.missing = bool(np.isnan(values).any())

    def add(self, values: NDArray[np.generic], valid: NDArray[np.bool_] | None) -> None:
        """Add stored numbers; the caller keeps track of whether NaN is among them."""
        self.digest.numbers(values, valid)
        self._values.append(values)
        self._mark(valid, values.size)

    def _hash_again(self, count: int, valid: NDArray[np.bool_] | None) -> None:
        self.digest.mark(valid, count)  # the file's own hash already covers the values


class TextFiles(ColumnFiles):
    """Text: codes into a dictionary while it stays small, otherwise packed end to end.

    If the caller keeps the dictionary (`add_codes`), `texts` is its size.
    """

    def __init__(
        self,
        folder: Path,
        position: int,
        name: str,
        storage: Storage,
        most_distinct: int,
        *,
        most_bytes: int = DICTIONARY_BYTES,
        texts: int = 0,
        over: bool = False,
        hashed: bool = True,
    ) -> None:
        super().__init__(folder, position, name, storage, over=over)
        self._most_distinct, self._most_bytes, self._hashed = most_distinct, most_bytes, hashed
        self._codes: ArrayFile | None = self._array("codes", code_type(texts))
        self._dictionary = pl.DataFrame(schema={"text": pl.String, "code": pl.UInt32})
        self._texts: ArrayFile | None = None  # the dictionary's texts if coded, all texts if packed
        self._starts: ArrayFile | None = None

    @property
    def layout(self) -> str:  # type: ignore[override]
        """How the texts are stored."""
        return "coded" if self._codes is not None else "packed"

    def append(self, series: pl.Series) -> None:
        """Add one batch."""
        valid, joined = validity(series), None
        if self._hashed:
            joined = self.digest.texts(series.cast(pl.String), valid)
        else:
            self.digest.rows += series.len()
        if self._codes is not None:
            named = isinstance(series.dtype, pl.Categorical | pl.Enum)
            codes = self._coded_categories(series) if named else self._coded(series.cast(pl.String))
            if codes is None:
                self._unpack_codes()
            else:
                self._codes.append(codes)
        if self._codes is None:
            self._pack(joined or Joined.of(series.cast(pl.String)))
        self._mark(valid, series.len())

    def add_joined(self, texts: Joined, valid: NDArray[np.bool_] | None) -> None:
        """Add texts that are not coded."""
        if self._codes is not None:
            self._unpack_codes()
        self.digest.joined(texts, valid)
        self._pack(texts)
        self._mark(valid, texts.lengths.size)

    def add_codes(self, codes: NDArray[np.unsignedinteger[Any]], valid: NDArray[np.bool_] | None) -> None:
        """Add codes into a dictionary that the caller keeps."""
        assert self._codes is not None
        self._codes.append(codes)
        self.digest.rows += codes.size
        self._mark(valid, codes.size)

    def take_dictionary(self, texts: pl.Series) -> None:
        """Set the dictionary for the codes that were added."""
        self._learn(texts)

    def close(self) -> None:
        """Make every file durable."""
        if self._codes is not None and self._texts is None:  # all values are missing, but code 0 needs a text
            self._learn(pl.Series([""]))
        super().close()

    def so_far(self) -> dict[str, Any]:
        """Flush everything to the operating system; see `ColumnFiles`."""
        return super().so_far() | {"codes": None if self._codes is None else self._codes.dtype.str}

    def go_on(self, state: dict[str, Any]) -> None:
        """Continue with existing files; see `ColumnFiles`."""
        if self._codes is not None and state["codes"] is None:
            self._drop(self._codes)
            self._codes = None
        elif self._codes is not None:
            self._codes.dtype = np.dtype(state["codes"])
        if self._name(f"{self._prefix}texts") in state:
            self._open_texts()
        super().go_on(state)

    def _hash_again(self, count: int, valid: NDArray[np.bool_] | None) -> None:
        if self._starts is not None and self._codes is not None and not self._dictionary.height:
            self._dictionary = _numbered(self._unpacked(0, self._starts.count - 1))
        done = 0
        for texts in self._stored(self.digest.rows, count):
            present = None if valid is None else valid[done : done + texts.len()]
            if present is not None:
                texts = texts.zip_with(pl.Series(present), pl.Series([None], dtype=pl.String))
            self.digest.texts(texts, present)
            done += texts.len()

    def _stored(self, first: int, count: int) -> Iterator[pl.Series]:
        """Yield texts, read from the files, in pieces of bounded size."""
        if self._codes is not None:
            for part in cut(self._decoded(self._codes.read(first, count)).to_frame(), count):
                yield part.to_series()
            return
        assert self._starts is not None
        starts = self._starts.read(first, count + 1)
        for begin, end in spans(starts[1:] - starts[0], count):
            yield self._unpacked(first + begin, end - begin)

    def entry(self, *, nullable: bool) -> ColumnEntry:
        """Return this column's part of the manifest."""
        packed = self._texts.count if self._texts is not None else 0
        distinct = 0 if self._codes is None else self._dictionary.height
        return replace(super().entry(nullable=nullable), bytes=packed, distinct=distinct)

    def _coded_categories(self, series: pl.Series) -> NDArray[np.uint32] | None:
        """Return codes for categories: each category that occurs is looked up once; None as in `_coded`."""
        found = series.drop_nulls().unique(maintain_order=True)
        codes = self._coded(found.cast(pl.String))
        if codes is None or not found.len():
            return None if codes is None else np.zeros(series.len(), np.uint32)
        numbers = found.to_physical().to_numpy()
        by_number = np.zeros(int(numbers.max()) + 1, np.uint32)
        by_number[numbers] = codes
        written = by_number.take(series.to_physical().fill_null(numbers[0]).to_numpy())
        if series.null_count():
            written[series.is_null().to_numpy()] = 0
        return written

    def _coded(self, series: pl.Series) -> NDArray[np.uint32] | None:
        """Return codes, adding new texts to the dictionary; None if it grows too large."""
        codes = self._look_up(series)
        new = series.filter(codes.is_null() & series.is_not_null()).unique(maintain_order=True)
        if new.len():
            first = self._dictionary.height
            if first + new.len() > self._most_distinct:
                return None
            self._learn(new)
            if self._dictionary["text"].str.len_bytes().sum() > self._most_bytes:
                return None
            self._widen(code_type(self._dictionary.height))
            codes = self._look_up(series)
        return codes.fill_null(0).to_numpy()

    def _widen(self, dtype: np.dtype[Any]) -> None:
        """Rewrite the codes so far if there are now more texts than their type can number."""
        narrow = self._codes
        assert narrow is not None
        if narrow.dtype == dtype:
            return
        narrow.flush()
        self._codes = self._array("wider", dtype)
        done = 0
        for size in _pieces(narrow.count):
            self._codes.append(narrow.read(done, size))
            done += size
        self._drop(narrow)
        self._codes.path = self._codes.path.rename(narrow.path)

    def _learn(self, new: pl.Series) -> None:
        """Add texts to the dictionary, and to its file."""
        self._dictionary = self._dictionary.vstack(_numbered(new, self._dictionary.height)).rechunk()
        if self._texts is None:
            self._begin_packing()
        self._pack(Joined.of(new))

    def _decoded(self, codes: NDArray[np.uint32]) -> pl.Series:
        """Return texts; a missing value has code 0, like the first text."""
        texts = self._dictionary["text"]
        return texts.gather(codes) if texts.len() else pl.Series([""]).new_from_index(0, codes.size)

    def _look_up(self, series: pl.Series) -> pl.Series:
        frame = series.alias("text").to_frame()
        return frame.join(self._dictionary, on="text", how="left", maintain_order="left")["code"]

    def _unpack_codes(self) -> None:
        """Switch to packed texts: rewrite what was coded so far."""
        codes = self._codes
        assert codes is not None
        codes.flush()
        self._drop(*(file for file in (self._texts, self._starts) if file is not None))
        self._codes = None
        self._begin_packing()
        done = 0
        for size in _pieces(codes.count):
            for part in cut(self._decoded(codes.read(done, size)).to_frame(), size):
                self._pack(Joined.of(part.to_series()))
            done += size
        self._drop(codes)

    @property
    def _prefix(self) -> str:
        return "" if self._codes is None else "dictionary."

    def _begin_packing(self) -> None:
        self._open_texts()
        assert self._starts is not None
        self._starts.append(np.zeros(1, np.int64))

    def _open_texts(self) -> None:
        self._texts = self._array(f"{self._prefix}texts", np.uint8)
        self._starts = self._array(f"{self._prefix}starts", np.int64)

    def _pack(self, joined: Joined) -> None:
        assert self._texts is not None
        assert self._starts is not None
        ends = self._texts.count + np.cumsum(joined.lengths, dtype=np.int64)
        self._texts.append(np.frombuffer(joined.data, np.uint8))
        self._starts.append(ends)

    def _unpacked(self, first: int, count: int) -> pl.Series:
        """Return packed texts, read from the files."""
        assert self._texts is not None
        assert self._starts is not None
        starts = self._starts.read(first, count + 1)
        packed = self._texts.read(int(starts[0]), int(starts[-1] - starts[0]))
        return PackedText(starts - starts[0], packed).part("", 0, count)


class UnitFile:
    """The file of where units begin, built from the number of rows of one unit after another."""

    def __init__(self, folder: Path, position: int) -> None:
        self._file = ArrayFile(folder / file_name(position, "units"), np.int64)
        self._file.append(np.zeros(1, np.int64))
        self._rows = 0

    @property
    def units(self) -> int:
        """The number of units."""
        return self._file.count - 1

    def append(self, lengths: NDArray[np.int64]) -> None:
        """Add units with these numbers of rows."""
        if lengths.size:
            ends = self._rows + np.cumsum(lengths)
            self._file.append(ends)
            self._rows = int(ends[-1])

    def close(self) -> None:
        """Make the file durable."""
        self._file.close()

    def abandon(self) -> None:
        """Close the file, finished or not."""
        self._file.abandon()

    def files(self) -> dict[str, FileEntry]:
        """Return the file's part of the manifest."""
        return {self._file.path.name: self._file.entry()}


def _numbered(texts: pl.Series, first: int = 0) -> pl.DataFrame:
    """Return texts with their codes, from `first` on."""
    codes = pl.int_range(first, first + texts.len(), dtype=pl.UInt32, eager=True)
    return pl.DataFrame([texts.alias("text"), codes.alias("code")])


def _pieces(total: int) -> Iterator[int]:
    for start in range(0, total, _PIECE):
        yield min(_PIECE, total - start)
