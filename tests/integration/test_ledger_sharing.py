"""Threads, processes and forked children spend one budget together: to the last unit, never past it."""

import os
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from functools import partial

import pytest

from holdfast.errors import BudgetExhausted, LedgerUnavailable
from holdfast.ledger import Cost, Drawn, Place, Spent
from holdfast.ledger.concurrency import opening
from holdfast.ledger.places import ProcessStock
from ledger_writer import ANSWER, QUESTION, begun, commit, environment, terms

CAP, THREADS, PROCESSES = 1_000, 8, 2

SPENDER = """
import sys, threading, uuid
from ledger_writer import commit, fingerprint_of
from holdfast.errors import BudgetExhausted
from holdfast.ledger import open_ledger

ledger = open_ledger(sys.argv[1], dataset=sys.argv[2], fingerprint=fingerprint_of(sys.argv[2]))
done = []

def spend():
    for charge in (7, 3, 1):  # large pieces first, then whatever still fits
        try:
            while True:
                commit(ledger, uuid.uuid4().hex, charge=charge)
                done.append(charge)
        except BudgetExhausted as error:
            assert error.fields["left"] < charge, error

threads = [threading.Thread(target=spend) for _ in range(int(sys.argv[3]))]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sum(done), len(done))
"""


@pytest.fixture(params=["file", "postgres"])
def place(request, tmp_path) -> tuple[str, str]:
    dataset = f"shared-{uuid.uuid4().hex}"
    if request.param == "file":
        return str(tmp_path / "shared.ledger"), dataset
    return request.getfixturevalue("postgres_url"), dataset


def test_processes_and_threads_spend_exactly_the_budget(place):
    location, dataset = place
    with begun(location, terms(charge=CAP), dataset=dataset) as ledger:
        command = [sys.executable, "-W", "error", "-c", SPENDER, location, dataset, str(THREADS)]
        spenders = [
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) for _ in range(PROCESSES)
        ]
        reports = [spender.communicate()[0].split() for spender in spenders]
        assert [spender.returncode for spender in spenders] == [0] * PROCESSES
        charge, answers = (sum(int(line[i]) for line in reports) for i in (0, 1))
        assert charge == CAP
        assert ledger.spent == Spent(CAP, answers, answers)
        assert ledger.verify().seq == answers
        with pytest.raises(BudgetExhausted):
            ledger.reserve(Cost(1, 1))


