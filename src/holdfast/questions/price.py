"""What a question would cost, and what is left to ask.

A session without an end never runs out: a question makes later answers wider, its price says by how much, and the
budget says how wide answers are now and after more of them. In a session with an end, "answers left" is how many
ordinary answers can still be paid for, in intervals (statements about the population) and in the guarantee's own
charge; the price of a question is by how much it falls. A plan that goes on after its end keeps both until it is used
up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from html import escape
from itertools import accumulate
from typing import Any

from holdfast import notebook
from holdfast.errors import BudgetExhausted
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.plan import write_margin
from holdfast.guarantees.terms import Terms
from holdfast.ledger import Answered, Cost, Spent
from holdfast.questions.answer import write_rows
from holdfast.questions.estimate import write_end
from holdfast.questions.question import Question, Widths

MORE = 100  # ordinary answers: how far a price looks ahead


def require_affordable(cost: Cost, terms: Terms, spent: Spent) -> None:
    """Raise BudgetExhausted if a question of this cost takes more than is left."""
    if not _fits(cost, terms, spent):
        raise too_dear(cost, terms, spent)


def _fits(cost: Cost, terms: Terms, spent: Spent) -> bool:
    enough = spent.charge + cost.charge <= terms.charge and spent.intervals + cost.intervals <= terms.statements
    return enough or not terms.ends


def too_dear(cost: Cost, terms: Terms, spent: Spent) -> BudgetExhausted:
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


def write_answers(count: int) -> str:
    """Write a number of answers."""
    return f"{count:,} answer" + ("" if count == 1 else "s")


def _in_words(widths: Widths) -> str:
    """Say how wide a group will be, by its share of the rows.

    If the first share is 1, the group is the rows in which a value is not missing.

    >>> _in_words(((0.01, 0.4), (0.2, 0.05)))
    'a group is wider the smaller it is (±0.4 for 1%, ±0.05 for 20% of the rows)'
    >>> _in_words(((1.0, 92.1), (0.5, 140.0)))
    'margin ±92.1 if no value is missing, ±140 if 50% are'
    """
    shares, margins = zip(*widths, strict=True)
    written = [f"±{write_end(margin, 3, up=True)}" for margin in margins]
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
        Rows that will be read.
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
        """Read the `values` that `to_dict` wrote."""
        later = None if values["later"] is None else tuple(values["later"])
        widths = tuple((share, margin) for share, margin in values["widths"])
        return cls(**{**values, "later": later, "widths": widths})

    def __str__(self) -> str:
        if self.cached:
            return f"free: {self.question} was asked before"
        promise = ""
        if self.margin is not None:
            promise = f", margin ±{write_end(self.margin, 3, up=True)}"
        elif self.widths:
            promise = f", {_in_words(self.widths)}"
        elif self.excess_bound is not None:
            promise = f", loss at most {write_end(self.excess_bound, 3, up=True)} above the smallest"
        short = "" if self.affordable else "; more than is left"
        if self.later is not None:
            without, with_it = (f"±{write_end(margin, 4, up=True)}" for margin in self.later)
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


NO_END = {  # by the kind of question that a guarantee without an end takes
    "check": "no limit on checks: {now} beyond the margin of a guess; with 1 in 100 wrong, {after} more of these",
    "submit": "no limit on submissions: {now} around what the grid tells; with 1 in 100 better, {after} more of these",
}


@dataclass(frozen=True)
class Budget:
    """The one budget of a dataset, at this moment.

    Parameters
    ----------
    answers_left, answers_total
        Ordinary answers that can still be paid for, and those that were planned for; None if there is no end. In a
        plan that goes on after its end, only answers with its margin count.
    answers_given
        How many questions have been answered.
    margin
        The margin of an ordinary answer now.
    outlook
        If there is no end: pairs of a number of further answers and the margin of an ordinary answer after them. In a
        session that checks: pairs of a number of further wrong guesses, one in a hundred, and how wide a check is after
        them, beyond the margin of its guess. On a board: pairs of a number of further improvements, one in a hundred
        submissions, and how wide intervals are around what the grid tells.
    asks
        The only kind of question that is accepted, "check" or "submit"; None: all kinds that ask for values.
    ends
        Whether questions are refused when no answers are left.
    checks
        If other rows also check guesses: pairs of a number of further wrong guesses and how wide a check is after them,
        beyond the margin of its guess.
    quota
        Answers that whoever asks may still take of it; None without a quota.
    """

    answers_left: int | None
    answers_total: int | None
    answers_given: int
    margin: float
    outlook: tuple[tuple[int, float], ...] = ()
    asks: str | None = None
    ends: bool = True
    checks: tuple[tuple[int, float], ...] = ()
    quota: int | None = None

    @classmethod
    def of(cls, guarantee: Guarantee, spent: Spent, answered: Answered) -> "Budget":
        """Return what is left.

        Parameters
        ----------
        guarantee
            The guarantee in force.
        spent
            What all questions have taken.
        answered
            The cost of the answers given so far.
        """
        terms = guarantee.terms
        outlook = _at_most(guarantee.outlook(spent, answered))
        margin = outlook[0][1] if outlook else terms.margin
        left = answers_left(guarantee, spent)
        total = None if left is None else terms.answers
        beside = guarantee.checks if guarantee.only_kind is None else None
        checks = () if beside is None else beside.outlook(spent, answered)
        return cls(left, total, spent.answers, margin, outlook, guarantee.only_kind, terms.ends, checks)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.quota is None:  # that of a dataset, which has none
            del known["quota"]
        return known | {name: [list(pair) for pair in known[name]] for name in ("outlook", "checks")}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Budget":
        """Read the `values` that `to_dict` wrote."""
        pairs = {name: tuple((more, width) for more, width in values[name]) for name in ("outlook", "checks")}
        return cls(**{**values, **pairs})

    def __str__(self) -> str:
        if self.quota is not None:
            return f"{replace(self, quota=None)}; {_quota_text(self.quota)}"
        if self.checks:
            (_, first), *wrong = self.checks
            wider = ", ".join(f"{write_margin(width)} after {more:,}" for more, width in wrong)
            checks = NO_END["check"].format(now=write_margin(first), after=wider)
            return f"{replace(self, checks=())}; {checks}"
        _, *later = self.outlook or ((0, self.margin),)
        after = ", ".join(f"{write_margin(width)} after {more:,}" for more, width in later)
        now = write_margin(self.margin)
        if self.asks is not None:
            return NO_END[self.asks].format(now=now, after=after)
        if not self.answers_left and not self.ends:
            return f"no limit on questions: {now} now, {after} more"
        left = f"{self.answers_left or 0:,} of {self.answers_total or 0:,} answers left at {now}"
        return left if self.ends else f"{left}, then wider: {after} more"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """A bar of what is left, or of how wide answers will be."""
        shown = []
        if self.answers_left is not None and self.answers_total:
            left = f"{self.answers_left:,} of {self.answers_total:,} answers left at {write_margin(self.margin)}"
            shown.append(f"<div>{notebook.meter(self.answers_left / self.answers_total, left)} {escape(left)}</div>")
        if self.outlook and not (self.answers_left and self.ends):
            what, more = _AHEAD.get(self.asks or "", ("an answer is within", "{:,} more"))
            shown.append(_widths(what, more, self.outlook))
        if self.checks:
            shown.append(_widths(*_AHEAD["check"], self.checks))
        if self.quota is not None:
            shown.append(f"<div>{_quota_text(self.quota)}</div>")
        return "".join(shown)


_AHEAD = {  # whose width is shown, and after what
    "check": ("a check, beyond the margin of its guess", "{:,} more wrong, 1 in 100"),
    "submit": ("a submission, around what the grid tells", "{:,} more that improve, 1 in 100"),
}


def answers_left(guarantee: Guarantee, spent: Spent) -> int | None:
    """Return how many ordinary answers can still be paid for; None if there is no end."""
    terms = guarantee.terms
    planned = terms.statements > 0 and guarantee.only_kind is None
    return terms.answers_left(spent.charge, spent.intervals) if planned else None


def _at_most(outlook: tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
    """Return for each number of further answers the widest until then.

    The first answers after the end of a plan have a larger share of its confidence than each planned one had, so they
    may be narrower for a while; nobody should have to count on that.
    """
    return tuple(zip((more for more, _ in outlook), accumulate((width for _, width in outlook), max), strict=True))


def _quota_text(quota: int) -> str:
    return f"your quota leaves {quota:,} answer{'' if quota == 1 else 's'}"


def _widths(what: str, more: str, outlook: tuple[tuple[int, float], ...]) -> str:
    widest = max(width for _, width in outlook) or 1.0
    rows = []
    for count, width in outlook:
        margin, after = write_margin(width), "now" if count == 0 else f"after {more.format(count)}"
        rows.append((after, margin, notebook.meter(width / widest, f"{after}: {margin}", 100)))
    return notebook.table((what, "", ""), rows)
