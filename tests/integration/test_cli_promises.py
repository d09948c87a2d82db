"""What the help promises of all commands: --json everywhere, plain text in a pipe, words that a shell completes."""

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from holdfast.cli import command_names, main, subcommands
from holdfast.lab import populations

SMALL = ["--rows", "200", "--queries", "11", "--worlds", "1", "--seed", "1"]
# A short run of every command, in this order: later ones use what earlier ones wrote.
RUNS: dict[tuple[str, ...], list[str]] = {
    ("open",): ["flights.parquet"],
    ("ask",): ["flights.parquet", "dep_delay > 15"],
    ("plan",): ["--rows", "1000", "--queries", "10"],
    ("sql",): ["flights.parquet", "SELECT AVG(dep_delay > 20) FROM flights"],
    ("batch",): ["flights.parquet", "questions.json"],
    ("check",): ["flights.parquet", "expectations.json"],
    ("budget",): ["flights.parquet"],
    ("history",): ["flights.parquet"],
    ("receipt",): ["flights.parquet", "1"],
    ("verify",): ["flights.parquet"],
    ("backup",): ["flights.parquet", "copy.ledger"],
    ("restore",): ["copy.ledger", "flights.parquet"],
    ("hold-back",): ["other.parquet"],
    ("deal",): ["dealt.parquet", "dealt.deck", "--cards", "50000"],
    ("deck",): ["dealt.deck"],
    ("board", "make"): ["labels.csv", "--metric", "accuracy", "--about", "labels"],
    ("board", "submit"): ["labels.board.holdfast", "predictions.csv", "--by", "ada"],
    ("board", "standings"): ["labels.board.holdfast"],
    ("board", "verify"): ["labels.board.holdfast"],
    ("attack",): ["naive", *SMALL],
    ("monitor",): ["naive", *SMALL[:4], "--seed", "1"],
    ("selftest",): [*SMALL[:4], "--worlds", "1"],
    ("reproduce",): ["looseness", "--output", "paper"],
    ("demo",): ["--rows", "10000", "--questions", "50", "--seed", "1", "--output", "demo"],
    ("completion",): ["bash"],
    ("serve",): ["flights.parquet", "--port", "0"],
    ("mcp",): ["flights.parquet", "--http", "--token-file", "token.txt"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("promises")
    rng = np.random.default_rng(1)
    for name in ("flights", "other", "dealt"):
        populations.write(folder / f"{name}.parquet", 2_000, rng, signals=1)
    (folder / "questions.json").write_text('["dep_delay > 30"]')
    (folder / "expectations.json").write_text('[{"query": "dep_delay > 15", "expect": {"at_most": 1}}]')
    ids = pl.DataFrame({"id": range(500), "label": rng.integers(0, 2, 500)})
    ids.write_csv(folder / "labels.csv")
    ids.rename({"label": "prediction"}).write_csv(folder / "predictions.csv")
    (folder / "token.txt").write_text("t" * 30)
    return folder


def test_the_list_of_runs_is_complete() -> None:
    all_commands = {(name, *own) for name in command_names() for own in [[each] for each in subcommands(name)] or [[]]}
    assert set(RUNS) == all_commands


@pytest.mark.parametrize("command", RUNS, ids="-".join)
def test_every_command_takes_json(
    command: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    announced: Callable[..., None] = lambda settings, announce: announce("http://127.0.0.1:1", "link")  # noqa: E731
    monkeypatch.setattr("holdfast.service.app.serve", announced)  # they would stay
    monkeypatch.setattr("uvicorn.run", lambda *args, **named: None)
    if command == ("restore",):
        (folder / "flights.parquet.ledger").unlink()  # else there is nothing to restore
    with pytest.raises(SystemExit) as end:
        main([*command, *RUNS[command], "--json"])
    said = capsys.readouterr()
    assert end.value.code == 0, said.err
    assert json.loads(said.out)["ok"] is True  # one document, and nothing else


def run(folder: Path, *words: str) -> tuple[bytes, bytes]:
    """Run a command in a pipe and in a terminal; return what both got."""
    command = [sys.executable, "-m", "holdfast", *words]
    environment = os.environ | {"TERM": "xterm-256color"}
    piped = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True)
    ours, theirs = pty.openpty()
    done = subprocess.run(command, cwd=folder, env=environment, stdout=theirs, stderr=theirs, check=True)
    os.close(theirs)
    seen = b""
    try:
        while block := os.read(ours, 1 << 16):
            seen += block
    except OSError:  # how the end of a terminal reads on Linux
        pass
    os.close(ours)
    assert done.returncode == 0
    return piped.stdout + piped.stderr, seen


def test_colors_are_for_terminals_only(folder: Path) -> None:
    piped, seen = run(folder, "plan", "--rows", "100000", "--queries", "100")
    assert b"\x1b[" not in piped
    assert b"\x1b[" in seen  # the same command has them there


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("holdfast bud", {"budget"}),
        ("holdfast board s", {"standings", "submit"}),
        ("holdfast ask flights.parquet late --ki", {"--kind"}),
        ("holdfast ask flights.parquet late --kind qu", {"quantile"}),
        ("holdfast completion z", {"zsh"}),
    ],
)
def test_words_are_completed(
    words: str, expected: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_HOLDFAST_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    with pytest.raises(SystemExit):
        main([])
    assert {word.removeprefix("plain,") for word in capsys.readouterr().out.split()} == expected


SHELLS = {  # how each is started without anybody's settings, and told to complete
    "bash": ("bash --norc --noprofile -i", 'eval "$(holdfast completion bash)"'),
    "zsh": ("zsh -f -i", 'autoload -Uz compinit; compinit -u -D; eval "$(holdfast completion zsh)"'),
    "fish": ("fish --no-config -i", "holdfast completion fish | source"),
}


class Typing:
    """Somebody at a shell: what is typed, and what is seen."""

    def __init__(self, command: str, home: Path) -> None:
        found = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TERM": "dumb", "HOME": str(home)}
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            os.execvpe(command.split()[0], command.split(), os.environ | found | {"PS1": "> ", "HISTFILE": os.devnull})
        self.seen = b""

    def type(self, text: str, *, sees: str) -> None:
        """Type, and wait until something more is seen."""
        before = len(self.seen)
        os.write(self.terminal, text.encode())
        while sees.encode() not in self.seen[before:]:
            ready, _, _ = select.select([self.terminal], [], [], 60)
            assert ready, self.seen.decode(errors="replace")
            self.seen += os.read(self.terminal, 1 << 16)

    def leave(self) -> None:
        """End the shell."""
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self.terminal)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_what_is_typed_in_it(shell: str, tmp_path: Path) -> None:
    command, setting = SHELLS[shell]
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "flights.parquet").touch()
    somebody = Typing(command, tmp_path)
    try:
        somebody.type(f"cd; {setting}\recho beg''un\r", sees="begun")
        somebody.type("holdfast bud\t", sees="holdfast budget ")
        somebody.type("\x15holdfast ask flig\t", sees="flights.parquet ")
        somebody.type("late --ki\t", sees="late --kind ")
    finally:
        somebody.leave()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_of_the_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["completion", shell])
    said = capsys.readouterr().out
    assert f"{shell}_complete" in said
    assert "_HOLDFAST_COMPLETE" in said


def test_other_shells_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["completion", "tcsh"])
    assert end.value.code == 2
    assert capsys.readouterr().err == "shell must be one of 'bash', 'zsh', 'fish'; got 'tcsh'.\n"
