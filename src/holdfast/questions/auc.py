"""The area under the ROC curve: how often a positive scores higher than a negative.

It is a statement about two rows. Every draw is of one row all the same: scores are cut into steps, and the shares of
positives and of negatives above each cut confine the curve between two staircases.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

import numpy as np

from holdfast import check
from holdfast.answer import Answer, Estimate
from holdfast.errors import InvalidArgument
from holdfast.guarantees.mathematics.areas import area_under
from holdfast.queries.build import QueryLike, build_mean, condition
from holdfast.queries.ranked import Ranked
from holdfast.questions import KINDS
from holdfast.questions.options import About, Query, Reals, RowsPerQuery, Text, Where, Within
from holdfast.questions.question import Context, Drawing, Question, Result, kind_of

STEPS, MOST_STEPS = 8, 100


def auc(
    context: Context,
    query: Annotated[Query, About(Text("dep_delay"), "A score: the higher, the more likely positive.")],
    positive: Annotated[QueryLike, About(Text("late"), "A condition: which rows are positive.")],
    *,
    within: Within = None,
    cuts: Annotated[
        Sequence[float] | None,
        About(Reals(None, "0.2, 0.4, 0.6"), "Scores at which a step ends and the next begins."),
    ] = None,
    where: Where = None,
    rows_per_query: RowsPerQuery = None,
) -> Question:
    """Return the area under the ROC curve of a score: how often a positive row scores higher than a negative one.

    Parameters
    ----------
    query
        The score: SQL text, a Polars expression or a function of one row.
    positive
        Which rows are positive: a condition. Rows for which it is not known do not count.
    within
        The declared range of the score, where none was declared with the data; values outside are clipped.
    cuts
        Where scores are cut into steps, increasing; left out, at seven places that divide the range equally. Scores in
        one step are not told apart, so cut where there are many; each step costs two answers.
    where
        Only rows for which this is true count.
    rows_per_query
        Rows this one answer reads.

    Returns
    -------
    Answer
        The area, ties counted half, and its interval for the population.
    """
    score = build_mean(query, context.schema, within=within, where=where)
    label = condition(positive, context.schema, name="positive")
    if label is None:
        raise InvalidArgument("positive must be a condition; got None.", name="positive")
    low, high = score.bounds
    built = Ranked(score, label, tuple((cut - low) / (high - low) for cut in _cuts(cuts, low, high)))
    draws = context.draws(built, rows_per_query)

    def run(drawing: Drawing) -> Result:
        release = drawing.release(built, draws)
        interval = area_under(*drawing.guarantee.ordered(release, built.steps))
        found = Estimate.within((0.0, 1.0), _seen(release.values, built.steps), interval)
        return found.to_json() | {"bounds": [0.0, 1.0]}

    return context.question(AUC.name, built, draws, run)


def _cuts(cuts: Any, low: float, high: float) -> list[float]:
    if cuts is None:
        return [low + (high - low) * step / STEPS for step in range(1, STEPS)]
    if isinstance(cuts, str) or not isinstance(cuts, Sequence | np.ndarray) or not 0 < len(cuts) < MOST_STEPS:
        raise InvalidArgument(f"cuts must be a list of 1 to {MOST_STEPS - 1} scores; got {cuts!r}.", name="cuts")
    for place, cut in enumerate(cuts):
        check.number(**{f"cuts[{place}]": cut})
    if any(first >= last for first, last in pairwise([low, *cuts, high])):
        raise InvalidArgument(
            f"cuts must be increasing and inside the range of the score, ({low:g}, {high:g}).", name="cuts"
        )
    return [float(cut) for cut in cuts]


def _seen(shares: Sequence[float], steps: int) -> float:
    """Return the area as it was seen, scores of one step as ties; 1/2 if a group seems empty."""
    positives, negatives = np.array(shares[:steps]), np.array(shares[steps : 2 * steps])
    pairs = positives.sum() * negatives.sum()
    below = np.concatenate([[0.0], negatives.cumsum()[:-1]])
    return float(positives @ (below + negatives / 2) / pairs) if pairs > 0 else 0.5


AUC = kind_of(auc, Answer)
KINDS.register(AUC.name, AUC)
