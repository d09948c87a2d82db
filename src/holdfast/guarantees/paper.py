"""The paper guarantee: the paper's systems as published, with constants that hold. Sound, but wide.

The expectation guarantee is the same system (A1, repaired) where every answer is accurate only on average.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from math import ceil, sqrt

from holdfast.cached import cached_property
from holdfast.errors import NotCovered
from holdfast.guarantees import GUARANTEES
from holdfast.guarantees.dp import NoisyGuarantee, NoisyTerms
from holdfast.guarantees.guarantee import EVERYTHING, AnswerGuarantee, Planning, around, ratio
from holdfast.guarantees.mathematics import descent, privacy, sizes
from holdfast.guarantees.plan import write_margin
from holdfast.guarantees.statistic import Interval, NoisyMeans, Release, Statistic, refuse_noise
from holdfast.guarantees.terms import Fits, Goal, OfTerms, Terms

MOST_ROWS = 10**15


@dataclass(frozen=True, kw_only=True)
class PaperTerms(Terms):
    """`mass` is the chance with which a coin is replaced, per outcome; `epsilon` that of a noisy mean; one is None."""

    mass: float | None = None
    epsilon: float | None = None

    @cached_property
    def charge_per_answer(self) -> int:
        """Every noisy mean costs as much as n^2 epsilon^2 coins."""
        if self.epsilon is None:
            return super().charge_per_answer
        return ceil(privacy.private_cost(self.epsilon, n=self.rows))


class Paper(AnswerGuarantee):
    """Statistical queries by sampled rows and Laplace noise; counting queries and single flips by coins.

    Its promise about fits is the paper's, too (A4+): on the rows by the best of several runs, and from there to the
    population by its transfer theorem; see `sizes.private_answers`.
    """

    terms: PaperTerms
    name = "paper"
    planning = Planning(
        ("laplace", "coins", "laplace_with_replacement"),
        by_name_only=("laplace_with_replacement",),
        preferred="laplace",
    )
    terms_class = PaperTerms

    @classmethod
    def plan(cls, goal: Goal, mechanism: str) -> PaperTerms | None:
        """Return the smallest margin that the paper's sample sizes allow on these rows."""
        return _PLANNERS[mechanism](goal)

    def supports(self, statistic: Statistic) -> None:
        """Noisy means answer anything but flips; averaged coins answer shares and means."""
        if self.terms.mass is None:
            self.refuse_flips(statistic)
        elif statistic.outcomes > 2:
            raise NotCovered(
                "The paper's averaged coins answer shares and means only; ask one share for each category, without"
                " `where`, or plan with mechanism='laplace'.",
                guarantee=self.name,
            )
        else:
            refuse_noise(statistic, mass=self.terms.mass)

    def charge(self, statistic: Statistic, draws: int) -> int:
        """One for each coin; n^2 epsilon^2 for each noisy mean."""
        if self.terms.epsilon is None:
            return draws * privacy.draw_cost(statistic.outcomes)
        return statistic.intervals * self.terms.charge_per_answer

    def share(self, release: Release, part: int) -> Interval:
        """± the margin, for the averages the paper promises; nothing for others."""
        if isinstance(release, NoisyMeans):
            return around(release.means[part], self.terms.margin + release.grid)
        tally = self.tally(release)
        if tally.draws != self.terms.rows_per_query or self.terms.flips:
            return EVERYTHING  # the paper promises only the expectation of a flip, and averages of the planned length
        return around(tally.count(part) / tally.draws, self.terms.margin)

    def group(self, release: Release, part: int = 0) -> Interval:
        """The range of the ratio of two noisy means."""
        return ratio(self.share(release, 2 * part + 1), self.share(release, 2 * part))

    @property
    def fits(self) -> Fits:
        """Noisy answers; in a session of coins any mixture, since privacy adds up.

        The level is that of one fit on the rows; the step to the population is the core of the paper's transfer
        theorem, or in expectation that by privacy, as in the paper.
        """
        terms, coins = self.terms, self.terms.mass is not None
        if terms.flips:
            return Fits()
        find = sizes.private_coins if coins else sizes.private_answers
        private = find(terms.margin, 1 - terms.confidence, k=max(1, terms.queries), n=terms.rows)

        def excess(on_rows: float, *, R: float, lipschitz: float, curvature: float) -> float | None:
            return on_rows + 2 * R * private.gap

        return Fits(
            ("laplace", "coins") if coins else (terms.mechanism,),
            private.level,
            excess,
            partial(descent.privacy_step, epsilon=private.epsilon, delta=private.delta),
        )

    @property
    def coin_mass(self) -> float:
        """The planned mass of coins."""
        return super().coin_mass if self.terms.mass is None else self.terms.mass

    def epsilon_for(self, draws: int) -> float:
        """The planned epsilon of noisy means, or the one at which an answer costs as much as `draws` coins."""
        return sqrt(draws) / self.terms.rows * (1 - 1e-12) if self.terms.epsilon is None else self.terms.epsilon


