"""The share of every declared category or bin, and of everything else.

They are asked in one pass over drawn rows or, where so many outcomes would be noisy, in several: each is about some of
them and all others together, so that three quarters of its draws stay unchanged. That costs one unit a draw more; with
`where`, one for every pass.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Annotated, Any

from holdfast import notebook
from holdfast.errors import InvalidArgument
from holdfast.guarantees.guarantee import AnswerGuarantee
from holdfast.guarantees.statistic import noise
from holdfast.queries.build import build_histogram
from holdfast.queries.histogram import Bins, Histogram, HistogramWithin, SomeOutcomes
from holdfast.queries.query import Composed, OnePass
from holdfast.questions import KINDS
from holdfast.questions.answer import Answer, AnyAnswer, Record, answers_of, as_timestamp, estimate_of
from holdfast.questions.estimate import Estimate, common_scale, interval_bar, labeled_lines, write_scale
from holdfast.questions.kind import kind_of
from holdfast.questions.mean import leave_something
from holdfast.questions.options import About, ByMechanism, Categories, Edges, Reals, RowsPerQuery, Value, Where, Within
from holdfast.questions.question import Context, Drawing, Question, Result
from holdfast.schema import Category

MOST_PASSES = 16


@dataclass(frozen=True, repr=False, eq=False)
class HistogramAnswer(AnyAnswer, Mapping[str, Answer]):
    """One answer for each category and one for everything else: a mapping from labels to answers.

    All intervals hold at once.

    Parameters
    ----------
    answers
        The pairs of label and answer.
    record
        Where the answers come from.
    """

    answers: tuple[tuple[str, Answer], ...]
    record: Record

    def __getitem__(self, category: object) -> Answer:
        for name in (str(category), as_timestamp(category)):
            for label, answer in self.answers:
                if label == name:
                    return answer
        raise KeyError(category)

    def __iter__(self) -> Iterator[str]:
        return iter([label for label, _ in self.answers])

    def __len__(self) -> int:
        return len(self.answers)

    def result(self) -> dict[str, Any]:
        """A list of categories, each with value, low and high."""
        return {"categories": [{"category": label} | estimate_of(each).to_json() for label, each in self.answers]}

    @classmethod
    def read(cls, result: Mapping[str, Any], record: Record) -> "HistogramAnswer":
        """Rebuild the answer from what `result` returned, and its `record`."""
        return cls(bars_of(result, record), record)

    def rows(self) -> list[tuple[str | None, Estimate]]:
        """One interval for each category."""
        return [(label, estimate_of(each)) for label, each in self.answers]

    def __repr__(self) -> str:
        return "\n".join([*bars_text(self.answers), self.record.small_print])

    def _repr_html_(self) -> str:
        besides = "".join(f"<div>{escape(name)}: {escape(text)}</div>" for name, text in self.details())
        return bars_html("category", "share", self.answers) + besides + notebook.small(self.record.small_print)


Bars = Sequence[tuple[str, Answer]]  # every answer with its label


def bars_text(bars: Bars) -> list[str]:
    """Return the lines of a table: label, value and interval."""
    lines = labeled_lines([(label, estimate_of(one)) for label, one in bars])
    width = max(len(label) for label, _, _ in lines)
    return [f"{label:<{width}}  {value}  {interval}" for label, value, interval in lines]


def bars_html(labels: str, values: str, bars: Bars) -> str:
    """Return a table for a notebook, with a bar for every interval; `labels` and `values` head its columns."""
    lines = labeled_lines([(label, estimate_of(one)) for label, one in bars])
    scale = common_scale([one for _, one in bars], (0.0, 1.0))
    rows = [(*line, interval_bar(one, scale)) for line, (_, one) in zip(lines, bars, strict=True)]
    return notebook.table((labels, values, "interval", write_scale(scale)), rows)


def bars_of(result: Mapping[str, Any], record: Record) -> tuple[tuple[str, Answer], ...]:
    """Return the pairs of label and answer, from what `result` returned."""
    lines = result["categories"]
    return tuple(zip([line["category"] for line in lines], answers_of(lines, record), strict=True))


def histogram(
    context: Context,
    query: Value,
    *,
    categories: Annotated[
        Sequence[Category] | None, About(Categories(), "The values that are counted, where none were declared.")
    ] = None,
    bins: Annotated[
        int | Sequence[float] | None,
        About(Edges(), "How many bins of equal width there are, or the edges of bins, increasing; right-open."),
    ] = None,
    within: Annotated[
        Within, About(Reals(2, "0, 100"), "The range of bins of equal width; left out, the one declared with the data.")
    ] = None,
    where: Where = None,
    rows_per_query: RowsPerQuery = None,
    mechanism: ByMechanism = None,
) -> Question:
    """Return the share of each declared category (or bin) and of everything else.

    Parameters
    ----------
    query
        A column or an expression about one row.
    categories
        The values that are counted; left out, those that were declared with the data. Give either these or `bins`.
    bins
        For numbers: how many bins of equal width there are, or the edges of bins, increasing. A bin includes its left
        edge, but not its right one.
    within
        The range of bins of equal width, where none was declared with the data. Values outside are counted as other.
    where
        Only rows for which this is true count: shares are among them.
    rows_per_query
        Rows this one answer reads.
    mechanism
        How this one answer is made, as for `mean`.

    Returns
    -------
    HistogramAnswer
        One answer for each category, by its label.
    """
    context = context.by(mechanism)
    built = build_histogram(query, context.schema, categories=categories, bins=bins, within=within, where=where)
    draws, passes = context.draws(built, rows_per_query), _passes(built, context.answering)

    def run(drawing: Drawing) -> Result:
        releases = drawing.release_passes(built, passes, draws) if passes else [drawing.release(built, draws)]
        asked: Sequence[Composed] = passes or (built,)
        released = zip(asked, releases, strict=True)
        found = [estimate for one, release in released for estimate in drawing.certify(one, release)]
        pairs = zip(built.labels, found, strict=True)
        return {"categories": [{"category": label, **estimate.to_json()} for label, estimate in pairs]}

    question = context.question(HISTOGRAM.name, built, draws, run, passes=passes)
    what = "categories" if bins is None else "bins"
    leave_something(context, question.cost, len(built.labels) - 1, what, besides=1)
    counted = built.histogram if isinstance(built, HistogramWithin) else built
    return context.naming_published(question, counted.value.columns)


def _passes(built: Histogram | Bins | HistogramWithin, answering: AnswerGuarantee) -> Sequence[OnePass]:
    """Return what each of several passes asks, with few enough outcomes; none if one pass asks for all.

    Very many passes would take so much of the budget that no later answer said anything; one pass may be mostly noise,
    and is then refused.
    """
    most = answering.most_at_once
    if built.statistic.outcomes <= most:
        return ()
    counted, where = (built.histogram, built.where) if isinstance(built, HistogramWithin) else (built, None)
    assert not isinstance(counted, SomeOutcomes)  # nobody builds a pass of a pass
    count, others = counted.statistic.outcomes, 1 if where is None else 2  # of each pass: all others, and rows outside
    each = max(1, most - others)
    number = -(-count // each)
    if number > MOST_PASSES:
        try:
            answering.supports(built.statistic)
        except InvalidArgument:  # which says how many outcomes one pass may have
            raise noise(
                count, MOST_PASSES * each, f" in {MOST_PASSES} passes", planned=answering.terms.answers > 0
            ) from None
        return ()
    edges = [count * place // number for place in range(number + 1)]
    some = [SomeOutcomes(counted, start, stop) for start, stop in pairwise(edges)]
    return some if where is None else [HistogramWithin(one, where) for one in some]


HISTOGRAM = kind_of(histogram, HistogramAnswer)
KINDS.register(HISTOGRAM.name, HISTOGRAM)
