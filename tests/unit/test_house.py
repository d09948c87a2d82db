"""The house: who may import whom, comparisons by name, what `import holdfast` must not load; theorems; doctests."""

import ast
import doctest
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import HoldfastError
from holdfast.guarantees import GUARANTEES
from holdfast.guarantees.mathematics import REGISTRY
from holdfast.mechanisms import MECHANISMS
from holdfast.questions import KINDS

SOURCE = Path(holdfast.__file__).parent
ROOT = SOURCE.parents[1]

# A room may import from the rooms before it and from itself; every room is on the list, and nothing else is.
ROOMS = (
    "errors",
    "cached",
    "process",
    "notebook",
    "check",
    "schema",
    "randomness",
    "cancel",
    "registry",
    "guarantees",
    "queries",
    "ledger",
    "rows",
    "mechanisms",
    "optimize",
    "losses",
    "questions",
    "session",
    "board",
    "sklearn",
    "lab",
    "service",
    "cli",
    "__main__",
)
# The ledger knows nothing of guarantees, rows or questions: what it keeps is plain JSON.
NARROW = {
    "ledger": {"errors", "process", "check", "cancel"},
    "schema": {"errors", "cached", "notebook"},
    "registry": set(),
    "randomness": {"check", "process"},
    "cached": set(),
    "process": set(),
    "cancel": {"errors"},
}

HEAVY = ("sqlalchemy", "opendp", "scipy.stats", "pandas", "matplotlib", "pyarrow", "sqlglot", "fastapi", "altair")

MODULES = sorted(
    path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if path != SOURCE / "__init__.py"
)


def file_of(module: str) -> Path:
    path = SOURCE / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement, functions included, except what only a type checker sees."""
    for node in body:
        if isinstance(node, ast.If) and getattr(node.test, "attr", getattr(node.test, "id", "")) == "TYPE_CHECKING":
            yield from statements(node.orelse)
            continue
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            for child in getattr(node, name, []):
                yield from statements([child] if isinstance(child, ast.stmt) else child.body)


@cache
def imported(module: str, source: str) -> set[str]:
    """The modules of holdfast that this source imports, without their leading 'holdfast.'."""
    package = module.split(".") if file_of(module).name == "__init__.py" else module.split(".")[:-1]
    found = set()
    for node in statements(parsed(source).body):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = ["holdfast", *package][: len(package) + 2 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.removeprefix("holdfast.") for name in names if name.startswith("holdfast.")}
    return found


@cache  # a large tree takes its time, and every rule here reads all of them
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parsed(source)))


def room(module: str) -> str:
    return module.split(".")[0]


def violations(module: str, source: str) -> list[str]:
    """What this module imports and may not."""
    own = room(module)
    above = NARROW.get(own, set(ROOMS[: ROOMS.index(own)]))
    others = {other for other in imported(module, source) if not other.startswith("__")}
    return [f"{module} imports {other}" for other in sorted(others) if room(other) not in above | {own}]


def test_every_room_is_on_the_list():
    assert {room(module) for module in MODULES} == set(ROOMS)


def in_modules(found: Callable[[str, str], Any]) -> dict[str, Any]:
    """Return what a search finds in the source of every module, by the modules where it finds something."""
    everything = {module: found(module, file_of(module).read_text()) for module in MODULES}
    return {module: some for module, some in everything.items() if some}


def test_a_module_imports_only_from_rooms_above():
    assert in_modules(violations) == {}


@cache
def modules_imported() -> dict[str, set[str]]:
    """Which module imports which, inside functions too."""
    graph = {}
    for module in MODULES:
        names = imported(module, file_of(module).read_text())
        found = {name if name in MODULES else name.rpartition(".")[0] for name in names}
        graph[module] = {name for name in found if name in MODULES and name != module}
    return graph


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return modules that import each other in a circle; nothing if there are none."""
    done: set[str] = set()

    def search(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for other in sorted(graph[module]):
            if found := search(other, [*path, module]):
                return found
        done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := search(module, []))), [])


def test_no_modules_import_each_other_in_a_circle():
    assert cycle(modules_imported()) == []


def test_a_circle_is_found():
    assert cycle(modules_imported() | {"errors": {"session.session"}})


def compared_names(source: str, names: set[str]) -> list[int]:
    """The lines on which something is compared, or matched, with one of these names."""
    found = []
    for node in nodes(source):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            parts = [part for side in sides for part in (getattr(side, "elts", None) or [side])]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        else:
            continue
        if any(isinstance(part, ast.Constant) and part.value in names for part in parts):
            found.append(node.lineno)
    return found


NAMES = {*GUARANTEES.names(), *MECHANISMS.names(), *KINDS.names(), "share", "group"}


def test_nobody_compares_with_the_name_of_a_guarantee_mechanism_or_kind():
    assert in_modules(lambda _, source: compared_names(source, NAMES)) == {}


@pytest.mark.parametrize(
    "source",
    [
        'if plan.guarantee == "posterior":\n    pass',
        'ok = kind in ("mean", "other")',
        'match kind:\n    case "histogram":\n        pass',
    ],
)
def test_a_comparison_by_name_is_found(source):
    assert compared_names(source, NAMES) == [1] or compared_names(source, NAMES) == [2]


LITERARY = {"told", "said", "saw", "wanted", "wish", "climbed", "settle", "settled", "scribe", "desk", "keeper"}
LITERARY |= {"dear", "dearer", "dearest"}


