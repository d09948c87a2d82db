"""How many durable answers a second does the server give, how long does one take, and does a minute of it add up?

Hypothesis: on two cores, 50 analysts are given at least 700 answers a second over HTTP by one process and 1,200 by two,
each reading 12,000 random rows of a million and committed to the disk before it is sent, 99% of them within 100 ms; by
two processes at least a quarter of what a bare route gives. And when 50 analysts spend one budget for a minute, to its
last answer, or the server is killed with SIGKILL in the middle of it and started again, every answer anybody received
is in the ledger, as received, once, and nothing is overspent.

Refuted if one of these rates is lower or the p99 is longer while the disk syncs 1,000 times a second or more, if an
answer is left or overspent, if an answer is missing from the ledger, differs from it or is given twice.

Every question has a text of its own (`dep_delay > 7.0000137`), so every answer is drawn, none is looked up. The load is
one process on the same two cores: plain HTTP/1.1 over kept loopback connections, written by hand on uvloop, an
idempotency key on each request, the next request of an analyst when the answer to the last has been read. What it takes
of the processor is in the table. The bare FastAPI route, which returns a constant, gets the same client, so the two
rates differ by the server alone. The ledger has begun before the first question, as it has for all but one. Two
processes run wherever the system puts them, and pinned: each on a processor of its own.
"""

import asyncio
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
from benchmarks.measure import Found, Table, main

ROWS, ROWS_READ, ANALYSTS = 1_000_000, 12_000, 50
GOALS, GOAL_P99, GOAL_BARE = {1: 700.0, 2: 1_200.0}, 0.1, 0.25  # answers a second by processes; seconds; a share
NUMBERS = ("value", "low", "high")
BARE = """
import uvicorn
from fastapi import FastAPI
app = FastAPI()
@app.get("/health")
async def health() -> dict:
    return {}
@app.post("/api/v1/datasets/flights/ask")
async def ask(body: dict) -> dict:
    return {"ok": True, "answer": {"value": 0.5, "low": 0.4, "high": 0.6, "seq": 1}}
uvicorn.run(app, port=PORT, log_level="error", access_log=False)
"""


@dataclass
class Got:
    """What the analysts received: when the first asked and the last was answered, waits, and the answers."""

    begin: float = float("inf")
    end: float = 0.0
    waits: list[float] = field(default_factory=list)
    answers: list[tuple[int, list[float]]] = field(default_factory=list)  # entry number; value, low, high
    refused: int = 0
    sent_again: int = 0
    processor: float = 0.0  # seconds that the analysts themselves took of it

    @property
    def rate(self) -> float:
        """Answers a second, from the first question to the last answer."""
        return len(self.waits) / (self.end - self.begin)

    def wait(self, share: float) -> float:
        """Return the wait that this share of the answers did not exceed."""
        return sorted(self.waits)[int(share * (len(self.waits) - 1))]


class Analyst(asyncio.Protocol):
    """Asks until the time or the budget is over; a question cut off is sent again, with its key, until answered."""

    def __init__(
        self, port: int, number: int, token: str, seconds: float, got: Got, rows: int | None, steps: range
    ) -> None:
        self._port, self._number, self._seconds, self._got, self._rows = port, number, seconds, got, rows
        self._steps = iter(steps)
        head = f"POST /api/v1/datasets/flights/ask HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        self._head = f"{head}Content-Type: application/json\r\n"
        self._received = self._request = b""
        self.finished = asyncio.get_running_loop().create_future()
        self._begin = self._asked = 0.0

    async def run(self) -> None:
        """Ask from beginning to end."""
        await self._connect()
        await self.finished

    async def _connect(self) -> None:
        for _ in range(600):
            try:
                await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", self._port)
                return
            except OSError:
                await asyncio.sleep(0.1)
        raise RuntimeError("the server did not come back")

    def connection_made(self, transport: Any) -> None:
        """Ask the first question, or send the last one again."""
        self._transport, self._received = transport, b""
        if self._request:
            self._got.sent_again += 1
            transport.write(self._request)
        else:
            self._begin = time.perf_counter()
            self._got.begin = min(self._got.begin, self._begin)
            self._ask()

    def connection_lost(self, _: Exception | None) -> None:
        """Connect again, unless all is done."""
        if not self.finished.done():
            self._again = asyncio.ensure_future(self._connect())

    def _ask(self) -> None:
        self._asked = time.perf_counter()
        step = next(self._steps, None)
        if step is None or self._asked - self._begin > self._seconds:
            self._finish()
            return
        question: dict[str, Any] = {"query": f"dep_delay > {self._number}.{step:06d}7"}
        body = json.dumps(question if self._rows is None else question | {"rows_per_query": self._rows})
        key = f"Idempotency-Key: {self._number}-{step}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._request = f"{self._head}{key}{body}".encode()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Read an answer that is complete, and ask the next question."""
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]):
            return
        self._received = b""
        said, got = json.loads(body), self._got
        if not said["ok"]:
            assert said["kind"] == "budget_exhausted", said
            got.refused += 1
            self._finish()
            return
        got.end = time.perf_counter()
        got.waits.append(got.end - self._asked)
        answer = said["answer"]
        got.answers.append((answer["seq"], [answer[name] for name in NUMBERS]))
        self._ask()

    def _finish(self) -> None:
        if not self.finished.done():
            self.finished.set_result(None)
        self._transport.close()


