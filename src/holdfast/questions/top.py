"""The most frequent values of a column: of those that were declared, or texts, spelled out letter by letter.

Every round of spelling is one histogram over branches of a tree; the most frequent ones are followed. A text that is
not listed was, at some round, on a branch that was not followed, so it is no more frequent than that branch. The
largest upper end of all branches left behind is therefore a bound for everything that may have been missed.

A text is its characters followed by an end symbol. A branch is all texts that begin with the same prefix and continue
with a symbol from a range, in this order: the end, the characters of an alphabet as declared, any other character.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import ceil
from typing import Annotated, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from holdfast import check
from holdfast.cached import cached_property
from holdfast.errors import InvalidArgument, InvalidQuery
from holdfast.guarantees.statistic import OutcomeShares, Statistic
from holdfast.ledger import Cost
from holdfast.queries.build import declare_once, declared_categories, rowwise
from holdfast.queries.evaluate import Expression, RowFunction
from holdfast.queries.histogram import Histogram, Unlisted
from holdfast.queries.measures import Measure, Share, encode_facts
from holdfast.queries.node import with_article
from holdfast.queries.query import Values
from holdfast.questions import KINDS
from holdfast.questions.answer import Record
from holdfast.questions.estimate import Estimate, write_end
from holdfast.questions.histogram import HistogramAnswer, bars_of
from holdfast.questions.kind import kind_of
from holdfast.questions.options import About, RowsPerQuery, ShortText, Value, Whole
from holdfast.questions.question import Context, Drawing, Question, Result, encode
from holdfast.schema import Type

END = 0  # the first symbol


@dataclass(frozen=True)
class Alphabet:
    """The characters that are told apart, each once."""

    characters: str

    @cached_property
    def size(self) -> int:
        """How many symbols there are, with the end and "any other character"."""
        return len(self.characters) + 2

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {"": END} | {character: place for place, character in enumerate(self.characters, start=1)}

    def symbol(self, character: str) -> int:
        """Return the number of a character; the empty string stands for the end."""
        return self._numbers.get(character, self.size - 1)

    @property
    def all(self) -> "Branch":
        """The branch of all texts."""
        return Branch("", 0, self.size)


@dataclass(frozen=True)
class Branch:
    """All texts that begin with `prefix` and go on with a symbol from `start` to before `stop`."""

    prefix: str
    start: int
    stop: int

    @property
    def spelled_out(self) -> bool:
        """Whether it is one text: the prefix, and then the end."""
        return (self.start, self.stop) == (END, END + 1)

    def split(self, alphabet: Alphabet, ways: int, longest: int) -> "list[Branch]":
        """Return the branches that it divides into: none if it is spelled out, or if nothing tells its texts apart.

        There are at most so many `ways`. After a prefix of `longest` characters, only texts that end there are told
        apart from texts that go on.
        """
        if self.spelled_out:
            return []
        if self.stop - self.start == 1:
            if self.start == alphabet.size - 1:
                return []
            return Branch(self.prefix + alphabet.characters[self.start - 1], 0, alphabet.size).split(
                alphabet, ways, longest
            )
        if len(self.prefix) >= longest:
            return [] if self.start > END else [Branch(self.prefix, END, 1), Branch(self.prefix, 1, self.stop)]
        parts = min(ways, self.stop - self.start)
        step = (self.stop - self.start) / parts
        cuts = [round(self.start + part * step) for part in range(parts + 1)]
        return [Branch(self.prefix, first, last) for first, last in pairwise(cuts)]


@dataclass(frozen=True)
class Spelled(Measure):
    """Which of several disjoint branches a row's text is on; everything else, NULL included, is "other"."""

    value: RowFunction
    alphabet: Alphabet
    branches: tuple[Branch, ...]

    @cached_property
    def statistic(self) -> Statistic:
        """The share of each branch, then of "other"."""
        return OutcomeShares(len(self.branches) + 1)

    @property
    def text(self) -> str:
        """The question in words."""
        return f"spelling of {self.value.text}"

    def _identity(self, value: str, where: str | None) -> str:
        branches = [[one.prefix, one.start, one.stop] for one in self.branches]
        facts = {"kind": "spelled", "alphabet": self.alphabet.characters, "branches": branches}
        return encode_facts({**facts, "value": value, "where": where})

    @cached_property
    def _tables(self) -> dict[str, NDArray[np.int64]]:
        """For every prefix, the branch of each symbol that may follow."""
        tables: dict[str, NDArray[np.int64]] = {}
        for number, one in enumerate(self.branches):
            table = tables.setdefault(one.prefix, np.full(self.alphabet.size, len(self.branches)))
            table[one.start : one.stop] = number
        return tables

    def branch_of(self, text: str) -> int:
        """Return the number of the branch that a text is on; that of "other" if it is on none."""
        none = len(self.branches)
        for length in self._lengths:
            table = self._tables.get(text[:length])
            if table is None or len(text) < length:
                continue
            found = int(table[self.alphabet.symbol(text[length : length + 1])])
            if found < none:
                return found
        return none

    @cached_property
    def _lengths(self) -> list[int]:
        return sorted({len(prefix) for prefix in self._tables})

    def _values(self, values: pl.Series, inside: NDArray[np.bool_] | None) -> Values:
        """Return the number of the branch per row."""
        texts = values.unique().drop_nulls()
        numbers = [self.branch_of(text) for text in texts.to_list()]
        found = values.replace_strict(texts, numbers, default=len(self.branches), return_dtype=pl.Int64)
        return found.to_numpy()


