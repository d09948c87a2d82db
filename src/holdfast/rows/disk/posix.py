"""What rows on disk need from the operating system: locks on folders, memory-mapped files with advice, early writing.

Windows has none of this, so there importing any module that stores rows fails here, with one sentence. The client does
not need this.
"""

import ctypes
import sys

from holdfast.errors import RowSourceError

if sys.platform == "win32":
    raise RowSourceError(
        "holdfast cannot store rows on Windows: run it in the Windows Subsystem for Linux (wsl --install), or ask a"
        " server with holdfast.connect."
    )

import fcntl as fcntl
import mmap as mmap

_WRITE = 2  # SYNC_FILE_RANGE_WRITE; Python has no name for it
_sync_file_range = getattr(ctypes.CDLL(None), "sync_file_range", None)


def start_writing(file: int, at: int, size: int) -> None:
    """Let the disk begin to write this part of a file, without waiting for it; does nothing where only Linux could."""
    if _sync_file_range is not None:
        _sync_file_range(file, ctypes.c_int64(at), ctypes.c_int64(size), _WRITE)
