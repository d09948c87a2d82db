"""Text files in pieces that end where a line ends.

Polars maps a whole file to count its lines and, if they are JSON, to read them. Given a piece of it, it counts and
reads the same lines, in memory that does not grow with the file.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from holdfast.rows.scans.json_lines import JsonLines, is_text
from holdfast.rows.scans.texts import CsvFiles

PIECE = 8 << 20  # bytes
_UNBROKEN = 256 << 20  # bytes without the end of a line: quotes are not what they are taken for


class Unbroken(Exception):
    """Lines have no end for so long that they cannot be read in pieces."""


def in_pieces(text: JsonLines | CsvFiles) -> Iterator[pl.LazyFrame] | None:
    """Return scans of all lines, in order, a few at a time; they raise `Unbroken` where a file has no lines.

    None if files are not on this machine, or compressed, so that Polars must read them.
    """
    if not text.on_disk or not all(map(is_text, text.on_disk)):
        return None
    return _scanned(text)


def _scanned(text: JsonLines | CsvFiles) -> Iterator[pl.LazyFrame]:
    for place, path in enumerate(text.on_disk):
        before = 0
        for lines in _pieces(path, text.quote):
            if isinstance(text, CsvFiles):
                text.look(place, before, lines)
            yield text.piece(lines, before == 0)
            before += lines.count(b"\n")


def _pieces(path: Path, quote: bytes) -> Iterator[bytes]:
    """Yield a file in pieces that end with a line; no line ends between two quotes."""
    with path.open("rb") as file:
        at, size, total = 0, PIECE, os.fstat(file.fileno()).st_size
        while at < total and (block := os.pread(file.fileno(), size, at)):
            end = len(block) if at + len(block) >= total else _last_end(block, quote)
            if end:
                yield block[:end]
                at, size = at + end, PIECE
            elif quote and size >= _UNBROKEN:
                raise Unbroken
            else:
                size *= 2


def _last_end(block: bytes, quote: bytes) -> int:
    r"""Return where the last whole line ends; 0 if there is none.

    >>> _last_end(b"a\nb\nc", b""), _last_end(b'a\n"b\nc', b'"'), _last_end(b'"a\nb"\nc', b'"'), _last_end(b"a", b"")
    (4, 2, 6, 0)
    """
    end = block.rfind(b"\n")
    if not quote or end < 0:
        return end + 1
    before = block.count(quote, 0, end)
    while end >= 0 and before % 2:  # this end of a line is inside quotes
        earlier = max(0, block.rfind(b"\n", 0, end))
        before -= block.count(quote, earlier, end)
        end = earlier if block[earlier : earlier + 1] == b"\n" else -1
    return end + 1
