"""The demo on few rows: the whole story, its numbers as JSON, and both pictures."""

import json
from dataclasses import replace

import pytest

from holdfast.lab.demo import picture
from holdfast.lab.demo.discovery import Look
from holdfast.lab.demo.story import Demo, Dig, Stop, document


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    demo = Demo(tmp_path_factory.mktemp("demo"), rows=20_000, questions=120, seed=1)
    heard = []
    with demo.prepare() as session:
        tour, flips = demo.tour(session), demo.flips()
        dig = demo.dig(session, heard.append)
        return document(demo, session, tour, flips, dig), dig, heard, session.budget


def test_the_numbers_are_plain_json(told):
    numbers, dig, _, _ = told
    read = json.loads(json.dumps(numbers))
    assert read["rows"] == 20_000
    assert read["discovery"]["questions"] == dig.questions == 120
    assert len(read["discovery"]["naive"]) == len(read["discovery"]["holdfast"]) == len(dig.naive)
    assert {"call", "value", "low", "high", "population", "rows_read", "milliseconds"} <= set(read["tour"][0])


def test_every_question_was_charged(told):
    numbers, _, heard, budget = told
    assert heard[-1] == 120
    # share 1, group 2, histogram of three and "other" 4, quantile 10, then the dig
    assert budget.queries_total - budget.queries_left >= 120 + 17
    assert budget.answers == 120 + 4
    assert numbers["plan"]["queries"] == 120 + 100


def test_a_second_run_begins_anew(tmp_path):
    demo = Demo(tmp_path, rows=10_000, questions=50)
    with demo.prepare() as first:
        first.mean("dep_delay > 15")
        before = first.ledger.fingerprint
    with demo.prepare() as second:
        assert second.budget.answers == 0
        assert second.ledger.fingerprint != before


STOP = Stop("q", 0.6, 0.55, 0.65, 0.6, 10, 1.0)
DIG = Dig(
    questions=100,
    misses=0,
    seconds=1.0,
    rows_read=1_000,
    hint=STOP,
    holdfast=(Look(10, 0.5, 0.46, 0.54), Look(100, 0.51, 0.47, 0.55)),
    naive=(Look(10, 0.51, 0.509, 0.511), Look(100, 0.54, 0.539, 0.541)),
)


def test_error_bars_count_from_what_is_real():
    assert DIG.error_bars == pytest.approx(40)
    assert STOP.holds
    assert not replace(STOP, population=0.7).holds


def test_the_terminal_picture_puts_things_where_they_are():
    lines = picture.terminal(DIG).splitlines()
    (real,) = (line for line in lines if line.startswith(" 50.0 %"))
    assert "┃───┃" in real  # both intervals contain what is real
    above = [line for line in lines[: lines.index(real)] if "●" in line]
    assert len(above) == 2  # both claims lie above
    assert above[0].rindex("●") > above[1].index("●")  # the later one higher
    assert "100 questions" in lines[-2]


def test_a_png_is_drawn(tmp_path):
    assert picture.png(DIG, tmp_path / "demo.png", rows=1_000)
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_there_is_no_png(tmp_path, monkeypatch):
    monkeypatch.setattr(picture, "find_spec", lambda name: None)
    assert not picture.png(DIG, tmp_path / "demo.png", rows=1_000)
    assert not (tmp_path / "demo.png").exists()
