"""Contenders in environments of their own, made on first use under benchmarks/.envs, from the versions in NAME.txt."""

import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def python(name: str, check: str, *, make: bool = True) -> Path | None:
    """Return an environment's interpreter, made if it must be; None where it cannot be made.

    Parameters
    ----------
    name
        Of the environment, and of its list of versions.
    check
        A statement that works if everything is there.
    make
        Whether to make it.
    """
    folder = HERE / ".envs" / name
    interpreter = folder / "bin" / "python"
    if (folder / "made").exists():
        return interpreter
    if not make:
        return None
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    install = [str(interpreter), "-m", "pip", "install", "--quiet", "--requirement", str(HERE / f"{name}.txt")]
    tried = [str(interpreter), "-W", "ignore", "-c", check]
    for command in ([sys.executable, "-m", "venv", str(folder)], install, tried):
        if subprocess.run(command, **quiet).returncode:
            return None
    (folder / "made").touch()
    return interpreter
