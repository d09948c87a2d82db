"""Checks: the cell, the interval, what is filled in, what is refused, and that nothing else leaves."""

import json
import re
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from html.parser import HTMLParser
from itertools import pairwise
from math import inf, log
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast as hf
from examples import examples
from holdfast.errors import InvalidArgument, NotCovered
from holdfast.guarantees.checks import CODED, Checks, ChecksSoFar
from holdfast.guarantees.mathematics.checks import failure_nats, full_range, guess_nats, sampled_range, time_share
from holdfast.guarantees.statistic import HOLDS, OUTCOMES, TOO_FEW, TOO_HIGH, TOO_LOW
from holdfast.guarantees.terms import Goal
from holdfast.ledger import Answered, Cost
from holdfast.mechanisms import cells
from holdfast.queries.build import build_mean
from holdfast.queries.guess import DifferenceGuess, Guess, functions_nats
from holdfast.questions.check import CheckAnswer
from holdfast.rows.draws import AllRows
from holdfast.rows.open import open_rows
from holdfast.session.planning import plan

ROWS = 10_000
YES = 2_345  # of the held rows
BETA = 0.05


def rows(yes: int = YES, count: int = ROWS) -> dict[str, Any]:
    number = np.arange(count)
    return {"yes": number < yes, "number": (number % 100) / 10, "group": number % 4}


@pytest.fixture
def session() -> hf.Session:
    return hf.Session(rows(), guarantee="checks", seed=1, complete=["number"])


def test_a_guess_holds_is_too_low_or_is_too_high(session: hf.Session) -> None:
    assert session.check("yes", 0.24, 0.01).outcome == HOLDS
    assert session.check("yes", 0.2, 0.01).outcome == TOO_LOW
    assert session.check("yes", 0.3, 0.01).outcome == TOO_HIGH
    assert session.check("yes", 0.24, 0.01).holds


