"""A deck: dealt whole or not at all, every card once, used up in order, never rewound."""

import ctypes
import errno
import os
import random
import secrets
import shutil
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.errors import BudgetExhausted, InvalidArgument, NotCovered, PlanConflict, RowSourceError
from holdfast.ledger.opening import forget_all
from holdfast.queries.build import build_mean
from holdfast.rows import fingerprint as content_
from holdfast.rows.columns import PackedText
from holdfast.rows.decks import cards as cards_
from holdfast.rows.decks import dealing, sorting
from holdfast.rows.decks import threads as threads_
from holdfast.rows.decks.deal import deal
from holdfast.rows.decks.deck import Cards, Deck
from holdfast.rows.decks.sorting import Runs, in_order
from holdfast.rows.disk import offsets
from holdfast.rows.draws import AllRows, WithReplacement
from holdfast.rows.engines import ENGINES, Engine, Task
from holdfast.rows.fingerprint import Coder, Content
from holdfast.rows.open import open_rows
from plain_query import PlainQuery
from toy_scan import Parts

ROWS = 5_000


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "events.parquet"
    numbers = np.arange(ROWS)
    pl.DataFrame(
        {
            "id": numbers,
            "x": np.where(numbers % 7 == 0, np.nan, numbers / ROWS),
            "kind": pl.Series([None if i % 11 == 0 else f"kind {i % 5}" for i in numbers]),
            "text": pl.Series([f"text {i}" for i in numbers]),
        }
    ).write_parquet(path, row_group_size=700)
    return path


@pytest.fixture
def deck(table: Path) -> Deck:
    made = deal(table, table.with_name("events.deck"), cards=20_000)
    assert isinstance(made, Deck)
    return made


def frame_of(deck: Deck) -> pl.DataFrame:
    return pl.concat([cards.frame(np.arange(len(cards))) for cards in deck._deals])


def test_cards_are_copies_of_rows(table: Path, deck: Deck) -> None:
    rows, cards = pl.read_parquet(table), frame_of(deck)
    assert len(deck) == ROWS
    assert cards.height == 20_000
    assert cards.equals(rows[cards["id"]])
    assert deck.schema == open_rows(table).schema


def test_the_fingerprint_is_of_the_table_in_any_order(table: Path, deck: Deck, tmp_path: Path) -> None:
    frame = pl.read_parquet(table)
    frame.sample(fraction=1, shuffle=True, seed=1).select(frame.columns[::-1]).write_parquet(tmp_path / "other.parquet")
    again = deal(tmp_path / "other.parquet", tmp_path / "other.deck", cards=10)
    assert isinstance(again, Deck)
    assert again.fingerprint == deck.fingerprint
    frame.with_columns(pl.col("id") + (pl.col("id") == 3)).write_parquet(tmp_path / "changed.parquet")
    changed = deal(tmp_path / "changed.parquet", tmp_path / "changed.deck", cards=10)
    assert isinstance(changed, Deck)
    assert changed.fingerprint != deck.fingerprint


@pytest.mark.parametrize("missing", [None, ""])
def test_a_missing_text_is_not_an_empty_one(missing: str | None) -> None:
    def content(texts: list[str | None]) -> str:
        frame = pl.DataFrame({"a": texts}, schema={"a": pl.String})
        found = Content(open_rows(frame)._storages)  # type: ignore[attr-defined]
        found.add(frame)
        return found.fingerprint()

    assert content(["x", missing]) == content([missing, "x"])
    assert content(["x", None]) != content(["x", ""])


def test_texts_are_hashed_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = pl.Series([f"{i:x}" * (i % 7) for i in range(200)] + ["é" * 500, ""])
    whole = content_.text_hashes(texts)
    monkeypatch.setattr(content_, "_HASHED_AT_ONCE", 50)  # also less than one of the texts
    np.testing.assert_array_equal(content_.text_hashes(texts), whole)


def test_hashing_texts_takes_little_memory() -> None:
    texts = pl.Series(["x" * 100]).new_from_index(0, 200_000)
    tracemalloc.start()
    try:
        content_.text_hashes(texts)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 20_000_000  # as much as the texts themselves; all at once, 50 times as much


