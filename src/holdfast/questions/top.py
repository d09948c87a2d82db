"""The most frequent texts of a column, though nobody declared them: spelled out letter by letter, by coins.

Every round is one histogram over branches of the tree of spellings; the most frequent ones are followed. A text that is
not listed was, at some round, on a branch that was not followed, so no more frequent than that branch. The largest
upper end of all branches that were left is therefore a bound for everything that may have been missed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from holdfast import check
from holdfast.answer import Answer, Estimate, Record, write_end
from holdfast.errors import InvalidArgument, InvalidQuery
from holdfast.ledger import Cost
from holdfast.queries.build import rowwise
from holdfast.queries.functions.operation import with_article
from holdfast.queries.spelling import Alphabet, Branch, Spelled
from holdfast.questions import KINDS
from holdfast.questions.histogram import HistogramAnswer
from holdfast.questions.options import About, Query, RowsPerQuery, ShortText, Text, Whole
from holdfast.questions.question import RELEASE_WORK, Context, Drawing, Question, Result, encode, identity_of, kind_of
from holdfast.schema import Type

WAYS = 4  # that a branch divides into in one round
CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # with end and others, 4^3 symbols
MOST, LONGEST = 50, 40

Round = list[tuple[Branch, Estimate]]


@dataclass(frozen=True, repr=False)
class TopAnswer(HistogramAnswer):
    """The most frequent texts, the most frequent first: a mapping from a text to its share. All intervals hold at once.

    Parameters
    ----------
    answers, record
        The pairs of text and answer, and where they come from.
    missed
        No other text has a larger share than this.
    """

    missed: float = 1.0

    def result(self) -> dict[str, Any]:
        """A list of categories, each with value, low and high; the largest share that any other can have."""
        return super().result() | {"missed": self.missed}

    @classmethod
    def read(cls, result: Mapping[str, Any], record: Record) -> "TopAnswer":
        """Rebuild the answer from what `result` returned, and its `record`."""
        bars = [(bar["category"], Estimate.from_json(bar)) for bar in result["categories"]]
        answers = tuple((label, Answer(one.value, one.low, one.high, record)) for label, one in bars)
        return cls(answers, record, result["missed"])

    def details(self) -> list[tuple[str, str]]:
        """What may have been missed."""
        return [("any other text", f"at most {write_end(self.missed, 3, up=True)} of the rows")]

    def __repr__(self) -> str:
        ((name, said),) = self.details()
        table, _, print_ = super().__repr__().rpartition("\n") if self.answers else ("no text stands out", "", "")
        return "\n".join([table, f"{name}: {said}", print_ or self.record.small_print])


def top(
    context: Context,
    query: Annotated[Query, About(Text("carrier"), "A text about one row, such as a column.")],
    *,
    longest: Annotated[int, About(Whole(1, "2"), "The most characters that are spelled out.")],
    most: Annotated[int, About(Whole(1, "5"), "How many are looked for.")] = 5,
    alphabet: Annotated[
        str | None, About(ShortText("ABCDEFGH"), "The characters that texts have; left out, letters and digits.")
    ] = None,
    rows_per_query: RowsPerQuery = None,
) -> Question:
    """Return the most frequent texts of a column that are not known beforehand, and what may have been missed.

    Parameters
    ----------
    query
        A text: a column, or an expression in SQL or Polars.
    longest
        The most characters that are spelled out; longer texts are not found.
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
        The texts that occur, with their shares, and the largest share that any other text can have.
    """
    check.whole(longest=longest, most=most)
    check.at_most("the most characters", LONGEST, longest=longest)
    check.at_most("the most texts", MOST, most=most)
    value = rowwise(query, context.schema)
    if value.type is not Type.STRING:
        raise InvalidQuery(f"top spells out texts; '{value.text}' is {with_article(value.type)}. Use histogram.")
    letters = Alphabet(_checked(CHARACTERS if alphabet is None else alphabet))
    start = Spelled(value, letters, (letters.all,))
    draws, at_once = context.draws(start, rows_per_query), max(2, context.guarantee.most_at_once - 1)
    longest, most = int(longest), int(most)

    def passes(branches: list[Branch]) -> Iterator[Spelled]:
        for first in range(0, len(branches), at_once):
            yield Spelled(value, letters, tuple(branches[first : first + at_once]))

    def run(drawing: Drawing) -> Result:
        search = LetterSearch(letters, longest, most)
        while search.open:
            found: Round = []
            for asked in passes(search.open):
                found += zip(asked.branches, drawing.estimates(asked, draws), strict=False)
            search.learn(found)
        return search.result()

    asked_about = [[letters.all] * count for count in rounds(letters, longest, most)]
    prices = [context.price(one, draws) for branches in asked_about for one in passes(branches)]
    facts = {"top": start.identity, "longest": longest, "most": most}
    identity = identity_of(start, None if draws == context.rows_per_query else draws)
    return Question(
        kind=TOP.name,
        text=f"the {most} most frequent of {value.text}, up to {longest} characters long",
        identity=None if identity is None else encode(facts | {"of": identity}),
        cost=Cost(sum(cost.charge for cost, _ in prices), sum(cost.intervals for cost, _ in prices)),
        rows_read=sum(rows for _, rows in prices),
        run=run,
        work=len(prices) * (RELEASE_WORK + draws * start.work),
    )


def _checked(alphabet: str) -> str:
    if not isinstance(alphabet, str) or not alphabet or len(set(alphabet)) < len(alphabet):
        raise InvalidArgument(f"alphabet must be text with every character once; got {alphabet!r}.", name="alphabet")
    return alphabet


class LetterSearch:
    """The rounds: `open` is what the next one asks about, `missed` how frequent a text can be that was left behind."""

    def __init__(self, alphabet: Alphabet, longest: int, most: int) -> None:
        self._alphabet, self._longest, self._most = alphabet, longest, most
        self._spelled: Round = []
        self.missed = 0.0
        self.open = alphabet.all.split(alphabet, WAYS, longest)

    def learn(self, found: Round) -> None:
        """Take in what a round says: follow the most frequent branches, and remember how frequent the others can be."""
        ranked = sorted(self._spelled + found, key=lambda one: one[1].guess, reverse=True)
        self._leave(ranked[self._most :])
        self._spelled, self.open = [], []
        for branch, estimate in ranked[: self._most]:
            divided = branch.split(self._alphabet, WAYS, self._longest)
            if branch.spelled_out and estimate.low > 0:
                self._spelled.append((branch, estimate))
            elif divided and estimate.high > 0:
                self.open += divided
            else:  # longer, spelled with other characters, or perhaps not there at all
                self._leave([(branch, estimate)])

    def _leave(self, behind: Round) -> None:
        self.missed = max([self.missed, *(estimate.high for _, estimate in behind)])

    def result(self) -> Result:
        """Return the texts that were found, and what may have been missed."""
        found = [{"category": branch.prefix} | estimate.to_json() for branch, estimate in self._spelled]
        return {"categories": found, "missed": self.missed}


def rounds(alphabet: Alphabet, longest: int, most: int) -> list[int]:
    """Return how many branches every round asks about at most: what the question is charged."""
    size, steps = alphabet.size, 0
    while size > 1:  # until one character is told from all others
        size, steps = -(-size // WAYS), steps + 1
    found = [WAYS]
    while len(found) < longest * steps:
        found.append(WAYS * min(most, found[-1]))
    return [*found, 2 * min(most, found[-1])]  # at last, whether a text ends there


TOP = kind_of(top, TopAnswer)
KINDS.register(TOP.name, TOP)
