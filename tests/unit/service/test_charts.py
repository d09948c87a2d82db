"""Charts stay inside their frame and escape what analysts wrote."""

import re
from typing import Any

import pytest

from holdfast.answer import TOO_FEW
from holdfast.service import charts


def answer(low: float, value: float, high: float, bounds: tuple[float, float] = (0.0, 1.0)) -> dict[str, Any]:
    return {"low": low, "value": value, "high": high, "bounds": bounds}


@pytest.mark.parametrize(
    "shown",
    [answer(0.2, 0.3, 0.4), answer(0, 0, 0), answer(1, 1, 1), answer(-60, 0, 600, (-60, 600)), answer(5, 5, 5, (5, 5))],
)
def test_an_interval_stays_inside_its_bar(shown: dict[str, Any]) -> None:
    drawn = str(charts.interval_bar(shown))
    x, width = map(float, re.findall(r'class="range" x="([\d.]+)" y="3" width="([\d.]+)"', drawn)[0])
    assert x >= 0
    assert x + width <= 302
    assert 'role="img"' in drawn
    assert "between" in drawn


def test_questions_are_quoted_in_the_chart() -> None:
    point = answer(0, 0.5, 1) | {"seq": 1, "question": "<script>alert('x')</script>", "shares": [0.5, 0.0, 1.0]}
    drawn = str(charts.answers_over_time([point]))
    assert "<script" not in drawn
    assert "&lt;script&gt;" in drawn


def test_an_empty_budget_and_an_empty_history_can_be_drawn() -> None:
    assert "0 of 0" in str(charts.gauge(0, 0))
    assert "No answers yet" in str(charts.answers_over_time([]))
    assert str(charts.margins([])) == ""


def test_a_low_budget_looks_different() -> None:
    assert 'class="left low"' in str(charts.gauge(5, 100))
    assert 'class="left"' in str(charts.gauge(50, 100))


def test_what_cannot_be_told_has_an_interval_and_no_mark() -> None:
    line = {"value": None, "low": 0.0, "high": 1.0, "bounds": [0.0, 1.0]}
    drawn = charts.interval_bar(line)
    assert 'class="value"' not in drawn
    assert 'class="range"' in drawn
    assert TOO_FEW in drawn
    chart = charts.answers_over_time([{**line, "seq": 1, "question": "q", "shares": [None, 0.0, 1.0]}])
    assert "<circle" not in chart
    assert f"q = {TOO_FEW}" in chart
