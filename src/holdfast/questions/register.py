"""A list of questions, written into the ledger before any of them is answered.

Readers of the ledger can then tell the questions that were fixed beforehand from those that came up later: an answer is
registered if its question is in a list that was written earlier. Nothing is read or spent, and every interval holds
either way.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any

from holdfast.answer import AnyAnswer, Estimate, Record
from holdfast.errors import InvalidArgument
from holdfast.ledger import Cost, Entry, Ledger
from holdfast.questions import KINDS
from holdfast.questions.batch import Asked, build_all
from holdfast.questions.kind import kind_of
from holdfast.questions.options import About, QuestionList
from holdfast.questions.question import Context, Drawing, Question, Result, encode


@dataclass(frozen=True, repr=False)
class Registration(AnyAnswer):
    """A list of questions in the ledger.

    Parameters
    ----------
    questions
        The questions in words.
    keys
        The key that finds each: the SHA-256 of its identity.
    record
        Where the registration is; its fields are attributes of the registration.
    """

    questions: tuple[str, ...]
    keys: tuple[str, ...]
    record: Record

    def result(self) -> dict[str, Any]:
        """The questions and their keys."""
        return {"questions": list(self.questions), "keys": list(self.keys)}

    @classmethod
    def read(cls, result: Mapping[str, Any], record: Record) -> "Registration":
        """Rebuild it from what `result` returned, and its `record`."""
        return cls(tuple(result["questions"]), tuple(result["keys"]), record)

    def rows(self) -> list[tuple[str | None, Estimate]]:
        """No intervals: nothing is known yet."""
        return []

    def details(self) -> list[tuple[str, str]]:
        """The questions."""
        return [(f"question {place}", text) for place, text in enumerate(self.questions, start=1)]

    def __repr__(self) -> str:
        lines = [f"{place:>3}  {text}" for place, text in enumerate(self.questions, start=1)]
        return "\n".join([*lines, self.record.small_print])


def register(
    context: Context,
    questions: Annotated[
        Sequence[Asked], About(QuestionList(), "Texts, or objects with the kind and the options of a question.")
    ],
) -> Question:
    """Return the registration of a list of questions, before they are asked: free, and in the ledger for all to see.

    Parameters
    ----------
    questions
        Texts and dicts, as for `Session.ask_many`.

    Returns
    -------
    Registration
        The questions in words, and the entry that has them.
    """
    built = build_all(questions, context)
    for place, each in enumerate(built, start=1):
        if each.identity is None or each.kind == REGISTER.name:
            raise InvalidArgument(
                f"Question {place}: {each.kind} cannot be registered: it is new each time it is asked, so nobody could"
                " tell that it is the one.",
                name="questions",
            )
    keys = [key_of(each.identity or "") for each in built]

    def run(drawing: Drawing) -> Result:
        return {"questions": [each.text for each in built], "keys": keys}

    digest = sha256(encode(keys).encode()).hexdigest()
    noun = "question" if len(built) == 1 else "questions"
    return Question(
        kind=REGISTER.name,
        text=f"{len(built):,} {noun} registered, SHA-256 {digest[:16]}",
        identity=encode({"register": digest}),
        cost=Cost(0, 0),
        rows_read=0,
        run=run,
    )


def key_of(identity: str) -> str:
    """Return the key of a question in a registration."""
    return sha256(identity.encode()).hexdigest()


class Registered:
    """Which questions were registered, and where: read from the ledger as it grows."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._found: dict[str, int] = {}
        self._next = 1
        self._lock = threading.Lock()

    def of(self, entry: Entry) -> int | None:
        """Return the number of the entry that registered the question of this one; None if none did before it."""
        with self._lock:
            if entry.seq >= self._next:
                for each in self._ledger.entries(self._next):
                    self._next = each.seq + 1
                    if each.question["kind"] == REGISTER.name:
                        for key in each.answer["keys"]:
                            self._found.setdefault(key, each.seq)
        seq = None if entry.key is None else self._found.get(key_of(entry.key))
        return seq if seq is not None and seq < entry.seq else None


REGISTER = kind_of(register, Registration)
KINDS.register(REGISTER.name, REGISTER)
