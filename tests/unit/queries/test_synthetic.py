"""Made-up rows follow the schema, and hold ordinary and hostile values."""

import numpy as np
import polars as pl
import pytest

from holdfast.errors import InvalidArgument
from holdfast.queries.node import PHYSICAL
from holdfast.queries.synthetic import HOSTILE, naming, synthetic_rows
from holdfast.schema import Column, Schema, Type
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


def test_rows_can_be_in_the_groups_that_are_asked_about():
    declared = Schema((Column("s", Type.STRING, True, categories=("x",)), Column("i", Type.INT, True, bounds=(0, 1))))
    assert naming(declared, ["s = 'UA' and i = 3"]) == declared
    asked = ["s = 'it''s' and i = 30 and j2 > 1.5", None, True, {"t": [("UA", 7)]}, ["AA"], 0.25]
    columns = (Column("s", Type.STRING, True), Column("i", Type.INT, True), Column("x", Type.FLOAT, True))
    found = naming(Schema(columns), asked)
    assert [column.categories for column in found] == [("it's", "UA", "AA", "other"), (29, 30, 31, 6, 7, 8), None]
    rows = synthetic_rows(found, 1_000, np.random.default_rng(1))
    assert rows.filter(pl.col("s") == "it's", pl.col("i") == 30).height > 0
    plain = Schema((Column("s", Type.STRING, True),))
    assert naming(plain, ["s IS NULL"]) == plain
