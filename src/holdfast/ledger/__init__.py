"""The one budget of a dataset: append-only, hash-chained, durable before visible, shared by everyone.

store.py         the values a ledger holds (cost, place, entry, head), and the interface of a store, which keeps them
chain.py         entries: their canonical text and hash chain; those that are not written yet
tree.py          a Merkle tree over their hashes
verify.py        proof of one entry for somebody who does not have the ledger; re-checking a whole ledger
memory.py        a store in the memory of this process
database.py      a store in two tables of a database: sqlite.py (one file), postgres.py (a server)
sqlite_file.py   the file of a ledger, its log and its lock file: are they still those that were opened?
concurrency.py   one committing thread; forks; connections
places.py        places that a process has taken ahead
underway.py      questions that are being answered, here and in other processes; one answer at a time to each
ledger.py        the rules: begin, find, reserve, commit
follower.py      what reads a ledger as it grows
witness.py       witnesses, which remember the newest entry of a ledger, and with which the ledger is compared
opening.py       finding a ledger at a location
backup.py        copying a ledger and restoring it from a copy
"""

from holdfast.ledger.chain import Drawn, check_analyst
from holdfast.ledger.follower import Follower
from holdfast.ledger.ledger import Ledger
from holdfast.ledger.opening import SharedBudget, audit, exists, file_beside, open_ledger
from holdfast.ledger.store import Answered, Cost, Entry, Head, Place, Reach, Spent, Tip
from holdfast.ledger.underway import Asking
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
    "Follower",
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
