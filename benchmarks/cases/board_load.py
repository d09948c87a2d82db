"""How many submissions does a board take over HTTP?

Hypothesis: on two cores, four teams hand in at least 1,000 submissions a minute, of 14,042 predictions each (as many as
MMLU has questions), to a board served by one process; each is matched by id, scored on all rows and committed to the
disk before the answer is sent.

Refuted if there are fewer, if an answer is missing from the ledger or differs from it, or if the cells that were told
do not increase.

Every submission is new: the best so far with half of the predictions changed at random. The load is one process on the
same two cores, writing JSON by hand over kept connections. Beside it, for comparison, the same scores computed by
Polars from the same JSON, without a server, a ledger or a check of ids.
"""

import asyncio
import json
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from benchmarks.cases.service_load import free_port, started
from benchmarks.measure import Found, Table, main

ROWS, TEAMS, CLASSES, GOAL = 14_042, 4, 4, 1_000  # submissions a minute
Answer = tuple[int, bool, list[float]]  # its number, whether it improved, its cell


def body_of(ids: str, predictions: Any) -> bytes:
    """Write a submission as JSON."""
    said = ",".join(map(str, predictions.tolist()))
    return f'{{"kind":"submit","predictions":{{"id":[{ids}],"prediction":[{said}]}}}}'.encode()


async def team(port: int, number: int, token: str, rows: int, seconds: float, got: list[tuple[float, Answer]]) -> None:
    """Submit until the time is over."""
    rng, ids = np.random.default_rng(number), ",".join(map(str, range(rows)))
    head = f"POST /api/v1/datasets/labels/ask HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    best, begin = rng.integers(0, CLASSES, rows), time.perf_counter()
    while time.perf_counter() - begin < seconds:
        tried = np.where(rng.random(rows) < 0.5, rng.integers(0, CLASSES, rows), best)
        body = body_of(ids, tried)
        request = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        asked = time.perf_counter()
        writer.write(request)
        headers = await reader.readuntil(b"\r\n\r\n")
        length = int(headers.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        said = json.loads(await reader.readexactly(length))
        assert said["ok"], said
        answer = said["answer"]
        best = tried if answer["improved"] else best
        got.append((time.perf_counter() - asked, (answer["seq"], answer["improved"], answer["cell"])))
    writer.close()


def _load(port: int, tokens: list[str], rows: int, seconds: float, results: Any) -> None:
    got: list[tuple[float, Answer]] = []

    async def everyone() -> None:
        await asyncio.gather(*(team(port, i, token, rows, seconds, got) for i, token in enumerate(tokens)))

    begin = time.perf_counter()
    asyncio.run(everyone())
    results.put((time.perf_counter() - begin, got))


def by_polars(labels: pl.Series, bodies: list[bytes]) -> float:
    """Return the seconds for one submission: read the JSON, compare, average."""
    begin = time.perf_counter()
    for body in bodies:
        said = json.loads(body)["predictions"]["prediction"]
        (pl.Series(said) == labels).mean()
    return (time.perf_counter() - begin) / len(bodies)


def run(small: bool, scratch: Path) -> Found:
    """Submissions a minute over HTTP."""
    from holdfast import Board
    from holdfast.service.database import TokenDatabase
    from holdfast.service.tokens import TokenStore

    found = Found("Boards: submissions over HTTP")
    rows, seconds = (2_000, 1.0) if small else (ROWS, 30.0)
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory(dir=scratch) as temporary:
        folder, labels = Path(temporary), pl.Series(rng.integers(0, CLASSES, rows))
        pl.DataFrame({"id": range(rows), "label": labels}).write_parquet(folder / "labels.parquet")
        Board(folder / "labels.parquet").close()
        board = folder / "labels.board.holdfast"
        store = TokenStore(TokenDatabase(f"sqlite:///{folder / 'holdfast-tokens.db'}"))
        tokens = [store.create(f"team {number}")[0] for number in range(TEAMS)]
        port = free_port()
        command = [sys.executable, "-c", "from holdfast.cli import main; main()", "serve", str(board)]
        server = started(
            port, [*command, "--port", str(port), "--rate", "1e6", "--burst", "1000000"], folder / "log", 1
        )
        context = multiprocessing.get_context("spawn")
        results = context.Queue()
        try:
            worker = context.Process(target=_load, args=(port, tokens, rows, seconds, results))
            worker.start()
            took, got = results.get()
            worker.join()
        finally:
            server.terminate()
            server.wait(timeout=30)
        with Board(board) as opened:
            opened.verify()
            entries = {entry.seq: entry.answer for entry in opened.session.ledger.entries()}
        assert len(entries) == len(got), "an answer is missing or given twice"
        for _, (seq, improved, cell) in got:
            assert [entries[seq]["improved"], entries[seq]["cell"]] == [improved, cell], (
                "the ledger says something else"
            )
        climbed = [entries[seq]["cell"] for seq in sorted(entries) if entries[seq]["improved"]]
        assert climbed == sorted(climbed), "a cell that is not better was told"
        ids = ",".join(map(str, range(rows)))
        plain = by_polars(labels, [body_of(ids, rng.integers(0, CLASSES, rows)) for _ in range(20)])
    rate, waits = 60 * len(got) / took, sorted(wait for wait, _ in got)
    table = Table("Submissions over HTTP", ["who", "a minute", "median", "p99", "in all"])
    p50, p99 = (waits[int(share * (len(waits) - 1))] for share in (0.5, 0.99))
    table.rows = [
        [
            f"{TEAMS} teams, {rows:,} predictions each",
            f"{rate:,.0f}",
            f"{1e3 * p50:.0f} ms",
            f"{1e3 * p99:.0f} ms",
            len(got),
        ],
        ["Polars alone, from the same JSON", f"{60 / plain:,.0f}", f"{1e3 * plain:.1f} ms", "", 20],
    ]
    found.tables.append(table)
    found.ratio("submissions a minute / 1,000", rate / GOAL, goal=None if small else 1.0, better="higher")
    found.ratio("a submission / the same by Polars alone", (60 / rate) / plain)
    found.raw = {"waits": [float(f"{wait:.4g}") for wait in waits], "seconds": took, "polars": plain}
    found.notes.append(f"{sum(improved for _, (_, improved, _) in got):,} of {len(got):,} submissions improved.")
    return found


if __name__ == "__main__":
    main(run)
