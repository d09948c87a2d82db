"""A ledger and a plain model of it, driven together by any sequence of steps, stay the same."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from examples import examples
from holdfast.errors import BudgetExhausted
from holdfast.ledger import Cost, Drawn, Entry, Ledger, Place, Spent, check_receipt, open_ledger
from holdfast.ledger.opening import forget_all
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
        forget_all()  # every run is a new process
        self.location = self.place()
        self.ledger: Ledger = self.open()
        assert self.ledger.begin(self.terms)
        self.model: list[Entry] = []
        self.taken: list[Cost] = []  # by every question, answered or not
        self.waiting: list[tuple[Place, Cost]] = []  # for their answers
        self.published = [self.ledger.head.hash]

    def open(self) -> Ledger:
        return open_ledger(self.location, dataset=DATASET, fingerprint=FINGERPRINT)

    @property
    def spent(self) -> Spent:
        charge = sum(cost.charge for cost in self.taken)
        return Spent(charge, sum(cost.intervals for cost in self.taken), len(self.model))

    def fits(self, cost: Cost) -> bool:
        spent = self.spent
        return (
            spent.charge + cost.charge <= self.caps.charge and spent.intervals + cost.intervals <= self.caps.intervals
        )

    def standing(self, key: str | None) -> Entry | None:
        return next((entry for entry in self.model if key is not None and entry.key == key), None)

    @rule(charge=st.integers(0, 20), intervals=st.integers(0, 2))
    def reserve(self, charge: int, intervals: int) -> None:
        cost, before = Cost(charge, intervals), self.spent
        if not self.fits(cost):
            with pytest.raises(BudgetExhausted) as refused:
                self.ledger.reserve(cost)
            assert refused.value.fields["left"] < refused.value.fields["cost"]
            return
        place = self.ledger.reserve(cost)
        assert place == Place(len(self.taken) + 1, before.charge, before.intervals)
        self.taken.append(cost)
        self.waiting.append((place, cost))

    @rule(costs=st.lists(st.builds(Cost, st.integers(0, 9), st.integers(0, 2)), max_size=4))
    def reserve_all(self, costs: list[Cost]) -> None:
        total = Cost(sum(cost.charge for cost in costs), sum(cost.intervals for cost in costs))
        if not self.fits(total):
            with pytest.raises(BudgetExhausted):
                self.ledger.reserve_all(costs)
            return
        for place, cost in zip(self.ledger.reserve_all(costs), costs, strict=True):
            before = self.spent
            assert place == Place(len(self.taken) + 1, before.charge, before.intervals)
            self.taken.append(cost)
            self.waiting.append((place, cost))

    @precondition(lambda self: self.waiting)
    @rule(key=KEYS, answer=st.dictionaries(st.text(), JSON, max_size=3), data=st.data())
    def commit(self, key: str | None, answer: dict[str, Any], data: st.DataObject) -> None:
        place, cost = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        standing = self.standing(key)
        entry, fresh = self.ledger.commit(
            Drawn(place, key=key, question=QUESTION, answer=answer, cost=cost, rows_read=cost.charge)
        )
        assert fresh == (standing is None)
        if standing is not None:
            assert entry == standing
            return
        assert (entry.answer, entry.cost, entry.seq) == (answer, cost, len(self.model) + 1)
        assert entry.place == place
        assert entry.previous == self.published[-1]
        self.model.append(entry)
        self.published.append(entry.hash)

    @rule(key=KEYS.filter(lambda key: key is not None))
    def find(self, key: str) -> None:
        assert self.ledger.find(key) == self.standing(key)

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
