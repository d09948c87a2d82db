"""A lock file beside the ledger, on which processes that want to write queue.

It serves only fairness and speed. SQLite lets one process write at a time, whether or not it holds this lock.
"""

import os
import sys
from contextlib import suppress
from io import FileIO
from pathlib import Path

if sys.platform != "win32":
    import fcntl


class LockFile:
    """A lock file, opened when needed. It may be closed, which releases the lock, even while a thread waits for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.file: FileIO | None = None  # not its descriptor, which may be reused for another file once it is closed

    def acquire(self) -> None:
        """Wait for the lock without a time limit; continue without it if the file is closed meanwhile, as by a fork."""
        if sys.platform != "win32":
            file = self.file
            if file is None:
                file = self.file = FileIO(open_private(self._path), "r+")
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
            except (ValueError, OSError):
                if not file.closed:
                    raise

    def release(self) -> None:
        """Release the lock."""
        file = self.file
        if sys.platform != "win32" and file is not None:
            with suppress(ValueError):  # closed meanwhile
                fcntl.flock(file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file."""
        file, self.file = self.file, None
        if file is not None:
            file.close()


def open_private(path: Path) -> int:
    """Open a file for writing and return its descriptor; only the owner may access a new file, whatever the umask."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if sys.platform != "win32":
        os.fchmod(descriptor, 0o600)
    return descriptor
