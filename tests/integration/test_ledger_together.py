"""Threads that wait for their turn are written together: one transaction, each its own answer or refusal."""

import os
import threading

import pytest

from holdfast.errors import BudgetExhausted, HoldfastError, LedgerUnavailable
from holdfast.ledger import Cost, open_ledger

THREADS = 8


def begin(path, flips=1_000):
    return open_ledger(
        path, dataset="d", fingerprint="f", terms={"caps": {"flips": flips, "intervals": 1_000}, "plan": "p"}
    )


def commit(ledger, number, key=None):
    return ledger.commit(
        key=key, question={"n": number}, answer={"n": number}, cost=Cost(10, 1), rows_read=1, analyst=None
    )


def wait_together(ledger, ask):
    """Let THREADS threads queue up behind the writing lock, then let them go; return what each got."""
    store = ledger._store
    got = [None] * THREADS

    def run(number):
        try:
            got[number] = ask(number)
        except HoldfastError as error:
            got[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    with store._writes.lock:
        for thread in threads:
            thread.start()
        while len(store._waiting) < THREADS:
            pass
    for thread in threads:
        thread.join()
    return got


@pytest.fixture
def transactions(monkeypatch):
    from holdfast.ledger.database import Database

    begun = []
    plain = Database._transaction
    monkeypatch.setattr(Database, "_transaction", lambda self: (begun.append(1), plain(self))[1])
    return begun


def test_one_transaction_for_all_that_wait(tmp_path, transactions):
    ledger = begin(tmp_path / "x.ledger")
    transactions.clear()
    got = wait_together(ledger, lambda number: commit(ledger, number))
    assert len(transactions) == 1
    assert sorted(entry.seq for entry, _ in got) == list(range(1, THREADS + 1))
    assert all(entry.answer == {"n": number} and fresh for number, (entry, fresh) in enumerate(got))
    assert ledger.verify().seq == THREADS
    assert ledger.spent.flips == 10 * THREADS


def test_a_refusal_is_its_own_callers_alone(tmp_path, transactions):
    ledger = begin(tmp_path / "x.ledger", flips=50)
    transactions.clear()
    got = wait_together(ledger, lambda number: commit(ledger, number))
    assert len(transactions) == 1
    assert sum(isinstance(one, BudgetExhausted) for one in got) == THREADS - 5
    assert ledger.spent.flips == 50
    assert ledger.verify().seq == 5


def test_one_question_asked_by_all_is_written_once(tmp_path):
    ledger = begin(tmp_path / "x.ledger")
    got = wait_together(ledger, lambda number: commit(ledger, number, key="same"))
    assert [fresh for _, fresh in got].count(True) == 1
    assert len({(entry.seq, entry.answer["n"]) for entry, _ in got}) == 1
    assert ledger.verify().seq == 1


def test_a_file_that_went_away_is_told_to_everyone(tmp_path):
    path = tmp_path / "x.ledger"
    ledger = begin(path)
    commit(ledger, 99)
    path.rename(tmp_path / "elsewhere.ledger")
    got = wait_together(ledger, lambda number: commit(ledger, number))
    assert all(isinstance(one, LedgerUnavailable) for one in got)


def test_an_interrupted_writer_leaves_the_others_work_to_them(tmp_path, monkeypatch):
    ledger = begin(tmp_path / "x.ledger")
    plain = ledger._store.turn
    interrupts = iter([True])

    def turn():
        if next(interrupts, False):
            raise KeyboardInterrupt
        return plain()

    monkeypatch.setattr(ledger._store, "turn", turn)
    interrupted = []

    def ask(number):
        try:
            return commit(ledger, number)
        except KeyboardInterrupt:
            interrupted.append(number)

    wait_together(ledger, ask)
    assert len(interrupted) == 1
    assert ledger.verify().seq == THREADS - 1


def test_a_forked_child_does_not_write_what_its_parents_threads_wait_for(tmp_path):
    path = tmp_path / "x.ledger"
    ledger = begin(path)
    ledger._store._waiting.append(object())  # as a thread of the parent would, just before the fork
    child = os.fork()
    if child == 0:
        entry, _ = commit(ledger, 7)
        os._exit(0 if entry.seq == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(ledger._store._waiting) == 1
    assert begin(path).verify().seq == 1
