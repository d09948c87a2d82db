"""Several processes of one server, which uvicorn starts, watches and starts again."""

import socket
import time

from uvicorn import Config
from uvicorn.supervisors import multiprocess

PATIENCE = 60.0  # seconds without an answer after which a process is taken to hang, and another one is started


class Worker(multiprocess.Process):
    """A process that is asked whether it is alive, and not waited for.

    Left alone, uvicorn waits five seconds for the answer, then kills the process; meanwhile it handles no signal. On a
    busy machine, importing what a process runs takes longer: no process ever came to serve, and none could be stopped.
    """

    _asked: float | None = None  # when it was asked what it has not answered yet

    def is_alive(self, timeout: float = PATIENCE) -> bool:
        """Whether the process runs, and has answered within `PATIENCE`."""
        if not self.process.is_alive():
            return False
        try:
            while self.parent_conn.poll():
                self.parent_conn.recv()
                self._asked = None
            if self._asked is None:
                self.parent_conn.send(b"ping")
                self._asked = time.monotonic()
        except (OSError, EOFError):
            return False
        return time.monotonic() < self._asked + PATIENCE


def run(config: Config, listening: socket.socket) -> None:
    """Serve from as many processes as are configured, until SIGINT or SIGTERM."""
    multiprocess.Process = Worker  # type: ignore[misc]  # uvicorn has no other place to say so
    multiprocess.Multiprocess(config, sockets=[listening]).run()
