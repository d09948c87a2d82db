"""Does a plan keep its promise? Simulate it on rows whose population is known, and count.

In every world fresh rows are drawn, an adaptive analyst asks as many questions as the plan allows, and the world fails
if a single interval misses. Failures are compared with the promised probability by the exact binomial test.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.guarantees.mathematics.concentration import clopper_pearson
from holdfast.lab.analysts import Analyst, HillClimber, WeightedAttack
from holdfast.lab.attacking import Progress, in_parallel
from holdfast.lab.contenders import Contender, Planned
from holdfast.lab.world import run_world
from holdfast.planning import Plan

FALSE_ALARM = 1e-3  # a plan that keeps its promise is called broken at most this often
MOST_CELLS = 20_000_000  # rows x features of a made-up table


@dataclass(frozen=True)
class SelfTest:
    """How a plan fared. `failed` worlds had at least one interval that missed."""

    plan: Plan
    analyst: str
    questions: int
    worlds: int
    failed: int
    misses: int
    largest_error: float
    seed: int

    @property
    def chance(self) -> float:
        """Probability of so many failures or more, if the promise holds with nothing to spare."""
        from scipy.stats import binom  # heavy, and only verdicts need it

        return float(binom.sf(self.failed - 1, self.worlds, 1 - self.plan.confidence))

    @property
    def kept(self) -> bool:
        """Whether the promise was kept."""
        return self.chance >= FALSE_ALARM

    @property
    def failure_at_most(self) -> float:
        """A 95 % upper bound on the real failure probability."""
        return clopper_pearson(self.failed, self.worlds, 0.1)[1]

    def sentence(self) -> str:
        """Say it in words."""
        verdict = "kept its promise" if self.kept else "BROKE its promise"
        return (
            f"The plan {verdict}: in {self.failed} of {self.worlds} worlds an interval missed the population"
            f" ({100 * (1 - self.plan.confidence):g} % are allowed; at most {100 * self.failure_at_most:.1f} %, says"
            f" this test). {self.questions:,} questions a world by the {self.analyst} analyst; largest error"
            f" {self.largest_error:.4f}, promised {self.plan.accuracy:.4f}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "kept": self.kept,
            "sentence": self.sentence(),
            "analyst": self.analyst,
            "questions": self.questions,
            "worlds": self.worlds,
            "failed": self.failed,
            "misses": self.misses,
            "failure_at_most": self.failure_at_most,
            "largest_error": self.largest_error,
            "promised": self.plan.accuracy,
            "seed": self.seed,
            "plan": self.plan.to_dict(),
        }

    def __repr__(self) -> str:
        return self.sentence()


def worst_analyst(plan: Plan, questions: int) -> Analyst:
    """Return the strongest analyst whose table fits: the weighted attack, or the climber for many rows."""
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
    """Simulate the coverage of a plan. `questions` a world: as many as planned, or fewer to save time."""
    check.whole(worlds=worlds, processes=processes)
    check.whole(0, seed=seed)
    if plan.queries < 3:
        raise InvalidArgument("A plan for fewer than 3 questions leaves an analyst nothing to adapt to.")
    asked = plan.queries if questions is None else questions
    check.whole(3, questions=asked)
    check.at_most("the plan's queries", plan.queries, questions=asked)
    analyst = worst_analyst(plan, asked)
    seeds = [int(each) for each in np.random.SeedSequence(seed).generate_state(worlds)]
    answering = Planned(plan) if contender is None else contender
    run = partial(run_world, answering, analyst, analyst.population(plan.rows), plan.rows)
    ran = in_parallel(run, seeds, processes, progress)
    missed = [world.misses for world in ran]
    return SelfTest(
        plan=plan,
        analyst=analyst.name,
        questions=asked,
        worlds=worlds,
        failed=sum(count > 0 for count in missed),
        misses=sum(missed),
        largest_error=float(max(world.errors.max() for world in ran)),
        seed=seed,
    )
