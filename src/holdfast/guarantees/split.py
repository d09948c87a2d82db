"""The split guarantee: fresh rows for every question. Simple, and soon out of rows."""

from collections.abc import Iterator
from dataclasses import replace
from math import log

from holdfast.guarantees import GUARANTEES
from holdfast.guarantees.guarantee import AnswerGuarantee, Planning
from holdfast.guarantees.mathematics.concentration import clopper_pearson, hoeffding_radius, kl_range
from holdfast.guarantees.statistic import ExactMeans, Interval, Release, Statistic
from holdfast.guarantees.terms import Goal, Reading, Terms


class Split(AnswerGuarantee):
    """Every row answers one question, so earlier answers reveal nothing about it.

    Rows are used in a random order that the ledger keeps secret: whoever knew it could ask about what the next rows
    over-represent.
    """

    name = "split"
    planning = Planning(("fresh_rows",))
    in_order = True  # the charge says which rows are used up
    terms_class = Terms

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self._level = (1 - terms.confidence) / terms.statements

    @classmethod
    def plan(cls, goal: Goal, mechanism: str) -> Terms | None:
        """Divide the rows equally."""
        if goal.flips or goal.rows < goal.queries:
            return None
        ell = min(goal.rows_per_query or goal.rows, goal.rows // goal.queries)
        margin = hoeffding_radius(ell, goal.beta / goal.queries)
        return goal.met_by(Terms, mechanism, margin=margin, rows_per_query=ell, charge=goal.rows)

    @classmethod
    def readings(cls, goal: Goal, most: int | None) -> Iterator[Reading]:
        """By splitting."""
        terms = cls.plan(replace(goal, ends=True, identical=True), *cls.planning.mechanisms)
        if terms is not None:
            note = "then refused; identically distributed rows only"
            yield Reading.of("splitting", terms.rows_per_query, terms.margin, note)

    def charge(self, statistic: Statistic, draws: int) -> int:
        """The rows used up."""
        return draws

    def share(self, release: Release, part: int) -> Interval:
        """Exact binomial where rows were counted; Chernoff's bound where values were averaged."""
        exact = self._exact(release)
        count = exact.counts[part]
        if count is None:
            return kl_range((exact.means[part],) * 2, n=exact.draws, r=log(2 / self._level))
        return clopper_pearson(count, exact.draws, self._level)

    def group(self, release: Release, part: int = 0) -> Interval:
        """Chernoff's bound for the rows that turned out to be in the group."""
        exact = self._exact(release)
        return kl_range((exact.values[part],) * 2, n=exact.counts[2 * part] or 0, r=log(2 / self._level))

    def _exact(self, release: Release) -> ExactMeans:
        if not isinstance(release, ExactMeans):
            raise self.cannot_certify(type(release).__name__)
        return release


GUARANTEES.register(Split.name, Split)
