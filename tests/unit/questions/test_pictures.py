"""Pictures: every interval is drawn where it is, in both themes, and nothing that has no value gets a dot."""

from math import nan
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import holdfast as hf
from holdfast.questions.answer import Answer, Record
from holdfast.questions.estimate import Estimate, rounded_alike
from holdfast.questions.plot import MOST_LINES, THEMES, Line, Panel, Picture, picture_lines

pytest.importorskip("matplotlib")


def answer(**more: Any) -> Answer:
    return Answer(0.25, 0.2, 0.31, Record("mean", "share of x > 0", "exchange", 0.95, seq=3), **more)


def drawn(picture: Picture, theme: str = "light") -> list[tuple[list[tuple[float, float]], list[float], list[str]]]:
    """Return of every panel the ends of the bars, the dots, and the texts beside them."""
    found = []
    for axes in picture.figure(theme).axes:
        bars = [(float(one[0][0]), float(one[1][0])) for bars in axes.collections for one in bars.get_segments()]
        dots = [float(line.get_xdata()[0]) for line in axes.lines]
        (numbers,) = axes.child_axes
        found.append((bars, dots, [label.get_text() for label in numbers.get_yticklabels()]))
    return found


@pytest.mark.parametrize("theme", THEMES)
def test_an_answer_is_drawn_where_it_is(theme: str) -> None:
    assert drawn(answer().plot(), theme) == [([(0.2, 0.31)], [0.25], ["0.250  [0.200, 0.310]"])]


def test_too_few_rows_have_a_bar_and_no_dot() -> None:
    lines = picture_lines([("a", Estimate(0.5, 0.4, 0.6)), ("b", Estimate(nan, 0.0, 1.0))])
    ((bars, dots, texts),) = drawn(Picture([Panel("groups", tuple(lines), (0.0, 1.0))]))
    assert bars == [(0.4, 0.6), (0.0, 1.0)]
    assert dots == [0.5]
    assert texts[1] == "too few rows to tell  [0.000, 1.000]"


def test_the_axis_shows_every_interval_and_little_beyond_the_bounds() -> None:
    for low, high in ((0.0, 0.01), (0.2, 0.3), (0.99, 1.0), (0.5, 0.5)):
        picture = Picture([Panel("", (Line("", low, low, high, ""),), (0.0, 1.0))])
        first, last = picture.figure().axes[0].get_xlim()
        assert -0.02 <= first <= low <= high <= last <= 1.02


def test_digits_are_equal_and_ends_go_outwards() -> None:
    narrow, wide = Estimate(0.12344, 0.12341, 0.12349), Estimate(0.5, 0.11119, 0.99991)
    texts = rounded_alike([narrow, wide])
    assert texts == [("0.1234", "0.1234", "0.1235"), ("0.5000", "0.1111", "1.0000")]
    assert rounded_alike([]) == []


def test_answers_of_a_history_share_an_axis_where_they_can() -> None:
    ends = [(0.1, 0.2), (0.3, 0.4), (5.0, 7.0), (-1.0, 2.0), (1e8, 2e8)]
    history = pl.DataFrame(
        {
            "seq": [1, 2, 2, 3, 4],  # the second asks about two groups; one of them could be a share
            "question": ["share of x", *["mean of y by z"] * 2, "mean of y", "total of y"],
            "category": [None, "a", "b", None, None],
            "kind": [*["mean"] * 4, "total"],
            "value": [0.15, 0.35, 6.0, 0.5, 1.5e8],
            "low": [low for low, _ in ends],
            "high": [high for _, high in ends],
        }
    )
    assert [bars for bars, _, _ in drawn(hf.plot(history))] == [ends[:1], ends[1:4], ends[4:]]


def test_frames_are_drawn(tmp_path: Path) -> None:
    history = pl.DataFrame(
        {
            "question": ["share of x", "mean of y"],
            "category": [None, None],
            "value": [0.5, 20.0],
            "low": [0.4, 10.0],
            "high": [0.6, 30.0],
            "registered": [1, None],
        }
    )
    shares, numbers = drawn(hf.plot(history))
    assert (shares[0], numbers[0]) == ([(0.4, 0.6)], [(10.0, 30.0)])
    assert "registered beforehand" in "".join(text.get_text() for text in hf.plot(history).figure().texts)
    table = pl.DataFrame({"c": ["a", "b"], "x": [1.0, None], "x_low": [0.0, 0.0], "x_high": [2.0, 9.0]})
    ((bars, dots, _),) = drawn(hf.plot(table))
    assert (bars, dots) == ([(0.0, 2.0), (0.0, 9.0)], [1.0])
    assert drawn(hf.plot(hf.Answers([answer(), answer()])))[0][1] == [0.25, 0.25]
    assert drawn(hf.plot(answer())) == drawn(answer().plot())
    for path in ("x.png", "x.svg"):
        assert hf.plot(table).save(tmp_path / path, theme="dark").stat().st_size > 1_000


