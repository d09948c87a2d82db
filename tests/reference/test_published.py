"""Numbers this package stands by: what it promises at sizes that were worked out independently.

Margins at 95 % (or 99.9%) for all answers at once, and rows for a margin of 0.1 and 1,000 queries. The posterior
and information values were computed with the Hoeffding form of the coins' interval, so the exact one must do better,
but not by more than the exact interval can gain (6%).
"""

from math import exp, sqrt
from typing import Any

import numpy as np
import pytest
from benchmarks import published
from scipy.stats import norm

from holdfast import plan
from holdfast.guarantees import posterior
from holdfast.guarantees.mathematics import privacy, sizes
from holdfast.guarantees.mathematics.concentration import clopper_pearson_width

# As the numbers were worked out: so many questions and no more, identical rows, as many rows read as is best.
PLAIN: dict[str, Any] = {"end": True, "identical": True, "rows_per_query": "best"}


@pytest.mark.parametrize(
    ("rows", "queries", "confidence", "guarantee", "least", "most"),
    [
        (10**6, 10**4, 0.95, "posterior", 0.0372, 0.0398),
        (10**5, 10**3, 0.95, "posterior", 0.0645, 0.0695),
        (10**7, 10**6, 0.95, "posterior", 0.0400, 0.0425),
        (10**6, 10**4, 0.999, "posterior", 0.0480, 0.0512),
        (10**6, 10**4, 0.95, "information", 0.0480, 0.0516),
        (10**5, 10**3, 0.95, "information", 0.0820, 0.0885),
        (10**7, 10**6, 0.95, "information", 0.0515, 0.0548),
        (10**6, 10**4, 0.999, "information", 0.130, 0.146),
        (10**6, 10**4, 0.95, "split", 0.2535, 0.2545),
        (10**5, 10**3, 0.95, "split", 0.2300, 0.2305),
        (10**7, 10**6, 0.95, "split", 0.93, 0.95),
    ],
)
def test_margin(rows, queries, confidence, guarantee, least, most):
    mechanism = "best" if guarantee == "split" else "coins"
    found = plan(rows=rows, queries=queries, confidence=confidence, guarantee=guarantee, mechanism=mechanism)
    assert least <= found.margin <= most


@pytest.mark.parametrize(
    ("guarantee", "mechanism", "least", "most"),
    [
        ("exchange", "coins", 2.14e4, 2.18e4),
        ("posterior", "coins", 4.0e4, 5.0e4),
        ("information", "coins", 6.5e4, 7.9e4),
        ("paper", "laplace", 4.15e8, 4.35e8),
        ("split", "best", 5.25e5, 5.35e5),
    ],
)
def test_rows_for_a_tenth_and_a_thousand_queries(guarantee, mechanism, least, most):
    found = plan(queries=1000, margin=0.1, guarantee=guarantee, mechanism=mechanism, **PLAIN)
    assert least <= found.rows <= most


@pytest.mark.parametrize(
    ("rows", "queries", "margin"),
    [
        (10**6, 10**4, 0.02452),
        (10**5, 10**3, 0.04512),
        (10**7, 10**6, 0.02495),
        (10**4, 10**2, 0.08785),
        (2 * 10**4, 10**2, 0.0606),
        (336_776, 500, 0.0205),
        (10**8, 10**4, 0.0024),
    ],
)
def test_margins_of_the_exchange_guarantee(rows, queries, margin):
    found = plan(rows=rows, queries=queries, **PLAIN)
    assert found.guarantee == "exchange"
    assert found.margin == pytest.approx(margin, rel=0.005)


@pytest.mark.parametrize(
    ("rows", "queries", "margins"),
    [
        (10**6, 10**4, (0.02444, 0.02553, 0.02691)),
        (10**5, 10**3, (0.04488, 0.04761, 0.05099)),
        (10**7, 10**6, (0.02486, 0.02555, 0.02646)),
        (10**4, 10**2, (0.08723, 0.09465, 0.10369)),
        (2 * 10**4, 2 * 10**3, (0.12367, 0.13076, 0.13967)),
    ],
)
def test_constants_for_three_outcomes_cost_little(rows, queries, margins):
    """These were worked out for draws with two outcomes; any question may have three, and that costs 0.6%."""
    for confidence, margin in zip((0.95, 0.99, 0.999), margins, strict=True):
        found = plan(rows=rows, queries=queries, confidence=confidence, **PLAIN)
        assert margin <= found.margin * 1.0002
        assert found.margin <= 1.0065 * margin


@pytest.mark.parametrize(
    ("rows", "queries", "best"),
    [
        (10**6, 10**4, "exchange"),
        (10**5, 10**3, "exchange"),
        (300, 10, "exchange"),
        (10**6, 1, "posterior"),
        (10**4, 1, "posterior"),
        (300, 3, "posterior"),
    ],
)
def test_few_questions_are_narrower_by_the_posterior_guarantee(rows, queries, best):
    by = {name: plan(rows=rows, queries=queries, guarantee=name, **PLAIN).margin for name in ("exchange", "posterior")}
    assert min(by, key=lambda name: by[name]) == best
    coins = plan(rows=rows, queries=queries, mechanism="coins", **PLAIN)
    assert coins.guarantee == best
    assert coins.margin == by[best]


def test_a_rate_of_reading_has_a_margin():
    """n = 10^6, k = 10^4 at as many rows an answer as the posterior guarantee's best plan reads."""
    assert plan(rows=10**6, queries=10**4, **(PLAIN | {"rows_per_query": 18_309})).margin == pytest.approx(
        0.0271, rel=0.005
    )
    assert plan(rows=10**5, queries=10**3, **(PLAIN | {"rows_per_query": 5_105})).margin == pytest.approx(
        0.0498, rel=0.005
    )


