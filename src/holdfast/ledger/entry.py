"""What a ledger holds, as frozen values."""

import os
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import InvalidArgument

LARGEST = 2**62  # totals stay inside the 64-bit columns of every database
# The same two numbers can hold a second account (guarantees/drawers): each of its entries counts at least APART
# statements, and its charges are multiples of APART_CHARGE.
APART = 2**31
APART_CHARGE = 2**42


@dataclass(frozen=True, slots=True)
class Cost:
    """What one answer takes from the two caps.

    `charge` is what its release takes from the guarantee's capacity, in the guarantee's own units; `intervals` is the
    number of statements it makes about the population.
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
class Reach(Cost):
    """Where the shares of questions must end: for shares beyond this, there are no rows yet.

    `account`: the charge is counted modulo this; multiples of it belong to another account, which reads other rows.
    """

    account: int = 2 * LARGEST


@dataclass(frozen=True, slots=True)
class Place:
    """What the ledger gives a question before any row is drawn for it: taken for good, answered or not.

    `number` counts the questions of a ledger from 1 on; `charge` and `intervals` are where its share of the two caps
    begins. No two questions share a number, or any part of the caps. Only `process` may use the place, not a forked
    child of it.

    Places taken ahead are not used in order. `reached` is an upper bound on the charge of all questions begun so far,
    this one included: at least the end of its own share, and more if somebody had taken more before it began. It counts
    other processes only where the charge has no cap, since only such guarantees use it.
    """

    number: int
    charge: int
    intervals: int
    reached: int = field(default=0, compare=False)
    process: int = field(default_factory=os.getpid, compare=False, repr=False)

    def within(self, reach: Reach, cost: Cost) -> bool:
        """Whether the share of a question of this cost ends within `reach`; always true for the other account."""
        if cost.intervals >= APART:
            return True
        end = self.charge % reach.account + cost.charge
        return end <= reach.charge and self.intervals + cost.intervals <= reach.intervals


@dataclass(frozen=True, slots=True)
class Spent:
    """What all questions so far have taken, answered or not, and the number of answers given."""

    charge: int
    intervals: int
    answers: int


@dataclass(frozen=True, slots=True)
class Head:
    """The newest entry. Once it is published, nobody can rewrite or drop anything up to it unnoticed."""

    seq: int
    hash: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One answer, as committed.

    `hash` is computed from `seq`, `previous`, the root of the tree over all hashes before it, and the entry's text: the
    canonical JSON of the fields from `seq` to `place`. `place` was reserved before the rows were drawn.
    """

    seq: int
    time: str
    analyst: str | None
    key: str | None
    question: dict[str, Any]
    answer: dict[str, Any]
    cost: Cost
    rows_read: int
    place: Place
    previous: str
    hash: str
