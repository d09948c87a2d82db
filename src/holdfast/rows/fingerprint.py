"""Hashes of a table's content: in order of its rows, and independent of their order.

column     hash of the values end to end (missing ones as zeros; texts as UTF-8, then their lengths), block by block,
           and SHA-256 of the positions of the missing values
table      SHA-256 of the number of rows and each column's name, type and digests, whatever the order of columns

Independent of the order of rows and columns: sums of a hash of every row.

    Coder      columns of a chunk as arrays: numbers as stored, texts as codes into a growing dictionary
    Content    sums the hashes of rows

The hash detects accidental changes, not crafted ones: it is fast, and not cryptographic.
"""

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.rows.buffers import BufferPool
from holdfast.rows.columns import Storage, code_type
from holdfast.rows.disk.array_files import BlockHashes, FileEntry
from holdfast.rows.draws import mix


class Joined(NamedTuple):
    """Texts end to end, as UTF-8, and how many bytes each has; missing ones are empty."""

    data: bytes
    lengths: NDArray[np.uint32]

    @classmethod
    def of(cls, series: pl.Series) -> "Joined":
        """Join the texts of a series."""
        filled = series.alias("").fill_null("")
        return cls(filled.str.join("").cast(pl.Binary).item(), filled.str.len_bytes().to_numpy())

    def first(self, count: int) -> "Joined":
        """Return the first texts."""
        lengths = self.lengths[:count]
        return Joined(self.data[: int(lengths.sum(dtype=np.int64))], lengths)


class ColumnDigest:
    """Hashes one column, batch after batch."""

    def __init__(self, name: str, storage: Storage) -> None:
        self.name, self.storage = name, storage
        self.rows = 0
        self.values, self._lengths, self._missing = BlockHashes(), hashlib.sha256(), hashlib.sha256()

    def numbers(self, values: NDArray[np.generic], valid: NDArray[np.bool_] | None) -> None:
        """Add fixed-width values; those not valid must be zero."""
        self.values.update(np.ascontiguousarray(values).data)
        self.mark(valid, values.size)

    def texts(self, series: pl.Series, valid: NDArray[np.bool_] | None) -> Joined:
        """Add texts; return them end to end."""
        joined = Joined.of(series)
        self.joined(joined, valid)
        return joined

    def joined(self, texts: Joined, valid: NDArray[np.bool_] | None) -> None:
        """Add texts that are end to end."""
        self.values.update(texts.data)
        self._lengths.update(np.ascontiguousarray(texts.lengths).data)
        self.mark(valid, texts.lengths.size)

    def add(self, series: pl.Series) -> None:
        """Add a batch of any type."""
        series = series.alias("")  # see `physical`
        if self.storage.numpy is None:
            self.texts(series, validity(series))
        else:
            self.numbers(*physical(series, self.storage))

    def mark(self, valid: NDArray[np.bool_] | None, count: int) -> None:
        """Add which of the next `count` values are missing; the caller hashes the values themselves."""
        if valid is not None:
            self._missing.update((np.flatnonzero(~valid) + self.rows).astype(np.int64).tobytes())
        self.rows += count

    def line(self) -> str:
        """Return this column's line in the table's hash."""
        digests = " ".join(each.hexdigest() for each in (self.values, self._lengths, self._missing))
        return f"{len(self.name.encode())} {self.name} {self.storage.label} {digests}"


@dataclass(frozen=True)
class Digested:
    """A column that was hashed by another process."""

    rows: int
    text: str

    def line(self) -> str:
        """Return this column's line in the table's hash."""
        return self.text


def fingerprint_of(columns: Sequence[ColumnDigest | Digested]) -> str:
    """Return the table's fingerprint."""
    lines = [f"holdfast table 2, {columns[0].rows} rows", *sorted(column.line() for column in columns)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def fingerprint_of_files(files: Mapping[str, FileEntry]) -> str:
    """Return a hash of files, computed from the hashes of their blocks."""
    lines = [f"{name} {entry.size} {' '.join(entry.blocks)}" for name, entry in sorted(files.items())]
    return hashlib.sha256("\n".join(["holdfast cards 2", *lines]).encode()).hexdigest()


def validity(series: pl.Series) -> NDArray[np.bool_] | None:
    """Return which values are present; None if all are."""
    return series.alias("").is_not_null().to_numpy() if series.null_count() else None


def physical(series: pl.Series, storage: Storage) -> tuple[NDArray[np.generic], NDArray[np.bool_] | None]:
    """Return a series as stored numbers (missing ones as zero), and which are valid (None if all are)."""
    series = series.alias("")  # Polars reads a name such as "^$" as a pattern
    valid = validity(series)
    if storage.recast:
        series = series.to_physical()
    elif series.dtype != storage.polars:
        series = series.cast(storage.polars)
    if valid is not None:
        series = series.fill_null(False if series.dtype == pl.Boolean else 0)
    return series.to_numpy(), valid


_U64 = np.dtype(np.uint64)
_pool = BufferPool()
_MISSING = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)
_ONCE_MORE = 29, 0xD6E8FEB86659FD93  # an extra round for the second sum, so that it is not linear in the first
_HASHED_AT_ONCE = 1 << 17  # bytes of texts
_MOST_DISTINCT, _MOST_BYTES = 1 << 18, 16 << 20  # limits of a dictionary
_MOST_BYTES_IN_ALL = 32 << 20  # of all dictionaries of a table