WAYS = 4  # branches that a branch divides into in one round
FEWER = 8  # rounds that only decide where to go on have draws, and levels of statements, divided by this
CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # with end and others, 4^3 symbols
FOLLOWED_BESIDES = 5  # branches that a round follows in addition to as many as texts are listed
MOST, LONGEST = 50, 40

Round = list[tuple[Branch, Estimate]]


@dataclass(frozen=True, repr=False, eq=False)
class TopAnswer(HistogramAnswer):
    """The most frequent values, the most frequent first: a mapping from each to its share. All intervals hold at once.

    Parameters
    ----------
    answers, record
        The pairs of value and answer, and where they come from.
    missed
        No other value has a larger share than this.
    """

    missed: float = 1.0

    def result(self) -> dict[str, Any]:
        """A list of categories, each with value, low and high; the largest share that any other can have."""
        return super().result() | {"missed": self.missed}

    @classmethod
    def read(cls, result: Mapping[str, Any], record: Record) -> "TopAnswer":
        """Rebuild the answer from what `result` returned, and its `record`."""
        return cls(bars_of(result, record), record, result["missed"])

    def details(self) -> list[tuple[str, str]]:
        """What may have been missed."""
        least = min((answer.low for _, answer in self.answers), default=0.0)
        may = "; so one of them may be more frequent than some that are listed" if self.missed > least else ""
        return [("any other", f"at most {write_end(self.missed, 3, up=True)} of the rows{may if self.answers else ''}")]

    @property
    def remark(self) -> str:
        """What a picture does not show: how frequent any other text can be."""
        made_up = super().remark
        return ": ".join(self.details()[0]) + (f" ({made_up})" if made_up else "")

    def __repr__(self) -> str:
        ((name, detail),) = self.details()
        table, _, print_ = super().__repr__().rpartition("\n") if self.answers else ("none stands out", "", "")
        return "\n".join([table, f"{name}: {detail}", print_ or self.record.small_print])


