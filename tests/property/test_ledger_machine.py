"""A ledger and a plain model of it, driven together by any sequence of steps, stay the same."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from examples import examples
from holdfast.errors import BudgetExhausted
from holdfast.ledger import BudgetMoved, Cost, Entry, Ledger, Spent, check_receipt, open_ledger
from ledger_writer import DATASET, FINGERPRINT, QUESTION, terms

KEYS = st.sampled_from(["a", "b", "ü", "", "c" * 3_000]) | st.none()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


class LedgerMachine(RuleBasedStateMachine):
    """In memory; the file below adds reopening."""

    def place(self) -> Path | None:
        return None

    @initialize(charge=st.integers(0, 60), intervals=st.integers(0, 12))
    def begin(self, charge: int, intervals: int) -> None:
        self.terms = terms(charge, intervals)
        self.caps = Cost(charge, intervals)
        self.location = self.place()
        self.ledger: Ledger = self.open()
        assert self.ledger.begin(self.terms)
        self.model: list[Entry] = []
        self.published = [self.ledger.head.hash]

    def open(self) -> Ledger:
        return open_ledger(self.location, dataset=DATASET, fingerprint=FINGERPRINT)

    @property
    def spent(self) -> Spent:
        charge = sum(entry.cost.charge for entry in self.model)
        return Spent(charge, sum(entry.cost.intervals for entry in self.model), len(self.model))

    def fits(self, cost: Cost) -> bool:
        spent = self.spent
        return (
            spent.charge + cost.charge <= self.caps.charge and spent.intervals + cost.intervals <= self.caps.intervals
        )

    def standing(self, key: str | None) -> Entry | None:
        return next((entry for entry in self.model if key is not None and entry.key == key), None)

    @rule(
        key=KEYS,
        charge=st.integers(0, 20),
        intervals=st.integers(0, 2),
        answer=st.dictionaries(st.text(), JSON, max_size=3),
        stale=st.sampled_from([None, 0, 0, 3]),
    )
    def commit(self, key: str | None, charge: int, intervals: int, answer: dict[str, Any], stale: int | None) -> None:
        cost, standing = Cost(charge, intervals), self.standing(key)
        outcome: Entry | BudgetMoved | BudgetExhausted
        try:
            outcome, fresh = self.ledger.commit(
                key=key,
                question=QUESTION,
                answer=answer,
                cost=cost,
                rows_read=charge,
                expected_charge=None if stale is None else self.spent.charge + stale,
            )
        except (BudgetMoved, BudgetExhausted) as refusal:
            outcome, fresh = refusal, False
        assert fresh == (standing is None and not stale and self.fits(cost))
        if standing is not None:
            assert outcome == standing
        elif stale:
            assert isinstance(outcome, BudgetMoved)
            assert outcome.spent == self.spent
        elif not self.fits(cost):
            assert isinstance(outcome, BudgetExhausted)
            assert outcome.fields["left"] < outcome.fields["cost"]
        else:
            assert isinstance(outcome, Entry)
            assert (outcome.answer, outcome.cost, outcome.seq) == (answer, cost, len(self.model) + 1)
            assert outcome.before == Cost(self.spent.charge, self.spent.intervals)
            assert outcome.previous == self.published[-1]
            self.model.append(outcome)
            self.published.append(outcome.hash)

    @rule(key=KEYS.filter(lambda key: key is not None))
    def find(self, key: str) -> None:
        assert self.ledger.find(key) == self.standing(key)

    @rule(charge=st.integers(0, 20), intervals=st.integers(0, 2))
    def require(self, charge: int, intervals: int) -> None:
        cost = Cost(charge, intervals)
        try:
            self.ledger.require(cost)
        except BudgetExhausted:
            assert not self.fits(cost)
        else:
            assert self.fits(cost)

    @rule(data=st.data())
    def verify(self, data: st.DataObject) -> None:
        head = self.ledger.verify(data.draw(st.sampled_from(self.published)))
        assert head == self.ledger.head
        seq = data.draw(st.integers(0, head.seq))
        check_receipt(self.ledger.receipt(seq), head.hash)

    @rule(start=st.integers(1, 10), limit=st.none() | st.integers(0, 5))
    def read(self, start: int, limit: int | None) -> None:
        end = None if limit is None else start - 1 + limit
        assert list(self.ledger.entries(start, limit)) == self.model[start - 1 : end]

    @precondition(lambda self: self.location is not None)
    @rule(begin=st.booleans(), close=st.booleans())
    def reopen(self, begin: bool, close: bool) -> None:
        old = self.ledger
        if close:
            old.close()
        self.ledger = self.open()
        assert self.ledger.terms == self.terms
        assert not (begin and self.ledger.begin(terms(0, 0)))
        old.close()

    @invariant()
    def same_state(self) -> None:
        if hasattr(self, "ledger"):
            assert self.ledger.spent == self.spent
            assert (self.ledger.head.seq, self.ledger.head.hash) == (len(self.model), self.published[-1])

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()


class FileMachine(LedgerMachine):
    """The same steps on a SQLite file."""

    def place(self) -> Path | None:
        self.folder = tempfile.TemporaryDirectory()
        return Path(self.folder.name) / "trial.ledger"

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            self.folder.cleanup()


TestInMemory = LedgerMachine.TestCase
TestInMemory.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
TestInFile = FileMachine.TestCase
TestInFile.settings = settings(
    max_examples=examples(30), stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
