"""A server for tests: in a thread of this process, or as a process that may be killed."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import httpx
import numpy as np
import polars as pl
import uvicorn
import uvicorn.server

import holdfast
from holdfast.service.app import build, uvicorn_options
from holdfast.service.settings import DatasetSettings, Settings

ROWS = 20_000


def table(folder: Path, rows: int = ROWS, name: str = "flights") -> Path:
    """Write a small table of flights, different for every path: one content has one budget."""
    path = folder / f"{name}.parquet"
    rng = np.random.default_rng(list(str(path).encode()))
    pl.DataFrame(
        {
            "dep_delay": rng.gamma(1.5, 12.0, rows) - 10,
            "distance": rng.integers(80, 5_000, rows),
            "carrier": rng.choice(["UA", "AA", "DL"], rows),
            "weekend": rng.random(rows) < 0.28,
        }
    ).write_parquet(path)
    return path


def settings(path: Path, *, dataset: dict[str, Any] | None = None, **more: Any) -> Settings:
    """Settings for one dataset, generous with requests so that only the tests of limits meet them.

    A number of questions is an end, unless the dataset's settings say otherwise: refusals are tested, too.
    """
    plan = {"queries": 200} | (dataset or {})
    served = DatasetSettings(path=str(path), **({"end": isinstance(plan["queries"], int)} | plan))
    return Settings(datasets={path.stem: served}, port=0, **({"rate": 1e6, "burst": 10**6} | more))


class _Hurried:
    """`asyncio` for uvicorn, which looks ten times a second whether it shall end: hundreds of servers wait for that."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / 20)


uvicorn.server.asyncio = _Hurried()  # type: ignore[assignment]


class Running:
    """The application on a real socket, in a thread."""

    def __init__(self, chosen: Settings) -> None:
        self.app = build(chosen)
        self.state = self.app.state.server
        config = uvicorn.Config(self.app, host="127.0.0.1", port=0, **uvicorn_options(chosen))
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(lambda: self._server.started)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=30)

    def token(self, name: str = "ana", **more: Any) -> str:
        """Make a token and return its text."""
        text: str = self.state.tokens.create(name, **more)[0]
        return text

    def client(self, token: str | None = None, **headers: str) -> httpx.Client:
        """Return a client that bears a token."""
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        # Plain HTTP: no certificates to load.
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, verify=False)


@contextmanager
def process(*arguments: str, folder: Path) -> Iterator["Process"]:
    """Run `holdfast serve` and end it afterwards, and all that it has started, unless the test did."""
    running = Process(arguments, folder)
    try:
        yield running
    finally:
        running.kill()
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)


class Process:
    """`holdfast serve` as its own process."""

    def __init__(self, arguments: tuple[str, ...], folder: Path) -> None:
        places = [str(Path(holdfast.__file__).parents[1]), os.environ.get("PYTHONPATH")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(place for place in places if place)}
        self.log = folder / "log"
        self.out = folder / "out"
        with self.log.open("ab") as log, self.out.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from holdfast.cli import main; main()", "serve", *arguments],
                stdout=out,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self.pid = self._process.pid
        wait_until(lambda: "Sign in" in self.out.read_text() or self._process.poll() is not None)
        if self._process.poll() is not None:
            raise AssertionError(f"the server did not start: {self.log.read_text()}")
        found = re.search(r"at (http://\S+)", self.out.read_text())
        link = re.search(r"(http://\S+/sign-in\?code=\S+)", self.out.read_text())
        assert found is not None
        self.url, self.link = found[1], link and link[1]  # a link only if there is no other way to sign in
        wait_until(self._answers)

    def kill(self) -> None:
        """SIGKILL: no farewell."""
        self._process.kill()
        self._process.wait(timeout=30)

    def terminate(self) -> int:
        """SIGTERM, and return how it ended."""
        self._process.terminate()
        return self._process.wait(timeout=30)

    def _answers(self) -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/health", timeout=5, verify=False).status_code == 200
        return False


def wait_until(done: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for something that will happen."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise AssertionError(f"nothing happened within {seconds} s")
        time.sleep(0.02)
