"""A guess at a share or a mean, the cells that its outcome falls into, and the code length of the question.

A question is encoded by the text of its functions, in a fixed code that depends on the schema alone, never on rows. The
text is split into tokens; white space between them is ignored. Each token is a column, a word of the language, a
number, a plain text or anything else, and an end follows the last. Their probabilities:

    column    1/4, all columns equally likely, with quotation marks or without
    word      1/4, all words equally likely
    number    1/4, spelled with 15 symbols, one of which ends it
    text      1/16, spelled with 96 symbols, for a constant of printable ASCII characters
    other     1/16, spelled with 257 symbols, for arbitrary bytes
    end       1/8

So the probabilities of all texts sum to at most 1, and the code length of a text is -log of its probability. Intervals
in a ledger rely on this one code: any change to it, or to its words, must raise the format number of ledgers
(`ledger/chain.py`), like every other change that would make older entries misread.
"""

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import floor, frexp, inf, log, log10
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast.guarantees.statistic import HOLDS, TOO_FEW, TOO_HIGH, TOO_LOW, GroupMean, Statistic
from holdfast.queries.evaluate import booleans, floats
from holdfast.queries.measures import Mean, Share
from holdfast.queries.query import Folded, Function, RowValues, Values
from holdfast.schema import Schema, Type

Interval = tuple[float, float]
Conditions = Any  # one boolean per row, in a series or in an array
Ratio = tuple[int, int]  # numerator and positive denominator, not in lowest terms
Totals = NDArray[np.float64]  # counts, which are exact up to 2^53, and sums
CHUNK = 1 << 16  # numbers summed at once, few enough to stay in the CPU cache
WIDE = 900  # binary digits: sums of numbers in a range below 2^900 are far below the largest number
_LANGUAGE = """
    = <> < <= > >= + - * / % ( ) , || AND OR NOT IN BETWEEN LIKE IS NULL TRUE FALSE CASE WHEN THEN ELSE END CAST AS
    COALESCE ABS ROUND FLOOR CEIL SQRT LN EXP LOWER UPPER LENGTH TRIM YEAR MONTH DAY HOUR EXTRACT FROM DATE
"""
WORDS = frozenset(_LANGUAGE.split())
_TOKEN = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[^\W\d]\w*|\d[\d.]*(?:e[+-]?\d+)?|<>|<=|>=|\|\||\S""")
_NUMBER = re.compile(r"[0-9][0-9.]*(?:e[+-]?[0-9]+)?")  # ASCII digits only: all others would need more than 15 symbols
_PLAIN = re.compile(r"'[ -&(-~]*'")
_PART, _END, _RARE = log(4), log(8), log(16)
_SIGNS, _LETTERS, _BYTES = log(15), log(96), log(257)


@dataclass(frozen=True)
class Guess(Folded):
    """The claim that a measure lies within `margin` of `guess`, in its own units, on at least `at_least` rows.

    The mean is compared with the ends of its cell exactly: which cell a count falls into does not depend on rounding.
    """

    measure: Share | Mean
    guess: float
    margin: float
    at_least: int

    @property
    def group(self) -> bool:
        """Whether it is about a group, which may turn out to be too small."""
        return isinstance(self.statistic, GroupMean)

    def least_rows(self, rows: int) -> int:
        """Return the least number of rows that the measure is about, out of `rows`."""
        return self.at_least if self.group else rows

    @property
    def cell(self) -> Interval:
        """The cell in [0, 1], both ends included, where the guess holds. Its ends are exactly these rounded numbers."""
        low, high = self.bounds
        first, last = ((end - low) / (high - low) for end in (self.guess - self.margin, self.guess + self.margin))
        return max(0.0, first), min(1.0, last)

    @property
    def bounds(self) -> Interval:
        """The declared range."""
        return self.measure.bounds

    @property
    def statistic(self) -> Statistic:
        """The statistic that is guessed."""
        return self.measure.statistic

    @property
    def text(self) -> str:
        """The question in words."""
        rows = "1 row" if self.at_least == 1 else f"{self.at_least:,} rows"
        fewest = f", on at least {rows}" if self.group else ""
        return f"{self._subject} is {_beside(self.guess, self.margin)} ± {self.margin:.6g}{fewest}"

    @property
    def _subject(self) -> str:
        return self.measure.text

    @property
    def identity(self) -> str | None:
        """Canonical text of the measure; the caller adds the numbers."""
        return self.measure.identity

    @property
    def functions(self) -> tuple[Function, ...]:
        """The value, and the group."""
        return self.measure.functions

    def code_nats(self, schema: Schema) -> float:
        """Return the code length of the measure, without the guess, in nats; the schema fixes the code."""
        if schema.unit is not None:
            return inf
        columns, texts = [each.name for each in schema], [each.identity for each in self.functions]
        if isinstance(self.measure, Share):
            return functions_nats(texts, (), columns)
        # log(2) encodes whether missing values count as the lowest (columns are declared complete) or are left out.
        return log(2) + functions_nats(texts, self.measure.bounds, columns)

    def combined(self, row_values: Sequence[RowValues]) -> Values:
        """Return each row's value; for a group, one line per row with the values of all `functions`."""
        return np.column_stack(list(map(floats, row_values))) if self.group else self.measure.combined(row_values)

    def totals(self, values: Values) -> Totals:
        """Return the same as `fold`, from the result of `evaluate`."""
        if not self.group:
            exact = values.dtype == np.bool_
            return np.array([[values.size], [np.count_nonzero(values) if exact else float(np.sum(values))]], np.float64)
        value, *groups = values.T
        return self.fold([value, *(group == 1 for group in groups)])

    def fold(self, row_values: Sequence[RowValues]) -> Totals:
        """Return how many rows count and the sum of their values, for all rows or for each group.

        `row_values` are those of each of `functions`. Every row takes the same steps, whatever its values are.
        """
        value, *groups = row_values
        if isinstance(self.measure, Share):
            return _counts([value, *groups])
        inside = _apart([booleans(group) for group in groups])
        whole = self.measure.value  # a column itself: what is made of an infinite number may have no value
        present = whole.type is Type.INT and not whole.nullable and whole.direct is not None
        return _sums(value, inside, self.measure.bounds, None if present else self.group)

    def outcome(self, totals: Totals) -> str:
        """Return the cell that the mean falls into."""
        counts, sums = totals.tolist()
        if min(counts) < self.at_least:
            return TOO_FEW
        low, high = self.cell
        # No mean is above 1, but for the rounding of its sum.
        mean = self._value([_ratio(min(total, count), count) for count, total in zip(counts, sums, strict=True)])
        return TOO_HIGH if _below(mean, low) else TOO_LOW if _below(high, mean) else HOLDS  # exactly

    def _value(self, means: list[Ratio]) -> Ratio:
        (mean,) = means
        return mean