def test_batches_do_not_matter_and_keys_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards_, "CHUNK", 64)
    frame = pl.DataFrame({"a": np.arange(1_000)})
    storages = open_rows(frame)._storages  # type: ignore[attr-defined]

    def dealt(secret: bytes, deck: str, partition: str, size: int) -> pl.DataFrame:
        chance = cards_.Chance.of(secret, deck, partition, 2.0)
        return pl.concat(cards_.Dealer(chance, storages).deal(frame.iter_slices(size)))

    first = dealt(b"s" * 32, "d", "0", 1_000)
    assert first.equals(dealt(b"s" * 32, "d", "0", 37))
    for other in [(b"t" * 32, "d", "0"), (b"s" * 32, "e", "0"), (b"s" * 32, "d", "1")]:
        assert not set(first[cards_.PLACE]) & set(dealt(*other, 1_000)[cards_.PLACE])


def parts_of(frame: pl.DataFrame, coder: Coder) -> list[content_.Part]:
    return coder.parts(frame.select(list(coder.columns)))


def put_in_order(runs: Runs, first: int, last: int) -> pl.DataFrame:
    """Read cards back as a frame."""
    found = []
    for _, parts, _ in runs.ordered(b"s" * 32, lambda count: None, first, last):
        series = []
        for name, part in zip(runs.coder.columns, parts, strict=True):
            if isinstance(part.values, content_.Joined):
                starts = np.concatenate([[0], np.cumsum(part.values.lengths, dtype=np.int64)])
                packed = PackedText(starts, np.frombuffer(part.values.data, np.uint8), part.valid)
                series.append(packed.part(name, 0, starts.size - 1))
                continue
            texts = name in runs.coder.texts
            series.append((runs._as_texts(name, part) if texts else pl.Series(part.values)).alias(name))
        found.append(pl.DataFrame(series))
    return pl.concat(found)


@pytest.mark.parametrize("distinct", [1_000, 100])  # more texts than are coded: those come later as they are
@pytest.mark.parametrize(("ranges", "block"), [(1, 1_000), (2, 70), (6, 1), (300, 120)])
def test_sorting_is_the_same_whatever_the_blocks(
    tmp_path: Path, ranges: int, block: int, distinct: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_, "_MOST_DISTINCT", distinct)
    rng = np.random.default_rng(1)
    texts = [None if i % 13 == 0 else f"text {i}" for i in range(300)]
    frame = pl.DataFrame({"a": np.arange(300), "t": texts, "u": [str(i % 3) for i in range(300)]})
    coder = Coder(open_rows(frame)._storages)  # type: ignore[attr-defined]
    places = rng.integers(0, cards_.width_of(ranges) * ranges, 300).astype(np.uint64)
    runs = Runs(tmp_path, coder, ranges, block)
    for start in range(0, 300, 50):
        part = frame[start : start + 50]
        runs.collect(runs.sort_in(parts_of(part, coder), places[start : start + 50], 50, (1, 2)))
    runs.finish()
    expected = frame[np.argsort(places)]
    half = ranges // 2
    for each in (runs, Runs(tmp_path, Coder(coder.columns), ranges, block)):  # somebody else goes on
        assert (each.content.rows, each.content.sums, each.cards) == (300, (6, 12), 300)
        found = [put_in_order(each, 0, half), put_in_order(each, half, ranges)] if half else [put_in_order(each, 0, 1)]
        assert pl.concat(found).equals(expected)
        assert each.missing == [False, True, False]
        each.close()


@pytest.mark.parametrize("width", [4, 1 << 31, 1 << 33, 1 << 50, 1 << 63])
def test_places_are_sorted_in_full(width: int) -> None:
    rng = np.random.default_rng(width % 97)
    offsets = rng.integers(0, width, 3_000, np.uint64)
    offsets[::7] = offsets[0] // np.uint64(2) + rng.integers(0, 2, offsets[::7].size).astype(np.uint64)  # close
    order = in_order(offsets, width, lambda: np.random.default_rng(1))
    assert sorted(order.tolist()) == list(range(3_000))
    assert (np.diff(offsets[order].astype(object)) >= 0).all()


