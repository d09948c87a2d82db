"""Where writing processes wait for each other, in turn: a lock file beside the ledger.

It is for fairness and speed alone. Whoever holds it by mistake, or not at all, still writes one at a time.
"""

import os
import sys
from contextlib import suppress
from io import FileIO
from pathlib import Path

if sys.platform != "win32":
    import fcntl


class LockFile:
    """A lock file, opened when needed. Closing it frees the lock, also while a thread waits for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.file: FileIO | None = None  # not its number, which may be another file's once it is closed

    def acquire(self) -> None:
        """Wait for the lock, however long."""
        if sys.platform != "win32":
            if self.file is None:
                self.file = FileIO(open_private(self._path), "r+")
            fcntl.flock(self.file, fcntl.LOCK_EX)

    def release(self) -> None:
        """Let the next one have it."""
        if sys.platform != "win32" and self.file is not None:
            with suppress(ValueError):  # closed meanwhile
                fcntl.flock(self.file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file."""
        file, self.file = self.file, None
        if file is not None:
            file.close()


def open_private(path: Path) -> int:
    """Open a file to write, and return its descriptor; a new one is for its owner alone, whatever the umask says."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if sys.platform != "win32":
        os.fchmod(descriptor, 0o600)
    return descriptor