def top(
    context: Context,
    query: Value,
    *,
    longest: Annotated[
        int | None,
        About(Whole(1, "2"), "The most characters that are spelled out; left out, the declared categories are asked."),
    ] = None,
    most: Annotated[int, About(Whole(1, "5"), "How many are looked for.")] = 5,
    alphabet: Annotated[
        str | None, About(ShortText("ABCDEFGH"), "The characters that texts have; left out, letters and digits.")
    ] = None,
    rows_per_query: RowsPerQuery = None,
) -> Question:
    """Return the most frequent values of a column, known beforehand or not, and what may have been missed.

    Parameters
    ----------
    query
        A text, known beforehand or not, or a value of declared categories: a column, or an expression in SQL or Polars.
    longest
        The most characters that are spelled out; longer texts are not found. Left out: the categories that were
        declared, or published, are asked about, and any other value is bounded.
    most
        How many are looked for. All of them are followed at once, letter by letter: more of them cost more answers.
    alphabet
        The characters of texts, each once: A to Z, a to z and 0 to 9, if it is left out. Texts with others are not
        found. Fewer characters cost fewer answers.
    rows_per_query
        Rows that one round reads.

    Returns
    -------
    TopAnswer
        The values that occur, with their shares, and the largest share that any other can have.
    """
    check.whole(most=most)
    check.at_most("the most texts", MOST, most=most)
    value = rowwise(query, context.schema)
    spelled = value.type is Type.STRING
    if not spelled and (longest, alphabet) != (None, None):
        raise InvalidArgument(
            f"longest and alphabet are for texts, which are spelled out; '{value.text}' is {with_article(value.type)}."
            " Leave them out where its values are declared, or ask for a histogram with bins.",
            name="longest",
        )
    if longest is None:
        categories = declared_categories(value, context.schema)
        if categories is None and not spelled:
            raise InvalidQuery(
                f"'{value.text}' is {with_article(value.type)}: only texts can be found without knowing them, letter by"
                " letter. Declare the values that it may have, and top asks about those; or ask for a histogram with"
                f" bins. {declare_once(value.columns, 'categories')}"
            )
        if categories is None or alphabet is not None:
            raise InvalidArgument(
                "longest must be given: how many letters of a text are spelled out at most, such as 3. Only where"
                f" categories of {value.text} are declared is it left out. {declare_once(value.columns, 'categories')}",
                name="longest",
            )
        return _of_declared(context, value, categories, int(most), rows_per_query)
    check.whole(longest=longest)
    check.at_most("the most characters", LONGEST, longest=longest)
    letters = Alphabet(_checked(CHARACTERS if alphabet is None else alphabet))
    start = Spelled(value, letters, (letters.all,))
    draws, at_once = context.draws(start, rows_per_query), max(2, context.answering.most_at_once - 1)
    fewer = _fewer(context)
    few = max(1, draws // fewer)
    longest, most = int(longest), int(most)

    def passes(branches: list[Branch]) -> Iterator[Spelled]:
        for first in range(0, len(branches), at_once):
            yield Spelled(value, letters, tuple(branches[first : first + at_once]))

    def look(drawing: Drawing, branches: list[Branch], rows: int) -> Round:
        found: Round = []
        for asked in passes(branches):
            found += zip(asked.branches, drawing.estimates(asked, rows), strict=False)
        return found

    def run(drawing: Drawing) -> Result:
        search = LetterSearch(letters, longest, most)
        rough = _rough(drawing, fewer)
        while search.open:
            search.learn(look(rough, search.open, few))
        if fewer > 1 and search.spelled:
            search.sharpen(look(drawing, search.spelled, draws))
        return search.result()

    asked_about = rounds(letters, longest, most)
    one_pass = cache(lambda size: Spelled(value, letters, (letters.all,) * size))

    def alike(count: int) -> Iterator[Spelled]:
        """Yield passes about so many branches, whichever these turn out to be: nearly all cost the same."""
        return (one_pass(min(at_once, count - first)) for first in range(0, count, at_once))

    releases = [(one, few) for count in asked_about for one in alike(count)]
    statements = ceil(sum(asked_about) / fewer)
    if fewer > 1:
        releases += [(one, draws) for one in alike(most)]
        statements += most
    cost, rows_read, work = context.price_all(releases)
    facts = {"top": start.identity, "longest": longest, "most": most}
    identity = context.identity(start, draws)
    characters = "1 character" if longest == 1 else f"{longest} characters"
    return Question(
        kind=TOP.name,
        text=f"up to {most} frequent texts of {value.text}, at most {characters} long",
        identity=None if identity is None else encode(facts | {"of": identity}),
        cost=Cost(cost.charge, statements),
        rows_read=rows_read,
        run=run,
        work=work,
    )


def _fewer(context: Context) -> int:
    """Return how many times fewer draws a round has; 1 unless several statements may share the level of one.

    They may not under the information guarantee, whose radius counts every statement, whatever its level.
    """
    return FEWER if context.answering.covers_slices else 1


def _rough(drawing: Drawing, fewer: int) -> Drawing:
    """Return the drawing of a round that only decides where to go on: `fewer` statements share the level of one."""
    return drawing if fewer == 1 else drawing.at_level(drawing.answering.level / fewer)


def _of_declared(
    context: Context, value: RowFunction, categories: Sequence[Any], most: int, rows_per_query: int | None
) -> Question:
    """Return the question about declared values: few draws for all of them, then more for those that are listed."""
    everything = Histogram(value, tuple(categories))
    outside: list[Share] = []  # a condition, or an expression that lists all its values, has no others
    if value.type is not Type.BOOL and not (isinstance(value, Expression) and value.values is not None):
        outside.append(Share(Unlisted(value, tuple(categories))))
    draws, at_once = context.draws(everything, rows_per_query), max(2, context.answering.most_at_once - 1)
    fewer = _fewer(context)
    few, most = max(1, draws // fewer), min(most, len(categories))

    def passes(some: Sequence[Any]) -> list[Histogram]:
        return [Histogram(value, tuple(some[first : first + at_once])) for first in range(0, len(some), at_once)]

    def look(drawing: Drawing, some: Sequence[Any], rows: int) -> dict[Any, Estimate]:
        return {
            category: estimate
            for asked in passes(some)
            for category, estimate in zip(asked.categories, drawing.estimates(asked, rows), strict=False)
        }

    def run(drawing: Drawing) -> Result:
        rough = _rough(drawing, fewer)
        found = look(rough, categories, few)
        others = [estimate for asked in outside for estimate in rough.estimates(asked, few)]
        ranked = sorted(found, key=lambda category: found[category].guess, reverse=True)
        listed = [category for category in ranked[:most] if found[category].low > 0]
        others += [one for category, one in found.items() if category not in listed]
        missed = max((one.high for one in others), default=0.0)
        if fewer > 1 and listed:
            found |= {category: _both(found[category], one) for category, one in look(drawing, listed, draws).items()}
        listed.sort(key=lambda category: found[category].guess, reverse=True)
        return {"categories": [{"category": str(one)} | found[one].to_json() for one in listed], "missed": missed}

    again = passes(categories[:most]) if fewer > 1 else []
    cost, rows_read, work = context.price_all(
        [*((one, few) for one in (*passes(categories), *outside)), *((one, draws) for one in again)]
    )
    statements = ceil((len(categories) + len(outside)) / fewer) + (most if again else 0)
    own = context.identity(everything, draws)
    question = Question(
        kind=TOP.name,
        text=f"up to {most} frequent values of {value.text}, of {len(categories)} that are declared",
        identity=None if own is None else encode({"top": own, "most": most}),
        cost=Cost(cost.charge, statements),
        rows_read=rows_read,
        run=run,
        work=work,
    )
    return context.naming_published(question, value.columns)


def _checked(alphabet: str) -> str:
    if not isinstance(alphabet, str) or not alphabet or len(set(alphabet)) < len(alphabet):
        raise InvalidArgument(f"alphabet must be text with every character once; got {alphabet!r}.", name="alphabet")
    return alphabet


def followed(most: int) -> int:
    """Return how many branches a round follows to find so many texts.

    More than those: a frequent text may begin with letters that hardly any other does, and several less frequent ones
    with the same letters.
    """
    return most + FOLLOWED_BESIDES


class LetterSearch:
    """The rounds: `open` is what the next one asks about, `missed` bounds the share of any text left behind."""

    def __init__(self, alphabet: Alphabet, longest: int, most: int) -> None:
        self._alphabet, self._longest, self._most, self._followed = alphabet, longest, most, followed(most)
        self._spelled: Round = []
        self.missed = 0.0
        self.open = alphabet.all.split(alphabet, WAYS, longest)

    def learn(self, found: Round) -> None:
        """Take in the results of a round: follow the most frequent branches, and bound the share of the others."""
        ranked = sorted(self._spelled + found, key=lambda one: one[1].guess, reverse=True)
        self._leave(ranked[self._followed :])
        self._spelled, self.open = [], []
        for branch, estimate in ranked[: self._followed]:
            divided = branch.split(self._alphabet, WAYS, self._longest)
            if branch.spelled_out and estimate.low > 0:
                self._spelled.append((branch, estimate))
            elif divided and estimate.high > 0:
                self.open += divided
            else:  # longer, spelled with other characters, or perhaps not there at all
                self._leave([(branch, estimate)])
        if not self.open:  # the last round: no more are listed than was asked for
            self._leave(self._spelled[self._most :])
            del self._spelled[self._most :]

    @property
    def spelled(self) -> list[Branch]:
        """The texts that were found so far."""
        return [branch for branch, _ in self._spelled]

    def sharpen(self, found: Round) -> None:
        """Take in more draws of the texts that were found: intersect both intervals, which hold at once."""
        pairs = zip(self._spelled, found, strict=True)
        self._spelled = [(branch, _both(before, after)) for (branch, before), (_, after) in pairs]
        self._spelled.sort(key=lambda one: one[1].guess, reverse=True)

    def _leave(self, behind: Round) -> None:
        self.missed = max([self.missed, *(estimate.high for _, estimate in behind)])

    def result(self) -> Result:
        """Return the texts that were found, and what may have been missed."""
        found = [{"category": branch.prefix} | estimate.to_json() for branch, estimate in self._spelled]
        return {"categories": found, "missed": self.missed}


def _both(before: Estimate, after: Estimate) -> Estimate:
    low, high = max(before.low, after.low), min(before.high, after.high)
    if low > high:  # one of the two is wrong, which has a small probability
        return after
    return Estimate(min(high, max(low, after.guess)), low, high)


def rounds(alphabet: Alphabet, longest: int, most: int) -> list[int]:
    """Return the most branches that each round can ask about, for which the question is charged.

    That depends on how many parts a branch has, not on the characters of its prefix.
    """
    found, reached = [1], {alphabet.all}
    while True:
        parts = [branch.split(alphabet, WAYS, longest) for branch in reached]
        if not any(parts):
            return found[1:]
        found.append(min(followed(most), found[-1]) * max(map(len, parts)))
        reached = {Branch("a" * len(one.prefix), one.start, one.stop) for each in parts for one in each}


TOP = kind_of(top, TopAnswer)
KINDS.register(TOP.name, TOP)
