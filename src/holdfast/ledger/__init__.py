"""The one budget of a dataset: append-only, hash-chained, durable before visible, shared by everyone.

entry.py         what is written: cost, entry, head, receipt
chain.py         how entries hold each other: canonical text, digests, links; re-checking them
store.py         what a place must do to hold a ledger
memory.py        a place: this process
database.py      a place: two tables in a database; sqlite.py (one file), postgres.py (a server)
group_commit.py  one thread that writes for all that wait
places.py        places that a process has taken ahead
in_flight.py     one thread at a time answers a question
ledger.py        the rules: begin, find, reserve, commit
opening.py       find a ledger at a location
"""

from holdfast.ledger.chain import check_receipt
from holdfast.ledger.entry import Cost, Entry, Head, Place, Receipt, Spent
from holdfast.ledger.ledger import Ledger, check_analyst
from holdfast.ledger.opening import audit, exists, open_ledger

__all__ = [
    "Cost",
    "Entry",
    "Head",
    "Ledger",
    "Place",
    "Receipt",
    "Spent",
    "audit",
    "check_analyst",
    "check_receipt",
    "exists",
    "open_ledger",
]
