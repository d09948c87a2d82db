"""Looking again at one question until its margin is small enough: what each look draws, counts and costs."""

from typing import Any

import numpy as np
import pytest

from holdfast.errors import InvalidArgument, PlanInfeasible
from holdfast.guarantees.mathematics.shares import look_share
from holdfast.guarantees.statistic import Tally
from holdfast.questions.batch import Questions
from holdfast.questions.looks import FIRST_LOOK
from holdfast.session.session import Session

ROWS = 100_000


def data() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {"x": rng.random(ROWS) < 0.4, "rare": rng.random(ROWS) < 0.002, "g": rng.integers(0, 8, ROWS)}


def test_looks_double_and_stop_at_the_margin() -> None:
    with Session(data(), seed=1) as session:
        answer = session.mean("x", until=0.03)
        assert answer.margin <= 0.03
        entries = list(session.ledger.entries())
        draws = [FIRST_LOOK, *(FIRST_LOOK * 2**look for look in range(len(entries) - 1))]
        assert [entry.rows_read for entry in entries] == [entry.cost.charge for entry in entries] == draws
        assert [entry.cost.intervals for entry in entries] == [1] + [0] * (len(entries) - 1)  # one statement for all
        assert [sum(entry.answer["counts"]) for entry in entries] == np.cumsum(draws).tolist()
        widths = [entry.answer["high"] - entry.answer["low"] for entry in entries]
        assert widths == sorted(widths, reverse=True)
        before = entries[-2].answer
        assert max(before["high"] - before["value"], before["value"] - before["low"]) > 0.03
        assert (answer.low, answer.high, answer.seq) == (
            entries[-1].answer["low"],
            entries[-1].answer["high"],
            len(entries),
        )


@pytest.mark.parametrize("guarantee", ["exchange", "posterior", "information"])
def test_looks_share_the_level_of_the_first_and_pool_all_draws(guarantee: str) -> None:
    with Session(data(), seed=2, queries=100, guarantee=guarantee, rows_per_query=4_000) as session:
        session.mean("rare")
        session.mean("x", until=0.04)
        _, first, *others = session.ledger.entries()
        assert len(others) > 1
        place = first.place
        shared = session.plan.standing.at(place.reached, place.intervals).level
        for number, entry in enumerate((first, *others), start=1):
            standing = session.plan.standing.at(entry.place.reached, place.intervals)
            zeros, ones = entry.answer["counts"]
            pooled = Tally((0.5,), zeros + ones, (zeros, ones), (1,))
            found = standing.at_level(shared * look_share(number)).share(pooled, 0)
            assert (entry.answer["low"], entry.answer["high"]) == found
            assert zeros + ones == FIRST_LOOK * 2 ** (number - 1)


def test_a_look_beyond_a_plan_keeps_the_level_that_the_first_one_had() -> None:
    """Levels after a plan are other ones; that of a later look must not depend on when it is taken."""
    with Session(data(), seed=2, queries=2, guarantee="exchange", rows_per_query=3_000, end=False) as session:
        session.mean("x", until=0.05)
        for threshold in range(1, 5):
            session.mean(f"g > {threshold}")
        session.mean("x", until=0.03)
        looks = [entry for entry in session.ledger.entries() if "look" in entry.question["text"]]
        assert looks[-1].place.intervals > 2
        assert {entry.answer["level"] for entry in looks} == {session.plan.terms.level_at(1)}


def test_who_wants_more_goes_on_where_others_stopped() -> None:
    with Session(data(), seed=1) as session:
        wide = session.mean("x", until=0.05)
        count = session.ledger.spent.answers
        again = session.mean("x", until=0.05)
        assert again.cached
        assert session.ledger.spent.answers == count
        narrow = session.mean("x", until=0.025)
        assert narrow.margin <= 0.025 < wide.margin
        assert session.ledger.spent.answers > count
        assert [entry.question["text"] for entry in session.ledger.entries()] == [
            f"share of x, look {number} at {FIRST_LOOK * 2 ** (number - 1):,} draws"
            for number in range(1, session.ledger.spent.answers + 1)
        ]


