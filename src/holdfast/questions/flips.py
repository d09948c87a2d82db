"""Single flips (sampling counting queries): 0 or 1, with expectation near the share of rows that meet a condition."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.guarantees.guarantee import MOST_DRAWS
from holdfast.guarantees.statistic import OneShare, SingleFlips, Statistic, Tally
from holdfast.mechanisms.coins import bits
from holdfast.queries.build import build_mean
from holdfast.queries.measures import Share
from holdfast.questions import KINDS
from holdfast.questions.answer import Answer, AnyAnswer, Record, answer_of
from holdfast.questions.estimate import Estimate
from holdfast.questions.kind import kind_of
from holdfast.questions.options import About, Query, Whole
from holdfast.questions.question import Context, Drawing, Question, Result

SHOWN = 200  # flips in a table


@dataclass(frozen=True, repr=False, eq=False)
class FlipsAnswer(AnyAnswer):
    """Single flips, and the interval of the share they come from. Iterates over the flips.

    Parameters
    ----------
    bits
        The flips, each 0 or 1.
    average
        The share they come from, with its interval.
    record
        Where the answer comes from.
    """

    bits: tuple[int, ...]
    average: Answer
    record: Record

    def __len__(self) -> int:
        return len(self.bits)

    def __iter__(self) -> Iterator[int]:
        return iter(self.bits)

    def result(self) -> dict[str, Any]:
        """The flips as one text of 0 and 1, and value, low and high of their average."""
        return {"bits": "".join(map(str, self.bits)), "average": self.rows()[0][1].to_json()}

    @classmethod
    def read(cls, result: Mapping[str, Any], record: Record) -> "FlipsAnswer":
        """Rebuild the answer from what `result` returned, and its `record`."""
        average = answer_of(Estimate.from_json(result["average"]), record)
        return cls(tuple(int(bit) for bit in result["bits"]), average, record)

    def rows(self) -> list[tuple[str | None, Estimate]]:
        """The interval of the average."""
        return self.average.rows()

    def details(self) -> list[tuple[str, str]]:
        """The flips, as many as a page can show."""
        return [("flips", " ".join(map(str, self.bits[:SHOWN])) + (" ..." if len(self.bits) > SHOWN else ""))]

    def __repr__(self) -> str:
        shown = "".join(map(str, self.bits[:40])) + ("..." if len(self.bits) > 40 else "")
        return f"{shown}\n{self.average!r}"

    def _repr_html_(self) -> str:
        ((_, flips),) = self.details()
        return f"<div><code>{flips}</code></div>{self.average._repr_html_()}"


@dataclass(frozen=True)
class Flipped(Share):
    """A share whose flips are released one by one."""

    @property
    def statistic(self) -> Statistic:
        """Single flips."""
        return SingleFlips()


def flips(
    context: Context, query: Query, count: Annotated[int, About(Whole(1, "100"), "How many flips.")] = 1
) -> Question:
    """Return `count` new flips, each with expectation near the share of rows for which `query` is true.

    Parameters
    ----------
    query
        A condition: SQL text, a Polars expression or a function of one row.
    count
        How many flips. Each reads one row; the same question again gets new ones.

    Returns
    -------
    FlipsAnswer
        The flips and the interval of the share.
    """
    check.whole(count=count)
    check.at_most("the most one answer can read", MOST_DRAWS, count=count)
    count = int(count)
    built = build_mean(query, context.schema)
    if not isinstance(built, Share) or not isinstance(built.statistic, OneShare):
        raise InvalidArgument("A flip asks a yes-or-no question of one row; ask the mean of a number with `mean`.")
    flipped = Flipped(built.value)
    cost, rows_read, work = context.price_all([(flipped, count)])

    def run(drawing: Drawing) -> Result:
        release = drawing.release(flipped, count)
        if not isinstance(release, Tally):
            raise drawing.guarantee.cannot_certify("single flips")
        (average,) = drawing.certify(flipped, release)
        return {"bits": "".join(map(str, bits(release, drawing.rng))), "average": average.to_json()}

    noun = "flip" if count == 1 else f"{count:,} flips"
    return Question(
        kind=FLIPS.name,
        text=f"{noun} of {built.text}",
        identity=None,  # a flip is new each time
        cost=cost,
        rows_read=rows_read,
        work=work,
        run=run,
    )


FLIPS = kind_of(flips, FlipsAnswer)
KINDS.register(FLIPS.name, FLIPS)
