"""Cards in order of place, in bounded memory: they are put down range by range, and one range after another is sorted.

    prepare    the cards of a chunk, in order of their ranges
    collect    them until there are enough for a run, which is written: each column by itself, range after range
    ordered    what every run has of a range is read, and put in random order; by place, where places are known

Which of two cards with the same place comes first is decided by chance, too: by the order of the runs, it would depend
on the rows.

A run says beside it what it holds and how far the table was read when it was written, so whoever dies leaves what
another can go on with.
"""

import json
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from hashlib import sha256
from math import ceil
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from holdfast.randomness import keyed_generator
from holdfast.rows.cards import MOST_RANGES, Ranged, ranges_of, width_of
from holdfast.rows.content import Coder, Content, Part

BLOCK_BYTES = 40 << 20  # of cards that are in memory at once, several times
MOST, LEAST = 1 << 20, 1 << 12  # cards in a block
_PIECE = 1 << 14  # texts that are read at once
_THREADS = 2
_AT_ONCE = 1_000  # pieces that one call writes; the system allows 1,024
Item = TypeVar("Item")
Made = TypeVar("Made")


def block_for(sample: pl.DataFrame) -> int:
    """Return how many cards like these are put in order at once: long texts make short blocks."""
    size = max(1.0, sample.estimated_size() / max(1, sample.height))
    return int(min(MOST, max(LEAST, BLOCK_BYTES / size)))


