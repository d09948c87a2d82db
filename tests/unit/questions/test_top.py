"""The most frequent texts: every text is on one branch of every round, and what was missed is bounded."""

import re
from collections import Counter
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast as hf
from holdfast.questions.estimate import Estimate
from holdfast.questions.top import CHARACTERS, FEWER, WAYS, Alphabet, Branch, LetterSearch, Spelled, rounds

TEXTS = st.lists(st.text("abcdeX", max_size=4), min_size=1, max_size=60)
LETTERS = Alphabet("abcde")


def search(texts: list[str], *, longest: int, most: int, off: float = 0.0, seed: int = 0) -> tuple[dict[str, Any], int]:
    """Run the rounds on exact shares, or on shares that are off; return the result and the branches of every round."""
    rng, looking, asked = np.random.default_rng(seed), LetterSearch(LETTERS, longest, most), []
    while looking.open:
        query = Spelled(None, LETTERS, tuple(looking.open))  # type: ignore[arg-type]
        counts = Counter(query.branch_of(text) for text in texts)
        assert sum(counts.values()) == len(texts)
        asked.append(len(looking.open))
        found = []
        for place, branch in enumerate(looking.open):
            share = counts[place] / len(texts)
            low, high = max(0.0, share - off * rng.random()), min(1.0, share + off * rng.random())
            found.append((branch, Estimate(float(rng.uniform(low, high)), low, high)))
        looking.learn(found)
    assert len(asked) <= len(rounds(LETTERS, longest, most))
    assert all(had <= most_ for had, most_ in zip(asked, rounds(LETTERS, longest, most), strict=False))
    return looking.result(), len(asked)


@given(TEXTS, st.integers(1, 4), st.integers(1, 5), st.sampled_from([0.0, 0.1, 0.5]), st.integers(0, 9))
def test_no_text_that_is_not_listed_is_more_frequent_than_what_may_have_been_missed(
    texts: list[str], longest: int, most: int, off: float, seed: int
) -> None:
    """As docs/proofs/top.md says, if intervals hold: however wrong the order in which branches are followed."""
    result, _ = search(texts, longest=longest, most=most, off=off, seed=seed)
    shares = {text: count / len(texts) for text, count in Counter(texts).items()}
    listed = {one["category"]: one for one in result["categories"]}
    assert len(listed) <= most
    for text, one in listed.items():
        assert one["low"] <= shares.get(text, 0.0) <= one["high"]
    assert all(share <= result["missed"] for text, share in shares.items() if text not in listed)


def test_forgetting_what_was_left_behind_early_is_caught() -> None:
    """The mutant counts only what the last round leaves: a text on a branch that was left before is more frequent."""
    counts = {"dee": 6, "bdd": 6, "ceb": 5, "cbd": 4, "acb": 4, "bac": 4, "eeb": 4, "cca": 3, "aba": 3, "bcc": 3}
    counts |= {"bba": 3, "ebd": 3, "cbe": 3, "eed": 3, "cee": 3, "cbb": 2, "ded": 1, "aca": 1}
    texts = [text for text, count in counts.items() for _ in range(count)]
    result, _ = search(texts, longest=3, most=1)
    assert [one["category"] for one in result["categories"]] == ["dee"]
    assert result["missed"] >= 6 / len(texts)  # bdd: its first letters are not those of as many texts
    looking = LetterSearch(LETTERS, 3, 1)
    while looking.open:
        query = Spelled(None, LETTERS, tuple(looking.open))  # type: ignore[arg-type]
        asked = Counter(query.branch_of(text) for text in texts)
        looking.missed = 0.0
        looking.learn([(one, Estimate(*[asked[i] / len(texts)] * 3)) for i, one in enumerate(looking.open)])
    assert looking.result()["missed"] < 6 / len(texts)


def test_a_frequent_text_is_found_although_several_others_share_their_first_letters() -> None:
    """Following no more branches than texts are listed would list two of those that begin alike."""
    texts = ["d"] * 20 + [first + second for first in "abc" for second in "abc" for _ in range(10)]
    result, _ = search(texts, longest=2, most=2)
    assert result["categories"][0]["category"] == "d"


@pytest.mark.parametrize("longest", [1, 2, 3])
def test_enough_rounds_spell_everything(longest: int) -> None:
    texts = ["", "a", "ab", "abc", "e", "ede"]
    result, _ = search([text for text in texts if len(text) <= longest], longest=longest, most=50)
    assert {one["category"] for one in result["categories"]} == {text for text in texts if len(text) <= longest}
    assert result["missed"] == 0


def test_branches_divide_into_branches_that_share_no_text() -> None:
    rest, spelled = [Branch("a", 2, 7)], []
    while rest:
        one = rest.pop()
        parts = one.split(LETTERS, WAYS, 3)
        if parts and parts[0].prefix == one.prefix:
            assert [parts[0].start, parts[-1].stop] == [one.start, one.stop]
            assert all(first.stop == last.start for first, last in pairwise(parts))
        if one.spelled_out:
            spelled.append(one.prefix)
        rest += parts
    letters = ("b", "c", "d", "e")  # the branch begins behind "a", and its last symbol is of no letter
    assert sorted(spelled) == sorted(f"a{one}{two}" for one in letters for two in ("", *LETTERS.characters))