def labels(picture: Picture) -> list[list[str]]:
    return [[label.get_text() for label in axes.get_yticklabels()] for axes in picture.figure().axes]


def test_a_check_is_drawn_with_its_outcome() -> None:
    """It has no value, and that is no lack of rows."""
    history = pl.DataFrame(
        {
            "question": ["share of x is 0.2 ± 0.01", "share of x is 0.9 ± 0.01", "share of x where y is 0.2 ± 0.01"],
            "category": pl.Series([None] * 3, dtype=pl.String),
            "value": pl.Series([None] * 3, dtype=pl.Float64),
            "low": [0.18, 0.0, 0.0],
            "high": [0.22, 0.9, 1.0],
            "outcome": ["holds", "too high", "too few rows"],
        }
    )
    picture = hf.plot(history)
    ((bars, dots, texts),) = drawn(picture)
    assert (bars, dots) == ([(0.18, 0.22), (0.0, 0.9), (0.0, 1.0)], [])
    assert [text.split("  ")[0] for text in texts] == ["holds", "too high", "too few rows"]
    (axes,) = picture.figure().axes
    first, second, third = (tuple(each.get_color()[0][:3]) for each in axes.collections)
    assert first == second != third


def test_the_standings_of_a_board_are_drawn() -> None:
    standings = pl.DataFrame(
        {
            "rank": [1, None],
            "by": ["team 2", "team 3"],
            "low": [0.88, 0.0],
            "high": [0.91, 0.92],
            "outcome": ["improvement", "no improvement"],
            "name": ["rule", None],
        }
    )
    picture = hf.plot(standings)
    assert labels(picture) == [["team 2: rule", "team 3"]]
    assert drawn(picture)[0][2] == ["improvement  [0.8800, 0.9100]", "no improvement  [0.0000, 0.9200]"]


def test_a_question_is_written_once_above_its_categories() -> None:
    count = MOST_LINES + 5
    history = pl.DataFrame(
        {
            "question": ["share of x by c"] * count,
            "category": [f"c{place}" for place in range(count)],
            "value": [0.5] * count,
            "low": [0.4] * count,
            "high": [0.6] * count,
        }
    )
    assert labels(hf.plot(history.head(3))) == [["share of x by c: c0", "c1", "c2"]]
    assert labels(hf.plot(history))[0][:2] == ["share of x by c: c5", "c6"]  # also where the first lines are cut
    two = hf.plot(pl.concat([history.head(2), history.head(2).with_columns(question=pl.lit("share of y by c"))]))
    assert labels(two) == [["share of x by c: c0", "c1", "share of y by c: c0", "c1"]]


def test_many_lines_are_cut_and_it_is_said() -> None:
    lines = tuple(Line(f"question number {i} " * 9, 0.5, 0.4, 0.6, "") for i in range(MOST_LINES + 5))
    figure = Picture([Panel("all", lines)]).figure()
    (axes,) = figure.axes
    assert len(axes.lines) == MOST_LINES
    assert axes.get_title("left") == f"all (the last {MOST_LINES} of {MOST_LINES + 5})"
    assert max(len(label.get_text()) for label in axes.get_yticklabels()) <= 60


def test_a_notebook_shows_both_themes_and_says_the_numbers() -> None:
    html = answer().plot()._repr_html_()
    assert "(prefers-color-scheme: dark)" in html
    assert html.count("data:image/svg+xml;base64,") == 2
    assert 'alt="0.250  [0.200, 0.310]"' in html
    assert repr(answer().plot()) == "<Picture of 1 interval; save(path) writes it>"


@pytest.mark.parametrize("shown", [3, pl.DataFrame({"a": [1]}), pl.DataFrame({"value": [], "low": [], "high": []})])
def test_what_has_no_intervals_is_refused(shown: Any) -> None:
    with pytest.raises(hf.InvalidArgument):
        hf.plot(shown)
    with pytest.raises(hf.InvalidArgument, match="theme must be one of 'light', 'dark'"):
        answer().plot().figure("sepia")
