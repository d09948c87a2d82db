"""A hidden test set that a team scores against all year: every score has an interval that stays true.

Run it: python examples/shared_test_set.py
"""

import numpy as np

import holdfast as hf


def main() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200_000, 3))
    label = features @ [1.0, -0.5, 0.2] + rng.normal(size=200_000) > 0
    test_set = {"x0": features[:, 0], "x1": features[:, 1], "x2": features[:, 2], "label": label}

    with hf.Session(test_set, queries=2_000, analyst="team") as scores:
        print(scores.plan)
        best = ("", 0.0)
        for weight in np.linspace(-1, 1, 9):  # each candidate is chosen after seeing the earlier scores
            score = scores.mean(f"(x0 + {weight:.2f} * x1 > 0) = label")
            print(f"x0 {weight:+.2f} x1: {score}")
            best = max(best, (f"x0 {weight:+.2f} x1", score.low), key=lambda scored: scored[1])
        print(f"The best rule so far is {best[0]}: right for at least {best[1]:.1%} of the population.")
        print(scores.budget)


if __name__ == "__main__":
    main()
