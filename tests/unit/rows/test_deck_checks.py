"""Decks that keep rows for checks: no card is one of them, all deals and slices keep the same, and both are counted."""

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.errors import BudgetExhausted, InvalidArgument, PlanConflict, RowSourceError
from holdfast.guarantees.drawers import COINS, STATEMENTS
from holdfast.ledger import Asking
from holdfast.ledger.opening import forget_all
from holdfast.rows.decks import cards as cards_
from holdfast.rows.decks import dealing, sorting, supply
from holdfast.rows.decks.deal import deal
from holdfast.rows.decks.dealing import Job
from holdfast.rows.decks.deck import KEPT, Deck
from holdfast.rows.decks.supply import Division, KeptRows
from holdfast.rows.decks.used import Mark
from holdfast.rows.scans.files import FileScan
from holdfast.session.beside import witnesses_beside, witnesses_of_a_restore

ROWS, SHARE = 2_000, 0.1
pytestmark = pytest.mark.filterwarnings("ignore::holdfast.guarantees.plan.VacuousPlan")  # decks are small here


@pytest.fixture(autouse=True)
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several pieces of the table, chunks, ranges and runs."""
    monkeypatch.setattr(supply, "_PIECE", 300)
    monkeypatch.setattr(cards_, "CHUNK", 256)
    monkeypatch.setattr(sorting, "MOST", 1_024)
    monkeypatch.setattr(sorting, "_CACHED", 512)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.parquet"
    text = pl.Series([None if i % 11 == 0 else f"text {i % 5}" for i in range(ROWS)])
    pl.DataFrame({"id": np.arange(ROWS), "x": np.arange(ROWS) % 2, "text": text}).write_parquet(
        path, row_group_size=700
    )
    return path


def dealt(table: Path, cards: int, name: str = "t.deck", **options: object) -> Deck:
    deck = deal(table, table.with_name(name), cards=cards, **options)  # type: ignore[arg-type]
    assert isinstance(deck, Deck)
    return deck


def ids_kept(deck: Deck, column: str = "id") -> list[int]:
    assert deck.kept is not None
    found: list[int] = deck.kept.frame(np.arange(len(deck.kept)))[column].to_list()
    return found


def ids_dealt(deck: Deck, column: str = "id") -> set[int]:
    return {each for cards in deck._deals for each in cards.frame(np.arange(len(cards)))[column].to_list()}


def test_no_card_is_kept_and_every_other_row_is_dealt(table: Path) -> None:
    deck = dealt(table, 40_000, checks=SHARE)
    kept = ids_kept(deck)
    assert len(kept) == len(set(kept)) == deck.kept_count == 200
    assert ids_dealt(deck) == set(range(ROWS)) - set(kept)
    assert deck.kept is not None
    assert deck.kept.frame(np.arange(200)).equals(pl.read_parquet(table)[sorted(kept)])
    assert len(deck) == ROWS
    assert "2,000 rows (200 of them kept for checks)" in repr(deck)
    deck.verify()


def test_kept_rows_are_opened_by_their_deck_alone(table: Path) -> None:
    deck = dealt(table, 500, checks=SHARE)
    with pytest.raises(RowSourceError, match="only check guesses; open their deck"):
        hf.Session(deck.location / KEPT)


def test_units_are_kept_whole(tmp_path: Path) -> None:
    unit = np.repeat(np.arange(300), 1 + np.arange(300) % 5)
    table = tmp_path / "t.parquet"
    pl.DataFrame({"unit": unit, "x": 0.5}).sample(fraction=1.0, shuffle=True, seed=1).write_parquet(table)
    deck = dealt(table, 6_000, unit="unit", checks=SHARE)
    kept = ids_kept(deck, "unit")
    assert len(set(kept)) == deck.kept_count == 30
    assert sorted(kept) == sorted(each for each in unit.tolist() if each in set(kept))
    assert ids_dealt(deck, "unit") == set(range(300)) - set(kept)
    with hf.Session(deck) as session:
        assert session.check("x > 0.4", 1.0, 0.1).holds


def test_answers_take_cards_and_checks_take_none(table: Path) -> None:
    deck = dealt(table, 500, checks=SHARE)
    with hf.Session(deck, rows_per_query=100) as session:
        assert (session.plan.terms.rows, session.plan.terms.all_rows) == (1_800, ROWS)
        for i in range(5):
            assert session.mean(f"id > {i}").record.rows_read == 100
            assert session.check(f"id > {i}", 0.5 if i % 2 else 1.0, 0.1).record.rows_read == 200
            assert deck.used.cards == 100 * (i + 1)
        for _ in range(2):
            with pytest.raises(BudgetExhausted, match=r"0 of its 500 cards are left, and this question takes 100"):
                session.mean("id > 10")
        assert session.check("id > 10", 1.0, 0.1).holds  # other rows, which do not run out
        wrong = session.check("id > 10", 0.5, 0.1)
        assert (wrong.outcome, wrong.value) == ("too low", None)  # there are no cards left to say what it is
        deal(table, deck.location, cards=100, next=True)
        assert session.check("id > 10", 0.5, 0.1).value is not None
        assert session.mean("id > 10").cached
    with hf.Session(deck.location) as session:
        assert session.check("id > 11", 1.0, 0.1).holds
        with pytest.raises(BudgetExhausted, match="0 of its 600 cards are left"):
            session.mean("id > 11")


def test_all_deals_and_slices_keep_the_same_rows(table: Path) -> None:
    decks = deal(table, table.with_name("s.deck"), cards=3_000, slices=2, checks=SHARE)
    assert isinstance(decks, list)
    more = deal(table, table.with_name("s.deck"), cards=3_000, slices=2, next=True)
    assert isinstance(more, list)
    kept = ids_kept(decks[0])
    for deck in (*decks, *more):
        assert ids_kept(deck) == kept
        assert not ids_dealt(deck) & set(kept)
        assert deck.fingerprint == decks[0].fingerprint


def test_a_slice_checks_where_another_has_used_more_cards_than_it_has(table: Path) -> None:
    deal(table, table.with_name("s.deck"), cards=200, slices=2, checks=SHARE, name="s")
    deal(table, table.with_name("s-2-of-2.deck"), cards=200, next=True)
    ledger = table.with_name("s.ledger")
    with (
        hf.Session(table.with_name("s-1-of-2.deck"), ledger=ledger, rows_per_query=100) as short,
        hf.Session(table.with_name("s-2-of-2.deck"), ledger=ledger, rows_per_query=100) as long,
    ):
        for i in range(3):
            long.mean(f"id > {i}")
        assert short.check("id > 3", 1.0, 0.1).holds
        assert short.ledger.taken.charge % COINS == 300
        with pytest.raises(BudgetExhausted, match="0 of its 200 cards are left, and this question takes 100"):
            short.mean("id > 4")
        long.mean("id > 4")
    assert Deck(table.with_name("s-2-of-2.deck")).used.cards == 400


def test_rows_in_another_order_are_refused_where_some_are_kept(table: Path) -> None:
    deck = dealt(table, 500, checks=SHARE)
    for turned in (lambda frame: frame.reverse(), lambda frame: frame[:-1]):
        turned(pl.read_parquet(table)).write_parquet(table.with_name("other.parquet"))
        with pytest.raises(RowSourceError, match="come in another order"):
            deal(table.with_name("other.parquet"), deck.location, cards=500, next=True)


def test_rows_that_come_in_another_order_the_second_time_are_refused(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, times = FileScan.batches, count()

    def turned(self: FileScan, after: int = 0) -> Iterator[pl.DataFrame]:
        batches = read(self, after)
        return batches if next(times) == 0 else (batch.reverse() for batch in batches)

    monkeypatch.setattr(FileScan, "batches", turned)
    with pytest.raises(RowSourceError, match="another order when they were read again"):
        dealt(table, 500, checks=SHARE)
    assert not table.with_name("t.deck").exists()
    dealt(table, 500)  # without checks, the order of rows does not matter


def test_two_decks_that_keep_other_rows_do_not_share_a_ledger(table: Path) -> None:
    """What one checks on, the other would ask."""
    one, other, none = (
        dealt(table, 500, checks=SHARE),
        dealt(table, 500, "o.deck", checks=SHARE),
        dealt(table, 500, "n.deck"),
    )
    assert len({one.fingerprint, other.fingerprint, none.fingerprint}) == 3
    ledger = table.with_name("one.ledger")
    with hf.Session(one, ledger=ledger) as session:
        session.check("id > 1", 1.0, 0.1)
    for deck in (other, none):
        with pytest.raises((PlanConflict, RowSourceError)):
            hf.Session(deck, ledger=ledger)


@pytest.mark.parametrize("checks", [None, SHARE])
def test_another_deck_of_a_table_that_is_asked_has_no_second_ledger(table: Path, checks: float | None) -> None:
    """Whichever rows it keeps, it would check on rows that were asked, or ask rows that check."""
    one, other = dealt(table, 500, checks=SHARE), dealt(table, 500, "o.deck", checks=checks)
    database = f"sqlite:///{table.with_name('ledgers.db')}"
    with hf.Session(one, ledger=database, rows_per_query=100) as session:
        session.mean("id > 1")
    with pytest.raises(InvalidArgument, match="These rows have a ledger already"):
        hf.Session(other)
    forget_all()
    with pytest.raises(InvalidArgument, match="already, as dataset 't'"):
        hf.Session(other, ledger=database)


def test_two_decks_that_keep_rows_that_look_alike_do_not_share_a_ledger(tmp_path: Path) -> None:
    table = tmp_path / "t.parquet"
    pl.DataFrame({"x": np.ones(ROWS)}).write_parquet(table)
    one, other = dealt(table, 500, checks=SHARE), dealt(table, 500, "o.deck", checks=SHARE)
    with hf.Session(one, ledger=tmp_path / "one.ledger", rows_per_query=100) as session:
        session.mean("x > 0")
    with pytest.raises(RowSourceError, match="belongs to other data"):
        hf.Session(other, ledger=tmp_path / "one.ledger")
    deal(table, one.location, cards=100, next=True)


@pytest.mark.parametrize("stage", ["_deal_here", "_require_same", "_write"])
def test_a_deal_that_was_interrupted_keeps_what_it_kept(
    table: Path, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, act = Job.__dict__[stage], []

    def interrupted(self: Job, *args: object) -> object:
        found = work(self, *args)
        if not act:
            act.append(KeptRows.read(self.work / KEPT).division.key)
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(Job, stage, interrupted)
    with pytest.raises(KeyboardInterrupt):
        dealt(table, 30_000, checks=SHARE)
    deck = dealt(table, 30_000, checks=SHARE)
    assert [KeptRows.read(deck.location / KEPT).division.key] == act
    assert ids_dealt(deck) == set(range(ROWS)) - set(ids_kept(deck))


def lacking_a_value(table: Path, monkeypatch: pytest.MonkeyPatch, *, of_kept: bool) -> Path:
    """Write a table that lacks one value, of a row that will be kept, or of one that will not."""
    key = bytes(32)
    monkeypatch.setattr(dealing, "Division", lambda _, drawn, kept: Division(key, drawn, kept))
    mask = np.concatenate(list(Division(key, ROWS, round(SHARE * ROWS)).masks()))
    which = np.flatnonzero(mask == of_kept)[5]
    frame = pl.DataFrame({"id": np.arange(ROWS), "x": [None if i == which else i % 2 for i in range(ROWS)]})
    frame.write_parquet(table)
    return table


def test_a_restored_ledger_goes_on_behind_all_cards_that_were_used(table: Path) -> None:
    """Of a backup made while a check was under way: what it cost is not taken for cards."""
    deck, copy = dealt(table, 500, checks=SHARE), table.with_name("copy")
    ledger = deck.location.with_name("t.deck.ledger")
    with hf.Session(deck, rows_per_query=100) as session:
        session.mean("id > 2")
        check = session.prepare("id > 3", "check", guess=0.5, margin=0.1)
        (place,) = session.answering._reserve([check], Asking())
        hf.backup(ledger, copy)
        session.ledger.commit(session.answering._draw(check, place))
        session.answering._reserve(
            [session.prepare("id > 4")], Asking()
        )  # dropped: its cards are used, and nobody sees them
        session.mean("id > 5")
        assert deck.used.cards == 300
    ledger.unlink()
    assert hf.restore(copy, ledger, witnesses=witnesses_beside(deck)).lost == 2
    with hf.Session(deck) as session:
        assert session.ledger.taken.charge % COINS == 300
        session.mean("id > 6")
    assert deck.used.cards == 400


@pytest.mark.parametrize("copied", ["before", "under way"])
def test_an_old_ledger_goes_on_behind_what_only_the_deck_remembers(table: Path, copied: str) -> None:
    """No witness is left: without the deck's mark, cards, statements and checks would be given out a second time."""
    deck, copy = dealt(table, 800, checks=SHARE), table.with_name("copy")
    ledger = deck.location.with_name("t.deck.ledger")
    with hf.Session(deck, rows_per_query=100) as session:
        session.mean("id > 2")
        if copied == "before":
            hf.backup(ledger, copy)
        session.mean("id > 3")
        session.check("id > 3", guess=0.5, margin=0.1)
        if copied == "under way":
            hf.backup(ledger, copy)
        prepared = session.prepare("id > 4", "check", guess=0.5, margin=0.1)
        (place,) = session.answering._reserve([prepared], asking := Asking())
        session.answering._draw(prepared, place)  # a check takes no card, and is the last thing that is begun
        asking.ended = True
        end = place.charge + prepared.cost.charge, place.intervals + prepared.cost.intervals, place.number
        assert deck.used == Mark(200, session.ledger.first, end)
    forget_all()
    deck.location.with_name("t.deck.witness").unlink()
    ledger.unlink()
    shutil.copy(copy, ledger)
    with pytest.raises(PlanConflict, match="holdfast restore BACKUP"):
        hf.Session(deck)
    forget_all()
    deck.location.with_name("t.deck.witness").unlink(missing_ok=True)
    done = hf.restore(copy, ledger, witnesses=witnesses_of_a_restore(deck))
    assert (done.lost, done.begun) == (0, 3 if copied == "before" else 1)
    assert "their answers, if any, are lost" in done.sentences()[0]
    with hf.Session(deck) as session:
        taken = session.ledger.taken
        # Nobody knows what the checks told that the copy lacks: each counts as a wrong guess, and as one that failed.
        lost = 2 if copied == "before" else 1
        told = session.ledger.answered
        so_far = session.plan.standing.checks.so_far(told)
        assert (so_far.checks, so_far.wrong, so_far.failed) == (2, 2, lost)
        assert (taken.charge, taken.intervals) == (end[0], end[1] + lost * STATEMENTS)
        before = session.ledger.head.seq
        session.mean("id > 5")
        session.check("id > 5", guess=0.99, margin=0.3)
        assert [each.place.number for each in session.ledger.entries(before + 1)] == [end[2] + 2, end[2] + 3]
    assert deck.used.cards == 300


