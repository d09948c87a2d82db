"""Threads that wait for their turn are written together: one transaction, each its own answer or refusal.

Interrupts, forks and the end of the process may come at any moment, while a thread hands over and while it writes
directly: what was shown is in the ledger, nothing is written twice, nothing stays locked.
"""

import contextlib
import dis
import fcntl
import gc
import itertools
import math
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
import weakref

import psycopg
import pytest

from holdfast.errors import BudgetExhausted, HoldfastError, LedgerUnavailable
from holdfast.ledger import Cost, Drawn, Place, ProcessWitness, open_ledger
from holdfast.ledger.concurrency import GroupCommitter, PendingWrite
from holdfast.ledger.database import DatabaseTransaction
from holdfast.ledger.opening import forget_all
from holdfast.ledger.sqlite import SqliteStore
from ledger_writer import begun, environment, write

THREADS = 8
TRACED = (
    "ledger/database.py",
    "ledger/ledger.py",
    "ledger/sqlite.py",
    "ledger/sqlite_file.py",
    "ledger/concurrency.py",
    "ledger/places.py",
    "ledger/underway.py",
    "ledger/witness.py",
    "contextlib.py",
)


def begin(location, charge=1_000, dataset="d"):
    forget_all()  # some tests begin with one file copied many times
    names = {"dataset": dataset, "fingerprint": f"f {dataset}"}
    return begun(location, {"caps": {"charge": charge, "intervals": 1_000}}, **names)


def commit(ledger, number, key=None, place=None):
    """Return the entry, and whether it is new; reserved before if there is a place."""
    values = {"question": {"n": number}, "answer": {"n": number}, "cost": Cost(10, 1), "rows_read": 1}
    return write(ledger, key, **values) if place is None else ledger.commit(Drawn(place, key=key, **values))


def reserved(ledger):
    """Return a place for each of the threads."""
    return [ledger.reserve(Cost(10, 1)) for _ in range(THREADS)]


def wait_together(ledger, ask):
    """Let THREADS threads queue up behind the writing lock, then let them go; return what each got."""
    store = ledger._store
    got = [None] * THREADS

    def run(number):
        try:
            got[number] = ask(number)
        except HoldfastError as error:
            got[number] = error

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(THREADS)]
    with store._writes.lock:
        for thread in threads:
            thread.start()
        while len(store._committer) < THREADS:
            pass
    for thread in threads:
        thread.join(30)
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
    places = reserved(ledger)
    transactions.clear()
    got = wait_together(ledger, lambda number: commit(ledger, number, place=places[number]))
    assert len(transactions) == 1
    assert [entry.place for entry, _ in got] == places
    assert sorted(entry.seq for entry, _ in got) == list(range(1, THREADS + 1))
    assert all(entry.answer == {"n": number} and fresh for number, (entry, fresh) in enumerate(got))
    assert ledger.verify().seq == THREADS
    assert ledger.spent.charge == 10 * THREADS


def test_witnesses_know_all_that_was_written_together_before_anybody_is_answered(tmp_path):
    told = []

    class Listening(ProcessWitness):
        def remember(self, seen):
            told.append(seen.tip.seq)

    ledger = begin(tmp_path / "x.ledger")
    ledger.watch(Listening("another content"))
    places = reserved(ledger)
    told.clear()
    got = wait_together(ledger, lambda number: (commit(ledger, number, place=places[number]), max(told, default=0)))
    assert [known for _, known in got] == [THREADS] * THREADS
    assert set(told) == {THREADS}


def test_a_refusal_is_its_own_callers_alone(tmp_path, transactions):
    ledger = begin(tmp_path / "x.ledger", charge=50)
    transactions.clear()
    got = wait_together(ledger, lambda number: ledger.reserve(Cost(10, 1)))
    assert len(transactions) == 1
    assert sum(isinstance(one, BudgetExhausted) for one in got) == THREADS - 5
    assert sorted(one.charge for one in got if isinstance(one, Place)) == [0, 10, 20, 30, 40]
    assert ledger.spent.charge == 50


