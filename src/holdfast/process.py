"""Which process this is.

The system gives the number of a process that has ended to a later one, which may be forked from a child of the first
and so have all that this knew: a ledger's places taken ahead, the state of a random generator. Here the number of forks
since the first process is part of the number, so that no process takes itself for one it descends from.
"""

import os

_forks = 0


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forked)


def process_number() -> int:
    """Return a number that this process has, and none of those it was forked from, nor those forked from it."""
    return os.getpid() + (_forks << 32)
