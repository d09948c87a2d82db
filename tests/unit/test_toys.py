"""Adding a guarantee, a mechanism, a kind of question or a row source is one file and one registration."""

import pytest

import toys
from holdfast import InvalidArgument, NotCovered, PlanConflict, RowSourceError, Session, plan
from holdfast.guarantees import GUARANTEES
from holdfast.guarantees.terms import Fits
from holdfast.questions import KINDS


@pytest.fixture
def modules():
    with toys.added() as found:
        yield found


def test_the_page_has_one_of_each(modules):
    assert list(modules) == ["declared", "whole_table", "percent", "evens"]


def test_a_row_source_is_asked_like_any_other(modules):
    session = Session("evens:100000", queries=200)
    answer = session.mean("even")
    assert answer.low <= 0.5 <= answer.high
    group = session.mean("even", where="number < 50000")
    assert group.low <= 0.5 <= group.high
    assert sum(bar.value for bar in session.histogram("number % 4", categories=[0, 1]).values()) == pytest.approx(
        1, abs=0.1
    )


def test_a_fit_on_a_foreign_row_source(modules):
    from holdfast import losses

    found = Session("evens:100000", queries=200).minimize(losses.Squared({"even": None}, "even"), radius=1.0)
    assert found.loss.low < 0.1


def test_a_kind_is_a_verb_of_the_session(modules):
    session = Session("evens:100000", queries=200)
    answer = session.percent("even", digits=0)
    assert answer.kind == "percent"
    assert answer.low <= 50 <= answer.high
    assert answer.low == int(answer.low)
    assert session.ask("even", "percent", digits=0).cached
    assert session.price("number < 10", "percent").answers == 1
    assert session.dry_run("even", "percent").made_up
    assert KINDS["percent"].read(answer.result(), answer.record) == answer
    assert session.history()["kind"].to_list() == ["percent"]
    with pytest.raises(InvalidArgument, match=r"percent has no option 'digit'\. Did you mean 'digits'"):
        session.percent("even", digit=0)


def test_a_kind_has_no_value_where_there_are_too_few_rows_to_tell(modules):
    session = Session("evens:100000", queries=200)
    answer = session.percent("even", where="number < 2")
    assert answer.too_few
    assert answer.low <= 50 <= answer.high
    assert session.percent("even", where="number < 2").cached


def test_a_guarantee_and_its_mechanism(modules, tmp_path):
    chosen = plan(rows=100_000, queries=10, guarantee="declared")
    assert (chosen.guarantee, chosen.mechanism, chosen.rows_per_query) == ("declared", "whole_table", 100_000)
    assert "declared" in {one.guarantee for one in chosen.alternatives}
    session = Session("evens:100000", queries=10, guarantee="declared", ledger=tmp_path / "ledger")
    assert session.mean("even").value == 0.5
    assert session.budget.answers_left == 9
    with pytest.raises(NotCovered, match="says nothing about groups"):
        session.mean("even", where="number < 10")
    session.close()
    resumed = Session("evens:100000", ledger=tmp_path / "ledger")
    assert resumed.plan.guarantee == "declared"
    assert resumed.mean("even").cached


def test_a_guarantee_promises_nothing_about_fits_unless_it_says_so(modules):
    standing = plan(rows=100_000, queries=10, guarantee="declared").standing
    assert standing.fits == Fits()
    assert standing.fits.expected_step(1.0) is None


def test_a_guarantee_that_is_no_longer_there_is_refused_at_opening(modules, tmp_path):
    with Session("evens:1000", queries=10, guarantee="declared", ledger=tmp_path / "ledger") as session:
        session.mean("even")
    GUARANTEES.pop("declared")
    with pytest.raises(PlanConflict, match="'declared', which this installation does not know; it knows exchange"):
        Session("evens:1000", ledger=tmp_path / "ledger")


def test_what_was_removed_is_gone():
    with toys.added():
        pass
    assert "declared" not in GUARANTEES.names()
    with pytest.raises(RowSourceError):
        Session("evens:1000")
    with pytest.raises(InvalidArgument, match="guarantee must be one of"):
        plan(rows=100, queries=1, guarantee="declared")
