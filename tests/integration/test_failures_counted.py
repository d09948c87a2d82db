"""A check or a submission that ends without a response is a response too: whatever ended it, it counts as failed.

Whether an evaluation fails may depend on the rows that it has read. If that were free, an analyst could learn them for
nothing: he lets checks fail on what he wants to know.
"""

import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.cancel import Work
from holdfast.errors import EvaluationFailed, LedgerUnavailable, RowSourceError
from holdfast.guarantees.checks import Checks
from holdfast.guarantees.ladder import Ladder, SubmissionsSoFar
from holdfast.guarantees.mathematics.checks import failure_nats, full_range, guess_nats, time_share
from holdfast.guarantees.terms import PlainAmounts
from holdfast.ledger import Answered, FileWitness, audit, content_of, open_ledger
from holdfast.ledger.backup import backup, restore
from holdfast.ledger.ledger import Ledger
from holdfast.ledger.opening import forget_all
from holdfast.mechanisms.cells import Cells, Grid
from holdfast.queries.guess import Guess
from holdfast.rows.memory import memory_rows
from holdfast.session.answering import Answering, Unwritten
from holdfast.session.session import Session
from ledger_writer import environment

ROWS = 4_000
SECRET = "the sum was 42.4242"  # what an error would quote
Raised = type[BaseException]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    forget_all()
    yield
    forget_all()


def table(rows: int = ROWS) -> dict[str, Any]:
    return {"x": np.arange(rows) / rows, "yes": np.arange(rows) % 10 < 3}


def checking(tmp_path: Path) -> Session:
    return Session(table(), guarantee="checks", seed=1)


def in_a_file(tmp_path: Path) -> Session:
    return Session(table(), guarantee="checks", ledger=tmp_path / "checks.ledger")


def beside_coins(tmp_path: Path) -> Session:
    session = Session(table(), checks=0.5, ledger=tmp_path / "both.ledger")
    session.mean("x > 0.5")
    return session


def held_back(tmp_path: Path) -> Session:
    return hf.hold_back(table())[1]


def dealt(tmp_path: Path) -> Session:
    pl.DataFrame(table()).write_parquet(tmp_path / "t.parquet")
    session = Session(hf.deal(tmp_path / "t.parquet", tmp_path / "t.deck", cards=3_000, checks=0.5))
    session.mean("x > 0.5")
    return session


SESSIONS = [checking, in_a_file, beside_coins, held_back, dealt]


def check(session: Session, number: int = 0) -> hf.CheckAnswer:
    """Ask a check that holds, and has no code."""
    return session.check(pl.col("yes"), 0.3, 0.2 + number / 1e6)


def failing(patch: pytest.MonkeyPatch, owner: Any, name: str, error: Raised) -> None:
    def fails(*_: object, **__: object) -> object:
        raise error(SECRET)

    patch.setattr(owner, name, fails)


