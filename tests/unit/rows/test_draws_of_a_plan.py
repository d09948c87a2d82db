"""Where draws come from is what a row source says, whoever wrote it: dealt beforehand, damaged, or neither."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from holdfast.errors import BudgetExhausted, InvalidArgument, RowSourceError
from holdfast.guarantees.plan import Plan
from holdfast.guarantees.request import PlanRequest
from holdfast.guarantees.terms import Amounts
from holdfast.rows.memory import memory_rows
from holdfast.rows.source import LedgerView, RowSource
from holdfast.session.session import Session

ROWS, CARDS = 1_000, 250


class Foreign:
    """A row source of somebody's own, around rows in memory."""

    location = None

    def __init__(self) -> None:
        self.rows = memory_rows({"x": np.arange(ROWS) / ROWS}, name="foreign")
        self.name, self.schema, self.fingerprint = "foreign", self.rows.schema, self.rows.fingerprint
        self.heard: list[Any] = []

    def __len__(self) -> int:
        return ROWS

    def tally(self, *args: Any, **options: Any) -> Any:
        self.heard.append("draw")
        return self.rows.tally(*args, **options)

    def sample(self, *args: Any) -> Any:
        return self.rows.sample(*args)

    def verify(self) -> None:
        """Nothing changes here."""


class DealtElsewhere(Foreign):
    """Its draws were made beforehand: so many, and each question is told which it has."""

    dealt = True
    reach = (CARDS, 2**62)

    def plan_for(self, request: PlanRequest) -> Plan:
        return PlanRequest(queries=100, rows_per_query=100, mechanism="coins").make(ROWS)

    def draws_under(self, plan: Plan, ledger: LedgerView) -> "DealtElsewhere":
        self.ledger = ledger
        return self

    def join(self) -> None:
        self.heard.append("join")

    def expect(self, costs: Sequence[Amounts]) -> None:
        self.heard.append(("expect", sum(cost.charge for cost in costs), self.ledger.taken.charge))

    def refuse(self, costs: Sequence[Amounts]) -> None:
        raise BudgetExhausted("No cards are left.", unit="cards")

    def rows_for(self, place: Amounts, cost: Amounts) -> tuple[RowSource, None]:
        self.heard.append(("rows", place.charge, cost.charge))
        return self, None


def test_draws_that_were_dealt_are_reserved_before_a_question_has_its_own() -> None:
    rows = DealtElsewhere()
    with Session(rows, seed=1) as session:
        assert session.plan.rows_per_query == 100
        for number in range(2):
            rows.heard.clear()
            session.mean(f"x > 0.{number}")
            told = [each for each in rows.heard if each not in ("join", ("expect", 0, 0))]
            assert told == [("expect", 100, 100 * number), ("rows", 100 * number, 100), "draw"]
        spent = session.ledger.spent
        with pytest.raises(BudgetExhausted, match="No cards are left"):
            session.mean("x > 0.9")
        with pytest.raises(BudgetExhausted, match="No cards are left"):
            session.ask_many(["x > 0.91", "x > 0.92"])
        with pytest.raises(InvalidArgument, match="mechanism must be left out"):
            session.mean("x > 0.8", mechanism="gaussian")
        assert session.ledger.spent == spent


def test_damage_is_refused_before_anything_is_charged() -> None:
    class Damaged(Foreign):
        def require_sound(self) -> None:
            raise RowSourceError("The rows are damaged.")

        def close(self) -> None:
            self.heard.append("closed")

    rows = Damaged()
    with Session(rows, seed=2) as session:
        for ask in (lambda: session.mean("x > 0.5"), lambda: session.ask_many(["x > 0.5"])):
            with pytest.raises(RowSourceError, match="damaged"):
                ask()
        assert session.ledger.spent.charge == 0
    assert rows.heard == []  # nothing was drawn; who opened the rows closes them
