"""Answers print well, never in their own favor, never let a question write HTML, and come back from their JSON."""

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any
from xml.etree import ElementTree

import pytest

from holdfast.queries.submission import CELLS
from holdfast.questions import KINDS
from holdfast.questions.answer import Answer, AnyAnswer, Record, record_of
from holdfast.questions.check import CheckAnswer
from holdfast.questions.confusion import ConfusionAnswer
from holdfast.questions.difference import DifferenceAnswer
from holdfast.questions.estimate import Estimate, interval_bar
from holdfast.questions.flips import FlipsAnswer
from holdfast.questions.histogram import HistogramAnswer
from holdfast.questions.history import Registration
from holdfast.questions.minimize import MinimumAnswer
from holdfast.questions.quantile import QuantileAnswer
from holdfast.questions.submit import SubmitAnswer
from holdfast.questions.top import TopAnswer

HOSTILE = "share of s = '<script>alert(1)</script> & \"'"
RECORD = Record("mean", HOSTILE, "posterior", 0.95, rows_read=1_000, cost=2, seq=3, receipt="3:abc")


def answer(value: float = 0.25, low: float = 0.2, high: float = 0.3, **more: Any) -> Answer:
    return replace(Answer(value, low, high, RECORD), **more)


def one_of_each() -> dict[str, AnyAnswer]:
    """An answer of every kind there is."""
    fit = MinimumAnswer(
        point=(0.5, -1.0),
        names=("x<0>", "intercept"),
        coefficients={"x<0>": 2.5, "intercept": -0.25},
        loss=answer(0.5, 0.4, 0.7, bounds=(0.0, 2.0)),
        accuracy=answer(0.75, 0.7, 0.8, record=RECORD._replace(kind="minimize")),
        excess_bound=0.1,
        expected_excess_bound=None,
        distance_bound=0.75,
        coefficient_intervals={"x<0>": (1.0, 4.0), "intercept": (-1.5, 1.0)},
        domain="norm at most 3",
        iterations=7,
        gradient_evaluations=70,
        record=RECORD._replace(kind="minimize"),
    )
    fit = replace(fit, loss=replace(fit.loss, record=fit.record))
    flips, histogram = RECORD._replace(kind="flips"), RECORD._replace(kind="histogram")
    bars = (("<b>&", answer(0.1, 0.0, 0.2, record=histogram)), ("other", answer(0.9, 0.8, 1.0, record=histogram)))
    difference, top = RECORD._replace(kind="difference"), RECORD._replace(kind="top")
    return {
        "mean": answer(1.0, 0.5, 1.5, bounds=(0.0, 2.0)),
        "difference": DifferenceAnswer(
            *(0.25, 0.0, 0.5, difference, (-1.0, 1.0)), Estimate(0.5, 0.4, 0.6), Estimate(0.25, 0.125, 0.375)
        ),
        **{
            kind: answer(0.2, 0.0, 0.25, bounds=(0.0, 0.25), record=RECORD._replace(kind=kind))
            for kind in ("count", "total", "variance", "std", "covariance", "correlation", "slope", "auc", "units")
        },
        "quantile": QuantileAnswer(1.0, 0.5, 1.5, RECORD._replace(kind="quantile"), (0.0, 2.0)),
        "histogram": HistogramAnswer(bars, histogram),
        "top": TopAnswer((("<b>&", answer(0.1, 0.0, 0.2, record=top)),), top, 0.05),
        "flips": FlipsAnswer((0, 1, 1, 0), answer(0.5, 0.1, 0.9, record=flips), flips),
        "minimize": fit,
        "register": Registration(("<b>&", "mean of x"), ("ab", "cd"), RECORD._replace(kind="register")),
        "submit": SubmitAnswer(
            *(True, 0.5, 1.0, (0.75, 0.875), "accuracy", True, "labels", "<b>&", RECORD._replace(kind="submit"))
        ),
        "confusion": ConfusionAnswer(
            tuple((name, answer(0.25, 0.125, 0.5, record=RECORD._replace(kind="confusion"))) for name in CELLS),
            RECORD._replace(kind="confusion"),
        ),
        "check": CheckAnswer("too low", 1.2, 2.0, 1.0, 0.25, RECORD._replace(kind="check"), (0.0, 2.0)),
    }


WIDTHS = [
    (0.25, 0.2, 0.3),
    (0.0, 0.0, 1e-9),
    (1.0, 1 - 1e-9, 1.0),
    (0.123456, 0.123449, 0.123461),
    (5.5, -0.05, 1_000.05),
    (-1e90, -1.5e90, 1.7e98),
    (-0.00004, -0.00005, 0.00004),
    (7.0, 7.0, 7.0),
    (1.7e98, 1.7e98, 1.7e98),
    (2.0, 1.000051, 3.000049),
]


@pytest.mark.parametrize(("value", "low", "high"), WIDTHS)
def test_an_interval_is_never_rounded_in_its_own_favor(value: float, low: float, high: float) -> None:
    one = answer(value, low, high, bounds=(low, high))
    shown = [float(text) for text in one.rounded()]
    assert shown[1] <= low <= high <= shown[2]
    assert shown[2] - shown[1] <= (high - low) * 1.05 + 3e-4
    text = repr(HistogramAnswer((("a", one), ("other", one)), RECORD))
    assert "nan" not in text
    assert "inf" not in text.replace("information", "")