def names_given(source):
    """Return what a module calls things: functions, classes, arguments, variables, attributes."""
    for node in nodes(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def words_in(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def literary(source: str) -> list[str]:
    return [name for name in names_given(source) if words_in(name) & LITERARY]


def test_things_have_plain_names():
    assert in_modules(lambda _, source: literary(source)) == {}


def test_a_literary_name_is_found():
    source = "class FrontDesk:\n    def ask(self, wanted):\n        _said = too_dear = self.told_now = wanted"
    assert sorted(literary(source)) == sorted(["FrontDesk", "wanted", "_said", "too_dear", "told_now"])
    assert literary("class Aside:\n    saws = unsaid = DESKTOP = 1") == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("guarantees.posterior", "from holdfast.questions import mean"),
        ("rows.local", "from holdfast.mechanisms import coins"),
        ("queries.build", "import holdfast.rows.source"),
        ("ledger.chain", "from holdfast import randomness"),
        ("ledger.chain", "def f():\n    from ..guarantees import plan"),
        ("optimize.fit", "from holdfast.questions.question import Drawing"),
        ("lab.attack", "from holdfast.cli import output"),
        ("mechanisms.coins", "try:\n    pass\nexcept ValueError:\n    from holdfast import session"),
        ("session", "from holdfast.service import app"),
        ("errors", "from holdfast import check"),
    ],
)
def test_a_forbidden_import_is_caught(module, line):
    assert violations(module, line)


def test_imports_for_the_type_checker_alone_do_not_count():
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from holdfast.session.session import Session"
    assert violations("guarantees.posterior", source) == []
    assert violations("guarantees.posterior", source + "\nelse:\n    from holdfast.session.session import Session")


def test_importing_holdfast_stays_light():
    code = (
        "import sys, holdfast\n"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules])\n"
        "assert holdfast.plan and holdfast.InvalidArgument\n"
        "print(*[name for name in ('sqlalchemy', 'opendp', 'scipy.stats', 'pandas', 'sqlglot') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert ran.stdout.split() == []


def test_what_the_package_offers_is_there():
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None
    assert set(holdfast.__all__) <= set(dir(holdfast))
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        holdfast.no_such_name  # noqa: B018 - the lookup is the test


def importable() -> list[str]:
    found = pkgutil.walk_packages(holdfast.__path__, "holdfast.")
    return ["holdfast", *(module.name for module in found if not module.name.endswith("__main__"))]


def test_losses_are_imported_as_they_are_named():
    code = (
        "import sys, holdfast\n"
        "assert not {'numpy', 'polars'} & set(sys.modules)\n"
        "import holdfast.losses\n"
        "from holdfast.losses import Logistic\n"
        "assert holdfast.losses.Logistic is Logistic"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_the_package_runs_the_command_line():
    command = [sys.executable, "-m", "holdfast", "--version"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert ran.stdout == f"holdfast {holdfast.__version__}\n"


def test_doctests_run():
    modules = [import_module(name) for name in importable()]
    shown = [module for module in modules if ">>> " in Path(str(module.__file__)).read_text()]
    assert len(shown) > 50
    assert [module.__name__ for module in shown if doctest.testmod(module).failed] == []


def test_no_error_hides_outside_the_tree():
    """Here, where every module is imported."""
    for name in importable():
        import_module(name)
    found = [HoldfastError]
    for cls in found:
        found += cls.__subclasses__()
    assert {cls.__module__ for cls in found} == {"holdfast.errors"}


for _module in importable():  # theorems register when their module is imported
    if _module.split(".")[1:2] in (["guarantees"], ["mechanisms"]):
        import_module(_module)


def test_the_registry_is_full():
    assert len(REGISTRY) > 30


def test_theorems_say_what_they_state_and_what_not_and_are_proved():
    lacking = []
    for name, theorem in REGISTRY.items():
        said = f"\n{cleandoc(theorem.statement)}\n"
        says = all(f"\n{part}\n" in said for part in ("Statement", "Not covered"))
        if not (says and theorem.source and (ROOT / "docs" / "proofs" / theorem.proof).is_file()):
            lacking.append(name)
    assert lacking == []


def resolves(name: str) -> bool:
    """Whether a dotted name, below holdfast, is a module or something in one."""
    parts, found, home = name.split("."), holdfast, "holdfast"
    while parts:
        with suppress(ImportError):
            found = import_module(f"{home}.{parts[0]}")
            home = f"{home}.{parts.pop(0)}"
            continue
        break
    return all((found := getattr(found, part, None)) is not None for part in parts)


def test_modules_that_texts_mention_exist():
    files = {
        path.name
        for folder in (SOURCE, *(ROOT / name for name in ("tests", "docs", "examples", "benchmarks")))
        for path in folder.rglob("*.py")
    }
    entry_points = {"holdfast.row_sources"}
    variables = {"session", "board"}  # what examples call theirs
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir()} - variables
    texts = [*SOURCE.rglob("*.py"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for path in texts:
        for name in re.findall(r"`(?:[a-z_]+/)*([a-z_]+(?:\.[A-Za-z_]+)+)`", path.read_text(encoding="utf-8")):
            room_or_file, _, ending = name.partition(".")
            if ending == "py":
                assert name in files, f"{path.name} mentions {name}"
            elif room_or_file == "holdfast" and name not in entry_points:
                assert resolves(ending), f"{path.name} mentions {name}"
            elif room_or_file in folders and ending not in ("yml", "toml", "json", "md"):
                assert resolves(name), f"{path.name} mentions {name}"
