"""Attacks that drop draws they do not like: every draw is paid for, and a question that is being answered waits."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from counting_rows import CountingRows
from holdfast.errors import BudgetExhausted, EvaluationFailed, LedgerUnavailable
from holdfast.rows.memory import memory_rows
from holdfast.session.session import Session
from ledger_writer import environment

ROWS, QUERIES, THREADS = 2_000, 100, 20


class Watched(CountingRows):
    """Lets a test act on what was just drawn, as its running time would let an attacker do."""

    def __init__(self, after: Callable[[np.ndarray], None] = lambda counts: None) -> None:
        super().__init__(memory_rows({"x": np.arange(ROWS) % 2 == 0, "y": np.arange(ROWS)}))
        self.after = after

    def tally(self, *args: Any, **options: Any) -> Any:
        counts = super().tally(*args, **options)
        self.after(counts)
        return counts


def interrupt_if_high(counts: np.ndarray) -> None:
    """As a timer: rows that say yes take longer to evaluate, and too long is interrupted."""
    if counts[1] >= counts.sum() / 2:
        raise KeyboardInterrupt


@pytest.mark.parametrize(("trouble", "seen"), [(KeyboardInterrupt, KeyboardInterrupt), (MemoryError, EvaluationFailed)])
def test_interrupting_what_takes_long_costs_an_answer_each_time(
    trouble: type[BaseException], seen: type[BaseException]
) -> None:
    """The attack: ask ten times about the same half of the rows, and let only answers below 0.5 finish.

    With free draws all ten succeed at the price of ten. Here every try costs one, so what survives was paid for.
    """
    rows = Watched()
    with Session(rows, seed=3, queries=QUERIES, guarantee="posterior") as session:
        tries, low = 0, []

        def after(counts: np.ndarray) -> None:
            if counts[1] >= counts.sum() / 2:
                raise trouble

        rows.after = after
        while len(low) < 10:
            before, tries = session.budget.answers_left, tries + 1
            try:
                low.append(session.mean(f"x and y >= {-1 - len(low)}").value)
            except seen:
                assert session.budget.answers_given == len(low)
            assert session.budget.answers_left == before - 1
        assert max(low) < 0.5
        assert tries > 12
        assert rows.tallies == tries == QUERIES - session.budget.answers_left
        session.ledger.verify()


def test_dropped_draws_use_the_budget_up() -> None:
    rows = Watched(interrupt_if_high)
    with Session(rows, seed=3, queries=20, guarantee="posterior") as session:
        for number in range(10_000):
            try:
                session.mean(f"x and y >= {-1 - number}")
            except KeyboardInterrupt:
                pass
            except BudgetExhausted:
                break
        assert session.budget.answers_left == 0
        read = rows.tallies
        with pytest.raises(BudgetExhausted, match="0 of 20 are left"):
            session.mean("x")
        assert rows.tallies == read == 20


def together(asks: list[Callable[[], object]]) -> list[object]:
    """Let all ask at once; return what each got."""
    got: list[object] = [None] * len(asks)
    start = threading.Barrier(len(asks))

    def run(number: int) -> None:
        start.wait()
        try:
            got[number] = asks[number]()
        except (KeyboardInterrupt, LedgerUnavailable) as error:
            got[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(asks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return got


@pytest.mark.parametrize("guarantee", ["best", "checks"])
def test_a_thread_that_gets_no_generator_has_paid_nothing(guarantee: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(key: bytes) -> Any:
        raise ImportError("its library cannot be imported now: another thread was interrupted while it was")

    options = {"guess": 0.5} if guarantee == "checks" else {}
    with Session({"x": np.arange(2_000) % 2}, guarantee=guarantee) as session:
        with monkeypatch.context() as context:
            context.setattr("holdfast.randomness.keyed_generator", fails)
            with pytest.raises(ImportError, match="cannot be imported now"):
                session.ask("x = 1", "check" if options else "mean", **options)
        assert session.ledger.spent.answers == session.ledger.answered.failed == session.ledger.taken.charge == 0
        session.ask("x = 1", "check" if options else "mean", **options)


def test_twenty_threads_that_ask_the_same_get_one_draw() -> None:
    """The attack: whoever commits first wins, and time tells about values. With one draw there is nothing to win."""
    rows = Watched(lambda counts: time.sleep(0.05))
    with Session(rows, queries=QUERIES, guarantee="posterior") as session:
        session.mean("not x")
        answers: list[Any] = together([lambda: session.for_analyst("ada").mean("x")] * THREADS)
        assert rows.tallies == 2
        assert len({(answer.value, answer.receipt) for answer in answers}) == 1
        assert [answer.cached for answer in answers].count(False) == 1
        assert session.budget.answers_left == QUERIES - 2


def test_if_the_first_one_fails_the_next_one_goes_on_and_pays_anew() -> None:
    failures = iter([KeyboardInterrupt, MemoryError])

    def fail_twice(counts: np.ndarray) -> None:
        time.sleep(0.05)
        for failure in failures:
            raise failure

    def ask() -> object:
        try:
            return session.mean("x")
        except EvaluationFailed:
            return None

    rows = Watched(fail_twice)
    with Session(rows, queries=QUERIES, guarantee="posterior") as session:
        session.answering.plan.begin()
        got: list[Any] = together([ask] * 6)
        assert rows.tallies == 3 == QUERIES - session.budget.answers_left
        answers = [each for each in got if each is not None and not isinstance(each, KeyboardInterrupt)]
        assert len(answers) == 4
        assert len({answer.receipt for answer in answers}) == 1


def test_different_questions_do_not_wait_for_each_other() -> None:
    inside = threading.Barrier(4, timeout=60)  # breaks unless four evaluations run at once
    rows = Watched(lambda counts: (inside.wait(), None)[1])
    with Session(rows, queries=QUERIES, guarantee="posterior") as session:
        got: list[Any] = together([lambda i=i: session.mean(f"y < {i}") for i in range(4)])  # type: ignore[misc]
        assert sorted(answer.seq for answer in got) == [1, 2, 3, 4]


def test_who_waits_for_the_same_question_can_be_interrupted() -> None:
    inside, go_on = threading.Event(), threading.Event()
    rows = Watched(lambda counts: (inside.set(), go_on.wait(60), None)[2])
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    with Session(rows, queries=QUERIES, guarantee="posterior") as session:
        first = threading.Thread(target=session.mean, args=("x",))
        first.start()
        try:
            assert inside.wait(60)
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt):
                session.mean("x")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            go_on.set()
            first.join(60)
        assert session.mean("x").cached
        assert rows.tallies == 1 == QUERIES - session.budget.answers_left


STORM = """
import signal, sys, threading
import numpy as np
from holdfast import Session

