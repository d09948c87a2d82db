"""What a question would cost, and what is left to ask: both in answers, the only currency people see.

A budget is kept in two amounts: intervals (statements about the population) and the guarantee's own charge. "Answers
left" is how many ordinary answers both can still pay for, and the price of a question is by how much that number falls.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import ceil
from typing import Any

from holdfast.answer import write_end
from holdfast.errors import BudgetExhausted
from holdfast.guarantees.guarantee import Guarantee, Terms
from holdfast.guarantees.plan import write_margin
from holdfast.ledger import Cost, Spent
from holdfast.questions.question import Question

NO_END = {  # by the kind of question that a guarantee without an end takes
    "check": "checks have no end: {now} beyond the margin of a guess; with more wrong ones {after}",
    "submit": "submissions have no end: {now} around what the grid tells; with more improvements {after}",
}


def cost_in_answers(terms: Terms, charge: int, intervals: int, cost: Cost) -> int:
    """Return by how much the number of answers left falls, when so much is spent already."""
    return terms.answers_left(charge, intervals) - terms.answers_left(charge + cost.charge, intervals + cost.intervals)


def require_affordable(question: Question, terms: Terms, spent: Spent) -> None:
    """Raise BudgetExhausted if the question costs more than is left."""
    cost = question.cost
    if spent.charge + cost.charge > terms.charge or spent.intervals + cost.intervals > terms.statements:
        raise too_dear(question, terms, spent)


def too_dear(question: Question, terms: Terms, spent: Spent) -> BudgetExhausted:
    """Word the refusal of a question that costs more than is left."""
    cost = question.cost
    needed = max(cost.intervals, ceil(cost.charge / terms.charge_per_answer))
    left = terms.answers_left(spent.charge, spent.intervals)
    return BudgetExhausted(
        f"The budget cannot pay for this question: it costs {write_answers(needed)}, and {left:,} of"
        f" {terms.answers:,} are left. Ask for less, or repeat an earlier question for free.",
        cost=needed,
        left=left,
        total=terms.answers,
        unit="answers",
    )


def write_answers(count: int) -> str:
    """Write a number of answers."""
    return f"{count:,} answer" + ("" if count == 1 else "s")


@dataclass(frozen=True)
class Budget:
    """The one budget of a dataset, at this moment.

    Parameters
    ----------
    answers_left, answers_total
        Ordinary answers that can still be paid for, and those that were planned for.
    answers_given
        How many questions have been answered.
    margin
        The margin of an ordinary answer.
    outlook
        Where checks never run out: pairs of a number of wrong guesses, from now on, and how wide a check is after them,
        beyond the margin of its guess. Of a board: of improvements, and how wide intervals are around what the grid
        tells.
    asks
        The one kind of question that is taken, "check" or "submit"; None: those that ask for values.
    """

    answers_left: int
    answers_total: int
    answers_given: int
    margin: float
    outlook: tuple[tuple[int, float], ...] = ()
    asks: str | None = None

    @classmethod
    def of(cls, guarantee: Guarantee, spent: Spent, told: Cost) -> "Budget":
        """Return what is left.

        Parameters
        ----------
        guarantee
            The one that stands.
        spent
            What was taken by all questions.
        told
            What the answers given cost.
        """
        terms, outlook = guarantee.terms, guarantee.outlook(told.charge, told.intervals)
        left = terms.answers_left(spent.charge, spent.intervals)
        margin = outlook[0][1] if outlook else terms.margin
        return cls(left, terms.answers, spent.answers, margin, outlook, guarantee.asks)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        return known | {"outlook": [list(pair) for pair in self.outlook]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Budget":
        """Read the `values` that `to_dict` wrote."""
        return cls(**{**values, "outlook": tuple((more, width) for more, width in values["outlook"])})

    def __str__(self) -> str:
        if self.outlook:
            (_, now), *later = self.outlook
            after = ", ".join(f"{write_margin(width)} after {more:,}" for more, width in later)
            return NO_END[self.asks or "check"].format(now=write_margin(now), after=after)
        return f"{self.answers_left:,} of {self.answers_total:,} answers left at {write_margin(self.margin)}"

    __repr__ = __str__


@dataclass(frozen=True)
class Price:
    """What a question would cost now, and whether it was already paid for.

    Parameters
    ----------
    question
        How the question reads.
    answers
        By how much the number of answers left will fall.
    rows_read
        Rows that will be read.
    margin
        The margin of the answer, in its own units, where one number can say it.
    excess_bound
        For a fit: how far its loss can be above the smallest one, where that is promised.
    cached, affordable
        Whether it was asked before, and so is free; whether the budget can pay for it.
    cheaper
        What would make it cost less, where something can be done about it.
    """

    question: str
    answers: int
    rows_read: int
    margin: float | None
    excess_bound: float | None
    cached: bool
    affordable: bool
    cheaper: str | None = None

    @classmethod
    def of(cls, question: Question, terms: Terms, spent: Spent, *, cached: bool) -> "Price":
        """Return the price of a question.

        Parameters
        ----------
        question, terms, spent
            What is asked, under which terms, and what was spent before.
        cached
            Whether it was asked before.
        """
        charge, intervals = spent.charge + question.cost.charge, spent.intervals + question.cost.intervals
        return cls(
            question=question.text,
            answers=0 if cached else cost_in_answers(terms, spent.charge, spent.intervals, question.cost),
            rows_read=0 if cached else question.rows_read,
            margin=question.margin,
            excess_bound=question.excess_bound,
            cached=cached,
            affordable=cached or (charge <= terms.charge and intervals <= terms.statements),
            cheaper=None if cached else question.cheaper,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __str__(self) -> str:
        if self.cached:
            return f"free: {self.question} was asked before"
        promise = ""
        if self.margin is not None:
            promise = f", margin ±{write_end(self.margin, 3, up=True)}"
        elif self.excess_bound is not None:
            promise = f", loss at most {write_end(self.excess_bound, 3, up=True)} above the smallest"
        short = "" if self.affordable else "; more than is left"
        cost = f"{write_answers(self.answers)} of the budget, {self.rows_read:,} rows read"
        less = "" if self.cheaper is None else f" ({self.cheaper})"
        return f"{cost}{promise}{short}: {self.question}{less}"

    __repr__ = __str__