def test_a_restore_counts_what_other_slices_know(table: Path) -> None:
    """Only the slice that was used last knows how far the ledger had come; the restore names the other one."""
    deal(table, table.with_name("s.deck"), cards=5_000, slices=2, name="s")
    first, second = (table.with_name(f"s-{number}-of-2.deck") for number in (1, 2))
    ledger, backup = table.with_name("both.ledger"), table.with_name("backup.ledger")
    with hf.Session(first, ledger=ledger, rows_per_query=100) as session:
        session.mean("id > 1")
        hf.backup(ledger, backup)
    with hf.Session(second, ledger=ledger, rows_per_query=100) as session:
        session.mean("id > 2")
        spent = session.ledger.spent
    for each in (*table.parent.glob("*.witness"), ledger):
        each.unlink()
    forget_all()
    deck = Deck(first)
    found = hf.restore(backup, ledger, fingerprint=deck.fingerprint, witnesses=witnesses_of_a_restore(deck))
    assert found.witnesses == ("the deck", "the deck s-2-of-2.deck")
    assert found.begun == 1
    with hf.Session(second, ledger=ledger, rows_per_query=100) as session:
        assert (session.ledger.spent.charge, session.ledger.spent.intervals) == (spent.charge, spent.intervals)
        assert session.mean("id > 3").seq is not None


