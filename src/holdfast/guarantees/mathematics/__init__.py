"""Theorems that guarantees share: pure functions, each marked with where it comes from and where it is proved."""

import sys
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


WORTH_IMPORTING = 5_000  # intervals without it take as much longer as importing it takes


class SpecialFunctions:
    """The functions of `scipy.special`, which is imported when one of them is first used.

    Importing it takes as long as everything else that a short command needs, and many commands never use it. A process
    that answers for long imports it first (`load`): ends of intervals then take a seventh of the time.
    """

    _missed = 0  # how often it was not at hand

    def load(self) -> None:
        """Import `scipy.special` now."""
        self._for_numbers("beta_law", "betainc")

    def at_hand(self) -> bool:
        """Whether `scipy.special` is imported, so that using it costs nothing; it is once that has become worth it."""
        if "scipy.special" not in sys.modules:
            self._missed += 1
            if self._missed < WORTH_IMPORTING:
                return False
            self.load()
        return True

    def beta_law(self, a: float, b: float, p: float) -> float:
        """Return the distribution function of a Beta law, for single numbers: in a third of the time."""
        return self._for_numbers("beta_law", "betainc")(a, b, p)

    def beta_quantile(self, a: float, b: float, tail: float) -> float:
        """Return its quantile, like `betaincinv`."""
        return self._for_numbers("beta_quantile", "betaincinv")(a, b, tail)

    def _for_numbers(self, name: str, known_as: str) -> Callable[[float, float, float], float]:
        from scipy.special import cython_special

        found: Callable[[float, float, float], float] = getattr(cython_special, known_as)
        self.__dict__[name] = found  # from now on without a detour
        return found

    def __getattr__(self, name: str) -> Any:
        """Return a function of `scipy.special`, and keep it here."""
        if name.startswith("__"):
            raise AttributeError(name)
        from scipy import special

        found = self.__dict__[name] = getattr(special, name)
        return found


special = SpecialFunctions()
