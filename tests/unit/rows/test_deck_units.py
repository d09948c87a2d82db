"""Decks whose cards are units: all rows of a unit on one card, drawn as units, asked as units."""

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.errors import InvalidArgument, RowSourceError
from holdfast.queries.build import build_mean
from holdfast.rows import units as units_
from holdfast.rows.decks import cards as cards_
from holdfast.rows.decks import sorting, supply
from holdfast.rows.decks.deal import deal
from holdfast.rows.decks.deck import Deck

UNITS = 300


def visits(path: Path, units: int) -> Path:
    """Unit u has 1 + u % 5 rows, scattered over the table; each row says which one of them it is."""
    rng = np.random.default_rng(1)
    unit = np.repeat(np.arange(units), 1 + np.arange(units) % 5)
    frame = pl.DataFrame({"patient": unit, "x": unit / units, "row": np.arange(unit.size)}).with_columns(
        ward=pl.Series([None if i % 7 == 0 else f"ward {i % 3}" for i in unit])
    )
    frame[rng.permutation(frame.height)].write_parquet(path)
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return visits(tmp_path / "visits.parquet", UNITS)


def cards_of(deck: Deck) -> list[pl.DataFrame]:
    """What lies on every card."""
    return [cards.frame(np.array([i])) for cards in deck._deals for i in range(len(cards))]


@pytest.mark.slow
@pytest.mark.parametrize("small", [False, True])
def test_a_card_holds_all_rows_of_its_unit(table: Path, monkeypatch: pytest.MonkeyPatch, small: bool) -> None:
    if small:  # several partitions, chunks, ranges and runs
        monkeypatch.setattr(units_, "PARTITION_BYTES", 2_000)
        monkeypatch.setattr(units_, "CHUNK_BYTES", 4_000)
        monkeypatch.setattr(cards_, "CHUNK", 64)
        monkeypatch.setattr(sorting, "MOST", 256)
        monkeypatch.setattr(sorting, "LEAST", 1)
    deck = deal(table, table.with_name("visits.deck"), cards=2_000, unit="patient")
    assert isinstance(deck, Deck)
    assert (len(deck), deck.cards, deck.schema.unit) == (UNITS, range(2_000), "patient")
    assert "a deck from 300 units (patient)" in repr(deck)
    assert re.search("a deck from 300 units .patient.*<table", deck._repr_html_())
    rows = pl.read_parquet(table)
    whole = {key[0]: each.sort("row") for key, each in rows.partition_by("patient", as_dict=True).items()}
    drawn = []
    for card in cards_of(deck):
        (unit,) = card["patient"].unique()
        assert card.sort("row").select(rows.columns).equals(whole[unit])
        drawn.append(unit)
    counts = np.bincount(drawn, minlength=UNITS)
    assert np.sum((counts - 2_000 / UNITS) ** 2 * UNITS / 2_000) < 420  # chi-square, 299 degrees: once in 10^5


def test_a_session_asks_units(tmp_path: Path) -> None:
    table, deck = visits(tmp_path / "visits.parquet", 20_000), tmp_path / "visits.deck"
    deal(table, deck, cards=50_000, unit="patient")
    with hf.Session(deck, queries=10, rows_per_query=5_000) as session:
        assert (session.plan.rows, session.plan.unit) == (20_000, "patient")
        share, mean, thrice = (
            session.mean("x < 0.5"),
            session.mean("x", within=(0, 1)),
            session.units("row >= 0", at_least=3),
        )
        assert share.low <= 0.5 <= share.high  # of units; of rows it would be the same
        assert mean.low <= 0.5 <= mean.high
        assert thrice.low <= 0.6 <= thrice.high  # of rows, it would be 0.8
        assert thrice.high < 0.7
    with hf.Session(deck, unit="patient") as session:
        assert session.mean("x < 0.5").cached


def test_what_a_card_says_is_what_its_unit_says(table: Path) -> None:
    deck = deal(table, table.with_name("visits.deck"), cards=3_000, unit="patient")
    assert isinstance(deck, Deck)
    query = build_mean("x < 0.25", deck.schema)
    counts = deck.hand("ledger", 0, 3_000).tally(query, draws=3_000, mass=0.0, rng=np.random.default_rng(1))
    says = [card["x"][0] < 0.25 for card in cards_of(deck)]
    assert counts.tolist() == [3_000 - sum(says), sum(says)]


def test_more_cards_are_dealt_by_the_same_unit(table: Path) -> None:
    path = table.with_name("visits.deck")
    deal(table, path, cards=100, unit="patient")
    more = deal(table, path, cards=50, next=True)
    assert isinstance(more, Deck)
    assert (more.cards, more.schema.unit) == (range(150), "patient")
    with pytest.raises(InvalidArgument, match="cards of this deck are units by 'patient'"):
        deal(table, path, cards=50, next=True, unit="ward")
    with pytest.raises(InvalidArgument, match="whose cards are units by 'patient'; deal another deck"):
        hf.open(path, unit="ward")
    rows = deal(table, table.with_name("rows.deck"), cards=10)
    assert isinstance(rows, Deck)
    assert rows.fingerprint == more.fingerprint
    with pytest.raises(InvalidArgument, match="whose cards are rows"):
        hf.open(rows.location, unit="patient")


def test_what_cannot_be_dealt_by_unit(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deck = table.with_name("visits.deck")
    with pytest.raises(InvalidArgument, match="unit must be a column of visits"):
        deal(table, deck, cards=10, unit="person")
    with pytest.raises(InvalidArgument, match="may differ by rounding"):
        deal(table, deck, cards=10, unit="x")
    with pytest.raises(RowSourceError, match="'ward' has missing values"):
        deal(table, deck, cards=10, unit="ward")
    monkeypatch.setattr(supply, "MOST_ROWS", 4)
    monkeypatch.setattr(units_, "BATCH", 3)
    with pytest.raises(RowSourceError, match="more than 4 rows"):
        deal(table, deck, cards=10, unit="patient")
    assert not deck.exists()
