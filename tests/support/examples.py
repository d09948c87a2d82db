"""How much is tried: everything in `make test`, a few examples and cases in `make quick`.

A test whose mutant is caught by its whole sample alone is not reduced: it would fail, or could not fail any more.
"""

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

QUICK = bool(os.environ.get("HOLDFAST_QUICK"))


def examples(count: int) -> int:
    """Return the number of examples for this run."""
    return max(5, count // 5) if QUICK else count


def few(cases: Iterable[T], count: int = 40) -> list[T]:
    """Return the cases for this run: all of them, or every so many, about `count` in all."""
    everything = list(cases)
    return everything[:: max(1, len(everything) // count)] if QUICK else everything
