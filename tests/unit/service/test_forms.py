"""What an empty form suggests: questions about this dataset that are worth an answer."""

from dataclasses import replace

from holdfast.schema import Column, Schema, Type
from holdfast.service.forms import suggestions

YEAR, DELAY = Column("year", Type.INT, False), Column("delay", Type.FLOAT, True)


def first_words(*columns: Column) -> str:
    return suggestions(Schema(columns, "flights"))[0]["words"]


def test_a_whole_number_may_be_a_year_so_it_is_suggested_last() -> None:
    assert first_words(YEAR, DELAY) == "How often is delay > 0?"
    assert first_words(YEAR) == "How often is year > 0?"


def test_a_declared_range_comes_first() -> None:
    declared = replace(YEAR, bounds=(2000.0, 2020.0))
    assert first_words(DELAY, declared) == "How often is year > 2010?"
