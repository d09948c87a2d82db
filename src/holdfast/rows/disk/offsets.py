"""Open files that are read and written at given offsets, by several threads, and the room that they take."""

import ctypes
import errno
import os
import sys
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from holdfast.rows.disk.array_files import Incomplete

_AT_ONCE = 1_000  # pieces per write call; the system allows 1,024
# `os.posix_fallocate` may write zeros.
_fallocate = ctypes.CDLL(None, use_errno=True).fallocate if sys.platform == "linux" else None
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def make_room(file: int, size: int) -> None:
    """Give an empty file its length; take all of its room at once where the system can, which fails early if it lacks.

    Pages are then written in less time: the system has decided where they go.
    """
    problem = errno.EINTR
    while problem == errno.EINTR:  # a signal came, and its handler has run
        problem = _take_room(file, size)
    if problem in _FULL:
        raise OSError(problem, os.strerror(problem))
    if problem:
        os.ftruncate(file, size)


def _take_room(file: int, size: int) -> int:
    """Return 0, or the number of the error."""
    if _fallocate is None:
        return errno.ENOSYS
    return ctypes.get_errno() if _fallocate(file, 0, ctypes.c_int64(0), ctypes.c_int64(size)) else 0


def read_into(file: int, values: NDArray[Any], at: int) -> None:
    """Fill an array from a file, from offset `at` on; the file must contain all of it."""
    view = values.data.cast("B") if values.size else memoryview(b"")
    while view.nbytes:
        done = os.preadv(file, [view], at)
        if not done:
            raise Incomplete
        view, at = view[done:], at + done


def write_at(file: int, pieces: Sequence[memoryview], at: int) -> None:
    """Write pieces one after another, from offset `at` on."""
    for start in range(0, len(pieces), _AT_ONCE):
        these = pieces[start : start + _AT_ONCE]
        size = sum(piece.nbytes for piece in these)
        left = size - (os.pwritev(file, these, at) if size else 0)
        at += size
        if left:  # a full disk, which raises an error when it is written to again
            rest = b"".join(these)
            while left:
                left -= os.pwrite(file, rest[-left:], at - left)