@dataclass(frozen=True)
class Part:
    """A column of a chunk.

    `values` are stored numbers or codes, with zeros where a value is missing; or texts if there are too many to code: a
    series, or end to end in the order of cards. `valid` marks the values that are present; None if all are. `hashes`
    are those of texts, by code or by row.
    """

    values: NDArray[Any] | pl.Series | Joined
    valid: NDArray[np.bool_] | None
    hashes: NDArray[np.uint64] | None = None

    @property
    def missing(self) -> bool:
        """Whether a value is missing: marked, or NaN."""
        if self.valid is not None:
            return True
        return (
            isinstance(self.values, np.ndarray) and self.values.dtype.kind == "f" and bool(np.isnan(self.values).any())
        )


class Coder:
    """Turns the columns of one chunk after another into arrays."""

    def __init__(self, columns: Mapping[str, Storage]) -> None:
        self.columns = columns
        names = [name for name, storage in columns.items() if storage.numpy is None]
        most = min(_MOST_BYTES, _MOST_BYTES_IN_ALL // max(1, len(names)))
        self.texts = {name: Texts(most) for name in names}

    def parts(self, frame: pl.DataFrame) -> list[Part]:
        """Return the columns of a chunk."""
        return [
            self.texts[name].part(frame[name]) if storage.numpy is None else Part(*physical(frame[name], storage))
            for name, storage in self.columns.items()
        ]


class Texts:
    """The distinct texts of a column: all coded so far, and whether new ones are still coded. Thread-safe.

    A dictionary has at most `most_bytes` bytes.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.all = pl.Series([], dtype=pl.String)
        self.coded = True
        self._lock = threading.Lock()
        self._known = pl.Enum([]), np.zeros(0, np.uint64)  # the texts as a type, and their hashes

    def part(self, series: pl.Series) -> Part:
        """Return texts as codes, or as texts if there are too many."""
        series = series.cast(pl.String)
        valid = validity(series)
        filled = series if valid is None else series.fill_null("")
        while self.coded:
            known, hashes = self._known
            codes = filled.cast(known, strict=False).to_physical()
            if not codes.null_count():
                return Part(codes.to_numpy(), valid, hashes)
            with self._lock:
                # Look again: another thread may have added them.
                new = filled.filter(filled.cast(self._known[0], strict=False).is_null())
                if new.len():
                    self.learn(new.unique(maintain_order=True))
        return Part(series, valid, text_hashes(filled))

    def learn(self, new: pl.Series) -> None:
        """Add texts that were not seen before; stop coding if there are too many."""
        if self.all.len() + new.len() > _MOST_DISTINCT or _bytes(self.all) + _bytes(new) > self._most_bytes:
            self.coded = False
            return
        self.all = pl.concat([self.all, new])
        self._known = pl.Enum(self.all), np.concatenate([self._known[1], text_hashes(new)])

    def sorted(self) -> tuple[pl.Series, NDArray[np.unsignedinteger[Any]]]:
        """Return all texts in sorted order, and the place of every code in it, whatever order they were met in."""
        order = self.all.arg_sort()
        ranks = np.empty(order.len(), code_type(order.len()))
        ranks[order.to_numpy()] = np.arange(order.len())
        return self.all.gather(order), ranks


class Content:
    """The number of rows, and two sums of row hashes."""

    def __init__(self, columns: Mapping[str, Storage]) -> None:
        self._columns = columns
        self._coder = Coder(columns)
        self._keys = [_key(f"{name}\0{storage.label}") for name, storage in columns.items()]
        self.rows = 0
        self.sums = (0, 0)

    def add(self, frame: pl.DataFrame) -> None:
        """Add rows."""
        self.include(frame.height, self.sums_of(self._coder.parts(frame), frame.height))

    def include(self, rows: int, sums: tuple[int, int]) -> None:
        """Add sums that were computed elsewhere."""
        self.rows += rows
        self.sums = ((self.sums[0] + sums[0]) % 2**64, (self.sums[1] + sums[1]) % 2**64)

    def sums_of(self, parts: list[Part], height: int) -> tuple[int, int]:
        """Return what a chunk adds to the sums. Thread-safe."""
        _pool.reset()
        total, each = _pool(_U64, height), _pool(_U64, height)
        total[:] = 0
        for part, key in zip(parts, self._keys, strict=True):
            bits = _bits(part, height)
            if part.hashes is None and isinstance(part.values, np.ndarray) and part.values.dtype.itemsize == 8:
                np.right_shift(bits, np.uint64(32), out=each)  # so that high bits also affect all bits of the product
                np.bitwise_xor(each, bits, out=each)
                np.multiply(each, key, out=each)
            else:
                np.multiply(bits, key, out=each)
            np.add(total, each, out=total)
        for shift, factor in _ROUNDS:
            _mix(total, each, shift, factor)
        first = int(total.sum())
        _mix(total, each, *_ONCE_MORE)
        return first, int(total.sum())

    def fingerprint(self) -> str:
        """Return one hash for the content."""
        lines = sorted(f"{len(name.encode())} {name} {storage.label}" for name, storage in self._columns.items())
        return sha256("\n".join([f"holdfast rows 3, {self.rows} rows, {self.sums}", *lines]).encode()).hexdigest()


def text_hashes(texts: pl.Series) -> NDArray[np.uint64]:
    """Return a hash of every text: the sum of a hash of every byte with its position, and of the length.

    >>> len({*text_hashes(pl.Series(["", "a", "b", "ab", "ba"])).tolist()})
    5
    """
    lengths = texts.str.len_bytes().to_numpy().astype(np.int64)
    ends, found = np.cumsum(lengths), np.empty(lengths.size, np.uint64)
    start = done = 0
    while start < lengths.size:  # a part at a time, since every byte becomes several numbers of eight
        stop = max(start + 1, int(np.searchsorted(ends, done + _HASHED_AT_ONCE, side="right")))
        found[start:stop] = _hashes_of(texts[start:stop], lengths[start:stop])
        start, done = stop, int(ends[stop - 1])
    return found


def _hashes_of(texts: pl.Series, lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    ends = np.cumsum(lengths)
    packed = np.frombuffer(texts.str.join("").item().encode(), np.uint8).astype(np.uint64)
    position = np.arange(packed.size) - np.repeat(ends - lengths, lengths)
    running = np.concatenate(
        [np.zeros(1, np.uint64), np.cumsum(mix(packed << np.uint64(32) | position.view(np.uint64)))]
    )
    sums = running[ends] - running[ends - lengths]  # modulo 2^64
    return mix(sums ^ mix(lengths.view(np.uint64) ^ _MISSING))


def _bits(part: Part, height: int) -> NDArray[np.uint64]:
    """Return 64 bits for every value: its own bits if it is a number, its hash if it is a text."""
    values = part.values
    if part.hashes is None and part.valid is None and isinstance(values, np.ndarray) and values.dtype.itemsize == 8:
        return np.ascontiguousarray(values).view(_U64)
    bits = _pool(_U64, height)
    if part.hashes is not None:
        if isinstance(values, np.ndarray):
            part.hashes.take(values, out=bits, mode="clip")
        else:
            bits[:] = part.hashes
    else:
        assert isinstance(values, np.ndarray)
        wide = np.float64 if values.dtype.kind == "f" else np.int64  # unsigned 64-bit values wrap around
        bits.view(wide)[:] = values if values.dtype != np.uint64 else values.view(np.int64)
    if part.valid is not None:
        bits[~part.valid] = _MISSING
    return bits


def _mix(x: NDArray[np.uint64], each: NDArray[np.uint64], shift: int, factor: int) -> None:
    """Mix bits in place: high into low by a shift, low into high by multiplying. One round of `mix`."""
    np.right_shift(x, np.uint64(shift), out=each)
    np.bitwise_xor(x, each, out=x)
    if factor != 1:
        np.multiply(x, np.uint64(factor), out=x)


def _bytes(texts: pl.Series) -> int:
    return int(texts.str.len_bytes().sum())


def _key(text: str) -> np.uint64:
    """Return an odd number: multiplying by it modulo 2^64 is invertible."""
    return np.uint64(int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") | 1)
