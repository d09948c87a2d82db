"""What is public: one list of names, typed and described, that prints without touching anything."""

import builtins
import inspect
import io
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import httpx
import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

import holdfast
from holdfast import losses
from holdfast import sklearn as estimators
from holdfast.ledger import Follower, Ledger
from holdfast.ledger.memory import MemoryStore
from holdfast.questions import KINDS
from holdfast.registry import Registry
from holdfast.rows.source import Table

PUBLIC = {  # by the name that users write after `holdfast.`
    **{name: getattr(holdfast, name) for name in [*holdfast.__all__, "open"]},
    **{f"losses.{name}": getattr(losses, name) for name in losses.__all__},
    **{f"sklearn.{name}": getattr(estimators, name) for name in estimators.__all__},
}
CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value)}


def is_protocol(cls: type) -> bool:
    return bool(getattr(cls, "_is_protocol", False))


def members(cls: type) -> Iterator[tuple[str, Callable[..., object]]]:
    """The public callables that a class offers, properties as their getters; what overrides another comes last."""
    for owner in reversed(cls.__mro__):
        if not owner.__module__.startswith("holdfast"):
            continue
        for name, value in vars(owner).items():
            if name.startswith("_"):
                continue
            if isinstance(value, property):
                value = value.fget
            elif isinstance(value, classmethod | staticmethod):
                value = value.__func__
            elif hasattr(value, "func") and not inspect.isfunction(value):  # cached_property
                value = value.func
            if inspect.isfunction(value):
                yield name, value


def public_callables() -> dict[str, Callable[..., object]]:
    found = {name: value for name, value in PUBLIC.items() if inspect.isfunction(value)}
    for name, cls in CLASSES.items():
        own = "__init__" in vars(cls) or not issubclass(cls, BaseException)
        if own and inspect.isfunction(cls.__init__) and not is_protocol(cls):
            found[name] = cls.__init__
        found |= {f"{name}.{method}": value for method, value in members(cls)}
    return found


CALLABLES = public_callables()
# What annotations name, and is imported when needed.
LOADED_LATER = {"httpx": httpx, "pl": pl, "Table": Table, "Figure": Figure}


def parameters_of(name: str) -> list[str]:
    return [each for each in inspect.signature(CALLABLES[name]).parameters if each not in ("self", "cls")]


