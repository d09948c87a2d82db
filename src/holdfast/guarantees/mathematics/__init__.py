"""Theorems that guarantees share: pure functions, each marked with where it comes from and where it is proved."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Theorem:
    """What is known about a theorem in the code."""

    name: str
    source: str
    proof: str
    statement: str


REGISTRY: dict[str, Theorem] = {}


def theorem(source: str, *, proof: str) -> Callable[[Function], Function]:
    """Register the function under its qualified name; `proof` is a page of docs/proofs."""

    def mark(function: Function) -> Function:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        REGISTRY[name] = Theorem(name, source, proof, function.__doc__ or "")
        return function

    return mark
