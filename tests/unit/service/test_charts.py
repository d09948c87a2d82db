"""Charts stay inside their frame, on axes that can be read."""

import re
from typing import Any

import pytest

from holdfast.questions.estimate import TOO_FEW
from holdfast.service import charts


def answer(low: float, value: float, high: float, bounds: tuple[float, float] = (0.0, 1.0)) -> dict[str, Any]:
    return {"low": low, "value": value, "high": high, "bounds": bounds}


@pytest.mark.parametrize(
    "shown",
    [answer(0.2, 0.3, 0.4), answer(0, 0, 0), answer(1, 1, 1), answer(-60, 0, 600, (-60, 600)), answer(5, 5, 5, (5, 5))],
)
def test_an_interval_stays_inside_its_axis(shown: dict[str, Any]) -> None:
    (line,) = charts.panel([shown])["lines"]
    x, width = map(float, re.findall(r'class="range" x="([\d.]+)%" width="([\d.]+)%"', line["bar"])[0])
    assert x >= 0
    assert x + width <= 100
    assert 'role="img"' in line["bar"]
    assert "between" in line["bar"]


def test_intervals_of_a_panel_share_an_axis_whose_ends_are_labeled_and_have_equal_digits() -> None:
    drawn = charts.panel([answer(0.2, 0.25, 0.3), answer(0.1, 0.2, 0.41)])
    assert re.findall(r">([\d.]+)</text>", drawn["axis"]) == ["0.1", "0.2", "0.3", "0.4", "0.5"]
    dots = [float(re.findall(r'cx="([\d.]+)%"', line["bar"])[0]) for line in drawn["lines"]]
    assert dots == [37.5, 25.0]  # 0.25 and 0.2 between 0.1 and 0.5
    assert [line["value_text"] for line in drawn["lines"]] == ["0.250", "0.200"]


@pytest.mark.parametrize(
    ("ends", "ticks"),
    [
        ((1_090, 1_880), ["1000", "1200", "1400", "1600", "1800", "2000"]),
        ((560, 8_970), ["0", "2000", "4000", "6000", "8000", "10,000"]),  # as in the numbers beside them
        ((124.6e6, 155.8e6), ["120M", "130M", "140M", "150M", "160M"]),
        ((0.0, 3e13), ["0", "1e+13", "2e+13", "3e+13"]),
        ((1e-9, 3e-9), ["1e-09", "1.5e-09", "2e-09", "2.5e-09", "3e-09"]),
    ],
)
def test_ticks_are_short_and_written_as_the_numbers_beside_them(ends: tuple[float, float], ticks: list[str]) -> None:
    assert charts.Scale.over(ends).ticks == ticks


def test_zero_is_on_the_axis_of_a_difference() -> None:
    drawn = charts.panel([answer(0.03, 0.05, 0.07, (-1.0, 1.0))])
    assert ">0.00<" in drawn["axis"]
    (line,) = charts.panel([answer(-0.01, 0.05, 0.07, (-1.0, 1.0))])["lines"]
    assert 'class="zero"' in line["bar"]


def test_the_cell_that_was_told_is_drawn_and_what_reaches_to_a_bound_ends_at_the_axis() -> None:
    held = answer(0.19, 0.2, 0.22) | {"known": [0.195, 0.205]}
    (line,) = charts.panel([held])["lines"]
    assert 'class="known"' in line["bar"]
    assert 'class="value"' in line["bar"]
    below = answer(0.1, 0.38, 0.41) | {"known": [0.0, 0.39]}
    (line,) = charts.panel([below])["lines"]
    assert re.findall(r'class="known" x="([\d.]+)%"', line["bar"]) == ["0.000"]


@pytest.mark.parametrize("value", [0.8, 0.9])  # the best so far; a guess that is too high
def test_an_edge_of_what_was_told_is_not_drawn_as_a_value(value: float) -> None:
    (line,) = charts.panel([answer(0.0, value, 0.95) | {"known": [0.0, 0.8]}])["lines"]
    assert 'class="value"' not in line["bar"]
    assert re.findall(r'aria-label="(.*?)"', line["bar"])[0].startswith("between 0")


def test_an_empty_budget_and_nothing_can_be_drawn() -> None:
    assert "0 of 0" in str(charts.gauge(0, 0))
    assert charts.panel([])["lines"] == []


def test_a_margin_without_a_promise_looks_different() -> None:
    assert 'class="no-promise"' in charts.margin_bar(0.01, 0.5, promised=False)
    assert 'width="100.00%"' in charts.margin_bar(0.7, 0.5, promised=True)


def test_a_low_budget_looks_different() -> None:
    assert 'class="left low"' in str(charts.gauge(5, 100))
    assert 'class="left"' in str(charts.gauge(50, 100))


def test_what_cannot_be_told_has_an_interval_and_no_mark() -> None:
    line = {"value": None, "low": 0.0, "high": 1.0, "bounds": [0.0, 1.0]}
    (told,) = charts.panel([line])["lines"]
    drawn = told["bar"]
    assert 'class="value"' not in drawn
    assert 'class="nothing"' in drawn
    assert TOO_FEW in drawn
    assert told["value_text"] == TOO_FEW
