"""Fresh rows: exact intervals, and terms that say nothing of the order."""

from dataclasses import fields
from math import log

import pytest

from holdfast.guarantees.mathematics.concentration import clopper_pearson, kl_range
from holdfast.guarantees.statistic import ExactMeans
from holdfast.guarantees.terms import Terms
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


def test_terms_say_nothing_of_the_order_of_rows():
    assert set(planned("split", "fresh_rows").standing.terms.to_json()) == {field.name for field in fields(Terms)}
