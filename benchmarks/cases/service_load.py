"""How many durable answers a second does the server give, and how long does one take?

Hypothesis: on two cores, at least 500 answers a second over HTTP, each reading 12,000 random rows of a million and
committed to the disk before it is sent, 99 % of them within 100 ms, where the disk syncs often enough; and at least a
quarter of what a bare FastAPI route that returns a constant serves on the same machine to the same clients.

Refuted if the printed rate is below 500 or the p99 above 100 ms while the disk syncs 1,000 times a second or more, if
the ratio to the bare route is below 1/4, if an answer is missing from the ledger or given twice, or if more is spent
than the budget.

The load comes from processes of its own on the same two cores, over loopback, a bounded number of requests, so the
server's own share of the machine is smaller than a rate on a machine apart would show.
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
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.measure import Found, Table, main

ROWS, ROWS_READ, ANALYSTS, MOST_SECONDS = 1_000_000, 12_000, 50, 60.0
TOLD: dict[str, list[float]] = {}  # a name, then its rate, median, p99 and how many
BARE = """
import uvicorn
from fastapi import FastAPI
app = FastAPI()
@app.post("/api/v1/datasets/flights/ask")
async def ask(body: dict) -> dict:
    return {"ok": True, "answer": {"value": 0.5, "low": 0.4, "high": 0.6, "seq": 1}}
uvicorn.run(app, port=PORT, log_level="error", access_log=False)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write_table(path: Path, rows: int) -> None:
    import polars as pl

    rng = np.random.default_rng(1)
    pl.DataFrame(
        {"dep_delay": rng.gamma(1.5, 12.0, rows) - 10, "distance": rng.integers(80, 5_000, rows)}
    ).write_parquet(path)


async def _line(port: int, head: str, questions: list[str], end: float, waits: list[float], seqs: list[int]) -> None:
    """One analyst on one connection; plain HTTP by hand, so that the load costs little."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for question in questions:
        if time.perf_counter() > end:
            break
        body = json.dumps({"query": question, "rows_per_query": ROWS_READ})
        begin = time.perf_counter()
        writer.write(f"{head}Idempotency-Key: {hash(question)}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        headers = await reader.readuntil(b"\r\n\r\n")
        length = int(headers.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        said = json.loads(await reader.readexactly(length))
        if not said["ok"]:
            assert said["kind"] == "budget_exhausted", said
            break
        waits.append(time.perf_counter() - begin)
        seqs.append(said["answer"]["seq"])
    writer.close()


def _load(port: int, tokens: list[str], first: int, each: int, end: float, results: Any) -> None:
    waits: list[float] = []
    seqs: list[int] = []

    async def everyone() -> None:
        await asyncio.gather(
            *(
                _line(
                    port,
                    f"POST /api/v1/datasets/flights/ask HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
                    "Content-Type: application/json\r\n",
                    [f"dep_delay > {first + number} + {step} / 100000.0" for step in range(each)],
                    end,
                    waits,
                    seqs,
                )
                for number, token in enumerate(tokens)
            )
        )

    asyncio.run(everyone())
    results.put((waits, seqs))


def load(port: int, tokens: list[str], each: int, seconds: float) -> tuple[float, list[float], list[int]]:
    """Ask from one process beside the server's; return seconds, waits and entry numbers."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    begin = time.perf_counter()
    worker = context.Process(target=_load, args=(port, tokens, 0, each, begin + seconds + 3, results))
    worker.start()
    waits, seqs = results.get()
    worker.join()
    return sum(waits) / len(tokens), sorted(waits), seqs


def report(name: str, count: int, seconds: float, waits: list[float]) -> float:
    p50, p99 = (waits[int(share * (len(waits) - 1))] for share in (0.5, 0.99))
    TOLD[name] = [count / seconds, p50, p99, count]
    return count / seconds


