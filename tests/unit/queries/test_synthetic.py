"""Made-up rows follow the schema, and hold ordinary and hostile values."""

import numpy as np
import pytest

from holdfast.errors import InvalidArgument
from holdfast.queries.node import PHYSICAL
from holdfast.queries.synthetic import HOSTILE, synthetic_rows
from query_examples import SCHEMA


@pytest.mark.parametrize("count", [0, 1, 500])
def test_rows_follow_the_schema(count):
    rows = synthetic_rows(SCHEMA, count, np.random.default_rng(1))
    assert rows.height == count
    assert rows.columns == list(SCHEMA.names)
    for column in SCHEMA:
        assert rows[column.name].dtype == PHYSICAL[column.type]
        assert column.nullable or rows[column.name].null_count() == 0


def test_hostile_values_and_nulls_occur():
    rows = synthetic_rows(SCHEMA, 2_000, np.random.default_rng(1))
    for column in SCHEMA:
        values = set(rows[column.name].to_list())
        assert set(HOSTILE[column.type]) <= values
        assert (None in values) == column.nullable


def test_ordinary_rows_hold_nothing_hostile():
    rows = synthetic_rows(SCHEMA, 500, np.random.default_rng(1), hostile=0.0)
    assert np.isfinite(rows["x"].to_numpy()).all()
    assert rows["i"].abs().max() <= 1_000


@pytest.mark.parametrize("count", [-1, 1.5, None])
def test_a_count_is_a_count(count):
    with pytest.raises(InvalidArgument):
        synthetic_rows(SCHEMA, count, np.random.default_rng(1))
