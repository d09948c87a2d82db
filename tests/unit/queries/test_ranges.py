"""The range of an expression follows from declared bounds, rounded outward; and a refusal names only what suffices."""

from fractions import Fraction
from math import exp, log, nextafter
from typing import Any

import mpmath
import numpy as np
import pytest

import holdfast as hf
from holdfast.queries.build import build_mean
from holdfast.schema import Column, Schema, Type


def schema(**bounds: tuple[float, float] | None) -> Schema:
    return Schema(tuple(Column(name, Type.FLOAT, True, ends) for name, ends in bounds.items()))


def range_of(text: str, **bounds: tuple[float, float] | None) -> tuple[float, float]:
    return build_mean(text, schema(**bounds)).bounds


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("LN(x)", mpmath.log),
        ("LOG(x)", mpmath.log10),
        ("LOG2(x)", lambda x: mpmath.log(x, 2)),
        ("LOG(0.5, x)", lambda x: mpmath.log(x, 0.5)),
        ("EXP(x)", mpmath.exp),
        ("SQRT(x)", mpmath.sqrt),
    ],
)
def test_the_range_of_a_monotone_function_is_that_of_its_ends_rounded_outward(text: str, function: Any) -> None:
    rng = np.random.default_rng(1)
    with mpmath.workdps(60):
        for _ in range(200):
            low, high = sorted(map(float, rng.random(2) * 10.0 ** rng.integers(-3, 3)))
            ends = sorted(function(mpmath.mpf(x)) for x in (low, high))
            first, last = range_of(text, x=(low, high))
            assert first <= ends[0] <= ends[1] <= last
            assert last - first <= float(ends[1] - ends[0]) + 1e-12 * (1 + abs(first) + abs(last))


def test_ends_that_are_known_exactly_are_not_widened() -> None:
    assert range_of("LN(x)", x=(1, 10))[0] == 0.0
    assert range_of("LOG10(x)", x=(1, 1_000)) == (0.0, 3.0)
    assert range_of("SQRT(x)", x=(-5, 9)) == (0.0, 3.0)
    assert range_of("EXP(x)", x=(0, 1))[0] == 1.0
    _, root = range_of("SQRT(x)", x=(0, 2))
    assert Fraction(root) ** 2 > 2 > Fraction(nextafter(root, 0)) ** 2
    assert range_of("LN(x) - EXP(x)", x=(1, 2)) == pytest.approx((-exp(2), log(2) - exp(1)))


@pytest.mark.parametrize(
    ("text", "bounds"),
    [("LN(x)", (0, 1)), ("LOG(x)", (-1, 1)), ("LOG(x, 2)", (0.5, 3)), ("EXP(x)", (0, 1e4)), ("SQRT(x)", (-2, -1))],
)
def test_where_a_function_has_no_finite_range_one_must_be_given(text: str, bounds: tuple[float, float]) -> None:
    with pytest.raises(hf.InvalidArgument, match="within must say the range"):
        range_of(text, x=bounds)
    assert build_mean(text, schema(x=bounds), within=(0, 1)).bounds == (0.0, 1.0)


def test_a_refusal_names_only_what_suffices() -> None:
    """Whoever does what the message says is not refused again."""
    session = hf.Session({"x": np.arange(1.0, 5_001), "y": np.arange(5_000.0)}, queries=50, bounds={"y": (0, 5_000)})

    def refused(text: str) -> str:
        with pytest.raises(hf.InvalidArgument) as refusal:
            session.sql(f"SELECT {text} FROM data")
        return str(refusal.value)

    assert "bounds={'x': (low, high)}. Here low must be above 0." in refused("AVG(LN(x))")
    assert refused("AVG(SQRT(x))").endswith("bounds={'x': (low, high)}.")
    assert refused("AVG(LN(y))").endswith("It follows from declared bounds that begin above 0.")
    for text in ("AVG(SIN(x))", "AVG(SIN(y))", "AVG(LN(y - 1))"):
        assert "open the session" not in refused(text)
        assert "A question of the kind mean takes a range" in refused(text)
    with hf.Session({"x": np.arange(1.0, 5_001)}, queries=50, bounds={"x": (1, 5_000)}) as declared:
        (line,) = declared.sql("SELECT AVG(LN(x)) FROM data").rows()
        assert line[1] <= np.log(np.arange(1.0, 5_001)).mean() <= line[2]
