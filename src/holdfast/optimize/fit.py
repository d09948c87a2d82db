"""A fit with everything decided before any row is read: its gradients, steps and runs, its price, and its promise.

If no radius was declared, the fit searches for one: short descents ("looks") in balls of doubling radius for as long as
the certified loss falls, then the fit itself.

    r = FIRST
    at most LOOKS times    descend SHARE of the steps in the ball of radius r; ask for the loss at the point found;
                           is the upper end of its interval the lowest so far? then r = 2 r, and look again
    descend the steps that remain in the ball whose upper end was lowest, and return that point

A larger ball means a wider range of the loss and so a wider interval: the upper end falls while a larger ball helps,
and rises again once it only adds noise. The choice uses released answers only: the ball is a function of the
transcript, like any adaptively chosen loss, so the promises of the last descent hold in it. The numbers of steps and
looks, and so the price, are fixed beforehand; steps that the looks do not use go to the last descent.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf

from numpy.random import Generator

from holdfast import check
from holdfast.errors import InvalidArgument, NotCovered, PlanInfeasible
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.mathematics import descent as theorems
from holdfast.guarantees.mathematics.descent import AVERAGES
from holdfast.optimize.descent import SELECTORS, Choice, Contest, Descent, Run
from holdfast.optimize.gradient import GRADIENTS
from holdfast.optimize.objective import Domain, LossAt, Objective
from holdfast.rows.source import RowSource

MOST_ITERATIONS = 1_000_000
LONG = 5_000_000  # a fit that reads fewer rows shows no progress bar
DRY_STEPS = 3  # steps of a dry run


@dataclass(frozen=True)
class Excess:
    """What is promised about the excess loss on the population.

    `likely` holds together with all intervals of the session, whatever loss was chosen; None if there is no such bound.
    `expected` bounds the expectation over the whole session, and needs a loss range R that was fixed in advance. If
    earlier answers decided the scale of the loss (its bounds, its domain), only the excess divided by R has expectation
    at most `expected`/R: an analyst could scale the loss up exactly when the coins were misleading.
    """

    expected: float | None
    likely: float | None


@dataclass(frozen=True)
class Fit:
    """Everything about one fit that is decided beforehand.

    `spent` is the charge that all earlier questions have used, and how many statements they made.
    """

    guarantee: Guarantee
    descent: Descent
    mechanism: str
    runs: int = 1
    choice: Choice | None = None
    select: str | None = None
    spent: tuple[int, int] = (0, 0)
    searched: str | None = None  # how the domain is found, if it was not declared
    answers: int = 1  # ordinary answers that are part of the fit: its loss, its accuracy, its looks

    @classmethod
    def decide(
        cls,
        guarantee: Guarantee,
        objective: Objective,
        domain: Domain,
        *,
        spent: tuple[int, int] = (0, 0),
        excess: float | None,
        iterations: int | None,
        rows_per_coordinate: int | None,
        average: str,
        mechanism: str | None,
        runs: int,
        select: str | None,
        searched: str | None = None,
        answers: int = 1,
    ) -> "Fit":
        """Check what the caller chose and fill in the rest; refuse what the guarantee does not cover."""
        check.one_of("average", average, AVERAGES)
        check.whole(runs=runs)
        runs = int(runs)  # JSON cannot encode NumPy integers
        if excess is not None and iterations is not None:
            raise InvalidArgument("Give excess or iterations, not both: the other follows.")
        if rows_per_coordinate is not None:
            check.whole(rows_per_coordinate=rows_per_coordinate)
            rows_per_coordinate = int(rows_per_coordinate)
        chosen = covered_mechanism(guarantee, mechanism)
        gradient = GRADIENTS[chosen].under(guarantee, objective, rows_per_coordinate)
        if select is not None:
            check.one_of("select", select, tuple(SELECTORS))
        choice, by = None, None
        if runs > 1:
            by = select or gradient.selector
            covered_mechanism(guarantee, SELECTORS[by].mechanism)
            choice = SELECTORS[by].under(guarantee, Contest(objective, domain), runs)

        def fit(count: int) -> Fit:
            descent = Descent(objective, domain, gradient, count, average)
            return cls(guarantee, descent, chosen, runs, choice, by, spent, searched, answers)

        if excess is not None:
            check.positive(excess=excess)
            return fewest_iterations(fit, excess)
        if iterations is not None:
            check.whole(iterations=iterations)
            check.at_most("the most that help", MOST_ITERATIONS, iterations=iterations)
            iterations = int(iterations)
        return fit(iterations or gradient.usual_iterations(guarantee))

    @property
    def settings(self) -> dict[str, object]:
        """What makes two fits of one loss the same question."""
        return {
            "domain": self.searched or repr(self.descent.domain),
            "iterations": self.descent.iterations,
            "rows_per_coordinate": self.descent.gradient.ell,
            "average": self.descent.average,
            "mechanism": self.mechanism,
            "runs": self.runs,
            "select": self.select,
        }

    @property
    def steps(self) -> int:
        """The steps of all runs together."""
        return self.runs * self.descent.iterations

    @property
    def gradient_evaluations(self) -> int:
        """Gradient coordinates evaluated: one per row read."""
        return self.steps * self.descent.gradient.rows_read

    @property
    def charge(self) -> int:
        """The part of the budget's charge that the gradients and the choice among runs use."""
        return self.steps * self.descent.gradient.charge + (0 if self.choice is None else self.choice.charge)

    @property
    def rows_read(self) -> int:
        """Rows read for gradients and for the choice among runs."""
        return self.gradient_evaluations + (0 if self.choice is None else self.choice.rows_read)

    def shortened(self, most_draws: int) -> "Fit":
        """Return a short version for made-up rows: the same code and shapes, but little work."""
        gradient = self.descent.gradient.shortened(max(1, most_draws // 100))
        steps = min(DRY_STEPS, self.descent.iterations)
        return replace(self, descent=replace(self.descent, gradient=gradient, iterations=steps))

    def run(self, source: RowSource, rng: Generator) -> Run:
        """Descend, and choose among the runs."""
        with _progress(self.steps, self.gradient_evaluations) as advance:
            tried = [self.descent.run(source, rng, advance) for _ in range(self.runs)]
        if self.choice is None:
            return tried[0]
        return tried[self.choice.choose([each.point for each in tried], source, rng)]

    def promise(self, regret: float = inf, at: Guarantee | None = None) -> Excess:
        """Return both bounds; neither exceeds the largest possible excess.

        After the run, `regret` is that of the chosen run, and `at` the guarantee at the fit's place in the ledger.
        """
        descent, guarantee = self.descent, at or self._standing
        promised = guarantee.fits
        ranges, domain = descent.objective.ranges, descent.domain
        apart = difference_range(descent)
        most = apart + descent.objective.l2 / 2 * domain.norm**2
        expected = likely = None
        step = promised.expected_step(apart)
        if step is not None:
            behind = 0.0 if self.choice is None else self.choice.loss()
            expected = min(most, descent.expected_excess() + behind + step)
        on_rows = inf if promised.level is None else self._on_rows(promised.level, regret)
        if on_rows < inf:
            bound = promised.excess(on_rows, R=apart, lipschitz=ranges.lipschitz, curvature=ranges.curvature)
            likely = None if bound is None else min(most, bound)
        if self.searched is not None:
            expected = None  # answers chose the domain, so the range was not fixed in advance
        elif regret == inf and likely is not None:  # `likely` fails with probability beta, and then by at most `most`
            whole = theorems.expected_from_likely(likely, beta=1 - guarantee.terms.confidence, most=most)
            expected = min(whole, inf if expected is None else expected)
        return Excess(expected, likely)

    @property
    def _standing(self) -> Guarantee:
        """The guarantee as if the fit were asked now, counting its own draws, its answers and its excess bound."""
        charge, intervals = self.spent
        drawn = charge + self.charge + self.answers * self.guarantee.terms.rows_per_query
        return self.guarantee.at(drawn, intervals, self.answers + 1)

    def _on_rows(self, beta: float, regret: float) -> float:
        """Return a bound on the excess on the rows that fails with probability at most beta; inf if there is none."""
        sure = self.descent.likely_excess(beta / self.runs, regret)  # for every run, hence for the chosen one
        if self.choice is None or 2.0**-self.runs > beta / 2:
            return sure
        boosted = 2 * self.descent.expected_excess() + self.choice.loss(beta / 2)
        # Posterior means need a bound on conditional expectations. The boosted bound holds only with high probability,
        # so it is used only if there is no other.
        return boosted if sure == inf else sure


def covered_mechanism(guarantee: Guarantee, requested: str | None) -> str:
    """Return the mechanism of a fit; refuse what the guarantee does not cover."""
    if requested is not None:
        check.one_of("mechanism", requested, tuple(GRADIENTS))
    usual, covered = guarantee.terms.mechanism, guarantee.fits.mechanisms
    if usual not in GRADIENTS or not covered:
        raise NotCovered(
            f"A fit needs many small answers, which this session ({usual.replace('_', ' ')}) cannot give. Open one with"
            " guarantee='exchange', before its first answer, to fit models; few questions are planned by splitting"
            " unless you say so.",
            guarantee=guarantee.name,
        )
    if requested is None or requested in covered:
        return requested or usual
    raise NotCovered(
        f"This session runs under the {guarantee.name} guarantee with {usual}, which does not cover {requested}; leave"
        " mechanism out, or plan with guarantee='information'.",
        guarantee=guarantee.name,
    )


def difference_range(descent: Descent) -> float:
    """Return R: the most that a row's loss can differ between two points of the domain, without l2."""
    low, high = descent.objective.ranges.values
    return min(high - low, descent.objective.ranges.lipschitz * descent.domain.diameter)


def fewest_iterations(fit: Callable[[int], Fit], goal: float) -> Fit:
    """Return the fit with the fewest iterations whose promise is at most `goal`."""

    def promised(count: int) -> float:
        promise = fit(count).promise()
        bound = promise.likely if promise.likely is not None else promise.expected
        return inf if bound is None else bound

    low, high = 1, 1
    while promised(high) > goal:
        if high >= MOST_ITERATIONS:
            raise PlanInfeasible(
                f"No number of iterations promises an excess loss of {goal:g} under this plan; its limit is"
                f" {promised(MOST_ITERATIONS):.3g}. Look in a smaller domain,"
                " plan fewer questions, or bring more rows.",
                excess=goal,
                best_excess=promised(MOST_ITERATIONS),
            )
        low, high = high, min(10 * high, MOST_ITERATIONS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if promised(middle) <= goal else (middle, high)
    return fit(high)


@contextmanager
def _progress(steps: int, rows: int) -> Iterator[Callable[[], None] | None]:
    """Yield the function to call after every step; None if the run is short or stderr is no terminal."""
    if rows < LONG or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("Descending"), BarColumn(), MofNCompleteColumn(), TextColumn("steps"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=steps)
        yield lambda: bar.advance(task)


# -- searching for the radius -----------------------------------------------------------------------------------------


AUTO = "auto"
FIRST, LOOKS, SHARE = 1.0, 6, 1 / 16

Ask = Callable[[LossAt], float]  # the upper end of the interval of a loss


@dataclass(frozen=True)
class Search:
    """The search for a radius. `at(radius)` is the whole fit, with all its steps in the ball of that radius."""

    at: Callable[[float], Fit]

    def run(self, source: RowSource, rng: Generator, ask: Ask) -> tuple[Fit, Run]:
        """Look, then fit; return the last descent as a separate fit, and its result."""
        remain = self.at(FIRST).descent.iterations
        short = max(1, int(SHARE * remain))
        best, lowest = self.at(FIRST), inf
        for look in range(LOOKS):
            if remain <= short:
                break
            tried = self.at(FIRST * 2**look)
            found = with_steps(tried, short).run(source, rng)
            remain -= short
            end = ask(LossAt(tried.descent.objective, found.point))
            if end >= lowest:
                break
            best, lowest = tried, end
        last = with_steps(best, remain)
        return last, last.run(source, rng)

    def shortened(self, most_draws: int) -> "Search":
        """Return a short version for made-up rows."""
        return Search(lambda radius: self.at(radius).shortened(most_draws))


def with_steps(fit: Fit, iterations: int) -> Fit:
    """Return the fit with another number of steps."""
    return replace(fit, descent=replace(fit.descent, iterations=iterations))
