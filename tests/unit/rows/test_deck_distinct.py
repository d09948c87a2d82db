"""Distinct rows from a deck, by first appearance: exactly on small cases, and through a session."""

import itertools
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.errors import BudgetExhausted, InvalidArgument, RowSourceError
from holdfast.optimize.gradient import GradientAt, Scales
from holdfast.optimize.objective import domain_of
from holdfast.queries.build import build_mean
from holdfast.rows.decks import cards as cards_
from holdfast.rows.decks import sorting
from holdfast.rows.decks.cards import cards_for_distinct, cards_taken
from holdfast.rows.decks.deal import deal
from holdfast.rows.decks.deck import Cards, Deck
from holdfast.rows.disk.folder import Manifest
from holdfast.rows.draws import WithoutReplacement, first_appearances

ROWS = 20_000
Chosen = Callable[[np.ndarray], np.ndarray]


def law(chosen: Chosen, rows: int, cards: int, count: int) -> dict[tuple[int, ...], Fraction]:
    """The exact law of the first `count` distinct of so many uniform cards, given that there are as many."""
    found = Counter[tuple[int, ...]]()
    for drawn in itertools.product(range(rows), repeat=cards):
        first = chosen(np.array(drawn))
        if first.size >= count:
            found[tuple(int(drawn[i]) for i in first[:count])] += 1
    return {each: Fraction(times, found.total()) for each, times in found.items()}


@pytest.mark.parametrize(("rows", "cards", "count"), [(3, 4, 2), (3, 5, 3), (4, 4, 2), (4, 5, 3)])
def test_every_ordered_selection_is_as_likely(rows: int, cards: int, count: int) -> None:
    found = law(first_appearances, rows, cards, count)
    assert set(found) == set(itertools.permutations(range(rows), count))
    assert len(set(found.values())) == 1


def by_content(drawn: np.ndarray) -> np.ndarray:
    """Rows 0 and 1 look alike: whoever skips what looks alike, skips rows."""
    return first_appearances(np.maximum(drawn, 1))


def in_order_of_rows(drawn: np.ndarray) -> np.ndarray:
    return np.unique(drawn, return_index=True)[1]


def one_after_the_other(drawn: np.ndarray) -> np.ndarray:
    """Only neighbors are compared."""
    return np.flatnonzero(np.append(True, drawn[1:] != drawn[:-1]))


@pytest.mark.parametrize(("wrong", "count"), [(by_content, 2), (in_order_of_rows, 2), (one_after_the_other, 3)])
def test_wrong_ways_to_choose_are_caught(wrong: Chosen, count: int) -> None:
    found = law(wrong, 3, 4, count)
    assert set(found) != set(itertools.permutations(range(3), count)) or len(set(found.values())) > 1


@pytest.mark.parametrize(("count", "rows"), [(1, 1), (2, 3), (5, 20), (12, 40), (30, 300)])
def test_enough_cards_are_taken(count: int, rows: int) -> None:
    """The exact probability that too few of them are distinct."""

    def too_few(cards: int) -> Fraction:
        chance = {0: Fraction(1)}  # by how many distinct rows have come up
        for _ in range(cards):
            after: dict[int, Fraction] = {}
            for distinct, share in chance.items():
                for new, factor in ((0, distinct), (1, rows - distinct)):
                    if factor:
                        value = after.get(min(distinct + new, count), Fraction(0))
                        after[min(distinct + new, count)] = value + share * Fraction(factor, rows)
            chance = after
        return sum((share for distinct, share in chance.items() if distinct < count), Fraction(0))

    assert too_few(cards_for_distinct(count, rows)) <= Fraction(1, 10**22)


