"""Every answer so far, read back from the ledger, and the lists of questions that were registered beforehand.

A list of questions can be written into the ledger before any of them is answered. Readers of the ledger can then tell
the questions that were fixed beforehand from those that came up later: an answer is registered if its question is in a
list that was written earlier. Nothing is read or spent, and every interval holds either way.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any

import polars as pl

from holdfast.errors import InvalidArgument, LedgerDamaged, NotCovered
from holdfast.guarantees.guarantee import Guarantee
from holdfast.ledger import Cost, Entry, Follower, Ledger
from holdfast.questions import KINDS
from holdfast.questions.answer import AnyAnswer, Record
from holdfast.questions.batch import Asked, build_all
from holdfast.questions.estimate import Estimate
from holdfast.questions.kind import kind_of
from holdfast.questions.options import About, QuestionList
from holdfast.questions.question import Context, Drawing, Question, Result, encode
from holdfast.questions.submit import SUBMIT, SubmitAnswer


@dataclass(frozen=True, repr=False, eq=False)
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
        self._found: dict[str, int] = {}
        self._follower = Follower(ledger, self._add)

    def of(self, entry: Entry) -> int | None:
        """Return the number of the entry that registered the question of this one; None if none did before it."""
        key = "" if entry.key is None else key_of(entry.key)
        seq = self._follower.caught_up(lambda: self._found.get(key), entry.seq)
        return seq if seq is not None and seq < entry.seq else None

    def _add(self, entry: Entry) -> None:
        if entry.question["kind"] == REGISTER.name:
            for key in entry.answer["keys"]:
                self._found.setdefault(key, entry.seq)


REGISTER = kind_of(register, Registration)
KINDS.register(REGISTER.name, REGISTER)


SCHEMA = {
    "seq": pl.Int64,
    "question": pl.String,
    "category": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "outcome": pl.String,
    "kind": pl.String,
    "analyst": pl.String,
    "time": pl.String,
    "cost": pl.Int64,
    "rows_read": pl.Int64,
    "registered": pl.Int64,
}


def answer_from(guarantee: Guarantee, entry: Entry, fresh: bool = True) -> AnyAnswer:
    """Read an answer back from its ledger entry; it is free unless it is `fresh`."""
    terms = guarantee.terms
    try:
        kind = KINDS[entry.question["kind"]]
    except KeyError:
        raise LedgerDamaged(
            f"Entry {entry.seq} of the ledger answers a question of the kind {entry.question['kind']!r}, which this"
            " installation does not know. Install the version or the package that wrote it.",
            entry=entry.seq,
        ) from None
    record = Record(
        kind=kind.name,
        question=entry.question["text"],
        guarantee=guarantee.name,
        confidence=terms.confidence,
        population=terms.population,
        rows_read=entry.rows_read,
        cost=terms.cost_in_answers(entry.place, entry.cost),
        seq=entry.seq,
        receipt=f"{entry.seq}:{entry.hash}",
        cached=not fresh,
    )
    return kind.read(entry.answer, record)


def history_frame(entries: Iterable[Entry], guarantee: Guarantee, registered: Registered) -> pl.DataFrame:
    """Return one row per released interval; a histogram has one for each category.

    What was checked or submitted has an `outcome`, and no value: a guess that was refuted is no answer.
    The column `registered` is the number of the entry that registered the question before it was asked, if any did.
    """
    lines = []
    for entry in entries:
        answer = answer_from(guarantee, entry)
        outcome = getattr(answer, "outcome", None)
        for label, estimate in answer.rows():
            value = None if outcome is not None else estimate.to_json()["value"]
            category = label if outcome is None else None
            answered = (entry.seq, answer.question, category, value, estimate.low, estimate.high, outcome)
            record = (answer.kind, entry.analyst, entry.time, answer.cost, answer.rows_read, registered.of(entry))
            lines.append((*answered, *record))
    return pl.DataFrame(lines, schema=SCHEMA, orient="row")


STANDINGS = {
    "rank": pl.Int64,
    "by": pl.String,
    "low": pl.Float64,
    "high": pl.Float64,
    "outcome": pl.String,
    "name": pl.String,
    "cell_low": pl.Float64,
    "cell_high": pl.Float64,
    "seq": pl.Int64,
    "time": pl.String,
}


class Standings:
    """The standings of a board, which follow its ledger as it grows.

    Every improvement was in a better cell than the one before it, so the order in time is the order of scores. All
    that is known of the others is that they were not better than the best at their time.
    """

    def __init__(self, ledger: Ledger, standing: Callable[[], Guarantee]) -> None:
        self._ledger, self._standing = ledger, standing
        self._improved: list[tuple[Entry, SubmitAnswer]] = []
        self._others: list[tuple[Entry, SubmitAnswer]] = []
        self._follower = Follower(ledger, self._add)

    def lines(self, most: int | None = None) -> list[dict[str, Any]]:
        """Return the lines of a table, as plain values: improvements, the best first, then the newest others.

        `most` limits how many there are of each.
        """
        guarantee = self._standing()
        if guarantee.only_kind != SUBMIT.name:
            raise NotCovered(
                f"{self._ledger.dataset} is not a board, so it has no standings.", guarantee=guarantee.name
            )
        newest = self._follower.caught_up(lambda: (self._improved[::-1][:most], self._others[::-1][:most]))
        better, others = newest
        ranked = [_line(rank, *pair) for rank, pair in enumerate(better, start=1)]
        return ranked + [_line(None, *pair) for pair in others]

    def frame(self) -> pl.DataFrame:
        """Return all of them as a frame."""
        return standings_frame(self.lines())

    def _add(self, entry: Entry) -> None:
        answer = answer_from(self._standing(), entry)
        assert isinstance(answer, SubmitAnswer)
        (self._improved if answer.improved else self._others).append((entry, answer))


def standings_frame(lines: list[dict[str, Any]]) -> pl.DataFrame:
    """Return lines of standings as a frame."""
    return pl.DataFrame(lines, schema=STANDINGS)


def _line(rank: int | None, entry: Entry, answer: SubmitAnswer) -> dict[str, Any]:
    shown = {"name": answer.name, "outcome": answer.outcome, "low": answer.low, "high": answer.high}
    cell = {"cell_low": answer.cell[0], "cell_high": answer.cell[1]}
    return {"rank": rank, "by": entry.analyst} | shown | cell | {"seq": entry.seq, "time": entry.time}
