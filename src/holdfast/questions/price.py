"""What a question would cost.

A session without an end never runs out: a question makes later answers wider, and its price says by how much. In a
session with an end, the price of a question is by how much "answers left" falls.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from holdfast import notebook
from holdfast.errors import BudgetExhausted
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.terms import Terms
from holdfast.ledger import Answered, Cost, Spent
from holdfast.questions.answer import write_rows
from holdfast.questions.budget import write_answers
from holdfast.questions.estimate import plus_minus, write_end
from holdfast.questions.question import Question, Widths

MORE = 100  # ordinary answers: how far a price looks ahead


def require_affordable(cost: Cost, terms: Terms, spent: Spent) -> None:
    """Raise BudgetExhausted if a question of this cost takes more than is left."""
    if not _fits(cost, terms, spent):
        raise too_expensive(cost, terms, spent)


def _fits(cost: Cost, terms: Terms, spent: Spent) -> bool:
    enough = spent.charge + cost.charge <= terms.charge and spent.intervals + cost.intervals <= terms.statements
    return enough or not terms.ends


def too_expensive(cost: Cost, terms: Terms, spent: Spent) -> BudgetExhausted:
    """Return the refusal of a question that costs more than is left."""
    needed = terms.worth(cost.charge, cost.intervals)
    left = terms.answers_left(spent.charge, spent.intervals)
    return BudgetExhausted(
        f"The budget cannot pay for this question: it costs {write_answers(needed)}, and {left:,} of"
        f" {terms.answers:,} are left. Ask for less, or repeat an earlier question for free.",
        cost=needed,
        left=left,
        total=terms.answers,
        unit="answers",
    )


def _in_words(widths: Widths) -> str:
    """Say how wide a group will be, by its share of the rows.

    If the first share is 1, the group is the rows in which a value is not missing.

    >>> _in_words(((0.01, 0.4), (0.2, 0.05)))
    'a group is wider the smaller it is (±0.4 for 1%, ±0.05 for 20% of the rows)'
    >>> _in_words(((1.0, 92.1), (0.5, 140.0)))
    'margin ±92.1 if no value is missing, ±140 if 50% are'
    """
    shares, margins = zip(*widths, strict=True)
    written = [plus_minus(margin) for margin in margins]
    if shares[0] < 1:
        parts = ", ".join(f"{margin} for {share:.0%}" for share, margin in zip(shares, written, strict=True))
        return f"a group is wider the smaller it is ({parts} of the rows)"
    rest = "".join(f", {margin} if {1 - share:.0%} are" for share, margin in zip(shares[1:], written[1:], strict=True))
    return f"margin {written[0]} if no value is missing{rest}"


@dataclass(frozen=True)
class Price:
    """What a question would cost now, and whether it was already paid for.

    Parameters
    ----------
    question
        The question in words.
    answers
        By how much the number of answers left will fall; beyond a plan, how many ordinary answers it is worth.
    rows_read
        Rows that will be read; at most, if what the first steps show decides on the others.
    margin
        The margin of the answer, in its own units, if one number can say it.
    excess_bound
        For a fit: how far its loss can be above the smallest one, if that is guaranteed.
    cached, affordable
        Whether it was asked before, and so is free; whether the budget can pay for it.
    cheaper
        What would make it cost less, or its answer narrower, if anything would.
    later
        If there is no end: the margin of an ordinary answer after 100 more of them, without this question and with it.
    widths
        For groups, whose margin depends on their size: pairs of a share of the rows and the margin that a group of that
        size will have, in the units of the answer, if its mean is middling.
    """

    question: str
    answers: int
    rows_read: int
    margin: float | None
    excess_bound: float | None
    cached: bool
    affordable: bool
    cheaper: str | None = None
    later: tuple[float, float] | None = None
    widths: Widths = ()

    @classmethod
    def of(cls, question: Question, guarantee: Guarantee, spent: Spent, answered: Answered, *, cached: bool) -> "Price":
        """Return the price of a question.

        Parameters
        ----------
        question, guarantee, spent
            What is asked, under which guarantee, and what was spent before.
        answered
            The cost of the answers given so far.
        cached
            Whether it was asked before.
        """
        terms, cost, forecast = guarantee.terms, question.cost, question.forecast(answered)
        later = None
        if guarantee.only_kind is None and not terms.ends and not cached:
            without = guarantee.margin_after(MORE, spent)
            after = replace(spent, charge=spent.charge + cost.charge, intervals=spent.intervals + cost.intervals)
            with_it = guarantee.margin_after(MORE, after)
            later = (without, with_it) if with_it != without else None  # equal for a check on rows of its own
        return cls(
            question=question.text,
            answers=0 if cached else terms.cost_in_answers(spent, cost),
            rows_read=0 if cached else question.rows_read,
            margin=forecast.margin,
            excess_bound=forecast.excess_bound,
            cached=cached,
            affordable=cached or _fits(cost, terms, spent),
            cheaper=None if cached else "; ".join(filter(None, forecast.remarks)) or None,
            later=later,
            widths=() if cached else forecast.widths,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        later = None if self.later is None else list(self.later)
        return known | {"later": later, "widths": [list(pair) for pair in self.widths]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Price":
        """Rebuild a price.

        Parameters
        ----------
        values
            What `to_dict` wrote.

        Returns
        -------
        Price
            The same price.
        """
        later = None if values["later"] is None else tuple(values["later"])
        widths = tuple((share, margin) for share, margin in values["widths"])
        return cls(**{**values, "later": later, "widths": widths})

    def __str__(self) -> str:
        if self.cached:
            return f"free: {self.question} was asked before"
        promise = ""
        if self.margin is not None:
            promise = f", margin {plus_minus(self.margin)}"
        elif self.widths:
            promise = f", {_in_words(self.widths)}"
        elif self.excess_bound is not None:
            promise = f", loss at most {write_end(self.excess_bound, 3, up=True)} above the smallest"
        short = "" if self.affordable else "; more than is left"
        if self.later is not None:
            without, with_it = (plus_minus(margin, 4) for margin in self.later)
            short = f"; after {MORE} more answers one has {with_it} instead of {without}"
        worth = f"worth {write_answers(self.answers)}" if self.later else f"{write_answers(self.answers)} of the budget"
        cost = f"{worth}, {write_rows(self.rows_read)}"
        less = "" if self.cheaper is None else f" ({self.cheaper})"
        return f"{cost}{promise}{short}: {self.question}{less}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        if self.cached:
            return notebook.paragraphs(self.question, "Free: it was asked before.")
        cost, _, rest = str(replace(self, cheaper=None)).removesuffix(f": {self.question}").partition("; ")
        return notebook.paragraphs(self.question, cost, *filter(None, (rest, self.cheaper)))
