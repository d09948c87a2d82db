"""What a notebook shows: every object people meet has a picture or a table, not the text of a dataclass."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from math import nan

import polars as pl
import pytest

import holdfast as hf
from holdfast.questions.estimate import common_scale, interval_bar

ROWS = pl.DataFrame({"x": range(20_000), "late": [i % 5 == 0 for i in range(20_000)]})


@pytest.fixture(scope="module")
def session() -> hf.Session:
    return hf.Session(ROWS, seed=1)


class Tags(HTMLParser):
    """Fails where a tag is closed that is not open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


OBJECTS: list[Callable[[hf.Session], object]] = [
    lambda session: session,
    lambda session: session.budget,
    lambda session: session.plan,
    lambda session: session.schema,
    lambda session: hf.open(ROWS),
    lambda session: session.prepare("late"),
    lambda session: session.price("late"),
    lambda session: session.price_many(["late", "x > 3"]),
    lambda session: session.mean("late"),
    lambda session: session.ask_many(["late", "x > 3"]),
    lambda session: hf.Session(ROWS, queries={"flip": 100}, seed=1).flips("late", 10),
    lambda session: hf.Session(ROWS, checks=0.2, seed=1).budget,
    lambda session: hf.Board({"id": [*range(500)], "label": [0] * 500}, metric="accuracy", about="labels"),
]


@pytest.mark.parametrize("thing", OBJECTS)
def test_it_is_shown_as_html_that_closes_what_it_opens(
    session: hf.Session, thing: Callable[[hf.Session], object]
) -> None:
    html = thing(session)._repr_html_()  # type: ignore[attr-defined]
    tags = Tags()
    tags.feed(html.replace("/>", "></rect>"))
    assert tags.open == []
    assert "<table" in html or "<strong>" in html
    assert "(columns=" not in html  # the text of a dataclass


def left(budget: hf.Budget) -> float:
    """How much of the bar is filled."""
    track, filled = map(float, re.findall(r'<rect width="([\d.]+)"', budget._repr_html_())[:2])
    return filled / track


def test_the_bar_of_a_budget_is_what_is_left() -> None:
    session = hf.Session(ROWS, queries=10, end=True, seed=1)
    assert left(session.budget) == 1
    for i in range(4):
        session.mean(f"x > {i}")
    assert left(session.budget) == pytest.approx(0.6, abs=0.01)
    assert "6 of 10 answers left" in session.budget._repr_html_()


def test_a_budget_without_an_end_shows_how_wide_answers_will_be(session: hf.Session) -> None:
    html = session.budget._repr_html_()
    widths = [float(each) for each in re.findall(r'<rect width="([\d.]+)" height="10" rx="3" fill="#', html)]
    assert widths == sorted(widths)
    assert widths[-1] == 100  # the widest fills its bar
    assert "after 1,000 more" in html


def test_nothing_is_written_as_minus_zero() -> None:
    assert hf.Answer(0.2, -0.0, 0.7, hf.Session(ROWS, seed=1).mean("late").record).rounded()[1] == "0.00"


def test_large_numbers_have_as_many_digits_as_they_deserve() -> None:
    record = hf.Session(ROWS, seed=1).mean("late").record
    shown = hf.Answer(467_887_503.0, 443_313_037.0, 492_837_337.0, record, (0.0, 1.5e9))
    assert repr(shown).startswith("467,900,000  [443,300,000, 492,900,000]")
    assert ">1,500,000,000<" in shown._repr_html_()


def test_a_long_question_is_shown_by_its_beginning_and_its_end() -> None:
    question = " + ".join(f"{place} * x" for place in range(100)) + " > 7"
    answer = hf.Session({"x": range(1_000)}, seed=1).mean(question)
    assert len(repr(answer)) < 300
    assert repr(answer).endswith("+ 99 * x > 7")
    assert answer.question.endswith(question)  # all of it is there


def test_tables_say_what_else_was_learned_and_on_which_scale() -> None:
    top = hf.Session({"c": ["a", "b"] * 5_000}, seed=1).top("c", longest=1)
    assert "any other: at most" in top._repr_html_()
    assert "from 0.4 to 0.6" in top._repr_html_()
    groups = hf.Session({"x": [*range(1_000)] * 10}, seed=1).mean("x > 300", by="x > 600", groups=[True, False])
    (low,) = re.findall(r"from ([\d.]+) to 1<", groups._repr_html_())
    assert 0.3 <= float(low) <= groups["False"].low


def test_an_interval_that_says_nothing_does_not_stretch_the_scale_of_the_others() -> None:
    record = hf.Session(ROWS, seed=1).mean("late").record
    known, unknown = hf.Answer(0.21, 0.176, 0.246, record), hf.Answer(nan, 0.0, 1.0, record)
    assert common_scale([known, unknown], (0.0, 1.0)) == (0.17, 0.25)
    assert common_scale([unknown], (0.0, 1.0)) == (0.0, 1.0)
    drawn = re.search(r'<rect x="([\d.]+)" y="3" width="([\d.]+)"', interval_bar(unknown, (0.1, 0.3)))
    assert drawn is not None
    x, width = map(float, drawn.groups())
    assert x >= 0
    assert x + width <= 162


def test_a_board_names_the_best_so_far() -> None:
    ids = range(2_000)
    board = hf.Board({"id": ids, "label": [place % 2 for place in ids]}, id="id", target="label", about="labels")
    assert "The best so far is" not in repr(board)
    board.submit({"id": ids, "prediction": [place % 2 for place in ids]}, by="team 7")
    assert "The best so far is that of team 7, no. 1: [" in repr(board)
    assert "no limit" in repr(board)
    assert "no limit" not in board._repr_html_()  # its table says so


def test_a_registry_lists_its_names() -> None:
    assert repr(hf.KINDS).startswith("holdfast.questions: mean, difference, count")


def test_a_category_that_looks_like_a_drawing_is_written_not_drawn() -> None:
    evil = "<svg onload=alert(1)>"
    session = hf.Session({"said": [evil, "no"] * 1_000, "x": [0.0, 1.0] * 1_000}, categories={"said": [evil, "no"]})
    for answer in (session.histogram("said"), session.mean("x", within=(0, 1), by="said"), session.ask_many(["x > 0"])):
        html = answer._repr_html_()
        assert evil not in html
    assert "&lt;svg onload" in session.histogram("said")._repr_html_()
    assert "<svg width=" in session.histogram("said")._repr_html_()