def test_one_question_asked_by_all_is_written_once(tmp_path):
    ledger = begin(tmp_path / "x.ledger")
    places = reserved(ledger)
    got = wait_together(ledger, lambda number: commit(ledger, number, "same", places[number]))
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


@pytest.mark.parametrize("lost", ["execute_begin", "connect"])
def test_a_database_that_goes_away_in_the_middle_of_a_batch_is_told_to_everyone(tmp_path, monkeypatch, lost):
    ledger = begin(tmp_path / "x.ledger")
    places, store, append = reserved(ledger), ledger._store, DatabaseTransaction.append

    def away(*_, **__):
        raise sqlite3.OperationalError("disk I/O error")

    def append_the_first(self, row):
        standing = append(self, row)
        monkeypatch.setattr(store, lost, away)
        monkeypatch.setattr(DatabaseTransaction, "append", away)
        return standing

    monkeypatch.setattr(DatabaseTransaction, "append", append_the_first)
    got = wait_together(ledger, lambda number: commit(ledger, number, place=places[number]))
    assert all(isinstance(one, LedgerUnavailable) for one in got)
    monkeypatch.undo()
    assert commit(ledger, 0, place=places[0])[0].seq == 1
    assert ledger.verify().seq == 1


def test_a_batch_that_fails_before_it_is_committed_is_written_one_by_one(tmp_path, monkeypatch):
    ledger = begin(tmp_path / "x.ledger")
    places = reserved(ledger)

    def away(_):
        monkeypatch.undo()
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(DatabaseTransaction, "finish", away)
    got = wait_together(ledger, lambda number: commit(ledger, number, place=places[number]))
    assert sorted(entry.seq for entry, _ in got) == list(range(1, THREADS + 1))  # all of them were paid for
    assert ledger.verify().seq == THREADS


def test_a_database_that_does_not_come_back_is_waited_for_once_and_not_by_everyone_in_turn(tmp_path, monkeypatch):
    ledger, tries = begin(tmp_path / "x.ledger"), []
    places, store = reserved(ledger), ledger._store

    def busy(connection):
        tries.append(connection)
        raise sqlite3.OperationalError("database is locked")

    def away(_):
        monkeypatch.setattr(store, "execute_begin", busy)
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(DatabaseTransaction, "finish", away)
    got = wait_together(ledger, lambda number: commit(ledger, number, place=places[number]))
    assert all(isinstance(one, LedgerUnavailable) for one in got)
    assert len(tries) == 1


def test_what_is_written_is_shown_whatever_becomes_of_the_turn(tmp_path, monkeypatch):
    ledger = begin(tmp_path / "x.ledger")
    places = reserved(ledger)

    def stale(_):
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr("holdfast.ledger.sqlite_file.LockFile.release", stale)
    got = wait_together(ledger, lambda number: commit(ledger, number, place=places[number]))
    assert sorted(entry.seq for entry, _ in got) == list(range(1, THREADS + 1))


def test_a_forked_child_does_not_write_what_its_parents_threads_wait_for(tmp_path):
    path = tmp_path / "x.ledger"
    ledger = begin(path)
    store = ledger._store
    store._committer._pending.append(PendingWrite(lambda _: os._exit(9)))  # by a thread of the parent's
    child = os.fork()
    if child == 0:
        entry, _ = commit(ledger, 7)
        os._exit(0 if entry.seq == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(store._committer) == 1
    assert begin(path).verify().seq == 1


class Interrupt:
    """Interrupts a thread at the `place`-th point where Python looks for signals: entries, after calls, jumps back."""

    def __init__(self, place):
        self.left, self.point, self._before = place, None, {}

    def __call__(self, frame, event, _):
        if not frame.f_code.co_filename.endswith(TRACED):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "call":
            self._before[frame] = None
            self._count(frame)
        elif event == "opcode":
            before, self._before[frame] = self._before.get(frame), dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if before in ("CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD"):
                self._count(frame)
        elif event == "return":
            self._before.pop(frame, None)
        return self

    def _count(self, frame):
        self.left -= 1
        if self.left == 0:
            self.point = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_name}"
            sys.settrace(None)
            raise KeyboardInterrupt


