"""No message of the library reaches the command line with a Python argument that it does not have."""

import ast
import re
import warnings
from pathlib import Path

import holdfast
from holdfast.cli.output import noting_at_once, spell
from holdfast.rows.units import UnitColumn

SOURCE = Path(holdfast.__file__).parent
ROOMS = ("guarantees", "mechanisms", "questions", "queries", "optimize", "rows", "ledger")
FILES = [
    *(path for room in ROOMS for path in sorted((SOURCE / room).rglob("*.py"))),
    *sorted((SOURCE / "session").rglob("*.py")),
]
ARGUMENT = re.compile(r"(?<![\w<>!=:])[a-z_]+=(?![=\w{~]| \w+ =)")


def sentences(source: str) -> list[str]:
    """Texts of errors and warnings: strings inside calls whose name begins with a capital, or `warn`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise | ast.Return | ast.Assign | ast.Expr):
            for child in ast.walk(node):
                if isinstance(child, ast.JoinedStr):
                    found.append("".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in child.values))
                elif isinstance(child, ast.Constant) and isinstance(child.value, str):
                    found.append(child.value)
    return [text for text in found if re.match(r"[A-Z].*\.$", text.strip(), re.DOTALL) and "\n" not in text]


def test_messages_name_flags():
    for path in FILES:
        for text in sentences(path.read_text(encoding="utf-8")):
            assert not ARGUMENT.search(spell(text, {})), text


def test_options_that_are_given_are_flags():
    flags = {"guess": "--guess", "at_least": "--at-least"}
    told = "guess must be given: nothing could say it. Give guess; or split the data with holdfast.hold_back(data)."
    spelled = (
        "--guess must be given: nothing could say it. Give --guess; or split the data with holdfast hold-back DATA."
    )
    assert spell(told, flags) == spelled
    assert spell("'cost' is a number; give cap= for the mean of their sums.", {}).count("--cap for")
    assert spell("Then split with id='flight', and it cannot be asked about.", {}).startswith(
        "Then split with --id flight,"
    )


def test_warnings_of_a_command_that_runs_on_are_noted_when_they_come(capsys):
    with noting_at_once():
        warnings.simplefilter("default")  # tests run with errors
        warnings.warn("Several rows: open the data with unit='patient'.", UnitColumn, stacklevel=1)
        assert capsys.readouterr().err == "Several rows: open the data with --unit patient.\n"
        warnings.warn("something else", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == ""


def test_an_argument_is_found():
    source = 'raise ValueError("Too wide. Pass rows= or limit= to choose.")'
    (text,) = sentences(source)
    assert ARGUMENT.search(text)


def test_a_column_of_text_that_should_be_numbers_leads_to_the_value_that_is_none() -> None:
    """The note that says so comes only with the first question, when the file is read."""
    read = "Numbers written as text are read by CAST(dep_delay AS DOUBLE)."
    advised = spell(f"'dep_delay' is text; > 15 compares numbers. {read}", {})
    assert read in advised
    assert advised.endswith("holdfast open DATA --types 'dep_delay=number'.")
    of_a_mean = "A mean needs numbers or yes-or-no values; 'mass' is text. Ask for a share, or for a histogram."
    of_a_mean += " Numbers written as text are read by CAST(mass AS DOUBLE)."
    assert spell(of_a_mean, {}).endswith("holdfast open DATA --types 'mass=number'.")
