"""The steps of a Dockerfile, taken one by one in clean roots: for machines where no container tool runs.

A root is a minimal Debian made by `debootstrap`, of the release whose own Python is that of the image's base. What runs
in it sees no file of this machine. A program that is `started` has mounts of its own as well: its root cannot be
written, as compose.yaml says; only /tmp can.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

RELEASES = {"3.11": "bookworm", "3.13": "trixie"}  # of Debian, by their Python
NETWORK = ("etc/resolv.conf", "etc/hosts", "etc/ssl/certs/ca-certificates.crt", "etc/pip.conf")
PACKAGES = "python3,python3-pip,python-is-python3,ca-certificates"
SEARCHED = "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"
# Debian's pip asks whether it may touch what belongs to the system: in this root, it may.
PIP = {"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_ROOT_USER_ACTION": "ignore"}


def release_for(dockerfile: str) -> str | None:
    """Return the Debian release for the image's base, if a clean root can be made here."""
    able = os.geteuid() == 0 and all(map(shutil.which, ("debootstrap", "chroot", "unshare")))
    (version,) = set(re.findall(r"^FROM python:(3\.\d+)-slim", dockerfile, re.MULTILINE))
    return RELEASES.get(version) if able else None


class NoRoot(Exception):
    """Debian's packages did not arrive, which says nothing about the image."""


@dataclass
class Image:
    """A root, and what the Dockerfile says of the programs that run in it."""

    root: Path
    env: dict[str, str] = field(default_factory=lambda: {"PATH": SEARCHED})
    user: str = "root"
    folder: str = "/"
    entrypoint: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)

    def run(self, *command: str, env: dict[str, str] | None = None) -> str:
        """Run a program in the root, as the image's user, to its end; return what it printed."""
        done = subprocess.run(self._inside(command, env or {}), capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def healthy(self, env: dict[str, str]) -> bool:
        """Whether the image's health check succeeds."""
        return subprocess.run(self._inside(self.health, env), capture_output=True).returncode == 0

    def start(self, *arguments: str, env: dict[str, str], log: Path, seen: dict[str, Path]) -> subprocess.Popen[bytes]:
        """Start the entry point in a root that cannot be written; it sees these folders of the machine."""
        mounts = ['mount --bind "$ROOT" "$ROOT"', 'mount --rbind /proc "$ROOT/proc"', 'mount -t tmpfs tmp "$ROOT/tmp"']
        mounts += [f'mount --bind {shlex.quote(str(there))} "$ROOT{here}"' for here, there in seen.items()]
        mounts += ['mount -o remount,bind,ro "$ROOT"', 'exec "$@"']
        command = self._inside([*self.entrypoint, *arguments], env)
        with log.open("wb") as errors:
            return subprocess.Popen(
                ["unshare", "--mount", "sh", "-e", "-c", "\n".join(mounts), "sh", *command],
                env=os.environ | {"ROOT": str(self.root)},
                stderr=errors,
            )

    def _inside(self, command: list[str] | tuple[str, ...], env: dict[str, str]) -> list[str]:
        where = f"cd {shlex.quote(self.folder)} && exec {shlex.join(command)}"
        given = [f"{name}={value}" for name, value in (self.env | env).items()]
        return ["chroot", f"--userspec={self.user}", str(self.root), "env", "-i", *given, "sh", "-c", where]


def built(dockerfile: str, context: dict[str, Path], scratch: Path, release: str) -> Image:
    """Take the steps of a Dockerfile; return what it builds. `context`: the files it may copy, by their names."""
    base = scratch / "base"
    made = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", release, str(base)]
    try:
        done = subprocess.run(made, capture_output=True, text=True, timeout=1_200)
    except subprocess.TimeoutExpired:
        raise NoRoot("Debian's packages did not arrive within 20 minutes.") from None
    if done.returncode:
        raise NoRoot(done.stdout + done.stderr)
    for name in NETWORK:
        if Path("/", name).exists():
            shutil.copy(Path("/", name), base / name)
    outside = PIP | {name: value for name, value in os.environ.items() if name.startswith("PIP_") or "_proxy" in name}
    stages: dict[str, Image] = {}
    for instruction, said in re.findall(r"^([A-Z]+) (.*)$", dockerfile, re.MULTILINE):
        if instruction == "FROM":
            name = said.partition(" AS ")[2] or "the image"
            subprocess.run(["cp", "-a", base, scratch / name], check=True)
            image = stages[name] = Image(scratch / name)
        elif instruction == "COPY":
            _copy(said, image, stages, context)
        elif instruction == "RUN":
            image.run("sh", "-c", said, env=outside)
        elif instruction == "USER":
            image.user = said
        elif instruction == "WORKDIR":
            image.folder = said
        elif instruction == "ENV":
            image.env |= dict(part.split("=", 1) for part in shlex.split(said))
        elif instruction == "HEALTHCHECK":
            image.health = json.loads(said[said.index("[") :])
        elif instruction == "ENTRYPOINT":
            image.entrypoint = json.loads(said)
        else:
            assert instruction == "EXPOSE", instruction
    return image


def _copy(said: str, image: Image, stages: dict[str, Image], context: dict[str, Path]) -> None:
    first, _, rest = said.partition(" ")
    *sources, target = (rest if first.startswith("--from=") else said).split()
    there = image.root / target.strip("/")
    there.mkdir(parents=True, exist_ok=True)
    if first.startswith("--from="):
        stage = stages[first.removeprefix("--from=")]
        for source in sources:
            found = stage.root / source.strip("/")
            for each in found.iterdir() if found.is_dir() else [found]:
                shutil.copy(each, there)
        return
    assert sources == ["."]
    for name, path in context.items():
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, there / name)
