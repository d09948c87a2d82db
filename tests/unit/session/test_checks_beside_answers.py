"""Two drawers: rows that answer and rows that check share a ledger, and no row."""

import os
import signal
import threading
from dataclasses import replace
from math import ceil, log
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import holdfast as hf
from holdfast.errors import BudgetExhausted, InvalidArgument, NotCovered, PlanConflict
from holdfast.guarantees import drawers as guarantee_of_drawers
from holdfast.guarantees import read
from holdfast.guarantees.checks import CODED, Checks, ChecksSoFar
from holdfast.guarantees.drawers import COINS, STATEMENTS, CheckDrawer, Drawers, DrawerTerms
from holdfast.guarantees.mathematics.checks import (
    failure_nats,
    full_range,
    guess_nats,
    time_share,
    two_groups_length,
)
from holdfast.guarantees.terms import Goal, PlainAmounts
from holdfast.ledger import Cost
from holdfast.ledger.store import APART, APART_CHARGE
from holdfast.queries.build import build_mean
from holdfast.queries.guess import Guess
from holdfast.rows.draws import AllRows, WithReplacement
from holdfast.rows.open import open_rows
from holdfast.rows.source import DividedRows, RowSource
from holdfast.session.planning import plan
from toy_queries import Share

ROWS = 20_000


def data(rows: int = ROWS) -> dict[str, Any]:
    number = np.arange(rows)
    return {"yes": number % 10 < 3, "x": (number % 100) / 100, "g": number % 4}


@pytest.fixture
def session() -> hf.Session:
    return hf.Session(data(), checks=0.2, seed=1)


# -- rows ------------------------------------------------------------


def test_every_row_is_in_one_drawer_and_the_key_decides() -> None:
    rows = open_rows(data(1_000))
    parts = DividedRows(rows, b"k" * 32, 300)
    asked, kept = parts.rows(0), parts.rows(1)
    assert sorted([*asked, *kept]) == list(range(1_000))
    assert (len(parts.asked), len(parts.kept)) == (asked.size, kept.size) == (700, 300)
    assert DividedRows(rows, b"k" * 32, 300).rows(1).tolist() == kept.tolist()
    other = DividedRows(rows, b"l" * 32, 300).rows(1)
    assert 50 < np.intersect1d(kept, other).size < 140  # 90 if neither knows of the other


def test_a_drawer_reads_its_own_rows_alone() -> None:
    number = np.arange(500)
    rows = open_rows({"n": number, "kept": np.zeros(500, bool)})
    parts = DividedRows(rows, b"k" * 32, 200)
    marked = np.isin(number, parts.rows(1))
    source = open_rows({"kept": marked})
    parts = DividedRows(source, b"k" * 32, 200)
    rng = np.random.default_rng(1)
    asked, kept = (part.sample(Share("kept"), AllRows(), rng) for part in (parts.asked, parts.kept))
    assert (asked.size, int(asked.sum()), kept.size, int(kept.sum())) == (300, 0, 200, 200)
    assert parts.asked.sample(Share("kept"), WithReplacement(5_000), rng).sum() == 0
    assert parts.asked.tally(Share("kept"), draws=5_000, mass=0.0, rng=rng).tolist() == [5_000, 0]
    assert parts.kept.tally(Share("kept"), draws=5_000, mass=0.0, rng=rng).tolist() == [0, 5_000]
    assert isinstance(parts.asked, RowSource.__mro__[1])  # the verbs of a row source


# -- accounts ------------------------------------------------------------


