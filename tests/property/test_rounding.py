"""Intervals are never rounded inwards, wherever they are printed or drawn."""

import re
from fractions import Fraction
from math import inf, nextafter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from holdfast.cli.output import bar
from holdfast.guarantees.exchange import Exchange
from holdfast.guarantees.plan import write_margin
from holdfast.guarantees.terms import Goal
from holdfast.questions.answer import Answer, Record
from holdfast.questions.difference import DifferenceAnswer
from holdfast.questions.estimate import Estimate, interval_bar, times, write_end, write_estimate, written
from holdfast.questions.histogram import HistogramAnswer
from holdfast.questions.minimize import MinimumAnswer
from holdfast.questions.submit import SubmitAnswer
from holdfast.service import charts
from holdfast.session.planning import plan

RECORD = Record("mean", "share of x > 0", "posterior", 0.95)
NUMBER = r"-?[\d,]*\.?\d+(?:e[-+]?\d+)?"
SOME = settings(max_examples=examples(200), deadline=None)

scales = st.integers(-12, 12).map(lambda power: 10.0**power)
ends = st.tuples(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 1), scales)


def estimate_of(end: tuple[float, float, float, float]) -> Estimate:
    low, up, further, scale = end
    first, middle = low * scale, (low + up) * scale
    middle = max(first, middle)
    return Estimate(middle, first, max(middle, (low + up + further) * scale))


def numbers(text: str) -> list[float]:
    return [float(found.replace(",", "")) for found in re.findall(NUMBER, text)]


def covers(text: str, estimate: Estimate) -> bool:
    """Whether the last two numbers of a text are an interval that holds this one."""
    low, high = numbers(text)[-2:]
    return low <= estimate.low and estimate.high <= high


@SOME
@given(ends)
def test_every_text_of_an_interval_holds_it(end: Any) -> None:
    estimate = estimate_of(end)
    bounds = nextafter(estimate.low, -inf), estimate.high  # an interval of the whole range would be none
    answer = Answer(estimate.value, estimate.low, estimate.high, RECORD, bounds)
    histogram = HistogramAnswer((("a", answer),), RECORD)
    point = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    (line,) = charts.panel([point | {"bounds": (estimate.low, estimate.high)}])["lines"]
    label = re.compile(r'aria-label="([^"]*)"')
    texts = [
        " ".join(estimate.rounded()),
        " ".join(write_estimate(estimate, 4)),
        repr(answer).partition("]")[0],
        str(answer).partition("]")[0],
        f"{answer}".partition("]")[0],
        label.findall(interval_bar(answer, answer.bounds))[0],
        answer._repr_html_().partition("<strong>")[2].partition("]")[0],
        repr(histogram).partition("]")[0],
        re.sub(r"<[^>]*>", " ", histogram._repr_html_().partition("<tbody>")[2]).partition("]")[0],
        " ".join(written(estimate)),
        label.findall(line["bar"])[0],
        f"{line['low_text']} {line['high_text']}",
    ]
    assert [text for text in texts if not covers(text, estimate)] == []


@SOME
@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_every_drawing_of_an_interval_holds_it(one: float, two: float, three: float) -> None:
    low, value, high = sorted((one, two, three))
    estimate = Estimate(value, low, high)
    found = re.findall(r'<rect x="([\d.]+)" y="3" width="([\d.]+)"', interval_bar(estimate))[0]
    start, length = map(float, found)
    assert start <= 160 * low + 1 + 1e-9
    assert start + length >= 160 * high + 1 - 1e-9
    scale = charts.Scale.over([low, high])
    drawn = charts.interval_bar({"value": value, "low": low, "high": high, "bounds": (0.0, 1.0)}, scale)
    start, length = map(float, re.findall(r'class="range" x="([\d.]+)%" width="([\d.]+)%"', drawn)[0])
    assert start <= scale.at(low) + 1e-9
    assert start + length >= scale.at(high) - 1e-9
    assert scale.low <= low
    assert high <= scale.high
    assert len(scale.numbers) <= charts.MOST_STEPS + 1
    marks = bar(estimate, width=20).split()[1]
    filled = [place for place, mark in enumerate(marks) if mark != "─"]
    assert filled[0] <= 20 * low
    assert filled[-1] + 1 >= 20 * high


@SOME
@given(st.floats(1e-9, 1), st.integers(1, 6), st.booleans(), scales)
def test_an_end_is_written_outwards(x: float, digits: int, up: bool, scale: float) -> None:
    for number in (x * scale, -x * scale):
        shown = float(write_end(number, digits, up=up))
        assert shown >= number if up else shown <= number
        assert abs(shown - number) <= 2 * 10.0 ** (1 - digits) * abs(number)  # and not far outwards


@SOME
@given(st.floats(0, 1))
def test_a_margin_and_a_bound_are_rounded_up(x: float) -> None:
    assert float(write_margin(x)[1:]) >= x
    loss = Answer(0.5, 0.4, 0.6, RECORD)
    shown = MinimumAnswer.read(
        {
            "names": ["a"],
            "point": [0.0],
            "coefficients": None,
            "loss": loss.result(),
            "accuracy": None,
            "excess_bound": x,
            "expected_excess_bound": x,
            "distance_bound": None,
            "coefficient_intervals": None,
            "domain": "norm at most 1",
            "iterations": 1,
            "gradient_evaluations": 1,
        },
        RECORD,
    )
    assert numbers(repr(shown).splitlines()[-1])[0] >= x


