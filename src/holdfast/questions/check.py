"""Whether a guess holds on rows that are kept aside: a cell, and an interval for the population, but no value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import floor, inf, log, log10, sqrt
from typing import Annotated, Any

import numpy as np

from holdfast import check as valid
from holdfast.errors import InvalidArgument, NotCovered
from holdfast.guarantees.checks import Checks
from holdfast.guarantees.statistic import HOLDS, TOO_FEW, TOO_HIGH, TOO_LOW, Cell
from holdfast.ledger import Answered, Cost
from holdfast.queries.build import QueryLike, build_mean
from holdfast.queries.evaluate import silence
from holdfast.queries.guess import DifferenceGuess, Guess
from holdfast.questions import KINDS
from holdfast.questions.answer import AnyAnswer, Record, estimate_html
from holdfast.questions.estimate import Estimate, Interval
from holdfast.questions.kind import kind_of
from holdfast.questions.mean import MEAN
from holdfast.questions.options import About, Query, Real, RowsPerQuery, Text, Where, Whole, Within
from holdfast.questions.question import RELEASE_WORK, Context, Drawing, Forecast, Question, Result, encode
from holdfast.rows.draws import AllRows
from holdfast.rows.source import RowSource

ERRORS = 4  # standard errors of the held rows' estimate that the default margin covers
APART = 3  # and standard errors of the difference of both parts, if the guess comes from the exploration part
SAYS = {
    HOLDS: "the guess holds",
    TOO_LOW: "the guess is too low",
    TOO_HIGH: "the guess is too high",
    TOO_FEW: "too few rows to say",
}


@dataclass(frozen=True, repr=False, eq=False)
class CheckAnswer(AnyAnswer):
    """Whether a guess holds on rows that nobody has seen, and an interval for the population.

    Parameters
    ----------
    outcome
        "holds", "too low" or "too high" (the guess is), or "too few rows" (the group has fewer than were declared).
    low, high
        The ends of the population's interval. The intervals of all checks of a dataset hold at once, with probability
        `confidence`.
    guess, margin
        What was guessed, and how far from it the held rows may be for it to hold.
    record
        Where the answer comes from.
    bounds
        The declared range.
    value
        If the guess does not hold and other rows of the session answer questions: their answer, the next in the ledger.
    """

    outcome: str
    low: float
    high: float
    guess: float
    margin: float
    record: Record
    bounds: Interval = (0.0, 1.0)
    value: AnyAnswer | None = field(default=None, compare=False)

    @property
    def holds(self) -> bool:
        """Whether the guess holds."""
        return self.outcome == HOLDS

    @property
    def interval(self) -> Interval:
        """Low and high."""
        return self.low, self.high

    def result(self) -> dict[str, Any]:
        """Outcome, low, high, guess, margin and the declared bounds."""
        numbers = {"low": self.low, "high": self.high, "guess": self.guess, "margin": self.margin}
        return {"outcome": self.outcome} | numbers | {"bounds": list(self.bounds)}

    @classmethod
    def read(cls, result: Mapping[str, Any], record: Record) -> "CheckAnswer":
        """Rebuild the answer from what `result` returned, and its `record`."""
        low, high = result["bounds"]
        names = ("outcome", "low", "high", "guess", "margin")
        return cls(**{name: result[name] for name in names}, record=record, bounds=(low, high))

    @property
    def known_range(self) -> Interval | None:
        """The cell of the held rows: within the margin of the guess, below it or above it; None if they are too few."""
        low, high = self.guess - self.margin, self.guess + self.margin
        cells = {HOLDS: (low, high), TOO_HIGH: (self.bounds[0], low), TOO_LOW: (high, self.bounds[1])}
        return cells.get(self.outcome)

    @property
    def _estimate(self) -> Estimate:
        """The guess, or the end of the interval that is nearest to it."""
        return Estimate(min(max(self.guess, self.low), self.high), self.low, self.high)

    def rows(self) -> list[tuple[str | None, Estimate]]:
        """One interval; the outcome is its label."""
        return [(self.outcome, self._estimate)]

    def details(self) -> list[tuple[str, str]]:
        """The outcome and the guess."""
        return [("outcome", SAYS[self.outcome]), ("guess", f"{self.guess:.6g} ± {self.margin:.3g}")]

    def __repr__(self) -> str:
        _, low, high = self._estimate.rounded()
        value = "" if self.value is None else f"\n{self.value!r}"
        return f"{self.outcome}  [{low}, {high}]  {self.record.small_print}{value}"

    def _repr_html_(self) -> str:
        value = "" if self.value is None else self.value._repr_html_()
        verdict = estimate_html(self.question, SAYS[self.outcome], self._estimate, self.bounds, self.record.origin)
        return verdict + value


def check(
    context: Context,
    query: Query,
    guess: Annotated[
        float | None, About(Real(None, None, "0.2"), "What you expect; left out, what the exploration part says.")
    ] = None,
    margin: Annotated[
        float | None, About(Real(0.0, None, "0.01"), "How far held rows may be from the guess for it to hold.")
    ] = None,
    *,
    within: Within = None,
    where: Where = None,
    versus: Annotated[
        QueryLike | None, About(Text("carrier = 'AA'"), "Another group: the guess is the difference to it.")
    ] = None,
    at_least: Annotated[
        int | None, About(Whole(1, "1000"), "How many rows a group must have for anything to be said of it.")
    ] = None,
    rows_per_query: RowsPerQuery = None,
) -> Question:
    """Say whether a `guess` at a share or mean holds on rows kept aside, with an interval for the population.

    Parameters
    ----------
    query
        A condition (a share) or a number (a mean): SQL text, a Polars expression or a function of one row.
    guess
        The guess, in the units of the query; left out, the value of the exploration part.
    margin
        How far from the guess the held rows may be for it to hold; left out, about four standard errors.
    within
        The declared range of a number; values outside are clipped.
    where
        Only rows for which this is true count. Missing values are left out of a mean and count as false in a share.
    versus
        A condition for another group: the guess is then about the difference, `where` minus `versus`. Rows for which
        both are true count in the first.
    at_least
        The least number of held rows in a group, or in each of two; left out, what the exploration part suggests,
        with some to spare.
    rows_per_query
        Held rows that are sampled; left out, all are read, which makes the interval narrowest.

    Returns
    -------
    CheckAnswer
        Whether the guess holds, and the interval for the population.
    """
    guarantee = context.guarantee.checks
    if not isinstance(guarantee, Checks):
        raise NotCovered(
            "A check needs rows that answer nothing else, and these answer questions under the"
            f" {context.guarantee.name} guarantee. Begin a session with checks=0.2, which keeps a fifth of the rows for"
            " checks; or keep rows aside with holdfast.hold_back(data), or open rows that were kept aside with"
            " guarantee='checks'.",
            guarantee=context.guarantee.name,
        )
    asked = _asked(query, context, within, where, versus)
    draws = _draws(guarantee, asked, rows_per_query)
    guessed = _guessed(asked, context, guarantee.terms.rows, draws, guess, margin, at_least)
    code = guessed.code_nats(context.schema) if draws >= guarantee.terms.rows else inf  # only if all rows are read
    if guessed.group and not guarantee.terms.identical:
        code += log(guarantee.terms.rows)  # the code must also name `at_least`

    def run(drawing: Drawing) -> Result:
        held = drawing.checking()
        if drawing.most_draws is None:
            cell = held.release(guessed, draws)
            assert isinstance(cell, Cell)
        else:  # a dry run, of fewer rows
            fewer = guessed.at_least * len(held.source) // guarantee.terms.rows
            cell = held.release(replace(guessed, at_least=fewer), draws)
            assert isinstance(cell, Cell)
            cell = replace(cell, draws=draws, rows=guessed.least_rows(guarantee.terms.rows))
        return {"outcome": cell.outcome, "draws": cell.draws, "rows": cell.rows}

    def finish(number: int, drawn: Result, answered: Answered) -> tuple[Result, Cost]:
        cell = Cell((), drawn["draws"], drawn["rows"], drawn["outcome"])
        so_far = guarantee.so_far(answered)
        two = isinstance(guessed, DifferenceGuess)
        found = guarantee.certify(cell, guessed.cell, so_far, number, code=code, two_groups=two)
        ends = Estimate.within(guessed.bounds, 0.0, found)
        released = {"outcome": cell.outcome, "low": ends.low, "high": ends.high}
        asked = {"guess": guessed.guess, "margin": guessed.margin, "bounds": list(guessed.bounds)}
        if so_far.failed:  # so that the interval can be computed again
            asked |= {"failed": so_far.failed, "under_way": so_far.under_way}
        return released | asked, Cost(*guarantee.cost(wrong=cell.outcome != HOLDS, group=guessed.group))

    def forecast(answered: Answered) -> Forecast:
        rows = guessed.least_rows(guarantee.terms.rows)
        answer, _ = finish(answered.intervals + 1, {"outcome": HOLDS, "draws": draws, "rows": rows}, answered)
        return Forecast(float(max(answer["high"] - guessed.guess, guessed.guess - answer["low"])))

    def with_value(answer: CheckAnswer, ask: Callable[..., AnyAnswer]) -> CheckAnswer:
        """If the guess does not hold, ask the rows that answer questions for the value."""
        mean = {"query": query, "within": within, "where": where}
        return answer if answer.holds else replace(answer, value=ask(MEAN, (), mean))

    cost = Cost(*guarantee.cost(wrong=True, group=guessed.group))
    facts = {"check": guessed.identity, "guess": guessed.guess, "margin": guessed.margin}
    facts |= {"at_least": guessed.at_least, "draws": draws}
    identity = None if guessed.identity is None else encode(facts)
    return Question(
        kind=CHECK.name,
        text=guessed.text,
        identity=identity,
        usual=identity,  # reading all rows stays usual; with fewer rows, the default margin differs
        cost=cost,
        rows_read=draws,
        work=RELEASE_WORK + draws * guessed.work,
        run=run,
        finish=finish,
        forecast=forecast,
        completed=with_value if context.guarantee.only_kind is None and versus is None else None,
    )


def _asked(
    query: QueryLike,
    context: Context,
    within: tuple[float, float] | None,
    where: QueryLike | None,
    versus: QueryLike | None,
) -> Guess:
    """Return the guess, with its numbers still to be filled in."""
    measure = build_mean(query, context.schema, within=within, where=where)
    if versus is None:
        return Guess(measure, 0.0, 0.0, 0)
    if where is None:
        raise InvalidArgument(
            "where must be given with versus: the difference is that of the two groups.", name="where"
        )
    other = build_mean(query, context.schema, within=within, where=versus)
    guess = DifferenceGuess(measure, 0.0, 0.0, 0, other)
    valid.scale("within", guess.bounds[1] - guess.bounds[0])
    return guess


def _draws(guarantee: Checks, asked: Guess, rows_per_query: int | None) -> int:
    """Return how many rows the check reads: all, or a smaller sample."""
    rows = guarantee.terms.rows
    if rows_per_query is None and asked.group:
        return rows
    if rows_per_query is not None:
        valid.whole(rows_per_query=rows_per_query)
    draws = min(rows, int(rows_per_query or guarantee.terms.rows_per_query))
    if asked.group and draws < rows:
        raise InvalidArgument(
            "rows_per_query must be left out for a group (also of the rows where a value is not missing): a check of a"
            " group reads all rows.",
            name="rows_per_query",
        )
    return draws


# -- what was not given ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """What the exploration part says: mean and deviation in the units of the query, the share of rows that count."""

    mean: float
    deviation: float
    share: float
    rows: int


def _guessed(
    asked: Guess,
    context: Context,
    rows: int,
    draws: int,
    guess: float | None,
    margin: float | None,
    at_least: int | None,
) -> Guess:
    """Return the guess, with what was left out filled in from the exploration part, never from the held rows.

    `rows` is the number of held rows, `draws` the number of them that are read.
    """
    found = None
    if guess is None or margin is None or (asked.group and at_least is None):
        explored = context.explored()
        found = None if explored is None else _explored(asked, explored)
    asked = replace(asked, at_least=_least(asked, rows, at_least, found))
    if margin is not None:
        valid.positive(margin=margin)
    (low, high), value = asked.bounds, _value(asked, guess, found)
    if margin is None:
        margin = _rounded(_margin(asked, rows, draws, value, found))
        too_wide = (
            "be given: so few rows count here that the usual one covers the whole range, and any guess would hold."
            " Widen the group, or give a margin."
        )
    else:
        percent = valid.percent(margin) if (low, high) == (0.0, 1.0) else ""
        too_wide = (
            f"leave a part of the range from {low:g} to {high:g} out, or any guess would hold; got {margin:g}.{percent}"
        )
    if value - margin <= low and high <= value + margin:
        raise InvalidArgument(f"margin must {too_wide}", name="margin")
    if guess is None:
        value = min(high, max(low, round(value, 2 - floor(log10(margin)))))  # in digits that matter
    return replace(asked, guess=float(value), margin=float(margin))


def _least(asked: Guess, rows: int, given: int | None, found: _Found | None) -> int:
    """Return how many of the held `rows` must count: as `given`, or what was `found`, with some to spare; 0: all."""
    if given is not None:
        valid.whole(at_least=given)
        if not asked.group:
            raise InvalidArgument("at_least must be left out unless the check is about a group.", name="at_least")
        if replace(asked, at_least=int(given)).least_rows(rows) > rows:
            raise InvalidArgument(
                f"at_least must be no more than there are rows ({rows:,} are kept aside); got {given:,}.",
                name="at_least",
            )
        return int(given)
    if not asked.group:
        return 0
    if found is None:
        raise _missing("at_least", "at_least, how many rows count (all, if a column is declared complete)")
    spare = ERRORS * sqrt(found.share * (1 - found.share) * (1 / rows + 1 / found.rows)) + ERRORS**2 / found.rows
    return max(1, floor(rows * (found.share - spare)))


def _value(asked: Guess, given: float | None, found: _Found | None) -> float:
    """Return the value that is guessed: as `given`, or what was `found`."""
    if given is None:
        if found is None:
            raise _missing("guess", "guess")
        given = found.mean
    valid.number(guess=given)
    low, high = asked.bounds
    if not low <= given <= high:
        raise InvalidArgument(f"guess must be between {low:g} and {high:g}; got {given:g}.", name="guess")
    return given


def _margin(asked: Guess, rows: int, draws: int, value: float, found: _Found | None) -> float:
    """Return the margin of the guess at this `value` for which none is given, in the units of the query."""
    low, high = asked.bounds
    # Known without looking: a value in [0, 1] whose mean is x has at most the deviation sqrt(x (1 - x)).
    widest = sqrt(value - low) * sqrt(high - value)  # their product may be more than a float can hold
    deviation = widest if found is None else min(widest, found.deviation)
    explored = None
    if found is not None and value == found.mean:
        seen = replace(asked, at_least=round(found.share * found.rows) if asked.group else 0)
        explored = seen.least_rows(found.rows)
    sampled = draws if draws < rows else None
    return usual_margin(deviation / (high - low), asked.least_rows(rows), sampled, explored) * (high - low)


def usual_margin(deviation: float, counted: int, sampled: int | None = None, explored: int | None = None) -> float:
    """Return the margin of a guess in [0, 1] for which none is given: some standard errors of what it is compared with.

    `deviation` is that of the values; the guess is about at least `counted` held rows, of which `sampled` are read, if
    not all, and comes from so many `explored` ones, if it does.
    """
    # The held rows differ from the population, and a sample of them differs from the held rows.
    error = sqrt(1 / counted + (1 / sampled if sampled else 0.0))
    spread = ERRORS * error
    if explored is not None:
        spread = max(spread, APART * sqrt(error**2 + 1 / explored))
    one_row = 1 / min(counted, sampled or counted)
    return max(one_row, spread * deviation)


def _missing(name: str, what: str) -> InvalidArgument:
    return InvalidArgument(
        f"{name} must be given: there is no exploration part here that could say it. Give {what}; or split the"
        " data with holdfast.hold_back(data), which leaves one.",
        name=name,
    )


@silence
def _explored(asked: Guess, rows: RowSource) -> _Found:
    measures = [asked.measure, asked.other] if isinstance(asked, DifferenceGuess) else [asked.measure]
    row_values = [rows.sample(each, AllRows(), np.random.default_rng(0)).astype(np.float64) for each in measures]
    if len(row_values) == 2:
        row_values[1] = np.where(
            np.isnan(row_values[0]), row_values[1], np.nan
        )  # rows in both groups count in the first
    known = [values[~np.isnan(values)] for values in row_values]
    fewest = min(part.size for part in known)
    if not fewest:
        raise InvalidArgument(
            "guess must be given: the exploration part has no row that counts here. Widen the group.", name="guess"
        )
    low, high = asked.bounds
    first, *others = (float(part.mean()) for part in known)
    mean = first if not others else (1 + first - others[0]) / 2
    # With two groups, each has half of the weight: the variances are averaged.
    deviation = sqrt(sum(float(part.var()) for part in known) / len(known))
    return _Found(low + (high - low) * mean, (high - low) * deviation, fewest / len(rows), len(rows))


def _rounded(x: float) -> float:
    """Round up to two digits."""
    digits = 1 - floor(log10(x))
    return float(round(x + 0.5 * 10.0**-digits, digits))


CHECK = kind_of(check, CheckAnswer)
KINDS.register(CHECK.name, CHECK)
