"""What a question is, and what its steps may use.

A `Question` is complete before any row is read: checked against the schema, priced, and given an identity, which is
equal when two people ask the same thing. Running it touches rows only through a `Drawing`.
"""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, cast

from numpy.random import Generator

from holdfast import check, notebook
from holdfast.cached import cached_property
from holdfast.errors import InvalidArgument, InvalidQuery, PlanInfeasible
from holdfast.guarantees.guarantee import MOST_DRAWS, AnswerGuarantee, Guarantee
from holdfast.guarantees.statistic import GroupMean, OfGroup, Release, Statistic
from holdfast.guarantees.terms import Terms
from holdfast.ledger import Answered, Cost, Spent
from holdfast.mechanisms import MECHANISMS, InPasses, Mechanism, NoiseOfRows
from holdfast.queries.evaluate import silence
from holdfast.queries.query import Composed, OnePass, Query
from holdfast.questions.estimate import Estimate, Interval, times, write_end
from holdfast.rows.draws import Order
from holdfast.rows.source import RowSource
from holdfast.schema import Schema

if TYPE_CHECKING:
    from holdfast.questions.board_files import BoardFiles

LONGEST_QUESTION = 1_000_000  # characters, with all categories
NOTHING_SPENT = Spent(0, 0, 0)
RELEASE_WORK = 100_000  # steps that a release takes besides those on its rows
SHOWN_SHARES = (0.01, 0.05, 0.2)  # shares of the rows in a group for which a price says how wide its answer will be
SHOWN_PRESENT = (1.0, 0.5)  # the same, where the group is the rows in which a value is not missing
NOT_KNOWN = "how wide it will be depends on the data"  # a remark
MOST_TIMES = 100  # how often one answer may draw every row, on average, in a session without an end
MOST_REMEMBERED = 4_096  # cached prices and margins, of all datasets

Remarks = Callable[[], tuple[str | None, ...]]  # what else a price says
Widths = tuple[tuple[float, float], ...]  # pairs of a group's share of the rows, and the margin that it would have
Result = dict[str, Any]  # plain JSON: what `AnyAnswer.result` returns
ROWS_READ = "rows_read"  # in a result: how many rows were read, if fewer than the price says; the record has it then

Finish = Callable[[int, Result, Answered], tuple[Result, Cost]]  # takes the number of the place: see `Drawn`
Completed = Callable[[Any, Callable[..., Any]], Any]  # takes the answer, and a function that asks: `Answering.ask`

encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode
_quoted = json.encoder.encode_basestring  # writes one text as JSON: an identity needs no full encoder


