"""Fixtures shared by all tests."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from holdfast.check import FULL_TRACEBACKS
from holdfast.ledger.opening import forget_all
from left_behind import LeftBehind
from private_postgres import private_postgres

os.environ.setdefault(FULL_TRACEBACKS, "1")  # a refusal that a test did not expect should show its way

# A run that decides over a change repeats itself; everywhere else each run looks at new examples. No test is timed.
settings.register_profile("untimed", deadline=None)
settings.register_profile("repeatable", settings.get_profile("untimed"), derandomize=True)
settings.load_profile("repeatable" if os.environ.get("CI") else "untimed")


def pytest_configure(config: pytest.Config) -> None:
    """Watch the checkout from the one process that begins first and ends last."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(LeftBehind(Path(__file__).parents[1]))


def pytest_collection_finish() -> None:
    """Take ten thousand collected tests out of the garbage collector's sight: it would walk through them all day."""
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Let extension modules find their objects at the end: one of them complains of those that are left."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _new_process() -> None:
    """Every test begins as a new process does: with no ledger in memory, and none that it remembers."""
    forget_all()


@pytest.fixture
def seed() -> int:
    """The seed of statistical tests: fixed, so that a failure repeats."""
    return 20260101


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """An empty PostgreSQL: HOLDFAST_TEST_POSTGRES if set, else a private server from the `pgserver` package.

    Fails rather than skips if there is neither: a contract nobody checked is not a contract.
    """
    given = os.environ.get("HOLDFAST_TEST_POSTGRES")
    if given:
        yield given
        return
    with private_postgres() as url:
        yield url
