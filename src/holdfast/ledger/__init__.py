"""The one budget of a dataset: append-only, hash-chained, durable before visible, shared by everyone.

entry.py         what is written: cost, entry, head
chain.py         how entries hold each other: canonical text, digests, links; re-checking them
tree.py          a Merkle tree over their hashes
receipt.py       proof of one entry to somebody without the ledger
store.py         what a place must do to hold a ledger
memory.py        a place: this process
database.py      a place: two tables (tables.py) in a database; sqlite.py (one file), postgres.py (a server)
lock_file.py     where processes that write one file wait for each other
forks.py         what is open is closed before a fork; a child begins anew
group_commit.py  one thread that writes for all that wait
places.py        places that a process has taken ahead
in_flight.py     one thread at a time answers a question
drawn.py         entries on their way: the first one, and answers that nobody has seen
reading.py       a ledger read back and re-checked
ledger.py        the rules: begin, find, reserve, commit
witness.py       who remembers how far a ledger had come; watched.py: comparing a ledger with what they saw
opening.py       find a ledger at a location
backup.py        copy a ledger, and put a copy back
"""

from holdfast.ledger.drawn import Drawn, check_analyst
from holdfast.ledger.entry import Cost, Entry, Head, Place, Reach, Spent
from holdfast.ledger.ledger import Ledger
from holdfast.ledger.opening import SharedBudget, audit, exists, file_beside, open_ledger
from holdfast.ledger.receipt import Receipt, check_receipt
from holdfast.ledger.store import Tip
from holdfast.ledger.witness import SPLIT, FileWitness, ProcessWitness, Seen, Witness, content_of

__all__ = [
    "SPLIT",
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
