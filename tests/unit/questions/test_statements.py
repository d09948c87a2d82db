"""No question makes more statements about the population than it is charged for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import holdfast as hf
from holdfast.guarantees.coins import CoinGuarantee
from holdfast.questions.question import Drawing
from holdfast.questions.stages import DrawnStages

ROWS = 20_000
RNG = np.random.default_rng(4)
DATA = {
    "x": RNG.random(ROWS),
    "gaps": np.where(RNG.random(ROWS) < 0.2, np.nan, RNG.random(ROWS)),
    "b": RNG.random(ROWS) < 0.3,
    "s": RNG.choice(["a", "b", "cc"], ROWS),
}
# How many exact binomial intervals each of them stands for, by its arguments.
COUNTS: dict[str, Callable[..., int]] = {
    "share": lambda release, part: 1,
    "shares": lambda release, count: count,
    "shares_within": lambda release, count: count + 1,
    "ordered": lambda release, cells: 2 * cells,
    "group": lambda release, part=0: 2,
    "groups": lambda release, count: 2 * count,
    "groups_of_all": lambda releases: sum(2 * count for _, count in releases),
    "difference": lambda *releases: 4,
    "sliced": lambda releases, edges: 1,
}
ASKED: list[tuple[str, str, dict[str, Any]]] = [
    ("b", "mean", {}),
    ("gaps", "mean", {}),
    ("gaps", "mean", {"slices": [0.1, 0.5], "where": "b"}),
    ("x", "mean", {"slices": [0.1, 0.5]}),
    ("x", "mean", {"slices": "auto"}),
    ("gaps", "mean", {"where": "b"}),
    ("x", "mean", {"where": "x > 0.8", "slices": "none"}),
    ("x", "mean", {"where": "x > 0.9"}),
    ("gaps", "total", {}),
    ("b", "mean", {"weight": "x", "largest_weight": 1}),
    ("x", "mean", {"by": "s", "groups": ["a", "b", "cc", "d"]}),
    ("x", "mean", {"by": "s", "groups": ["a", "b", "d"], "slices": "none"}),
    ("gaps", "mean", {"by": "s", "groups": ["a", "b", "d"], "slices": [0.1, 0.5]}),
    ("b", "mean", {"until": 0.2}),
    ("gaps", "std", {}),
    ("x", "covariance", {"other": "gaps"}),
    ("x", "correlation", {"other": "gaps"}),
    ("x", "correlation", {"other": "x"}),
    ("x", "slope", {"other": "gaps"}),
    ("x", "auc", {"positive": "b"}),
    ("x", "auc", {"positive": "b", "cuts": [0.2, 0.4]}),
    ("b", "auc", {"positive": "b"}),
    ("s", "histogram", {"categories": ["a", "b"]}),
    ("s", "histogram", {"categories": ["a", "b"], "where": "b"}),
    ("gaps", "quantile", {"q": 0.5}),
    ("x", "difference", {"group": "b", "other": "NOT b"}),
    ("x", "difference", {"group": "b", "other": "x > 0.9", "slices": "none"}),
    ("gaps", "difference", {"group": "b", "other": "NOT b", "slices": [0.5]}),
    ("gaps", "difference", {"group": "b", "other": "NOT b"}),
    ("gaps / 9", "difference", {"group": "b", "other": "NOT b"}),
    ("gaps", "difference", {"group": "b", "other": "x > 0.999"}),
    ("x", "difference", {"minus": "gaps"}),
]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The levels of all intervals that are worked out, in levels of the question's place."""
    found: list[float] = []
    place: list[float] = []
    inside = [0]

    def counted(name: str) -> Callable[..., object]:
        method = getattr(CoinGuarantee, name)

        def call(self: CoinGuarantee, *args: Any, **options: Any) -> object:
            if not inside[0]:
                found.append(COUNTS[name](*args, **options) * self.level / place[-1])
            inside[0] += 1
            try:
                return method(self, *args, **options)
            finally:
                inside[0] -= 1

        return call

    def begin(self: Drawing, *args: Any, **options: Any) -> None:
        begun(self, *args, **options)
        place.append(self.guarantee.level)

    def imagining(*args: Any) -> tuple[float, float]:
        """Compare widths of imagined counts: nothing is stated."""
        inside[0] += 1
        try:
            return compare(*args)
        finally:
            inside[0] -= 1

    compare = DrawnStages.expected
    monkeypatch.setattr(DrawnStages, "expected", imagining)
    begun = Drawing.__init__
    for name in COUNTS:
        monkeypatch.setattr(CoinGuarantee, name, counted(name))
    monkeypatch.setattr(Drawing, "__init__", begin)
    return found


@pytest.mark.parametrize("plan", [{"queries": 300}, {"queries": 300, "guarantee": "posterior"}, {}])
def test_statements_are_charged(plan: dict[str, Any], made: list[float]) -> None:
    """But for `top`, which leaves the interval of all other texts unsaid: its own tests count.

    Without a plan, histograms and differences have several passes, and areas under curves are refused as noise.
    """
    with hf.Session(DATA, seed=1, bounds={"x": (0, 1), "gaps": (0, 1)}, **plan) as session:
        for query, kind, options in (one for one in ASKED if plan or one[1] != "auc"):
            made.clear()
            before = session.ledger.spent.intervals
            session.ask(query, kind, **options)
            charged = session.ledger.spent.intervals - before
            assert 0.5 <= sum(made) <= charged + 1e-9, (kind, options, made)
            assert charged <= sum(made) + 1 + 1e-9  # nor are many paid for that nobody makes
