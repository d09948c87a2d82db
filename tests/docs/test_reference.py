"""The reference has every public name, command, operation and error; and the manual builds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast as hf
from holdfast import errors
from holdfast.cli import command_names
from holdfast.guarantees import GUARANTEES
from holdfast.lab.populations import CARRIERS, EARLIEST, share_later_than
from holdfast.mechanisms import MECHANISMS
from holdfast.queries.functions import FUNCTION_NAMES, OPERATIONS
from holdfast.queries.node import SUM
from holdfast.questions import KINDS
from holdfast.rows.engines import ENGINES
from holdfast.rows.open import ROW_SOURCES

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def generate():
    sys.path.insert(0, str(DOCS))
    try:
        import generate

        yield generate
    finally:
        sys.path.remove(str(DOCS))


def test_every_page_is_shown_before_and_now_at_both_widths_light_and_dark():
    page = (DOCS / "explanation" / "page.md").read_text(encoding="utf-8")
    pictures = {
        f"{name}-{width}-{scheme}.webp"
        for name in ("ask", "history", "plan", "check", "board", "admin")
        for width in (1280, 390)
        for scheme in ("light", "dark")
    }
    for folder in ("page", "page/before"):
        assert {each.name for each in (DOCS / folder).glob("*.webp")} == pictures
    shown = re.findall(r"\(\.\./page/([^)]+)\)", page)
    now = [each for each in shown if not each.startswith("before/")]
    assert [f"before/{each}" for each in now] == [each for each in shown if each not in now]
    assert {each.split("-")[0] for each in now} == {each.split("-")[0] for each in pictures}


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
    assert named == (set(OPERATIONS) - {SUM}) | set(FUNCTION_NAMES)  # a sum is + and -


def test_pages_have_what_the_code_says_without_a_build(generate):
    """If it fails: `python docs/generate.py` writes them."""
    for page, names in generate.WRITTEN.items():
        for name in names:
            assert generate.written(page, name) == generate.block(name), (page, name)


def test_every_command_is_in_the_reference(generate):
    page = generate.block("cli")
    commands = command_names()
    assert {"demo", "open", "plan", "ask", "budget", "history", "receipt", "verify"} <= set(commands)
    for name in commands:
        assert f"Usage: holdfast {name}" in page


def test_every_kind_and_option_is_on_its_page(generate):
    table, options = (DOCS / "how-to" / "kinds.md").read_text(encoding="utf-8"), generate.kinds()
    for kind in KINDS.all():
        assert f"\n| `{kind.name}` |" in table
        section = options.partition(f"### {kind.name}\n")[2].partition("### ")[0]
        for option in kind.options:
            assert f"\n| `{option.name}` |" in section


def test_every_room_is_on_the_page_about_the_house():
    page = (DOCS / "explanation" / "house.md").read_text(encoding="utf-8")
    source = Path(hf.__file__).parent
    folders = {f"{path.parent.name}/" for path in source.glob("*/__init__.py")}  # not what an older tree left behind
    rooms = folders | {path.name for path in source.glob("[a-z]*.py")}
    assert set(re.findall(r"^\| `(\w+(?:/|\.py))` \|", page, re.MULTILINE)) == rooms


def test_stable_entry_point_groups_are_those_of_the_registries():
    source = Path(hf.__file__).parent
    texts = "".join(path.read_text(encoding="utf-8") for path in source.rglob("*.py"))
    groups = set(re.findall(r"""= Registry\(\s*"([\w.]+)\"""", texts))
    assert {each._group for each in (GUARANTEES, MECHANISMS, KINDS, ROW_SOURCES, ENGINES)} == groups
    for page in (DOCS / "reference" / "stability.md", DOCS.parent / "CHANGELOG.md"):
        assert [name for name in sorted(groups) if f"`{name}`" not in page.read_text(encoding="utf-8")] == []


@pytest.mark.slow
def test_the_manual_builds_without_a_warning(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", DOCS, tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "reference" / "cli.html").exists()


def test_formulas_stand_in_lines_of_their_own():
    """Within a paragraph, two dollar signs are the begin of a short formula, and all after them is garbled."""
    for page in (DOCS / "proofs").glob("*.md"):
        lines = ["", *page.read_text(encoding="utf-8").splitlines(), ""]
        formulas = [place for place, line in enumerate(lines) if line.startswith("$$")]
        assert [lines[place] for place in formulas if lines[place - 1] or lines[place + 1]] == [], page.name


UNCUT = "the same, if its range is not cut into slices"


def test_every_call_of_the_page_about_what_to_ask_is_answered(generate):
    import asked

    truths = {"a share": share_later_than(15), "a count": 1e6 * share_later_than(60)}
    truths["a mean of a number with few large values"] = truths[UNCUT] = mean_delay = sum(
        each.share * (EARLIEST + each.delay) for each in CARRIERS
    )
    assert -60 < mean_delay < 600
    lines = {wanted: answer for wanted, _, answer, _ in asked.answers()}
    for wanted, truth in truths.items():
        ((_, estimate),) = lines[wanted].rows()
        assert estimate.low <= truth <= estimate.high, wanted
    sliced, plain = (lines[name].rows()[0][1] for name in list(truths)[2:])
    assert sliced.high - sliced.low < 0.6 * (plain.high - plain.low)
    assert len(asked.table().splitlines()) == len(asked.ASKED) + 2
    called = {re.match(r"s\.(\w+)\(", call)[1] for _, call, _ in asked.ASKED}
    assert called | set(asked.ELSEWHERE) == set(KINDS.names())
    assert all((DOCS / "how-to" / f"{page}.md").is_file() for page in asked.ELSEWHERE.values())
    *_, checked = asked.narrower().splitlines()
    assert float(re.search(r"±([\d.]+)", checked)[1]) < lines["a share"].rows()[0][1].high - truths["a share"]


def test_every_attack_on_the_threats_page_is_a_test_that_exists():
    page = (DOCS / "explanation" / "threats.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", page)
    assert len(named) > 40
    tests = DOCS.parent / "tests"
    missing = [name for file, name in named if f"\ndef {name}(" not in (tests / file).read_text(encoding="utf-8")]
    assert missing == []


def test_every_row_of_a_table_is_one_line():
    """A row that goes on in the next line ends the table there."""
    rows = [
        (page.name, line)
        for page in [*DOCS.rglob("*.md"), DOCS.parent / "README.md"]
        if "_build" not in page.parts
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
    ]
    assert len(rows) > 100
    assert [row for row in rows if row[1].count("`") % 2 or not row[1].rstrip().endswith("|")] == []
