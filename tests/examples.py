"""How many random examples a property is tried on: all of them in `make test`, a few in `make quick`."""

import os

QUICK = bool(os.environ.get("HOLDFAST_QUICK"))


def examples(count: int) -> int:
    """Return the number of examples for this run."""
    return max(5, count // 5) if QUICK else count
