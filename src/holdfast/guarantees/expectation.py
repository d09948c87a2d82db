"""The expectation guarantee: the paper's A1 where every answer is accurate on average (cor:lsq_exp), repaired.

A promise about averages over whole sessions is weaker than intervals that hold together, and takes fewer rows. There
are no intervals. This guarantee is planned only if asked for by name, for comparison.
"""

from functools import lru_cache
from math import ceil

from holdfast.guarantees import GUARANTEES
from holdfast.guarantees.dp import NoisyTerms
from holdfast.guarantees.guarantee import EVERYTHING, AnswerGuarantee, Planning
from holdfast.guarantees.mathematics import cost, sizes
from holdfast.guarantees.paper import smallest_margin
from holdfast.guarantees.plan import write_margin
from holdfast.guarantees.statistic import Interval, Release, Statistic
from holdfast.guarantees.terms import Goal


class Expectation(AnswerGuarantee):
    """E|answer - population| is at most the margin, for every answer, however the questions were chosen."""

    terms: NoisyTerms
    name = "expectation"
    planning = Planning(("laplace",), by_name_only=("laplace",))
    gives_intervals = False
    terms_class = NoisyTerms

    @classmethod
    def plan(cls, goal: Goal, mechanism: str) -> NoisyTerms | None:
        """Return the smallest margin that the paper's sample size allows on these rows."""
        return None if goal.flips else _planned(goal)

    def supports(self, statistic: Statistic) -> None:
        """Means and shares of all rows; the mean of a group is a ratio, which has no expectation to promise."""
        self.refuse_flips(statistic)
        if statistic.outcomes > 2:
            raise self.cannot_certify("groups and histograms")

    def charge(self, statistic: Statistic, draws: int) -> int:
        """n^2 epsilon^2 for each noisy mean."""
        return statistic.intervals * self.terms.charge_per_answer

    def share(self, release: Release, part: int) -> Interval:
        """Nothing: an average over sessions is no interval."""
        return EVERYTHING

    def group(self, release: Release, part: int = 0) -> Interval:
        """Nothing, as for `share`."""
        return EVERYTHING

    def epsilon_for(self, draws: int) -> float:
        """The planned epsilon."""
        return self.terms.epsilon

    @property
    def sentence(self) -> str:
        """The promise."""
        terms, margin = self.terms, write_margin(self.terms.margin).removeprefix("±")
        return (
            f"{terms.rows:,} rows can answer {terms.queries:,} questions, each chosen after seeing the earlier answers:"
            f" on average over sessions, every answer is off by at most {margin}. There are no intervals: in"
            " any one session an answer may be off by more."
        )


@lru_cache(maxsize=4096)
def _planned(goal: Goal) -> NoisyTerms | None:
    alpha = smallest_margin(lambda a: sizes.a1_in_expectation(a, goal.queries), goal)
    if alpha is None:
        return None
    size = sizes.a1_in_expectation(alpha, goal.queries)
    ell, epsilon = goal.rows_per_query or size.ell, size.epsilon_per_query
    charge = goal.queries * ceil(cost.private_cost(epsilon, n=goal.rows))
    return goal.met_by(NoisyTerms, "laplace", margin=alpha, rows_per_query=ell, charge=charge, epsilon=epsilon)


GUARANTEES.register(Expectation.name, Expectation)
