"""What is left to ask.

A session without an end never runs out: its budget says how wide answers are now and after more of them. A session with
an end keeps two amounts: intervals (statements about the population) and the guarantee's own charge. "Answers left" is
how many ordinary answers both can still pay for. A plan that goes on after its end keeps both until it is used up.

No rows are needed for this, so nothing here imports code that reads them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from html import escape
from itertools import accumulate
from typing import Any

from holdfast import notebook
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.plan import write_margin
from holdfast.guarantees.terms import ONE_IN
from holdfast.ledger import Answered, Spent

NO_END = {  # by the kind of question that a guarantee without an end takes
    "check": "no limit on checks: {} beyond the margin of a guess",
    "submit": "no limit on submissions: {} around the cell of a score",
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
        submissions, and how wide intervals are around the cell of a score.
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
        """Rebuild a budget.

        Parameters
        ----------
        values
            What `to_dict` wrote.

        Returns
        -------
        Budget
            The same budget.
        """
        pairs = {name: tuple((more, width) for more, width in values[name]) for name in ("outlook", "checks")}
        return cls(**{**values, **pairs})

    def __str__(self) -> str:
        if self.quota is not None:
            return f"{replace(self, quota=None)}; your quota leaves {write_answers(self.quota)}"
        if self.checks:
            return f"{replace(self, checks=())}; {_no_end('check', self.checks)}"
        if self.asks is not None:
            return _no_end(self.asks, self.outlook)
        _, *wider = self.outlook or ((0, self.margin),)
        after = ", ".join(f"{write_margin(width)} after {more:,}" for more, width in wider)
        now = write_margin(self.margin)
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
            shown.append(_widths(self.asks, self.outlook))
        if self.checks:
            shown.append(_widths("check", self.checks))
        if self.quota is not None:
            shown.append(f"<div>your quota leaves {write_answers(self.quota)}</div>")
        return "".join(shown)


_RARE = {"check": "wrong", "submit": "better"}  # what makes later intervals much wider
_WHOSE = {  # whose width is shown
    None: "an answer is within",
    "check": "a check, beyond the margin of its guess",
    "submit": "a submission, around the cell of its score",
}


def later(more: int, asks: str | None) -> str:
    """Return in words when a margin of an outlook holds, in a session that `asks` only for this kind of question.

    >>> later(0, None), later(1_000, None), later(10, "check"), later(1, "submit")
    ('now', 'after 1,000 more', 'after 10 wrong in 1,000 more', 'after 1 better in 100 more')
    """
    if not more:
        return "now"
    rare = "" if asks is None else f"{_RARE[asks]} in {ONE_IN * more:,} "
    return f"after {more:,} {rare}more"


def _no_end(asks: str, outlook: tuple[tuple[int, float], ...]) -> str:
    (_, now), *wider = outlook
    after = ", ".join(f"{write_margin(width)} {later(more, asks)}" for more, width in wider)
    return f"{NO_END[asks].format(write_margin(now))}, {after}"


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


def write_answers(count: int) -> str:
    """Write a number of answers."""
    return f"{count:,} answer" + ("" if count == 1 else "s")


def _widths(asks: str | None, outlook: tuple[tuple[int, float], ...]) -> str:
    widest = max(width for _, width in outlook) or 1.0
    rows = []
    for more, width in outlook:
        margin, after = write_margin(width), later(more, asks)
        rows.append((after, margin, notebook.meter(width / widest, f"{after}: {margin}", 100)))
    return notebook.table((_WHOSE[asks], "", ""), rows)