@pytest.mark.parametrize("where", [None, "group >= 0"])
@pytest.mark.parametrize("low", [0.0, -1e307])
def test_a_sum_that_would_overflow_tells_nothing(low: float, where: str | None) -> None:
    """An error would compare the rows with any number, free: the check it replaces is counted by nobody."""
    most = 2 / ROWS * 1.797e308  # so large that half of the rows add up to the largest number
    value = f"CASE WHEN yes THEN {most!r} ELSE {low!r} END"
    group = {} if where is None else {"where": where, "at_least": 1}
    for yes in (0, 1, ROWS // 2, ROWS // 2 + 1, ROWS):
        session = hf.Session(rows(yes), guarantee="checks", seed=1, complete=["yes", "group"])
        mean = min(most, low + yes / ROWS * (most - low))
        for guess, outcome in ((mean, HOLDS), (mean + most / 4, TOO_HIGH), (mean - most / 4, TOO_LOW)):
            if low <= guess <= most:
                found = session.check(value, guess, most / 100, within=(low, most), **group)
                assert found.outcome == outcome
                assert found.low <= mean <= found.high


def test_a_difference_whose_range_would_overflow_is_refused_before_a_row_is_read(session: hf.Session) -> None:
    """Else rows decide what is said: that there are too few of them, or an error."""
    for wide in ((-8e307, 8e307), (0.0, 1.7e308)):
        with pytest.raises(InvalidArgument, match="within must be narrower"):
            session.price("number", "check", guess=0, margin=1, within=wide, where="yes", versus="NOT yes", at_least=1)


@pytest.mark.parametrize("margin", [Fraction(1, 1_000), Fraction(1, 3), Fraction(1, 7)])
def test_both_ends_of_the_cell_belong_to_it_exactly(margin: Fraction) -> None:
    """A count is compared with the ends exactly: one row more or less decides, whatever doubles make of a mean."""
    measure = build_mean("yes", open_rows(rows()).schema)
    width = float(margin)
    guess = Guess(measure, 0.5, width, 0)
    low, high = map(Fraction, guess.cell)
    assert (low, high) == (Fraction(0.5 - width), Fraction(0.5 + width))
    last = int(high * ROWS)
    cells = [guess.outcome(guess.totals(np.arange(ROWS) < count)) for count in (last, last + 1)]
    assert cells == [HOLDS, TOO_LOW]
    first = -int(-low * ROWS // 1)
    cells = [guess.outcome(guess.totals(np.arange(ROWS) < count)) for count in (first, first - 1)]
    assert cells == [HOLDS, TOO_HIGH]


@pytest.mark.parametrize("guess", [0.0, 0.001])
def test_a_check_does_not_fail_where_numpy_was_told_to_raise(guess: float) -> None:
    # A probability that is next to nothing underflowed where the end of an interval was found, for some cells: whether
    # a check failed, and was counted as wrong, depended on the rows.
    for yes in (0, 14):
        with hf.Session({"b": np.arange(100) < yes}, guarantee="checks", seed=1, complete=["b"]) as session:
            with np.errstate(all="raise"):
                assert session.price("b", "check", guess=guess, margin=0.01, rows_per_query=1).affordable
                answer = session.check("b", guess, 0.01, rows_per_query=1)
                assert hf.plan(rows=100, queries=50).rows == 100
            assert answer.outcome in OUTCOMES
            assert session.ledger.answered.failed == 0


def test_a_wide_range_has_a_usual_margin() -> None:
    with hf.Session({"x": np.arange(100.0)}, guarantee="checks", seed=1, complete=["x"]) as session:
        assert session.check("x", 0.0, within=(-1e200, 1e200)).holds


@settings(max_examples=examples(200), deadline=None)
@given(
    values=st.lists(st.floats(0, 1) | st.just(float("nan")), min_size=1, max_size=30),
    guess=st.floats(0, 1),
    margin=st.floats(1e-9, 2),
    at_least=st.integers(1, 30),
)
def test_there_is_exactly_one_cell(values: list[float], guess: float, margin: float, at_least: int) -> None:
    schema = open_rows(pl.DataFrame({"x": [0.5, None]})).schema
    guessed = Guess(build_mean("x", schema, within=(0.0, 1.0)), guess, margin, at_least)
    outcome = guessed.outcome(guessed.totals(np.array(values)[:, None]))
    known = [Fraction(value) for value in values if value == value]
    low, high = map(Fraction, guessed.cell)
    assert 0 <= low <= high <= 1
    if len(known) < at_least:
        assert outcome == TOO_FEW
        return
    mean, slack = sum(known) / len(known), Fraction(1, 10**12)
    inside = {HOLDS: (low, high), TOO_LOW: (high, Fraction(1)), TOO_HIGH: (Fraction(0), low)}[outcome]
    assert inside[0] - slack <= mean <= inside[1] + slack


ASKED = {
    "a share": ({"query": "flag"}, lambda r: [(True, r["flag"])]),
    "of numbers": ({"query": "x > 0.25"}, lambda r: [(True, r["x"] > 0.25)]),
    "of numbers twice": ({"query": "x >= 0.25 AND NOT x > 0.75"}, lambda r: [(True, 0.25 <= r["x"] <= 0.75)]),
    "of numbers of two types": ({"query": "x < 0.5 OR n = 3"}, lambda r: [(True, r["x"] < 0.5 or r["n"] == 3)]),
    "a share that may be missing": ({"query": "y > 0.25"}, lambda r: [(True, r["y"] is not None and r["y"] > 0.25)]),
    "a text": ({"query": "t = 'b'"}, lambda r: [(True, r["t"] == "b")]),
    "a text in a group": ({"query": "t = 'b'", "where": "x < 0.9"}, lambda r: [(r["x"] < 0.9, r["t"] == "b")]),
    "a group by text": ({"query": "flag", "where": "t <> 'b'"}, lambda r: [(r["t"] != "b", r["flag"])]),
    "a mean": ({"query": "x", "within": (-1, 2)}, lambda r: [(True, (r["x"] + 1) / 3)]),
    "a clipped mean": ({"query": "n", "within": (1, 3)}, lambda r: [(True, (min(max(r["n"], 1), 3) - 1) / 2)]),
    "of what is not missing": ({"query": "y", "within": (0, 1)}, lambda r: [(r["y"] is not None, r["y"])]),
    "its mean in a group": (
        {"query": "y", "within": (0, 1), "where": "t = 'a'"},
        lambda r: [(r["y"] is not None and r["t"] == "a", r["y"])],
    ),
    "a difference": (
        {"query": "x > 0.5", "where": "t = 'a'", "versus": "flag"},
        lambda r: [(r["t"] == "a", r["x"] > 0.5), (r["t"] != "a" and r["flag"], r["x"] > 0.5)],
    ),
    "a difference of means": (
        {"query": "y", "within": (0, 2), "where": "t = 'a'", "versus": "flag"},
        lambda r: [
            (r["y"] is not None and r["t"] == "a", (r["y"] or 0) / 2),
            (r["y"] is not None and r["t"] != "a" and r["flag"], (r["y"] or 0) / 2),
        ],
    ),
    "length of a text": ({"query": "length(t)", "within": (0, 4)}, lambda r: [(True, len(r["t"]) / 4)]),
}


@pytest.mark.parametrize("name", ASKED)
def test_one_pass_over_all_rows_counts_as_each_row_by_itself(name: str, tmp_path: Path) -> None:
    options, says = ASKED[name]
    rng = np.random.default_rng(8)
    rows = 1_000
    frame = pl.DataFrame(
        {
            "flag": rng.random(rows) < 0.3,
            "x": rng.random(rows),
            "y": [None if rng.random() < 0.2 else float(value) for value in rng.random(rows)],
            "n": rng.integers(0, 5, rows),
            "t": rng.choice(["a", "b", "ccc"], rows),
        }
    )
    path = tmp_path / "rows.parquet"
    frame.write_parquet(path)
    complete = ["flag", "x", "n", "t"]
    expected = np.zeros((2, len(says(frame.row(0, named=True)))))
    for row in frame.iter_rows(named=True):
        for group, (inside, value) in enumerate(says(row)):
            expected[:, group] += (1, value) if inside else (0, 0)
    for source in (open_rows(frame, complete=complete), open_rows(path, complete=complete, progress=False)):
        query, where, versus = (options.get(each) for each in ("query", "where", "versus"))
        built = build_mean(query, source.schema, within=options.get("within"), where=where)
        guess = Guess(built, 0.5, 0.1, 1)
        if versus is not None:
            other = build_mean(query, source.schema, within=options.get("within"), where=versus)
            guess = DifferenceGuess(built, 0.5, 0.1, 1, other)
        by_row = guess.totals(source.sample(guess, AllRows(), rng))
        for found in (source.fold(guess, rng), by_row):
            assert found[0].tolist() == expected[0].tolist()
            assert found[1] == pytest.approx(expected[1], rel=1e-12)


@pytest.mark.parametrize("text", ["sign(cos(x))", "length(cast(tan(x) as text))", "x - x"])
@pytest.mark.parametrize("extreme", [inf, -inf])
def test_a_check_does_not_fail_where_an_infinite_number_has_no_value(text: str, extreme: float) -> None:
    source = open_rows({"x": np.array([0.5] * 99 + [extreme]), "g": np.arange(100) % 2}, complete=["x", "g"])
    for options in ({}, {"where": "g = 1"}, {"where": "g = 1", "versus": "g = 0"}):
        session = hf.Session(source, guarantee="checks", seed=1)
        found = session.check(
            text, 0.5, margin=0.1, within=(-1, 30), **({"at_least": 10} if options else {}), **options
        )
        assert found.outcome in OUTCOMES


class Plain:
    """Rows with the verbs of a row source and no others."""

    def __init__(self, data: dict[str, Any]) -> None:
        rows = open_rows(data)
        self.name, self.schema, self.fingerprint, self.location = rows.name, rows.schema, rows.fingerprint, None
        self.tally, self.sample, self.verify, self._rows = rows.tally, rows.sample, rows.verify, len(rows)

    def __len__(self) -> int:
        return self._rows


def test_rows_that_cannot_be_folded_are_scanned_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"x": np.arange(5_000) % 10, "g": np.arange(5_000) % 3}
    asked: dict[str, Any] = {"query": "x < 3", "guess": 0.3, "margin": 0.001, "where": "g = 1", "at_least": 1_000}
    monkeypatch.setattr(cells, "PIECE", 700)
    answers = []
    for source in (data, Plain(data)):
        with hf.Session(source, guarantee="checks", seed=1) as session:
            answers.append(session.check(**asked))
    assert len({(answer.outcome, answer.interval) for answer in answers}) == 1


# -- intervals --------------------------------------------------------------------------------------------------------


def nats(checks: int, wrong: int, failed: int = 0) -> float:
    return guess_nats(checks + 1, wrong, wrong * log(2)) + failure_nats(checks + failed + 1, failed)


def test_the_interval_is_that_of_the_theorem_for_the_responses_before_it(session: hf.Session) -> None:
    beta1 = BETA * 0.8 * (1 - CODED)
    guesses = [0.24, 0.3, 0.1, 0.23, 0.5, 0.24]  # the first, fourth and last hold
    wrong = 0
    for checks, guess in enumerate(guesses):
        answer = session.check(pl.col("yes"), guess, 0.0101 + checks / 1e6)  # which has no code
        cell = {HOLDS: (guess - answer.margin, guess + answer.margin)}.get(answer.outcome)
        if cell is not None:
            level = beta1 * time_share(checks + 1)
            assert answer.interval == pytest.approx(
                full_range(cell, n=ROWS, level=level, nats=nats(checks, wrong)), abs=1e-9
            )
        wrong += not answer.holds
    assert wrong == 3
    assert session.ledger.answered == Answered(3, 6)


def test_a_question_that_is_short_to_write_never_gets_wider_than_its_text_calls_for(session: hf.Session) -> None:
    for wrong in range(20):
        assert not session.check("yes", 0.5 + wrong / 100, 0.001).holds
    short, again = session.check("yes", 0.24, 0.02), session.check("yes", 0.24, 0.021)
    functions = [function.identity for function in build_mean("yes", session.schema).functions]
    code = functions_nats(functions, (), [column.name for column in session.schema])
    level = BETA * 0.8 * CODED
    assert short.interval == pytest.approx(full_range((0.22, 0.26), n=ROWS, level=level, nats=code), abs=1e-9)
    assert again.interval == pytest.approx(full_range((0.219, 0.261), n=ROWS, level=level, nats=code), abs=1e-9)
    long = session.check(pl.col("yes"), 0.24, 0.02)
    assert long.low < short.low
    assert short.high < long.high
    assert session.price("yes", "check", guess=0.24, margin=0.022).margin < long.high - 0.24


def test_the_code_of_questions_says_nothing_of_units(session: hf.Session) -> None:
    """How the rows of a unit are put together is in no text that the code knows."""
    guess = Guess(build_mean("yes", session.schema), 0.3, 0.1, 0)
    assert guess.code_nats(session.schema) < 30
    assert guess.code_nats(replace(session.schema, unit="person")) == inf


def test_a_sampled_check_pays_for_the_sample_by_the_number_of_its_place(session: hf.Session) -> None:
    for _ in range(3):
        session.ledger.reserve(Cost(1, 1)) if session.ledger.begun else session.check("yes", 0.24, 0.01)
    answer = session.check("yes", 0.24, 0.05, rows_per_query=2_000)
    entry = list(session.ledger.entries())[-1]
    assert (entry.seq, entry.place.number) == (2, 4)  # two draws were dropped, and one check was committed before
    expected = sampled_range(
        (0.24 - 0.05, 0.24 + 0.05),
        n=ROWS,
        draws=2_000,
        level=BETA * 0.8 * (1 - CODED) * time_share(2),
        sample_level=BETA * 0.2 * time_share(4),
        nats=nats(1, 0, failed=2),
    )
    assert answer.holds
    assert answer.interval == pytest.approx(expected, abs=1e-9)
    assert answer.rows_read == 2_000


def test_of_a_group_only_the_declared_rows_speak(session: hf.Session) -> None:
    answer = session.check("yes", 0.24, 0.02, where='"group" = 1', at_least=2_000)
    level = BETA * 0.8 * (1 - CODED) * time_share(1)
    assert answer.holds
    assert answer.interval == pytest.approx(full_range((0.22, 0.26), n=2_000, level=level, nats=nats(0, 0)), abs=1e-9)
    few = session.check("yes", 0.24, 0.02, where='"group" = 1', at_least=2_501)
    assert (few.outcome, few.interval) == (TOO_FEW, (0.0, 1.0))
    told = session.plan.standing.so_far(session.ledger.answered)
    assert told == ChecksSoFar(checks=2, wrong=1, groups=1)
    assert told.nats == guess_nats(3, 1, log(3)) + failure_nats(3, 0)


def test_of_two_groups_the_difference_is_guessed(session: hf.Session) -> None:
    first, second = '"group" = 1', '"group" in (1, 2)'  # rows in both count in the first: the second is group 2
    answer = session.check("number", 0.0, 0.2, within=(0.0, 10.0), where=first, versus=second, at_least=2_400)
    level = BETA * 0.8 * (1 - CODED) * time_share(1)
    low, high = full_range((0.49, 0.51), n=4_800, level=level, nats=nats(0, 0))
    assert answer.holds
    assert answer.bounds == (-10.0, 10.0)
    assert answer.interval == pytest.approx((20 * low - 10, 20 * high - 10), abs=1e-9)
    values = pl.DataFrame(rows()).with_columns(pl.col("group") % 4)
    means = [float(values.filter(pl.col("group") == number)["number"].mean()) for number in (1, 2)]  # type: ignore[arg-type]
    exact = means[0] - means[1]
    inside = session.check("number", exact, 1e-9, within=(0.0, 10.0), where=first, versus=second, at_least=2_400)
    assert inside.holds
    few = session.check("number", 0.0, 0.2, within=(0.0, 10.0), where=first, versus=second, at_least=2_501)
    assert few.outcome == TOO_FEW


def test_the_difference_comes_from_the_exploration_part_too() -> None:
    frame, held = hf.hold_back(pl.DataFrame(rows()), 0.5, seed=3)
    answer = held.check("yes", where='"group" = 1', versus='"group" = 2')
    means = [float(frame.filter(pl.col("group") == number)["yes"].mean()) for number in (1, 2)]  # type: ignore[arg-type]
    assert answer.guess == pytest.approx(means[0] - means[1], abs=1e-3)
    assert answer.holds
    with pytest.raises(InvalidArgument, match="where must be given with versus"):
        held.check("yes", versus='"group" = 2')


def test_means_have_intervals_in_their_own_units(session: hf.Session) -> None:
    answer = session.check("number", 5.0, 0.2, within=(0.0, 10.0))
    assert answer.holds
    assert answer.low < 4.8 < 5.2 < answer.high
    assert answer.bounds == (0.0, 10.0)


@settings(max_examples=examples(100), deadline=None)
@given(checks=st.integers(0, 10**6), share=st.floats(0, 0.5), more=st.integers(1, 100), rows=st.integers(2, 10**9))
def test_intervals_only_widen_with_wrong_guesses_and_with_checks(
    checks: int, share: float, more: int, rows: int
) -> None:
    terms = Checks.plan(Goal(rows, 1, 1 - BETA), "cells")
    assert terms is not None
    guarantee = Checks(terms)
    wrong = int(share * checks)
    now = guarantee.width(ChecksSoFar(checks, wrong, 0))
    assert now <= guarantee.width(ChecksSoFar(checks + more, wrong, 0))
    assert now <= guarantee.width(ChecksSoFar(checks + more, wrong + more, 0))


def test_the_budget_has_no_end_and_says_how_wide_checks_will_be(session: hf.Session) -> None:
    before = session.budget
    assert [more for more, _ in before.outlook] == [0, 1, 10, 100]
    widths = [width for _, width in before.outlook]
    assert all(narrow < wide for narrow, wide in pairwise(widths))
    for number in range(1, 11):
        session.check("yes", 0.9, 0.01 + number / 1e6)
    after = session.budget
    assert before.margin < after.margin < widths[2]  # which were to be wrong among a thousand, not in a row
    assert after.answers_left == before.answers_left
    assert "no limit" in str(after)
    assert hf.Budget.from_dict(json.loads(json.dumps(after.to_dict()))) == after


def test_a_price_shows_the_guess_and_the_width_before_anything_is_read(session: hf.Session) -> None:
    price = session.price("yes", "check", guess=0.24, margin=0.01)
    assert "share of yes is 0.24 ± 0.01" in str(price)
    answer = session.check("yes", 0.24, 0.01)
    assert price.margin == pytest.approx(max(answer.high - 0.24, 0.24 - answer.low))
    assert (price.answers, price.affordable, answer.cost) == (0, True, 0)


# -- what is filled in ------------------------------------------------------------------------------------------------


def test_what_is_left_out_comes_from_the_exploration_part_and_not_from_held_rows() -> None:
    frame, held = hf.hold_back(pl.DataFrame(rows()), 0.5, seed=3)
    answer = held.check("yes")
    share = float(frame["yes"].mean())  # type: ignore[arg-type]
    assert answer.guess == pytest.approx(share, abs=1e-4)
    group = held.check("yes", where='"group" = 2')
    inside = frame.filter(pl.col("group") == 2)
    assert group.guess == pytest.approx(float(inside["yes"].mean()), abs=1e-3)  # type: ignore[arg-type]
    assert "on at least" in group.question
    alone = held.check("yes", margin=0.2, where='"group" = 2', at_least=1)
    assert alone.question.endswith("on at least 1 row")
    mean = held.check("number", within=(0.0, 1_000.0))
    assert mean.margin < 0.5  # by the deviation seen, not by the widest possible


def test_a_check_that_any_guess_would_pass_is_refused() -> None:
    _, held = hf.hold_back(pl.DataFrame(rows()), 0.5, seed=3)
    with pytest.raises(hf.InvalidArgument, match="margin must be given: so few rows count here that the usual one"):
        held.check("yes", where='"group" = 2', at_least=1)
    with pytest.raises(hf.InvalidArgument) as refused:
        held.check("yes", 0.5, 5)
    assert str(refused.value) == (
        "margin must leave a part of the range from 0 to 1 out, or any guess would hold; got 5. For 5% write 0.05."
    )
    with pytest.raises(hf.InvalidArgument, match=r"the range from 0 to 20 out, .* got 12\.$"):
        held.check("number", 10, 12, within=(0.0, 20.0))
    assert held.budget.answers_given == 0
    assert held.check("yes", 0.25, 0.25).holds  # one side alone


def up(x: float) -> float:
    """Round up to two digits, by decimals."""
    digits = Decimal(x).adjusted() - 1
    return float(Decimal(x).quantize(Decimal(1).scaleb(digits), ROUND_CEILING))


def halves(part: float) -> tuple[pl.DataFrame, hf.Session, int, int]:
    frame, held = hf.hold_back(pl.DataFrame(rows()), part, seed=3, complete=["number"])  # else fewer may count
    return frame, held, frame.height, ROWS - frame.height


@pytest.mark.parametrize("part", [0.5, 0.05])
def test_margins_left_out_are_four_errors_of_the_estimate_or_three_of_how_far_the_parts_lie_apart(part: float) -> None:
    """To the digit: what two parts of a table say is three errors apart, or more, in one of 370 tables."""
    frame, held, seen, kept = halves(part)
    share, number = float(frame["yes"].mean()), float(frame["number"].mean())  # type: ignore[arg-type]
    deviation, spread = (share * (1 - share)) ** 0.5, float(frame["number"].std(ddof=0))  # type: ignore[arg-type]
    error = (1 / kept) ** 0.5
    apart = max(4 * error, 3 * (1 / kept + 1 / seen) ** 0.5)
    sampled = (1 / kept + 1 / 400) ** 0.5
    sampled_apart = max(4 * sampled, 3 * (1 / kept + 1 / 400 + 1 / seen) ** 0.5)
    with held:
        assert held.check("yes").margin == up(apart * deviation)
        assert held.check("yes", rows_per_query=400).margin == up(sampled_apart * deviation)
        assert held.check("number", within=(0.0, 20.0), rows_per_query=ROWS).margin == up(apart * spread)
        # A guess of one's own owes nothing to the exploration part but how far values spread, if that is narrower.
        assert held.check("yes", 0.3).margin == up(4 * error * min(deviation, (0.3 * 0.7) ** 0.5))
        assert held.check("yes", 0.1).margin == up(4 * error * (0.1 * 0.9) ** 0.5)
        assert held.check("yes", 0.1, rows_per_query=400).margin == up(4 * sampled * (0.1 * 0.9) ** 0.5)
        assert held.check("number", number + 1, within=(0.0, 20.0)).margin == up(4 * error * spread)
        assert held.check("yes", 0.0).margin == up(1 / kept)  # one row
        assert held.check("yes", 0.0, rows_per_query=400).margin == up(1 / 400)


def test_margins_left_out_of_groups_go_by_the_rows_that_are_sure_to_count() -> None:
    frame, held, seen, kept = halves(0.4)
    groups = [frame.filter(pl.col("group") == number) for number in (2, 3)]
    shares = [group.height / seen for group in groups]

    def least(share: float) -> int:
        return int(kept * (share - 4 * (share * (1 - share) * (1 / kept + 1 / seen)) ** 0.5 - 16 / seen))

    means = [float(group["yes"].mean()) for group in groups]  # type: ignore[arg-type]
    with held:
        one = held.check("yes", where='"group" = 2')
        two = held.check("yes", where='"group" = 2', versus='"group" = 3')
        own = held.check("yes", 0.25, where='"group" = 2', at_least=1_234)
    assert f"on at least {least(shares[0]):,} rows" in one.question
    error = max(4 * least(shares[0]) ** -0.5, 3 * (1 / least(shares[0]) + 1 / groups[0].height) ** 0.5)
    assert one.margin == up(error * (means[0] * (1 - means[0])) ** 0.5)
    fewest = min(shares)
    assert f"on at least {least(fewest):,} rows" in two.question
    deviation = sum(mean * (1 - mean) for mean in means) ** 0.5
    error = max(4 * least(fewest) ** -0.5, 3 * (1 / least(fewest) + 1 / min(g.height for g in groups)) ** 0.5)
    assert two.margin == up(error * deviation)
    assert own.margin == up(4 * 1_234**-0.5 * (min(0.25 * 0.75, means[0] * (1 - means[0]))) ** 0.5)


def test_a_guess_left_out_is_said_in_digits_that_matter() -> None:
    """A hundredth of the margin: rounding it costs nothing that could be noticed."""
    frame, held, *_ = halves(0.5)
    with held:
        answer = held.check("number", within=(0.0, 10.0))
        wide = held.check("number", within=(0.0, 10.0), margin=2.0)
        own = held.check("number", exact := float(frame["number"].mean()), within=(0.0, 10.0))  # type: ignore[arg-type]
    assert (answer.margin, answer.guess) == (0.18, round(exact, 3))
    assert (wide.margin, wide.guess) == (2.0, round(exact, 2))
    assert own.guess == exact != answer.guess  # what was said is not rounded


def test_without_an_exploration_part_it_must_be_said(session: hf.Session) -> None:
    with pytest.raises(InvalidArgument, match=r"guess must be given.*hold_back"):
        session.check("yes")
    with pytest.raises(InvalidArgument, match=r"at_least must be given.*hold_back"):
        session.check("yes", 0.2, where='"group" = 1')
    assert session.check("yes", 0.25).margin == pytest.approx(4 * (0.25 * 0.75 / ROWS) ** 0.5, rel=0.1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"guess": 1.5, "margin": 0.1}, "guess must be between 0 and 1"),
        ({"guess": 0.5, "margin": 0.0}, "margin must be positive"),
        ({"guess": 0.5, "margin": float("nan")}, "margin must be a finite number"),
        ({"guess": 0.5, "margin": 0.1, "at_least": 10}, "at_least must be left out"),
        ({"guess": 0.5, "where": '"group" = 1', "at_least": ROWS + 1}, "at_least must be no more"),
        ({"guess": 0.5, "where": '"group" = 1', "at_least": 9, "rows_per_query": 5}, "must be left out for a group"),
    ],
)
def test_refusals(session: hf.Session, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        session.check("yes", **options)
    assert session.ledger.answered == Answered(0, 0)


def test_checks_and_answers_never_share_rows() -> None:
    coins = hf.Session(rows(), queries=100, seed=1)
    with pytest.raises(NotCovered, match="needs rows that answer nothing else"):
        coins.check("yes", 0.2, 0.1)
    checks = hf.Session(rows(), guarantee="checks", seed=1)
    for ask in (lambda: checks.mean("yes"), lambda: checks.flips("yes", 3)):
        with pytest.raises(NotCovered, match="checks guesses"):
            ask()
    assert "checks" not in {each.guarantee for each in plan(rows=ROWS, queries=100).alternatives}
    assert plan(rows=ROWS, queries=100, guarantee="checks").alternatives == ()


def test_the_same_check_is_free_and_another_margin_is_another_check(session: hf.Session) -> None:
    first = session.check("yes", 0.24, 0.01)
    again = session.check("yes", 0.24, 0.01)
    assert (again.cached, again.interval, again.seq) == (True, first.interval, first.seq)
    assert not session.check("yes", 0.24, 0.02).cached
    assert not session.check("yes", 0.24, 0.01, rows_per_query=100).cached


# -- what leaves ------------------------------------------------------------------------------------------------------


def test_nothing_but_the_cell_leaves(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Two tables that differ in the estimate, but not in the cell, leave the same traces but for hashes and times."""
    traces = []
    for number, yes in enumerate((YES, YES + 7)):
        place = tmp_path / f"{number}.ledger"
        with hf.Session(rows(yes), guarantee="checks", seed=1, ledger=place) as session, caplog.at_level(0):
            said = [session.check("yes", guess, 0.02) for guess in (0.24, 0.3, 0.1)]
            said.append(session.check("yes", 0.24, 0.2, rows_per_query=500))
            bodies = [[e.question, e.answer, e.cost, e.place, e.rows_read, e.key] for e in session.ledger.entries()]
            shown = [[repr(one), one.to_dict()["low"], one.details(), one.rows()] for one in said]
        traces.append((bodies, shown, str(session.plan)))
        for text in (f"{yes / ROWS:.4f}", f"{yes}"):
            assert text.encode() not in re.sub(rb"[0-9a-f]{32,}", b"", place.read_bytes())  # hashes have any digits
            assert text not in caplog.text
    assert traces[0] == traces[1]


def test_an_answer_prints_and_travels(session: hf.Session) -> None:
    answer = session.check("yes", 0.3, 0.01)
    assert isinstance(answer, CheckAnswer)
    assert repr(answer).startswith("too high  [0.0")
    HTMLParser().feed(answer._repr_html_())
    assert "the guess is too high" in answer._repr_html_()
    ((label, estimate),) = answer.rows()
    assert label == TOO_HIGH
    assert estimate.low <= estimate.value <= estimate.high
    history = session.history()
    assert history["outcome"].to_list() == [TOO_HIGH]
    assert history["value"].to_list() == [None]
    dry = session.dry_run("yes", "check", guess=0.5, margin=0.1)
    assert dry.made_up
    assert dry.outcome in OUTCOMES  # type: ignore[attr-defined]


def test_a_quantile_statement_is_a_check_with_one_side(session: hf.Session) -> None:
    """The median is at most 6: at least half of the rows are."""
    assert session.check("number <= 6", 0.75, 0.25).holds
    assert session.check("number <= 3", 0.75, 0.25).outcome == TOO_HIGH


@pytest.mark.parametrize("least", [50_000, 100_000])
def test_a_dry_run_of_a_group_has_enough_made_up_rows(least: int) -> None:
    """Its rows are fewer than those held back, and so are those that must count."""
    session = hf.Session(pl.DataFrame(rows(count=100_000)), guarantee="checks", seed=1)
    where = "number >= 0 OR NOT number >= 0 OR number IS NULL"  # all rows
    whole = {"where": where, "at_least": least}
    dry = session.dry_run("yes", "check", guess=0.5, margin=0.499, **whole)
    assert dry.outcome == HOLDS  # type: ignore[attr-defined]
    assert dry.interval == session.check("yes", 0.5, 0.499, **whole).interval  # type: ignore[attr-defined]
    other = {"where": where, "versus": "NOT yes", "at_least": 30_000}  # none is left for the other group
    assert session.dry_run("yes", "check", guess=0.0, margin=0.5, **other).outcome == TOO_FEW  # type: ignore[attr-defined]
