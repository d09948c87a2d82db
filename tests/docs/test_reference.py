"""The reference has every public name, command, operation and error; and the manual builds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast as hf
from holdfast import errors
from holdfast.cli import command_names
from holdfast.queries.functions import FUNCTION_NAMES, OPERATIONS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def generate():
    sys.path.insert(0, str(DOCS))
    try:
        import generate

        yield generate
    finally:
        sys.path.remove(str(DOCS))


def test_every_public_name_is_in_the_reference(generate):
    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8") + generate.other_names()
    documented = set(re.findall(r"holdfast\.(\w+)", page))
    in_error_table = {each.__name__ for each in generate.error_classes()}
    assert set(hf.__all__) - documented - in_error_table == set()


def test_every_error_is_in_the_table(generate):
    table = generate.error_table()
    pending, seen = [errors.HoldfastError], set()
    while pending:
        each = pending.pop()
        pending.extend(each.__subclasses__())
        if each.__module__ == "holdfast.errors":
            seen.add(each.__name__)
    assert {line.split("`")[1] for line in table.splitlines()[2:]} == seen


def test_every_operation_is_in_the_table(generate):
    table = generate.functions()
    named = {cell.replace("\\|", "|") for cell in re.findall(r"`([^`]+)`", table)}
    assert named == set(OPERATIONS) | set(FUNCTION_NAMES)


def test_every_command_is_in_the_reference(generate):
    page = generate.cli()
    commands = command_names()
    assert {"demo", "open", "plan", "ask", "budget", "history", "receipt", "verify"} <= set(commands)
    for name in commands:
        assert f"Usage: holdfast {name}" in page


@pytest.mark.slow
def test_the_manual_builds_without_a_warning(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", DOCS, tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "reference" / "cli.html").exists()