def ranges_for(cards: float, slices: int, block: int) -> int:
    """Return into how many ranges places are cut, so that each has about a block of all these cards."""
    return slices * max(1, min(MOST_RANGES // slices, ceil(cards / slices / block)))


class Memory:
    """Arrays that are handed out again when nobody refers to them any more: fresh ones cost more than filling them."""

    def __init__(self) -> None:
        self._kept: dict[np.dtype[Any], list[NDArray[Any]]] = {}
        self._lock = threading.Lock()

    def __call__(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        """Return an array whose content is undefined. Any thread may ask."""
        with self._lock:
            kept = self._kept.setdefault(dtype, [])
            free = [i for i in range(len(kept)) if sys.getrefcount(kept[i]) <= _UNUSED]
            fits = [i for i in free if kept[i].size >= count]
            if fits:
                return kept[min(fits, key=lambda i: kept[i].size)][:count]
            if free:  # too small: instead of it
                del kept[free[-1]]
            kept.append(np.empty(count + count // 16, dtype))
            return kept[-1][:count]

    def take(self, values: NDArray[Any], indices: NDArray[np.int64]) -> NDArray[Any]:
        """Return values by their indices, all of which are there."""
        # mode="clip" writes straight into `out`; the default would go through a copy to be able to fail cleanly
        return values.take(indices, out=self(values.dtype, indices.size), mode="clip")


def _references_when_unused() -> int:
    """How many references this Python counts for an array that only a list holds."""
    kept = [np.empty(0)]
    return sys.getrefcount(kept[0])


_UNUSED = _references_when_unused()


def ahead(work: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """Yield what becomes of each item, in order; the next ones are worked on meanwhile."""
    with ThreadPoolExecutor(_THREADS) as pool:
        waiting: deque[Future[Made]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > _THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@dataclass(frozen=True)
class Piece:
    """The cards of a chunk, range after range."""

    counts: NDArray[np.int64]
    places: NDArray[np.uint64] | None  # if they are known
    columns: list[Part]
    rows: int  # of the chunk
    sums: tuple[int, int]  # of the chunk
    missing: list[bool]  # in the chunk, by column

    @property
    def cuts(self) -> NDArray[np.int64]:
        """Where the cards of each range begin, and where the last ones end."""
        return np.concatenate([[0], np.cumsum(self.counts)])


@dataclass(frozen=True)
class SortedRun:
    """What a run holds, and what had been dealt when it was written."""

    cuts: list[int]  # by range
    placed: bool  # whether it begins with places
    columns: list[tuple[str, int, int]]  # its type, or "" for texts; where it begins in the file; where its marks do
    rows: int
    sums: tuple[int, int]
    missing: list[bool]
    texts: dict[str, tuple[list[str], bool]]  # learned since the run before, and whether further ones are coded


class Runs:
    """Cards on their way into order, and the content of the rows that they come from.

    Parameters
    ----------
    folder
        Where the runs are; whoever made it removes it. Runs that are there already are gone on with.
    coder
        Turns the columns of the table into arrays.
    ranges, block
        Into how many ranges places are cut; how many cards are collected for a run.
    """

    def __init__(self, folder: Path, coder: Coder, ranges: int, block: int) -> None:
        self._folder, self.coder, self.ranges, self._block = folder, coder, ranges, block
        self._names = list(coder.columns)
        self._memory = Memory()
        self.content = Content(coder.columns)
        self.missing = [False] * len(self._names)
        self._waiting: list[Piece] = []
        self._learned = dict.fromkeys(coder.texts, 0)  # texts that runs have said so far
        self._runs: list[SortedRun] = []
        while (about := self._path(len(self._runs)).with_suffix(".json")).exists():
            self._take_up(json.loads(about.read_text(encoding="utf-8")))

    @property
    def cards(self) -> int:
        """How many there are."""
        return sum(run.cuts[-1] for run in self._runs) + sum(int(piece.counts.sum()) for piece in self._waiting)

    def prepare(self, parts: Sequence[Part], height: int, drawn: Ranged) -> Piece:
        """Take the cards that were drawn of a chunk. Any thread may ask."""
        columns = [self._taken(part, drawn.rows) for part in parts]
        sums, missing = self.content.sums_of(list(parts), height), [part.missing for part in parts]
        return Piece(drawn.counts, None, columns, height, sums, missing)

    def sort_in(self, parts: Sequence[Part], places: NDArray[np.uint64], rows: int, sums: tuple[int, int]) -> Piece:
        """Put cards of all ranges in order of them; `rows` and `sums` are what they add to the content."""
        ranges = ranges_of(places, self.ranges)
        order = np.argsort(ranges, kind="stable")
        counts = np.bincount(ranges, minlength=self.ranges)
        columns = [self._taken(part, order) for part in parts]
        return Piece(counts, self._memory.take(places, order), columns, rows, sums, [part.missing for part in parts])

    def collect(self, piece: Piece) -> None:
        """Add what was prepared."""
        self.content.include(piece.rows, piece.sums)
        self.missing = [a or b for a, b in zip(self.missing, piece.missing, strict=True)]
        self._waiting.append(piece)
        if sum(int(each.counts.sum()) for each in self._waiting) >= self._block:
            self.write()

    def write(self) -> None:
        """Write what was collected as a run."""
        if not self._waiting:
            return
        path, pieces = self._path(len(self._runs)), self._waiting
        cuts = [piece.cuts for piece in pieces]
        columns: list[tuple[str, int, int]] = []
        with path.open("wb", buffering=0) as file:
            places = [piece.places for piece in pieces if piece.places is not None]
            if places:
                _write_merged(file, places, cuts)
            for i, name in enumerate(self._names):
                parts = [piece.columns[i] for piece in pieces]
                if any(isinstance(part.values, pl.Series) for part in parts):
                    self._write_texts(self._texts_path(path, i), [self._as_texts(name, part) for part in parts], cuts)
                    columns.append(("", 0, 0))
                    continue
                values = [part.values for part in parts if isinstance(part.values, np.ndarray)]
                at = _write_merged(file, values, cuts)
                marked = any(part.valid is not None for part in parts)
                marks = _write_merged(file, [_marks(part) for part in parts], cuts) if marked else 0
                columns.append((values[0].dtype.str, at, marks))
        merged = np.sum([piece.counts for piece in pieces], axis=0)
        content = self.content
        run = SortedRun(
            [0, *np.cumsum(merged).tolist()],
            bool(places),
            columns,
            content.rows,
            content.sums,
            self.missing,
            self._newly_learned(),
        )
        about = path.with_suffix(".json")
        about.with_suffix(".new").write_text(json.dumps(asdict(run)), encoding="utf-8")
        about.with_suffix(".new").replace(about)
        self._runs.append(run)
        self._waiting = []

    def is_coded(self, i: int) -> bool:
        """Whether a column of texts is codes in all runs."""
        return all(run.columns[i][0] for run in self._runs)

    def ordered(
        self, secret: bytes, advance: Callable[[int], Any], first: int, last: int
    ) -> Iterator[tuple[int, list[Part]]]:
        """Yield the cards of ranges `first` to `last` - 1, in order: how many, and their columns.

        Parameters
        ----------
        secret
            Gives every range its order, or decides between equal places.
        advance
            Is told how many cards are done.
        first, last
            Which ranges.
        """
        files = [os.open(self._path(number), os.O_RDONLY) for number in range(len(self._runs))]
        try:
            for count, parts in ahead(lambda number: self._sorted(files, number, secret), range(first, last)):
                advance(count)
                yield count, parts
        finally:
            for file in files:
                os.close(file)

    def _sorted(self, files: list[int], number: int, secret: bytes) -> tuple[int, list[Part]]:
        pieces = [
            (file, run, run.cuts[number], run.cuts[number + 1]) for file, run in zip(files, self._runs, strict=True)
        ]
        if self._runs[0].placed:
            places = self._read([(file, "<u8", 8 * begin, end - begin) for file, _, begin, end in pieces])
            offsets = places - np.uint64(number * width_of(self.ranges))
            order = in_order(offsets, width_of(self.ranges), lambda: _chance(secret, number))
        else:
            order = _chance(secret, number).permutation(sum(end - begin for _, _, begin, end in pieces))
        return order.size, [self._taken(self._column(i, pieces), order) for i in range(len(self._names))]

    def _column(self, i: int, pieces: list[tuple[int, SortedRun, int, int]]) -> Part:
        if not self.is_coded(i):
            return Part(pl.concat([self._read_texts(i, at, *piece) for at, piece in enumerate(pieces)]), None)
        values = self._read([(file, *_at(run, i, begin), end - begin) for file, run, begin, end in pieces])
        if not any(run.columns[i][2] for _, run, _, _ in pieces):
            return Part(values, None)
        return Part(values, np.concatenate([self._read_marks(i, *piece) for piece in pieces]))

    def _read_marks(self, i: int, file: int, run: SortedRun, begin: int, end: int) -> NDArray[np.bool_]:
        marks = run.columns[i][2]
        return self._read([(file, "|b1", marks + begin, end - begin)]) if marks else np.ones(end - begin, np.bool_)

    def _read_texts(self, i: int, number: int, file: int, run: SortedRun, begin: int, end: int) -> pl.Series:
        dtype, _, marks = run.columns[i]
        if not dtype:
            path = self._texts_path(self._path(number), i)
            frame = pl.scan_ipc(path, glob=False, hive_partitioning=False).slice(begin, end - begin)
            return frame.collect()["text"]
        codes = self._read([(file, *_at(run, i, begin), end - begin)])
        valid = self._read_marks(i, file, run, begin, end) if marks else None
        return self._as_texts(self._names[i], Part(codes, valid))

    def _as_texts(self, name: str, part: Part) -> pl.Series:
        if isinstance(part.values, pl.Series):
            return part.values.alias("text")
        codes = pl.Series(part.values)
        if part.valid is not None:
            codes = codes.zip_with(pl.Series(part.valid), pl.Series([None], dtype=codes.dtype))
        return self.coder.texts[name].all.gather(codes).alias("text")

    def _write_texts(self, path: Path, texts: list[pl.Series], cuts: list[NDArray[np.int64]]) -> None:
        pairs = list(zip(texts, [cut.tolist() for cut in cuts], strict=True))
        merged = pl.concat([series[cut[i] : cut[i + 1]] for i in range(self.ranges) for series, cut in pairs])
        # Texts with offsets: views would be written with all the memory that they point into.
        oldest = pl.CompatLevel.oldest()
        merged.to_frame().write_ipc(path, compression="uncompressed", compat_level=oldest, record_batch_size=_PIECE)

    def _newly_learned(self) -> dict[str, tuple[list[str], bool]]:
        found = {}
        for name, texts in self.coder.texts.items():
            found[name] = (texts.all[self._learned[name] :].to_list(), texts.coded)
            self._learned[name] = texts.all.len()
        return found

    def _take_up(self, about: dict[str, Any]) -> None:
        """Go on after a run that somebody else has written."""
        about["columns"] = [tuple(column) for column in about["columns"]]
        run = SortedRun(**about | {"sums": tuple(about["sums"])})
        self._runs.append(run)
        self.content.rows, self.content.sums, self.missing = run.rows, run.sums, run.missing
        for name, (new, coded) in run.texts.items():
            texts = self.coder.texts[name]
            texts.learn(pl.Series(new, dtype=pl.String))
            texts.coded = coded
            self._learned[name] = texts.all.len()

    def _taken(self, part: Part, rows: NDArray[np.int64]) -> Part:
        if isinstance(part.values, pl.Series):
            return Part(part.values.gather(rows), None)
        valid = None if part.valid is None else self._memory.take(part.valid, rows)
        return Part(self._memory.take(part.values, rows), valid)

    def _read(self, pieces: Sequence[tuple[int, str, int, int]]) -> NDArray[Any]:
        """Read arrays from files, each by its type, where it begins and how many values it has, into one."""
        values = self._memory(np.dtype(pieces[0][1]), sum(count for *_, count in pieces))
        filled = 0
        for file, _, at, count in pieces:
            if count:
                view = values[filled : filled + count].data.cast("B")
                while view.nbytes:
                    done = os.preadv(file, [view], at)
                    view, at = view[done:], at + done
                filled += count
        return values

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06d}.run"

    def _texts_path(self, path: Path, i: int) -> Path:
        return path.with_suffix(f".{i}.texts")


def in_order(offsets: NDArray[np.uint64], width: int, chance: Callable[[], Generator]) -> NDArray[np.int64]:
    """Return the order of offsets below `width`; of equal ones, any order is as likely.

    Parameters
    ----------
    offsets, width
        What is sorted, by its highest 32 bits first; what is equal in those is looked at again.
    chance
        Returns a generator if there is something to decide.
    """
    key = (offsets >> np.uint64(max(0, (width - 1).bit_length() - 32))).astype(np.uint32)
    order = np.argsort(key.astype(np.uint16), kind="stable")  # of 16 bits: counted, not compared
    order = order.take(np.argsort((key >> np.uint32(16)).astype(np.uint16).take(order), kind="stable"))
    key = key.take(order)
    same = key[1:] == key[:-1]
    if same.any():
        tied = np.concatenate([same, [False]]) | np.concatenate([[False], same])
        cards = order[tied]
        order[tied] = cards[np.lexsort((chance().permutation(cards.size), offsets[cards]))]
    return order


def _at(run: SortedRun, i: int, begin: int) -> tuple[str, int]:
    """Return the type of a column in a run, and where its value number `begin` is."""
    dtype, at, _ = run.columns[i]
    return dtype, at + begin * np.dtype(dtype).itemsize


def _chance(secret: bytes, number: int) -> Generator:
    return keyed_generator(sha256(secret + f"order of range {number}".encode()).digest())


def _marks(part: Part) -> NDArray[np.bool_]:
    assert isinstance(part.values, np.ndarray)
    return np.ones(part.values.size, np.bool_) if part.valid is None else part.valid


def _write_merged(file: Any, arrays: Sequence[NDArray[Any]], cuts: Sequence[NDArray[np.int64]]) -> int:
    """Write what several pieces have of the first range, then of the second, and so on; return where that begins."""
    at: int = file.tell()
    pairs = list(zip(arrays, [cut.tolist() for cut in cuts], strict=True))
    parts = [array[cut[i] : cut[i + 1]] for i in range(cuts[0].size - 1) for array, cut in pairs]
    for start in range(0, len(parts), _AT_ONCE):
        these = parts[start : start + _AT_ONCE]
        left = sum(part.nbytes for part in these)
        left -= os.writev(file.fileno(), [part.data for part in these])
        if left:  # a full disk, which says so when it is written to again
            rest = b"".join(part.tobytes() for part in these)
            while left:
                left -= file.write(rest[-left:])
    return at
