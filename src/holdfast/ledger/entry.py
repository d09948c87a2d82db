"""What a ledger holds, as frozen values."""

from dataclasses import asdict, dataclass
from typing import Any

from holdfast import check
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
class Place:
    """What the ledger gives a question before any row is drawn for it: taken for good, whatever becomes of it.

    `number` counts the questions of a ledger from 1 on; `charge` and `intervals` are where its share of the two caps
    begins. No two questions share a number, or any part of the caps.
    """

    number: int
    charge: int
    intervals: int


@dataclass(frozen=True, slots=True)
class Spent:
    """What all questions so far have taken, answered or not, and how many answers were given."""

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

    `hash` = sha256(`previous` + sha256(text)), where the text is canonical JSON of the fields up to `rows_read`.
    `place` is what was reserved for it before its rows were drawn.
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

    @property
    def before(self) -> Cost:
        """What had been taken of the two caps before this question."""
        return Cost(self.place.charge, self.place.intervals)


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that an entry is in the ledger: its text, and the digests that lead from it to the head.

    Parameters
    ----------
    seq
        The number of the entry.
    body
        Its text.
    previous
        The hash of the entry before it.
    later
        The digests of the entries after it, up to the head.
    head
        The newest entry when the receipt was made.
    """

    seq: int
    body: str
    previous: str
    later: tuple[str, ...]
    head: Head

    def to_dict(self) -> dict[str, Any]:
        """Return the receipt as plain JSON values."""
        return asdict(self) | {"later": list(self.later)}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> "Receipt":
        """Rebuild the receipt from the `value` that `to_dict` wrote."""
        try:
            head = value["head"]
            receipt = cls(
                seq=value["seq"],
                body=value["body"],
                previous=value["previous"],
                later=tuple(value["later"]),
                head=Head(seq=head["seq"], hash=head["hash"]),
            )
        except (KeyError, TypeError):
            raise InvalidArgument(
                "receipt must be a dict of seq, body, previous, later and head (seq, hash); got another.",
                name="receipt",
            ) from None
        check.whole(0, seq=receipt.seq, head_seq=receipt.head.seq)
        texts = (receipt.body, receipt.previous, receipt.head.hash, *receipt.later)
        if not all(isinstance(text, str) for text in texts):
            raise InvalidArgument(
                "receipt must be text in body, previous, later and head; got another type.", name="receipt"
            )
        return receipt
