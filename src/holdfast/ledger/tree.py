"""A Merkle tree over the hashes of all entries, which proves one of n entries with about log2(n) hashes.

    leaf(hash)         sha256(00 followed by the 32 bytes of the entry's hash)
    node(left, right)  sha256(01 followed by both), 32 bytes each
    root of none       sha256 of nothing
    root of one        its leaf
    root of n          node(root of the first k, root of the rest), k the largest power of two below n

as in RFC 6962 and RFC 9162. A leaf cannot be mistaken for a node, and the entries' own texts begin with neither byte.

The n leaves form complete subtrees, one for each binary digit 1 of n, the largest first. Their roots, the *peaks*, are
all that is needed to append and to compute the root; a path also needs subtrees further inside.

>>> peaks = ""
>>> for size, hash in enumerate(["aa" * 32, "bb" * 32, "cc" * 32]):
...     peaks = append(peaks, size, hash)
>>> len(peaks) // 64, root(peaks)
(2, 'd73cea60f2ce124730a688b2456b84beb6fed822ab3e6d23c30c1ccdcbb5433b')
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from hashlib import sha256

BLOCK_HEIGHT = 8  # subtrees of at least 2**8 leaves are kept in memory; smaller ones are computed from the leaves
BLOCK = 1 << BLOCK_HEIGHT

ReadBlock = Callable[[int], Sequence[str]]


def leaf(entry_hash: str) -> bytes:
    """Return the leaf of an entry."""
    return sha256(b"\0" + bytes.fromhex(entry_hash)).digest()


def node(left: bytes, right: bytes) -> bytes:
    """Return the root of two neighboring subtrees."""
    return sha256(b"\1" + left + right).digest()


def append(peaks: str, size: int, entry_hash: str) -> str:
    """Return the peaks of size + 1 leaves from those of `size` leaves, as one text with 64 characters per peak."""
    added, end = leaf(entry_hash), len(peaks)
    while size & 1:  # the last subtree is as large as the added one: merge them
        added, end, size = node(bytes.fromhex(peaks[end - 64 : end]), added), end - 64, size >> 1
    return peaks[:end] + added.hex()


def root(peaks: str) -> str:
    """Return the root of all leaves from their peaks."""
    return _fold(bytes.fromhex(peaks)).hex()


def root_of_path(entry_hash: str, index: int, size: int, path: Sequence[str]) -> str | None:
    """Return the root of `size` leaves that the path implies for entry `index`; None if the path has a wrong length."""
    right_turns = []
    while size > 1:
        half = 1 << (size - 1).bit_length() - 1
        right = index >= half
        right_turns.append(right)
        index, size = (index - half, size - half) if right else (index, half)
    if index != 0 or size != 1 or len(path) != len(right_turns):
        return None
    reached = leaf(entry_hash)
    for sibling, right in zip(path, reversed(right_turns), strict=True):
        beside = bytes.fromhex(sibling)
        reached = node(beside, reached) if right else node(reached, beside)
    return reached.hex()


class Tree:
    """The peaks and the roots of all complete subtrees of at least `BLOCK` leaves: 32 bytes for every 128 entries."""

    def __init__(self) -> None:
        self.size = 0
        self._peaks: list[bytes] = []
        self._levels: list[list[bytes]] = []  # _levels[j][i] is the root of leaves i 2**h up to (i+1) 2**h, h = j + 8

    @property
    def peaks(self) -> str:
        """The peaks as one text."""
        return b"".join(self._peaks).hex()

    @property
    def root(self) -> str:
        """The root of all leaves."""
        return _fold(b"".join(self._peaks)).hex()

    def append(self, entry_hash: str) -> None:
        """Add the next entry."""
        added, size, height = leaf(entry_hash), self.size, 0
        while size >> height & 1:
            added = node(self._peaks.pop(), added)
            height += 1
            if height >= BLOCK_HEIGHT:
                self._keep(height - BLOCK_HEIGHT, added)
        self._peaks.append(added)
        self.size += 1

    def grown(self, entry_hashes: Iterable[str]) -> "Tree":
        """Return a tree with these entries added; this one is unchanged, since other threads may be reading it."""
        after = Tree()
        after.size, after._peaks, after._levels = self.size, self._peaks.copy(), [one.copy() for one in self._levels]
        for entry_hash in entry_hashes:
            after.append(entry_hash)
        return after

    def prove(self, index: int, size: int, read_block: ReadBlock) -> tuple[str, tuple[str, ...]]:
        """Return the root before entry `index`, and its path under the root of the first `size` entries.

        The path lists the sibling roots from the leaf up. It is empty for an entry that is not under that root.
        `read_block(j)` returns the hashes of the entries from j * BLOCK on, up to BLOCK of them; it is called for at
        most two blocks.
        """
        read = cache(read_block)
        before = (self._subtree(0, index, read) if index else _fold(b"")).hex()
        start, end, beside = 0, size if index < size else 0, []
        while end - start > 1:
            middle = _middle(start, end)
            if index < middle:
                beside.append(self._subtree(middle, end, read))
                end = middle
            else:
                beside.append(self._subtree(start, middle, read))
                start = middle
        return before, tuple(sibling.hex() for sibling in reversed(beside))

    def _keep(self, level: int, subtree: bytes) -> None:
        if level == len(self._levels):
            self._levels.append([])
        self._levels[level].append(subtree)

    def _subtree(self, start: int, end: int, read: ReadBlock) -> bytes:
        """Return the root of these leaves; `start` must be a multiple of a power of two that is >= end - start."""
        count = end - start
        if count < BLOCK:
            within, hashes = start % BLOCK, read(start // BLOCK)
            return _fold(b"".join(Tree().grown(hashes[within : within + count])._peaks))
        if count & (count - 1) == 0:
            height = count.bit_length() - 1
            return self._levels[height - BLOCK_HEIGHT][start >> height]
        middle = _middle(start, end)
        return node(self._subtree(start, middle, read), self._subtree(middle, end, read))


def _middle(start: int, end: int) -> int:
    return start + (1 << (end - start - 1).bit_length() - 1)


def _fold(peaks: bytes) -> bytes:
    """Return the root of all leaves from their peaks, 32 bytes each."""
    end = len(peaks) - 32
    if end < 0:
        return sha256(b"").digest()
    reached = peaks[end:]
    while end:
        reached = node(peaks[end - 32 : end], reached)
        end -= 32
    return reached
