"""diffprivlib, in an environment of its own: it cannot be imported next to a recent scikit-learn.

The environment is made on first use, under benchmarks/.envs, from the versions in benchmarks/diffprivlib.txt. A child
process there answers when asked to, and says how long it took by its own clock.
"""

import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from benchmarks import environment

Numbers = np.ndarray[Any, Any]
CHILD = """
import sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
from diffprivlib.tools import histogram, mean
delay, distance, carrier = (np.load(path, mmap_mode="r") for path in sys.argv[1:])
questions = {
    "share": lambda: mean((delay > 15).astype(np.float64), epsilon=1e-4, bounds=(0.0, 1.0)),
    "group": lambda: mean(distance[carrier == 6].astype(np.float64), epsilon=1e-4, bounds=(0.0, 5_000.0)),
    "histogram": lambda: histogram(carrier, epsilon=1e-4, bins=8, range=(0, 8)),
}
print("ready", flush=True)
for line in sys.stdin:
    begin = time.perf_counter()
    questions[line.strip()]()
    print(time.perf_counter() - begin, flush=True)
"""


FIT = """
import sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
from diffprivlib.models import LogisticRegression
data = np.load(sys.argv[1])
begin = time.perf_counter()
model = LogisticRegression(epsilon=1.0, data_norm=data["x"].shape[1] ** 0.5, max_iter=200).fit(data["x"], data["y"])
print(time.perf_counter() - begin, *model.coef_[0], *model.intercept_)
"""


def fit(x: Numbers, y: Numbers, *, make: bool) -> tuple[float, Numbers] | None:
    """Fit logistic regression to features from -1 to 1; return its seconds and the point, intercept last."""
    interpreter = python(make=make)
    if interpreter is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "data.npz"
        np.savez(file, x=x, y=y)
        ran = subprocess.run([str(interpreter), "-c", FIT, str(file)], capture_output=True, text=True, check=True)
    seconds, *point = (float(word) for word in ran.stdout.split())
    return seconds, np.array(point)


def python(*, make: bool = True) -> Path | None:
    """Return the environment's interpreter, made if it must be; None where it cannot be made."""
    return environment.python("diffprivlib", "import diffprivlib.tools, diffprivlib.models", make=make)


class Timer:
    """A child that asks diffprivlib one of the questions each time it is called, and keeps what its clock says."""

    def __init__(self, delay: Numbers, distance: Numbers, carrier: Numbers) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.why = "not installed here"
        self._interpreter = python(make=delay.size > 1_000_000)
        self._columns = {"delay": delay, "distance": distance, "carrier": carrier}
        self._child: subprocess.Popen[str] | None = None

    @property
    def ready(self) -> bool:
        return self._interpreter is not None

    def __enter__(self) -> Self:
        if self._interpreter is None:
            return self
        self._folder = tempfile.TemporaryDirectory()
        paths = [str(Path(self._folder.name) / f"{name}.npy") for name in self._columns]
        for path, values in zip(paths, self._columns.values(), strict=True):
            np.save(path, values)
        self._child = subprocess.Popen(
            [str(self._interpreter), "-c", CHILD, *paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self._line() != "ready":
            raise RuntimeError("diffprivlib did not start")
        return self

    def __call__(self, question: str) -> None:
        assert self._child is not None
        assert self._child.stdin is not None
        self._child.stdin.write(f"{question}\n")
        self._child.stdin.flush()
        self.seconds.setdefault(question, []).append(float(self._line()))

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
            self._folder.cleanup()
