"""Turn a SELECT into the questions that answer it, and their answers into a frame.

A statement becomes a list of questions of ordinary kinds, asked like any other: what was asked before, by SQL or a
verb, is free. NULL is treated as in SQL: AVG, also of a condition, leaves out rows without a value.

A count is a share of the rows, and a sum a mean over all of them, times the number of rows, which is public. Counts
are whole numbers, the ends of their intervals rounded outwards to such.

Groups are those of the declared values of a column, never those of the values that occur.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, nan
from typing import Any

import polars as pl

from holdfast.errors import InvalidArgument, InvalidQuery, UnknownName
from holdfast.queries.build import combinations, declare_once, declared_categories, undeclared
from holdfast.queries.evaluate import Expression
from holdfast.queries.node import identifier, literal_text
from holdfast.queries.parse import from_text
from holdfast.queries.select import Item, Key, Select, read_select, whole_number
from holdfast.queries.tokens import AGGREGATES
from holdfast.questions import KINDS
from holdfast.questions.answer import AnyAnswer
from holdfast.questions.estimate import Estimate, rounded_alike, times
from holdfast.questions.options import Real
from holdfast.questions.plot import aggregates_of
from holdfast.schema import Schema, Type

MOST_QUESTIONS = 500  # of one statement, with all its groups

Question = dict[str, Any]  # a question of a batch
Group = tuple[Any, ...]  # a value for each expression of GROUP BY


@dataclass(frozen=True)
class _Column:
    """A column of the result: a value of each group, or where to find the answers of an aggregate."""

    name: str
    values: tuple[Any, ...] | None = None
    answers: tuple[tuple[int, int] | None, ...] = ()  # which interval of which question; None: every row is counted
    scale: int = 1  # for a count or a sum: the number of rows, which multiplies a share or a mean
    counts: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns in the frame: an aggregate also has the ends of its interval."""
        return (self.name,) if self.values is not None else (self.name, f"{self.name}_low", f"{self.name}_high")


@dataclass(frozen=True)
class Selected:
    """The questions of a statement, what a refusal calls each of them, and how their answers become a frame."""

    questions: tuple[Question, ...]
    names: tuple[str, ...]
    rows: int
    _columns: tuple[_Column, ...]
    _order: tuple[tuple[str, Key], ...] = ()  # names of columns, and how to sort by each
    _cut: tuple[int, int | None] = (0, None)  # offset and limit

    def frame(self, answers: Sequence[AnyAnswer]) -> pl.DataFrame:
        """Return a line for each group, and for every aggregate three columns: its value, its low and high ends."""
        made: dict[str, Any] = {}
        for column in self._columns:
            if column.values is not None:
                made[column.name] = list(column.values)
                continue
            every = Estimate(self.rows, self.rows, self.rows)
            found = [
                every if place is None else _scaled(answers[place[0]].rows()[place[1]][1], column)
                for place in column.answers
            ]
            values = [None if one.too_few else one.value for one in found]
            numbers: list[list[float | None]] = [values, [one.low for one in found], [one.high for one in found]]
            dtype = pl.Int64 if column.counts else pl.Float64  # also where every group has too few rows to tell
            made |= {name: pl.Series(name, each, dtype) for name, each in zip(column.names, numbers, strict=True)}
        frame = pl.DataFrame(made)
        if self._order:
            names, keys = zip(*self._order, strict=True)
            last = [not key.nulls_first for key in keys]
            descending = [key.descending for key in keys]
            frame = frame.sort(names, descending=descending, nulls_last=last, maintain_order=True)
        return frame.slice(*self._cut)


def _scaled(one: Estimate, column: _Column) -> Estimate:
    """Multiply an estimate, its ends rounded outwards, those of a count to whole numbers."""
    low, high = times(column.scale, (one.low, one.high))
    value = one.value * column.scale
    if column.counts:
        low, high, value = floor(low), ceil(high), value if one.too_few else round(value)
    return Estimate(value, low, high)