asked, interrupts = 0, 0
session = Session({"x": np.arange(2_000)}, queries=100_000, guarantee="posterior", ledger=sys.argv[1])
session.mean("x < 0")
signal.signal(signal.SIGALRM, signal.default_int_handler)
for number in range(600):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0001 * (number % 17 + 1))
        session.mean(f"x < {number % 300}")
    except KeyboardInterrupt:
        interrupts += 1
    finally:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            pass
assert interrupts > 20, interrupts

def ask():
    for number in range(300):
        session.mean(f"x < {number}")

thread = threading.Thread(target=ask, daemon=True)
thread.start()
thread.join(60)
assert not thread.is_alive(), "a question stays locked"
given = session.budget.answers_given
assert given == session.ledger.verify().seq == 300  # each is answered once
assert session.ledger.spent.charge >= given * session.plan.rows_per_query
"""


def test_interrupts_at_any_moment_leave_no_question_locked(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", STORM, str(tmp_path / "x.ledger")]
    ran = subprocess.run(command, env=environment(), capture_output=True, timeout=200, text=True)
    assert ran.returncode == 0, ran.stderr


def test_closing_what_an_analyst_was_given_closes_nothing() -> None:
    with Session(Watched(), queries=QUERIES) as session:
        with session.for_analyst("ada") as ada:
            ada.mean("x")
        assert session.mean("x").cached
        assert ada.mean("x").cached
    with pytest.raises(LedgerUnavailable, match="closed"):
        ada.mean("x")
