"""Means that find out where to cut their range: narrower where values crowd, hardly wider elsewhere, and true."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import holdfast as hf
from holdfast import Session
from holdfast.questions.question import Drawing
from holdfast.questions.stages import ENOUGH, SPREAD_OUT, Overview

ROWS = 100_000
SHAPES = {  # a number in [0, 1], its mean, and what part of the uncut interval is expected to remain
    "crowded in the middle": (lambda rng: np.clip(rng.normal(0.5, 0.05, ROWS), 0, 1), 0.5, 0.45),
    "a long tail": (lambda rng: np.minimum(1.0, rng.exponential(0.05, ROWS)), 0.05, 0.8),
    "a long tail downwards": (lambda rng: 1 - np.minimum(1.0, rng.exponential(0.05, ROWS)), 0.95, 0.8),
    "wages": (lambda rng: np.minimum(1.0, rng.gamma(2.2, 0.1, ROWS)), 0.22, 0.8),
    "uniform": (lambda rng: rng.random(ROWS), 0.5, 0.95),
    "at both ends": (lambda rng: np.round(rng.random(ROWS)), 0.5, 1.06),
    "nearly always 0": (
        lambda rng: np.where(rng.random(ROWS) < 0.001, 1.0, 0.0),
        0.001,
        1.4,
    ),  # as wide as its few ones say
    "always the same": (lambda rng: np.full(ROWS, 0.3), 0.3, 0.45),
}


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> Iterator[tuple[Session, float, float]]:
    draw, mean, part = SHAPES[request.param]
    with Session({"x": draw(np.random.default_rng(5))}, queries=100, seed=2, complete=["x"]) as session:
        yield session, mean, part


def test_a_mean_is_cut_where_that_makes_it_narrower(shape: tuple[Session, float, float]) -> None:
    session, mean, part = shape
    price = session.price("x", within=(0, 1))
    cut, uncut = (session.mean("x", within=(0, 1), slices=slices) for slices in (None, "none"))
    assert cut.low - 1e-3 <= mean <= cut.high + 1e-3  # the numbers above are clipped, so means are off a little
    assert cut.margin <= part * uncut.margin
    assert cut.margin <= price.margin * 1.001  # what a price says is the most
    assert (price.answers, price.rows_read) == (cut.cost, cut.rows_read) == (1, uncut.rows_read)


def test_what_is_found_out_first_is_part_of_what_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    release = Drawing.release

    def counted(self: Drawing, query: Any, draws: int) -> object:
        drawn.append(self.answering.charge(query.statistic, draws))
        return release(self, query, draws)

    monkeypatch.setattr(Drawing, "release", counted)
    rng = np.random.default_rng(1)
    data = {"x": rng.beta(2, 20, ROWS), "gaps": np.where(rng.random(ROWS) < 0.1, np.nan, rng.beta(2, 20, ROWS))}
    with Session(data, queries=50, seed=1, complete=["x"]) as session:
        for query, kind, where in (
            ("x", "mean", None),
            ("gaps", "mean", None),
            ("gaps", "total", None),
            ("gaps", "mean", "x < 0.1"),
            ("gaps", "mean", "x > 0.3"),
        ):
            drawn.clear()
            before, price = session.ledger.spent.charge, session.price(query, kind, within=(0, 1), where=where)
            answer = session.ask(query, kind, within=(0, 1), where=where)
            charged = session.ledger.spent.charge - before
            assert charged - 16 <= sum(drawn) <= charged  # draws of slices are rounded down
            units = charged // (2 if where == "x > 0.3" else 1)  # of most draws
            assert answer.rows_read == pytest.approx(units, rel=0.1)
            assert answer.rows_read <= price.rows_read
            if where == "x > 0.3":  # of the size, one; of the overview, at most three; then of the whole group
                assert 3 <= len(drawn) <= 5
            else:
                assert len(drawn) >= 6  # of the overview, three; of the slices, at least as many
            assert answer.cost == price.answers == (1 if kind == "total" or query == "x" else 2)
        for group in ("x > 0.1", "x > 0.3"):  # in slices; by zeros and ones
            drawn.clear()
            before, answer = session.ledger.spent.charge, session.difference("gaps", group, within=(0, 1))
            charged = session.ledger.spent.charge - before
            assert charged - 32 <= sum(drawn) <= charged
            assert (len(drawn) > 10) == (group == "x > 0.1")
            assert answer.cost == 4


def test_the_default_is_auto_and_none_is_another_question() -> None:
    rng = np.random.default_rng(2)
    with Session({"x": rng.random(20_000), "b": rng.random(20_000) < 0.5}, queries=20, seed=1) as session:
        first = session.mean("x", within=(0, 1))
        again = session.mean("x", within=(0, 1), slices="auto")
        assert (again.cached, again.interval) == (True, first.interval)
        assert not session.mean("x", within=(0, 1), slices="none").cached
        assert first.record.question == "mean of x within [0, 1]"
        with pytest.raises(hf.InvalidArgument, match="slices are for the mean of a number"):
            session.mean("b", slices="auto")


@pytest.mark.parametrize(
    "options",
    [
        {"rows_per_query": 63},
        {"margin": 0.05},
        {"until": 0.05},
        {"mechanism": "gaussian"},
        {"weight": "x", "largest_weight": 1},
        {"slices": "none"},
        {"slices": "none", "where": "x > 0.5"},
    ],
)
def test_what_is_asked_for_otherwise_is_not_cut(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> object:
        raise AssertionError

    monkeypatch.setattr("holdfast.questions.stages.Stages.overview", never)
    data = {"x": np.random.default_rng(3).random(50_000)}
    with Session(data, queries=20, seed=1, complete=["x"]) as session:
        assert session.mean("x", within=(0, 1), **options).margin < 0.5


GROUPS = {"half": 0.5, "twentieth": 0.05, "hundredth": 0.01}


@pytest.mark.parametrize(
    ("shape", "half"),
    [("crowded in the middle", 0.6), ("a long tail", 0.9), ("uniform", 1.0), ("at both ends", 1.05)],
)
def test_a_group_is_cut_where_that_makes_it_narrower_and_else_hardly_wider(shape: str, half: float) -> None:
    draw, mean, _ = SHAPES[shape]
    widths: dict[str, list[tuple[float, float]]] = {name: [] for name in GROUPS}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        group = rng.choice([*GROUPS, "others"], ROWS, p=[*GROUPS.values(), 0.44])
        with Session({"x": draw(rng), "g": group}, queries=100, seed=seed) as session:
            asked = {"within": (0, 1), "by": "g", "groups": list(GROUPS)}
            found, uncut = session.mean("x", **asked), session.mean("x", **asked, slices="none")
            assert found.cost == uncut.cost == session.price("x + 0", **asked).answers == 2 * len(GROUPS)
            shares = zip(GROUPS, found.frame["share_low"], found.frame["share_high"], strict=True)
            for name, low, high in shares:
                assert low <= GROUPS[name] <= high
                assert found[name].low - 1e-3 <= mean <= found[name].high + 1e-3
                alone = session.mean("x", within=(0, 1), where=f"g = '{name}'")
                widths[name].append((alone.margin, uncut[name].margin))
    ratios = {name: sum(new for new, _ in each) / sum(old for _, old in each) for name, each in widths.items()}
    assert ratios["half"] <= half
    assert ratios["twentieth"] <= 1.15  # as they deviate by some percent
    assert ratios["hundredth"] <= 1.15


@pytest.mark.parametrize(("shape", "half"), [("crowded in the middle", 0.7), ("a long tail", 1.0), ("uniform", 1.1)])
def test_a_difference_is_cut_where_that_makes_it_narrower_and_else_hardly_wider(shape: str, half: float) -> None:
    draw, ratios = SHAPES[shape][0], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        data = {"x": draw(rng), "first": rng.random(ROWS) < 0.5, "second": rng.random(ROWS) < 0.02}
        with Session(data, queries=100, seed=seed, bounds={"x": (0, 1)}) as session:
            for group in ("first", "second"):
                about = {"group": group, "other": f"NOT {group}"}
                price = session.price("x", "difference", **about)
                found, uncut = (session.difference("x", **about, slices=slices) for slices in (None, "none"))
                assert found.cost == uncut.cost == price.answers == 4
                assert max(found.low, uncut.low) <= 0.0 <= min(found.high, uncut.high)
                ratios.append((found.high - found.low) / (uncut.high - uncut.low))
    assert np.mean(ratios[::2]) <= half
    assert np.mean(ratios[1::2]) <= 1.15


@pytest.mark.parametrize("share", [0.2, 0.3, 0.4])
def test_a_group_whose_values_are_at_both_ends_is_as_wide_as_its_price_says(share: float) -> None:
    rng = np.random.default_rng(6)
    data = {"x": np.round(rng.random(ROWS)), "u": rng.random(ROWS)}
    with Session(data, queries=100, seed=1, complete=["x", "u"]) as session:
        cut, uncut = [], []
        for place in range(6):  # other texts of one group, so that each is asked
            asked = {"within": (0, 1), "where": f"u < {share} AND u > -{place + 1}"}
            cut.append(session.mean("x", **asked))
            uncut.append(session.mean("x", **asked, slices="none"))
        widths = dict(session.price("x", within=(0, 1), where="u < 0.5").widths)
        assert np.mean([one.margin for one in cut]) < 1.04 * np.mean([one.margin for one in uncut])
        if share in widths:
            assert max(one.margin for one in cut) < 1.05 * widths[share]


@pytest.mark.parametrize("center", [0.004, 0.03, 0.1, 0.5, 0.8, 0.99])
@pytest.mark.parametrize("part", [0.02, 0.1, 0.4, 0.7, 0.9, 1.0])
def test_imagined_values_lie_as_the_overview_shows(center: float, part: float) -> None:
    most = 2 * center * (1 - center)
    values = Overview(center, part * most, clear=True, draws=1_000).values()
    assert values.min() >= 0
    assert values.max() <= 1
    if part > SPREAD_OUT:  # these are not clipped, or hardly
        assert values.mean() == pytest.approx(center, rel=0.2)
        assert np.abs(values - center).mean() == pytest.approx(part * most, rel=0.2)
    elif part * most < 0.1 * min(center, 1 - center):
        assert values.mean() == pytest.approx(center, rel=1e-3)
        assert np.abs(values - center).mean() == pytest.approx(part * most, rel=0.05)


@pytest.mark.parametrize("deviation", [0.6, 5.0, 1e4])
def test_a_deviation_that_cannot_be_is_imagined_as_zeros_and_ones(deviation: float) -> None:
    values = Overview(0.5, deviation, clear=True, draws=1_000).values()
    assert set(values) == {0.0, 1.0}
    assert values.mean() == 0.5


def test_groups_are_cut_unless_they_are_many() -> None:
    data = {"x": np.random.default_rng(3).random(50_000), "g": np.arange(50_000) % 20}
    with Session(data, queries=200, seed=1, complete=["x"], bounds={"x": (0, 1)}) as session:
        few, many = (session.price("x", by="g", groups=list(range(count))) for count in (16, 17))
        assert few.rows_read == 2 * 16 * session.plan.rows_per_query
        assert many.rows_read < 17 * session.plan.rows_per_query
        assert "with slices auto" in str(many.cheaper)
        assert session.mean("x", where="g = 1").interval == session.mean("x", where="g = 1", slices="auto").interval
        assert not session.mean("x", where="g = 1", slices="none").cached


def test_a_guarantee_without_slices_answers_uncut() -> None:
    with Session({"x": np.random.default_rng(3).random(50_000)}, queries=4, seed=1, guarantee="split") as session:
        assert session.mean("x", within=(0, 1)).rows_read == 12_500


def test_sums_and_averages_in_sql_are_cut_too() -> None:
    x = np.random.default_rng(4).gamma(2.2, 480, ROWS)
    with Session({"x": x}, queries=50, seed=1, complete=["x"], bounds={"x": (0, 5_000)}) as session:
        (row,) = session.sql("SELECT AVG(x), SUM(x) FROM data").rows(named=True)
        uncut = session.mean("x", slices="none")
        average, total = [name for name in row if not name.endswith(("_low", "_high"))]
        assert row[f"{average}_high"] - row[f"{average}_low"] < 0.8 * (uncut.high - uncut.low)
        assert row[f"{total}_high"] - row[f"{total}_low"] < 0.8 * ROWS * (uncut.high - uncut.low)
        assert row[f"{total}_low"] <= 1_056 * ROWS <= row[f"{total}_high"]


def test_the_text_of_a_question_has_the_cuts_as_they_were_given() -> None:
    with hf.Session({"x": np.arange(50_000) % 600, "g": np.arange(50_000) % 2}, queries=50, seed=1) as session:
        for cuts in ([0, 60, 240], [0.1, 0.2, 0.3], [1e-9, 1 / 3]):
            text = session.mean("x", within=(-60, 600), slices=cuts).question
            assert text.endswith(f" in slices at {', '.join(f'{cut:.15g}' for cut in cuts)}")
        assert session.mean("x", within=(-60, 600), by="g", groups=[0], slices=[0]).question.endswith("slices at 0")
        assert "slices" not in session.mean("x", within=(-60, 600), slices="auto").question


@pytest.mark.parametrize("kind", ["mean", "total"])
def test_a_mean_that_was_cut_is_free_when_ordinary_answers_read_fewer_rows_than_cuts_are_worth(kind: str) -> None:
    x = np.random.default_rng(5).random(5_000)
    with Session({"x": x}, seed=1, complete=["x"]) as session:
        first = session.ask("x", kind, within=(0, 1))
        assert first.rows_read >= ENOUGH
        while session.mean("x", within=(0, 1 + session.ledger.spent.intervals)).rows_read >= ENOUGH:
            pass
        spent = session.ledger.spent
        for options in ({}, {"rows_per_query": 1_000}):
            again = session.ask("x", kind, within=(0, 1), **options)
            assert (again.cached, again.interval) == (True, first.interval)
        assert session.ledger.spent == spent


def test_a_difference_of_large_groups_is_narrower_in_slices() -> None:
    rng = np.random.default_rng(3)
    first = rng.random(ROWS) < 0.5
    data = {"x": np.where(first, 20.0, 10.0) + rng.exponential(10.0, ROWS), "first": first}
    with Session(data, queries=100, seed=1, bounds={"x": (0, 1_000)}) as session:
        about = {"group": "first", "other": "NOT first"}
        price = session.price("x", "difference", **about, slices="auto")
        cut, uncut = (session.difference("x", **about, slices=slices) for slices in ("auto", "none"))
        assert cut.cost == uncut.cost == price.answers == 4
        assert cut.low <= 10.0 <= cut.high
        assert cut.margin < 0.8 * uncut.margin
        assert "with slices auto" in str(session.price("x + 1", "difference", **about, slices="none"))
        assert session.difference("x", **about).cached  # as by default
        assert cut.first is not None
        assert cut.second is not None
        ends = cut.first.low - cut.second.high, cut.first.high - cut.second.low  # both hold, so this holds
        assert (cut.low, cut.high) == pytest.approx(ends, abs=1e-9)
        assert cut.low <= ends[0] <= ends[1] <= cut.high
        with pytest.raises(hf.InvalidArgument, match="slices must be left out with minus"):
            session.difference("x", minus="x - 1", slices="auto")
        with pytest.raises(hf.InvalidArgument, match="slices are for the mean of a number"):
            session.difference("x > 15", "first", slices="auto")