def test_ends_that_mean_any_number_are_infinite_outwards_only() -> None:
    assert answer(0.0, -1e198, 1e198, bounds=(-1e198, 1e198)).rounded()[1:] == ("-∞", "∞")
    assert answer(2e198, 1e198, 3e198, bounds=(0.0, 3e198)).rounded()[1:] == ("1e+198", "∞")


@pytest.mark.parametrize("bounds", [(1e15, 1e15 + 1), (1.7e9, 1.7e9 + 1), (-5.0, 5.0), (0.0, 3.0), (-1e-3, 1e9)])
def test_ends_are_rounded_outwards_in_the_units_of_the_question(bounds: tuple[float, float]) -> None:
    low, high = (Fraction(bound) for bound in bounds)
    for first, last in [(0.2, 0.8), (0.0, 1.0), (0.1, 0.3), (1 / 3, 2 / 3)]:
        estimate = Estimate.within(bounds, (first + last) / 2, (first, last))
        assert Fraction(estimate.low) <= low + (high - low) * Fraction(first)
        assert Fraction(estimate.high) >= low + (high - low) * Fraction(last)
        assert estimate.too_few == ((first, last) == (0.0, 1.0))
        assert bounds[0] <= estimate.low <= estimate.high <= bounds[1]
        assert estimate.too_few or estimate.low <= estimate.value <= estimate.high


def test_an_answer_is_a_number_with_an_interval() -> None:
    one = answer(0.25, 0.2, 0.31)
    low, high = one.interval
    assert (float(one), low, high) == (0.25, 0.2, 0.31)
    assert one.margin == pytest.approx(0.06)
    assert f"{one:.1%}" == format(one, ".1%") == "25.0%"
    assert f"{one}" == str(one) == repr(one)
    assert (one.kind, one.question, one.guarantee, one.confidence) == ("mean", HOSTILE, "posterior", 0.95)
    assert (one.rows_read, one.cost, one.seq, one.receipt, one.cached) == (1_000, 2, 3, "3:abc", False)


def test_answers_are_equal_if_they_say_the_same_also_without_a_value() -> None:
    record = Record("mean", "x", "exchange", 0.95)
    one, same, other = (Answer(float("nan"), 0.0, high, record) for high in (1.0, 1.0, 0.9))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != QuantileAnswer(float("nan"), 0.0, 1.0, record)


def test_small_print() -> None:
    assert "1,000 rows read" in repr(answer())
    assert "asked before, free" in repr(answer(record=RECORD._replace(cached=True)))
    made_up = answer(record=Record("mean", HOSTILE, "posterior", 0.95))
    assert made_up.made_up
    assert not answer().made_up
    assert "made up" in repr(made_up)


def drawn(html: str) -> ElementTree.Element:
    """Parse it: what is not escaped would not be well-formed, or would be a tag of its own."""
    root = ElementTree.fromstring(f"<body>{html}</body>")
    assert root.find(".//script") is None
    return root


@pytest.mark.parametrize("kind", one_of_each())
def test_html_escapes_questions_categories_and_names(kind: str) -> None:
    one = one_of_each()[kind]
    text = "".join(drawn(one._repr_html_()).itertext())
    assert HOSTILE in text
    assert "nan" not in text
    assert {"histogram": "<b>&", "minimize": "x<0>"}.get(kind, "") in text


@pytest.mark.parametrize(("value", "low", "high"), WIDTHS)
def test_the_bar_stays_on_its_line(value: float, low: float, high: float) -> None:
    picture = drawn(interval_bar(answer(value, low, high), (low, high))).find("svg")
    assert picture is not None
    for part in picture.iter("rect"):
        left, width = float(part.attrib["x"]), float(part.attrib["width"])
        assert 0 <= left <= left + width <= float(picture.attrib["width"]) + 1


def test_a_histogram_is_a_mapping() -> None:
    histogram = HistogramAnswer((("1", answer(0.1)), ("other", answer(0.9))), RECORD)
    assert list(histogram) == ["1", "other"]
    assert histogram["1"] is histogram[1]  # type: ignore[index]
    assert len(histogram) == 2
    assert (histogram.cost, histogram.rows_read, histogram.cached) == (2, 1_000, False)
    assert (histogram.seq, histogram.receipt) == (3, "3:abc")
    with pytest.raises(KeyError):
        histogram["2"]


def test_flips_know_what_they_cost() -> None:
    flips = FlipsAnswer((0, 1, 1) * 20, answer(), RECORD)
    assert (len(flips), sum(flips)) == (60, 40)
    assert (flips.cost, flips.rows_read, flips.cached) == (2, 1_000, False)
    assert (flips.seq, flips.receipt) == (3, "3:abc")
    assert "..." in repr(flips)


def test_there_is_an_answer_of_every_kind_to_test() -> None:
    assert set(one_of_each()) == set(KINDS.names())


@pytest.mark.parametrize("kind", one_of_each())
def test_answers_are_plain_json_and_come_back(kind: str) -> None:
    one = one_of_each()[kind]
    sent = json.loads(json.dumps(one.to_dict(), allow_nan=False))
    assert KINDS[kind].read(sent, record_of(sent)) == one
    assert {name: sent[name] for name in one.result()} == one.result()
    assert sent["made_up"] is False
    for label, estimate in one.rows():
        assert label is None or isinstance(label, str)
        assert estimate.low <= estimate.value <= estimate.high
