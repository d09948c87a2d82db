"""An automated analyst that drills down wherever a share looks high, and can still be believed afterwards.

Run it: python examples/agent_explores.py
"""

import numpy as np

import holdfast as hf
from holdfast.lab import populations

SPLITS = (
    ("carrier = 'UA'", "carrier = 'DL'", "carrier = 'B6'"),
    ("hour < 12", "hour >= 12"),
)


def main() -> None:
    rows = populations.draw(300_000, np.random.default_rng(0), signals=0)
    with hf.Session(rows, queries=500, analyst="agent") as session:
        group: list[str] = []
        for conditions in SPLITS:
            shares = {c: session.mean("dep_delay > 15", where=" AND ".join([*group, c])) for c in conditions}
            worst = max(shares, key=lambda condition: shares[condition].low)  # the choice depends on the answers
            group.append(worst)
            print(f"{worst}: {shares[worst]}")
        print(session.budget)


if __name__ == "__main__":
    main()
