"""Tables at rest: a folder with one array file per column.

folder           the folder as a row source: mapped into memory, cheap to open
ingest           turns a table into a folder, once, unless rows that have answered questions would lose it
partial          a folder under construction: its lock, a note of the progress, what is shown of it
column_writer    columns that grow batch by batch
array_files      one array file in hashed blocks
offsets          open files read and written at given offsets, and their room
packs            numbers that fits need of every row, stored side by side

All this needs locks on folders, advice about mapped files and early writing. Windows has none of them, so there
importing any of these modules fails here, with one sentence. Plans and the client do not need them.
"""

import sys

from holdfast.errors import RowSourceError

if sys.platform == "win32":
    raise RowSourceError(
        "holdfast cannot store rows on Windows: run it in the Windows Subsystem for Linux (wsl --install), or ask a"
        " server with holdfast.connect."
    )