@dataclass
class Drawing:
    """What the steps of a question may use: rows, randomness, and the guarantee that certifies what is released.

    `order` is the secret order of the rows, used up to the question's place; if the guarantee takes rows in order, it
    moves on with every release.
    """

    source: RowSource
    rng: Generator
    guarantee: Guarantee
    order: Order | None = None
    most_draws: int | None = None  # a dry run draws no more than this from its made-up rows, which do not run out
    kept: RowSource | None = None  # the rows that check guesses, if they are separate
    drawn: int = 0  # draws of all releases so far

    def release(self, query: Query, draws: int) -> Release:
        """Draw rows once and release what they give."""
        guarantee, order, times = self.guarantee, self.order, 1
        self.drawn += draws
        if self.most_draws is not None:
            times = 1 if guarantee.planning.reads_all_rows else -(-draws // self.most_draws)
        elif guarantee.in_order and order is not None:
            self.order = order.after(self.answering.charge(query.statistic, draws))
        mechanism = mechanism_of(guarantee).under(guarantee, draws // times, order)
        if self.most_draws is not None and isinstance(mechanism, NoiseOfRows):
            mechanism = mechanism.as_of(draws, guarantee.terms.rows)
        release = mechanism.release(query, self.source, self.rng)
        return release.repeated(times) if times > 1 else release

    def release_passes(self, whole: Composed, passes: Sequence[OnePass], draws: int) -> Sequence[Release]:
        """Release what each of several passes gives, each with draws of its own."""
        mechanism = mechanism_of(self.guarantee)
        if len(passes) == 1 or self.most_draws is not None or not hasattr(mechanism, "release_passes"):
            return [self.release(one, draws) for one in passes]
        together = cast(InPasses, mechanism.under(self.guarantee, draws, None))
        return together.release_passes(whole, passes, self.source, self.rng)

    @property
    def answering(self) -> AnswerGuarantee:
        """The guarantee, which answers with values."""
        return self.guarantee.answering()

    def checking(self) -> "Drawing":
        """Return the same drawing from the rows that check guesses."""
        return replace(self, source=self.kept or self.source, guarantee=self.guarantee.checks or self.guarantee)

    def at_level(self, level: float) -> "Drawing":
        """Return the same drawing, whose exact intervals have another `level`."""
        return replace(self, guarantee=self.answering.at_level(level))

    def certify(self, query: Query, release: Release, bounds: Interval | None = None) -> list[Estimate]:
        """Return every released value with its interval, in the question's units, or stretched to other `bounds`."""
        guarantee = self.guarantee.answering()
        intervals = query.statistic.certify(release, guarantee)
        within, alone = bounds or query.bounds, not guarantee.gives_intervals
        pairs = zip(release.values, intervals, strict=False)
        return [Estimate.within(within, value, interval, alone=alone) for value, interval in pairs]

    def estimates(self, query: Query, draws: int, bounds: Interval | None = None) -> list[Estimate]:
        """Draw once and certify."""
        return self.certify(query, self.release(query, draws), bounds)


@dataclass(frozen=True)
class Forecast:
    """What is known of an answer beforehand, besides its cost: the rest of a price.

    `margin` is that of the answer, if one number can say it; `excess_bound` is that of a fit; `widths` are margins of
    groups. `remarks` say what would make it cost less or be narrower, or what else there is to know.
    """

    margin: float | None = None
    excess_bound: float | None = None
    widths: Widths = ()
    remarks: tuple[str | None, ...] = ()


def no_forecast(_: Answered) -> Forecast:
    """Return that nothing is known beforehand."""
    return Forecast()


def if_complete(query: Query) -> str | None:
    """Return the remark that declaring its column complete would lower the price, if it is incomplete."""
    if query.incomplete is None:
        return None
    return f"less, if {query.incomplete} is declared complete where the data are opened: its values may be missing"


def written_shares(shares: Sequence[float], what: str) -> list[str]:
    """Return "if 1% of the rows count" for the first share, and "if 5%" for each of the others.

    >>> written_shares((0.01, 0.2), "of the rows count")
    ['if 1% of the rows count', 'if 20%']
    """
    first, *others = (f"if {share:.0%}" for share in shares)
    return [f"{first} {what}", *others]


def mechanism_of(guarantee: Guarantee) -> type[Mechanism]:
    """Return the mechanism of the guarantee's terms."""
    name: str = guarantee.terms.mechanism
    try:
        return MECHANISMS[name]
    except KeyError:
        raise guarantee.cannot_certify(f"the mechanism {name!r}, which is not installed") from None


@dataclass(eq=False)  # not frozen: setting so many fields one by one would take as long as checking the question
class Question:
    """A question that may be asked: its price, and how to answer it. Nobody changes it; `replace` returns another."""

    kind: str
    text: str
    identity: str | None
    cost: Cost
    rows_read: int
    run: Callable[[Drawing], Result]
    forecast: Callable[[Answered], Forecast] = no_forecast  # computed only for a price, from all answers so far
    work: int = 0  # steps of evaluation, from the question alone: rows times what one row takes
    terms: Terms | None = None  # the terms it was built under
    mechanism: str | None = None  # how it is answered, if not by the plan's own mechanism
    finish: Finish | None = None  # makes the final result, in the commit
    whole: bool = False  # for data with units: whether the text says how much each counts; else all count equally
    after: "Callable[[Result, Context], Question | None] | None" = None  # the next look, from this one's result
    completed: Completed | None = None  # returns its answer with what else is then asked for it
    usual: str | None = None  # its identity with the usual number of rows: an answer from no fewer rows will do

    def __post_init__(self) -> None:
        for text in (self.text, self.identity or ""):  # refuses what the ledger could not write
            if len(text) > LONGEST_QUESTION:
                raise InvalidQuery(
                    f"A question must be at most {LONGEST_QUESTION:,} characters long; got {len(text):,}."
                )
            if text.isascii():
                continue
            try:
                text.encode()
            except UnicodeEncodeError:
                raise InvalidQuery("A question must be valid text; got half of a surrogate pair.") from None

    def __repr__(self) -> str:
        return f"{self.text}: checked and not asked; it would read {self.rows_read:,} rows"

    def _repr_html_(self) -> str:
        return notebook.paragraphs(self.text, f"Checked and not asked; it would read {self.rows_read:,} rows.")

    def under(self, terms: Terms) -> "Question":
        """Return the question as built under these terms. Its texts are not checked again."""
        prepared = copy(self)
        prepared.terms = terms
        return prepared

    @silence
    def result(self, drawing: Drawing) -> Result:
        """Return what its steps find. Nothing about the rows raises or warns."""
        return self.run(drawing)


@dataclass(frozen=True)
class Context:
    """What a question is built against: the guarantee in force and the schema of the data.

    `rows_per_query` is how many rows an ordinary answer reads now. `board` has what a board has besides its rows.
    `explored` returns the exploration part, which anybody may look at, if the data were split. `mechanism` is set if
    the answer is not by the plan's own. `so_far` returns what all questions have taken, on which rows and margins may
    depend. `dealt` says that the rows are a deck: draws for the plan's own mechanism and nothing else.
    """

    guarantee: Guarantee
    schema: Schema
    rows_per_query: int
    board: "BoardFiles"
    explored: Callable[[], RowSource | None] = lambda: None
    mechanism: str | None = None
    so_far: Callable[[], Spent] = lambda: NOTHING_SPENT
    dealt: bool = False

    def by(self, mechanism: str | None) -> "Context":
        """Return the context of an answer by this `mechanism`; None: by the plan's own."""
        if mechanism is None or mechanism == self.guarantee.terms.mechanism:
            return self
        check.one_of("mechanism", mechanism, MECHANISMS.names())
        if self.dealt:
            raise InvalidArgument(
                f"mechanism must be left out for a deck, which holds draws for {self.guarantee.terms.mechanism!r}, not"
                " the table; ask the table itself.",
                name="mechanism",
            )
        guarantee = self.guarantee.by(mechanism)
        rows_per_query = guarantee.rows_at(self.so_far().intervals)
        return replace(self, guarantee=guarantee, mechanism=mechanism, rows_per_query=rows_per_query)

    @cached_property
    def answering(self) -> AnswerGuarantee:
        """The guarantee, if it answers questions with values; refuses, in words, if it does not."""
        return self.guarantee.answering()

    def certifying(self, cost: Cost) -> Guarantee:
        """Return the guarantee as it would certify a question of this cost, if it were asked now."""
        spent = self.so_far()
        return self.guarantee.at(spent.charge + cost.charge, spent.intervals, cost.intervals)

    @cached_property
    def reads_fewer(self) -> bool:
        """Whether an ordinary answer reads fewer rows by now than the first one did."""
        return self.rows_per_query < self.guarantee.rows_at(0)

    # -- how many rows ------------------------------------------------------------------------------------------------

    def draws(self, query: Query, rows_per_query: int | None, margin: float | None = None) -> int:
        """Return how many rows one answer reads: the plan's number, or what the caller wants for this one."""
        planned = self.rows_per_query
        if rows_per_query is None and margin is None:
            return planned
        if rows_per_query is not None and margin is not None:
            raise InvalidArgument("Give rows_per_query or margin, not both.")
        self.guarantee.require_flexible()
        if rows_per_query is not None and self.guarantee.planning.reads_all_rows:
            raise InvalidArgument(
                f"rows_per_query must be left out: with {self.mechanism} an answer reads all rows. Give margin to spend"
                " more or less on it.",
                name="rows_per_query",
            )
        if rows_per_query is not None:
            check.whole(rows_per_query=rows_per_query)
            most, what = MOST_DRAWS, "the most one answer can read"
            if not self.guarantee.terms.ends:  # no budget stops it, and it would widen later answers for nothing
                most, what = min((most, what), (MOST_TIMES * self.guarantee.terms.rows, f"{MOST_TIMES} times the rows"))
            if rows_per_query > most:
                check.at_most(what, most, rows_per_query=rows_per_query)
            return int(rows_per_query)
        if isinstance(query.statistic, GroupMean):
            raise InvalidArgument(
                "margin is for questions about all rows; the margin of a group depends on its size, also of the rows"
                " where a value is not missing. Use rows_per_query to spend more or less, or declare columns complete."
            )
        check.positive(margin=margin)
        low, high = query.bounds
        share = float(margin or 0) / (high - low)
        if share >= 1:  # such an answer would say nothing, and be charged
            way = check.percent(float(margin or 0)) if (low, high) == (0.0, 1.0) else ""
            raise InvalidArgument(
                f"margin must be below the range of {high - low:g}; got {margin:g}.{way}", name="margin"
            )
        spent = self.so_far()
        draws = self.answering.draws_for(share, spent)
        if draws is None:
            best = (high - low) * self.answering.best_margin(spent)
            raise PlanInfeasible(
                f"No number of rows gives one answer a margin of {margin:g} in this session; its limit now is"
                f" {write_end(best, 4, up=True)}. A session planned for fewer questions comes closer; a rare share"
                " is narrower in any answer.",
                margin=margin,
                best_margin=best,
            )
        return draws

    # -- what it costs, and what is known of the answer beforehand ----------------------------------------------------

    def price(self, query: Query, draws: int) -> tuple[Cost, int]:
        """Return what one release costs and how many rows it reads; refuses what the guarantee does not cover."""
        return _price(self.answering, query.statistic, draws)

    def price_all(self, releases: Iterable[tuple[Query, int]]) -> tuple[Cost, int, int]:
        """Return what releases of these queries, from so many draws each, cost together; their rows, and their work."""
        charge = intervals = rows_read = work = 0
        for query, draws in releases:
            cost, rows = _price(self.answering, query.statistic, draws)
            charge, intervals = charge + cost.charge, intervals + cost.intervals
            rows_read, work = rows_read + rows, work + RELEASE_WORK + rows * query.work
        return Cost(charge, intervals), rows_read, work

    def forecast(self, query: Query, draws: int, scale: float | None, remarks: Remarks, _: Answered) -> Forecast:
        """Return the forecast of an answer from one release of this many `draws`; `scale`, `remarks`: as `question`."""
        margin = None if scale is None else self.margin(query, draws, scale)
        widths = self.group_widths(query, draws)
        unknown = NOT_KNOWN if isinstance(query.statistic, OfGroup) and not widths else None
        return Forecast(margin, None, widths, (if_complete(query), *remarks(), unknown))

    def margin(self, query: Query, draws: int, scale: float) -> float | None:
        """Return the margin of an answer from this many `draws`, `scale` times that of the query.

        A group has no margin here: it depends on the data.
        """
        statistic, (low, high) = query.statistic, query.bounds
        if isinstance(statistic, GroupMean):
            return None
        certifying = self.certifying(self.price(query, draws)[0]).answering()
        known = _margin(certifying, draws) if certifying is self.guarantee else certifying.margin(draws)
        return scale * (high - low) * known

    def group_widths(self, query: Query, draws: int, cost: Cost | None = None, mean: float = 1 / 2) -> Widths:
        """Return how wide groups will be, in the question's units, if their means are middling.

        Parameters
        ----------
        query, draws
            What is asked in one pass, and its draws.
        cost
            What all passes cost, if there are several: every group is certified after the draws of all of them.
        mean
            Their means, in parts of the range, if they are not middling.
        """
        (low, high), statistic = query.bounds, query.statistic
        if not isinstance(statistic, OfGroup):
            return ()
        certifying = self.certifying(cost or self.price(query, draws)[0]).answering()
        shares = SHOWN_SHARES if query.incomplete is None else SHOWN_PRESENT
        found = [(share, certifying.group_margin(statistic, draws, share, mean)) for share in shares]
        return tuple((share, (high - low) * margin) for share, margin in found if margin is not None)

    # -- the question -------------------------------------------------------------------------------------------------

    def question(
        self,
        kind: str,
        query: Query,
        draws: int,
        run: Callable[[Drawing], Result] | None = None,
        *,
        passes: Sequence[Query] = (),
        price: tuple[Cost, int, int] | None = None,
        forecast: Callable[[Answered], Forecast] | None = None,
        remarks: Remarks = lambda: (),
        size: int = 1,
        requested: float | None = None,
        text: str | None = None,
    ) -> Question:
        """Return a question about `query`, usually answered by one release.

        Parameters
        ----------
        kind, query, draws
            What is asked, and from how many draws.
        run
            How it is answered; left out, with the one number that is released: only its margin is known beforehand.
        passes
            What each release is about, if there are several. It is the same question however many there are.
        price
            What it costs, reads and takes, as from `price_all`; left out, what the releases do.
        forecast, remarks
            What is known beforehand; left out, what is known of one release, and these remarks.
        size
            How many units of the answer are one unit of the query: the size of a population.
        requested
            The margin the caller asked for. Asking for the same margin again finds the earlier answer, even if it would
            take more draws now.
        text
            The question in words, if not the text of its query; it is then part of its identity.
        """
        released = passes[0] if passes else query
        if price is None and len(passes) <= 1:
            cost, rows_read = _price(self.answering, released.statistic, draws)
            work = RELEASE_WORK + rows_read * released.work
        else:
            cost, rows_read, work = price or self.price_all((one, draws) for one in passes)
        if forecast is None and len(passes) > 1:
            forecast = partial(self._forecast_of_passes, released, draws, cost)
        elif forecast is None:
            forecast = partial(self.forecast, released, draws, size if run is None else None, remarks)
        unusual = requested is None and draws != self.rows_per_query
        reads = draws if unusual else None if requested is None else f"margin {float(requested)!r}"
        identity = identity_of(query, reads, self.mechanism)
        usual = identity_of(query, None, self.mechanism) if unusual and self.reads_fewer else None
        if text is not None:
            identity, usual = (each and encode({"kind": kind, "of": each, "text": text}) for each in (identity, usual))
        return Question(
            kind,
            text or query.text,
            identity,
            cost,
            rows_read,
            run or partial(_one_number, query, draws, size),
            forecast,
            usual=usual,
            work=work,
            terms=self.guarantee.terms,
            mechanism=self.mechanism,
            whole=query.speaks_of_units,
        )

    def _forecast_of_passes(self, first: Query, draws: int, cost: Cost, _: Answered) -> Forecast:
        return Forecast(widths=self.group_widths(first, draws, cost))

    def identity(self, query: Query, draws: int) -> str | None:
        """Return the identity of a question about `query`, from this many `draws`."""
        return identity_of(query, None if draws == self.rows_per_query else draws, self.mechanism)

    def naming_published(self, question: Question, columns: Sequence[str]) -> Question:
        """Return the question; its text names those of these columns whose values are published."""
        names = [name for name in columns if name in self.schema and self.schema[name].published]
        if not names:
            return question
        return replace(question, text=f"{question.text}; the values of {', '.join(names)} are published from the data")


def _one_number(query: Query, draws: int, size: int, drawing: Drawing) -> Result:
    """Return the one number that a release gives, `size` times the query's."""
    release = drawing.release(query, draws)
    bounds = times(size, query.bounds)
    (found,) = drawing.certify(query, release, bounds)
    return found.to_result(bounds)


def total_of(costs: Collection[Cost]) -> Cost:
    """Return what questions of these costs take together."""
    return Cost(sum(cost.charge for cost in costs), sum(cost.intervals for cost in costs))


@lru_cache(MOST_REMEMBERED)
def _price(guarantee: AnswerGuarantee, statistic: Statistic, draws: int) -> tuple[Cost, int]:
    guarantee.supports(statistic)
    cost = Cost(guarantee.charge(statistic, draws), statistic.intervals)
    return cost, mechanism_of(guarantee).rows_read(statistic, draws, guarantee.terms.rows)


@lru_cache(MOST_REMEMBERED)
def _margin(guarantee: AnswerGuarantee, draws: int) -> float:
    return guarantee.margin(draws)


def identity_of(query: Query, draws: int | str | None, mechanism: str | None = None) -> str | None:
    """Return canonical JSON of the question and the rows it reads: a number, a requested margin, or None if as usual.

    `mechanism` is given if it is not the plan's own.
    """
    if query.identity is None:
        return None
    by = "" if mechanism is None else f'"by": {_quoted(mechanism)}, '
    reads = "null" if draws is None else _quoted(draws) if isinstance(draws, str) else draws
    return f'{{{by}"draws": {reads}, "query": {_quoted(query.identity)}}}'