WAYS = {
    "in evaluation": (Guess, "outcome", OverflowError, EvaluationFailed),
    "in what is released": (Cells, "release", MemoryError, EvaluationFailed),
    "in an argument's rule": (Guess, "outcome", hf.InvalidArgument, EvaluationFailed),
    "in certifying": (Checks, "certify", FloatingPointError, EvaluationFailed),
    "interrupted": (Guess, "outcome", KeyboardInterrupt, KeyboardInterrupt),
    "ended": (Guess, "outcome", SystemExit, SystemExit),
    "unreadable": (Guess, "outcome", RowSourceError, RowSourceError),
    "not written": (Ledger, "commit_all", LedgerUnavailable, LedgerUnavailable),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("opened", SESSIONS)
def test_whatever_ends_a_check_it_counts_as_failed(
    opened: Callable[[Path], Session], way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, error, seen = WAYS[way]
    with opened(tmp_path) as session:
        assert "failed" not in entry_of(check(session), session)
        before = session.price(pl.col("yes"), "check", guess=0.3, margin=0.1).margin
        told = session.ledger.answered
        with monkeypatch.context() as patch:
            failing(patch, owner, name, error)
            for number in (1, 2):
                with pytest.raises(seen) as caught:
                    check(session, number)
        if seen is EvaluationFailed:
            assert SECRET not in "".join(traceback.format_exception(caught.value))
            assert str(caught.value.__context__) == SECRET  # for whoever looks for the fault
        so_far = session.ledger.answered
        assert (so_far.charge, so_far.intervals) == (told.charge, told.intervals)
        found, guarantee = check(session, 3), session.plan.standing.checks
        assert isinstance(guarantee, Checks)
        assert entry_of(found, session)["failed"] == 2
        level = guarantee.terms.beta1 * 0.9 * time_share(2)
        nats = guess_nats(2, 0, 0.0) + failure_nats(4, 2)
        cell = (0.3 - found.margin, 0.3 + found.margin)
        expected = full_range(cell, n=guarantee.terms.rows, level=level, nats=nats)
        assert found.interval == pytest.approx(expected, abs=1e-9)
        assert session.price(pl.col("yes"), "check", guess=0.3, margin=0.1).margin > before + 0.005
        session.ledger.verify()


def entry_of(answer: hf.CheckAnswer, session: Session) -> dict[str, Any]:
    return next(entry.answer for entry in session.ledger.entries() if entry.seq == answer.seq)


def test_all_of_a_list_have_failed_if_one_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = [{"kind": "check", "query": "yes", "guess": 0.3, "margin": 0.1 + n / 100} for n in range(3)]
    with checking(tmp_path) as session:
        with monkeypatch.context() as patch:
            outcome, calls = Guess.outcome, iter(range(3))

            def second_fails(self: Guess, totals: Any) -> str:
                if next(calls) == 1:
                    raise ZeroDivisionError
                return outcome(self, totals)

            patch.setattr(Guess, "outcome", second_fails)
            with pytest.raises(EvaluationFailed):
                session.ask_many(asked)
        assert session.ledger.answered == Answered(0, 0, failed=3)
        assert [one.outcome for one in session.ask_many(asked)] == ["holds"] * 3
        assert session.ledger.answered == Answered(0, 3, failed=3)


@pytest.mark.parametrize("by", ["the process", "nobody"])
def test_a_killed_check_counts_when_the_ledger_is_opened_again(by: str, tmp_path: Path) -> None:
    """Nobody could write anything about it any more: the reservation itself says that a check was begun."""
    place = tmp_path / "checks.ledger"
    kill = "os.kill(os.getpid(), signal.SIGKILL)" if by == "the process" else "return outcome(self, totals)"
    code = f"""
import os, signal, sys
import numpy as np
import polars as pl
import holdfast as hf
from holdfast.queries.guess import Guess
session = hf.Session({{"x": np.arange({ROWS}) / {ROWS}, "yes": np.arange({ROWS}) % 10 < 3}}, guarantee="checks",
    ledger={str(place)!r})
for number in range(20):  # fast enough for places to be taken ahead, if any were
    session.check(pl.col("yes"), 0.3, 0.2 + number / 1e6)
outcome = Guess.outcome
def killed(self, totals):
    {kill}
Guess.outcome = killed
session.check(pl.col("yes"), 0.3, 0.1)
"""
    ended = subprocess.run([sys.executable, "-c", code], env=environment(), check=False, timeout=300)
    killed = by == "the process"
    assert ended.returncode == (-signal.SIGKILL if killed else 0)
    with in_a_file(tmp_path) as session:
        assert session.ledger.answered == Answered(0, 20 if killed else 21, failed=int(killed))
        assert entry_of(check(session, 99), session).get("failed", 0) == int(killed)
        session.ledger.verify()
    assert audit(place).answered.failed == int(killed)


@pytest.mark.parametrize("answers_since", [0, 1])
def test_a_restored_ledger_knows_of_failures_that_a_witness_saw(
    answers_since: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, place, copy = memory_rows(table()), tmp_path / "checks.ledger", tmp_path / "copy"
    witness = FileWitness(tmp_path / "witness", content_of(rows.fingerprint))
    with Session(rows, guarantee="checks", ledger=place) as session:
        session.ledger.watch(witness)
        check(session)
        backup(place, copy)
        with monkeypatch.context() as patch:
            failing(patch, Guess, "outcome", OverflowError)
            for number in (1, 2):
                with pytest.raises(EvaluationFailed):
                    check(session, number)
        for number in range(answers_since):
            check(session, 3 + number)
    for part in tmp_path.glob("checks.ledger*"):
        part.unlink()
    forget_all()
    restore(copy, place, fingerprint=rows.fingerprint, witnesses=[witness])
    with open_ledger(place, dataset=rows.name, fingerprint=rows.fingerprint, witnesses=[witness]) as ledger:
        assert ledger.answered == Answered(0, 1 + answers_since, failed=2)


def test_what_is_under_way_has_not_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another thread's check, and one that is drawn but not written; of another process nobody can tell."""
    inside, go_on = threading.Event(), threading.Event()
    outcome = Guess.outcome

    def slow(self: Guess, totals: Any) -> str:
        if self.margin == 0.05:
            inside.set()
            assert go_on.wait(60)
        return outcome(self, totals)

    monkeypatch.setattr(Guess, "outcome", slow)
    with in_a_file(tmp_path) as session:
        check(session)
        thread = threading.Thread(target=session.check, args=(pl.col("yes"), 0.3, 0.05))
        thread.start()
        assert inside.wait(60)
        unwritten = session.answering.draw(
            session.prepare(pl.col("yes"), "check", guess=0.3, margin=0.04), lambda: None
        )
        assert isinstance(unwritten, Unwritten)
        assert "failed" not in entry_of(check(session, 1), session)
        assert session.ledger.answered == Answered(0, 2, under_way=2)
        with in_another_process(session.ledger) as count:
            assert count == 2
        go_on.set()
        thread.join()
        Answering.write_all([unwritten])
        assert session.ledger.answered == Answered(0, 4)


def test_whoever_waited_for_one_sees_that_all_written_with_it_have_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with in_a_file(tmp_path) as session:
        questions = [session.prepare(pl.col("yes"), "check", guess=0.3, margin=0.1 + n / 10) for n in range(2)]
        drawn = [session.answering.draw(question, lambda: None) for question in questions]
        unwritten, seen = [one for one in drawn if isinstance(one, Unwritten)], list[bool]()
        assert len(unwritten) == 2
        session.answering.draw(questions[0], lambda: seen.extend(one.asking.ended for one in unwritten))
        failing(monkeypatch, Ledger, "commit_all", LedgerUnavailable)
        with pytest.raises(LedgerUnavailable):
            Answering.write_all(unwritten)
        assert seen == [True, True]


class in_another_process:  # noqa: N801  reads like the sentence it is
    """What a forked child would say has failed: it has none of its parent's questions under way."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __enter__(self) -> int:
        ready, write = os.pipe()
        child = os.fork()
        if not child:
            os.write(write, bytes([self._ledger.answered.failed]))
            os._exit(0)
        os.waitpid(child, 0)
        (count,) = os.read(ready, 1)
        os.close(ready)
        os.close(write)
        return count

    def __exit__(self, *_: object) -> None:
        pass


def test_an_interrupt_anywhere_is_never_forgotten(tmp_path: Path) -> None:
    """At whatever line of the library it comes: a check that was begun is answered, or it counts as failed."""
    for line in range(40, 900, 37):
        forget_all()
        with Session(table(200), guarantee="checks", seed=1) as session:
            check(session)
            left = line

            def interrupt(frame: Any, event: str, _: Any) -> Any:
                nonlocal left
                if "holdfast" in frame.f_code.co_filename:
                    left -= event == "line"
                    if left < 0 and threading.current_thread() is threading.main_thread():
                        sys.settrace(None)
                        raise KeyboardInterrupt
                return interrupt

            try:
                sys.settrace(interrupt)
                check(session, 1)
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(None)
            answered, taken = session.ledger.answered, session.ledger.taken
            assert answered.failed == taken.intervals - answered.intervals


# -- what leaves the evaluation -------------------------------------------------------------------------------------


def test_coins_too_fail_in_one_sentence_and_are_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(table(), queries=100, seed=1) as session:
        session.mean("x > 0.5")
        left = session.budget.answers_left
        with monkeypatch.context() as patch:
            failing(patch, type(session._rows), "tally", FloatingPointError)
            with pytest.raises(EvaluationFailed) as caught:
                session.mean("x > 0.25")
        assert SECRET not in "".join(traceback.format_exception(caught.value))
        assert session.budget.answers_left == left - 1  # type: ignore[operator]


@pytest.mark.parametrize("error", [OverflowError, TypeError, pl.exceptions.ComputeError])
def test_a_row_on_which_an_expression_fails_is_missing_and_no_other(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the value of a row stays a function of that row alone, which is all that the guarantee of coins allows."""
    from holdfast.queries.build import build_mean
    from holdfast.queries.evaluate import Expression

    rows = memory_rows({"x": np.arange(100.0)})
    on_normalized = Expression.on_normalized

    def fails_on_seven(self: Expression, some: pl.DataFrame) -> pl.Series:
        if 7.0 in some["x"]:
            raise error(SECRET)
        return on_normalized(self, some)

    monkeypatch.setattr(Expression, "on_normalized", fails_on_seven)
    (function,) = build_mean("sqrt(x) < 5", rows.schema).functions
    values = function.series(pl.DataFrame({"x": np.arange(100.0)}))
    assert values.to_list() == [x < 25 if x != 7 else None for x in range(100)]


def test_a_check_whose_caller_left_is_finished_and_a_mean_is_called_off() -> None:
    with Session(table(), checks=0.5, seed=1) as session:
        session.mean("x > 0.5")
        work = Work()
        work.cancel()
        with pytest.raises(hf.ServiceUnavailable):
            work.run(lambda: session.mean("x > 0.25"))
        work = Work()
        work.cancel()
        assert work.run(lambda: check(session)).holds
        assert session.plan.standing.checks.so_far(PlainAmounts(*totals(session))).failed == 0  # type: ignore[union-attr]


def totals(session: Session) -> tuple[int, int, int]:
    answered = session.ledger.answered
    return answered.charge, answered.intervals, answered.failed


# -- boards ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "name", "error", "seen"),
    [
        (Grid, "release", OverflowError, EvaluationFailed),
        (Grid, "release", KeyboardInterrupt, KeyboardInterrupt),
        (Ladder, "certify", ZeroDivisionError, EvaluationFailed),
        (Ledger, "commit_all", LedgerUnavailable, LedgerUnavailable),
    ],
)
def test_submissions_that_fail_count_in_the_intervals_of_a_board(
    owner: Any, name: str, error: Raised, seen: Raised, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = np.arange(1_000)

    def submit(board: hf.Board, right: int) -> hf.SubmitAnswer:
        return board.submit({"id": ids, "prediction": np.where(ids < right, 1, 0)})

    with hf.Board({"id": ids, "label": np.ones(1_000, np.int64)}, step=0.02) as board:
        submit(board, 500)
        with monkeypatch.context() as patch:
            failing(patch, owner, name, error)
            for right in (600, 610):
                with pytest.raises(seen):
                    submit(board, right)
        better = submit(board, 701)
        so_far = SubmissionsSoFar(0, 0, 0).after(26)._replace(failed=2)
        assert better.interval == pytest.approx(board.ladder.certify(36, so_far), abs=1e-12)
        assert board.ladder.certify(36, so_far)[1] > board.ladder.certify(36, so_far._replace(failed=0))[1] + 0.005
        assert better.ahead is not None
        assert board.session.ledger.answered.failed == 2
        board.verify()
