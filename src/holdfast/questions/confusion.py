"""How predictions err: the four cells, precision, recall and F1, from the rows of a board that answer questions.

One histogram says how many rows are in each cell (the label, and its prediction), for the price of one answer per cell.
Precision, recall and F1 are ratios of shares. Their intervals are the ranges that the intervals of the cells allow, so
they hold together with all other answers of the session.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from holdfast import notebook
from holdfast.errors import NotCovered
from holdfast.guarantees.mathematics.shares import ratio_range
from holdfast.queries.submission import CELLS, PredictedCells
from holdfast.questions import KINDS
from holdfast.questions.answer import Answer, AnyAnswer, Record, answer_of, answers_of, estimate_of
from holdfast.questions.estimate import Estimate, Interval
from holdfast.questions.histogram import HistogramAnswer, bars_html, bars_text
from holdfast.questions.kind import kind_of
from holdfast.questions.options import About, RowsPerQuery, ShortText
from holdfast.questions.plot import Picture
from holdfast.questions.predictions import PredictionsForm, PredictionsLike, match, read_label, read_table
from holdfast.questions.question import Context, Drawing, Question, Result

SCORES = ("accuracy", "precision", "recall", "specificity", "f1")


@dataclass(frozen=True, repr=False, eq=False)
class ConfusionAnswer(AnyAnswer):
    """The four cells of a classifier, as shares of the population, and what follows from them. All hold at once.

    Parameters
    ----------
    answers
        The pairs of cell and answer; a fifth, "other", is for rows without a label.
    record
        Where the answers come from.
    """

    answers: tuple[tuple[str, Answer], ...]
    record: Record

    @property
    def cells(self) -> dict[str, Answer]:
        """The share of each cell."""
        return {name: answer for name, (_, answer) in zip(CELLS, self.answers, strict=False)}

    @property
    def accuracy(self) -> Answer:
        """The share of rows that are predicted right, of those with a label."""
        return self._ratio(("true positives", "true negatives"), ("false positives", "false negatives"))

    @property
    def precision(self) -> Answer:
        """The share of positives among rows predicted to be positive."""
        return self._ratio(("true positives",), ("false positives",))

    @property
    def recall(self) -> Answer:
        """The share of positives that are found."""
        return self._ratio(("true positives",), ("false negatives",))

    @property
    def specificity(self) -> Answer:
        """The share of negatives that are predicted to be negative."""
        return self._ratio(("true negatives",), ("false positives",))

    @property
    def f1(self) -> Answer:
        """The harmonic mean of precision and recall: 2J/(1 + J), where J is TP/(TP + FP + FN)."""
        found = self._ratio(("true positives",), ("false positives", "false negatives"))
        values = (found.value, found.low, found.high)
        value, low, high = (2 * jaccard / (1 + jaccard) for jaccard in values)
        return replace(found, value=value, low=low, high=high)

    def _ratio(self, part: Sequence[str], rest: Sequence[str]) -> Answer:
        """Return the share of the cells in `part` among those in `part` and `rest`."""
        every = dict(self.cells)
        if len(self.answers) > len(CELLS):
            every["other"] = self.answers[-1][1]
        others = [name for name in every if name not in (*part, *rest)]
        sums = [_sum([every[name] for name in names]) for names in (part, rest, others)]
        shares = [sum(every[name].value for name in names) for names in (part, rest)]
        value = shares[0] / sum(shares) if sum(shares) > 0 else 0.5
        return answer_of(Estimate.within((0.0, 1.0), value, ratio_range(*sums)), self.record)

    def scores(self) -> list[tuple[str, Answer]]:
        """Return accuracy, precision, recall, specificity and F1."""
        return [(name, getattr(self, name)) for name in SCORES]

    def result(self) -> dict[str, Any]:
        """A list of cells, each with value, low and high, and what follows from them."""
        return {
            "cells": [{"cell": name} | estimate_of(one).to_json() for name, one in self.answers],
            "scores": {name: estimate_of(one).to_json() for name, one in self.scores()},
        }

    @classmethod
    def read(cls, result: Mapping[str, Any], record: Record) -> "ConfusionAnswer":
        """Rebuild the answer from what `result` returned, and its `record`."""
        cells = result["cells"]
        return cls(tuple(zip([cell["cell"] for cell in cells], answers_of(cells, record), strict=True)), record)

    def rows(self) -> list[tuple[str | None, Estimate]]:
        """One interval for each cell and for each score."""
        return [(name, estimate_of(one)) for name, one in (*self.answers, *self.scores())]

    def plot(self) -> Picture:
        """Return a picture of the scores."""
        return HistogramAnswer(tuple(self.scores()), self.record).plot()

    def __repr__(self) -> str:
        return "\n".join([*bars_text((*self.cells.items(), *self.scores())), self.record.small_print])

    def _repr_html_(self) -> str:
        bars = bars_html("", "value", (*self.cells.items(), *self.scores()))
        return bars + notebook.small(self.record.small_print)


def _sum(answers: Sequence[Answer]) -> Interval:
    return sum(one.low for one in answers), sum(one.high for one in answers)


def confusion(
    context: Context,
    predictions: Annotated[
        PredictionsLike, About(PredictionsForm(), "A table with a column of ids and one of predictions.")
    ],
    *,
    positive_label: Annotated[str, About(ShortText("true"), "The label that counts as positive.")] = "true",
    rows_per_query: RowsPerQuery = None,
) -> Question:
    """Return precision, recall and F1 of `predictions`, from the rows of a board that answer questions.

    Parameters
    ----------
    predictions
        As for `submit`: a table with the ids of the board, each once.
    positive_label
        The label that counts as positive, as text.
    rows_per_query
        Rows this one answer reads.

    Returns
    -------
    ConfusionAnswer
        The share of each of the four cells, and accuracy, precision, recall, specificity and F1.
    """
    id, target = (column.name for column in context.schema.columns[:2]) if len(context.schema) > 1 else ("", "")
    others = context.board.others(id)
    if others is None or context.guarantee.only_kind is not None:
        raise NotCovered(
            "These are not the rows of a board that answer, so they give no precision or recall. Make a board with"
            " confusion=0.2, which keeps a fifth of its rows for that, and ask those.",
            guarantee=context.guarantee.name,
        )
    type_ = context.schema[target].type
    label = read_label(positive_label, type_)
    matched = match(read_table(predictions), context.board.ids(id), target=target, type_=type_, others=others)
    values = matched.values.to_series()
    cells = PredictedCells(
        context.board.ids(id),
        (values == label).to_numpy(),
        label,
        id=id,
        target=target,
        digest=matched.digest(context.board.key()),
    )
    draws = context.draws(cells, rows_per_query)

    def run(drawing: Drawing) -> Result:
        pairs = zip(CELLS, drawing.estimates(cells, draws), strict=True)
        record = Record(CONFUSION.name, cells.text, context.guarantee.name, context.guarantee.terms.confidence)
        answers = tuple((name, answer_of(one, record)) for name, one in pairs)
        return ConfusionAnswer(answers, record).result()

    return context.question(CONFUSION.name, cells, draws, run)


CONFUSION = kind_of(confusion, ConfusionAnswer)
KINDS.register(CONFUSION.name, CONFUSION)
