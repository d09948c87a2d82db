"""A PostgreSQL of one's own, from the `pgserver` package, for tests and for the benchmark of kills."""

import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def private_postgres() -> Iterator[str]:
    """Run an empty server; yields the URL of its database."""
    # A short path of our own: the name of a socket may have some 100 characters at most.
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
    try:
        with _running(folder):
            yield f"postgresql+psycopg://postgres@/postgres?host={folder}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(folder: Path) -> Iterator[None]:
    """Run a server in this folder, listening on a socket there."""
    programs = _programs()
    options: dict[str, Any] = {}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        programs = _reachable(programs, folder)
        options = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    start = [programs / "initdb", "-D", folder / "data", "-U", "postgres", "--auth=trust", "--locale=C", "-E", "UTF8"]
    made = subprocess.run(start, cwd=folder, capture_output=True, text=True, **options)
    if made.returncode:
        raise RuntimeError(f"PostgreSQL could not be set up: {made.stderr}")
    serve = [programs / "postgres", "-D", folder / "data", "-k", folder, "-c", "listen_addresses="]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(serve, cwd=folder, stdout=log, stderr=log, **options)
    try:
        _wait_until_ready(server, folder)
        yield
    finally:
        server.send_signal(signal.SIGINT)  # fast shutdown
        server.wait(timeout=60)


def _programs() -> Path:
    spec = importlib.util.find_spec("pgserver")
    if spec is None or spec.origin is None:
        raise RuntimeError("PostgreSQL is needed: install pgserver, or set HOLDFAST_TEST_POSTGRES to a URL.")
    return Path(spec.origin).parent / "pginstall" / "bin"


def _reachable(programs: Path, folder: Path) -> Path:
    """Copy the programs and their libraries if they lie in a folder of root's that is closed to others."""
    if all(parent.stat().st_mode & stat.S_IXOTH for parent in programs.parents):
        return programs
    site = programs.parents[2]
    for part in ("pgserver/pginstall", "pgserver.libs"):
        if (site / part).exists():
            shutil.copytree(site / part, folder / "site" / part)
    return folder / "site" / "pgserver" / "pginstall" / "bin"


def _wait_until_ready(server: subprocess.Popen[bytes], folder: Path) -> None:
    import psycopg

    for _ in range(300):
        try:
            psycopg.connect(host=str(folder), user="postgres", dbname="postgres").close()
        except psycopg.OperationalError:
            if server.poll() is not None:
                raise RuntimeError(f"PostgreSQL did not start: {(folder / 'log').read_text()}") from None
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("PostgreSQL did not answer within 30 seconds.")
