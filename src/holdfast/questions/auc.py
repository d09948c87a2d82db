"""The area under the ROC curve: how often a positive scores higher than a negative.

This is a statement about pairs of rows, yet every draw is of one row: scores are cut into steps, and the shares of
positives and of negatives above each cut confine the curve between two staircases.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
import polars as pl

from holdfast import check
from holdfast.cached import cached_property
from holdfast.errors import InvalidArgument
from holdfast.guarantees.mathematics.shares import area_under
from holdfast.guarantees.statistic import OutcomeShares, Statistic, Tally
from holdfast.ledger import Answered, Cost
from holdfast.queries.build import QueryLike, build_mean, condition
from holdfast.queries.evaluate import RowFunction, booleans
from holdfast.queries.measures import Mean, Share, Sliced, about, encode_facts
from holdfast.queries.query import Query as RowQuery
from holdfast.queries.query import Values
from holdfast.questions import KINDS
from holdfast.questions.answer import Answer
from holdfast.questions.estimate import Estimate
from holdfast.questions.imagined import about_margin
from holdfast.questions.kind import kind_of
from holdfast.questions.options import About, Query, Reals, RowsPerQuery, Text, Where, Within
from holdfast.questions.question import (
    NOT_KNOWN,
    SHOWN_SHARES,
    Context,
    Drawing,
    Forecast,
    Question,
    Result,
    encode,
    written_shares,
)


@dataclass(frozen=True)
class Ranked(RowQuery):
    """Outcomes: the steps of positives, lowest scores first; those of negatives; and rows that do not count."""

    score: Share | Mean  # rescaled to [0, 1], and which rows count
    positive: RowFunction  # a row for which it is not known does not count
    cuts: tuple[float, ...]  # where one step ends and the next begins, in [0, 1], increasing

    @property
    def steps(self) -> int:
        """The number of steps of positives, and of negatives."""
        return len(self.cuts) + 1

    @cached_property
    def statistic(self) -> Statistic:
        """The share of each outcome."""
        return OutcomeShares(2 * self.steps + 1)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return tuple(dict.fromkeys((*self.score.columns, *self.positive.columns)))

    @cached_property
    def work(self) -> int:  # type: ignore[override]
        """Steps that one row takes."""
        return self.score.work + self.positive.work

    @property
    def text(self) -> str:
        """The question in words."""
        return f"ROC AUC of {about(self.score)} for {self.positive.text} in {self.steps} steps"

    @cached_property
    def identity(self) -> str | None:
        """Canonical text."""
        parts = (self.score.identity, self.positive.identity)
        return None if None in parts else encode_facts({"kind": "ranked", "of": parts, "cuts": self.cuts})

    def evaluate(self, rows: pl.DataFrame) -> Values:
        """Return the number of the outcome per row."""
        row_values = self.positive.series(rows)
        values = self.score.evaluate(rows).astype(np.float64)
        outside = np.isnan(values) | row_values.is_null().to_numpy()
        steps = np.searchsorted(self.cuts, np.where(outside, 0.0, values), side="right")
        found = np.where(booleans(row_values), steps, steps + self.steps)
        return np.where(outside, 2 * self.steps, found).astype(np.int64)


STEPS, MOST_STEPS = 8, 100  # the most steps that are searched for; the most that may be given
LEVELS = 9  # how often the range is halved for every cut that is searched for
NARROW = 2.0**-20


def auc(
    context: Context,
    query: Annotated[Query, About(Text("dep_delay"), "A score: the higher, the more likely positive.")],
    positive: Annotated[QueryLike, About(Text("late"), "A condition: which rows are positive.")],
    *,
    within: Within = None,
    cuts: Annotated[
        Sequence[float] | None, About(Reals(None, "0.2, 0.4, 0.6"), "Scores at which a step ends and the next begins.")
    ] = None,
    where: Where = None,
    rows_per_query: RowsPerQuery = None,
) -> Question:
    """Return the area under the ROC curve of a score: how often a positive row scores higher than a negative one.

    Parameters
    ----------
    query
        The score: SQL text, a Polars expression or a function of one row. A condition is a score of 0 or 1.
    positive
        Which rows are positive: a condition. Rows for which it is not known do not count.
    within
        The declared range of the score, where none was declared with the data; values outside are clipped.
    cuts
        Where scores are cut into steps, increasing: scores in one step are not told apart, and each step costs two
        answers. If left out, a session of coins searches for seven cuts with about equally many rows between them, or
        fewer if it has room for fewer outcomes, for one more answer; without coins, the range is divided equally.
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
    steps = max(2, min(STEPS, (3 * context.answering.most_at_once // 2 - 1) // 2))
    chosen = [0.5] if isinstance(score, Share) else _cuts(cuts, low, high, steps)
    built = Ranked(score, label, tuple((cut - low) / (high - low) for cut in chosen))
    draws = context.draws(built, rows_per_query)
    tied = isinstance(score, Share)  # a condition: it has two scores, and two steps
    looks = cuts is None and not tied and context.answering.covers_slices
    most = 1 + sum(min(2**level, steps - 1) for level in range(LEVELS))
    few = max(1, draws // most)

    def run(drawing: Drawing) -> Result:
        ranked = replace(built, cuts=_equally_filled(drawing, score, steps, few)) if looks else built
        release = drawing.release(ranked, draws)
        interval = area_under(*drawing.answering.ordered(release, ranked.steps), tied=tied)
        found = Estimate.within((0.0, 1.0), _seen(release.values, ranked.steps), interval)
        return found.to_result((0.0, 1.0))

    def foreseen(_: Answered) -> Forecast:
        return Forecast(remarks=(_in_advance(context, built, draws, asked.cost, tied=tied),))

    asked = question = context.question(AUC.name, built, draws, run, forecast=foreseen)
    if not looks:
        return question
    search, rows, work = context.price_all([(_above(score, 0.5), few)] * most)
    asked = replace(
        question,
        text=f"{question.text} that are looked for",
        identity=None if question.identity is None else encode({"steps are looked for": question.identity}),
        usual=None,  # that would be the identity of the question with given cuts
        cost=Cost(question.cost.charge + search.charge, question.cost.intervals),
        rows_read=question.rows_read + rows,
        work=question.work + work,
    )
    return asked


def _above(score: Share | Mean, threshold: float) -> Sliced:
    """Return a coin that is 1 where the score is at least `threshold`, and may be 1 where it is just below."""
    return Sliced(score, (threshold - NARROW, threshold))


def _in_advance(context: Context, built: Ranked, draws: int, cost: Cost, *, tied: bool) -> str:
    """Say how wide the interval will be, by the share of positive rows, if the score tells nothing."""
    certifying = context.certifying(cost).answering()
    if not certifying.covers_slices:
        return NOT_KNOWN
    parts, mass, outcomes = [], certifying.coin_mass, built.statistic.outcomes
    grouped = built.score.where is not None
    for share in SHOWN_SHARES:
        positive, negative = (share / 2, share / 2) if grouped else (share, 1 - share)
        shares = [part / built.steps for part in (positive, negative) for _ in range(built.steps)]
        counts = [round(draws * (mass + (1 - outcomes * mass) * each)) for each in shares]
        tally = Tally((), draws, (*counts, max(0, draws - sum(counts))), built.statistic.reported)
        interval = area_under(*certifying.ordered(tally, built.steps), tied=tied)
        parts.append(about_margin(Estimate.within((0.0, 1.0), 0.5, interval)))
    what = "of the rows count and half of them are positive" if grouped else "of the rows are positive"
    return ", ".join(map(" ".join, zip(parts, written_shares(SHOWN_SHARES, what), strict=True)))


def _equally_filled(drawing: Drawing, score: Share | Mean, steps: int, draws: int) -> tuple[float, ...]:
    """Return cuts with about equally many rows between them, found by bisection.

    These releases are not certified: they only decide where to cut, as any question may depend on earlier answers.
    """
    (whole,) = drawing.release(Sliced(score, (0.0, 1.0), -1), draws).values
    seen = {0.0: max(whole, 1e-9), 1.0: 0.0}
    targets = [seen[0.0] * (steps - step) / steps for step in range(1, steps)]
    brackets = [(0.0, 1.0)] * len(targets)
    for _ in range(LEVELS):
        for place, ((low, high), target) in enumerate(zip(brackets, targets, strict=True)):
            middle = (low + high) / 2
            if middle not in seen:
                (seen[middle],) = drawing.release(_above(score, middle), draws).values
            brackets[place] = (middle, high) if seen[middle] >= target else (low, middle)
    return tuple(sorted({min(high, 1 - 2.0**-LEVELS) for _, high in brackets}))


def _cuts(cuts: Any, low: float, high: float, steps: int) -> list[float]:
    if cuts is None:
        return [low + (high - low) * step / steps for step in range(1, steps)]
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
    """Return the area that the shares give, with scores of one step as ties; 1/2 if a group seems empty."""
    positives, negatives = np.array(shares[:steps]), np.array(shares[steps : 2 * steps])
    pairs = positives.sum() * negatives.sum()
    below = np.concatenate([[0.0], negatives.cumsum()[:-1]])
    return float(positives @ (below + negatives / 2) / pairs) if pairs > 0 else 0.5


AUC = kind_of(auc, Answer)
KINDS.register(AUC.name, AUC)