def test_coins_and_checks_have_accounts_of_their_own(session: hf.Session) -> None:
    """Whatever is checked, answers are as in a session of coins alone on those rows, and the other way round."""
    standing = session.plan.standing
    assert isinstance(standing, Drawers)
    coins = plan(rows=16_000, confidence=1 - 0.9 * 0.05).standing
    assert (standing.terms.rows, standing.terms.kept, standing.terms.all_rows) == (16_000, 4_000, ROWS)
    for charge, statements, checks, wrong in (
        (0, 0, 0, 0),
        (123_456, 7, 0, 0),
        (123_456, 7, 9, 3),
        (10**9, 900, 50, 50),
    ):
        spent = PlainAmounts(charge + COINS * wrong, statements + STATEMENTS * checks)
        assert standing.rows_at(spent.intervals) == coins.rows_at(statements)
        assert standing.margin_after(3, spent) == coins.margin_after(3, PlainAmounts(charge, statements))
        place = standing.at(spent.charge + 5_000, spent.intervals, 2)
        assert place.margin(5_000) == coins.at(charge + 5_000, statements, 2).margin(5_000)
        assert standing.checks.so_far(spent) == ChecksSoFar(checks, wrong, wrong)
        assert standing.terms.worth(*standing.checks.cost(wrong=True, group=True)) == 0


def test_an_interval_is_that_of_the_theorem_on_the_rows_that_check(session: hf.Session) -> None:
    beta1 = 0.1 * 0.05 * 0.8 * (1 - CODED)
    wrong = 0
    for number, guess in enumerate([0.3, 0.6, 0.3, 0.1], 1):
        session.mean(f"x < 0.{number}")  # which counts for nothing here
        found = session.check(pl.col("yes"), guess, 0.02 + number / 1_000)  # which has no code
        assert found.holds == (guess == 0.3)
        if found.holds:
            nats = guess_nats(number, wrong, wrong * log(3)) + failure_nats(number, 0)
            margin = 0.02 + number / 1_000
            level = beta1 * time_share(number)
            expected = full_range((guess - margin, guess + margin), n=4_000, level=level, nats=nats)
            assert found.interval == pytest.approx(expected, abs=1e-6)
        wrong += not found.holds


@pytest.mark.parametrize("identical", [False, True])
def test_differences_of_groups_are_wider_where_rows_may_differ(identical: bool) -> None:
    asked = {"within": (0, 1), "where": "g = 1", "versus": "g = 2", "at_least": 800}
    with hf.Session(data(), checks=0.2, seed=1, identical=identical) as session:
        found = session.check("x", 0.0, 0.05, **asked)
    assert found.holds
    level = 0.1 * 0.05 * 0.8 * (1 - CODED) * time_share(1)
    length = log(2 / level) + failure_nats(1, 0)
    length = length if identical else two_groups_length(length)
    ends = full_range((0.475, 0.525), n=1_600, level=level, nats=length - log(2 / level))
    assert found.interval == pytest.approx([2 * end - 1 for end in ends], abs=1e-6)


def test_a_short_question_about_a_group_names_its_size_where_rows_may_differ() -> None:
    """The event of a group depends on the least number of rows then, which is chosen after the responses."""
    widths = {}
    for identical in (True, False):
        with hf.Session(data(), checks=0.2, seed=1, identical=identical) as session:
            for wrong in range(30):  # so that by the responses nothing is narrow any more
                session.check(f"x > 0.{wrong + 10}", 0.0, 0.001)
            found = session.check("yes", 0.3, 0.1, where="g = 1", at_least=800)
            assert found.holds
            code = Guess(build_mean("yes", session.schema, where="g = 1"), 0.3, 0.1, 800).code_nats(session.schema)
        code += log(4_000) if not identical else 0.0
        expected = full_range((0.2, 0.4), n=800, level=0.1 * 0.05 * 0.8 * CODED, nats=code)
        assert found.interval == pytest.approx(expected, abs=1e-6)
        widths[identical] = found.high - found.low
    assert widths[False] > widths[True]


