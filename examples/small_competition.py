"""A board for a small competition: three teams, twelve submissions, labels that nobody sees.

Run it: python examples/small_competition.py
"""

import tempfile
from pathlib import Path

import numpy as np
import polars as pl

import holdfast as hf

CASES = 5_000
TEAMS = {"red": 0.62, "green": 0.70, "blue": 0.66}  # how often each is right, on average


def main() -> None:
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        labels = Path(folder) / "labels.csv"
        truth = rng.integers(0, 2, CASES)
        pl.DataFrame({"id": range(CASES), "label": truth}).write_csv(labels)
        with hf.Board(labels, id="id", target="label", metric="accuracy", about="labels") as board:
            for attempt in range(4):  # each team tries again after it has seen how it did
                for team, skill in TEAMS.items():
                    right = rng.random(CASES) < skill + 0.01 * attempt
                    said = pl.DataFrame({"id": range(CASES), "prediction": np.where(right, truth, 1 - truth)})
                    answer = board.submit(said, by=team, name=f"{team} {attempt + 1}")
                    print(f"{team} {attempt + 1}: {answer.outcome}, between {answer.low:.3f} and {answer.high:.3f}")
            print(board.standings().select("rank", "name", "low", "high").head(4))


if __name__ == "__main__":
    main()
