"""Fresh rows: exact intervals, an order that a ledger fixes, and no order before."""

from math import log

import pytest

from holdfast.errors import PlanConflict
from holdfast.guarantees.mathematics.concentration import clopper_pearson, kl_range
from holdfast.guarantees.release import ExactMeans
from planned import planned


def test_fresh_rows_are_certified_exactly():
    standing = planned("split", "fresh_rows").standing
    ell, level = standing.terms.rows_per_query, 0.05 / 10
    share = standing.share(ExactMeans((0.25,), ell, (0.25,), (ell // 4,)), 0)
    assert share == pytest.approx(clopper_pearson(ell // 4, ell, level))
    mean = standing.share(ExactMeans((0.25,), ell, (0.25,), (None,)), 0)
    assert mean == pytest.approx(kl_range((0.25, 0.25), n=ell, r=log(2 / level)))
    assert mean[1] >= share[1] - 1e-9  # a mean may vary less than a share, but nobody promised


def test_a_group_is_certified_by_the_rows_that_turned_out_to_be_in_it():
    standing = planned("split", "fresh_rows").standing
    ell, level = standing.terms.rows_per_query, 0.05 / 10
    release = ExactMeans((0.4,), ell, (0.1, 0.04), (ell // 10, None))
    assert standing.group(release) == kl_range((0.4, 0.4), n=ell // 10, r=log(2 / level))


def test_the_order_of_rows_is_fixed_when_a_ledger_begins():
    standing = planned("split", "fresh_rows").standing
    with pytest.raises(PlanConflict, match="no order of rows yet"):
        _ = standing.order
    assert standing.begin(7).order == 7
    assert standing.terms.order is None