def test_a_rare_event_takes_fewer_looks_than_a_share_of_one_half() -> None:
    with Session(data(), seed=1) as session:
        rare, half = session.mean("rare", until=0.02), session.mean("x", until=0.02)
        assert rare.margin <= 0.02
        assert half.margin <= 0.02
        assert rare.rows_read < half.rows_read


def test_groups_are_looked_at_until_they_are_known_or_it_is_enough() -> None:
    with Session(data(), seed=1) as session:
        assert session.mean("x", where="g = 1", until=0.2).margin <= 0.2
        never = session.mean("x", where="g = 2", until=1e-6)
        assert never.margin > 1e-6
        assert never.rows_read <= 16 * session.plan.rows_per_query


def test_what_cannot_be_looked_at_is_refused_before_anything_is_drawn() -> None:
    with Session(data(), seed=1) as session:
        for query, options in (
            ("x", {"until": 0.02, "margin": 0.1}),
            ("x", {"until": 0.02, "rows_per_query": 5}),
            ("x", {"until": 0.02, "by": "g", "groups": [1, 2]}),
            ("x", {"until": 0.02, "mechanism": "gaussian"}),
            ("x", {"until": 0}),
            (lambda rows: rows["x"], {"until": 0.1}),
        ):
            with pytest.raises(InvalidArgument):
                session.mean(query, **options)
        with pytest.raises(PlanInfeasible, match="its limit now is"):
            session.mean("x", until=1e-5)
        assert not session.ledger.begun
    with Session(data(), seed=1, queries=10, guarantee="split") as session, pytest.raises(InvalidArgument):
        session.mean("x", until=0.02)


def test_where_there_is_an_end_the_looks_that_were_paid_for_stand() -> None:
    with Session(data(), seed=1, queries=3, end=True, guarantee="exchange", rows_per_query=4_000) as session:
        answer = session.mean("x", until=session.plan.margin * 0.7)
        assert session.ledger.spent.answers == answer.seq == 4  # 8,000 of 12,000 draws: the next look takes 8,000
        assert answer.margin > session.plan.margin * 0.7


def test_the_price_is_that_of_the_first_look_and_the_dry_run_shows_the_last() -> None:
    with Session(data(), seed=1) as session:
        price = session.price("x", until=0.03)
        assert price.rows_read == FIRST_LOOK
        assert "look 1 of at most" in str(price)
        dry = session.dry_run("x", until=0.03)
        assert dry.made_up
        assert (dry.high - dry.low) / 2 <= 0.03
        assert session.mean("x", until=0.03).seq == session.ledger.spent.answers


def test_the_price_is_that_of_the_look_which_would_be_drawn_next() -> None:
    with Session(data(), seed=1) as session:
        answer = session.mean("x", until=0.05)
        assert session.price("x", until=0.05).cached
        price = session.price("x", until=0.02)
        assert not price.cached
        assert f"look {answer.seq + 1} " in price.question
        session.mean("x", until=0.02)
        following = list(session.ledger.entries())[answer.seq]
        assert following.rows_read == price.rows_read


def test_a_list_takes_no_question_that_is_looked_at_again() -> None:
    """It would have been answered by its first look alone, with another margin than was asked for."""
    asked = ["x", {"query": "rare", "until": 0.05}]
    with Session(data(), seed=1) as session:
        for ask in (session.ask_many, session.price_many):
            with pytest.raises(InvalidArgument, match=r"Question 2: until must be left out in a list"):
                ask(asked)
        with pytest.raises(InvalidArgument, match="Question 2"):
            session.ask_many(Questions(asked))
        assert not list(session.ledger.entries())  # nothing was drawn, nor registered