class Expectation(NoisyGuarantee):
    """E|answer - population| is at most the margin, for every answer, however the questions were chosen (cor:lsq_exp).

    A promise about averages over whole sessions is weaker than intervals that hold together, and takes fewer rows.
    There are no intervals. It is planned only if asked for by name, for comparison.
    """

    name = "expectation"
    planning = Planning(("laplace",), by_name_only=("laplace",))
    gives_intervals = False

    @classmethod
    def plan(cls, goal: Goal, mechanism: str) -> NoisyTerms | None:
        """Return the smallest margin that the paper's sample size allows on these rows."""
        return None if goal.flips else _planned_on_average(goal)

    def supports(self, statistic: Statistic) -> None:
        """Means and shares of all rows; the mean of a group is a ratio, which has no expectation to promise."""
        self.refuse_flips(statistic)
        if statistic.outcomes > 2:
            raise self.cannot_certify("groups and histograms")

    def share(self, release: Release, part: int) -> Interval:
        """Nothing: an average over sessions is no interval."""
        return EVERYTHING

    @property
    def sentence(self) -> str:
        """The promise."""
        terms, margin = self.terms, write_margin(self.terms.margin).removeprefix("±")
        return (
            f"{terms.rows:,} rows can answer {terms.queries:,} questions, each chosen after seeing the earlier answers:"
            f" on average over sessions, every answer is off by at most {margin}. There are no intervals: in"
            " any one session an answer may be off by more."
        )


def _smallest_margin(size: Callable[[float], sizes.Size], goal: Goal) -> float | None:
    """Return the smallest alpha the paper's size allows on these rows (and rows per query), on the safe side."""

    def fits(alpha: float) -> bool:
        needed = size(alpha)
        return needed.n <= goal.rows and needed.ell <= (goal.rows_per_query or MOST_ROWS)

    good = 1 - 1e-9
    if not fits(good):
        return None
    bad = 0.0
    while good - bad > 1e-6 * good:
        middle = (good + bad) / 2
        if middle < 1e-7 or not fits(middle):
            bad = middle
        else:
            good = middle
    return good


@lru_cache(maxsize=4096)
def _planned_laplace(goal: Goal, replacement: bool = False) -> PaperTerms | None:
    def needed(margin: float) -> sizes.Size:
        return sizes.a1(margin, goal.beta, goal.queries, replacement=replacement)

    mechanism = "laplace_with_replacement" if replacement else "laplace"
    return None if goal.flips else _noisy_terms(PaperTerms, goal, mechanism, needed)


def _noisy_terms(
    terms: type[OfTerms], goal: Goal, mechanism: str, needed: Callable[[float], sizes.Size]
) -> OfTerms | None:
    """Return the terms of noisy means with the smallest margin for which `needed` rows are there."""
    alpha = _smallest_margin(needed, goal)
    if alpha is None:
        return None
    size = needed(alpha)
    ell, epsilon = goal.rows_per_query or size.ell, size.epsilon_per_query
    charge = goal.queries * ceil(privacy.private_cost(epsilon, n=goal.rows))
    return goal.met_by(terms, mechanism, margin=alpha, rows_per_query=ell, charge=charge, epsilon=epsilon)


@lru_cache(maxsize=4096)
def _planned_coins(goal: Goal) -> PaperTerms | None:
    if goal.flips and goal.queries:
        return None

    def needed(margin: float) -> sizes.Size:
        return (sizes.a3 if goal.flips else sizes.cq_by_scq)(margin, goal.beta, goal.statements)

    alpha = _smallest_margin(needed, goal)
    if alpha is None:
        return None
    size = needed(alpha)
    own = {"rows_per_query": size.ell, "charge": goal.statements * size.ell, "mass": size.mass}
    return goal.met_by(PaperTerms, "coins", margin=alpha, **own)


@lru_cache(maxsize=4096)
def _planned_on_average(goal: Goal) -> NoisyTerms | None:
    return _noisy_terms(NoisyTerms, goal, "laplace", lambda alpha: sizes.a1_in_expectation(alpha, goal.queries))


_PLANNERS: dict[str, Callable[[Goal], PaperTerms | None]] = {
    "laplace": _planned_laplace,
    "coins": _planned_coins,
    "laplace_with_replacement": partial(_planned_laplace, replacement=True),
}
GUARANTEES.register(Paper.name, Paper)
GUARANTEES.register(Expectation.name, Expectation)