@dataclass(frozen=True)
class DifferenceGuess(Guess):
    """The same claim about the difference to another group; rows in both groups count in the first only.

    With at least N rows in each group, (1 + difference)/2 is a mean of values in [0, 1] in which no row weighs more
    than 1/(2N): the average of the mean in the first group and of one minus the mean in the other.
    """

    other: Share | Mean

    @property
    def group(self) -> bool:
        """Two groups."""
        return True

    def least_rows(self, rows: int) -> int:
        """Return the least number of rows that the difference is about, in both groups together."""
        return 2 * self.at_least

    @property
    def bounds(self) -> Interval:
        """The range of a difference."""
        low, high = self.measure.bounds
        return low - high, high - low

    @property
    def _subject(self) -> str:
        return f"{self.measure.text} less {self.other.text}"

    @property
    def identity(self) -> str | None:
        """Canonical text of both."""
        own, other = self.measure.identity, self.other.identity
        return None if own is None or other is None else json.dumps([own, other])

    @property
    def functions(self) -> tuple[Function, ...]:
        """The value, which both groups share, and the conditions of both groups."""
        return (*self.measure.functions, *self.other.functions[1:])

    def _value(self, means: list[Ratio]) -> Ratio:
        (own, of_own), (other, of_other) = means
        return of_own * of_other + own * of_other - other * of_own, 2 * of_own * of_other


def _ratio(total: float, count: float) -> Ratio:
    """Return total/count as whole numbers; counts are whole, and above zero."""
    above, below = total.as_integer_ratio()
    return above, below * int(count)


def _below(first: Ratio | float, second: Ratio | float) -> bool:
    """Whether one number is less than another, exactly."""
    (a, b), (c, d) = (each.as_integer_ratio() if isinstance(each, float) else each for each in (first, second))
    return a * d < c * b


def _apart(groups: list[Conditions]) -> list[Conditions]:
    """Return groups that share no row: a row in several groups counts in the first of them."""
    apart, before = groups[:1], groups[0] if groups else None
    for group in groups[1:]:
        assert before is not None
        apart.append(group & ~before)
        before = before | group
    return apart