def write_table(path: Path, rows: int) -> Path:
    numbers = np.arange(rows)
    pl.DataFrame({"id": numbers, "x": numbers % 2 == 0, "who": numbers // 2}).write_parquet(path)
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "t.parquet", ROWS)


@pytest.mark.parametrize("unit", [None, "who"])
def test_cards_say_which_row_they_are(table: Path, unit: str | None) -> None:
    deck = deal(table, table.with_name("t.deck"), cards=5_000, distinct=True, unit=unit)
    assert isinstance(deck, Deck)
    (cards,) = deck._deals
    assert [column.name for column in deck.schema] == ["id", "x", "who"][: 3 if unit is None else 2]
    which = cards.which(range(5_000))
    said = np.array([cards.frame(np.array([i]))["id"][0] for i in range(300)])
    first = said if unit is None else said // 2
    numbers = dict(zip(which[:300].tolist(), first.tolist(), strict=True))
    assert [numbers[each] for each in which[:300].tolist()] == first.tolist()  # the same number, the same row
    assert len(set(numbers.values())) == len(numbers)
    if unit is None:
        assert which[:300].tolist() == said.tolist()
    plain = deal(table, table.with_name("plain.deck"), cards=10)
    assert isinstance(plain, Deck)
    assert plain.fingerprint == deck.fingerprint


def test_a_hand_draws_distinct_rows(table: Path) -> None:
    deck = deal(table, table.with_name("t.deck"), cards=2 * ROWS, distinct=True)
    assert isinstance(deck, Deck)
    (cards,), query = deck._deals, build_mean("id", deck.schema, within=(0, ROWS))
    each = cards_for_distinct(9_000, ROWS)
    values = deck.hand("ledger", 0, each).sample(query, WithoutReplacement(9_000), np.random.default_rng(1))
    assert np.unique(np.round(values * ROWS)).size == 9_000
    which = cards.which(range(each))
    assert np.round(values * ROWS).astype(int).tolist() == which[first_appearances(which)][:9_000].tolist()
    with pytest.raises(InvalidArgument, match="more than were reserved"):
        deck.hand("ledger", 0, 100).sample(query, WithoutReplacement(90), np.random.default_rng(1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "guarantee", "rows"), [("laplace", "dp", 20_000), ("laplace_with_replacement", "paper", 1_000_000)]
)
def test_a_session_answers_from_cards_of_its_own(
    tmp_path: Path, mechanism: str, guarantee: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = hf.plan(rows=rows, queries=6, guarantee=guarantee, mechanism=mechanism).rows_per_query
    each = cards_for_distinct(draws, rows) if mechanism == "laplace" else draws
    table = write_table(tmp_path / "t.parquet", rows)
    deck = deal(table, tmp_path / "t.deck", cards=4 * each, distinct=mechanism == "laplace")
    assert isinstance(deck, Deck)
    read: list[tuple[int, int]] = []
    values = Cards.values

    def noted(self: Cards, query: object, chosen: Any, *args: object) -> object:
        numbers = range(chosen.start, chosen.stop) if isinstance(chosen, slice) else chosen
        read.append((int(numbers[0]), int(numbers[-1])))
        return values(self, query, chosen, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Cards, "values", noted)
    with hf.Session(deck.location, queries=6, guarantee=guarantee, mechanism=mechanism) as session:
        assert session.mean("x").low <= 0.5
        session.mean(f"id < {rows // 3}")
        assert deck.used.cards == 2 * each
        assert [(first // each, last // each) for first, last in read] == [(0, 0), (1, 1)]
        with pytest.raises(BudgetExhausted, match=r"has too few cards left: .*--cards N --next"):
            session.ask_many([f"id < {i}" for i in range(3)])
        assert (len(read), session.ledger.spent.intervals) == (2, 2)  # nothing was read, nor charged
    with hf.Session(deck.location) as session:
        assert session.mean("x").cached
        session.mean("id < 7")
    assert deck.used.cards == 3 * each


def test_the_next_cards_are_numbered_like_the_first(table: Path) -> None:
    path = table.with_name("t.deck")
    deal(table, path, cards=100, distinct=True)
    more = deal(table, path, cards=100, next=True)
    assert isinstance(more, Deck)
    assert more.numbered
    deal(table, table.with_name("plain.deck"), cards=100)
    with pytest.raises(InvalidArgument, match="do not say which row they are"):
        deal(table, table.with_name("plain.deck"), cards=100, next=True, distinct=True)


def numbers_by_row(deck: Deck) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for cards in deck._deals:
        for row, number in zip(cards.frame(np.arange(len(cards)))["id"], cards.which(range(len(cards))), strict=True):
            found.setdefault(row, set()).add(int(number))
    return found


def test_rows_that_come_in_another_order_are_not_numbered_anew(table: Path) -> None:
    """A question may have cards of two deals: one row with two numbers would be drawn twice."""
    path, turned = table.with_name("t.deck"), table.with_name("turned.parquet")
    pl.read_parquet(table).reverse().write_parquet(turned)
    deal(table, path, cards=30_000, distinct=True)
    with pytest.raises(RowSourceError, match="come in another order"):
        deal(turned, path, cards=30_000, next=True)
    more = deal(table, path, cards=30_000, next=True)
    assert isinstance(more, Deck)
    assert all(len(numbers) == 1 for numbers in numbers_by_row(more).values())
    deal(table, table.with_name("plain.deck"), cards=100)
    deal(turned, table.with_name("plain.deck"), cards=100, next=True)  # nobody asks which row a card is
    deal(table, table.with_name("units.deck"), cards=100, distinct=True, unit="who")
    deal(turned, table.with_name("units.deck"), cards=100, next=True)  # units are put in order before


def test_a_numbered_deal_that_was_interrupted_knows_its_order(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards_, "CHUNK", 1_024)
    monkeypatch.setattr(sorting, "MOST", 4_096)
    deal(table, table.with_name("a.deck"), cards=30_000, distinct=True)
    collect, runs = sorting.Runs.collect, []

    def interrupted(self: sorting.Runs, piece: sorting.Piece) -> None:
        collect(self, piece)
        runs.append(len(self._runs))
        if len(runs) == 12:
            raise KeyboardInterrupt

    monkeypatch.setattr(sorting.Runs, "collect", interrupted)
    with pytest.raises(KeyboardInterrupt):
        deal(table, table.with_name("b.deck"), cards=30_000, distinct=True)
    assert runs[-1] > 0  # there is something to go on with
    deal(table, table.with_name("b.deck"), cards=30_000, distinct=True)
    assert len(runs) < 2 * ROWS // 1_024
    one, other = (Manifest.read(table.with_name(f"{name}.deck") / "0001").dealt for name in "ab")
    assert one is not None
    assert other is not None
    assert one.order == other.order != ""


def test_a_ledger_of_distinct_rows_wants_cards_that_say_which_row_they_are(table: Path, tmp_path: Path) -> None:
    numbered = deal(table, tmp_path / "a.deck", cards=30_000, distinct=True, name="t")
    plain = deal(table, tmp_path / "b.deck", cards=30_000, name="t")
    assert isinstance(numbered, Deck)
    assert isinstance(plain, Deck)
    ledger = tmp_path / "both.ledger"
    with hf.Session(numbered, ledger=ledger, queries=6, guarantee="dp", mechanism="laplace") as session:
        session.mean("x")
    with pytest.raises(InvalidArgument, match="Deal a deck with distinct=True"):
        hf.Session(plain, ledger=ledger)


# -- questions of many noisy means ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("fits"), np.random.default_rng(5)
    a, b = rng.random((2, ROWS))
    frame = pl.DataFrame({"a": a, "b": b, "y": 3 * b - 2 * a > 0.5, "word": np.where(a < 0.7, "x", "yy")})
    for name, distinct in (("f", True), ("hand", True), ("plain", False)):  # each in its own folder: each has a ledger
        (folder / name).mkdir()
        frame.write_parquet(folder / name / f"{name}.parquet")
        deal(
            folder / name / f"{name}.parquet",
            folder / name / f"{name}.deck",
            cards=600_000,
            distinct=distinct,
            name="f",
        )
    return folder


LOSS = hf.losses.Logistic({"a": (0, 1), "b": (0, 1)}, target="y")


def test_a_hand_asks_every_part_of_rows_of_its_own(fitted: Path) -> None:
    """A gradient from distinct cards is nearly that of all rows, in every coordinate."""
    deck, rows, rng = Deck(fitted / "hand" / "hand.deck"), hf.open(fitted / "f" / "f.parquet"), np.random.default_rng(2)
    objective = LOSS.bind(deck.schema, domain_of(3, radius=1.0))
    query = GradientAt(objective, np.array([0.3, -0.2, 0.1]), Scales(objective.ranges))
    hand = deck.hand("ledger", 0, 3 * cards_for_distinct(4_000, ROWS))
    found = hand.sample(query, WithoutReplacement(4_000), rng).mean(axis=1)
    exact = rows.sample(query, WithoutReplacement(ROWS), rng).mean(axis=1)
    assert np.abs(exact[0] - exact[1:]).max() > 0.05
    assert np.abs(found - exact).max() < 5 / np.sqrt(4_000) / 2


@pytest.mark.filterwarnings("ignore::holdfast.guarantees.plan.VacuousPlan")
def test_questions_of_many_noisy_means_have_cards_for_all_of_them(fitted: Path) -> None:
    with hf.Session(
        fitted / "f" / "f.deck", queries=300, guarantee="dp", mechanism="laplace", rows_per_query=500
    ) as session:
        fit = session.minimize(LOSS, radius=3, iterations=4, runs=2)
        top = session.top("word", longest=2, most=2, alphabet="xy")
        means = session.ledger.spent.charge // session.plan.terms.charge_per_answer
        assert fit.record.seq == 1
        assert top.record.seq == 2
        assert cards_taken(session.plan, session.ledger.taken) == means * cards_for_distinct(500, ROWS)
        spent = session.ledger.spent
        with pytest.raises(InvalidArgument, match="rows_per_coordinate must be at most the rows that this deck has"):
            session.minimize(LOSS, radius=3, iterations=4, rows_per_coordinate=501)
        assert session.ledger.spent == spent


@pytest.mark.filterwarnings("ignore::holdfast.guarantees.plan.VacuousPlan")
def test_a_fit_that_cards_were_not_dealt_for_is_refused_for_free(fitted: Path) -> None:
    with hf.Session(
        fitted / "plain" / "plain.deck", queries=50, guarantee="information", rows_per_query=500
    ) as session:
        for options in ({"mechanism": "laplace"}, {"runs": 2, "select": "exponential"}):
            with pytest.raises(InvalidArgument, match="mechanism and select must be left out for a deck"):
                session.minimize(LOSS, radius=3, iterations=2, **options)  # type: ignore[arg-type]
        assert session.ledger.spent.charge == 0
        session.minimize(LOSS, radius=3, iterations=2)
