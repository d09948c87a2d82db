"""Whether a submission to a board is better than the best so far, and where its score lies."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
import polars as pl

from holdfast.errors import InvalidArgument, NotCovered
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.ladder import ABOUT, POPULATION, Apart, Ladder, SubmissionsSoFar
from holdfast.guarantees.statistic import GridCell
from holdfast.ledger import Answered, Cost
from holdfast.queries.submission import Metric, Submission, unit_means
from holdfast.questions import KINDS
from holdfast.questions.answer import AnyAnswer, Record, estimate_html
from holdfast.questions.estimate import Estimate, Interval, write_end
from holdfast.questions.kind import kind_of
from holdfast.questions.options import About, ShortText
from holdfast.questions.predictions import PredictionsForm, PredictionsLike, match, read_table, require_listed
from holdfast.questions.question import RELEASE_WORK, Context, Drawing, Forecast, Question, Result

LONGEST_NAME = 100  # characters
NOT_COMPARED = (
    "as far as the two cells show; a comparison row by row would reveal on how many secret cases the two differ, and"
    " widen everybody's intervals"
)
SUM_TO_ONE = 1e-4  # how far the sum of class probabilities may be from 1, since files round them


@dataclass(frozen=True, repr=False, eq=False)
class SubmitAnswer(AnyAnswer):
    """What a board says of a submission.

    Parameters
    ----------
    improved
        Whether it was better than all before it, on the board's grid.
    low, high
        The ends of its interval; on one side the end of the range, if it did not improve. The intervals of all
        submissions of a board hold at once, with probability `confidence`.
    cell
        Where its score on the sealed rows lies, as far as the board tells.
    metric, higher
        What was scored, and whether more of it is better.
    about
        What the interval is about: "population", "labels" or "rows".
    name
        What it was called.
    record
        Where the answer comes from.
    bounds
        The lowest and the highest value of the metric.
    ahead, of
        By how much an improvement is better than the best before it, number `of` in the ledger, compared row by row: an
        interval in units of the metric, more being better. None where there is nothing to compare with.
    """

    improved: bool
    low: float
    high: float
    cell: Interval
    metric: str
    higher: bool
    about: str
    name: str | None
    record: Record
    bounds: Interval = (0.0, 1.0)
    ahead: Interval | None = None
    of: int | None = None

    @property
    def interval(self) -> Interval:
        """Low and high."""
        return self.low, self.high

    @property
    def known_range(self) -> Interval:
        """The cell."""
        return self.cell

    @property
    def outcome(self) -> str:
        """The outcome in words."""
        return "improvement" if self.improved else "no improvement"

    def result(self) -> dict[str, Any]:
        """Whether it improved, interval, cell, metric and what it is about."""
        facts = {"improved": self.improved, "low": self.low, "high": self.high, "cell": list(self.cell)}
        scored = {"metric": self.metric, "higher": self.higher, "about": self.about, "name": self.name}
        ahead = None if self.ahead is None else {"of": self.of, "low": self.ahead[0], "high": self.ahead[1]}
        return facts | scored | {"bounds": list(self.bounds), "ahead": ahead}

    @classmethod
    def read(cls, result: Mapping[str, Any], record: Record) -> "SubmitAnswer":
        """Rebuild the answer from what `result` returned, and its `record`."""
        names = ("improved", "low", "high", "metric", "higher", "about", "name")
        first, last = result["cell"]
        low, high = result["bounds"]
        given = {name: result[name] for name in names} | {"cell": (first, last), "bounds": (low, high)}
        if (ahead := result["ahead"]) is not None:
            given |= {"ahead": (ahead["low"], ahead["high"]), "of": ahead["of"]}
        return cls(**given, record=record)

    @property
    def _estimate(self) -> Estimate:
        """The middle of the cell; if it did not improve, the end that it is not better than."""
        first, last = self.cell
        value = (first + last) / 2 if self.improved else last if self.higher else first
        return Estimate(min(max(value, self.low), self.high), self.low, self.high)

    def rows(self) -> list[tuple[str | None, Estimate]]:
        """One interval; the outcome is its label."""
        return [(self.outcome, self._estimate)]

    def details(self) -> list[tuple[str, str]]:
        """Where the score is, and what the interval is about."""
        # Ends of most cells are short decimals, give or take a few roundings: only longer ones are rounded outward.
        first, last = (
            write_end(float(f"{end:.12g}"), 6, up=up) for end, up in zip(self.cell, (False, True), strict=True)
        )
        where = f"{first} to {last}" if self.improved else f"no better than {last if self.higher else first}"
        shown = [("on the sealed rows", where)]
        if self.ahead is not None:
            _, low, high = Estimate(self.ahead[0], *self.ahead).rounded()
            shown.append((f"ahead of no. {self.of}", f"by {low} to {high}, compared row by row"))
        elif self.improved and self.about == POPULATION and self.record.seq != 1:
            shown.append(("better than the best before", NOT_COMPARED))
        return [*shown, ("the interval is about", ABOUT[self.about])]

    def __repr__(self) -> str:
        _, low, high = self._estimate.rounded()
        return f"{self.outcome}  [{low}, {high}]  {self.record.small_print}\nabout {ABOUT[self.about]}"

    def _repr_html_(self) -> str:
        about = f"{self.record.origin}; about {ABOUT[self.about]}"
        return estimate_html(self.question, self.outcome, self._estimate, self.bounds, about)


def submit(
    context: Context,
    predictions: Annotated[
        PredictionsLike, About(PredictionsForm(), "A table with a column of ids and one of predictions.")
    ],
    *,
    name: Annotated[str | None, About(ShortText(), "What the submission is called in the standings.")] = None,
) -> Question:
    """Return whether `predictions` for the rows of a board are better than the best so far, with an interval.

    Parameters
    ----------
    predictions
        A file (CSV, JSON lines, Parquet), a frame or a mapping of columns, with the ids of the board, each once. The
        other column is the prediction; if there are several, the one named "prediction" or named like the labels.
        Probabilities of classes have a column each, named by the class.
    name
        What the submission is called in the standings. The same predictions again get the first answer, free.
    """
    ladder = context.guarantee
    if not isinstance(ladder, Ladder):
        raise NotCovered(
            "This session is not a board, so nothing can be submitted to it. Make one with holdfast.Board(labels).",
            guarantee=ladder.name,
        )
    _check_name(name)
    terms, metric = ladder.terms, metric_of(ladder)
    type_ = metric.rule.predicts or context.schema[terms.target or ""].type
    table = read_table(predictions)
    ids, others, starts = context.board.ids(terms.id), context.board.others(terms.id), context.board.unit_starts
    order = None if starts is None else ids.arg_sort()  # rows are stored by unit
    sorted_ids = ids if order is None else ids[order]
    columns = metric.classes if metric.rule.probability else ()
    matched = match(table, sorted_ids, target=terms.target, type_=type_, classes=columns, others=others)
    _check_range(metric, matched.every)
    values = matched.values if order is None else matched.values[order.arg_sort()]
    submission = Submission(metric, values, terms.target or terms.id)
    digest = matched.digest(context.board.key())

    def run(drawing: Drawing) -> Result:
        if drawing.most_draws is not None:
            return {"cell": 1}  # a dry run: the predictions were checked, and fit only the rows of the board
        released = drawing.release(submission, terms.rows)
        assert isinstance(released, GridCell)
        # In memory only: whether any of it may be told is decided in the commit.
        best = context.board.best(digest, values) if ladder.compares else None
        if best is None:
            return {"cell": released.cell}
        apart = metric.apart(values, best.predictions)
        if starts is not None:
            apart = unit_means(apart, starts)
        sums = float(apart.sum()), float(np.square(apart).sum())
        return {"cell": released.cell, "best": {"seq": best.seq, "cell": best.cell, "apart": sums}}

    def finish(number: int, result: Result, answered: Answered) -> tuple[Result, Cost]:
        cell, so_far = result["cell"], ladder.so_far(answered)
        ends, where = (
            _in_units(metric, part) for part in (ladder.certify(cell, so_far), ladder.known_range(cell, so_far))
        )
        charge = ladder.charge_of(so_far, so_far.after(cell))
        answer = {"improved": charge > 0, "low": ends.low, "high": ends.high, "cell": [where.low, where.high]}
        scored = {"metric": metric.name, "higher": metric.rule.higher, "about": terms.about, "name": name}
        if so_far.failed:  # so that the interval can be computed again
            scored |= {"failed": so_far.failed, "under_way": so_far.under_way}
        ahead = _ahead(ladder, metric, answer, so_far, result.get("best")) if charge > 0 else None
        return answer | scored | {"bounds": list(metric.bounds), "ahead": ahead}, Cost(charge, 1)

    def forecast(answered: Answered) -> Forecast:
        return Forecast(terms.scale * ladder.width(ladder.so_far(answered)))

    return Question(
        kind=SUBMIT.name,
        text=f"{metric.text} of {'submission ' + digest[:12] if name is None else name}",
        identity=identity_of(digest),
        cost=Cost(ladder.most_charge, 1),
        rows_read=ids.len(),
        work=RELEASE_WORK + ids.len(),
        run=run,
        finish=finish,
        forecast=forecast,
    )


def metric_of(standing: Guarantee) -> Metric:
    """Return the metric of a board."""
    assert isinstance(standing, Ladder)
    terms = standing.terms
    return Metric(terms.metric, (terms.low, terms.high), terms.clip, tuple(json.loads(terms.classes)))


def _in_units(metric: Metric, gains: Interval) -> Estimate:
    """Return the interval of a gain as one of the metric, rounded outward."""
    first, last = gains
    if not metric.rule.higher:
        # In decimals, as cells end: about these rows alone nothing widens the interval, and 1 - 0.9 is not 0.1.
        first, last = (float(1 - Fraction(repr(end))) for end in (last, first))
    return Estimate.within(metric.bounds, first, (first, last))


def _ahead(
    ladder: Ladder, metric: Metric, answer: Result, so_far: SubmissionsSoFar, best: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Compare an improvement with the best that was there when it was scored."""
    if best is None:
        return None
    pair, scale = (best["cell"], answer["cell"]), ladder.terms.scale
    (worse, better), (low, high) = pair if metric.rule.higher else pair[::-1]
    ends = ladder.ahead(((low - better) / scale, (high - worse) / scale), so_far, Apart(*best["apart"]))
    return {"of": best["seq"], "low": scale * ends[0], "high": scale * ends[1]}


