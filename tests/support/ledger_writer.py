"""Processes that write to a ledger and may be killed at any moment.

Run as a script it is a pool of writers: it reads `start`, `stop PID`, `go PID` and `kill PID` from its input, forks
writers and answers with one line each. A writer opens the ledger, commits until the budget or its share is
used up, and notes every commit that returned (number, hash, length of SQLite's log) in a file, in one
appending write each. Children are waited for only after they were killed, so no process number is ever a
somebody else's.
"""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from holdfast.errors import BudgetExhausted
from holdfast.ledger import Cost, Drawn, Entry, Ledger, open_ledger

DATASET, FINGERPRINT = "flights", "sha256:f00d"
QUESTION = {"kind": "share", "text": "dep_delay > 15"}
ANSWER = {"value": 0.25, "low": 0.2, "high": 0.3, "counts": [750, 250]}


def terms(charge: int = 10**9, intervals: int = 10**6) -> dict[str, Any]:
    return {"queries": 100, "confidence": 0.95, "caps": {"charge": charge, "intervals": intervals}}


def fingerprint_of(dataset: str) -> str:
    """Return a fingerprint of its own for every dataset: one content has one ledger."""
    return FINGERPRINT if dataset == DATASET else f"{FINGERPRINT} {dataset}"


def begun(location: Any, plan: dict[str, Any] | None = None, **more: Any) -> Ledger:
    """Open a ledger, and begin it if nobody has."""
    names = {"dataset": DATASET, "fingerprint": fingerprint_of(more.get("dataset", DATASET))} | more
    ledger = open_ledger(location, **names)
    try:
        ledger.begin(terms() if plan is None else plan)
    except BaseException:
        ledger.close()
        raise
    return ledger


def commit(ledger: Ledger, key: str | None = None, *, charge: int = 1, **more: Any) -> Any:
    """Reserve and commit, as a session does: what was asked before is free."""
    values: dict[str, Any] = {"question": QUESTION, "answer": ANSWER, "rows_read": 1_000, "cost": Cost(charge, 1)}
    return write(ledger, key, **(values | more))[0]


def write(ledger: Ledger, key: str | None, **values: Any) -> tuple[Entry, bool]:
    """Return the entry, and whether it is new."""
    standing = ledger.find(key) if isinstance(key, str) else None
    if standing is not None:
        return standing, False
    return ledger.commit(Drawn(ledger.reserve(values["cost"]), key=key, **values))


def environment() -> dict[str, str]:
    """What another Python process needs to import holdfast and this module from where they are now."""
    import holdfast

    places = [str(Path(holdfast.__file__).parents[1]), str(Path(__file__).parent), os.environ.get("PYTHONPATH")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(place for place in places if place)}


class WriterPool:
    """The other side, in the test."""

    def __init__(self, location: str, notes: Path, dataset: str = DATASET, share: int = 10**9) -> None:
        self._notes = notes
        self.writers: list[int] = []
        task = json.dumps({"location": location, "dataset": dataset, "notes": str(notes), "share": share})
        self._process = subprocess.Popen(
            [sys.executable, __file__, task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=environment(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in list(self.writers):
            self.kill(writer)
        self._process.communicate()

    def start(self) -> int:
        self.writers.append(int(self._order("start")))
        return self.writers[-1]

    def kill(self, writer: int) -> int:
        """Return how it ended: -9 if it was killed, 0 if it had finished by itself."""
        self.writers.remove(writer)
        return int(self._order(f"kill {writer}"))

    def stop(self, writer: int) -> None:
        self._order(f"stop {writer}")

    def go(self, writer: int) -> None:
        self._order(f"go {writer}")

    def acknowledged(self) -> list[tuple[int, str, int]]:
        """Return number, hash and log length of every commit that returned."""
        if not self._notes.exists():
            return []
        notes = re.findall(r"<(\d+) (\w+) (\d+)>", self._notes.read_text())  # whole ones: a kill may cut one short
        return [(int(seq), reached, int(length)) for seq, reached, length in notes]

    def count(self) -> int:
        """Return how many commits returned."""
        return self._notes.read_bytes().count(b"\n") if self._notes.exists() else 0

    def wait_for(self, count: int) -> None:
        """Wait until at least `count` commits returned."""
        deadline = time.monotonic() + 60
        while self.count() < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.count()} of {count} commits within a minute; did the writers die?")
            time.sleep(0.001)

    def _order(self, order: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(order + "\n")
        return self._process.stdout.readline()


def _write(task: dict[str, Any]) -> None:
    notes = os.open(task["notes"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    ledger = begun(task["location"], dataset=task["dataset"])
    log = Path(task["location"] + "-wal")
    try:
        for _ in range(task["share"]):
            entry = commit(ledger, secrets.token_hex(8), charge=3)
            length = log.stat().st_size if log.exists() else 0
            os.write(notes, f"<{entry.seq} {entry.hash} {length}>\n".encode())
    except BudgetExhausted:
        return
    signal.pause()  # keep the connection open: closing would empty the log


def _serve(task: dict[str, Any]) -> None:
    for late in ("sqlite", "postgres"):  # imported here, or writers would be killed while they import
        import_module(f"holdfast.ledger.{late}")
    for line in sys.stdin:
        order, *rest = line.split()
        if order == "start":
            child = os.fork()
            if child == 0:
                try:
                    _write(task)
                finally:
                    os._exit(0)
            print(child, flush=True)  # noqa: T201
            continue
        child = int(rest[0])
        os.kill(child, {"stop": signal.SIGSTOP, "go": signal.SIGCONT, "kill": signal.SIGKILL}[order])
        status = 0 if order == "go" else os.waitpid(child, os.WUNTRACED if order == "stop" else 0)[1]
        print(os.waitstatus_to_exitcode(status) if order == "kill" else "done", flush=True)  # noqa: T201


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]))
