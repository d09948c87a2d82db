"""Range errors: one wording, nothing slips through."""

from collections.abc import Callable
from fractions import Fraction
from inspect import signature
from math import inf, nan
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import holdfast as hf
from holdfast import check
from holdfast.errors import InvalidArgument

NOT_NUMBERS = [None, "1", True, False, nan, inf, -inf, 1j, [1], 10**400, np.nan, np.bool_(True)]


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
@pytest.mark.parametrize("rule", [check.number, check.positive, check.probability, check.share])
def test_what_is_no_finite_number_is_refused_by_name(rule, value):
    with pytest.raises(InvalidArgument, match=r"^size must be a finite number; got ") as caught:
        rule(size=value)
    assert caught.value.fields == {"name": "size"}


@pytest.mark.parametrize("value", [1, 0.5, np.float32(0.5), np.int64(1), Fraction(1, 2)])
def test_numbers_of_every_make_pass(value):
    check.number(x=value)
    check.positive(x=value)
    check.share(x=value)


@pytest.mark.parametrize(
    ("rule", "good", "bad", "says"),
    [
        (check.positive, [1e-300, 5], [0, -1, -0.0], "positive"),
        (check.probability, [1e-300, 1 - 1e-16], [0, 1, -0.1, 1.1], "strictly between 0 and 1"),
        (check.share, [0, 1, 0.5], [-1e-300, 1 + 1e-15], "between 0 and 1"),
        (check.whole, [1, np.int64(7), 10**30], [0, -3, 2.5, True, "3", None], "a whole number of at least 1"),
    ],
)
def test_each_rule_has_its_boundary(rule, good, bad, says):
    for value in good:
        rule(x=value)
    for value in bad:
        with pytest.raises(InvalidArgument) as caught:
            rule(x=value)
        assert str(caught.value) == f"x must be {says}; got {value!r}."


@pytest.mark.parametrize("rule", [check.probability, check.share])
def test_what_must_be_a_percentage_is_told_how_it_is_written(rule):
    with pytest.raises(InvalidArgument, match=r"got 95\. For 95% write 0\.95\.$"):
        rule(confidence=95)


def test_whole_takes_a_minimum():
    check.whole(0, seed=0)
    with pytest.raises(InvalidArgument, match=r"^n must be a whole number of at least 2; got 1\.$"):
        check.whole(2, n=1)
    with pytest.raises(InvalidArgument, match=r"got 1000000\.0\. Write 1_000_000\.$"):
        check.whole(rows=1e6)


def test_the_first_wrong_argument_is_named():
    with pytest.raises(InvalidArgument, match=r"^b must be positive"):
        check.positive(a=1, b=-1, c=-2)


def test_at_most_names_its_limit():
    check.at_most("n", 10, ell=10)
    with pytest.raises(InvalidArgument, match=r"^ell must be at most n \(10\); got 20\.$"):
        check.at_most("n", 10, ell=20)


@pytest.mark.parametrize("value", [(0, 1), [0.5, np.float64(2)], (-1e300, 1e300), np.array([1, 2])])
def test_intervals_come_back_as_floats(value):
    low, high = check.interval("within", value)
    assert (type(low), type(high)) == (float, float)
    assert low < high


@pytest.mark.parametrize(
    "value", [None, 3, (1,), (1, 2, 3), (1, 1), (2, 1), (0, nan), (0, inf), ("a", "b"), (-1.7e308, 1.7e308), "ab"]
)
def test_what_is_no_interval_is_refused(value):
    with pytest.raises(InvalidArgument, match=r"^within(\[[01]\])? must be "):
        check.interval("within", value)


def test_a_range_keeps_its_digits():
    """In a range of the smallest numbers an interval would be a single one of them, which the mean is not."""
    check.within("within", (-1e-290, 0))
    for low, high in ((0, 5e-324), (-1e-300, 1e-300)):
        with pytest.raises(InvalidArgument, match="with an end beyond 1e-290"):
            check.within("within", (low, high))


def test_words_are_listed():
    check.one_of("mechanism", "coins", ("coins", "laplace"))
    with pytest.raises(InvalidArgument, match=r"^mechanism must be one of 'coins', 'laplace'; got 'dice'\.$"):
        check.one_of("mechanism", "dice", ("coins", "laplace"))


