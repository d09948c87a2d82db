"""One JSON object a line, on standard error: what happened, never what was asked or answered, never a secret.

Query texts are left out too: a caller may have written a person's name into one. So are the words of errors that we did
not foresee, which might quote a value; where they happened is enough to find them.

Lines are gathered and written a few times a second, together: a write for each request would make every request wait
for the interpreter. A complaint is written at once, with all before it.
"""

import json
import logging
import sys
import threading
import time
import traceback
from datetime import UTC, datetime
from typing import Any

GATHERED_SECONDS = 0.1

_log = logging.getLogger("holdfast.service")


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        return json.dumps(said | getattr(record, "facts", {}), default=str)


class _Gathering(logging.StreamHandler[Any]):
    """Writes what was gathered, at the latest after a moment."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._records: list[logging.LogRecord] = []
        self._some = threading.Event()
        threading.Thread(target=self._write_sometimes, name="holdfast log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Gather a line; write at once what is serious."""
        self._records.append(record)
        if record.levelno > logging.INFO:
            self.flush()
        elif not self._some.is_set():
            self._some.set()

    def flush(self) -> None:
        """Write everything gathered so far."""
        with self.lock:  # type: ignore[union-attr]
            records, self._records = self._records, []
            if records:
                self.stream.write("".join(self.format(record) + self.terminator for record in records))
            super().flush()

    def _write_sometimes(self) -> None:
        while True:  # to the end of the process, even if `logging` is configured anew and closes every handler
            self._some.wait()
            time.sleep(GATHERED_SECONDS)
            self._some.clear()
            self.flush()


def begin(level: str = "INFO") -> None:
    """Write to standard error from now on."""
    handler = _Gathering(sys.stderr)
    handler.setFormatter(_Lines())
    _log.handlers[:] = [handler]
    _log.propagate = False
    _log.setLevel(level)


def say(event: str, **facts: Any) -> None:
    """Write one line."""
    if _log.isEnabledFor(logging.INFO):
        # Made here rather than by the logger, which would look up the caller's line for every request.
        record = logging.LogRecord(_log.name, logging.INFO, __file__, 0, event, None, None)
        record.facts = facts
        _log.handle(record)


def flush() -> None:
    """Write what was gathered: the process is about to end."""
    for handler in _log.handlers:
        handler.flush()


def complain(event: str, error: BaseException, **facts: Any) -> None:
    """Write where an unforeseen error happened: its class and the lines of code, not its words."""
    frames = traceback.extract_tb(error.__traceback__)[-12:]
    where = [f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} {frame.name}" for frame in frames]
    _log.error(event, extra={"facts": facts | {"error": type(error).__name__, "where": where}})
