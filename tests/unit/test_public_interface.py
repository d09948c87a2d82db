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


def parameters_of(name: str) -> list[str]:
    return [each for each in inspect.signature(CALLABLES[name]).parameters if each not in ("self", "cls")]


def untyped(name: str) -> list[str]:
    hints = typing.get_type_hints(CALLABLES[name], localns=LOADED_LATER)
    return [each for each in parameters_of(name) if hints.get(each, typing.Any) is typing.Any]


def test_no_parameter_is_of_any_type():
    """What comes in is typed; what goes out as JSON may hold any JSON value."""
    assert {name: found for name in sorted(CALLABLES) if (found := untyped(name))} == {}


def described(name: str) -> str:
    """What `help` says of a callable: its description, or for a constructor that of its class."""
    found = getattr(holdfast, name) if name in CLASSES else CALLABLES[name]
    return inspect.cleandoc(found.__doc__ or "")


def undescribed(name: str) -> list[str]:
    text, parameters = described(name), parameters_of(name)
    if not text or (len(parameters) > 2 and "Parameters\n----------\n" not in text):
        return ["no description, or none of its parameters in a section of their own"]
    return [each for each in parameters if not re.search(rf"\b{each}\b", text)]


def test_every_parameter_is_described():
    assert {name: found for name in sorted(CALLABLES) if (found := undescribed(name))} == {}


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
