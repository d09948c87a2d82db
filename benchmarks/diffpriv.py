"""diffprivlib, in an environment of its own: it cannot be imported beside a recent scikit-learn.

The environment is made on first use, under benchmarks/.envs, from the versions in benchmarks/diffprivlib.txt. A child
process there answers when told to, and says how long it took by its own clock.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

HERE = Path(__file__).parent
ENVIRONMENT = HERE / ".envs" / "diffprivlib"
CHILD = """
import sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
from diffprivlib.tools import mean
values = np.load(sys.argv[1], mmap_mode="r")
print("ready", flush=True)
for _ in sys.stdin:
    begin = time.perf_counter()
    mean((values > 15).astype(np.float64), epsilon=1e-4, bounds=(0.0, 1.0))
    print(time.perf_counter() - begin, flush=True)
"""


def python(*, make: bool = True) -> Path | None:
    """Return the environment's interpreter, made if it must be; None where it cannot be made."""
    interpreter = ENVIRONMENT / "bin" / "python"
    if (ENVIRONMENT / "made").exists():
        return interpreter
    if not make:
        return None
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    install = [str(interpreter), "-m", "pip", "install", "--quiet", "--requirement", str(HERE / "diffprivlib.txt")]
    check = [str(interpreter), "-W", "ignore", "-c", "import diffprivlib.tools, diffprivlib.models"]
    for command in ([sys.executable, "-m", "venv", str(ENVIRONMENT)], install, check):
        if subprocess.run(command, **quiet).returncode:
            return None
    (ENVIRONMENT / "made").touch()
    return interpreter


class Timer:
    """A child that takes diffprivlib's mean of `values > 15` each time it is called."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.told: list[float] = []
        self.why = "not installed here"
        self._interpreter = python(make=values.size > 1_000_000)
        self._values = values
        self._child: subprocess.Popen[str] | None = None

    @property
    def ready(self) -> bool:
        return self._interpreter is not None

    def __enter__(self) -> Self:
        if self._interpreter is None:
            return self
        descriptor, name = tempfile.mkstemp(suffix=".npy")
        os.close(descriptor)
        self._file = Path(name)
        np.save(self._file, self._values)
        self._child = subprocess.Popen(
            [str(self._interpreter), "-c", CHILD, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self._line() != "ready":
            raise RuntimeError("diffprivlib did not start")
        return self

    def __call__(self) -> None:
        assert self._child is not None
        assert self._child.stdin is not None
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        self.told.append(float(self._line()))

    def _line(self) -> str:
        assert self._child is not None
        assert self._child.stdout is not None
        return self._child.stdout.readline().strip()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()
            self._child.wait(timeout=60)
            self._file.unlink()