def test_threads_of_two_ledgers_never_get_the_same_place(place):
    location, dataset = place
    taken: list[tuple[Place, int]] = []

    def take(ledger, number) -> None:
        for i in range(40):
            charge = 1 + (i * number) % 7
            taken.append((ledger.reserve(Cost(charge, 1)), charge))

    with begun(location, dataset=dataset) as one, begun(location, dataset=dataset) as two:
        two._stock = ProcessStock()  # as in another process
        threads = [threading.Thread(target=take, args=(ledger, i)) for i in range(4) for ledger in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        two.close()
        one.close()
    units = [unit for got, charge in taken for unit in range(got.charge, got.charge + charge)]
    assert len(set(units)) == len(units)
    for each in ({got.number for got, _ in taken}, {got.intervals for got, _ in taken}):
        assert len(each) == len(taken) == 320


def test_a_forked_child_does_not_hand_out_what_its_parent_has_taken_ahead(place):
    location, dataset = place
    with begun(location, dataset=dataset) as ledger:
        for _ in range(50):
            commit(ledger)
        assert ledger._stock.total[0] > 5

        def child() -> None:
            assert min([ledger.reserve(Cost(1, 1)).number for _ in range(5)]) > 1 + ahead[-1]
            ledger.close()  # gives back its own at most

        ahead = ledger._stock.now.numbers[0]
        assert in_child(child) == 0
        numbers = [commit(ledger).place.number for _ in ahead]
        assert numbers == [number + 1 for number in ahead]
        ledger.verify()


UNCLOSED = """
import sys
from ledger_writer import commit, fingerprint_of
from holdfast.ledger import open_ledger

ledger = open_ledger(sys.argv[1], dataset=sys.argv[2], fingerprint=fingerprint_of(sys.argv[2]))
for _ in range(100):
    commit(ledger)
assert ledger._stock.total[0] > 20
if sys.argv[3] == "raise":
    raise SystemExit(3)
"""


@pytest.mark.parametrize(("end", "code"), [("return", 0), ("raise", 3)])
def test_a_process_that_ends_gives_back_what_it_has_taken_ahead(place, end, code):
    location, dataset = place
    with begun(location, dataset=dataset) as ledger:
        command = [sys.executable, "-W", "error", "-c", UNCLOSED, location, dataset, end]
        assert subprocess.run(command, env=environment()).returncode == code
        assert ledger.spent == Spent(100, 100, 100)


def in_child(work) -> int:
    """Run `work` in a forked child; return its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")  # the runner has threads
def test_a_place_is_for_the_process_that_reserved_it(place):
    location, dataset = place
    values = {"key": None, "question": QUESTION, "answer": ANSWER, "cost": Cost(1, 1), "rows_read": 1}
    with begun(location, dataset=dataset) as ledger:
        mine = ledger.reserve(Cost(1, 1))

        def child() -> None:
            with pytest.raises(LedgerUnavailable, match="the process was forked while it was drawn"):
                ledger.commit(Drawn(mine, **values))
            commit(ledger)  # a place of its own

        assert in_child(child) == 0
        ledger.commit(Drawn(mine, **values))
        ledger.verify()
        assert ledger.spent.answers == 2


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")  # the runner has threads
def test_parent_and_forked_child_share_a_ledger_in_use(place):
    location, dataset = place
    with begun(location, dataset=dataset) as ledger:
        commit(ledger, "parent-1")
        busy, stop = threading.Event(), threading.Event()

        def keep_writing() -> None:
            while not stop.is_set():
                commit(ledger, uuid.uuid4().hex)
                ledger.find("parent-1")
                busy.set()

        def write_some() -> None:
            for i in range(20):
                commit(ledger, f"child-{os.getpid()}-{i}")
            assert ledger.find("parent-1") is not None

        writer = threading.Thread(target=keep_writing)
        writer.start()  # so that forks happen in the middle of commits
        busy.wait()
        codes = [in_child(write_some) for _ in range(8)]
        stop.set()
        writer.join()
        commit(ledger, "parent-2")
        assert codes == [0] * 8
        keys = [entry.key or "" for entry in ledger.entries()]
        assert sum(key.startswith("child-") for key in keys) == 160
        assert ledger.spent.answers == len(keys) == ledger.verify().seq


@pytest.mark.parametrize("who", ["reads", "writes"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_no_child_is_forked_while_a_thread_looks_at_the_file(tmp_path, monkeypatch, who):
    """What that thread holds in SQLite, the child would wait for; and whoever writes does not wait for the fork."""
    connect, looking, began = sqlite3.connect, [], threading.Event()

    def slow(*args, **options):
        looking.append(args)
        began.set()
        time.sleep(0.5)
        looking.pop()
        return connect(*args, **options)

    with begun(tmp_path / "a.ledger", dataset="data") as ledger:
        commit(ledger)
        ledger._store._state = None  # as if somebody had moved the log into the file
        act = partial(ledger._store.write, lambda _: None) if who == "writes" else ledger._store.tip
        thread = threading.Thread(target=act)
        with monkeypatch.context() as patched:
            patched.setattr(sqlite3, "connect", slow)
            thread.start()
            assert began.wait(20)
            assert in_child(lambda: os._exit(len(looking))) == 0
        thread.join(20)
        assert not thread.is_alive()
        ledger.verify()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_who_reads_while_it_writes_does_not_wait_for_a_fork_that_waits_for_it(place):
    """As a board does, which looks for the best so far when a fork has closed the connection to read."""
    location, dataset = place
    writing = threading.Event()

    def decide(_):
        ledger._store._reads.close()  # as a fork did, since this thread last read
        writing.set()
        until = time.monotonic() + 5
        while opening.acquire(blocking=False) and time.monotonic() < until:  # until somebody forks
            opening.release()
            time.sleep(0.01)
        assert ledger._store.tip() is not None

    def fork():
        writing.wait(20)
        assert in_child(lambda: None) == 0

    with begun(location, dataset=dataset) as ledger:
        commit(ledger)
        threads = [threading.Thread(target=act, daemon=True) for act in (partial(ledger._store.write, decide), fork)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in threads)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_may_not_spend_a_ledger_in_memory():
    ledger = begun(None, dataset="d")
    entry = commit(ledger, "parent")

    def child() -> None:
        assert ledger.find("parent") == entry
        with pytest.raises(LedgerUnavailable, match="forked"):
            commit(ledger, "child")

    assert in_child(child) == 0
    commit(ledger, "parent again")


def pipes() -> tuple[int, int, int, int]:
    """Return what the child reads, the parent writes, the parent reads and the child writes."""
    (child_reads, parent_writes), (parent_reads, child_writes) = os.pipe(), os.pipe()
    return child_reads, parent_writes, parent_reads, child_writes


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_what_a_child_commits_survives_that_the_parent_closes(place):
    # A connection open during the fork would let the parent delete the log that the child writes to.
    location, dataset = place
    ledger = begun(location, dataset=dataset)
    commit(ledger, "parent")
    child_reads, parent_writes, parent_reads, child_writes = pipes()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            commit(ledger, "child-1")
            os.write(child_writes, b"x")
            os.read(child_reads, 1)
            commit(ledger, "child-2")
            code = 0
        finally:
            os._exit(code)
    os.read(parent_reads, 1)
    ledger.close()
    os.write(parent_writes, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for descriptor in (child_reads, parent_writes, parent_reads, child_writes):
        os.close(descriptor)
    with begun(location, dataset=dataset) as again:
        assert [entry.key for entry in again.entries()] == ["parent", "child-1", "child-2"]
        again.verify()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_forked_while_the_file_was_open_is_refused(tmp_path, monkeypatch):
    with begun(tmp_path / "x.ledger") as ledger:
        commit(ledger, "parent")
        store = type(ledger._store)
        monkeypatch.setattr(store, "close_for_fork", lambda self: None)  # as interrupts could skip it

        def child() -> None:
            for use in (lambda: commit(ledger, "child"), lambda: ledger.find("parent")):
                with pytest.raises(LedgerUnavailable, match="forked while the file was open"):
                    use()

        assert in_child(child) == 0
        monkeypatch.undo()
        commit(ledger, "parent again")


def test_a_lost_connection_is_replaced(postgres_url):
    import psycopg

    with begun(postgres_url, dataset=uuid.uuid4().hex) as ledger:
        commit(ledger, "before")
        plain = postgres_url.replace("postgresql+psycopg", "postgresql")
        with psycopg.connect(plain, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                "AND datname = current_database() AND application_name = 'holdfast' AND state = 'idle'"
            )
        assert ledger.find("before") is not None
        commit(ledger, "after")
        assert ledger.verify().seq == 2