def test_equal_places_are_ordered_by_chance() -> None:
    rng, orders = np.random.default_rng(1), Counter[tuple[int, ...]]()
    offsets = np.array([5, 9, 5, 5], np.uint64)
    for _ in range(600):
        orders[tuple(in_order(offsets, 1 << 40, lambda: rng).tolist())] += 1
    assert len(orders) == 6
    assert {order[-1] for order in orders} == {1}
    assert min(orders.values()) > 50


# -- asking -------------------------------------------------------------------------------------------------------


def test_answers_use_cards_in_sequence_each_once(deck: Deck) -> None:
    seen: list[int] = []

    def spy(rows: pl.DataFrame) -> np.ndarray:
        seen.extend(rows["id"])
        return np.ones(len(rows["id"]), bool)

    query = build_mean(spy, replace(deck.schema, columns=(deck.schema["id"],)))
    seen.clear()
    expected = frame_of(deck)["id"].to_list()
    hand = deck.hand("ledger", 100, 50)
    hand.tally(query, draws=30, mass=0.0, rng=np.random.default_rng(1))
    hand.sample(query, WithReplacement(20), np.random.default_rng(1))
    assert seen == expected[100:150]
    with pytest.raises(InvalidArgument, match="1 cards more than were reserved"):
        hand.tally(query, draws=1, mass=0.0, rng=np.random.default_rng(1))
    with pytest.raises(InvalidArgument, match="holds draws, not the table"):
        deck.hand("ledger", 0, 50).sample(query, AllRows(), np.random.default_rng(1))


def test_a_session_asks_a_deck(deck: Deck) -> None:
    with hf.Session(deck.location, queries=50) as session:
        assert len(session) == ROWS
        assert session.plan.rows == ROWS
        assert session.plan.rows_per_query == 400
        answer = session.mean("id < 2500")
        assert answer.low <= 0.5 <= answer.high
        session.histogram("kind", categories=["kind 1", "kind 2"])
        assert deck.used[:2] == (3 * 400, session.ledger.first)  # of three outcomes, each draw is paid for twice
    with hf.Session(deck.location) as session:
        assert session.mean("id < 2500").cached
        session.mean("id < 100")
    assert deck.used.cards > 1_200


def test_a_deck_wants_coins(deck: Deck) -> None:
    with pytest.raises(InvalidArgument, match="mechanism must be 'coins' for a deck"):
        hf.Session(deck.location, queries=50, mechanism="fresh_rows")
    with pytest.raises(InvalidArgument, match="Deal a deck with distinct=True"):
        hf.Session(deck.location, queries=50, mechanism="laplace")
    with pytest.raises(InvalidArgument, match="ask a Session"):
        deck.tally(build_mean("id > 0", deck.schema), draws=1, mass=0.0, rng=np.random.default_rng(1))


def test_what_a_deck_cannot_answer_is_refused_for_free(deck: Deck) -> None:
    with hf.Session(deck.location, queries=50) as session:
        session.mean("id < 2500")
        spent = session.ledger.spent
        with pytest.raises(InvalidArgument, match="mechanism must be left out for a deck"):
            session.mean("id < 1", mechanism="gaussian")
        with pytest.raises(NotCovered, match="A check needs rows that answer nothing else"):
            session.check("id < 1", guess=0.0)
        assert session.ledger.spent == spent


def test_a_deck_that_is_used_up_says_how_to_go_on(table: Path, deck: Deck) -> None:
    with hf.Session(deck.location, queries=30, rows_per_query=4_500) as session:
        for i in range(4):
            session.mean(f"id < {i}")
        spent = session.ledger.spent
        with pytest.raises(BudgetExhausted, match=r"2,000 of its 20,000 cards are left.*--next"):
            session.mean("id < 100")
        assert session.ledger.spent == spent
        deal(table, deck.location, cards=10_000, next=True)
        session.mean("id < 100")  # reads the end of one deal and the beginning of the next
        assert deck.used.cards == 22_500