@pytest.mark.parametrize("confidence", [0.999999999, 0.99999999])
def test_no_confidence_is_rounded_to_certainty(confidence: float) -> None:
    from holdfast.guarantees.request import PlanRequest

    plan = PlanRequest(queries=5, margin=None, confidence=confidence, guarantee="best", mechanism="best").make(100_000)
    assert "100%" not in plan.sentence
    assert f"{100 * confidence:.12g}%" in plan.sentence


@SOME
@given(ends, st.booleans(), st.booleans())
def test_the_text_of_a_cell_holds_it(end: Any, improved: bool, higher: bool) -> None:
    _, low, high = estimate_of(end)
    answer = SubmitAnswer(improved, low, high, (low, high), "loss", higher, "rows", None, RECORD)
    found = [float(one) for one in re.findall(NUMBER, dict(answer.details())["on the sealed rows"])]
    rounding = 1e-12 * max(abs(low), abs(high))
    if improved or not higher:
        assert found[0] <= low + rounding
    if improved or higher:
        assert found[-1] >= high - rounding
    assert len(found) == 1 + improved


@SOME
@given(st.tuples(*[st.floats(1e-6, 1)] * 4))
def test_the_text_of_a_relative_difference_holds_it(ends: tuple[float, ...]) -> None:
    first, second = (Estimate((low + high) / 2, low, high) for low, high in (sorted(ends[:2]), sorted(ends[2:])))
    gap = first.low - second.high, first.high - second.low
    answer = DifferenceAnswer(first.value - second.value, *gap, RECORD, (-1.0, 1.0), first, second)
    assert answer.lift is not None
    text = dict(answer.details())["relative"]
    found = re.fullmatch(r"between ([-+][\d.]+)% and ([-+][\d.]+)%", text)
    assert found is not None, text
    low, high = (Fraction(end) / 100 for end in found.groups())
    assert low <= Fraction(answer.lift[0]) <= Fraction(answer.lift[1]) <= high
    assert Fraction(answer.lift[0]) - low < Fraction(1, 1000)
    assert high - Fraction(answer.lift[1]) < Fraction(1, 1000)


@pytest.mark.parametrize("rows", range(1_000, 12_000, 997))
def test_sentences_do_not_promise_more_than_the_terms(rows: int) -> None:
    for more in ({"queries": 1, "guarantee": "checks"}, {"queries": 3, "guarantee": "expectation"}):
        made = plan(rows=rows, **more)
        (written_margin,) = re.findall(r"(?:±|at most )([\d.]+\d)", made.sentence)
        assert float(written_margin) >= made.terms.margin
    (note,) = (one.note for one in Exchange.readings(Goal(rows, 50, 0.95), None) if one.way == "endless")
    (at_first,) = re.findall(r"±([\d.]+\d) at first", note)
    assert float(at_first) >= plan(rows=rows).terms.margin


@SOME
@given(
    st.integers(2, 10**9) | st.integers(2**53, 2**80),
    st.floats(-1e3, 1e3, allow_subnormal=False),
    st.floats(0, 1e3, allow_subnormal=False),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_a_multiple_of_an_interval_holds_the_multiple_of_its_ends(
    size: int, low: float, width: float, one: float, other: float
) -> None:
    """Of a total over a population: also where rows are all at an end of the declared range."""
    high = low + width
    bounds = times(size, (low, high))
    for first, last in (sorted((one, other)), (0.0, 1.0), (one, 1.0), (0.0, one)):
        found = Estimate.within(bounds, first, (first, last))
        exact = [size * (Fraction(low) + (Fraction(high) - Fraction(low)) * Fraction(end)) for end in (first, last)]
        assert found.low <= exact[0]
        assert exact[1] <= found.high


@SOME
@given(st.floats(0, 1), st.floats(0, 1), st.floats(1e-3, 1), st.floats(1e-3, 1))
def test_a_relative_difference_holds_every_pair_of_means(one: float, two: float, three: float, four: float) -> None:
    """Also those at the ends of both intervals, whose quotient no float may be."""
    (a, b), (c, d) = sorted((one, two)), sorted((three, four))
    first, second = Estimate(a, a, b), Estimate(c, c, d)
    answer = DifferenceAnswer(0.0, -1.0, 1.0, RECORD, (-1.0, 1.0), first, second)
    assert answer.lift is not None
    low, high = answer.lift
    assert low <= Fraction(a) / Fraction(d) - 1
    assert Fraction(b) / Fraction(c) - 1 <= high


def test_a_relative_difference_to_next_to_nothing_has_ends() -> None:
    first, second = Estimate(0.5, 0.5, 0.5), Estimate(5e-324, 5e-324, 5e-324)
    lift = DifferenceAnswer(0.5, 0.5, 0.5, RECORD, (-1.0, 1.0), first, second).lift
    assert lift is not None
    assert 1e99 < lift[0] <= lift[1] == inf