def written_table(frame: pl.DataFrame) -> tuple[list[str], list[list[str]], list[int]]:
    """Write the frame of a SELECT for people: headings, lines, and which columns are numbers.

    An interval stands beside its value, its ends rounded outwards.
    """
    headings, columns, numbers, aggregates = [], [], [], aggregates_of(frame)
    for name in frame.columns:
        if any(name in both for both in aggregates.values()):
            continue
        if name not in aggregates:
            headings.append(name)
            columns.append([str(value) for value in frame[name]])
            continue
        lines = frame.select(name, *aggregates[name]).rows()
        texts = rounded_alike([Estimate(nan if value is None else value, low, high) for value, low, high in lines])
        numbers.append(len(headings))
        headings += [name, ""]
        columns += [[value for value, _, _ in texts], [f"[{low}, {high}]" for _, low, high in texts]]
    return headings, [list(line) for line in zip(*columns, strict=True)], numbers


def select(text: str, schema: Schema, rows: int) -> Selected:
    """Return the questions of a SELECT over the table of a schema, which has so many `rows`, or refuse it."""
    return _Compiler(read_select(text), schema, rows).selected()


class _Compiler:
    """Turns one statement into questions."""

    def __init__(self, statement: Select, schema: Schema, rows: int) -> None:
        if statement.table.lower() != schema.dataset.lower():
            known = f"this one is called {schema.dataset!r}. Write FROM {identifier(schema.dataset)}."
            raise UnknownName(f"No table {statement.table!r}: {known}", name=statement.table)
        self.statement, self.schema, self.rows = statement, schema, rows
        self.by = [from_text(self._unaliased(group), schema) for group in statement.groups]
        self.groups: Sequence[Group] = combinations([self._categories(one) for one in self.by])
        self.questions: list[Question] = []
        self.names: list[str] = []

    def selected(self) -> Selected:
        """Return the questions and the columns of the result."""
        columns = [self._column(item) for item in self.statement.items]
        names = [name for column in columns for name in column.names]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InvalidQuery(f"Two columns would be called {twice!r}; name one of them with AS.")
        if all(column.values is not None for column in columns):
            raise InvalidQuery("A SELECT needs an aggregate, such as COUNT(*) or AVG(x); rows are never shown.")
        order = tuple((self._sorted_by(key, columns), key) for key in self.statement.order)
        cut = self.statement.offset, self.statement.limit
        return Selected(tuple(self.questions), tuple(self.names), self.rows, tuple(columns), order, cut)

    def _sorted_by(self, key: Key, columns: Sequence[_Column]) -> str:
        """Return the name of the column that ORDER BY means."""
        number = whole_number(key.text)
        if number is not None and 1 <= number <= len(columns):
            return columns[number - 1].name
        texts = [(item.name, item.text) for item in self.statement.items]
        for same in (str, _loosely):  # as written; else ignoring case and blanks
            for written, column in zip(texts, columns, strict=True):
                if same(key.text) in map(same, written):
                    return column.name
        raise InvalidQuery(
            f"ORDER BY {key.text} must be a column of the result, by its name or its number: "
            f"{', '.join(column.name for column in columns)}."
        )

    def _unaliased(self, group: str) -> str:
        """Return what a name in GROUP BY stands for: a column, or else the expression with this alias."""
        name = group.strip('"').lower()
        if any(column.name.lower() == name for column in self.schema):
            return group
        items = self.statement.items
        return next((item.text for item in items if item.aggregate is None and item.name.lower() == name), group)

    def _categories(self, by: Expression) -> tuple[Any, ...]:
        found = declared_categories(by, self.schema)
        if found is None:
            if by.text not in map(identifier, by.columns):
                raise InvalidQuery(
                    f"GROUP BY {by.text} has no declared values. It goes over columns with declared categories, over"
                    " yes-or-no expressions, CASE with constants, and parts of dates such as MONTH(x)."
                )
            raise InvalidQuery(
                f"GROUP BY {by.text} needs the categories of {by.text}: they are declared, never read from the data."
                f" {declare_once(by.columns, 'categories')}"
            )
        return found

    def _column(self, item: Item) -> _Column:
        if item.aggregate is None:
            if item.text.upper() in AGGREGATES and item.text not in self.schema:
                raise InvalidQuery(f"{item.text} takes its argument in brackets: {item.text}(x).")
            text = from_text(item.text, self.schema).text
            for place, by in enumerate(self.by):
                if by.text == text:
                    return _Column(item.name, tuple(group[place] for group in self.groups))
            raise InvalidQuery(f"{item.text} must be inside an aggregate, such as COUNT({item.text}), or in GROUP BY.")
        make = _AGGREGATES[item.aggregate]
        scale, counts = self._scale(item), self._counts(item)
        everything = item.aggregate == "COUNT" and item.arguments in (("*",), ("1",))
        if everything and not self.by and self.statement.where is None:
            return _Column(item.name, answers=(None,), scale=scale, counts=True)
        if everything and len(self.by) == 1:  # one histogram counts all groups
            place = self._ask(self._histogram(self.by[0].text), item.text)
            lines = tuple((place, line) for line in range(len(self.groups)))
            return _Column(item.name, answers=lines, scale=scale, counts=True)
        if item.aggregate == "AVG" and self.by:  # one question serves all groups
            texts = [by.text for by in self.by]
            question = make(item, self.statement.where, self.schema) | {"by": texts[0] if len(texts) == 1 else texts}
            place = self._ask(question, item.text)
            return _Column(item.name, answers=tuple((place, line) for line in range(len(self.groups))))
        answers = []
        for group in self.groups:
            answers.append((self._ask(make(item, self._condition(group), self.schema), item.text), 0))
        return _Column(item.name, answers=tuple(answers), scale=scale, counts=counts)

    def _scale(self, item: Item) -> int:
        """Return the number of rows for a count or a sum, else 1; refuse counts and sums for data with units."""
        if item.aggregate not in ("COUNT", "COUNT_IF", "SUM"):
            return 1
        if self.schema.unit is not None:
            raise InvalidQuery(
                f"{item.text} is not available where rows belong to units ({self.schema.unit}): every unit counts once,"
                " whatever its number of rows. AVG is."
            )
        return self.rows

    def _counts(self, item: Item) -> bool:
        """Whether an aggregate counts rows: so does the SUM of a condition."""
        if item.aggregate == "SUM" and len(item.arguments) == 1:
            return from_text(item.arguments[0], self.schema).type is Type.BOOL
        return item.aggregate in ("COUNT", "COUNT_IF")

    def _histogram(self, by: str) -> Question:
        """Return the question for the share of every group."""
        where = self.statement.where
        counted = by if where is None else _if(where, by)
        return {"kind": "histogram", "query": counted, "categories": [group[0] for group in self.groups]}

    def _condition(self, group: Group) -> str | None:
        """Return the text of WHERE and of the condition of being in the group."""
        texts = [] if self.statement.where is None else [self.statement.where]
        for by, value in zip(self.by, group, strict=True):
            texts.append(f"{_bracketed(by.text)} = {literal_text(value)}")
        return _all_of(texts)

    def _ask(self, question: Question, name: str) -> int:
        kind = question["kind"]
        if KINDS.find(kind) is None:
            raise InvalidQuery(f"{name} is not available: there are no questions of the kind {kind!r}.")
        if len(self.questions) >= MOST_QUESTIONS:
            raise InvalidQuery(f"A SELECT must be at most {MOST_QUESTIONS} questions, with all groups; this is more.")
        self.questions.append({option: value for option, value in question.items() if value is not None})
        self.names.append(name)
        return len(self.questions) - 1


