"""Which process this is.

The system gives the number of a process that has ended to a later one, which may be forked from a child of the first
and so have all that this knew: a ledger's places taken ahead, the state of a random generator. Here the number of forks
since the first process is part of the number, so that no process takes itself for one it descends from.
"""

import os


class ThisProcess:
    """This process: a forked child finds its own number here before it runs anything else."""

    def __init__(self) -> None:
        self._forks = 0
        self.number = os.getpid()  # that of no process it was forked from, nor of any that is forked from it
        if hasattr(os, "register_at_fork"):  # Windows has no fork
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self._forks += 1
        self.number = os.getpid() + (self._forks << 32)


this_process = ThisProcess()