def test_too_few_rows_are_called_too_few():
    found = plan(rows=2000, queries=2000, guarantee="information", mechanism="coins")
    assert 0.70 < found.margin < 0.76
    assert "says nothing" in str(found)


@pytest.mark.parametrize(
    ("rows", "ell", "queries", "mass", "split", "chi"),
    [
        (10**6, 18309, 10**4, 0.0109, 0.812, 0.00138),
        (10**5, 5105, 10**3, 0.0195, 0.780, 0.00409),
        (10**7, 21386, 10**6, 0.0113, 0.853, 0.00158),
        (2 * 10**4, 654, 2 * 10**3, 0.0449, 0.775, 0.0302),
        (10**4, 1398, 10**2, 0.0391, 0.739, 0.0129),
    ],
)
def test_chi(rows, ell, queries, mass, split, chi):
    """The table's settings are rounded to three digits, so chi is met to about one per cent."""
    assert posterior.chi(rows, ell * queries, mass, split * 0.05) == pytest.approx(chi, rel=0.01)


@pytest.mark.parametrize(
    ("mass", "reach"),
    [
        (0.0109, (0.0378, 0.0241, 0.0106, 0.0075, 0.0071)),
        (0.005, (0.0381, 0.0241, 0.0099, 0.0061, 0.0055)),
        (0.002, (0.0391, 0.0247, 0.0096, 0.0052, 0.0045)),
    ],
)
def test_rare_events_stay_narrow(mass, reach):
    """hi - q at the mean count; n = 10^6, k = 10^4, the best number of draws and split for each mass."""

    def margin(ell: int, split: float) -> float:
        width = clopper_pearson_width(ell, posterior.level((1 - split) * 0.05, k=10**4)) / (1 - 2 * mass)
        return float(width) + posterior.chi(10**6, ell * 10**4, mass, split * 0.05) ** 0.5 / 2

    settings = [(ell, split / 100) for ell in range(10_000, 22_000, 250) for split in range(70, 95, 2)]
    ell, split = min(settings, key=lambda pair: margin(*pair))
    chi = posterior.chi(10**6, ell * 10**4, mass, split * 0.05)
    level = posterior.level((1 - split) * 0.05, k=10**4)
    for q, expected in zip((0.5, 0.1, 0.01, 0.001, 0.0001), reach, strict=True):
        count = round(ell * (mass + (1 - 2 * mass) * q))
        _, high = posterior.outcome_interval(count, ell, outcomes=2, mass=mass, chi=chi, level=level)
        assert high - q == pytest.approx(expected, rel=0.03)


def test_the_papers_rows_per_query():
    assert sizes.a1(0.1, 0.05, 1000).ell == pytest.approx(2.1e5, rel=0.01)


# What others have proved, as their papers and programs have it.


def test_contenders_have_the_widths_of_their_papers():
    """Rogers et al. as their program prints it and with the noise its privacy needs; the Ladder; Guess-and-Check."""
    n, k, beta = 10**6, 10**4, 0.05
    assert published.gaussian_by_rogers(n, k, beta, as_written=True) == pytest.approx(0.0584, abs=5e-5)
    assert published.gaussian_by_rogers(n, k, beta) == pytest.approx(0.0820, abs=5e-5)
    assert published.gaussian_by_jung(n, k, beta) == pytest.approx(0.0785, abs=5e-5)
    assert published.ladder(n, k, beta) == pytest.approx(0.0373, abs=5e-5)
    assert published.ladder(10**5, 10**3, beta) == pytest.approx(0.0754, abs=5e-5)
    assert published.guess_and_check(n, k, 100, 0.01, beta) == pytest.approx(0.0089, abs=5e-5)
    assert published.guess_and_check(n, k, 0, 0.5, beta) == pytest.approx(0.0048, abs=5e-5)
    # What `conf_width_RZ_new` and `mgf_width` of the code of Rogers et al. print, at its commit 31c63f6.
    assert published.gaussian_by_rogers(10**5, 10**3, beta, as_written=True) == pytest.approx(0.10172131, abs=1e-7)
    assert published.guess_and_check(10**5, 10**3, 10, 0.5, beta) == pytest.approx(0.0366661, abs=2e-7)
    assert published.guess_and_check(10**5, 10**3, 0, 0.01, beta) == pytest.approx(0.0029530, abs=2e-7)
    # `bounds_Thresh` with its squares added up: 0.2287 and 0.4085 with 400 draws, which scatter by a percent.
    assert published.thresholdout(n, k, 100, beta) == pytest.approx(0.2287, rel=0.015)
    assert published.thresholdout(10**5, 10**3, 20, beta) == pytest.approx(0.4085, rel=0.015)


@pytest.mark.parametrize(("n", "k"), [(10**6, 10**4), (10**5, 10**3), (10**4, 100)])
def test_no_other_choice_of_numbers_makes_jung_narrower(n, k):
    best, rng = published.gaussian_by_jung(n, k, 0.05), np.random.default_rng(1)
    scale, widths = sqrt(sqrt(k) / n), []
    for sigma, epsilon, c, d in np.exp(rng.normal(np.log(scale * np.array([0.63, 3.2, 0.1, 0.3])), 0.4, (400, 4))):
        mu = sqrt(k) / (n * sigma)
        delta = norm.cdf(mu / 2 - epsilon / mu) - exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        if delta / d < 0.05:
            on_rows = (0.05 - delta / d) * c
            width, _ = privacy.jung(sigma * norm.isf(on_rows / (2 * k)), on_rows, epsilon, delta, c=c, d=d)
            widths.append(width)
    assert len(widths) > 200
    assert best * (1 - 1e-6) <= min(widths) < best * 1.01