def holds_any(hint: object) -> bool:
    """Whether a type is Any, or holds it somewhere: a list of Any, say. JSON objects may have any JSON values."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (dict, Mapping) and inner == (str, typing.Any):
        return False
    if getattr(origin, "__module__", "").startswith("numpy"):  # the shape of an array, and what is like one
        return False
    listed = [each for one in inner for each in (one if isinstance(one, list) else [one])]
    return hint is typing.Any or any(holds_any(each) for each in listed)


def untyped(name: str) -> list[str]:
    hints = typing.get_type_hints(CALLABLES[name], localns=LOADED_LATER)
    results = [] if name in CLASSES else ["return"]
    return [each for each in parameters_of(name) + results if holds_any(hints.get(each, typing.Any))]


def test_nothing_is_of_any_type():
    assert {name: found for name in sorted(CALLABLES) if (found := untyped(name))} == {}


@pytest.mark.parametrize(
    ("hint", "found"),
    [
        (Any, True),
        (Sequence[Any], True),
        (Mapping[str, Sequence[Any]] | None, True),
        (Callable[[Any], int], True),
        (dict[str, Any], False),
        (ArrayLike, False),
        (Sequence[str] | None, False),
    ],
)
def test_any_is_found_inside_types(hint, found):
    assert holds_any(hint) is found


def descriptions(name: str) -> list[str]:
    """What `help` says of a callable, or of the class of a constructor; and of what a method overrides, if anything."""
    if name in CLASSES:
        return [inspect.cleandoc(CLASSES[name].__doc__ or "")]
    found, (owner, _, attribute) = [CALLABLES[name]], name.rpartition(".")
    for base in CLASSES[owner].__mro__[1:] if owner in CLASSES else ():
        found += [value for key, value in members(base) if key == attribute]
    return [inspect.cleandoc(each.__doc__) for each in found if each.__doc__]


def undescribed(name: str) -> list[str]:
    text, parameters = "\n\n".join(descriptions(name)), parameters_of(name)
    section = text.partition("Parameters\n----------\n")[2].partition("\n-------")[0]
    named = {each for line in section.splitlines() if not line.startswith(" ") for each in re.split(r",\s*", line)}
    lacking = [each for each in parameters if each not in {one.strip("*") for one in named}]
    return lacking if text else ["a description"]


def test_every_parameter_is_described():
    assert {name: found for name in sorted(CALLABLES) if (found := undescribed(name))} == {}


def is_property(name: str) -> bool:
    owner, _, attribute = name.rpartition(".")
    found = [vars(base).get(attribute) for base in CLASSES[owner].__mro__] if owner in CLASSES else []
    return any(isinstance(each, property | cached_property) for each in found)


def is_result_described(name: str) -> bool:
    """Whether a description says it in its first line, or in a section of its own; properties are what they are."""
    result = typing.get_type_hints(CALLABLES[name], localns=LOADED_LATER).get("return")
    if name in CLASSES or is_property(name) or result is type(None):
        return True
    texts = descriptions(name)
    return any(text.startswith(("Return ", "Yield ")) or "Returns\n-------\n" in text for text in texts)


def test_every_result_is_described():
    assert [name for name in sorted(CALLABLES) if not is_result_described(name)] == []


def test_a_star_import_replaces_no_builtin():
    assert set(holdfast.__all__) & set(vars(builtins)) == set()
    assert holdfast.open is not builtins.open


def test_the_list_of_names_is_written_once():
    stub = Path(holdfast.__file__).with_suffix(".pyi").read_text()
    names = set(holdfast.__all__) - {"__version__"}
    assert all(f" as {name}\n" in stub for name in names)


def test_the_registries_and_what_is_in_them_are_public():
    registries, entries = {"GUARANTEES", "MECHANISMS", "KINDS"}, {"Guarantee", "Mechanism", "Kind", "RowSource"}
    assert registries | entries | {"Schema", "RemoteSession"} <= set(holdfast.__all__)


@pytest.mark.parametrize("kind", KINDS.names())
def test_every_kind_is_a_verb_with_its_own_signature_and_description(kind):
    verb = getattr(holdfast.Session, kind)
    build = KINDS[kind].build
    own = list(inspect.signature(build).parameters.values())[1:]
    shown = list(inspect.signature(verb).parameters.values())[1:]
    assert [(p.name, p.kind, p.default) for p in shown] == [(p.name, p.kind, p.default) for p in own]
    assert verb.__doc__ == build.__doc__
    assert "Parameters\n" in inspect.cleandoc(verb.__doc__)
    assert inspect.signature(verb).return_annotation is KINDS[kind].answer


class Untouchable:
    """A store that may not be read."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"a printout asked the store for {name}")


def printed(shown: object, *ledgers: Ledger) -> str:
    """What something prints, as text and in a notebook, while nothing may be read: no store, no file."""

    def opened(path: object, *_: object, **__: object) -> NoReturn:
        raise AssertionError(f"a printout opened {path}")

    with pytest.MonkeyPatch.context() as patch:
        for ledger in ledgers:
            patch.setattr(ledger, "_store", Untouchable())
            patch.setattr(ledger._watch, "_store", Untouchable())
        for module in (builtins, io, os):
            patch.setattr(module, "open", opened)
        html = shown._repr_html_() if hasattr(shown, "_repr_html_") else ""
        return f"{shown!r}\n{html}"


def test_a_session_prints_what_it_last_saw_and_reads_nothing(tmp_path):
    session = holdfast.Session({"x": np.arange(1_000)}, queries=20, ledger=tmp_path / "x.ledger")
    assert "1,000 rows" in printed(session, session.ledger)
    session.mean("x > 300")
    open_ = printed(session, session.ledger)
    assert "19 of 20 answers left" in open_
    session.close()
    assert printed(session, session.ledger) == open_
    with pytest.raises(holdfast.LedgerUnavailable):
        _ = session.budget


