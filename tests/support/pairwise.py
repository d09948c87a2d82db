"""Few combinations instead of all: every value meets every value of every other argument at least once."""

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any


def pairwise(*choices: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return tuples with one value of each argument, such that every pair of values of two arguments is in one of them.

    Faults that need three particular values at once are rare; full products of three and more arguments spend most of
    their time on finding the same ones again. The same arguments always give the same tuples.

    >>> len(pairwise("ab", "cd", "ef")), len(pairwise(range(3), range(3), range(3), range(3))) < 15
    (4, True)
    """
    columns: list[Sequence[Any]] = [list(choice) for choice in choices]
    if len(columns) < 3:
        return list(product(*columns))
    pairs = combinations(range(len(columns)), 2)
    missing = {
        (one, i, two, j) for one, two in pairs for i in range(len(columns[one])) for j in range(len(columns[two]))
    }
    rows = []
    while missing:
        row: dict[int, int] = {}
        one, i, two, j = min(missing)
        row |= {one: i, two: j}
        for column in range(len(columns)):
            if column not in row:
                row[column] = max(range(len(columns[column])), key=lambda k: _gain(missing, row, column, k))
        missing -= {(a, row[a], b, row[b]) for a, b in combinations(sorted(row), 2)}
        rows.append(tuple(columns[column][row[column]] for column in range(len(columns))))
    return rows


def _gain(missing: set[tuple[int, int, int, int]], row: dict[int, int], column: int, value: int) -> int:
    """How many missing pairs this value would add to the row."""
    return sum(
        ((column, value, other, row[other]) if column < other else (other, row[other], column, value)) in missing
        for other in row
    )
