"""What a ledger holds, as frozen values."""

from dataclasses import dataclass
from typing import Any

from holdfast.errors import InvalidArgument

LARGEST = 2**62  # totals stay inside the 64-bit columns of every database


@dataclass(frozen=True, slots=True)
class Cost:
    """What one answer takes from the two caps.

    `charge` is what its release takes of the guarantee's capacity, in the guarantee's own units; `intervals` is how
    many statements about the population it makes.
    """

    charge: int
    intervals: int

    def __post_init__(self) -> None:
        charge, intervals = self.charge, self.intervals
        if type(charge) is int is type(intervals) and 0 <= charge <= LARGEST and 0 <= intervals <= LARGEST:
            return
        for name, value in (("charge", charge), ("intervals", intervals)):
            if type(value) is not int or not 0 <= value <= LARGEST:
                raise InvalidArgument(f"{name} must be a whole number from 0 to 2**62; got {value!r}.", name=name)


@dataclass(frozen=True, slots=True)
class Spent:
    """What all answers so far have taken, and how many they are."""

    charge: int
    intervals: int
    answers: int


@dataclass(frozen=True, slots=True)
class Head:
    """The newest entry. Publish it: nobody can then rewrite or drop anything up to it unnoticed."""

    seq: int
    hash: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One answer, as committed.

    `hash` is made of `previous`, the tree of all hashes before it, and the text: canonical JSON of the fields up to
    `rows_read`.
    `before` is what all entries before this one had spent together.
    """

    seq: int
    time: str
    analyst: str | None
    key: str | None
    question: dict[str, Any]
    answer: dict[str, Any]
    cost: Cost
    rows_read: int
    before: Cost
    previous: str
    hash: str