def _check_name(name: object) -> None:
    if name is None:
        return
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise InvalidArgument(f"name must be a text of 1 to {LONGEST_NAME} characters in one line.", name="name")


def _check_range(metric: Metric, values: pl.DataFrame) -> None:
    """Refuse probabilities and scores that are outside of their range, and labels that are not among the classes.

    Other predictions are clipped by the metric.
    """
    rule = metric.rule
    if rule.listed and metric.classes:
        require_listed(values.to_series(), metric.classes)
        return
    if not rule.probability and rule.targets:
        return
    low, high = (0.0, 1.0) if rule.probability else metric.within
    numbers = values.to_numpy()
    outside = int(np.count_nonzero((numbers < low) | (numbers > high)))
    rule_broken = f"must be between {low:g} and {high:g}; {outside:,} are not" if outside else None
    if metric.classes and not outside:
        outside = int(np.count_nonzero(np.abs(numbers.sum(axis=1) - 1) > SUM_TO_ONE))
        rule_broken = f"must add up to 1 in every row; in {outside:,} they do not" if outside else None
    if rule_broken is not None:
        raise InvalidArgument(f"predictions {rule_broken}. Nothing was scored or charged.", name="predictions")


def identity_of(digest: str) -> str:
    """Return the identity, in the ledger, of the submission with this digest."""
    return json.dumps({"submission": digest})


SUBMIT = kind_of(submit, SubmitAnswer)
KINDS.register(SUBMIT.name, SUBMIT)
