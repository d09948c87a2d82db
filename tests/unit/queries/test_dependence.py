"""Sums that round differently in different batches are no dependence; every kind of dependence is.

A vote adds up numbers, and how numpy rounds a sum depends on how many rows it adds up at once. Functions and mutants
are made from a seed, TRIES of each: none of the former is refused, all of the latter are.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.random import Generator

from examples import QUICK
from holdfast.errors import InvalidQuery
from holdfast.queries.build import build_mean
from holdfast.schema import Column, Schema, Type

TRIES = 2 if QUICK else 200
VOTERS = 25
Function = Callable[[pl.DataFrame], Any]


def schema(type_: Type, *, nullable: bool = False) -> Schema:
    return Schema(tuple(Column(f"c{place}", type_, nullable) for place in range(VOTERS)))


NUMBERS, WHOLE, MISSING = schema(Type.FLOAT), schema(Type.INT), schema(Type.FLOAT, nullable=True)
WEIGHTS = {
    "signs": lambda rng: rng.choice([-1.0, 1.0], VOTERS),
    "tenths": lambda rng: rng.integers(-9, 10, VOTERS) / 10,
    "any": lambda rng: rng.normal(size=VOTERS),
}


@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS)
@pytest.mark.parametrize("columns", [NUMBERS, WHOLE, MISSING], ids=["numbers", "whole", "missing"])
def test_a_vote_is_never_refused(columns: Schema, weights: Callable[[Generator], Any]) -> None:
    for seed in range(TRIES):
        sign = weights(np.random.default_rng(seed))
        build_mean(lambda rows: (rows.to_numpy() @ sign) > 0, columns)  # noqa: B023 - called here
        if seed < TRIES // 10:
            build_mean(lambda rows: rows.to_numpy() @ sign, columns, within=(0, 1))  # noqa: B023


def test_a_trial_says_nothing_in_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    def loud(rows: pl.DataFrame) -> Any:
        warnings.warn("seen", stacklevel=1)
        return np.exp(rows.to_numpy() @ np.ones(VOTERS)) / rows.to_numpy()[:, 0] > 1

    with np.errstate(all="warn"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        build_mean(loud, NUMBERS)
    assert caught == []
    assert capfd.readouterr() == ("", "")


def _x(rows: pl.DataFrame) -> Any:
    return rows["c0"].to_numpy()


def _counting(rng: Generator) -> Function:
    calls, every = [0], int(rng.integers(2, 6))

    def function(rows: pl.DataFrame) -> Any:
        calls[0] += 1
        return _x(rows) > (calls[0] % every == 0)

    return function


def _remembering(rng: Generator) -> Function:
    first: list[float] = []

    def function(rows: pl.DataFrame) -> Any:
        before = list(first)
        first.append(float(np.nanmedian(_x(rows))))
        return _x(rows) > sum(before[-1:])

    return function


def _noisy(rows: pl.DataFrame, rng: Generator, share: float) -> Any:
    return (_x(rows) > 0) ^ (rng.random(len(rows)) < share)


def _vote(rows: pl.DataFrame, rng_weights: Any, center: Callable[[Any], Any]) -> Any:
    votes = rows.to_numpy()
    return ((votes - center(votes)) @ rng_weights) > 0


MUTANTS: dict[str, Callable[[Generator], Function]] = {
    "mean of the batch": lambda rng: lambda rows: _vote(rows, rng.normal(size=VOTERS), lambda m: m.mean(axis=0)),
    "deviation from the mean": lambda rng: lambda rows: _x(rows) - _x(rows).mean(),
    "a little of the mean": lambda rng: (
        lambda part: lambda rows: _x(rows) + part * np.clip(_x(rows), -100, 100).mean()
    )(rng.uniform(1e-6, 1e-3)),
    "largest": lambda rng: lambda rows: _x(rows) == _x(rows).max(),
    "scaled by the largest": lambda rng: lambda rows: _x(rows) / (1 + np.abs(_x(rows)).max()),
    "rank": lambda rng: lambda rows: rows["c0"].rank(),
    "rank above": lambda rng: (lambda place: lambda rows: rows["c0"].rank() > place)(rng.integers(2, 90)),
    "first row": lambda rng: lambda rows: _x(rows) > _x(rows)[0],
    "last row": lambda rng: lambda rows: _x(rows) >= _x(rows)[-1],
    "row before": lambda rng: lambda rows: _x(rows) > np.roll(_x(rows), 1),
    "running sum": lambda rng: lambda rows: np.cumsum(_x(rows)),
    "row number": lambda rng: lambda rows: np.arange(len(rows)) % 2 == 0,
    "number of rows": lambda rng: (lambda most: lambda rows: np.full(len(rows), len(rows) > most))(
        rng.integers(2, 3_000)
    ),
    "number of rows, by the way": lambda rng: (lambda most: lambda rows: (_x(rows) > 0) ^ (len(rows) > most))(
        rng.integers(2, 3_000)
    ),
    "seen before": lambda rng: lambda rows: rows["c0"].is_first_distinct(),
    "seen twice": lambda rng: lambda rows: rows["c0"].is_duplicated(),
    "sorted": lambda rng: lambda rows: rows["c0"].sort(),
    "random": lambda rng: lambda rows: rng.random(len(rows)),
    "random votes": lambda rng: lambda rows: _noisy(rows, rng, 0.5),
    "rarely random": lambda rng: lambda rows: _noisy(rows, rng, 0.05),
    "noise by place": lambda rng: (lambda seed: lambda rows: _noisy(rows, np.random.default_rng(seed), 0.3))(
        rng.integers(1 << 30)
    ),
    "counts calls": _counting,
    "remembers": _remembering,
    "only if one is huge": lambda rng: (lambda huge: lambda rows: (_x(rows) > 0) ^ (_x(rows) > huge).any())(
        10.0 ** rng.uniform(50, 299)
    ),
    "only if one is infinite": lambda rng: lambda rows: (_x(rows) > 0) & ~np.isinf(_x(rows)).any(),
    "only next to the smallest": lambda rng: lambda rows: (_x(rows) > 0) ^ (np.abs(_x(rows)) == 5e-324).any(),
    "the last digits and the number of rows": lambda rng: (
        lambda rows: ((_x(rows).view(np.int64) * 0x9E3779B97F4A7C1) >> 60 & 1 == 1) ^ (len(rows) > 50)
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_every_kind_of_dependence_is_refused(mutant: Callable[[Generator], Function]) -> None:
    missed = []
    for seed in range(TRIES):
        function = mutant(np.random.default_rng(seed))
        try:
            build_mean(function, NUMBERS, within=None if _boolean(function) else (0, 1))
        except InvalidQuery as refusal:
            assert "function of one row" in str(refusal)  # noqa: PT017
        else:
            missed.append(seed)
    assert missed == []


def _boolean(function: Function) -> bool:
    rows = pl.DataFrame({f"c{place}": [0.5, 1.5] for place in range(VOTERS)})
    return np.asarray(function(rows)).dtype == np.bool_
