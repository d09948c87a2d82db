"""One JSON object a line, on standard error: what happened, never what was asked or answered, never a secret.

Query texts are left out too: a caller may have written a person's name into one. So are the words of errors that we did
not foresee, which might quote a value; where they happened is enough to find them.
"""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

_log = logging.getLogger("holdfast.server")


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        return json.dumps(said | getattr(record, "facts", {}), default=str)


def begin(level: str = "INFO") -> None:
    """Write to standard error from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    _log.handlers[:] = [handler]
    _log.propagate = False
    _log.setLevel(level)


def say(event: str, **facts: Any) -> None:
    """Write one line."""
    if _log.isEnabledFor(logging.INFO):
        _log.info(event, extra={"facts": facts})


def complain(event: str, error: BaseException, **facts: Any) -> None:
    """Write where an unforeseen error happened: its class and the lines of code, not its words."""
    frames = traceback.extract_tb(error.__traceback__)[-12:]
    where = [f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} {frame.name}" for frame in frames]
    _log.error(event, extra={"facts": facts | {"error": type(error).__name__, "where": where}})