def syncs(folder: Path) -> float:
    descriptor = os.open(folder / "probe", os.O_CREAT | os.O_WRONLY)
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < 1.0:
        os.write(descriptor, b"x" * 4_096)
        os.fsync(descriptor)
        count += 1
    os.close(descriptor)
    rate = count / (time.perf_counter() - begin)
    TOLD["write 4 KB and fsync, one after another"] = [rate]
    return rate


def started(port: int, command: list[str]) -> subprocess.Popen[bytes]:
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return server
    raise RuntimeError("the server did not start")


def serve(folder: Path, *, rows: int, each: int, workers: int, analysts: int, seconds: float, bare: float) -> float:
    """Serve, load and check the ledger afterwards; return the rate beside the bare route's."""
    from holdfast import Session
    from holdfast.server.people import People
    from holdfast.server.tables import Tables

    data, port = folder / "flights.parquet", free_port()
    with Session(data, queries=analysts * each, ledger=folder / f"{analysts}-{workers}.ledger") as session:
        cost = session.price("dep_delay > 1", rows_per_query=min(ROWS_READ, rows)).flips
        budget = session.plan.flips // cost
        ledger = session.ledger.location
    config = folder / "server.toml"
    config.write_text(f'[datasets.flights]\npath = "{data}"\nledger = "{ledger}"\n')
    command = [sys.executable, "-c", "from holdfast.cli import main; main()", "serve", "--config", str(config)]
    command += ["--port", str(port), "--workers", str(workers), "--rate", "1e6", "--burst", "1000000"]
    people = People(Tables(f"sqlite:///{folder / 'holdfast-people.db'}"))
    tokens = [people.make(f"analyst {number}")[0] for number in range(analysts)]
    server = started(port, command)
    try:
        took, waits, seqs = load(port, tokens, each, seconds)
    finally:
        server.terminate()
        server.wait(timeout=30)
    rate = report(f"holdfast, {analysts} analysts, {workers} process{'es' * (workers > 1)}", len(waits), took, waits)
    with Session(data, ledger=ledger) as session:
        spent = session.ledger.spent
        session.ledger.verify()
    assert len(set(seqs)) == len(seqs) == spent.answers <= budget, "an answer is missing, given twice or overspent"
    return rate / bare


def run(small: bool, scratch: Path) -> Found:
    """Durable answers a second over HTTP."""
    found = Found("Service: answers over HTTP")
    TOLD.clear()
    rows, each = (50_000, 4) if small else (ROWS, 2_000)
    settings = ((16, 1, 10.0),) if small else ((16, 1, 12.0), (16, 2, 12.0), (ANALYSTS, 1, 12.0))
    with tempfile.TemporaryDirectory(dir=scratch) as temporary:
        folder = Path(temporary)
        write_table(folder / "flights.parquet", rows)
        synced = syncs(folder)
        port = free_port()
        server = started(port, [sys.executable, "-c", BARE.replace("PORT", str(port))])
        try:
            took, waits, _ = load(port, ["x"] * 16, min(each, 500), 10.0)
        finally:
            server.terminate()
            server.wait(timeout=30)
        bare = report("bare FastAPI route", len(waits), took, waits)
        for analysts, workers, seconds in settings:
            share = serve(folder, rows=rows, each=each, workers=workers, analysts=analysts, seconds=seconds, bare=bare)
            name = f"{analysts} analysts, {workers} process{'es' * (workers > 1)} / bare route"
            found.ratio(name, share, goal=0.25, better="higher")
    table = Table("Answers over HTTP, each durable before it is sent", ["who", "a second", "median", "p99", "in all"])
    for name, told in TOLD.items():
        rest = [f"{wait * 1e3:.1f} ms" for wait in told[1:3]] + [f"{count:,.0f}" for count in told[3:]]
        table.rows.append([name, f"{told[0]:,.0f}", *(rest or ["", "", ""])])
    found.tables.append(table)
    found.raw = dict(TOLD)
    found.notes.append(
        f"Every ledger was re-checked: each answer is in it once. The disk synced {synced:,.0f} times a second."
    )
    return found


if __name__ == "__main__":
    main(run)