def _load(port: int, tokens: list[str], seconds: float, rows: int | None, steps: list[range], results: Any) -> None:
    import uvloop

    got = Got()

    async def everyone() -> None:
        who = [Analyst(port, i, token, seconds, got, rows, steps[i]) for i, token in enumerate(tokens)]
        await asyncio.gather(*(one.run() for one in who))

    before = time.process_time()
    uvloop.run(everyone())
    got.processor = time.process_time() - before
    results.put(got)


def load(
    port: int,
    tokens: list[str],
    seconds: float,
    rows: int | None = None,
    *,
    during: Any = None,
    first: int = 0,
    most: int = 10**9,
) -> Got:
    """Ask from one process beside the server's, `most` questions from number `first` on; `during` happens meanwhile."""
    context, count = multiprocessing.get_context("spawn"), len(tokens)
    results = context.Queue()
    steps = [range(first + i, first + most, count) for i in range(count)]
    worker = context.Process(target=_load, args=(port, tokens, seconds, rows, steps, results))
    worker.start()
    if during is not None:
        during()
    got: Got = results.get()
    worker.join()
    return got


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write_table(path: Path, rows: int) -> None:
    """Write a table of its own for every path: one content has one budget."""
    import polars as pl

    rng = np.random.default_rng(list(str(path).encode()))
    pl.DataFrame(
        {"dep_delay": rng.gamma(1.5, 12.0, rows) - 10, "distance": rng.integers(80, 5_000, rows)}
    ).write_parquet(path)


def syncs(folder: Path) -> float:
    """Return how often a second a small write reaches the disk."""
    descriptor = os.open(folder / "probe", os.O_CREAT | os.O_WRONLY)
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < 1.0:
        os.write(descriptor, b"x" * 4_096)
        os.fsync(descriptor)
        count += 1
    os.close(descriptor)
    return count / (time.perf_counter() - begin)


def started(port: int, command: list[str], log: Path, processes: int = 0) -> "subprocess.Popen[bytes]":
    """Start a server and wait until every process of it serves."""
    with log.open("wb") as written:
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=written)
    for _ in range(1_200):
        try:
            if log.read_text().count('"event":"start"') >= processes:
                urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                return server
        except OSError:
            pass
        time.sleep(0.05)
    raise RuntimeError(f"the server did not start: {log.read_text()}")


def bare_route(folder: Path, seconds: float) -> Got:
    """Ask a route that does nothing."""
    port = free_port()
    server = started(port, [sys.executable, "-c", BARE.replace("PORT", str(port))], folder / "bare.log")
    try:
        return load(port, ["x"] * 16, seconds)
    finally:
        server.terminate()
        server.wait(timeout=30)


class Served:
    """A fresh budget of a million rows, a server on it, and the check of its ledger afterwards."""

    def __init__(self, folder: Path, name: str, *, rows: int, queries: int, workers: int, pin: bool = False) -> None:
        from holdfast import Session
        from holdfast.service.database import TokenDatabase
        from holdfast.service.tokens import TokenStore

        self.data, self.ledger, self.workers = folder / f"{name}.parquet", folder / f"{name}.ledger", workers
        write_table(self.data, rows)
        with Session(self.data, queries=queries, end=True, ledger=self.ledger) as session:
            session.answering.plan.begin()
            self.rows_read = session.plan.rows_per_query
        config = folder / f"{name}-server.toml"
        plan = f'path = "{self.data}"\nledger = "{self.ledger}"\nqueries = {queries}\nend = true\n'
        config.write_text(f"{'pin = true' if pin else ''}\n[datasets.flights]\n{plan}")
        tokens = TokenStore(TokenDatabase(f"sqlite:///{folder / 'holdfast-tokens.db'}"))
        self.tokens = [tokens.create(f"analyst {number}")[0] for number in range(ANALYSTS)]
        self.port, self._log = free_port(), folder / f"{name}.log"
        self._command = [sys.executable, "-c", "from holdfast.cli import main; main()", "serve", "--config"]
        self._command += [str(config), "--port", str(self.port), "--workers", str(workers)]
        self._command += ["--rate", "1e6", "--burst", "1000000"]

    def __enter__(self) -> "Served":
        self._server = started(self.port, self._command, self._log, self.workers)
        return self

    @property
    def process(self) -> int:
        """The server's process."""
        return self._server.pid

    def __exit__(self, *_: object) -> None:
        self._server.terminate()
        self._server.wait(timeout=30)

    def killed_after(self, seconds: float) -> None:
        """Wait, kill the server without farewell, start it again."""
        time.sleep(seconds)
        self._server.kill()
        self._server.wait(timeout=30)
        self.__enter__()

    def adds_up(self, got: Got, *, to_the_last: bool) -> None:
        """Every answer received is in the ledger as received, once, and nothing is overspent."""
        from holdfast import Session

        with Session(self.data, ledger=self.ledger) as session:
            ledger = session.ledger
            ledger.verify()
            entries = {entry.seq: [entry.answer[name] for name in NUMBERS] for entry in ledger.entries()}
            for seq, estimate in got.answers:
                assert entries[seq] == estimate, "the ledger says something else"
            numbers = {seq for seq, _ in got.answers}
            assert len(numbers) == len(got.answers) == ledger.spent.answers, "an answer is missing or given twice"
            left = ledger.left
            assert min(left.charge, left.intervals) >= 0, "overspent"
            if to_the_last:
                assert (left.charge, left.intervals) == (0, 0), "not spent to the last answer"
                assert got.refused == ANALYSTS


