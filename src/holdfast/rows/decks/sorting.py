"""Sort cards by place, in bounded memory: write them by range, then sort one range after another.

    prepare    the cards of a chunk, in order of their ranges
    collect    cards until there are enough for a run, which is written: each column by itself, range after range
    ordered    read what every run has of a range, and put it in random order; by place, if places are known

If the number of cards in each range is known beforehand, numbers are written to their final location (`placing`); all
else is appended to a file of runs. Which of two cards with the same place comes first is random, too: the order of the
runs would depend on the rows.

A file beside each run describes it and how far the table had been read when it was written, so that another process can
resume after this one dies.
"""

import json
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from io import FileIO
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy import random
from numpy.typing import NDArray

from holdfast.randomness import keyed_generator
from holdfast.rows.buffers import SharedPool
from holdfast.rows.decks.cards import MOST_RANGES, ROW, Ranged, ranges_of, rows_of_cards, width_of
from holdfast.rows.decks.placing import Placing
from holdfast.rows.decks.threads import Behind, ahead
from holdfast.rows.disk.array_files import Incomplete
from holdfast.rows.disk.offsets import read_into, write_at
from holdfast.rows.disk.partial import replace_text
from holdfast.rows.fingerprint import Coder, Content, Joined, Part, validity
from holdfast.rows.scans.scan import has_texts, mean_bytes

BLOCK_BYTES = 40 << 20  # bytes of cards in a block; several blocks are in memory at once
MOST, LEAST = 1 << 20, 1 << 6  # cards in a block
_COPIES = 6  # times texts are in memory while a block is put in order and written
_CACHED = 1 << 18  # cards whose numbers stay in the processor's cache while they are put in order
_ENOUGH = 1 << 9  # ranges; with more, a run's part of each range gets small
_TEXTS = "texts"  # the type of a column that is stored as texts: where each begins, then all texts end to end
_PLACED = ""  # the type of a column that is stored where its cards belong
_RUN = 2  # blocks in a run: the larger its part of a range, the faster it is written


def block_for(sample: pl.DataFrame) -> int:
    """Return how many cards like these are collected at once: the longer the texts, the fewer cards.

    Texts that repeat are stored as codes; those of which more than half are distinct, here, are not.

    >>> few, many = ["x" * 2_000] * 1_000, [f"{i:02000}" for i in range(1_000)]
    >>> block_for(pl.DataFrame({"text": few})) == MOST, block_for(pl.DataFrame({"text": many})) == BLOCK_BYTES // 12_096
    (True, True)
    """
    size = 0.0
    for series in sample:
        texts = has_texts([series.dtype]) and 2 * series.n_unique() > series.len()
        size += _COPIES * mean_bytes(series.to_frame()) if texts else 8.0
    return int(min(MOST, max(LEAST, BLOCK_BYTES / max(1.0, size))))


