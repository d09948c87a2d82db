"""Noise on a grid: what is added to, exactly; how fine the grid is; what is missing without opendp."""

import sys
import warnings
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

import holdfast as hf
from holdfast.errors import MissingExtra
from holdfast.guarantees.plan import VacuousPlan
from holdfast.mechanisms import noisy_means
from holdfast.questions.question import _price


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """Replace the noise by nothing; keep what it was asked for."""
    asked: list[tuple[float, int]] = []

    def quiet(scale: float) -> Any:
        def add(total: int) -> int:
            asked.append((scale, total))
            return total

        return add

    monkeypatch.setattr(noisy_means, "_integer_laplace", quiet)
    monkeypatch.setattr(noisy_means, "_integer_gaussian", quiet)
    return asked


@pytest.mark.parametrize("count", [1, 2, 1000, 2**22, 2**40, 2**61])
def test_the_sum_of_the_grid_fits_into_62_bits(count):
    bits = noisy_means.grid_bits(count)
    assert 1 <= bits <= noisy_means.GRID
    assert count * 2**bits <= 2**62
    assert bits == noisy_means.GRID or count * 2 ** (bits + 2) > 2**62


@pytest.mark.parametrize("values", [[0.0], [1.0] * 7, [0.5, 0.25], list(np.linspace(0, 1, 101))])
def test_without_noise_the_mean_is_the_mean(values, silent):
    array = np.array(values)
    assert noisy_means.laplace_mean(array, 0.1) == pytest.approx(array.mean(), abs=2.0**-noisy_means.GRID)
    assert noisy_means.gaussian_mean(array, 0.1) == noisy_means.laplace_mean(array, 0.1)


def test_one_value_moves_the_sum_by_at_most_one_unit_of_its_noise(silent):
    """Sensitivity 2^bits, noise scale * ell * 2^bits: the answer is 1/(scale ell)-DP on these values."""
    values = np.random.default_rng(1).random(50)
    other = values.copy()
    values[3], other[3] = 0.0, 1.0
    noisy_means.laplace_mean(values, 0.01)
    noisy_means.laplace_mean(other, 0.01)
    (scale, one), (_, two) = silent
    assert abs(two - one) == 2 ** noisy_means.grid_bits(50)
    assert abs(two - one) / scale == pytest.approx(1 / (0.01 * 50))


def test_noise_is_there():
    """Two honest answers of this scale agree with probability below 2^-30."""
    values = np.full(10, 0.5)
    assert noisy_means.laplace_mean(values, 0.1) != noisy_means.laplace_mean(values, 0.1)
    assert noisy_means.gaussian_mean(values, 0.1) != noisy_means.gaussian_mean(values, 0.1)


@pytest.mark.slow
def test_gaussian_noise_is_the_discrete_gaussian():
    """Deviation 2 on the whole numbers, where the rounded continuous law is another one. False alarm: 1e-9."""
    drawn = np.array([noisy_means._integer_gaussian(2.0)(0) for _ in range(20_000)])
    numbers = np.arange(-6, 7)
    law = np.exp(-(numbers**2) / 8) / np.exp(-(np.arange(-60, 61) ** 2) / 8).sum()
    seen = np.array([(drawn == number).sum() for number in numbers])
    statistic = ((seen - len(drawn) * law) ** 2 / (len(drawn) * law)).sum()
    assert statistic < chi2.isf(1e-9, len(numbers))


@pytest.mark.parametrize(
    ("plan", "options", "extra"),
    [
        ({"queries": 50}, {"mechanism": "gaussian"}, "gaussian"),
        ({"queries": 5, "guarantee": "dp"}, {}, "laplace"),
        (
            {"queries": 50, "guarantee": "information"},
            {"kind": "minimize", "radius": 1, "mechanism": "laplace"},
            "laplace",
        ),
    ],
)
def test_without_opendp_the_refusal_names_the_extra_and_is_free(
    plan: dict[str, Any], options: dict[str, Any], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opendp", None)
    _price.cache_clear()
    rows = {"b": [True, False] * 10_000, "x": np.linspace(0, 1, 20_000)}
    subject = hf.losses.Logistic({"x": (0, 1)}, target="b") if "kind" in options else "b"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VacuousPlan)
        session = hf.Session(rows, seed=1, **plan)
    with session, pytest.raises(MissingExtra, match=rf"^{extra.capitalize()} noise needs .* 'holdfast\[{extra}\]'"):
        session.ask(subject, **options)
    assert not session.ledger.begun
