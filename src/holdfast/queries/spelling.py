"""Texts by spelling: which branch of a prefix tree a row's text is on.

A text is its characters followed by an end symbol. A branch is all texts that begin with the same prefix and continue
with a symbol from a range, in this order: the end, the characters of an alphabet as declared, any other character.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.guarantees.statistic import OutcomeShares, Statistic
from holdfast.queries.evaluate import RowFunction
from holdfast.queries.measures import Measure
from holdfast.queries.query import Values

END = 0  # the first symbol


@dataclass(frozen=True)
class Alphabet:
    """The characters that are told apart, each once."""

    characters: str

    @cached_property
    def size(self) -> int:
        """How many symbols there are, with the end and "any other character"."""
        return len(self.characters) + 2

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {"": END} | {character: place for place, character in enumerate(self.characters, start=1)}

    def symbol(self, character: str) -> int:
        """Return the number of a character; the empty string stands for the end."""
        return self._numbers.get(character, self.size - 1)

    @property
    def all(self) -> "Branch":
        """The branch of all texts."""
        return Branch("", 0, self.size)


@dataclass(frozen=True)
class Branch:
    """All texts that begin with `prefix` and go on with a symbol from `start` to before `stop`."""

    prefix: str
    start: int
    stop: int

    @property
    def spelled_out(self) -> bool:
        """Whether it is one text: the prefix, and then the end."""
        return (self.start, self.stop) == (END, END + 1)

    def split(self, alphabet: Alphabet, ways: int, longest: int) -> "list[Branch]":
        """Return the branches that it divides into: none if it is spelled out, or if nothing tells its texts apart.

        Parameters
        ----------
        alphabet
            The characters that are told apart.
        ways
            The largest number of branches to return.
        longest
            After a prefix of this many characters, only texts that end there are told apart from texts that go on.
        """
        if self.spelled_out:
            return []
        if self.stop - self.start == 1:
            if self.start == alphabet.size - 1:
                return []
            return Branch(self.prefix + alphabet.characters[self.start - 1], 0, alphabet.size).split(
                alphabet, ways, longest
            )
        if len(self.prefix) >= longest:
            return [] if self.start > END else [Branch(self.prefix, END, 1), Branch(self.prefix, 1, self.stop)]
        cuts = np.linspace(self.start, self.stop, min(ways, self.stop - self.start) + 1).round().astype(int).tolist()
        return [Branch(self.prefix, first, last) for first, last in pairwise(cuts)]


@dataclass(frozen=True)
class Spelled(Measure):
    """Which of several disjoint branches a row's text is on; everything else, NULL included, is "other"."""

    value: RowFunction
    alphabet: Alphabet
    branches: tuple[Branch, ...]

    @cached_property
    def statistic(self) -> Statistic:
        """The share of each branch, then of "other"."""
        return OutcomeShares(len(self.branches) + 1)

    @property
    def text(self) -> str:
        """The question in words."""
        return f"spelling of {self.value.text}"

    def _facts(self) -> dict[str, Any]:
        branches = [[one.prefix, one.start, one.stop] for one in self.branches]
        return {"kind": "spelled", "alphabet": self.alphabet.characters, "branches": branches}

    @cached_property
    def _tables(self) -> dict[str, NDArray[np.int64]]:
        """For every prefix, the branch of each symbol that may follow."""
        tables: dict[str, NDArray[np.int64]] = {}
        for number, one in enumerate(self.branches):
            table = tables.setdefault(one.prefix, np.full(self.alphabet.size, len(self.branches)))
            table[one.start : one.stop] = number
        return tables

    def branch_of(self, text: str) -> int:
        """Return the number of the branch that a text is on; that of "other" if it is on none."""
        none = len(self.branches)
        for length in self._lengths:
            table = self._tables.get(text[:length])
            if table is None or len(text) < length:
                continue
            found = int(table[self.alphabet.symbol(text[length : length + 1])])
            if found < none:
                return found
        return none

    @cached_property
    def _lengths(self) -> list[int]:
        return sorted({len(prefix) for prefix in self._tables})

    def _values(self, values: pl.Series, inside: NDArray[np.bool_] | None) -> Values:
        """Return the number of the branch per row."""
        texts = values.unique().drop_nulls()
        numbers = [self.branch_of(text) for text in texts.to_list()]
        found = values.replace_strict(texts, numbers, default=len(self.branches), return_dtype=pl.Int64)
        return found.to_numpy()
