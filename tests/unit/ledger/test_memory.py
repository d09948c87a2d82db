"""A write to a ledger in memory counts entirely or not at all, wherever it is interrupted."""

import linecache
import sys
from types import FrameType
from typing import Any

import pytest

from holdfast.ledger import Cost, Drawn, Ledger, memory
from holdfast.ledger.memory import MemoryStore, MemoryTransaction
from holdfast.ledger.store import Row

TERMS = {"caps": {"charge": 10**6, "intervals": 10**6}}
ONE = Cost(10, 1)


def begun() -> Ledger:
    ledger = Ledger(MemoryStore("d"), fingerprint="f")
    ledger.begin(TERMS)
    return ledger


def answers(ledger: Ledger, *keys: str) -> list[Drawn]:
    places = ledger.reserve_all([ONE] * len(keys))
    pairs = zip(places, keys, strict=True)
    return [Drawn(place, key=key, question={}, answer={"k": key}, cost=ONE, rows_read=1) for place, key in pairs]


# Python handles signals after calls and at jumps, so none comes just before these lines.
UNINTERRUPTED = {"try:", "finally:", "self._writer = thread", "self._writer = None"}


class Interrupt:
    """Raises KeyboardInterrupt before a given line of the store."""

    def __init__(self, at: int) -> None:
        self.at, self.seen = at, 0

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename not in (memory.__file__, __file__):
            return None
        if event == "line" and linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip() not in UNINTERRUPTED:
            self.seen += 1
            if self.seen == self.at:
                raise KeyboardInterrupt
        return self


def interrupted(ledger: Ledger, drawn: list[Drawn], at: int) -> bool:
    """Commit with an interrupt before line number `at`; return whether it came."""
    before = sys.gettrace()
    sys.settrace(Interrupt(at))
    try:
        ledger.commit_all(drawn)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def found_wrong() -> tuple[int, list[str]]:
    wrong = []
    for at in range(1, 1_000):
        ledger = begun()
        ledger.commit_all(answers(ledger, "early"))
        drawn = answers(ledger, "a", "b")
        if not interrupted(ledger, drawn, at):
            return at, wrong
        written = ledger.head.seq - 1
        keys = [entry.key for entry in ledger.entries(2)]
        if written not in (0, 2) or keys != ["a", "b"][:written]:
            wrong.append(f"line {at}: {keys} of two that are written together")
        if [ledger.find(key) is not None for key in ("a", "b")] != [written == 2] * 2:
            wrong.append(f"line {at}: what is found is not what is written")
        others = ledger.commit_all(answers(ledger, "c", "b"))  # "a" is never asked again
        if [fresh for _, fresh in others] != [True, written == 0]:
            wrong.append(f"line {at}: the next write finds what was not written")
        if (ledger.find("a") is not None) != (written == 2):
            wrong.append(f"line {at}: an answer that was not written is found later")
        if ledger.verify().seq != 3 + written // 2 or ledger.spent.charge != 50:
            wrong.append(f"line {at}: {ledger.head}, {ledger.spent}")
    raise AssertionError


def test_an_interrupt_anywhere_leaves_a_write_done_or_not_begun() -> None:
    lines, wrong = found_wrong()
    assert lines > 30
    assert wrong == []


def keys_first(store: MemoryStore, rows: list[Row]) -> None:
    for row in rows:
        store._by_key[str(row.key_digest)] = row
    del store._rows[rows[0].seq :]
    store._rows += rows


def nothing_cleared(store: MemoryStore, rows: list[Row]) -> None:
    del store._rows[rows[0].seq :]
    store._rows += rows
    for row in rows:
        store._by_key[str(row.key_digest)] = row


@pytest.mark.parametrize("wrong", [keys_first, nothing_cleared])
def test_a_store_that_leaves_keys_over_is_caught(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "_add", wrong)
    assert any("is found later" in each for each in found_wrong()[1])


def test_one_key_twice_in_one_write_is_one_answer() -> None:
    ledger = begun()
    first, second = ledger.commit_all(answers(ledger, "a", "a"))
    assert (first[1], second[1]) == (True, False)
    assert first[0] == second[0]
    assert ledger.verify().seq == 1


def test_nobody_sees_what_is_not_written_yet() -> None:
    store = MemoryStore("d")
    ledger = Ledger(store, fingerprint="f")
    ledger.begin(TERMS)
    drawn = answers(ledger, "a")
    seen = []
    append = MemoryTransaction.append
    with pytest.MonkeyPatch.context() as patched:

        def looking(transaction: MemoryTransaction, row: Any) -> Any:
            found = append(transaction, row)
            seen.append((ledger.find("a"), store.tip(), len(store.read(0, 10))))
            return found

        patched.setattr(MemoryTransaction, "append", looking)
        ledger.commit_all(drawn)
    ((found, tip, rows),) = seen
    assert (found, rows) == (None, 1)
    assert tip is not None
    assert tip.seq == 0


def test_who_looks_while_a_leftover_is_cleared_does_not_find_it() -> None:
    """An answer that was not written is left over; another thread writes in its place between two steps of `find`."""
    ledger = begun()
    store = ledger._store
    assert isinstance(store, MemoryStore)
    lost, drawn = answers(ledger, "lost", "other")
    add = MemoryStore._add

    def interrupted_after(store: MemoryStore, rows: list[Row]) -> None:
        add(store, rows)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MemoryStore, "_add", interrupted_after)
        with pytest.raises(KeyboardInterrupt):
            ledger.commit(lost)
    others = [drawn]

    class Raced(dict[str, Row]):
        def get(self, key: str, default: Any = None) -> Any:
            found = super().get(key, default)
            while others:
                ledger.commit(others.pop())
            return found

    store._by_key = Raced(store._by_key)
    assert ledger.find("lost") is None
    assert [entry.key for entry in ledger.entries()] == ["other"]