def test_the_next_cards_come_from_the_same_table(table: Path, deck: Deck) -> None:
    pl.read_parquet(table).head(100).write_parquet(table)
    with pytest.raises(RowSourceError, match="has changed since"):
        deal(table, deck.location, cards=10, next=True)
    assert len(Deck(deck.location)._deals) == 1
    with pytest.raises(RowSourceError, match="is there already"):
        deal(table, deck.location, cards=10)
    with pytest.raises(RowSourceError, match="is not a deck yet"):
        deal(table, table.with_name("none.deck"), cards=10, next=True)
    assert not table.with_name("none.deck").exists()


def test_cards_that_are_used_up_may_be_removed(table: Path, deck: Deck) -> None:
    with hf.Session(deck.location, queries=30, rows_per_query=4_500) as session:
        for i in range(4):
            session.mean(f"id < {i}")
        deal(table, deck.location, cards=10_000, next=True)
        session.mean("id < 100")
    shutil.rmtree(deck.location / "0001")
    assert Deck(deck.location).cards == range(20_000, 30_000)
    with hf.Session(deck.location) as session:
        session.mean("id < 200")
    deal(table, deck.location, cards=5_000, next=True)
    assert Deck(deck.location).cards == range(20_000, 35_000)
    assert sorted(each.name for each in deck.location.iterdir()) == ["0002", "0003", "used"]


def test_two_dealers_at_once_deal_one_after_the_other(table: Path, deck: Deck) -> None:
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(deal, table, deck.location, cards=1_000, next=True) for _ in range(3)]:
            done.result()
    assert Deck(deck.location).cards == range(23_000)


def test_copies_and_old_ledgers_cannot_rewind_a_deck(deck: Deck, tmp_path: Path) -> None:
    ledger = tmp_path / "events.deck.ledger"
    with hf.Session(deck.location, queries=50) as session:
        session.mean("id < 1")
    shutil.copytree(deck.location, tmp_path / "copy" / "events.deck")
    shutil.copy(ledger, tmp_path / "old.ledger")
    with hf.Session(deck.location) as session:
        session.mean("id < 2")
        session.mean("id < 3")
        used = deck.used.cards
    # an old copy of the deck goes on where the ledger is
    with hf.Session(tmp_path / "copy" / "events.deck", ledger=ledger) as session:
        session.mean("id < 4")
    assert Deck(tmp_path / "copy" / "events.deck").used.cards > used
    # an old copy of the ledger, and a new one, are refused
    forget_all()
    (tmp_path / "events.deck.witness").unlink()
    with pytest.raises(PlanConflict, match="it is an old copy"):
        hf.Session(deck.location, ledger=tmp_path / "old.ledger")
    forget_all()
    (tmp_path / "events.deck.witness").unlink(missing_ok=True)
    with pytest.raises(PlanConflict, match="used by another ledger"):
        hf.Session(deck.location, ledger=tmp_path / "new.ledger", queries=50)


# -- dealing ------------------------------------------------------------------------------------------------------


def test_slices_are_decks_of_their_own(table: Path, tmp_path: Path) -> None:
    decks = deal(table, tmp_path / "events.deck", cards=1_000, slices=3)
    assert isinstance(decks, list)
    assert [each.location.name for each in decks] == [f"events-{i}-of-3.deck" for i in (1, 2, 3)]
    assert {each.name for each in decks} == {"events"}
    assert len({each.fingerprint for each in decks}) == 1
    assert {each.cards for each in decks} == {range(1_000)}
    assert not frame_of(decks[0]).equals(frame_of(decks[1]))
    many = deal(table, tmp_path / "many.deck", cards=400, slices=30)  # each of them has enough, not all together
    assert isinstance(many, list)
    assert {each.cards for each in many} == {range(400)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cards": 0}, "cards must be a whole number of at least 1"),
        ({"cards": 1.5}, "cards must be a whole number"),
        ({"cards": 10, "slices": 0}, "slices must be a whole number of at least 1"),
        ({"cards": 10, "engine": "abacus"}, "engine must be one of"),
        ({"cards": 10, "deck": "events"}, "deck must end in .deck"),
        ({"cards": 10, "source": {"a": [1]}}, "rows in memory need no deck"),
    ],
)
def test_what_cannot_be_dealt_is_refused(table: Path, tmp_path: Path, options: dict[str, object], message: str) -> None:
    given = {"source": table, "deck": tmp_path / "d.deck"} | options
    with pytest.raises(InvalidArgument, match=message):
        deal(**given)  # type: ignore[arg-type]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["events.parquet"]


