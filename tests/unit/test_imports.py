"""Who may import whom, read from the source; what `import holdfast` must not load; theorems; doctests."""

import ast
import doctest
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import holdfast
from holdfast.guarantees.mathematics.theorem import REGISTRY

SOURCE = Path(holdfast.__file__).parent
ROOT = SOURCE.parents[1]

# Each line may import from the lines before it and from its own package.
LAYERS = (
    ("errors",),
    ("check", "rng", "schema"),
    ("guarantees",),
    ("queries", "rows"),
    ("mechanisms",),
    ("planning", "ledger"),
    ("certify", "answer", "budget", "history", "beginning"),
    ("questions",),
    ("session",),
)
HEIGHT = {package: height for height, line in enumerate(LAYERS) for package in line}
TOP = len(LAYERS)  # everything else: descent, analysts, plots, command line, server, ...

# The one step upwards, taken when it is needed: a session hands `minimize` on to the optimiser.
UPWARDS = {("session", "optimise.question.minimize")}

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
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from statements(node.orelse)
            continue
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            for child in getattr(node, name, []):
                yield from statements([child] if isinstance(child, ast.stmt) else child.body)


def imported(module: str, source: str) -> set[str]:
    """The modules of holdfast that this source imports, without their leading 'holdfast.'."""
    package = module.split(".") if file_of(module).name == "__init__.py" else module.split(".")[:-1]
    found = set()
    for node in statements(ast.parse(source).body):
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


def height(module: str) -> int:
    return HEIGHT.get(module.split(".")[0], TOP)


def violations(module: str, source: str) -> list[str]:
    """What this module imports and may not."""
    own = module.split(".")[0]
    wrong = []
    for other in imported(module, source):
        package = other.split(".")[0]
        if package == own or package.startswith("__") or (module, other) in UPWARDS:
            continue
        if own == "ledger":
            allowed = package in ("errors", "check")
        elif height(module) == height(other) < TOP:
            allowed = own == "rows" and other.startswith("queries.base")
            allowed = allowed or {own, package} <= {"check", "rng", "schema"}
            allowed = allowed or {own, package} <= {"certify", "answer", "budget", "history"}
        else:
            allowed = height(other) <= height(module)
        if not allowed:
            wrong.append(f"{module} imports {other}")
    return wrong


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_lies_below_it(module):
    assert violations(module, file_of(module).read_text()) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("guarantees.coins", "from holdfast.planning import plan"),
        ("rows.local", "from holdfast.queries import mean"),
        ("queries.words", "import holdfast.rows.source"),
        ("ledger.chain", "from holdfast import rng"),
        ("ledger.chain", "def f():\n    from ..planning import plan"),
        ("mechanisms.coins", "try:\n    pass\nexcept ValueError:\n    from holdfast import session"),
        ("session", "from holdfast.service import app"),
        ("errors", "from holdfast import check"),
    ],
)
def test_a_forbidden_import_is_caught(module, line):
    assert violations(module, line)


def test_imports_for_the_type_checker_alone_do_not_count():
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from holdfast.session import Session"
    assert violations("guarantees.coins", source) == []
    assert violations("guarantees.coins", source + "\nelse:\n    from holdfast.session import Session")


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


@pytest.mark.parametrize("module", importable())
def test_doctests_run(module):
    result = doctest.testmod(import_module(module))
    assert result.failed == 0


for _module in importable():  # theorems register when their module is imported
    if _module.split(".")[1:2] in (["guarantees"], ["mechanisms"]):
        import_module(_module)


def test_the_registry_is_full():
    assert len(REGISTRY) > 30


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_a_theorem_says_what_it_states_and_what_not_and_is_proved(name):
    theorem = REGISTRY[name]
    assert "\n    Statement\n" in theorem.statement
    assert "\n    Not covered\n" in theorem.statement
    assert theorem.source
    assert (ROOT / "docs" / "proofs" / theorem.proof).is_file()