def test_a_guess_that_fails_gets_its_value_from_the_rows_that_answer(session: hf.Session) -> None:
    held = session.check("yes", 0.3, 0.05)
    assert held.value is None
    assert "its value is asked next" in str(session.price("yes", "check", guess=0.5, margin=0.05))
    failed = session.check("yes", 0.5, 0.05)
    assert failed.outcome == "too high"
    assert isinstance(failed.value, hf.Answer)
    assert failed.value.low <= 0.3 <= failed.value.high
    assert failed.value.seq == failed.seq + 1
    assert failed.value.rows_read == session.plan.standing.rows_at(0)
    assert repr(failed.value) in repr(failed)
    again = session.check("yes", 0.5, 0.05)
    assert again.cached
    assert again.value is not None
    assert str(session.price("yes", "check", guess=0.5, margin=0.05)).startswith("free")
    assert again.value.cached
    assert session.check("x", 0.5, 0.2, within=(0, 1), where="g = 1", versus="g = 2", at_least=100).value is None
    assert session.history()["kind"].to_list() == ["check", "check", "mean", "check"]


def test_what_is_left_out_is_filled_in_for_the_rows_that_check(session: hf.Session) -> None:
    session.explore(data(1_000))
    margin = session.check("yes", 0.3).margin
    alone = hf.Session(data(4_000), guarantee="checks", seed=1)
    alone.explore(data(1_000))
    assert margin == alone.check("yes", 0.3).margin > 2 * 0.3 / 4_000**0.5
    with pytest.raises(InvalidArgument, match=r"4,000 are kept aside"):
        session.check("x", 0.5, within=(0, 1), where="g = 1", at_least=5_000)


def test_a_count_is_of_all_rows_whichever_answer(session: hf.Session) -> None:
    count = session.count("yes")
    assert count.low <= 0.3 * ROWS <= count.high
    assert count.value == pytest.approx(0.3 * ROWS, rel=0.1)  # of those that answer it would be a fifth less


def test_the_budget_says_how_wide_both_are(session: hf.Session) -> None:
    before = session.budget
    assert [more for more, _ in before.checks] == [0, 1, 10, 100]
    assert "no limit on checks" in str(before)
    assert type(before).from_dict(before.to_dict()) == before
    session.check("yes", 0.9, 0.01)
    after = session.budget
    assert after.checks[0][1] > before.checks[0][1]
    alone = hf.Session(data(), guarantee="checks", seed=1).budget
    assert alone.checks == ()


# -- what is refused ------------------------------------------------------------