def test_names_that_decks_use_are_refused(tmp_path: Path) -> None:
    pl.DataFrame({"__holdfast_place": [1]}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(RowSourceError, match="rename it"):
        deal(tmp_path / "t.parquet", tmp_path / "t.deck", cards=10)


def test_a_table_that_changes_while_it_is_dealt_is_refused(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = dealing.Job._deal_here

    def slow(*args: object) -> object:
        done = here(*args)  # type: ignore[arg-type]
        table.touch()
        return done

    monkeypatch.setattr(dealing.Job, "_deal_here", slow)
    with pytest.raises(RowSourceError, match="changed while it was dealt"):
        deal(table, tmp_path / "d.deck", cards=10)
    assert not (tmp_path / "d.deck").exists()


@pytest.mark.parametrize(("file", "folder"), [(0o600, 0o700), (0o644, 0o755)])
def test_who_may_read_the_file_may_read_its_deck(table: Path, file: int, folder: int) -> None:
    table.chmod(file)
    before = os.umask(0o022)
    try:
        deal(table, table.with_name("shared.deck"), cards=100)
    finally:
        os.umask(before)
    cards = table.with_name("shared.deck") / "0001"
    assert cards.stat().st_mode & 0o777 == folder
    assert {each.stat().st_mode & 0o777 for each in cards.iterdir()} == {0o644}  # the folder keeps others out


def test_a_full_disk_is_told_in_words(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sorting, "write_at", full)
    with pytest.raises(RowSourceError, match=r"^Cannot write .*events\.deck: No space left on device\."):
        deal(table, table.with_name("events.deck"), cards=100)
    assert not table.with_name("events.deck").exists()


def test_a_lack_of_room_is_told_before_the_first_card(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(*args: object) -> int:
        ctypes.set_errno(errno.ENOSPC)
        return -1

    dealt: list[object] = []
    monkeypatch.setattr(offsets, "_fallocate", lacks)
    monkeypatch.setattr(Runs, "prepare", lambda *args: dealt.append(args))
    with pytest.raises(RowSourceError, match=r"^Cannot write .*events\.deck: No space left on device\."):
        deal(table, table.with_name("events.deck"), cards=100)
    assert not dealt
    assert not table.with_name("events.deck").exists()


@pytest.mark.parametrize("there", [True, False])
def test_where_room_cannot_be_taken_at_once_a_deck_is_dealt_all_the_same(
    table: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    def refuses(*args: object) -> int:
        ctypes.set_errno(errno.EOPNOTSUPP)
        return -1

    monkeypatch.setattr(offsets, "_fallocate", refuses if there else None)
    made = deal(table, table.with_name("events.deck"), cards=2_000)
    assert isinstance(made, Deck)
    made.verify()
    cards = frame_of(made)
    assert cards.equals(pl.read_parquet(table)[cards["id"]])


def test_room_is_asked_for_again_after_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files without room would be found full in the middle of a deal."""
    problems, lengths = [errno.EINTR, errno.EINTR], []

    def interrupted(*args: object) -> int:
        if problems:
            ctypes.set_errno(problems.pop())
            return -1
        return 0

    monkeypatch.setattr(offsets, "_fallocate", interrupted)
    monkeypatch.setattr(os, "ftruncate", lambda *args: lengths.append(args))
    offsets.make_room(3, 100)
    assert not problems
    assert not lengths


@pytest.mark.parametrize("count", [1, 2, 7])
def test_cards_are_the_same_whatever_the_threads_and_what_takes_long(
    table: Path, monkeypatch: pytest.MonkeyPatch, seed: int, count: int
) -> None:
    chance, found = random.Random(seed), []
    monkeypatch.setattr(secrets, "token_bytes", lambda size: b"secret".ljust(size))
    monkeypatch.setattr(secrets, "token_hex", lambda size: "0" * 2 * size)
    monkeypatch.setattr(cards_, "CHUNK", 300)
    monkeypatch.setattr(sorting, "MOST", 400)
    monkeypatch.setattr(sorting, "_CACHED", 100)
    monkeypatch.setattr(content_, "_MOST_DISTINCT", ROWS // 2)  # texts stop being coded halfway

    def slowly(work: Any) -> Any:
        def slow(*args: object) -> Any:
            sleep(chance.choice([0, 0, 0.003]))
            return work(*args)

        return slow

    for threads, slow in ((2, False), (count, True)):
        for module in (threads_, dealing):
            monkeypatch.setattr(module, "THREADS", threads)
        for name in ("prepare", "_write", "_sorted") if slow else ():
            monkeypatch.setattr(Runs, name, slowly(getattr(Runs, name)))
        path = table.with_name(f"{slow}.deck")
        deal(table, path, cards=4_000, name="t", distinct=True)
        found.append({each.name: each.read_bytes() for each in (path / "0001").iterdir()})
    assert found[0] == found[1]


def test_nothing_is_read_ahead_once_the_runs_are_closed(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dealing, "block_for", lambda sample: 50)
    monkeypatch.setattr(sorting, "_CACHED", 1)
    monkeypatch.setattr(sorting, "_ENOUGH", 4)  # about 29 ranges, of which about 20 are needed
    real, closed, late = Runs._sorted, [], []

    def slowly(self: Runs, secret: bytes, begin: int, number: int) -> Any:
        sleep(0.1 if number > 16 else 0.0)
        late.extend(closed)
        return real(self, secret, begin, number)

    def close(self: Runs) -> None:
        real_close(self)
        closed.append(True)

    real_close = Runs.close
    monkeypatch.setattr(Runs, "_sorted", slowly)
    monkeypatch.setattr(Runs, "close", close)
    deal(table, table.with_name("events.deck"), cards=1_000)
    sleep(0.2)
    assert closed
    assert not late


def test_the_last_places_belong_to_the_last_range() -> None:
    places = np.array([cards_.PLACES - 1, cards_.PLACES - 2], np.uint64)
    assert cards_.ranges_of(places, 3).tolist() == [2, 2]  # three times a third of them is two less


def test_cards_are_not_rows(deck: Deck) -> None:
    with pytest.raises(RowSourceError, match="holds cards of a deck, not rows"):
        open_rows(deck.location / "0001")
    (deck.location.parent / "empty.deck").mkdir()
    with pytest.raises(RowSourceError, match="no cards: dealing was not finished"):
        open_rows(deck.location.parent / "empty.deck")
    with pytest.raises(RowSourceError, match=r"No deck .*none\.deck"):
        Deck(deck.location.parent / "none.deck")


def test_damaged_cards_are_noticed(deck: Deck) -> None:
    with (deck.location / "0001" / "00000.values.npy").open("r+b") as file:
        file.seek(128)
        (byte,) = file.read(1)
        file.seek(128)
        file.write(bytes([byte ^ 0xFF]))  # another byte, whichever card is first
    with pytest.raises(RowSourceError, match="is damaged"):
        deck.verify()


def test_a_stream_is_dealt_without_being_counted_first(table: Path, deck: Deck, tmp_path: Path) -> None:
    made = deal(pl.scan_parquet(table), tmp_path / "stream.deck", cards=500)
    assert isinstance(made, Deck)
    assert made.fingerprint == deck.fingerprint
    assert isinstance(made._deals[0], Cards)
    assert [each.name for each in (tmp_path / "stream.deck").iterdir()] == ["0001"]


@pytest.mark.parametrize(
    ("lazy", "there", "why"),
    [
        (True, "begun.json", "nobody can say whether the rows are still the same"),
        (False, "begun.json", "it is not the same deal"),
        (False, "chunk.1", "no card had been dealt"),
    ],
)
def test_whoever_cannot_go_on_says_so(
    table: Path, tmp_path: Path, lazy: bool, there: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    left = tmp_path / "t.deck" / ".deal.partial"
    left.mkdir(parents=True)
    (left / there).write_text("{")
    deal(pl.scan_parquet(table) if lazy else table, tmp_path / "t.deck", cards=10, progress=True)
    assert why in " ".join(capsys.readouterr().err.split())


def test_parts_of_a_question_take_cards_one_after_the_other(deck: Deck) -> None:
    seen: list[tuple[int, int, int]] = []

    def label(rows: pl.DataFrame, part: np.ndarray, draw: np.ndarray) -> np.ndarray:
        seen.extend(zip(rows["id"].to_list(), part.tolist(), draw.tolist(), strict=True))
        return np.minimum(part, 1).astype(float)

    query = PlainQuery(("id",), label, parts=3)
    values = deck.hand("ledger", 0, 60).sample(query, WithReplacement(20), np.random.default_rng(1))
    assert values.tolist() == [[0.0] * 20, [1.0] * 20, [1.0] * 20]
    numbers = frame_of(deck)["id"].head(60).to_list()
    assert seen == [(numbers[i], i // 20, i % 20) for i in range(60)]
    counts = deck.hand("ledger", 60, 60).tally(query, draws=20, mass=0.0, rng=np.random.default_rng(1))
    assert counts.tolist() == [[20, 0], [0, 20], [0, 20]]


# -- engines --------------------------------------------------------------------------------------------------------


def toy_deal(scan: Parts, task: Task, out: str) -> Iterator[pl.DataFrame]:
    """Every partition is begun twice, last ones first; the second attempt counts."""
    for number, part in reversed([*enumerate(scan.parts)]):
        first = list(task.run(str(number), [part]))
        again = list(task.run(str(number), part.iter_slices(100)))
        assert pl.concat(first).equals(pl.concat(again))
        yield from again


def test_an_engine_is_one_file_and_one_line(table: Path, deck: Deck, tmp_path: Path) -> None:
    ENGINES.register("toy", Engine(Parts, toy_deal))
    try:
        parts = list(pl.read_parquet(table).iter_slices(1_500))
        made = deal(parts, tmp_path / "toy.deck", cards=3_000, engine="toy")  # type: ignore[arg-type]
    finally:
        del ENGINES["toy"]
    assert isinstance(made, Deck)
    assert (made.fingerprint, len(made), made.cards) == (deck.fingerprint, ROWS, range(3_000))
    cards = frame_of(made)
    assert cards.equals(pl.read_parquet(table)[cards["id"]])


def test_an_interrupted_engine_leaves_no_cards(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Runs, "finish", interrupted)  # all that workers wrote is there, as are runs
    ENGINES.register("toy", Engine(Parts, toy_deal))
    try:
        with pytest.raises(KeyboardInterrupt):
            deal([pl.read_parquet(table)], tmp_path / "toy.deck", cards=3_000, engine="toy")  # type: ignore[arg-type]
    finally:
        del ENGINES["toy"]
    assert not (tmp_path / "toy.deck").exists()


@pytest.mark.parametrize(
    "text",
    [
        "id > 2500",
        "id > 700 AND id < 4000 OR NOT id = 3",
        "x > 0.5",  # values may be missing
        "kind = 'kind 3'",
        "id % 2 = 0",  # not a comparison of columns
    ],
)
def test_a_share_of_cards_is_what_a_frame_of_them_says(deck: Deck, text: str) -> None:
    (cards,) = deck._deals
    query = build_mean(text, deck.schema)
    found = cards.tallied(query, slice(3_000, 7_000), 0, 4_000, 0.0, np.random.default_rng(5))
    ones = int(np.count_nonzero(query.evaluate(frame_of(deck)[3_000:7_000])))
    assert found.tolist() == [4_000 - ones, ones]
