"""Two drawers: some rows answer questions by coins, the others check guesses, and one ledger counts both.

No row is in both drawers; which drawer a row is in is random and secret. So each drawer's guarantee holds as if the
other were data from elsewhere, for its own rows and its own part of the failure probability. (Checks on rows that also
answer coins would be invalid: guesses would depend on the very rows that check them.)

Each of the two amounts that a ledger counts holds both accounts, coins below and checks above (`terms.counts_in`).
The ledger gives every check a place of its own, from which no place for coins is ever cut (`ledger/places.py`);
otherwise two places for coins could have the same lower bits. Drawers need a session that goes on, in which nothing
depends on a cap.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Self

from holdfast import check
from holdfast.errors import BudgetExhausted, InvalidArgument
from holdfast.guarantees import GUARANTEES
from holdfast.guarantees.checks import Checks, ChecksSoFar, CheckTerms
from holdfast.guarantees.exchange import Exchange, ExchangeTerms
from holdfast.guarantees.guarantee import Guarantee, Planning
from holdfast.guarantees.plan import write_margin
from holdfast.guarantees.terms import NOTHING, Amounts, AnsweredAmounts, Goal, PlainAmounts

PART = 0.1  # part of the failure probability for the checks; it costs them 2.3 nats
COINS, STATEMENTS = 2**42, 2**31  # charges and statements of coins stay below; a million checks fit above
MOST_COINS, MOST_STATEMENTS = COINS // 2, STATEMENTS // 2  # no question begins beyond: the rest is for those under way
MOST_CHECKS = 2**20 - 2**10  # checks that fit into their account, less those that may be begun at the same time
MOST_AT_ONCE, MOST_STATEMENTS_AT_ONCE = 2**34, 2**20  # of one question


@dataclass(frozen=True, kw_only=True)
class DrawerTerms(ExchangeTerms):
    """The terms of the coins; `kept` other rows check guesses, with failure probability `kept_beta`."""

    kept: int
    kept_beta: float

    @property
    def all_rows(self) -> int:
        """The rows of both drawers."""
        return self.rows + self.kept

    @property
    def account(self) -> int:
        """The size of the account of coins."""
        return COINS

    def answers_left(self, charge: int, intervals: int) -> int:
        """By the plan for coins."""
        return super().answers_left(charge % COINS, intervals % STATEMENTS)

    def worth(self, charge: int, intervals: int) -> int:
        """In answers by coins; a check is worth none."""
        return super().worth(charge % COINS, intervals % STATEMENTS)


class Drawers(Exchange):
    """Coins on some rows, checks on the others."""

    terms: DrawerTerms
    name = "drawers"
    planning = Planning(("coins",), by_name_only=("coins",), goes_on=True, takes_unlike_rows=True)
    terms_class = DrawerTerms  # type: ignore[assignment]

    @classmethod
    def plan(cls, goal: Goal, mechanism: str) -> None:
        """Not planned directly, but made from a plan for coins: see `beside_checks`."""
        return

    @property
    def checks(self) -> "CheckDrawer":
        """The other drawer."""
        return _checks_under(self.terms)

    # -- the account of coins, out of what both drawers have spent --------------------------------------------------

    def at(self, charge: int, before: int, statements: int = 1) -> Self:
        """As for coins alone."""
        return super().at(charge % COINS, before % STATEMENTS, statements % STATEMENTS)

    def rows_at(self, intervals: int) -> int:
        """As for coins alone."""
        return super().rows_at(intervals % STATEMENTS)

    def margin_after(self, more: int, spent: Amounts = NOTHING) -> float:
        """As for coins alone."""
        return super().margin_after(more, PlainAmounts(spent.charge % COINS, spent.intervals % STATEMENTS))

    def require_room(self, taken: Callable[[], tuple[int, int]], charge: int, intervals: int) -> None:
        """Refuse a question that could carry over into the account of checks, which would make many coins seem few.

        And a check that leaves no room in the ledger: when it is begun, each takes what a wrong guess costs.
        """
        draws, statements = charge % COINS, intervals % STATEMENTS
        if not draws and not statements:
            if intervals and taken()[0] // COINS >= MOST_CHECKS:
                raise BudgetExhausted(
                    f"This ledger has counted all the checks that it can count, {MOST_CHECKS:,}; begin one for new"
                    " rows."
                )
            return
        check.at_most("what one question can take here", MOST_AT_ONCE, draws=draws)
        check.at_most("what one question can make here", MOST_STATEMENTS_AT_ONCE, statements=statements)
        drawn, stated = taken()
        if drawn % COINS > MOST_COINS or stated % STATEMENTS > MOST_STATEMENTS:
            raise BudgetExhausted("This ledger has counted all the draws that it can count; begin one for new rows.")

    @property
    def sentence(self) -> str | None:
        """The promise in one sentence."""
        terms, first, beyond = self.terms, write_margin(self.margin_after(0)), write_margin(self.checks.terms.margin)
        asked, within = "questions without end", f": the first within {first} of the population"
        if terms.queries:
            asked = f"{terms.queries:,} questions"
            within = f": within {first} of the population, and more questions with wider margins"
        return (
            f"{terms.rows:,} rows answer {asked}, each chosen after seeing the earlier answers{within};"
            f" {terms.kept:,} other rows check guesses: one that holds is within its own margin and {beyond}, more"
            f" after wrong guesses; all at once, with probability {100 * terms.confidence:.12g}%."
        )


class CheckDrawer(Checks):
    """Checks on the rows that coins never read."""

    def __init__(self, terms: DrawerTerms) -> None:
        goal = Goal(terms.kept, 0, 1 - terms.kept_beta, identical=terms.identical)
        own = Checks.plan(goal, *Checks.planning.mechanisms)
        assert isinstance(own, CheckTerms)  # there are no flips
        super().__init__(own)

    def so_far(self, answered: AnsweredAmounts) -> ChecksSoFar:
        """The higher bits. Every wrong guess counts as one that could have been wrong in three ways."""
        wrong = answered.charge // COINS
        if wrong >= MOST_CHECKS:
            raise BudgetExhausted(f"{wrong:,} guesses were wrong: checks no longer say anything.")
        checks, failed, under_way = (
            taken // STATEMENTS for taken in (answered.intervals, answered.failed, answered.under_way)
        )
        return ChecksSoFar(checks, wrong, wrong, failed, under_way)

    @staticmethod
    def cost(*, wrong: bool, group: bool) -> tuple[int, int]:
        """In the higher bits."""
        return COINS * wrong, STATEMENTS


@lru_cache(64)  # not a cached property, whose lock a child that is forked meanwhile would wait for (in Python 3.11)
def _checks_under(terms: DrawerTerms) -> CheckDrawer:
    return CheckDrawer(terms)


def beside_checks(coins: Guarantee, kept: int, confidence: float) -> Drawers:
    """Return the guarantee of both drawers: `coins` on its own rows, and `kept` other rows for checks.

    `coins` must have been planned with the confidence that `coins_confidence` returns.
    """
    if not isinstance(coins, Exchange) or coins.terms.ends:
        raise InvalidArgument(
            "checks must be left out with this plan: a drawer for checks takes a session that goes on, under the"
            " exchange guarantee. Leave end and guarantee out, too.",
            name="checks",
        )
    values = {field.name: getattr(coins.terms, field.name) for field in fields(coins.terms)}
    terms = DrawerTerms(**values, kept=kept, kept_beta=PART * (1 - confidence))
    return Drawers(replace(terms, confidence=confidence))


def coins_confidence(confidence: float) -> float:
    """Return the confidence to plan coins with, so that both drawers together have this one."""
    return 1 - (1 - PART) * (1 - confidence)


GUARANTEES.register(Drawers.name, Drawers)