def flights(rows: int = 40_000) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    carriers = np.array(["UA", "B6", "EV", "Ω9", "longer", None], dtype=object)
    return {"carrier": pl.Series(rng.choice(carriers, rows, p=[0.35, 0.3, 0.15, 0.1, 0.05, 0.05]), dtype=pl.String)}


@pytest.fixture(scope="module")
def session() -> Any:
    with hf.Session(flights(), queries=300, seed=1) as session:
        yield session


def test_the_most_frequent_carriers_are_found(session: hf.Session) -> None:
    answer = session.top("carrier", longest=2, most=3)
    assert list(answer) == ["UA", "B6", "EV"]
    assert answer["UA"].low <= 0.35 <= answer["UA"].high
    assert 0.1 <= answer.missed < 0.3
    assert re.search(r"any other: at most 0\.\d+ of the rows", repr(answer))
    assert session.top("carrier", longest=2, most=3).cached
    assert answer.frame["category"].to_list() == ["UA", "B6", "EV"]


def test_what_it_costs_is_said_before(session: hf.Session) -> None:
    session.top("carrier", longest=2, most=3)
    assert session.price("carrier", "top", longest=2, most=3).answers == 0
    fewer = session.price("carrier", "top", longest=2, most=3, alphabet="BEUAV6")
    assert 0 < fewer.answers < session.price("carrier", "top", longest=3, most=3, alphabet="BEUAV6").answers


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alphabet": "aa"}, "alphabet must be text with every character once; got 'aa'."),
        ({"alphabet": ""}, "alphabet must be text with every character once; got ''."),
        ({"longest": 41}, "longest must be at most the most characters (40); got 41."),
        ({"most": 0}, "most must be"),
    ],
)
def test_refusals(session: hf.Session, options: dict[str, Any], message: str) -> None:
    with pytest.raises(hf.InvalidArgument, match=re.escape(message)):
        session.top("carrier", **({"longest": 2} | options))


def test_numbers_have_no_spelling(session: hf.Session) -> None:
    with pytest.raises(hf.InvalidArgument, match=r"for texts, which are spelled out; .* is an integer"):
        session.top("LENGTH(carrier)", longest=2)
    with pytest.raises(hf.InvalidQuery, match="only texts can be found without knowing them"):
        session.top("LENGTH(carrier)")


@pytest.mark.parametrize(
    ("query", "first", "least", "most"),
    [
        ("month", "3", 0.2, 0.35),  # the others are a fourth each
        (pl.col("month"), "3", 0.2, 0.35),
        ("CASE WHEN month = 3 THEN 'march' ELSE 'another' END", None, 0.0, 0.0),  # there are no others
        ("month = 3", None, 0.0, 0.0),
        ("maybe", "yes", 0.2, 0.35),  # a fourth is "perhaps", a fourth is missing, which is no value
    ],
)
def test_declared_values_of_any_type_are_ranked(query: Any, first: str | None, least: float, most: float) -> None:
    frame = pl.DataFrame({"month": [1, 3, 2, 3] * 25_000, "maybe": ["yes", "yes", "perhaps", None] * 25_000})
    declared = {"month": [1, 2, 3, 4], "maybe": ["no", "yes"]}
    session = hf.Session(frame, queries=50, seed=5, categories=declared)
    answer = session.top(query, most=1 if first else 2)
    assert first is None or list(answer) == [first]
    assert least <= answer.missed <= most


def test_under_a_guarantee_whose_radius_counts_statements_every_branch_is_one() -> None:
    frame = pl.DataFrame({"carrier": ["UA", "AA", "DL"] * 100_000})
    costs = {}
    for guarantee in ("exchange", "information"):
        with hf.Session(frame, queries=400, guarantee=guarantee) as session:
            question = session.prepare("carrier", "top", longest=2, most=3)
            costs[guarantee] = question.cost.intervals
    branches = sum(rounds(Alphabet(CHARACTERS), 2, 3))
    assert costs == {"exchange": ceil(branches / FEWER) + 3, "information": branches}


def test_an_expression_that_names_all_its_values_has_no_others() -> None:
    """Whatever its columns hold, of whichever type they are: nothing else is asked, and nothing was missed."""
    number = np.arange(20_000)
    with hf.Session({"x": number % 10, "s": np.array(["a", "b"])[number % 2]}, seed=2) as session:
        for text in ("CASE WHEN x < 3 THEN 'few' ELSE 'many' END", "CASE WHEN s = 'a' THEN 'few' ELSE 'many' END"):
            answer = session.top(text)
            assert answer.missed == 0
            assert sorted(answer) == ["few", "many"]
            assert answer["few"].low <= (0.3 if "x" in text else 0.5) <= answer["few"].high
        assert session.top("CASE WHEN x < 3 THEN 'few' ELSE 'many' END", most=1).missed >= 0.3


def test_a_picture_says_how_frequent_any_other_can_be() -> None:
    pytest.importorskip("matplotlib")
    frame = pl.DataFrame({"carrier": ["UA", "AA"] * 20_000})
    with hf.Session(frame, seed=5, categories={"carrier": ["UA", "AA", "DL"]}) as session:
        for answer, end in ((session.top("carrier", most=1), ""), (session.dry_run("carrier", "top"), " (made up)")):
            (note,) = answer.plot().figure().texts
            assert note.get_text().startswith("any other: at most ")
            assert note.get_text().endswith(answer.details()[0][1] + end)