# -- aggregates -------------------------------------------------------------------------------------------------------


def _average(item: Item, condition: str | None, schema: Schema) -> Question:
    (value,) = _texts(item, 1)
    checked = _ranged(item, value, schema)
    if checked.type is Type.BOOL and checked.nullable:
        condition = _all_of([*_listed(condition), f"{_bracketed(value)} IS NOT NULL"])
    return {"kind": "mean", "query": value, "where": condition}


def _count(item: Item, condition: str | None, schema: Schema) -> Question:
    (value,) = _texts(item, 1)
    present = [] if value in ("*", "1") else [f"{_bracketed(value)} IS NOT NULL"]
    return {"kind": "mean", "query": _all_of([*_listed(condition), *present])}


def _count_if(item: Item, condition: str | None, schema: Schema) -> Question:
    (value,) = _texts(item, 1)
    return {"kind": "mean", "query": _all_of([*_listed(condition), value])}


def _sum(item: Item, condition: str | None, schema: Schema) -> Question:
    """Ask for the mean of what each row adds: 0 if it does not count or has no value."""
    (value,) = _texts(item, 1)
    checked = _ranged(item, value, schema)
    if checked.type is Type.BOOL:
        return _count_if(item, condition, schema)
    low, high = checked.range or (0.0, 0.0)
    if low > 0 or high < 0:  # clipped here, since the range of what is added goes on to 0
        beyond, end = ("<", low) if low > 0 else (">", high)
        value = f"CASE WHEN {_bracketed(value)} {beyond} {end!r} THEN {end!r} ELSE {_bracketed(value)} END"
    added = value if condition is None else _if(condition, value)
    return {"kind": "mean", "query": f"COALESCE({_bracketed(added)}, 0)"}


