"""Which plan stands: the one that the ledger records, or, until it has begun, the one that the user's wishes make."""

from dataclasses import dataclass, replace

from holdfast import check
from holdfast.errors import PlanConflict
from holdfast.guarantees.plan import Plan
from holdfast.guarantees.request import PlanRequest
from holdfast.ledger import Cost, Ledger, Reach, SharedBudget
from holdfast.ledger.opening import SHARED
from holdfast.questions.board_files import BoardFiles
from holdfast.questions.budget import Budget
from holdfast.questions.price import require_affordable
from holdfast.questions.question import NOTHING_SPENT, Context, Question
from holdfast.randomness import Randomness
from holdfast.rows.source import Draws, RowSource, draws_under, plan_for
from holdfast.schema import Schema
from holdfast.session.beside import explored_beside, refuse_published

SHARES = "All sessions of this process on these rows share one budget:"


@dataclass(frozen=True)
class Standing:
    """A plan, and what questions under it are built against and drawn from. `recorded`: whether the ledger has it."""

    plan: Plan
    context: Context
    draws: Draws
    recorded: bool


class StandingPlan:
    """The plan of some rows and their ledger, shared by the sessions of all analysts.

    Parameters
    ----------
    rows, schema
        The data, and what is declared about it.
    ledger
        Where the plan is recorded.
    request
        The user's wishes. They make the plan if the ledger has none yet.
    randomness
        The source of the ledger's secret.
    """

    def __init__(
        self, rows: RowSource, schema: Schema, ledger: Ledger, request: PlanRequest, randomness: Randomness
    ) -> None:
        self._rows, self._schema, self._ledger = rows, schema, ledger
        self._request, self._randomness = request, randomness
        self._begins = False  # whether a thread of this session is beginning the ledger, or has begun it
        self._board, self._explored = BoardFiles(rows, ledger), explored_beside(rows)
        # Only ever replaced as a whole: other threads read it at any time.
        self.standing = self._recorded() if ledger.begun else self._under(plan_for(rows, request), recorded=False)

    def now(self) -> Standing:
        """Return what stands; adopt the ledger's plan first if somebody else has begun the ledger."""
        if not self.standing.recorded and self._ledger.begun:
            self.standing = self._recorded()
            if self._ledger.location == SHARED and not self._begins:
                self.warn_of_sharing()
        return self.standing

    def warn_of_sharing(self) -> None:
        """Say that other sessions of this process spend the same budget, and what is left of it."""
        left = Budget.of(self.standing.plan.standing, self._ledger.spent, self._ledger.answered)
        check.warn(f"{SHARES} {left}.", SharedBudget)

    def context(self) -> Context:
        """Return the context for new questions."""
        standing = self.standing if self.standing.recorded else self.now()
        context = standing.context
        if context.guarantee.terms.ends:
            return context
        rows_per_query = context.guarantee.rows_at(self._ledger.spent.intervals)
        if rows_per_query != context.rows_per_query:
            context = replace(context, rows_per_query=rows_per_query)
            if standing.recorded:  # else another thread may have let the ledger's plan stand meanwhile
                self.standing = replace(standing, context=context)
        return context

    def begin(self) -> None:
        """Begin the ledger now instead of with the first answer. If it has begun already, its plan stands."""
        if not self.standing.recorded:
            self._begins = True
            self._ledger.begin(self.standing.plan.to_dict(), self._randomness.secret())
            self.standing = self._recorded()

    def begun_for(self, question: Question) -> bool:
        """Begin the ledger, if nobody has, for this first question; return whether the question fits the plan then.

        It does not if somebody else was faster: their plan stands, and the question must be built again for it.
        """
        if not self.standing.recorded:
            self._begin_for(question.cost)
        terms, in_force = question.terms, self.standing.context.guarantee.terms
        return terms is in_force or terms is None or terms == in_force

    def require_for(self, question: Question) -> None:
        """Begin the ledger, if nobody has; refuse a question that was built for another plan."""
        if not self.begun_for(question):
            raise PlanConflict(
                f"The ledger {self._ledger.location} was begun under another plan since this question was prepared:"
                f" {self.standing.plan.sentence} Ask again, and the question is built for it.",
                standing=self.standing.plan.to_dict(),
            )

    def _begin_for(self, cost: Cost) -> None:
        mine = self.standing
        mine.draws.expect(())
        require_affordable(cost, mine.plan.terms, NOTHING_SPENT)  # a refused question must not begin a ledger
        self._begins = True
        if self._ledger.begin(mine.plan.to_dict(), self._randomness.secret()):
            self._join(mine.draws)  # another ledger may have used these draws since they were opened
            self.standing = replace(mine, recorded=True)
        else:
            self.standing = self._recorded()

    def explore(self, rows: RowSource) -> None:
        """Use these `rows` as the exploration part."""
        self._explored = lambda: rows  # one step, whichever plan another thread lets stand meanwhile

    def _recorded(self) -> Standing:
        """Return the plan that the ledger records; refuse a request that contradicts it."""
        location = self._ledger.location
        plan = Plan.from_dict(self._ledger.terms or {}, location=f"The ledger {location}")
        if (plan.unit, plan.terms.all_rows) != (self._schema.unit, len(self._rows)):  # other units
            then = replace(self._schema, unit=plan.unit).units_of(plan.terms.all_rows)
            again = "without unit=" if plan.unit is None else f"with unit={plan.unit!r}"
            if self._schema.unit is not None and self._rows.location is not None:
                again += f"; if none was given now, {self._rows.location} remembers one: remove it, and open the file"
            raise PlanConflict(
                f"The ledger {location} was begun for {then}; opened like this, the same data are"
                f" {self._schema.units_of(len(self._rows))}. Open them as they were then, {again}.",
                standing=plan.to_dict(),
            )
        self._request.must_match(plan, location)
        return self._under(plan, recorded=True)

    def _under(self, plan: Plan, *, recorded: bool) -> Standing:
        ledger, guarantee = self._ledger, plan.standing
        if guarantee.checks is not None:
            refuse_published(self._schema)
        draws = draws_under(self._rows, plan, ledger)
        context = Context(
            guarantee,
            self._schema,
            guarantee.rows_at(0),
            self._board,
            lambda: self._explored(),  # as it is when a question asks: see `explore`
            so_far=lambda: NOTHING_SPENT if plan.terms.ends else ledger.spent,
            dealt=draws.dealt,
        )
        self._join(draws)
        return Standing(replace(plan, unit=self._schema.unit), context, draws, recorded)

    def _join(self, draws: Draws) -> None:
        """Refuse draws that another ledger has used, and tell this ledger where the prepared draws end."""
        draws.join()
        if draws.dealt:
            self._ledger.reach = lambda: Reach(*draws.reach)