def test_bounds_that_are_one_float_are_refused():
    with pytest.raises(InvalidArgument, match="low < high"):
        check.interval("within", (2**53, 2**53 + 1))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: hf.Session({"x": [1, 2]}, querys=3), "There is no option 'querys'. Did you mean 'queries'?"),  # type: ignore[call-arg]
        (lambda: hf.plan(row=3), "There is no option 'row'. Did you mean 'rows'?"),  # type: ignore[call-arg]
        (lambda: hf.open({"x": [1]}, foo=3), "There is no option 'foo'. There are: data,"),  # type: ignore[call-arg]
        (lambda: hf.Session("x.csv", delimiter=";"), "There is no option 'delimiter'. Did you mean 'separator'?"),  # type: ignore[call-arg]
        (
            lambda: hf.Session({"x": [1]}, folder="x.holdfast"),  # type: ignore[call-arg]
            "There is no option 'folder'. It is an option of open: give holdfast.open(data, folder=...).",
        ),
        (lambda: hf.plan("x.csv", na_values=["NA"]), "There is no option 'na_values'. Did you mean 'null_values'?"),  # type: ignore[call-arg]
        (
            lambda: hf.Session("x.csv", 100),  # type: ignore[misc]
            "Session takes only data without writing a name; write those of the others, such as queries=.",
        ),
        (lambda: hf.open("x.csv", "x"), "open takes only data without writing a name; write"),  # type: ignore[misc]
        (lambda: hf.hold_back("x.csv", 0.5, "id"), "hold_back takes only data and explore without writing a name;"),  # type: ignore[misc]
        (lambda: hf.Board("x.csv", "id"), "Board takes only labels without writing a name; write"),  # type: ignore[misc]
        (lambda: hf.open("x.csv", sep=";"), "There is no option 'sep'. Did you mean 'separator'?"),  # type: ignore[call-arg]
    ],
)
def test_an_option_that_is_not_there_is_refused_with_the_nearest(call: Callable[[], object], said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        call()
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize("option", check.OPENING)
def test_an_option_of_open_is_said_to_belong_there(option: str) -> None:
    assert option in signature(hf.open).parameters
    for function in (hf.Session, hf.hold_back):
        with pytest.raises(InvalidArgument, match=rf"give .*holdfast.open\(data, {option}=...\)"):
            function({"x": [1]}, **{option: 1})  # type: ignore[arg-type, operator]


def test_whatever_takes_the_path_of_a_file_takes_how_it_is_written(tmp_path: Path) -> None:
    opened = signature(hf.open).parameters
    assert set(check.TextFormat.__annotations__) == {*opened} - {
        *("data", "name", "folder", "progress", "complete", "version", "unit")
    }
    assert {name: get_type_hints(check.TextFormat)[name] for name in check.TextFormat.__annotations__} == {
        name: opened[name].annotation for name in check.TextFormat.__annotations__
    }
    text = "zip;share\n" + "".join(f"0{n % 60};{n % 7},5\n" if n % 50 else f"0{n % 60};n/a\n" for n in range(300))
    options: check.TextFormat = {"types": {"zip": "text"}, "separator": ";", "decimal": ",", "null_values": ["n/a"]}
    options["encoding"] = "latin-1"
    types = {"zip": "text", "share": "number"}
    for number, opened_by in enumerate(
        (
            lambda path: hf.open(path, **options).schema,
            lambda path: hf.Session(path, **options).schema,
            lambda path: hf.hold_back(path, **options)[1].schema,
            lambda path: (hf.plan(path, **options), hf.open(path))[1].schema,  # which remembers them
            lambda path: hf.deal(path, f"{path}.deck", cards=100, **options).schema,
        )
    ):
        path = tmp_path / f"{number}.csv"
        path.write_text(text)
        assert {column.name: str(column.type) for column in opened_by(path)} == types
    with pytest.raises(InvalidArgument, match=r"^separator must be left out where no file is given\.$"):
        hf.plan(rows=100, separator=";")
    with pytest.raises(InvalidArgument, match=r"^types must be left out unless a table is read from files"):
        hf.Session({"x": [1, 2]}, types={"x": "number"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"types": {"x": float}}, r"^types\['x'\] must be one of .*; got <class 'float'>\. Did you mean 'number'\?$"),
        ({"types": {"x": "str"}}, r"Did you mean 'text'\?$"),
        ({"types": {"x": []}}, r"^types\['x'\] must be one of .*; got \[\]\.$"),
        ({"types": "number"}, "^types must be a dict by column names; got 'number'"),
        ({"separator": 5}, "^separator must be one character"),
        ({"encoding": 5}, "^encoding must be one that Python knows"),
        ({"null_values": 5}, "^null_values must be a list of texts; got 5"),
        ({"decimal": 5}, "^decimal must be '.' or ','; got 5"),
    ],
)
def test_how_a_file_is_written_is_said_in_the_right_words(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("x\n1\n2\n")
    with pytest.raises(InvalidArgument, match=said):
        hf.Session(path, **options)


def test_another_type_error_stays_as_it_is() -> None:
    with pytest.raises(TypeError, match="missing 1 required"):
        hf.Session()  # type: ignore[call-arg]
