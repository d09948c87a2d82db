"""Bring an analyst and a mechanism together: one asks, the other answers, neither sees more than that."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any, Protocol

from holdfast.errors import InvalidArgument
from holdfast.lab.analysts.base import Dialogue, Randomness, RowQuestion
from holdfast.lab.baselines import Thresholdout
from holdfast.mechanisms.base import Mechanism, Release
from holdfast.mechanisms.fresh_rows import FreshRows
from holdfast.rows.source import RowSource


class Oracle(Protocol):
    """A mechanism at work on one sample."""

    def answer(self, question: RowQuestion) -> float:
        """Answer the next question."""
        ...

    def recall(self, question: RowQuestion, answer: float) -> None:
        """Take the state this mechanism would have, had it just given that answer."""
        ...


class MechanismOracle:
    """Any mechanism on any rows; what it remembers between questions stays in here."""

    def __init__(self, mechanism: Mechanism, source: RowSource, rng: Randomness) -> None:
        self._mechanism: Any = deepcopy(mechanism)
        self._source, self._rng = source, rng

    def release(self, question: RowQuestion) -> Release:
        """Answer the next question with all that is released."""
        release: Release = self._mechanism.release(question, self._source, self._rng)
        self._use_up()
        return release

    def answer(self, question: RowQuestion) -> float:
        """Answer the next question."""
        return self.release(question).answer

    def recall(self, question: RowQuestion, answer: float) -> None:
        """Move on without answering."""
        if isinstance(self._mechanism, Thresholdout):
            raise InvalidArgument(
                "Thresholdout cannot be resumed: what it remembers is no function of its answers. Replay it from the"
                " beginning instead."
            )
        self._use_up()

    def _use_up(self) -> None:
        if isinstance(self._mechanism, FreshRows):
            self._mechanism = replace(self._mechanism, start=self._mechanism.start + self._mechanism.draws)


class SessionOracle:
    """A session, asked as any user asks it."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def answer(self, question: RowQuestion) -> float:
        """Ask the session."""
        return float(self._session.mean(question.sql or question).value)

    def recall(self, question: RowQuestion, answer: float) -> None:
        """A session remembers by its ledger alone."""


def converse(dialogue: Dialogue, oracle: Oracle) -> Iterator[tuple[RowQuestion, float]]:
    """Let them talk to the end; yields every question with its answer."""
    try:
        question = next(dialogue)
        while True:
            answer = oracle.answer(question)
            yield question, answer
            question = dialogue.send(answer)
    except StopIteration:
        return