def _quantile(item: Item, condition: str | None, schema: Schema) -> Question:
    value, *given = _texts(item, 1 if item.aggregate == "MEDIAN" else 2)
    q = Real().parse(f"the share in {item.text}", given[0]) if given else 0.5
    _ranged(item, value, schema)
    return {"kind": "quantile", "query": value, "q": q, "where": condition}


def _of_one(kind: str) -> "Callable[[Item, str | None, Schema], Question]":
    def make(item: Item, condition: str | None, schema: Schema) -> Question:
        (value,) = _texts(item, 1)
        _ranged(item, value, schema)
        return {"kind": kind, "query": value, "where": condition}

    return make


def _of_two(kind: str, *, dependent_first: bool = False) -> "Callable[[Item, str | None, Schema], Question]":
    def make(item: Item, condition: str | None, schema: Schema) -> Question:
        one, other = reversed(_texts(item, 2)) if dependent_first else _texts(item, 2)
        for each in (one, other):
            _ranged(item, each, schema)
        return {"kind": kind, "query": one, "other": other, "where": condition}

    return make


_AGGREGATES: Mapping[str, "Callable[[Item, str | None, Schema], Question]"] = {
    "AVG": _average,
    "COUNT": _count,
    "COUNT_IF": _count_if,
    "SUM": _sum,
    "MEDIAN": _quantile,
    "QUANTILE": _quantile,
    "PERCENTILE": _quantile,
    "STDDEV": _of_one("std"),
    "VARIANCE": _of_one("variance"),
    "CORR": _of_two("correlation"),
    "COVAR": _of_two("covariance"),
    "SLOPE": _of_two("slope", dependent_first=True),
}


def _ranged(item: Item, text: str, schema: Schema) -> Expression:
    """Return the argument of an aggregate; refuse a number without a declared range, which SQL has no way to give."""
    value = from_text(text, schema)
    if value.type.is_number and value.range is None:
        why = undeclared(value)
        if "declare" not in why.partition("; ")[2]:  # declaring columns would not suffice
            why += " A question of the kind mean takes a range; here, average a condition instead: AVG(x > 15)."
        raise InvalidArgument(f"{item.text} needs the range of {text}. {why}", name="within")
    return value


def _texts(item: Item, count: int) -> tuple[str, ...]:
    if len(item.arguments) != count:
        called = item.text.partition("(")[0].strip().upper()
        noun = "argument" if count == 1 else "arguments"
        raise InvalidQuery(f"{called} takes {count} {noun}; got {len(item.arguments)} in {item.text}.")
    return item.arguments


def _loosely(text: str) -> str:
    return "".join(text.strip('"').lower().split())


def _listed(condition: str | None) -> list[str]:
    return [] if condition is None else [condition]


def _all_of(conditions: Sequence[str]) -> str | None:
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return " AND ".join(map(_bracketed, conditions))


def _if(condition: str, value: str) -> str:
    return f"CASE WHEN {_bracketed(condition)} THEN {_bracketed(value)} END"


def _bracketed(text: str) -> str:
    """Put brackets around a text, so that it keeps its meaning inside another text."""
    return f"({text})"
