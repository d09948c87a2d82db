"""A short command imports only what it needs. Which modules, not how long: that is measured in benchmarks."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import holdfast as hf

HEAVY = ("scipy", "polars", "sqlglot", "sqlalchemy", "matplotlib", "sklearn", "fastapi", "starlette", "httpx", "pandas")
HEAVY += ("rich", "holdfast.session.session", "holdfast.rows")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("start") / "t.parquet"
    pl.DataFrame({"x": range(2_000)}).write_parquet(path)
    with hf.Session(path) as session:
        session.mean("x > 700")
    return path


def imported(*arguments: str) -> set[str]:
    """Return which of the heavy modules a command imports."""
    code = (
        "import sys\nfrom holdfast.cli import main\ntry:\n    main(sys.argv[1:])\nexcept SystemExit as end:\n"
        f"    assert end.code == 0\nprint('\\n' + ' '.join(name for name in {HEAVY!r} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("\n\n")[2].split()) if done.stdout.endswith("\n") else set()


def test_the_budget_needs_none_of_the_heavy_ones(asked: Path) -> None:
    assert imported("budget", str(asked)) == set()


def test_what_is_looked_for_is_found(asked: Path) -> None:
    found = imported("ask", str(asked), "x > 800")
    assert {"sqlglot", "polars", "holdfast.session.session"} <= found  # an expression is parsed, rows are read
    assert found.isdisjoint({"scipy", "sqlalchemy", "matplotlib", "sklearn", "fastapi", "starlette", "httpx", "pandas"})
    assert "rich" not in found
