"""Passes whose rows are read together: each counts draws of its own, as if it were tallied alone."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.lab.experiments.cost import CountingRows
from holdfast.mechanisms.coins import Coins
from holdfast.queries.build import build_groups, build_histogram
from holdfast.queries.histogram import HistogramWithin, SomeOutcomes
from holdfast.queries.query import Composed, OnePass
from holdfast.rows import evaluation, local
from holdfast.rows.draws import tossed

N, DRAWS = 400, 300
SIGMAS = 6
TABLE = pl.DataFrame(
    {
        "s": ["a", "b", None, "c", "d", "a", "e", "b"] * 50,
        "x": np.arange(N) % 7,
        "even": np.arange(N) % 2.0,  # as a bias: coins that need no toss
        "u": np.arange(N) // 4,
    }
)
Asked = Callable[[Any, int], tuple[Composed, Sequence[OnePass]]]  # from a schema and a number of passes


def groups(query: str, **options: Any) -> Asked:
    def asked(schema: Any, passes: int) -> tuple[Composed, Sequence[OnePass]]:
        whole = build_groups(query, schema, **({"by": "s", "groups": ["a", "b", "c", "d", "missing"]} | options))
        return whole, whole.in_passes(passes)

    return asked


def bars(value: str, where: str | None = None, **options: Any) -> Asked:
    def asked(schema: Any, passes: int) -> tuple[Composed, Sequence[OnePass]]:
        whole = build_histogram(value, schema, where=where, **options)
        counted = whole.histogram if isinstance(whole, HistogramWithin) else whole
        assert not isinstance(counted, SomeOutcomes)
        count = len(whole.labels)
        edges = [0, 3, 4, count] if passes == 3 else [count * place // passes for place in range(passes + 1)]
        some = [SomeOutcomes(counted, start, stop) for start, stop in pairwise(edges)]
        within = whole.where if isinstance(whole, HistogramWithin) else None
        return whole, some if within is None else [HistogramWithin(one, within) for one in some]

    return asked


ASKED = {
    "a share": groups("x > 2"),
    "a share where": groups("x > 2", where="u < 50"),
    "a share by its own column": groups("s = 'a'"),
    "a mean": groups("even", within=(0, 1)),
    "a mean by a number": groups("even", within=(0, 1), by="x", groups=[0, 1, 2, 3, 9]),
    "a mean by a condition": groups("even", within=(0, 1), where="s < 'd'", by="s > 'a'", groups=[True, False]),
    "two keys": groups("u > 20", by=["s", "x > 3"], groups={"s": ["a", "b", "c"], "x > 3": [True, False]}),
    "categories": bars("s", categories=["a", "b", "c", "d", "missing"]),
    "categories where": bars("s", categories=["a", "b", "c", "d", "missing"], where="x > 2"),
    "bins": bars("u", bins=[0, 10, 20, 30, 40, 50]),
    "bins where": bars("u", bins=[0, 10, 20, 30, 40, 50], where="s < 'd'"),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=list(ASKED))
@pytest.mark.parametrize("passes", [2, 3, 5])
@pytest.mark.parametrize("each", [1, 1_000])  # rows for a combination: counted by combination, or row by row
def test_each_pass_counts_its_own_rows(asked: Asked, passes: int, each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "_EACH", each)
    rows = hf.open(TABLE)
    whole, parts = asked(rows.schema, passes)
    found = rows.tally_passes(whole, parts, draws=DRAWS, mass=0.0, rng=np.random.default_rng(passes))
    drawn = np.random.default_rng(passes).integers(0, N, DRAWS * len(parts)).reshape(len(parts), DRAWS)
    some = 0
    for part, counts, mine in zip(parts, found, drawn, strict=True):
        expected = tossed(part.evaluate(TABLE[mine]), part.statistic.outcomes, np.random.default_rng())
        assert counts.tolist() == expected.tolist()
        some += np.count_nonzero(counts)
    assert some > len(parts)  # not all are outside


@pytest.mark.parametrize("last", [2, 3])  # groups of the last pass: fewer than of the first, or as many
def test_each_pass_is_randomized_among_its_own_outcomes(last: int) -> None:
    """With so much mass, all of a pass of three groups is noise, and 5/7 of one with two."""
    rows, draws = hf.open(TABLE), 70_000
    whole, parts = groups("x > 2", groups=["a", "b", "c", "no", "none", "nothing"][: 3 + last])(rows.schema, 2)
    first, second = rows.tally_passes(whole, parts, draws=draws, mass=1 / 7, rng=np.random.default_rng(8))
    assert first.sum() == second.sum() == draws
    assert [first.size, second.size] == [part.statistic.outcomes for part in parts] == [7, 2 * last + 1]
    for noise in (first, second[1:]):
        assert np.abs(noise - draws / 7).max() < SIGMAS * (draws / 7) ** 0.5
    if last == 3:
        assert first.tolist() != second.tolist()  # noise of its own
    else:
        assert second[0] > 2 * draws / 7  # draws outside, most of which stay


@pytest.mark.parametrize("reason", ["units", "blocks"])
def test_where_they_are_not_read_together_they_are_tallied_one_by_one(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason == "blocks":
        monkeypatch.setattr(local, "_BLOCK", 100)
    rows = hf.open(TABLE, unit="u" if reason == "units" else None)
    whole, parts = ASKED["a share"](rows.schema, 3)
    found = rows.tally_passes(whole, parts, draws=DRAWS, mass=0.01, rng=np.random.default_rng(5))
    rng = np.random.default_rng(5)
    for counts, part in zip(found, parts, strict=True):
        assert counts.tolist() == rows.tally(part, draws=DRAWS, mass=0.01, rng=rng).tolist()


def test_a_source_around_another_sees_every_draw() -> None:
    rows = CountingRows(hf.open(TABLE))
    whole, parts = ASKED["a share"](rows.schema, 3)
    releases = Coins(draws=DRAWS, mass=0.01).release_passes(whole, parts, rows, np.random.default_rng(1))
    assert [release.draws for release in releases] == [DRAWS] * 3
    assert rows.evaluated == 3 * DRAWS