def test_coins_never_count_into_the_account_of_checks(session: hf.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """However an answer is made, of however many releases, and whoever asks at once: else many would count as few."""
    session.mean("yes")
    spent = session.ledger.spent
    one = session.prepare("x > 0.5")
    for cost, what in ((Cost(2**34 + 1, 1), "draws"), (Cost(1, 2**20 + 1), "statements")):
        with pytest.raises(InvalidArgument, match=f"{what} must be at most what one question can"):
            session.answering.answer(replace(one, cost=cost))
    with pytest.raises(InvalidArgument, match="draws must be at most"):
        session.answering.answer_all([replace(session.prepare(f"x > {i}"), cost=Cost(2**33 + 1, 1)) for i in range(2)])
    monkeypatch.setattr(guarantee_of_drawers, "MOST_AT_ONCE", 1_000)
    asked: list[dict[str, Any]] = [
        {"query": "x > 0.4", "rows_per_query": 1_001},
        {"query": "x > 0.4", "mechanism": "gaussian"},
        {"query": "yes", "by": "g", "groups": [0, 1, 2, 3], "rows_per_query": 200},
        {"query": "x", "kind": "variance", "within": (0, 1), "rows_per_query": 900},
    ]
    for question in asked:
        with pytest.raises(InvalidArgument, match="draws must be at most"):
            session.ask(**question)
    assert session.ledger.spent == spent


def test_the_ledger_knows_the_two_accounts_by_the_same_numbers() -> None:
    assert (APART_CHARGE, APART) == (COINS, STATEMENTS)


@pytest.mark.parametrize("taken", [Cost(COINS // 2 + 1, 1), Cost(1, STATEMENTS // 2 + 1)])
def test_what_cannot_be_counted_is_refused_before_it_is_taken(session: hf.Session, taken: Cost) -> None:
    session.answering.plan.begin()
    session.ledger.reserve(taken)
    spent = session.ledger.spent
    for _ in range(3):
        with pytest.raises(BudgetExhausted, match="counted all the draws"):
            session.mean("yes")
    assert session.ledger.spent == spent
    session.check("yes", 0.3, 0.05)


def test_a_session_without_the_drawer_does_not_check() -> None:
    with (
        hf.Session(data(), seed=1) as session,
        pytest.raises(NotCovered, match=r"rows that answer nothing else.*checks=0\.2"),
    ):
        session.check("yes", 0.3, 0.1)


def test_plans_that_end_and_shares_that_leave_nothing_are_refused() -> None:
    for options, says in (
        ({"queries": 10, "end": True}, "a session that goes on"),
        ({"queries": 3, "guarantee": "posterior"}, "a session that goes on"),
        ({"checks": 1e-9}, "two rows to check on"),
        ({"checks": 1.5}, "checks must be"),
    ):
        with pytest.raises(InvalidArgument, match=says):
            hf.Session(data(1_000), **({"checks": 0.2} | options))


def test_a_ledger_keeps_its_drawers(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pl.DataFrame(data()).write_parquet(path)
    with hf.Session(path, checks=0.25) as first:
        answer, check = first.mean("yes"), first.check("yes", 0.3, 0.05)
        rows = first.answering.plan.standing.draws._drawers[1]._drawers.rows(1).tolist()  # type: ignore[union-attr]
    with hf.Session(path) as again:
        assert again.plan == first.plan
        assert read(again.plan.to_dict()).terms == first.plan.terms
        assert again.mean("yes").seq == answer.seq
        assert again.check("yes", 0.3, 0.05).seq == check.seq
        assert again.answering.plan.standing.draws._drawers[1]._drawers.rows(1).tolist() == rows  # type: ignore[union-attr]
    with pytest.raises(PlanConflict, match=r"checks 0\.1, not 0\.25"):
        hf.Session(path, checks=0.1)
    with pytest.raises(PlanConflict, match="guarantee checks, not drawers"):
        hf.Session(path, guarantee="checks")


def test_the_sentence_says_how_many_questions_are_planned() -> None:
    planned, endless = (hf.plan(rows=100_000, checks=0.2, queries=queries) for queries in (500, None))
    margin = ceil(1e4 * planned.margin) / 1e4
    assert f"answer 500 questions, each chosen after seeing the earlier answers: within ±{margin}" in planned.sentence
    assert "and more questions with wider margins; 20,000 other rows check guesses" in planned.sentence
    assert "80,000 rows answer questions without end" in endless.sentence


def test_checks_are_planned_for_their_part_of_the_failure_probability(session: hf.Session) -> None:
    own = session.plan.standing.checks.terms
    assert own == replace(Checks.plan(Goal(4_000, 0, 1 - 0.1 * 0.05), "cells"), confidence=own.confidence)  # type: ignore[arg-type]
    coins = session.plan.terms
    assert coins.beta1 + coins.beta2 + coins.later_beta2 + own.beta1 + own.beta2 <= 0.05 * (1 + 1e-12)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_does_not_wait_for_a_thread_that_it_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cached property of Python 3.11 holds a lock for all objects of its class while it computes one."""
    with hf.Session({"x": np.arange(2_000) % 2 == 0}, checks=0.3) as session:
        standing = session.plan.standing
    assert isinstance(standing, Drawers)
    fresh, begin = Drawers(replace(standing.terms, kept_beta=0.0123)), CheckDrawer.__init__
    computing, forked = threading.Event(), threading.Event()

    def slow(self: CheckDrawer, terms: DrawerTerms) -> None:
        if threading.current_thread() is thread:
            computing.set()
            forked.wait(20)
        begin(self, terms)

    monkeypatch.setattr(CheckDrawer, "__init__", slow)
    thread = threading.Thread(target=lambda: fresh.checks)
    thread.start()
    assert computing.wait(20)
    if (child := os.fork()) == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)
        os._exit(fresh.checks is None)
    assert os.waitpid(child, 0)[1] == 0
    forked.set()
    thread.join()
