"""Answers print well, never in their own favor, and never let a question write HTML."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from holdfast.answer import Answer, FlipsAnswer, HistogramAnswer, from_body, interval_bar
from holdfast.planning import plan

HOSTILE = "share of s = '<script>alert(1)</script> & \"'"


def answer(value: float = 0.25, low: float = 0.2, high: float = 0.3, **more: object) -> Answer:
    standing = Answer(
        value,
        low,
        high,
        rows_read=1_000,
        cost=1_000,
        seq=3,
        cached=False,
        guarantee="posterior",
        receipt="3:abc",
        question=HOSTILE,
        confidence=0.95,
    )
    return replace(standing, **more)  # type: ignore[arg-type]


WIDTHS = [
    (0.25, 0.2, 0.3),
    (0.0, 0.0, 1e-9),
    (1.0, 1 - 1e-9, 1.0),
    (0.123456, 0.123449, 0.123461),
    (5.5, -0.05, 1_000.05),
    (-1e300, -1.5e300, 1.7e308),
    (-0.00004, -0.00005, 0.00004),
    (7.0, 7.0, 7.0),
    (1.7e308, 1.7e308, 1.7e308),
    (2.0, 1.000051, 3.000049),
]


@pytest.mark.parametrize(("value", "low", "high"), WIDTHS)
def test_a_promise_is_never_rounded_in_its_own_favor(value: float, low: float, high: float) -> None:
    one = answer(value, low, high, bounds=(low, high))
    told = [float(text) for text in one.rounded()]
    assert told[1] <= low <= high <= told[2]
    assert told[2] - told[1] <= (high - low) * 1.05 + 3e-4
    shown = repr(HistogramAnswer((("a", one), ("other", one))))
    assert "nan" not in shown
    assert "inf" not in shown.replace("information", "")


def test_small_print() -> None:
    assert "1,000 rows read" in repr(answer())
    assert "asked before, free" in repr(answer(cached=True))
    made_up = answer(seq=None, receipt=None)
    assert made_up.made_up
    assert "made up" in repr(made_up)


def drawn(html: str) -> ElementTree.Element:
    """Parse it: what is not escaped would not be well-formed, or would be a tag of its own."""
    root = ElementTree.fromstring(f"<body>{html}</body>")
    assert root.find(".//script") is None
    return root


def test_html_escapes_the_question_and_the_categories() -> None:
    one = answer()
    histogram = HistogramAnswer((("<b>&", one), ("other", one)))
    flips = FlipsAnswer((0, 1, 1), one)
    for shown in (one, histogram, flips):
        text = "".join(drawn(shown._repr_html_()).itertext())
        assert text
        assert "nan" not in text
    assert HOSTILE in "".join(drawn(one._repr_html_()).itertext())
    assert "<b>&" in "".join(drawn(histogram._repr_html_()).itertext())


@pytest.mark.parametrize(("value", "low", "high"), WIDTHS)
def test_the_bar_stays_on_its_line(value: float, low: float, high: float) -> None:
    picture = drawn(interval_bar(answer(value, low, high, bounds=(low, high)))).find("svg")
    assert picture is not None
    for part in picture.iter("rect"):
        left, width = float(part.attrib["x"]), float(part.attrib["width"])
        assert 0 <= left <= left + width <= float(picture.attrib["width"]) + 1


def test_a_histogram_is_a_mapping() -> None:
    histogram = HistogramAnswer((("1", answer(0.1)), ("other", answer(0.9))))
    assert list(histogram) == ["1", "other"]
    assert histogram["1"] is histogram[1]  # type: ignore[index]
    assert len(histogram) == 2
    assert (histogram.cost, histogram.rows_read, histogram.cached) == (1_000, 1_000, False)
    assert (histogram.seq, histogram.receipt) == (3, "3:abc")
    with pytest.raises(KeyError):
        histogram["2"]


def test_flips_know_what_they_cost() -> None:
    flips = FlipsAnswer((0, 1, 1) * 20, answer())
    assert (len(flips), sum(flips)) == (60, 40)
    assert (flips.cost, flips.rows_read, flips.cached) == (1_000, 1_000, False)
    assert (flips.seq, flips.receipt) == (3, "3:abc")
    assert "..." in repr(flips)


def test_answers_are_plain_json_and_come_back() -> None:
    standing = plan(rows=10_000, queries=10)
    question = {"kind": "mean", "text": "t", "bounds": [0.0, 2.0]}
    facts = {"rows_read": 5, "cost": 7, "seq": 1, "receipt": "1:ff"}
    for body, kind in (
        ({"estimate": [1.0, 0.5, 1.5]}, Answer),
        ({"categories": ["a", "other"], "estimates": [[0.1, 0.0, 0.2], [0.9, 0.8, 1.0]]}, HistogramAnswer),
        ({"bits": "0110", "estimate": [0.5, 0.1, 0.9]}, FlipsAnswer),
    ):
        got = from_body(question, body, standing, **facts)  # type: ignore[arg-type]
        assert isinstance(got, kind)
        said = json.loads(json.dumps(got.to_dict(), allow_nan=False))
        assert "estimate" not in said
        assert got == from_body(question, json.loads(json.dumps(body)), standing, **facts)  # type: ignore[arg-type]
