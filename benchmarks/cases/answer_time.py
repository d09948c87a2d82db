"""Does the time of an answer tell what the rows hold?

Hypothesis: the share of a flag, a long text that was not drawn, or how many combinations of two texts were drawn
changes the time of a tally of 12,000 rows by half at most: whatever a question chooses among is evaluated for every
drawn row, or for every combination among them if there are few, and nothing else is.

Refuted if a printed ratio, the slowest table over the fastest, exceeds 1.5. The tables differ in nothing but the flag
or the texts, and take turns in one process. Times are those of the fastest tenth: Polars hands work from thread to
thread, and on a busy machine waiting for them would drown the rest.
"""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from benchmarks.measure import Found, Table, alternate, main, rounded, shown

from holdfast.queries.build import build_mean
from holdfast.randomness import Randomness
from holdfast.rows.open import open_rows
from holdfast.rows.source import RowSource

DRAWS = 12_000
SHARES = (0.0, 0.001, 0.5, 0.999, 1.0)
LENGTH = 1_000_000  # characters of the long text
QUESTIONS = {
    "a share": "flag",
    "a condition": "flag AND x > 0.5 AND word <> 'w7'",
    "a branch": "CASE WHEN flag THEN replace(upper(word), 'W', 'ABCDEFG') LIKE '%G%1%' ELSE FALSE END",
    "after a branch": "replace(upper(CASE WHEN flag THEN word ELSE 'w12345' END), 'W', 'ABCDEFG') LIKE '%G%1%'",
    "a quotient": "exp(sin(1 / (CASE WHEN flag THEN x ELSE 0 END))) > 1",
}


def by_share(found: Found, n: int, repeats: int) -> None:
    rng = np.random.default_rng(1)
    x, words = rng.random(n), pl.Series([f"w{one}" for one in rng.integers(0, n // 2, n)])
    sources = {
        f"{share:g}": open_rows(pl.DataFrame({"flag": rng.random(n) < share, "x": x, "word": words}))
        for share in SHARES
    }
    table = Table(
        f"One tally of {DRAWS:,} rows, by the share of a flag", ["question", *sources, "slowest over fastest"]
    )
    for name, text in QUESTIONS.items():
        compare(found, table, f"{name}, by the share of a flag", text, sources, repeats)
    found.tables.append(table)


def by_length(found: Found, n: int, repeats: int, scratch: Path) -> None:
    table = Table(f"One tally of {DRAWS:,} rows, by one text among {n:,}", ["question", "short", "long", "ratio"])
    words = [f"w{one % 5000}" for one in range(n)]
    sources: dict[str, RowSource] = {}
    for name, length in {"short": 1, "long": LENGTH}.items():
        pl.DataFrame({"word": [*words[1:], "x" * length]}).write_parquet(scratch / f"{name}.parquet")
        sources[name] = open_rows(scratch / f"{name}.parquet", progress=False)
    compare(found, table, "a text", "upper(word) LIKE '%W%1%'", sources, repeats)
    found.tables.append(table)


def by_combinations(found: Found, n: int, repeats: int, scratch: Path) -> None:
    """Counted by combination (26 texts each), and row by row (100 each)."""
    rng = np.random.default_rng(1)
    table = Table(f"One tally of {DRAWS:,} rows, by the combinations among them", ["question", "few", "many", "ratio"])
    for texts in (26, 100):
        sources: dict[str, RowSource] = {}
        for name in ("few", "many"):
            numbers = {one: np.arange(n) if name == "few" else rng.integers(0, texts, n) for one in "ab"}
            columns = {one: [f"{one}{k if k < texts else 0}" for k in each] for one, each in numbers.items()}
            path = scratch / f"{name} of {texts}.parquet"
            pl.DataFrame(columns).write_parquet(path)
            sources[name] = open_rows(path, progress=False)
        compare(found, table, f"{texts} by {texts} texts", "a = 'a1'", sources, repeats, where="b <> 'b7'")
    found.tables.append(table)


def compare(
    found: Found,
    table: Table,
    name: str,
    text: str,
    sources: dict[str, RowSource],
    repeats: int,
    where: str | None = None,
) -> None:
    rng = Randomness().generator()
    asked = {
        one: partial(source.tally, build_mean(text, source.schema, where=where), draws=DRAWS, mass=0.005, rng=rng)
        for one, source in sources.items()
    }
    times = alternate(asked, repeats, warm=repeats // 4)
    found.raw[name] = rounded({one: each[::5] for one, each in times.items()})
    fast = {one: float(np.quantile(each, 0.1)) for one, each in times.items()}
    ratio = max(fast.values()) / min(fast.values())
    table.rows.append([name.partition(",")[0], *(shown(fast[one]) for one in sources), f"{ratio:.2f}x"])
    found.ratio(f"{name}, slowest over fastest", ratio, goal=1.5)


def run(small: bool, scratch: Path) -> Found:
    """Time of a tally, by what the rows hold."""
    found = Found("What the time of an answer tells")
    n, repeats = (20_000, 8) if small else (200_000, 120)
    by_share(found, n, repeats)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        by_length(found, n, repeats, Path(folder))
        by_combinations(found, n, repeats, Path(folder))
    return found


if __name__ == "__main__":
    main(run)