def _counts(row_values: list[RowValues]) -> Totals:
    """Return how many rows are in each group, and for how many of them the first of `row_values` is true."""
    first, *others = _alike(row_values)
    if not others:
        return np.array([[len(first)], [_count(first)]], np.float64)
    groups = _apart(others)
    return np.array([[_count(group) for group in groups], [_count(group & first) for group in groups]], np.float64)


def _alike(row_values: list[RowValues]) -> list[Conditions]:
    """Return conditions that can be combined: all as arrays, or all as series, which take an eighth of the memory."""
    if not any(isinstance(each, pl.Series) and each.dtype == pl.Boolean for each in row_values):
        return [
            booleans(each) if isinstance(each, pl.Series) else each.astype(np.bool_, copy=False) for each in row_values
        ]
    series = [
        each if isinstance(each, pl.Series) else pl.Series(each.astype(np.bool_, copy=False)) for each in row_values
    ]
    # Sums skip NULL. With several groups NULL must become false, because `_apart` negates conditions.
    return series if len(row_values) < 3 else [each & each.is_not_null() for each in series]


def _count(conditions: Conditions) -> int:
    return int(conditions.sum() if isinstance(conditions, pl.Series) else np.count_nonzero(conditions))


def _sums(value: RowValues, groups: list[NDArray[np.bool_]], bounds: Interval, missing: bool | None) -> Totals:
    """Return counts and sums of values in [0, 1].

    Missing values count in no group if `missing` is True, and as the lowest if it is False. None: there cannot be any,
    by type and declaration.
    """
    low, high = bounds
    numbers = floats(value)
    totals = np.zeros((2, max(1, len(groups))))
    # A sum that overflows would tell how large it is. A power of two changes no digit.
    smaller = 2.0 ** min(0, WIDE - frexp(high - low)[1])
    for start in range(0, numbers.size, CHUNK):
        part = numbers[start : start + CHUNK]
        inside = [group[start : start + CHUNK] for group in groups]
        above = np.clip(part, low, high)
        if missing is not None:
            np.fmax(above, low, out=above)
        if low:
            above -= low
        if smaller < 1:
            above *= smaller
        if missing:
            known = ~np.isnan(part)
            inside = [each & known for each in inside] or [known]
        for number, each in enumerate(inside):
            totals[:, number] += np.count_nonzero(each), np.multiply(above, each).sum()
        if not inside:
            totals[:, 0] += above.size, above.sum()
    totals[1] /= (high - low) * smaller
    return totals


def _beside(guess: float, margin: float) -> str:
    """Write a guess with no more digits than matter beside its margin.

    >>> _beside(0.215826111317503, 0.01), _beside(12.5, 3.0), _beside(0.2, 0.0)
    ('0.21583', '12.5', '0.2')
    """
    return f"{guess:.15g}" if margin <= 0 else f"{round(guess, 3 - floor(log10(margin))):.15g}"


def text_nats(text: str, columns: Collection[str]) -> float:
    """Return the code length of a text about these columns, in nats."""
    return _END + sum(_token_nats(token, columns) for token in _TOKEN.findall(text))


def _token_nats(token: str, columns: Collection[str]) -> float:
    if token in columns or (token[:1] == '"' and token[1:-1].replace('""', '"') in columns):
        return _PART + log(len(columns)) + log(2)  # with or without quotation marks
    if token in WORDS:
        return _PART + log(len(WORDS))
    if _NUMBER.fullmatch(token):
        return _PART + (len(token) + 1) * _SIGNS
    if _PLAIN.fullmatch(token):
        return _RARE + (len(token) - 1) * _LETTERS
    return _RARE + (len(token.encode()) + 1) * _BYTES


def functions_nats(identities: Iterable[str | None], numbers: Iterable[float], columns: Collection[str]) -> float:
    """Return the code length, in nats, of a question made of these functions and numbers, at most three of each.

    It is infinite if a function has no text.
    """
    texts, ends = list(identities), list(numbers)
    if any(text is None or text.startswith("polars:") for text in texts) or max(len(texts), len(ends)) > 3:
        return inf
    written = sum(text_nats(str(text), columns) for text in texts)
    return 2 * log(4) + written + sum((len(repr(float(end))) + 1) * _SIGNS + log(2) for end in ends)