def ranges_for(cards: float, slices: int, block: int) -> int:
    """Return into how many ranges to divide the places, so that each gets at most about a block of the cards."""
    size = min(block, max(_CACHED, cards / _ENOUGH))
    return slices * max(1, min(MOST_RANGES // slices, ceil(cards / slices / size)))


@dataclass(frozen=True)
class Piece:
    """The cards of a chunk, range after range."""

    counts: NDArray[np.int64]  # cards in each range
    places: NDArray[np.uint64] | None  # of the cards, if known
    columns: list[Part]
    rows: int  # of the chunk
    sums: tuple[int, int]  # of the chunk
    missing: list[bool]  # whether each column of the chunk has missing values
    lengths: NDArray[np.int64] | None = None  # how many rows each card has, if cards are units
    order: tuple[int, int] = (0, 0)  # sums of the chunk with the numbers of its rows, if cards have them

    @property
    def card_cuts(self) -> NDArray[np.int64]:
        """Where the cards of each range begin, then where the last range ends."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @property
    def cuts(self) -> NDArray[np.int64]:
        """Where the rows of each range begin, then where the last range ends."""
        if self.lengths is None:
            return self.card_cuts
        return np.concatenate([[0], np.cumsum(self.lengths)]).take(self.card_cuts)


class Block(NamedTuple):
    """Cards in order: how many, their columns, and how many rows each card has, if cards are units."""

    cards: int
    columns: list[Part]
    lengths: NDArray[np.int64] | None

    def first(self, cards: int) -> "Block":
        """Return the first `cards` cards."""
        rows = cards if self.lengths is None else int(self.lengths[:cards].sum())
        parts = []
        for part in self.columns:
            values = part.values.first(rows) if isinstance(part.values, Joined) else part.values[:rows]
            parts.append(Part(values, None if part.valid is None else part.valid[:rows]))
        return Block(cards, parts, None if self.lengths is None else self.lengths[:cards])


class Stored(NamedTuple):
    """Where a column of a run is: its type, and the offsets of its values and of its marks, 0 if none is missing."""

    type: str
    values: int
    marks: int


@dataclass(frozen=True)
class SortedRun:
    """The layout of a run in the file of runs, and what had been dealt when it was written."""

    at: int  # offset of the run, which begins with the starts of its ranges in rows
    end: int
    cards: int
    placed: bool  # whether places follow
    lengths: int  # offset of the starts of its ranges in cards, followed by the cards' lengths; 0 if cards are rows
    columns: list[Stored]
    rows: int
    sums: tuple[int, int]
    order: tuple[int, int]
    missing: list[bool]
    texts: dict[str, tuple[list[str], bool]]  # new texts since the last run, and whether texts are still coded


class Runs:
    """Cards that are being sorted, and the content of the rows they come from.

    Parameters
    ----------
    folder
        Where the runs are; the caller removes it. Existing runs are continued.
    coder
        Turns the columns of the table into arrays.
    ranges, block
        The number of ranges, and how many cards a block has; a run has several blocks.
    """

    def __init__(self, folder: Path, coder: Coder, ranges: int, block: int) -> None:
        self._folder, self.coder, self.ranges, self._block = folder, coder, ranges, block
        self._names = list(coder.columns)
        self.memory = SharedPool()
        self.placing: Placing | None = None
        self._table = [i for i, name in enumerate(self._names) if name != ROW]  # the columns of the table itself
        self.content = Content({self._names[i]: coder.columns[self._names[i]] for i in self._table})
        self.order = Content(coder.columns) if ROW in coder.columns else None  # which row has which number
        self.missing = [False] * len(self._names)
        self._waiting: list[Piece] = []
        self._learned = dict.fromkeys(coder.texts, 0)  # number of texts that runs have recorded
        self._runs: list[SortedRun] = []
        self._behind = Behind(folder)
        try:
            while (about := self._about(len(self._runs))).exists():
                self._take_up(json.loads(about.read_text(encoding="utf-8")))
        except (ValueError, TypeError, KeyError):
            raise Incomplete from None
        self._end = self._runs[-1].end if self._runs else 0
        # A file object: it stays open as long as anything refers to it, such as a thread.
        self._file = FileIO(os.open(folder / "runs", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")
        if os.fstat(self._file.fileno()).st_size < self._end:
            self.close()
            raise Incomplete

    def close(self) -> None:
        """Close the file once the last write has finished."""
        self._behind.close()
        self._file.close()

    @property
    def cards(self) -> int:
        """The number of cards."""
        return sum(run.cards for run in self._runs) + sum(int(piece.counts.sum()) for piece in self._waiting)

    def prepare(
        self, parts: Sequence[Part], height: int, drawn: Ranged, lengths: NDArray[np.int64] | None = None
    ) -> Piece:
        """Take the cards drawn from a chunk: rows, or units with these `lengths`. Thread-safe."""
        rows, each = drawn.rows, None
        if lengths is not None:
            rows, each = rows_of_cards(lengths, drawn.rows)
        columns = [self._taken(part, rows) for part in parts]
        sums, missing = self.content.sums_of([parts[i] for i in self._table], height), [part.missing for part in parts]
        order = (0, 0) if self.order is None else self.order.sums_of(list(parts), height)
        return Piece(drawn.counts, None, columns, height, sums, missing, each, order)

    def sort_in(self, parts: Sequence[Part], places: NDArray[np.uint64], rows: int, sums: tuple[int, int]) -> Piece:
        """Sort cards by range; `rows` and `sums` are what they add to the content."""
        ranges = ranges_of(places, self.ranges)
        order = np.argsort(ranges, kind="stable")
        counts = np.bincount(ranges, minlength=self.ranges)
        columns = [self._taken(part, order) for part in parts]
        return Piece(counts, self.memory.take(places, order), columns, rows, sums, [part.missing for part in parts])

    def collect(self, piece: Piece) -> None:
        """Add a prepared piece."""
        self.content.include(piece.rows, piece.sums)
        if self.order is not None:
            self.order.include(piece.rows, piece.order)
        self.missing = [a or b for a, b in zip(self.missing, piece.missing, strict=True)]
        self._waiting.append(piece)
        if sum(int(each.counts.sum()) for each in self._waiting) >= _RUN * self._block:
            self.write()

    def write(self) -> None:
        """Write the collected cards as a run, in the background."""
        if not self._waiting:
            return
        pieces, self._waiting = self._waiting, []
        content, missing, texts = self.content, self.missing, self._newly_learned()
        done = (content.rows, content.sums, (0, 0) if self.order is None else self.order.sums, missing, texts)
        self._behind.do(lambda: self._write(pieces, *done))

    def finish(self) -> None:
        """Write the rest, and wait until it is written."""
        self.write()
        self._behind.wait()

    def _write(
        self,
        pieces: list[Piece],
        rows: int,
        sums: tuple[int, int],
        order: tuple[int, int],
        missing: list[bool],
        texts: dict[str, Any],
    ) -> None:
        number, at, cuts = len(self._runs), self._end, [piece.cuts for piece in pieces]
        placing, marked = self.placing, set[int]()
        if placing is not None:
            mine = [i for i in range(len(self._names)) if i in placing]
            marked = placing.write({i: [piece.columns[i] for piece in pieces] for i in mine}, cuts)
        merged: NDArray[np.int64] = np.sum(cuts, axis=0)
        self._append([merged.data])
        places = [piece.places for piece in pieces if piece.places is not None]
        if places:
            self._append(_merged(places, cuts))
        lengths, at_lengths = [piece.lengths for piece in pieces if piece.lengths is not None], 0
        if lengths:
            card_cuts = [piece.card_cuts for piece in pieces]
            at_lengths = self._append([np.sum(card_cuts, axis=0).data])
            self._append(_merged(lengths, card_cuts))
        columns: list[Stored] = []
        for i, name in enumerate(self._names):
            parts = [piece.columns[i] for piece in pieces]
            if placing is not None and i in placing:
                columns.append(Stored(_PLACED, 0, int(i in marked)))
            elif any(isinstance(part.values, pl.Series) for part in parts):
                series = [self._as_texts(name, part) for part in parts]
                begin = self._append_texts(series, cuts)
                columns.append(Stored(_TEXTS, begin, self._append_marks(map(validity, series), cuts)))
            else:
                values = _alike([part.values for part in parts if isinstance(part.values, np.ndarray)])
                begin = self._append(_merged(values, cuts))
                marks = self._append_marks((part.valid for part in parts), cuts)
                columns.append(Stored(values[0].dtype.str, begin, marks))
        cards = int(sum(piece.counts.sum() for piece in pieces))
        run = SortedRun(at, self._end, cards, bool(places), at_lengths, columns, rows, sums, order, missing, texts)
        replace_text(self._about(number), json.dumps(asdict(run)))
        self._runs.append(replace(run, texts={}))  # the coder knows them

    def _append(self, pieces: Sequence[memoryview]) -> int:
        """Append to the file of runs; return the offset."""
        at = self._end
        write_at(self._file.fileno(), pieces, at)
        self._end += sum(piece.nbytes for piece in pieces)
        return at

    def _append_texts(self, texts: list[pl.Series], cuts: list[NDArray[np.int64]]) -> int:
        """Append texts, missing ones as empty ones; return the offset."""
        joined = [Joined.of(series) for series in texts]
        lengths = [each.lengths.astype(np.int64) for each in joined]
        starts = [np.concatenate([[0], np.cumsum(each)]).take(cut) for each, cut in zip(lengths, cuts, strict=True)]
        merged = np.concatenate([np.zeros(1, np.int64), *map(np.asarray, _merged(lengths, cuts))])
        at = self._append([np.cumsum(merged, out=merged).data])
        self._append(_merged([np.frombuffer(each.data, np.uint8) for each in joined], starts))
        return at

    def _append_marks(self, valid: Iterable[NDArray[np.bool_] | None], cuts: list[NDArray[np.int64]]) -> int:
        """Append which values are present; return the offset, or 0 if all are."""
        marks = list(valid)
        if all(each is None for each in marks):
            return 0
        whole = [np.ones(cut[-1], np.bool_) if each is None else each for each, cut in zip(marks, cuts, strict=True)]
        return self._append(_merged(whole, cuts))

    def is_coded(self, i: int) -> bool:
        """Whether a column of texts is stored as codes in all runs."""
        return all(run.columns[i].type != _TEXTS for run in self._runs)

    def ordered(
        self, secret: bytes, advance: Callable[[int], Any], first: int, last: int, done: int = 0
    ) -> Generator[Block, None, None]:
        """Yield the cards of ranges `first` to `last` - 1, in order.

        Parameters
        ----------
        secret
            Decides the order within every range, or between equal places.
        advance
            Called with the number of cards done.
        first, last
            Which ranges.
        done
            For how many of them the numbers are already in order in their final location.
        """
        with closing(ahead(partial(self._sorted, secret, first + done), range(first, last))) as blocks:
            for block in blocks:
                advance(block.cards)
                yield block

    def _sorted(self, secret: bytes, begin: int, number: int) -> Block:
        pieces, lengths = [(run, *self._cut(run.at, number)) for run in self._runs], None
        if self._runs[0].placed:
            places = self._read(
                [("<u8", run.at + 8 * (self.ranges + 1 + low), high - low) for run, low, high in pieces]
            )
            offsets = places - np.uint64(number * width_of(self.ranges))
            order = in_order(offsets, width_of(self.ranges), lambda: _chance(secret, number))
        elif self._runs[0].lengths:
            cuts = [(run.lengths, *self._cut(run.lengths, number)) for run in self._runs]
            lengths = self._read([("<i8", at + 8 * (self.ranges + 1 + low), high - low) for at, low, high in cuts])
            order, lengths = rows_of_cards(lengths, _chance(secret, number).permutation(lengths.size))
        else:
            order = _chance(secret, number).permutation(sum(high - low for _, low, high in pieces))
        parts = []
        for i in range(len(self._names)):
            if not self.is_coded(i):
                parts.append(self._texts_in_order(i, pieces, order))
                continue
            if self.placing is None or i not in self.placing:
                parts.append(self._taken(self._column(i, pieces), order))
                continue
            marked = any(run.columns[i].marks for run in self._runs)
            part = self.placing.read(i, number, marked=marked, in_order=number < begin)
            parts.append(part if number < begin else self._taken(part, order))
        return Block(order.size if lengths is None else lengths.size, parts, lengths)

    def _cut(self, at: int, number: int) -> tuple[int, int]:
        """Return where a range begins and ends, from the starts of ranges stored at offset `at`."""
        cut = np.empty(2, np.int64)
        read_into(self._file.fileno(), cut, at + 8 * number)
        return int(cut[0]), int(cut[1])

    def _column(self, i: int, pieces: list[tuple[SortedRun, int, int]]) -> Part:
        if len({run.columns[i].type for run, _, _ in pieces}) == 1:
            values = self._read([(*_at(run, i, low), high - low) for run, low, high in pieces])
        else:
            values = np.concatenate([self._read([(*_at(run, i, low), high - low)]) for run, low, high in pieces])
        if not any(run.columns[i].marks for run, _, _ in pieces):
            return Part(values, None)
        return Part(values, np.concatenate([self._read_marks(i, *piece) for piece in pieces]))

    def _read_marks(self, i: int, run: SortedRun, low: int, high: int) -> NDArray[np.bool_]:
        marks = run.columns[i].marks
        return self._read([("|b1", marks + low, high - low)]) if marks else np.ones(high - low, np.bool_)

    def _texts_in_order(self, i: int, pieces: list[tuple[SortedRun, int, int]], order: NDArray[np.int64]) -> Part:
        """Return the texts of a range, end to end in this order: they are copied once, without becoming objects."""
        texts: list[memoryview | bytes] = []
        valid = None
        if any(run.columns[i].marks for run, _, _ in pieces):
            valid = np.concatenate([self._read_marks(i, *piece) for piece in pieces])
        for run, low, high in pieces:
            stored = run.columns[i]
            if stored.type == _TEXTS:
                edges = np.empty(high - low + 1, np.int64)
                read_into(self._file.fileno(), edges, stored.values + 8 * low)
                data = np.empty(edges[-1] - edges[0], np.uint8)
                rows = self._cut(run.at, self.ranges - 1)[1]
                read_into(self._file.fileno(), data, stored.values + 8 * (rows + 1) + int(edges[0]))
                texts += [data.data[begin:end] for begin, end in pairwise((edges - edges[0]).tolist())]
            else:  # a run from before there were too many texts
                codes = self._read([(*_at(run, i, low), high - low)])
                known = self.coder.texts[self._names[i]].all
                coded = known.gather(codes).cast(pl.Binary).to_list() if known.len() else [b""] * codes.size
                present = None if valid is None else valid[len(texts) : len(texts) + codes.size]
                texts += (
                    coded if present is None else [t if there else b"" for t, there in zip(coded, present, strict=True)]
                )
        lengths = np.fromiter(map(len, texts), np.uint32, len(texts)).take(order)
        joined = Joined(b"".join([texts[card] for card in order.tolist()]), lengths)
        return Part(joined, None if valid is None else valid.take(order))

    def _as_texts(self, name: str, part: Part) -> pl.Series:
        if isinstance(part.values, pl.Series):
            return part.values.alias("text")
        codes = pl.Series(part.values)
        if part.valid is not None:
            codes = codes.zip_with(pl.Series(part.valid), pl.Series([None], dtype=codes.dtype))
        return self.coder.texts[name].all.gather(codes).alias("text")

    def _newly_learned(self) -> dict[str, tuple[list[str], bool]]:
        found = {}
        for name, texts in self.coder.texts.items():
            known = texts.all  # other threads may add more meanwhile
            found[name] = (known[self._learned[name] :].to_list(), texts.coded)
            self._learned[name] = known.len()
        return found

    def _take_up(self, about: dict[str, Any]) -> None:
        """Continue after a run that an earlier process wrote."""
        about["columns"] = [Stored(*column) for column in about["columns"]]
        run = SortedRun(**about | {name: tuple(about[name]) for name in ("sums", "order")})
        self._runs.append(run)
        self.content.rows, self.content.sums, self.missing = run.rows, run.sums, run.missing
        if self.order is not None:
            self.order.rows, self.order.sums = run.rows, run.order
        for name, (new, coded) in run.texts.items():
            texts = self.coder.texts[name]
            texts.learn(pl.Series(new, dtype=pl.String))
            texts.coded = coded
            self._learned[name] = texts.all.len()

    def _taken(self, part: Part, rows: NDArray[np.int64]) -> Part:
        assert not isinstance(part.values, Joined)
        if isinstance(part.values, pl.Series):
            return Part(part.values.gather(rows), None)
        valid = None if part.valid is None else self.memory.take(part.valid, rows)
        return Part(self.memory.take(part.values, rows), valid)

    def _read(self, pieces: Sequence[tuple[str, int, int]]) -> NDArray[Any]:
        """Read arrays, each given by type, offset and number of values, from the file of runs into one array."""
        values = self.memory(np.dtype(pieces[0][0]), sum(count for *_, count in pieces))
        filled = 0
        for _, at, count in pieces:
            read_into(self._file.fileno(), values[filled : filled + count], at)
            filled += count
        return values

    def _about(self, number: int) -> Path:
        return self._folder / f"{number:06d}.json"


def in_order(offsets: NDArray[np.uint64], width: int, chance: Callable[[], random.Generator]) -> NDArray[np.int64]:
    """Return the sorted order of offsets below `width`; equal ones are put in random order.

    Parameters
    ----------
    offsets, width
        What is sorted: first by the highest 32 bits, then those that agree in them by the rest.
    chance
        Returns a generator; called only if some agree in their highest bits.
    """
    key = (offsets >> np.uint64(max(0, (width - 1).bit_length() - 32))).astype(np.uint32)
    order = np.argsort(key.astype(np.uint16), kind="stable")  # numpy sorts 16 bits by counting
    order = order.take(np.argsort((key >> np.uint32(16)).astype(np.uint16).take(order), kind="stable"))
    key = key.take(order)
    same = key[1:] == key[:-1]
    if same.any():
        tied = np.concatenate([same, [False]]) | np.concatenate([[False], same])
        cards = order[tied]
        order[tied] = cards[np.lexsort((chance().permutation(cards.size), offsets[cards]))]
    return order


def _at(run: SortedRun, i: int, begin: int) -> tuple[str, int]:
    """Return the type of a column in a run, and the offset of its value number `begin`."""
    stored = run.columns[i]
    return stored.type, stored.values + begin * np.dtype(stored.type).itemsize


def _chance(secret: bytes, number: int) -> random.Generator:
    return keyed_generator(sha256(secret + f"order of range {number}".encode()).digest())


def _alike(arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return arrays of one type: codes of later runs can be wider, as there are more texts."""
    widest = np.result_type(*arrays)
    return [array.astype(widest, copy=False) for array in arrays]


def _merged(arrays: Sequence[NDArray[Any]], cuts: Sequence[NDArray[np.int64]]) -> list[memoryview]:
    """Return the parts of several pieces in the first range, then in the second, and so on."""
    pairs = [(array.data, cut.tolist()) for array, cut in zip(arrays, cuts, strict=True)]
    return [data[cut[i] : cut[i + 1]] for i in range(cuts[0].size - 1) for data, cut in pairs]
