"""Expectations about answers: whether their intervals keep them, break them, or leave them open.

A list of expectations is a list of questions, each with what is expected of its answer:

    - {query: dep_delay > 15, expect: {at_most: 0.3}}
    - {query: distance, within: [0, 5000], expect: {at_least: 900, at_most: 1200}}
    - {query: cancelled, by: carrier, groups: [UA, AA], expect: {at_most: 0.1}}     # of every group

The verdict is about the population, and all verdicts hold at once: a list may grow after looking at its results.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from holdfast import check
from holdfast.answer import AnyAnswer, Estimate
from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.questions.batch import dry_run_of, read_list

KEPT, BROKEN, OPEN = "kept", "broken", "open"
ENDS = ("at_least", "at_most")


@dataclass(frozen=True)
class Expected:
    """A question, and the range that its answer should lie in."""

    question: Mapping[str, object]
    at_least: float = -inf
    at_most: float = inf

    def verdict(self, one: Estimate) -> str:
        """Say whether an interval lies inside (kept), outside (broken) or neither (open).

        >>> few = Expected({"query": "late"}, at_most=0.3)
        >>> [few.verdict(Estimate(0.2, 0.1, high)) for high in (0.3, 0.4)], few.verdict(Estimate(0.5, 0.4, 0.6))
        (['kept', 'open'], 'broken')
        """
        if self.at_least <= one.low and one.high <= self.at_most:
            return KEPT
        return BROKEN if one.high < self.at_least or self.at_most < one.low else OPEN

    @property
    def text(self) -> str:
        """What is expected, in words."""
        ends = {"at least": self.at_least, "at most": self.at_most}
        return ", ".join(f"{name} {end:.6g}" for name, end in ends.items() if abs(end) != inf)


def read_expectations(path: str | Path) -> list[Expected]:
    """Read expectations from a YAML file, or a JSON file; a refusal names the place of the faulty one."""
    found = [_read(one, place) for place, one in enumerate(read_list(path), start=1)]
    if not found:
        raise InvalidArgument(f"{path} has no expectations.", name="expectations")
    return found


def _read(one: object, place: int) -> Expected:
    where = f"Expectation {place}"
    example = "such as {query: dep_delay > 15, expect: {at_most: 0.3}}"
    if not isinstance(one, Mapping) or not isinstance(one.get("expect"), Mapping) or not one["expect"]:
        raise InvalidArgument(f"{where} must be a question with `expect`, {example}; got {one!r}.", name="expectations")
    ends: dict[str, Any] = dict(one["expect"])
    for name, end in ends.items():
        check.one_of(f"{where}: a name in expect", name, ENDS)
        if isinstance(end, bool) or not isinstance(end, int | float):
            raise InvalidArgument(f"{where}: {name} must be a number; got {end!r}.", name="expectations")
    if ends.get("at_least", -inf) > ends.get("at_most", inf):
        raise InvalidArgument(f"{where}: at_least must be no more than at_most.", name="expectations")
    return Expected({name: value for name, value in one.items() if name != "expect"}, **ends)


def refuse_unreachable(expectations: Sequence[Expected], dry_run: Callable[..., AnyAnswer]) -> None:
    """Refuse an end outside the range that the answer has: no answer could ever break it, or keep it. Spends nothing.

    A share expected to be at most 30, for 30 %, would pass forever.
    """
    for place, requested in enumerate(expectations, start=1):
        try:
            low, high = dry_run_of(requested.question, dry_run).bounds
        except HoldfastError as error:
            error.message = f"Expectation {place}: {error.message}"
            raise
        for name in ENDS:
            end = getattr(requested, name)
            if abs(end) != inf and not low <= end <= high:
                hint = check.percent(end) if (low, high) == (0.0, 1.0) else ""
                raise InvalidArgument(
                    f"Expectation {place}: {name} must be between {low:.6g} and {high:.6g}, the range of the answer;"
                    f" got {end:g}.{hint}",
                    name="expectations",
                )


@dataclass(frozen=True)
class Verdict:
    """One line of the report: an interval, what was expected of it, and whether that was kept."""

    question: str
    expected: str
    estimate: Estimate
    outcome: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        facts = {"question": self.question, "expected": self.expected, "outcome": self.outcome}
        return facts | self.estimate.to_json()


def judge(expectations: Sequence[Expected], answers: Sequence[AnyAnswer]) -> list[Verdict]:
    """Return a verdict for every interval of every answer."""
    return [
        Verdict(
            answer.question if label is None else f"{answer.question}: {label}",
            requested.text,
            one,
            requested.verdict(one),
        )
        for requested, answer in zip(expectations, answers, strict=True)
        for label, one in answer.rows()
    ]
