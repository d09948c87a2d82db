"""The one budget of a dataset: append-only, hash-chained, durable before visible, shared by everyone.

entry.py         the values a ledger holds: cost, place, entry, head
chain.py         the hash chain: canonical text, digests, links; re-checking them
tree.py          a Merkle tree over their hashes
receipt.py       proof of one entry for somebody who does not have the ledger
store.py         the interface of a store, which holds the rows of a ledger
memory.py        a store in the memory of this process
database.py      a store in two tables (tables.py) of a database: sqlite.py (one file), postgres.py (a server)
lock_file.py     the lock file on which processes that write one SQLite file queue
forks.py         closing connections before a fork; resetting state in the child
group_commit.py  one thread that writes for all waiting threads
places.py        places that a process has taken ahead
in_flight.py     letting one thread at a time answer a given question
drawn.py         entries that are not written yet: the first one, and answers that nobody has seen
reading.py       reading a ledger back and re-checking it
ledger.py        the rules: begin, find, reserve, commit
witness.py       witnesses, which remember the newest entry of a ledger; watched.py compares the ledger with them
opening.py       finding a ledger at a location
backup.py        copying a ledger and restoring it from a copy
"""

from holdfast.ledger.concurrency import Asking
from holdfast.ledger.drawn import Drawn, check_analyst
from holdfast.ledger.ledger import Ledger
from holdfast.ledger.opening import SharedBudget, audit, exists, file_beside, open_ledger
from holdfast.ledger.store import Answered, Cost, Entry, Head, Place, Reach, Spent, Tip
from holdfast.ledger.verify import Receipt, check_receipt
from holdfast.ledger.witness import SPLIT, FileWitness, ProcessWitness, Seen, Witness, content_of

__all__ = [
    "SPLIT",
    "Answered",
    "Asking",
    "Cost",
    "Drawn",
    "Entry",
    "FileWitness",
    "Head",
    "Ledger",
    "Place",
    "ProcessWitness",
    "Reach",
    "Receipt",
    "Seen",
    "SharedBudget",
    "Spent",
    "Tip",
    "Witness",
    "audit",
    "check_analyst",
    "check_receipt",
    "content_of",
    "exists",
    "file_beside",
    "open_ledger",
]
