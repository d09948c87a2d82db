"""What rows on disk need of the operating system: locks on folders, and files mapped into memory with advice.

Windows has neither, so there the import of whatever keeps rows ends here, in one sentence. The client needs none of it.
"""

import sys

from holdfast.errors import RowSourceError

if sys.platform == "win32":
    raise RowSourceError(
        "holdfast keeps rows as Windows cannot: run it in the Windows Subsystem for Linux (wsl --install), or ask a"
        " server with holdfast.connect."
    )

import fcntl as fcntl
import mmap as mmap
