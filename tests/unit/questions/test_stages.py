"""Stages of moments and pairs: they draw what they are charged for, and no more, whatever they show."""

import re
import warnings
from collections.abc import Iterator
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.errors import InvalidArgument
from holdfast.guarantees.mathematics.moments import QuadraticForm
from holdfast.guarantees.statistic import Tally
from holdfast.ledger import Cost
from holdfast.queries.build import build_mean
from holdfast.queries.measures import Quadratic, Sliced
from holdfast.questions import moments
from holdfast.questions.estimate import write_end
from holdfast.questions.imagined import IMAGINED, Imagined
from holdfast.questions.moments import _in_units, correlation_of, deviation_of, slope_of, variance_of
from holdfast.questions.question import Context, Drawing
from holdfast.questions.stages import Found, PlannedStages, edges_of
from holdfast.rows.draws import AllRows
from holdfast.session.session import Session

RNG = np.random.default_rng(1)
DATA = {"x": RNG.random(3_000), "y": RNG.random(3_000), "gaps": np.where(RNG.random(3_000) < 0.2, np.nan, 0.5)}
DATA["same"] = DATA["x"]
CALLS = {
    "variance": ("x",),
    "std": ("gaps",),
    "covariance": ("x", "y"),
    "correlation": ("x", "y"),
    "slope": ("x", "gaps"),
}


@pytest.mark.parametrize(
    ("ask", "rule"),
    [
        (lambda s: s.variance("x", within=(-8e307, 8e307)), "narrower"),
        (lambda s: s.variance("x", within=(0, 1e-200)), "wider"),
        (lambda s: s.covariance("x", "y", within=(0, 1e200), other_within=(0, 1e200)), "narrower"),
        (lambda s: s.difference("x", "y > 0.5", within=(-8e307, 8e307)), "narrower"),
        (lambda s: s.difference("x", minus="y", within=(0, 1.7e308)), "narrower"),
        (lambda s: s.mean("x * 1e-300"), "a pair"),
        (lambda s: s.mean("x", within=(0, 5e-324)), "a pair"),
    ],
)
def test_ranges_that_overflow_are_refused_before_a_row_is_read(ask: Any, rule: str) -> None:
    with Session(DATA, queries=40, seed=1, bounds=dict.fromkeys(DATA, (0, 1))) as session:
        with pytest.raises(InvalidArgument, match=f"within must be {rule}"):
            ask(session)
        assert session.ledger.spent.charge == 0