def test_sessions_that_share_a_ledger_print_what_either_of_them_saw():
    rows = {"x": np.arange(1_000)}
    first = holdfast.Session(rows, queries=20)
    first.mean("x > 300")
    with pytest.warns(holdfast.SharedBudget):
        second = holdfast.Session(rows, queries=20)
    assert "share one budget: 19 of 20 answers left" in printed(second, second.ledger)
    first.mean("x > 400")
    assert "share one budget: 18 of 20 answers left" in printed(second, second.ledger)
    second.close()
    assert "share one budget: 18 of 20 answers left" in printed(second, second.ledger)


@pytest.mark.parametrize("seed", [None, 1])
def test_places_taken_ahead_by_another_session_do_not_spoil_a_printout(tmp_path, seed):
    options = {"queries": 200, "ledger": tmp_path / "x.ledger", "seed": seed}
    first, second = (holdfast.Session({"x": np.arange(1_000)}, **options) for _ in range(2))
    first.mean("x > 1")
    assert second.budget.answers_left == 199
    for place in range(2, 40):
        first.mean(f"x > {place}")
    assert "of 200 answers left" in printed(second, first.ledger, second.ledger)
    assert "161 of 200 answers left" in printed(first, first.ledger)
    first.close()
    second.close()


def test_a_board_prints_what_it_last_saw_and_reads_nothing(tmp_path):
    table = {"id": list(range(1_000)), "label": [place % 2 for place in range(1_000)]}
    pl.DataFrame(table).write_parquet(tmp_path / "t.parquet")
    with holdfast.Board(tmp_path / "t.parquet") as board:
        assert "0 submissions so far" in printed(board, board.session.ledger)
        board.submit({"id": table["id"], "prediction": table["label"]}, by="team 7")
        shown = printed(board, board.session.ledger)
        assert "The best so far is that of team 7, no. 1: [" in shown
        assert "1 submission so far" in shown
    assert printed(board, board.session.ledger) == shown
    with holdfast.Board(tmp_path / "t.board.holdfast") as again:
        assert printed(again, again.session.ledger) == shown


def test_an_answer_is_shown_even_if_what_others_submitted_cannot_be_read(monkeypatch):
    table = {"id": list(range(1_000)), "label": [place % 2 for place in range(1_000)]}
    with holdfast.Board(table) as board:
        monkeypatch.setattr(board, "_follower", Follower(Ledger(MemoryStore("t"), fingerprint="t"), print))
        board._follower._ledger.close()
        assert board.submit({"id": table["id"], "prediction": table["label"]}).improved


def test_a_deck_prints_what_it_last_saw_and_opens_no_file(tmp_path):
    pl.DataFrame({"x": np.arange(1_000)}).write_parquet(tmp_path / "t.parquet")
    deck = holdfast.deal(tmp_path / "t.parquet", tmp_path / "t.deck", cards=50_000)
    assert "50,000 of 50,000 cards left" in printed(deck)
    with holdfast.Session(deck, queries=5) as session:
        session.mean("x > 300")
        left = deck.left
        assert left < 50_000
        assert f"{left:,} of 50,000 cards left" in printed(deck)
        assert "4 of 5 answers left" in printed(session, session.ledger)
    assert f"{left:,} of 50,000 cards left" in printed(holdfast.open(tmp_path / "t.deck"))


def test_a_registry_prints_names_and_loads_no_packages(monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", Untouchable())
    made = Registry("holdfast.questions", ("mean", "moments.variance"))
    assert repr(made) == "holdfast.questions: mean, variance"


def test_a_picture_without_matplotlib_says_what_it_lacks(monkeypatch):
    picture = holdfast.Session({"x": np.arange(1_000)}, seed=1).mean("x > 300").plot()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "need the package matplotlib" in picture._repr_html_()


def test_the_types_of_verbs_are_those_of_their_kinds():
    assert isinstance(holdfast.Session.mean, types.FunctionType)