def interrupted(ledger, place):
    """Interrupt a thread that writes beside two others; return the point, what was left locked, and what each got."""
    got, interrupt = {}, Interrupt(place)

    def run(who, key):
        if who == "interrupted":
            sys.settrace(interrupt)
        try:
            got[who] = commit(ledger, who, key)
        except (HoldfastError, ValueError, KeyboardInterrupt) as error:
            got[who] = error  # with its traceback, as an interactive session keeps it
        finally:
            sys.settrace(None)

    asked = [("flips", None), ("mean", "m"), ("interrupted", "i")]
    threads = [threading.Thread(target=run, args=(who, key)) for who, key in asked]
    gc.disable()  # what is collected meanwhile is not to be interrupted
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.enable()
    commit(ledger, "after")  # the committer has finished what nobody waits for
    return interrupt.point, left_locked(ledger), got


def left_locked(ledger):
    locked = []
    with sqlite3.connect(ledger.location, timeout=0, isolation_level=None) as other:
        try:
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
        except sqlite3.OperationalError:
            locked.append("the database")
    other.close()
    with open(f"{ledger.location}-lock", "a") as queue:
        try:
            fcntl.flock(queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            locked.append("the queue")
    return locked


def test_an_interrupt_anywhere_leaves_nothing_locked_and_the_others_answers_right(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.ledger.sqlite.LOCK_TIMEOUT", 0.1)
    begin(tmp_path / "begun.ledger").close()
    wrong = []
    for place in itertools.count(1):
        path = tmp_path / f"{place}.ledger"
        shutil.copyfile(tmp_path / "begun.ledger", path)
        with begin(path) as ledger:
            commit(ledger, "before")  # connected
            point, locked, got = interrupted(ledger, place)
            if point is None:
                break
            wrong += [f"{point}: {what} stays locked" for what in locked]
            with begin(path) as fresh:
                written = {entry.hash: entry.question["n"] for entry in fresh.entries()}
            for who in ("flips", "mean"):
                entry, new = got[who] if isinstance(got[who], tuple) else (None, None)
                if entry is None:
                    wrong.append(f"{point}: {who} got {type(got[who]).__name__}")
                elif written.get(entry.hash) != who:
                    wrong.append(f"{point}: {who} was shown an answer that is not in the ledger")
                elif not new:
                    wrong.append(f"{point}: {who} was told that its own new answer had been there")
            for who in ("flips", "mean", "interrupted"):
                if list(written.values()).count(who) > 1:
                    wrong.append(f"{point}: {who} was written and paid twice")
            got.clear()
    assert place > 30
    assert wrong == []


def interrupted_directly(ledger, place, key):
    """Interrupt this thread, the only one that writes; return the point, what was left locked, and what it got."""
    for number in range(3):
        commit(ledger, number)  # connected, and known to be the only writer
    interrupt = Interrupt(place)
    gc.disable()
    try:
        sys.settrace(interrupt)
        got = commit(ledger, "interrupted", key)
    except KeyboardInterrupt as error:
        got = error  # with its traceback, as an interactive session keeps it
    finally:
        sys.settrace(None)
        gc.enable()
    return interrupt.point, left_locked(ledger), got


def found_wrong(folder, key, charge=1_000, *, most=math.inf):
    """Interrupt a direct write at every point; return the number of points, and what went wrong, or so much of it."""
    begin(folder / "begun.ledger", charge).close()
    wrong = []
    for place in itertools.count(1):
        path = folder / f"{place}.ledger"
        shutil.copyfile(folder / "begun.ledger", path)
        ledger = begin(path)
        point, locked, got = interrupted_directly(ledger, place, key)
        if point is None or len(wrong) >= most:
            ledger.close()
            return place, wrong
        wrong += [f"{point}: {what} stays locked" for what in locked]
        if locked:
            continue  # a commit would hang
        again, fresh = commit(ledger, "interrupted", "again" if key is None else key)
        waiting = threading.Thread(target=commit, args=(ledger, "other"), daemon=True)
        waiting.start()
        waiting.join(20)
        if waiting.is_alive():
            wrong.append(f"{point}: another thread cannot write")
            continue
        with begin(path) as other:  # checks that no place is held twice
            written = [entry for entry in other.entries() if entry.question["n"] == "interrupted"]
        if isinstance(got, tuple) and (got[0] not in written or (key is not None and (fresh or got[0] != again))):
            wrong.append(f"{point}: an answer was shown that is not in the ledger, or not found again")
        if len(written) > (2 if key is None else 1):
            wrong.append(f"{point}: written and paid twice")
        # An interrupt may lose the place, and what was taken ahead: by now that is four answers at most.
        if not ledger.head.seq <= ledger.spent.charge // 10 <= ledger.head.seq + (1 if charge == 1_000 else 5):
            wrong.append(f"{point}: {ledger.spent} for {ledger.head.seq} answers")
        ledger.close()
    raise AssertionError


@pytest.mark.parametrize("charge", [1_000, 10**6], ids=["nothing ahead", "places ahead"])
@pytest.mark.parametrize("key", [None, "k"])
def test_an_interrupt_anywhere_in_a_direct_write_leaves_nothing_locked(tmp_path, key, charge, monkeypatch):
    handed_over = []
    submit = GroupCommitter.submit
    monkeypatch.setattr(GroupCommitter, "submit", lambda *args: (handed_over.append(sys.gettrace()), submit(*args))[1])
    places, wrong = found_wrong(tmp_path, key, charge)
    assert places > 30
    assert wrong == []
    assert [trace for trace in handed_over if trace is not None] == []  # what was interrupted was written directly


def test_a_direct_write_that_cleans_up_in_python_is_caught(tmp_path, monkeypatch):
    def mutant(self, decide):
        with self._writes.lock, self.turn(), self._transaction() as connection:
            transaction = DatabaseTransaction(self.sql, self.dataset, connection)
            decide(transaction)
            transaction.finish()
        return transaction

    monkeypatch.setattr(SqliteStore, "_write_directly", mutant)
    monkeypatch.setattr("holdfast.ledger.sqlite.LOCK_TIMEOUT", 0.1)
    _, wrong = found_wrong(tmp_path, "k", most=1)
    assert any("stays locked" in each for each in wrong)


def test_threads_that_come_and_go_while_one_writes_directly(tmp_path):
    with begin(tmp_path / "x.ledger", charge=10**6) as ledger:
        stop, shown = threading.Event(), []

        def visit():
            while not stop.is_set():
                shown.append(commit(ledger, "visitor")[0])
                time.sleep(0.002)

        visitors = [threading.Thread(target=visit) for _ in range(3)]
        for visitor in visitors:
            visitor.start()
        shown += [commit(ledger, number)[0] for number in range(300)]
        stop.set()
        for visitor in visitors:
            visitor.join()
        assert sorted(entry.seq for entry in shown) == list(range(1, len(shown) + 1))
        assert ledger.verify().seq == len(shown)


def test_a_writer_interrupted_by_real_signals_jams_nothing(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", STORM, str(tmp_path / "x.ledger")]
    ran = subprocess.run(command, env=environment(), capture_output=True, timeout=120, text=True)
    assert ran.returncode == 0, ran.stderr


STORM = """
import signal, sys
from holdfast.ledger import Cost
from ledger_writer import begun, write

def begin(path):
    return begun(path, {"caps": {"charge": 10**6, "intervals": 10**6}})

ledger, shown, interrupts = begin(sys.argv[1]), [], 0
signal.signal(signal.SIGALRM, signal.default_int_handler)
for number in range(1_500):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.00003 * (number % 17 + 1))
        shown.append(write(ledger, str(number), question={}, answer={}, cost=Cost(1, 1), rows_read=1)[0])
    except KeyboardInterrupt:
        interrupts += 1
    finally:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            pass
assert interrupts > 100, interrupts
written = {entry.hash for entry in begin(sys.argv[1]).entries()}
assert {entry.hash for entry in shown} <= written
keys = [entry.key for entry in ledger.entries()]
assert len(set(keys)) == len(keys) <= ledger.spent.charge
ledger.verify()  # no place was handed out twice
"""


def test_a_commit_that_fails_is_told_to_everyone_and_shows_nobody_an_answer(tmp_path, monkeypatch):
    ledger = begin(tmp_path / "x.ledger")
    store = ledger._store

    def full(connection):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(store, "commit", full)
    got = wait_together(ledger, lambda number: commit(ledger, number))
    assert all(isinstance(one, LedgerUnavailable) for one in got)
    monkeypatch.undo()
    assert ledger.spent.charge == 0
    assert commit(ledger, 1)[0].seq == 1


def test_a_commit_that_postgresql_turned_into_a_rollback_shows_nobody_an_answer(postgres_url, monkeypatch):
    ledger = begin(postgres_url, dataset=uuid.uuid4().hex)
    append = DatabaseTransaction.append

    def undone(self, row):
        append(self, row)
        self._connection.execute("ROLLBACK")

    monkeypatch.setattr(DatabaseTransaction, "append", undone)
    with pytest.raises(LedgerUnavailable, match="gave up"):
        commit(ledger, 1)
    monkeypatch.undo()
    assert commit(ledger, 1)[0].seq == 1
    ledger.close()


def test_a_server_that_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr("holdfast.ledger.postgres.AWAY", {"connect_timeout": 1})
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and that is all
        port = silent.getsockname()[1]
        with pytest.raises(LedgerUnavailable, match="timeout"):
            begin(f"postgresql://somebody@127.0.0.1:{port}/somewhere")


def test_a_text_that_cannot_be_sent_is_its_own_callers_trouble(postgres_url):
    location = f"{postgres_url}{'&' if '?' in postgres_url else '?'}client_encoding=latin1"
    with begin(location, dataset=uuid.uuid4().hex) as ledger:

        def ask(number):
            try:
                return commit(ledger, "€" if number == 3 else number)
            except UnicodeError as error:
                return error

        got = wait_together(ledger, ask)
        assert [number for number, one in enumerate(got) if number != 3 and not isinstance(one, tuple)] == []


def test_writers_queue_whatever_isolation_the_server_prefers(postgres_url):
    options = "options=-c%20default_transaction_isolation=repeatable%5C%20read"
    location, dataset = f"{postgres_url}{'&' if '?' in postgres_url else '?'}{options}", uuid.uuid4().hex
    ledgers = [begin(location, charge=10_000, dataset=dataset) for _ in range(2)]
    refused = []

    def write_some(ledger):
        for number in range(50):
            try:
                commit(ledger, number)
            except LedgerUnavailable as error:
                refused.append(error)

    threads = [threading.Thread(target=write_some, args=(ledger,)) for ledger in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for ledger in ledgers:
        ledger.close()
    assert refused == []


FORKS = """
import os, signal, sys, threading
from holdfast.ledger import Cost
from ledger_writer import begun, write

def begin(path):
    return begun(path, {"caps": {"charge": 100, "intervals": 100}}, fingerprint=path)

def commit(ledger):
    write(ledger, None, question={}, answer={}, cost=Cost(1, 1), rows_read=1)

ledger = begin(sys.argv[1])
commit(ledger)
held, done = threading.Event(), threading.Event()

def hold():  # a thread that writes just now
    with ledger._store._writes.lock:
        held.set()
        done.wait()

threading.Thread(target=hold).start()
held.wait()
main = threading.main_thread().ident
threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT)).start()
threading.Timer(0.6, done.set).start()
try:
    child = os.fork()
except KeyboardInterrupt:
    sys.exit(0)  # as good
if child == 0:
    signal.alarm(5)  # ends a child that hangs
    commit(ledger)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0, "the child hangs"
signal.alarm(5)
commit(ledger)
commit(begin(sys.argv[1] + "-other"))
"""


def test_an_interrupt_while_a_fork_waits_hangs_neither_parent_nor_child(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", FORKS, str(tmp_path / "x.ledger")]
    assert subprocess.run(command, env=environment(), capture_output=True, timeout=60).returncode == 0


def test_a_database_that_cannot_hold_every_text_is_refused(postgres_url):
    address = postgres_url.replace("+psycopg", "")
    name = f"latin_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    location = postgres_url.replace("/postgres?", f"/{name}?")
    assert location != postgres_url
    with pytest.raises(LedgerUnavailable, match="UTF8"):
        open_ledger(location, dataset="d", fingerprint="f")


def run_script(script, *arguments):
    """Run the script; return its exit code, or None if it had to be ended."""
    command = [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)]
    try:
        return subprocess.run(command, env=environment(), capture_output=True, timeout=20).returncode
    except subprocess.TimeoutExpired:
        return None


EXIT = """
import signal, sys, threading
from holdfast.ledger import Cost
from ledger_writer import begun, write

ledger = begun(sys.argv[1])
store = ledger._store
slow = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 1000000) SELECT count(*) FROM c"

def commit(connection):  # as on a slow disk
    threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
    connection.execute(f"UPDATE holdfast_ledgers SET charge = charge + 0 * ({slow})")
    type(store).commit(store, connection)

store.commit = commit
try:
    write(ledger, None, question={}, answer={}, cost=Cost(1, 1), rows_read=1)
except KeyboardInterrupt:
    sys.exit(7)
"""


def test_a_process_that_ends_while_the_committer_writes_does_not_crash(tmp_path):
    assert run_script(EXIT, tmp_path / "x.ledger") == 7


INTERRUPTED_FORK = """
import os, signal, sys, threading
from holdfast.ledger import Cost
from ledger_writer import begun, write

def commit(ledger):
    write(ledger, None, question={}, answer={}, cost=Cost(1, 1), rows_read=1)

ledger = begun(sys.argv[1])
commit(ledger)
store = ledger._store
before = type(store).close_for_fork

def interrupted(self):  # Ctrl-C in the middle of the hook, and again in the second try
    type(store).close_for_fork = again
    raise KeyboardInterrupt

def again(self):
    type(store).close_for_fork = before
    before(self)
    raise KeyboardInterrupt

type(store).close_for_fork = interrupted
child = os.fork()
if child == 0:
    signal.alarm(5)
    if any(slot.connection is not None for slot in (store._writes, store._reads)):
        os._exit(3)
    commit(ledger)
    thread = threading.Thread(target=commit, args=(ledger,))  # the locks are free for other threads, too
    thread.start()
    thread.join()
    os._exit(0)
signal.alarm(5)  # ends a parent that hangs
for _ in range(20):
    commit(ledger)
    ledger.find("x")
    threading.Event().wait(0.01)
sys.exit(os.waitpid(child, 0)[1] >> 8)
"""


def test_an_interrupt_at_the_start_of_a_fork_leaves_no_lock_and_no_connection_to_the_child(tmp_path):
    assert run_script(INTERRUPTED_FORK, tmp_path / "x.ledger") == 0


CLOSED_DURING_A_FORK = """
import os, sys, threading
from holdfast.errors import HoldfastError
from holdfast.ledger import Cost, database
from ledger_writer import begun, write

ledger = begun(sys.argv[1])
write(ledger, None, question={}, answer={}, cost=Cost(1, 1), rows_read=1)
store, opening = ledger._store, database.opening
reading, forking = threading.Event(), threading.Event()

class Late:  # a thread that is about to connect gets here just after a fork has begun
    def __enter__(self):
        reading.set()
        forking.wait()
        opening.acquire()
    def __exit__(self, *_):
        opening.release()

def read():
    try:
        store.find("k")
    except HoldfastError:  # closed
        pass

with store._reads.lock:
    store._reads.close()
database.opening = Late()
reader = threading.Thread(target=read)
reader.start()
reading.wait()
closer = threading.Thread(target=store.close)
closer.start()
while store._writes.connection is not None and store._writes.lock.acquire(blocking=False):
    store._writes.lock.release()
before = store.close_for_fork
store.close_for_fork = lambda: (forking.set(), before())
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
reader.join()
closer.join()
os._exit(7)
"""


def test_who_closes_a_ledger_during_a_fork_waits_for_no_thread_that_waits_for_the_fork(tmp_path):
    assert run_script(CLOSED_DURING_A_FORK, tmp_path / "x.ledger") == 7


def test_two_threads_that_serve_one_committer_do_everything_once():
    committer, lock, done = GroupCommitter("here"), threading.Lock(), []

    def write_batch():
        with lock:
            for pending in committer.take():
                pending.run(None)
                pending.finish()

    def submit(number):
        for step in range(200):
            if step == 100:
                committer._started = False  # as an interrupt between start and note leaves it
            pending = PendingWrite(lambda _, step=step: done.append((number, step)))
            committer.submit(pending, write_batch, lambda: None)

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    committer.stop()
    assert len(done) == 800 == len(set(done))


def test_an_error_that_was_raised_is_gone_when_nobody_holds_it(tmp_path):
    class Trouble(Exception):
        pass

    def trouble(writing):
        raise Trouble

    with begin(tmp_path / "x.ledger") as ledger:
        gc.collect()
        gc.disable()
        try:
            try:
                ledger._store.write(trouble)
            except Trouble as error:
                left = weakref.ref(error)
            commit(ledger, 1)  # the committer is done with it
            assert left() is None  # else it holds the ledger's files until a collection
        finally:
            gc.enable()


def test_a_ledger_that_nobody_closed_leaves_no_file_and_no_thread(tmp_path):
    path = tmp_path / "x.ledger"
    before = set(os.listdir("/proc/self/task"))
    ledger = begin(path)
    commit(ledger, 1)
    assert open_files(path)
    assert set(os.listdir("/proc/self/task")) - before
    del ledger
    deadline = time.monotonic() + 20
    while (open_files(path) or set(os.listdir("/proc/self/task")) - before) and time.monotonic() < deadline:
        gc.collect()
    assert open_files(path) == []
    assert set(os.listdir("/proc/self/task")) - before == set()


def open_files(path):
    """Return the files this process has open whose names begin with this path."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists them
            names.append(os.readlink(f"/proc/self/fd/{number}"))
    return [name for name in names if name.startswith(str(path))]


def test_what_the_database_said_is_the_cause_of_the_error(tmp_path, monkeypatch):
    ledger = begin(tmp_path / "x.ledger")

    def full(connection):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(ledger._store, "commit", full)
    with pytest.raises(LedgerUnavailable) as refused:
        commit(ledger, 1)
    assert isinstance(refused.value.__cause__, sqlite3.OperationalError)


LAST_WORDS = """
import builtins, sys
from holdfast.errors import HoldfastError
from holdfast.ledger import Cost
from ledger_writer import begun, write

class Keeper:
    def __init__(self):
        self.ledger = begun(sys.argv[1])

    def __del__(self):
        try:
            write(self.ledger, None, question={}, answer={}, cost=Cost(1, 1), rows_read=1)
        except HoldfastError:
            pass
        self.ledger.close()

builtins.keeper = Keeper()  # there until the interpreter is taken down, when threads no longer run
"""


def test_asking_while_the_interpreter_is_taken_down_does_not_hang(tmp_path):
    assert run_script(LAST_WORDS, tmp_path / "x.ledger") == 0


NESTED = """
import sys
from holdfast.errors import HoldfastError
from holdfast.ledger import Cost
from ledger_writer import begun, write

ledger = begun(sys.argv[1])
refused = []

def nested(writing):  # as a __del__ that the collector happens to run in the committer's thread
    try:
        write(ledger, None, question={}, answer={}, cost=Cost(1, 1), rows_read=1)
    except HoldfastError as error:
        refused.append(error)

ledger._store.write(nested)
assert len(refused) == 1
"""


def test_asking_from_the_committers_own_thread_is_refused(tmp_path):
    assert run_script(NESTED, tmp_path / "x.ledger") == 0


STORM_DURING_FORK = """
import os, signal, sys, threading
from holdfast.ledger.sqlite import SqliteStore
from ledger_writer import begun, commit

ledger = begun(sys.argv[1])
commit(ledger)

def interrupted(step):  # Ctrl-C held down
    left = [5]

    def run(self):
        left[0] -= 1
        if left[0] >= 0:
            raise KeyboardInterrupt
        step(self)

    return run

SqliteStore.close_for_fork = interrupted(SqliteStore.close_for_fork)
child = os.fork()
signal.alarm(5)  # ends who hangs
thread = threading.Thread(target=commit, args=(ledger,))  # the locks are free for other threads, too
thread.start()
thread.join()
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert ledger.verify().seq == 3
"""


def test_a_fork_interrupted_again_and_again_leaves_no_lock_held(tmp_path):
    assert run_script(STORM_DURING_FORK, tmp_path / "x.ledger") == 0


SIGNALED = """
import signal, sys
from holdfast.errors import LedgerUnavailable
from ledger_writer import begun, commit

ledger = begun(sys.argv[1] if sys.argv[2] == "file" else None)
refused = []

def handler(*_):
    try:
        commit(ledger)
    except LedgerUnavailable as error:
        refused.append(error)
    if sys.argv[3] == "close":
        ledger.close()
        sys.exit(7)

for _ in range(3):
    commit(ledger)  # known to be the only writer
signal.signal(signal.SIGTERM, handler)
signal.alarm(10)
try:
    ledger._store.write(lambda _: signal.raise_signal(signal.SIGTERM))
finally:
    assert len(refused) == 1
"""


@pytest.mark.parametrize("place", ["file", "memory"])
@pytest.mark.parametrize(("then", "code"), [("go on", 0), ("close", 7)])
def test_a_signal_handler_that_asks_and_closes_in_mid_write(tmp_path, place, then, code):
    assert run_script(SIGNALED, tmp_path / "x.ledger", place, then) == code
    if place == "file":
        with begun(tmp_path / "x.ledger") as ledger:
            assert ledger.verify().seq == 3


FORKED_IN_MID_WRITE = """
import os, signal, sys
from holdfast.errors import LedgerUnavailable
from ledger_writer import begun, commit

ledger = begun(sys.argv[1])
for _ in range(3):
    commit(ledger)  # known to be the only writer

def handler(*_):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)

signal.signal(signal.SIGTERM, handler)
signal.alarm(10)
try:
    ledger._store.write(lambda _: signal.raise_signal(signal.SIGTERM))
except LedgerUnavailable:  # its connection was closed before the fork
    commit(ledger)
    assert ledger.verify().seq == 4
    sys.exit(7)
"""


def test_a_signal_handler_that_forks_in_mid_write_ends_the_write_alone(tmp_path):
    assert run_script(FORKED_IN_MID_WRITE, tmp_path / "x.ledger") == 7


def test_an_interrupt_while_connecting_leaves_no_file_open(tmp_path, monkeypatch):
    path = tmp_path / "x.ledger"
    begin(path).close()

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("holdfast.ledger.sqlite_file._inode", interrupted)
    with pytest.raises(KeyboardInterrupt) as kept:  # with its traceback, as an interactive session keeps it
        open_ledger(path, dataset="d", fingerprint="f d")
    assert kept
    assert open_files(path) == []  # else a forked child would inherit their locks