def run(small: bool, scratch: Path) -> Found:
    """Durable answers a second over HTTP."""
    found = Found("Service: answers over HTTP")
    rows = 50_000 if small else ROWS
    columns = ["who", "a second", "median", "p99", "in all", "processor time of the load, an answer"]
    table = Table("Answers over HTTP, each durable before it is sent", columns)
    found.tables.append(table)

    def told(name: str, got: Got) -> None:
        p50, p99 = got.wait(0.5), got.wait(0.99)
        waits = [f"{p50 * 1e3:.1f} ms", f"{p99 * 1e3:.1f} ms"]
        own = got.processor / len(got.waits)
        table.rows.append([name, f"{got.rate:,.0f}", *waits, f"{len(got.waits):,}", f"{own * 1e3:.2f} ms"])
        found.raw[name] = [got.rate, p50, p99, len(got.waits), own]
        print(table.rows[-1], file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(dir=scratch) as temporary:
        folder = Path(temporary)
        synced = syncs(folder)
        table.rows.append(["write 4 KB and fsync, one after another", f"{synced:,.0f}", "", "", "", ""])
        found.raw["syncs a second"] = synced
        fastest = 0.0
        every = ((16, 1, False), (16, 2, False), (ANALYSTS, 1, False), (ANALYSTS, 2, False), (ANALYSTS, 2, True))
        for analysts, workers, pin in every[:1] if small else every:
            queries = 1_000 if small else 40_000
            name = f"{analysts} analysts, {workers} {'pinned ' * pin}process{'es' * (workers > 1)}"
            bare = bare_route(folder, 0.5 if small else 5.0)  # each time: a machine is not equally fast for minutes
            told(f"bare FastAPI route, 16 clients, before {name}", bare)
            place = f"{analysts}-{workers}-{pin:d}"
            with Served(folder, place, rows=rows, queries=queries, workers=workers, pin=pin) as served:
                got = load(served.port, served.tokens[:analysts], 0.5 if small else 9.0, min(ROWS_READ, rows // 10))
            served.adds_up(got, to_the_last=False)
            told(f"holdfast, {name}", got)
            fastest = max(fastest, got.rate)
            judged = analysts == ANALYSTS and synced >= 1_000
            share = GOAL_BARE if judged and workers == 2 else None
            found.ratio(f"{name} / bare route", got.rate / bare.rate, goal=share, better="higher")
            found.ratio(f"{name}: answers a second / syncs a second", got.rate / synced, better="higher")
            if judged:
                goal = GOALS[workers]
                found.ratio(f"{name}: answers a second / {goal:,.0f}", got.rate / goal, goal=1.0, better="higher")
                found.ratio(f"{name}: p99 / 100 ms", got.wait(0.99) / GOAL_P99, goal=1.0)

        minute = 200 if small else int(75 * fastest)  # a minute, also if it now goes a little faster
        with Served(folder, "minute", rows=rows, queries=minute, workers=1 if small else 2) as served:
            got = load(served.port, served.tokens, 600.0)
        served.adds_up(got, to_the_last=True)
        told(f"{ANALYSTS} analysts, to the last answer, {served.rows_read:,} rows each", got)
        found.notes.append(
            f"{ANALYSTS} analysts spent a budget of {minute:,} answers to the last in {got.end - got.begin:.0f} s:"
            " every answer is in the ledger as received, once, and the ledger verifies."
        )
        with Served(folder, "killed", rows=rows, queries=200 if small else minute // 3, workers=1) as served:
            got = load(served.port, served.tokens, 600.0, during=lambda: served.killed_after(0.5 if small else 8.0))
        served.adds_up(got, to_the_last=True)
        found.notes.append(
            f"The same after SIGKILL in the middle and a start anew: {len(got.answers):,} answers, {got.sent_again} of"
            " them asked again under their key; none lost, none charged twice."
        )
    found.notes.append(f"The disk synced {synced:,.0f} times a second.")
    return found


if __name__ == "__main__":
    main(run)
