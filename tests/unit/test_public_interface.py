"""What is public: one list of names, typed and described, that prints without touching anything."""

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import polars as pl
import pytest

import holdfast
from holdfast.questions import KINDS
from holdfast.rows.source import Table

CLASSES = [name for name in holdfast.__all__ if inspect.isclass(getattr(holdfast, name))]
FUNCTIONS = [name for name in holdfast.__all__ if inspect.isfunction(getattr(holdfast, name))]


def members(cls: type) -> Iterator[tuple[str, Callable[..., object]]]:
    """The public callables that a class itself offers, properties as their getters."""
    for owner in cls.__mro__:
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
    found: dict[str, Callable[..., object]] = {name: getattr(holdfast, name) for name in FUNCTIONS}
    found["open"] = holdfast.open
    for name in CLASSES:
        cls = getattr(holdfast, name)
        if "__init__" in vars(cls) and cls.__init__.__module__.startswith("holdfast"):
            found[name] = cls.__init__
        found |= {f"{name}.{method}": value for method, value in members(cls)}
    return found


CALLABLES = public_callables()
LOADED_LATER = {"httpx": httpx, "pl": pl, "Table": Table}  # what annotations name, and is imported when needed


@pytest.mark.parametrize("name", sorted(CALLABLES))
def test_no_parameter_is_of_any_type(name):
    """What comes in is typed; what goes out as JSON may hold any JSON value."""
    function = CALLABLES[name]
    hints = typing.get_type_hints(function, localns=LOADED_LATER)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        hint = hints.get(parameter.name, inspect.Parameter.empty)
        assert hint is not inspect.Parameter.empty, parameter.name
        assert hint is not typing.Any, parameter.name


def described(name: str) -> str:
    """What `help` says of a callable: its description, or for a constructor that of its class."""
    found = getattr(holdfast, name) if name in CLASSES else CALLABLES[name]
    return inspect.cleandoc(found.__doc__ or "")


@pytest.mark.parametrize("name", sorted(CALLABLES))
def test_every_parameter_is_described(name):
    text = described(name)
    assert text, "no description at all"
    parameters = [p for p in inspect.signature(CALLABLES[name]).parameters.values() if p.name not in ("self", "cls")]
    missing = [p.name for p in parameters if not re.search(rf"\b{p.name}\b", text)]
    assert missing == []
    if len(parameters) > 2:
        assert "Parameters\n----------\n" in text


def test_a_star_import_replaces_no_builtin():
    import builtins

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
    """A ledger that may not be looked at."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"a printout asked the ledger for {name}")


def test_printing_a_session_does_no_io(monkeypatch):
    session = holdfast.Session({"x": np.arange(1_000)}, queries=2)
    monkeypatch.setattr(session, "_ledger", Untouchable())
    assert "1,000 rows" in repr(session)


def test_the_types_of_verbs_are_those_of_their_kinds():
    assert isinstance(holdfast.Session.mean, types.FunctionType)
