"""What rows on disk need from the operating system: locks on folders, and memory-mapped files with advice.

Windows has neither, so there importing any module that stores rows fails here, with one sentence. The client does not
need this.
"""

import sys

from holdfast.errors import RowSourceError

if sys.platform == "win32":
    raise RowSourceError(
        "holdfast cannot store rows on Windows: run it in the Windows Subsystem for Linux (wsl --install), or ask a"
        " server with holdfast.connect."
    )

import fcntl as fcntl
import mmap as mmap