@pytest.mark.parametrize("guarantee", ["exchange", "posterior", "dp", "split"])
@pytest.mark.parametrize("kind", CALLS)
def test_stages_draw_what_they_are_charged_for(kind: str, guarantee: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, release = [], Drawing.release

    def counted(self: Drawing, query: object, draws: int) -> object:
        drawn.append(self.guarantee.charge(query.statistic, draws))  # type: ignore[attr-defined]
        return release(self, query, draws)  # type: ignore[arg-type]

    monkeypatch.setattr(Drawing, "release", counted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = Session(DATA, queries=40, seed=1, guarantee=guarantee, bounds=dict.fromkeys(DATA, (0, 1)))
    with session as s:
        questions = [CALLS[kind], *([("x", "same")] if kind in ("correlation", "slope") else [])]
        for columns in questions:
            drawn.clear()
            before = s.ledger.spent.charge
            getattr(s, kind)(*columns)
            charged = s.ledger.spent.charge - before
            assert charged - 80 <= sum(drawn) <= charged  # slices are rounded down


def test_edges_are_near_zero() -> None:
    assert edges_of(-1.0, 3.0) == pytest.approx((0, 0.225, 0.2475, 0.2575, 0.325, 1))
    assert edges_of(0.0, 2.0) == (0.0, 0.04, 0.2, 1.0)
    assert edges_of(-1.0, 1.0, [0.0]) == (0.0, 0.5, 1.0)


def test_a_form_of_rows_without_a_value_is_zero_everywhere_or_left_out() -> None:
    with Session(DATA, queries=10, seed=1) as s:
        measure = build_mean("gaps", s.schema, within=(0, 1))
    frame = pl.DataFrame({"gaps": [0.5, None, 1.0]})
    form = QuadraticForm(xx=1.0, about=(0.5, 0.0))
    assert Quadratic((measure,), form, everywhere=True).evaluate(frame).tolist() == [0.0, 0.0, 1.0]
    left_out = Quadratic((measure,), form).evaluate(frame)
    assert np.isnan(left_out[1])
    assert left_out[[0, 2]].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("where", [None, "g", "g AND x IS NOT NULL"])
def test_slices_are_narrower_where_values_crowd_and_hold(where: str | None) -> None:
    """Also in a group, at the same price: rows outside it are put where the mean is, and not at an end of the range."""
    rng = np.random.default_rng(2)
    x = np.minimum(600.0, rng.standard_exponential(200_000) * 15)
    missing = rng.random(200_000) < 0.1
    data = {"x": np.where(missing, np.nan, x), "g": rng.random(200_000) < 0.3}
    with Session(data, queries=200, seed=1) as s:
        plain, sliced = (
            s.mean("x", within=(-60, 600), where=where, slices=slices) for slices in ("none", [0.0, 40.0, 150.0])
        )
    assert sliced.cost == plain.cost == 2
    assert sliced.low <= 15 <= sliced.high
    assert sliced.high - sliced.low < 0.75 * (plain.high - plain.low)


@pytest.mark.parametrize("kind", [*CALLS, "mean"])
@pytest.mark.parametrize("ones", [(0.01, 0.99), (0.99, 0.01), (0.99, 0.99)])
def test_coins_that_contradict_each_other_are_no_error(
    kind: str, ones: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As good as no row counts, by their own coins, while those of slices say that all are full; or the reverse."""

    def contradictory(self: Drawing, query: Any, draws: int) -> Tally:
        share = ones[0] if isinstance(query, Sliced) and query.place < 0 else ones[1]
        return Tally((share,), draws, (draws - int(share * draws), int(share * draws)), (1,))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = Session(DATA, queries=40, seed=1, guarantee="exchange", bounds=dict.fromkeys(DATA, (0, 1)))
    monkeypatch.setattr(Drawing, "release", contradictory)
    with session as s:
        columns = ("gaps", "gaps")[: len(CALLS.get(kind, ("gaps",)))]
        found = s.mean("gaps", slices=[0.5]) if kind == "mean" else getattr(s, kind)(*columns)
    low, high = found.bounds
    assert low <= found.low <= found.high <= high
    assert found.too_few or found.low <= found.value <= found.high


def test_stages_that_contradict_each_other_leave_everything_open() -> None:
    class Contradicting(PlannedStages):
        def center(self) -> None:
            self.centers, self.offsets = (0.0, 0.0), [(0.4, 0.5), (0.0, 0.0)]

        def central(self, form: QuadraticForm, draws: int) -> Found:
            return -0.06, (-0.1, -0.06)

    for moment in (variance_of, deviation_of):
        found, within = moment(Contradicting((), 1_000, True))
        estimate, bounds = _in_units(found, within, Fraction(1), rounded=False)
        assert (estimate.low, estimate.high) == bounds


@pytest.mark.parametrize("end", [0.0, -0.01])
@pytest.mark.parametrize("sliced", [True, False])
def test_a_variance_that_seems_to_be_zero_or_less_is_no_error_and_no_upper_end_of_a_quotient(
    end: float, sliced: bool
) -> None:
    class Contradicting(PlannedStages):
        def center(self) -> None:
            self.centers, self.offsets = (0.0, 0.0), [(0.0, 0.0), (0.0, 0.0)]

        def central(self, form: QuadraticForm, draws: int) -> Found:
            squares = form.xy == 0
            return (end, (end - 0.1, end)) if squares else (0.02, (0.01, 0.03))

    for moment in (slope_of, correlation_of):
        found, within = moment(Contradicting((), 1_000, sliced))
        estimate, bounds = _in_units(found, within, Fraction(1), rounded=moment is slope_of)
        assert bounds[0] <= estimate.low <= estimate.high == bounds[1]


@pytest.mark.parametrize("end", [0.0, -0.01])
@pytest.mark.parametrize("ends", [(0.01, 0.03), (-0.03, -0.01), (0.0, 0.02), (0.0, 0.0)])
def test_one_variance_that_seems_to_be_zero_or_less_makes_no_correlation_certain(
    end: float, ends: tuple[float, float]
) -> None:
    class Contradicting(PlannedStages):
        def center(self) -> None:
            self.centers, self.offsets = (0.0, 0.0), [(0.0, 0.0), (0.0, 0.0)]

        def central(self, form: QuadraticForm, draws: int) -> Found:
            if form.xy != 0:
                return sum(ends) / 2, ends
            return (end, (end - 0.1, end)) if form.xx else (0.02, (0.01, 0.03))

    found, within = correlation_of(Contradicting((), 1_000, True))
    estimate, bounds = _in_units(found, within, Fraction(1), rounded=False)
    assert (estimate.low, estimate.high) == bounds


@pytest.mark.parametrize(("kind", "others"), [("correlation", ["y"]), ("slope", ["y"]), ("std", [])])
def test_a_price_says_how_wide_a_moment_will_be(kind: str, others: list[str]) -> None:
    rng = np.random.default_rng(3)
    frame = pl.DataFrame({name: rng.normal(size=200_000).clip(-5, 5) for name in ("x", "y")})
    options = {"within": (-5, 5)} | ({"other": "y", "other_within": (-5, 5)} if others else {})
    session = hf.Session(frame, queries=300, complete=["x", "y"], seed=4)
    price = str(session.price("x", kind, **options))
    said = float(re.search(r"10%: about ±([0-9.]+)", price)[1])  # type: ignore[index]
    answer = session.ask("x", kind, **options)
    assert (answer.high - answer.low) / 2 == pytest.approx(said, rel=0.5)
    wide = {name: (-500, 500) if "within" in name else value for name, value in options.items()}
    assert ("2%: it will say nothing" in str(session.price("x", kind, **wide))) == (kind != "std")


PAIR = {"within": (-5, 5), "other": "y", "other_within": (0, 2)}


def said_and_found(
    kind: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, queries: int | None = 300
) -> Iterator[tuple[str, str]]:
    """Yield, for each deviation, what a price says, and the margin of an answer where all counts are as expected.

    The rows are normal numbers with that deviation, in the middle of their ranges: as a price imagines them.
    """
    for deviation in moments.DEVIATIONS:
        law = NormalDist(0.5, deviation)
        parts = [law.inv_cdf((place + 0.5) / IMAGINED) for place in range(IMAGINED)]
        x, y = (np.tile(np.clip(each.ravel(), 0, 1), 400) for each in np.meshgrid(parts, parts))
        session = hf.Session({"x": 10 * x - 5, "y": 2 * y}, queries=queries, complete=["x", "y"], seed=4)
        said = re.search(rf"{deviation:.0%}: ([^,;]*)", str(session.price("x", kind, **options)))

        def expected(self: Drawing, query: Any, draws: int) -> Tally:
            mass, mean = self.guarantee.coin_mass, self.source.sample(query, AllRows(), self.rng).mean()
            ones = round(draws * (mass + (1 - 2 * mass) * float(mean)))
            counts = draws - ones, ones
            return Tally(query.statistic.from_counts(counts, draws, mass=mass), draws, counts, query.statistic.reported)

        with monkeypatch.context() as patched:
            patched.setattr(Drawing, "release", expected)
            answer = session.ask("x", kind, **options)
        margin = float(write_end((answer.high - answer.low) / 2, 2, up=True))
        yield said[1], "it will say nothing" if answer.too_few else f"about ±{margin:,g}"  # type: ignore[index]


@pytest.mark.parametrize(("kind", "options"), [("correlation", PAIR), ("slope", PAIR), ("std", {"within": (-5, 5)})])
def test_a_price_says_the_margin_of_what_is_expected_to_the_digit(
    kind: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for queries in (300, None):
        for said, found in said_and_found(kind, options, monkeypatch, queries):
            assert said == found


@pytest.mark.parametrize("wrong", ["other deviations", "no noise", "after other questions"])
def test_a_price_that_imagines_something_else_is_caught(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if wrong == "other deviations":
        spread = Imagined.spread
        monkeypatch.setattr(Imagined, "spread", lambda of, at, deviation, _: spread(of, at, 1.2 * deviation))
    elif wrong == "no noise":
        monkeypatch.setattr(Imagined, "release", without_noise)
    else:
        certifying = Context.certifying
        monkeypatch.setattr(
            Context, "certifying", lambda self, cost: certifying(self, Cost(9 * cost.charge, 9 * cost.intervals))
        )
    pairs = list(said_and_found("std", {"within": (-5, 5)}, monkeypatch, None))
    assert any(said != found for said, found in pairs)


def without_noise(self: Imagined, query: Any, draws: int) -> Tally:
    """Forget that coins are randomized."""
    ones = round(draws * float(np.mean(query.combined(self.values))))
    counts = draws - ones, ones
    values = query.statistic.from_counts(counts, draws, mass=self.guarantee.coin_mass)
    return Tally(values, draws, counts, query.statistic.reported)


def test_slices_that_would_not_be_cut_are_refused() -> None:
    session = hf.Session({"x": np.arange(1_000.0)}, queries=5, complete=["x"])
    with pytest.raises(hf.InvalidArgument, match=r"slices need at least 64 rows for one answer.* this one reads 63"):
        session.price("x", within=(0, 1_000), slices=[10, 100], rows_per_query=63)
    assert session.price("x", within=(0, 1_000), slices=[10, 100], rows_per_query=64).rows_read == 64


def test_a_slope_whose_range_is_no_number_is_refused_before_anything_is_paid() -> None:
    frame = pl.DataFrame({"x": [0.0, 1e-151] * 10_000, "y": [0.0, 1e199] * 10_000})
    with hf.Session(frame, queries=20, bounds={"x": (0.0, 1e-150), "y": (0.0, 1e200)}) as session:
        with pytest.raises(InvalidArgument, match="other_within must not be so much wider"):
            session.slope("x", "y")
        assert not session.ledger.begun


def test_a_pair_of_columns_with_ranges_of_their_own_has_the_range_that_contains_both() -> None:
    rng = np.random.default_rng(2)
    columns = {"x": rng.random(20_000) * 5, "y": rng.random(20_000) * 5 + 1, "b": rng.random(20_000) < 0.5}
    bounds: Any = {"x": (0, 5), "y": (1, 6)}
    with Session(columns, queries=50, seed=1, bounds=bounds) as session:
        found = session.difference("y", minus="x")
        assert found.bounds == (-6.0, 6.0)
        assert found.low < 1 < found.high
        assert session.difference("y", minus="x", within=(0, 6)).cached
        assert session.difference("x / 5", minus="b").bounds == (-1.0, 1.0)
        with pytest.raises(hf.InvalidArgument, match="must have the same range"):
            session.difference("y", minus="b")
