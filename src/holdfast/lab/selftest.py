"""Does a plan keep its promise? Simulate it on rows whose population is known, and count.

In every world fresh rows are drawn, an adaptive analyst asks as many questions as are planned, and the world fails
if any interval misses. The number of failures is compared with the promised probability by the exact binomial test.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.guarantees.mathematics.concentration import clopper_pearson
from holdfast.guarantees.plan import WITHOUT_PLAN, Plan, write_margin
from holdfast.lab.analysts import Analyst, HillClimber, WeightedAttack
from holdfast.lab.attack import Progress, in_parallel, run_world, world_seeds
from holdfast.lab.contenders import Contender, PlanContender
from holdfast.questions.estimate import write_end

FALSE_ALARM = 1e-3  # a plan that keeps its promise is called broken at most this often
_IN_JSON = (
    "kept", "sentence", "analyst", "questions", "worlds", "failed", "misses", "failure_at_most", "largest_error",
    "promised", "seed",
)  # fmt: skip
MOST_CELLS = 20_000_000  # rows x features of a made-up table


@dataclass(frozen=True)
class SelfTest:
    """The result of a self-test. `failed` worlds had at least one interval that missed."""

    plan: Plan
    analyst: str
    questions: int
    worlds: int
    failed: int
    misses: int
    largest_error: float
    seed: int

    @property
    def p_value(self) -> float:
        """Probability of at least this many failures if the plan fails exactly as often as it is allowed to."""
        from scipy.stats import binom  # heavy, and only verdicts need it

        return float(binom.sf(self.failed - 1, self.worlds, 1 - self.plan.confidence))

    @property
    def kept(self) -> bool:
        """Whether the promise was kept."""
        return self.p_value >= FALSE_ALARM

    @property
    def failure_at_most(self) -> float:
        """A 95% upper bound on the actual failure probability."""
        return clopper_pearson(self.failed, self.worlds, 0.1)[1]

    @property
    def promised(self) -> float:
        """The promised margin of the last answer."""
        return self.plan.standing.margin_after(self.questions - 1)

    @property
    def sentence(self) -> str:
        """The result in words."""
        verdict = "kept its promise" if self.kept else "BROKE its promise"
        return (
            f"The plan {verdict}: in {self.failed} of {self.worlds} worlds an interval missed the population's value"
            f" ({100 * (1 - self.plan.confidence):g}% of worlds may fail; with 95% confidence at most"
            f" {write_end(100 * self.failure_at_most, 3, up=True)}% do). The {self.analyst} analyst asked"
            f" {self.questions:,} questions in each world; the largest error was {self.largest_error:.4f}, the promised"
            f" margin of the last answer is {write_margin(self.promised)}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {name: getattr(self, name) for name in _IN_JSON} | {"plan": self.plan.to_dict()}

    def __repr__(self) -> str:
        return self.sentence


def strongest_analyst(plan: Plan, questions: int) -> Analyst:
    """Return the weighted attack, the strongest that asks nothing twice, or the climber if its table is too large."""
    if plan.rows * questions <= MOST_CELLS:
        return WeightedAttack(questions)
    return HillClimber(questions, cells=max(1, min(questions - 2, plan.rows // 10)))


def selftest(
    plan: Plan,
    *,
    worlds: int = 20,
    questions: int | None = None,
    seed: int = 0,
    processes: int = 1,
    progress: Progress | None = None,
    contender: Contender | None = None,
) -> SelfTest:
    """Simulate how often the intervals of a plan hold.

    Parameters
    ----------
    plan
        The plan to test.
    worlds
        The number of independent samples, each with its own analyst.
    questions
        Asked in each world; by default, as many as planned, or 1,000 if the plan names no number.
    seed, processes, progress
        As in `attack`.
    contender
        Answers in place of the plan, to show that the test detects a wrong mechanism.
    """
    check.whole(worlds=worlds, processes=processes)
    if plan.queries < 3 and not plan.endless:
        raise InvalidArgument("A self-test needs a plan for at least 3 questions: with fewer, no analyst can adapt.")
    asked = (plan.queries or WITHOUT_PLAN) if questions is None else questions
    check.whole(3, questions=asked)
    if plan.terms.ends:
        check.at_most("the plan's queries", plan.queries, questions=asked)
    analyst = strongest_analyst(plan, asked)
    run = partial(run_world, contender or PlanContender(plan), analyst, analyst.population(plan.rows), plan.rows)
    results = in_parallel(run, world_seeds(seed, worlds), processes, progress)
    misses = [world.misses for world in results]
    return SelfTest(
        plan=plan,
        analyst=analyst.name,
        questions=asked,
        worlds=worlds,
        failed=sum(count > 0 for count in misses),
        misses=sum(misses),
        largest_error=float(max(world.errors.max() for world in results)),
        seed=seed,
    )