def test_a_backup_of_another_ledger_than_the_decks_is_refused(table: Path) -> None:
    deck, copy = dealt(table, 500, checks=SHARE), table.with_name("copy")
    ledger = deck.location.with_name("t.deck.ledger")
    with hf.Session(deck, rows_per_query=100) as session:
        session.mean("id > 2")
        hf.backup(ledger, copy)
    (deck.location / "used").unlink()
    deck = Deck(deck.location)
    deck.hand("another", 0, 100, (100, 1, 1))
    with pytest.raises(InvalidArgument, match="another ledger than the one that the deck saw"):
        hf.restore(copy, ledger, witnesses=witnesses_of_a_restore(deck))


def test_what_only_kept_rows_lack_is_not_declared_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A declaration that is refused is not remembered by the cards: questions would be built for it."""
    table = lacking_a_value(tmp_path / "t.parquet", monkeypatch, of_kept=True)
    deck = dealt(table, 500, checks=SHARE)
    with pytest.raises(InvalidArgument, match="'x' has some"):
        Deck(deck.location, complete=["x"])
    again = Deck(deck.location)
    assert again.kept is not None
    assert again.schema["x"].nullable
    assert again.kept.schema["x"].nullable
    with pytest.raises(InvalidArgument, match="'x' has some"):
        dealt(table, 500, next=True, complete=["x"])
    assert len(dealt(table, 500, next=True, complete=["id"])._deals) == 2


def test_who_goes_on_and_declares_more_is_told_what_kept_rows_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, write = lacking_a_value(tmp_path / "t.parquet", monkeypatch, of_kept=True), Job._write

    def interrupted(self: Job, *args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Job, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dealt(table, 500, checks=SHARE)
    monkeypatch.setattr(Job, "_write", write)
    with pytest.raises(InvalidArgument, match="'x' has some"):
        dealt(table, 500, checks=SHARE, complete=["x"])


def test_nothing_is_left_of_a_deal_that_is_refused_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lacking_a_value(tmp_path / "t.parquet", monkeypatch, of_kept=False)
    with pytest.raises(InvalidArgument, match="'x' has some"):
        dealt(table, 500, checks=SHARE, complete=["x"])
    assert not table.with_name("t.deck").exists()


def test_what_cannot_be_is_refused(table: Path) -> None:
    deck = dealt(table, 500)
    with pytest.raises(InvalidArgument, match=r"kept for them: none. Deal one with checks=0.2"):
        hf.Session(deck, checks=0.2)
    with pytest.raises(InvalidArgument, match="was decided with the first cards"):
        dealt(table, 500, next=True, checks=0.2)
    for name, given in (("checks", 0.2), ("distinct", True), ("unit", "id")):
        with pytest.raises(InvalidArgument, match=f"{name} must be left out with an engine"):
            dealt(table, 500, "e.deck", engine="ray", **{name: given})
    with pytest.raises(InvalidArgument, match="must leave two rows to check on"):
        dealt(table, 500, "f.deck", checks=1e-9)
    assert not table.with_name("f.deck").exists()
    kept = dealt(table, 500, "k.deck", checks=SHARE)
    with pytest.raises(InvalidArgument, match=r"200 of 2,000"):
        hf.Session(kept, checks=0.2)
    with pytest.raises(InvalidArgument, match="takes a session that goes on"):
        hf.Session(kept, queries=3, end=True)
    with pytest.raises(InvalidArgument, match="checks must be left out with an engine"):
        dealt(table, 500, "k.deck", engine="ray", next=True)
    assert hf.Session(kept, checks=SHARE).plan.terms.rows == 1_800
