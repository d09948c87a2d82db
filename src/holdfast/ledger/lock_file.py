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
        """Wait for the lock, however long; go on without it if the file is closed meanwhile, as before a fork."""
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
        """Let the next one have it."""
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
    """Open a file to write, and return its descriptor; a new one is for its owner alone, whatever the umask says."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if sys.platform != "win32":
        os.fchmod(descriptor, 0o600)
    return descriptor
