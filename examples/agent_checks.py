"""An agent that searches the rows it may see, and reports only what the rows it may not see confirm.

Run it: python examples/agent_checks.py
"""

from itertools import combinations

import numpy as np
import polars as pl

import holdfast as hf
from holdfast.lab import populations

CONDITIONS = ("carrier = 'UA'", "carrier = 'DL'", "carrier = 'B6'", "hour < 9", "hour >= 17", "distance > 1500")
MARGIN = 0.02


def main() -> None:
    rows = populations.draw(100_000, np.random.default_rng(0), signals=0)
    explore, held = hf.hold_back(rows, explore=0.5)
    with pl.SQLContext(seen=explore, eager=True) as sql:
        overall = sql.execute("SELECT AVG(CAST(dep_delay > 15 AS INT)) AS late FROM seen")["late"][0]
        found = []
        for group in (" AND ".join(pair) for pair in combinations(CONDITIONS, 2)):  # as wild a search as one likes
            told = sql.execute(
                f"SELECT AVG(CAST(dep_delay > 15 AS INT)) AS late, COUNT(*) AS n FROM seen WHERE {group}"
            )
            late, count = told.row(0)
            if late is not None and count >= 500 and late > overall:
                found.append((late, group))
    for late, group in sorted(found, reverse=True)[:5]:
        answer = held.check("dep_delay > 15", guess=late, margin=MARGIN, where=group)
        verdict = "said" if answer.holds else "not said"
        told = f"{answer.outcome} on the held rows, between {answer.low:.3f} and {answer.high:.3f}"
        print(f"{verdict}: {group}: {late:.3f} where it looked, {told}")
    print(held.budget)
    held.close()


if __name__ == "__main__":
    main()
