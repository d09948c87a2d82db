"""Processes that kill themselves, with the signal nobody can catch, just before a given event; cheaply.

A process that has imported everything, and has no threads yet, forks each of them: importing takes ten times as long as
what is to be killed.
"""

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

NEVER = 10**9
_left = NEVER


def count_events(*events: tuple[Any, str]) -> None:
    """Let every call of these functions, given by owner and name, be an event."""
    for owner, name in events:
        setattr(owner, name, _event(getattr(owner, name)))


def _event(act: Callable[..., Any]) -> Callable[..., Any]:
    def event(*args: Any, **options: Any) -> Any:
        global _left
        if _left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        _left -= 1
        return act(*args, **options)

    return event


@dataclass(frozen=True)
class Ended:
    """How a process ended, what it said, and after how many events."""

    code: int
    error: str
    events: int

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Forks:
    """Runs `act(*args)` of a script, in a process of its own each time.

    Parameters
    ----------
    script
        Defines `act`, and says what the events are.
    folder
        For what the processes say.
    """

    def __init__(self, script: str, folder: Path) -> None:
        paths = [str(Path(__file__).parent), *sys.path]
        start = f"import sys; sys.path[:] = {paths!r}; import killed; killed.serve({script!r}, {str(folder)!r})"
        self._said = folder
        self._process = subprocess.Popen(
            [sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, *args: Any, kill_before: int = NEVER, kill_after: float | None = None) -> Ended:
        """Run it to its end, or until it is killed: before the event of this number, or after so many seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([kill_before, kill_after, args]) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        events = int((self._said / "events").read_text()) if code == 0 else NEVER
        return Ended(code, (self._said / "error").read_text(), events)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def serve(script: str, folder: str) -> None:
    """Fork one process after another, as asked for."""
    names: dict[str, Any] = {}
    exec(script, names)
    for line in sys.stdin:
        kill_before, kill_after, args = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(names["act"], kill_before, args, Path(folder))
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(child, signal.SIGKILL)  # not waited for yet, so the number is still its own
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _run(act: Callable[..., None], kill_before: int, args: Sequence[Any], folder: Path) -> None:
    global _left
    code = 1
    error = os.open(folder / "error", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(error, 2)
    os.dup2(error, 1)  # a library that shows its progress there, as DuckDB does, would be taken for an exit code
    try:
        _left = kill_before
        act(*args)
        events, _left = kill_before - _left, NEVER
        (folder / "events").write_text(str(events))
        code = 0
    except BaseException:  # noqa: BLE001  # whatever it is: it is told, and this process ends
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
