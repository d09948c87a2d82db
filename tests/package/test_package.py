"""The package as others get it: built, installed into a clean environment by each interpreter, served as deployed.

`make test-package` runs this; it downloads what a new environment needs. Where a container tool runs, the image is
built as well; elsewhere the steps of the Dockerfile are taken one by one in a clean root.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from clean_root import Image, NoRoot, built, release_for

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ASKS = """
import numpy as np, polars as pl, holdfast as hf
pl.DataFrame({"x": np.arange(50_000) % 7}).write_parquet("t.parquet")
with hf.Session("t.parquet", queries=100) as s:
    answer = s.mean("x < 3")
    assert answer.low < 3 / 7 < answer.high, answer
print(hf.__version__)
"""


def run(*command: object, **more: object) -> str:
    """Run a program to its end and return what it printed."""
    more.setdefault("env", {name: value for name, value in os.environ.items() if name != "PYTHONPATH"})
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=900, **more)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return str(done.stdout)


def interpreters() -> dict[str, str]:
    """Return the supported interpreters of this machine by version."""
    found = {}
    for classifier in PROJECT["classifiers"]:
        version = classifier.rpartition(" ")[2]
        if not re.fullmatch(r"3\.\d+", version):
            continue
        places = [
            shutil.which(f"python{version}"),
            *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")),
        ]
        for place in filter(None, places):
            asked = subprocess.run([place, "-c", "import sys; print(sys.version)"], capture_output=True, text=True)
            if asked.returncode == 0 and asked.stdout.startswith(f"{version}."):
                found[version] = place
                break
    return found


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel and the source archive."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


def test_the_archives_hold_the_package_and_nothing_else(dist: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*") if path.is_file()}
    sources = {name for name in sources if "__pycache__" not in name and ".egg-info" not in name}
    assert {name for name in names if ".dist-info/" not in name} == sources
    (archived,) = dist.glob("*.tar.gz")
    with tarfile.open(archived) as tar:
        inside = {name.partition("/")[2] for name in tar.getnames()}
    assert {f"src/{name}" for name in sources} <= inside
    assert not {name for name in inside if name.startswith(("tests", "benchmarks", ".ci"))}


def test_a_release_links_to_where_it_is_published(tmp_path: Path) -> None:
    """The workflow's own step, run on a copy."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "publish.yml").read_text())
    (step,) = (each["run"] for each in workflow["jobs"]["build"]["steps"] if each.get("name") == "links")
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "src").symlink_to(ROOT / "src")
    home = "https://forge.example/holdfast"
    run("bash", "-e", "-c", step, cwd=tmp_path, env=os.environ | {"HOME_PAGE": home})
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "dist", tmp_path)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    links = dict(re.findall(r"^Project-URL: (\w+), (\S+)$", metadata, re.MULTILINE))
    assert links == {"Source": home, "Issues": f"{home}/issues", "Changelog": f"{home}/blob/main/CHANGELOG.md"}


@pytest.mark.parametrize("version", sorted(interpreters()))
def test_it_installs_and_answers(version: str, wheel: Path, tmp_path: Path) -> None:
    run(interpreters()[version], "-m", "venv", tmp_path / "venv")
    pip, python = tmp_path / "venv/bin/pip", tmp_path / "venv/bin/python"
    run(pip, "install", "--quiet", "--disable-pip-version-check", "--constraint", ROOT / "constraints.txt", wheel)
    assert run(python, "-W", "error", "-c", ASKS, cwd=tmp_path).strip() == PROJECT["version"]
    assert PROJECT["version"] in run(tmp_path / "venv/bin/holdfast", "--version")
    told = json.loads(run(tmp_path / "venv/bin/holdfast", "ask", "t.parquet", "x < 2", "--json", cwd=tmp_path))
    assert told["ok"]
    assert told["answer"]["low"] < 2 / 7 < told["answer"]["high"]


# -- as deployed ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """What the Dockerfile builds, in a clean root."""
    release = release_for(DOCKERFILE)
    if release is None:
        pytest.skip("A clean root needs root's rights, debootstrap, and a Debian with the image's Python.")
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    scratch = tmp_path_factory.mktemp("roots")
    try:
        yield built(DOCKERFILE, {name: ROOT / name for name in listed if (ROOT / name).is_file()}, scratch, release)
    except NoRoot as failed:
        pytest.skip(f"No clean root could be made: {failed}")
    finally:
        shutil.rmtree(scratch)


def test_the_image_serves_data_that_it_cannot_write(image: Image, tmp_path: Path, postgres_url: str) -> None:
    """As compose.yaml has it: no rights, a root that cannot be written, secrets in files, everything in PostgreSQL."""
    service = COMPOSE["services"]["holdfast"]
    assert (service["read_only"], service["tmpfs"], image.user) == (True, ["/tmp"], "holdfast")
    data, secrets = image.root / "data", image.root / "run/secrets"
    data.mkdir()
    secrets.mkdir(parents=True)
    make = (
        "import numpy as np, polars as pl; pl.DataFrame({'x': np.arange(50_000) % 7}).write_parquet('/data/t.parquet')"
    )
    owner = replace(image, user="root")
    owner.run("python", "-c", make)
    owner.run("holdfast", "open", "/data/t.parquet")
    owner.run("chown", "-R", "holdfast", "/data")

    seen: dict[str, Path] = {}
    there = re.search(r"host=(/[^&]+)", postgres_url)
    if there is not None:  # its socket is in a folder of this machine
        (image.root / "run/postgresql").mkdir()
        seen["/run/postgresql"] = Path(there[1])
        Path(there[1]).chmod(0o711)
        postgres_url = postgres_url.replace(there[1], "/run/postgresql")
    for name, text in {"database_url": postgres_url, "admin_token": "hf_" + "t" * 43}.items():
        (secrets / name).write_text(text)
        (secrets / name).chmod(0o400)
    owner.run("chown", "-R", "holdfast", "/run/secrets")
    (image.root / "etc/holdfast").mkdir()
    (image.root / "etc/holdfast/server.toml").write_text('[datasets.t]\npath = "/data/t.parquet.holdfast"\n')

    settings = dict(service["environment"])
    with socket.socket() as probe:  # another server may run here at the usual port
        probe.bind(("127.0.0.1", 0))
        settings["HOLDFAST_PORT"] = str(probe.getsockname()[1])
    log = tmp_path / "log"
    server = image.start(*service["command"], env=settings, log=log, seen=seen)
    try:
        deadline = time.monotonic() + 120
        while not image.healthy(settings):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.5)
        request = urllib.request.Request(
            f"http://127.0.0.1:{settings['HOLDFAST_PORT']}/api/v1/datasets/t/ask",
            json.dumps({"query": "x < 3"}).encode(),
            {"Authorization": "Bearer hf_" + "t" * 43, "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)["answer"]
        assert answer["low"] < 3 / 7 < answer["high"]
    finally:
        server.terminate()
        assert server.wait(timeout=30) in (0, -signal.SIGTERM)


def test_the_image_builds(tmp_path: Path) -> None:
    tool = next(
        (
            name
            for name in ("docker", "podman")
            if shutil.which(name) and not subprocess.run([name, "info"], capture_output=True).returncode
        ),
        None,
    )
    if tool is None:
        pytest.skip("No container tool runs here; the Dockerfile's steps are taken one by one in a clean root.")
    run(tool, "build", "-f", ROOT / "deploy/Dockerfile", "-t", "holdfast-test", ROOT)
    assert PROJECT["version"] in run(tool, "run", "--rm", "--entrypoint", "holdfast", "holdfast-test", "--version")
