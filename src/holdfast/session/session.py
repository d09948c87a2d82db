"""The session: a method for every kind of question, lists of questions, SQL, prices beforehand, and the history.

Python, the command line, HTTP and agents all ask through `Session`. `answering.py` tells what happens to a question.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

import polars as pl

from holdfast import check, notebook
from holdfast.errors import InvalidArgument
from holdfast.guarantees.plan import BEST, Plan, RowsPerQuery, VacuousPlan
from holdfast.guarantees.request import PlanRequest, Queries
from holdfast.ledger import Ledger, Receipt, check_analyst, open_ledger
from holdfast.optimize.losses import LinearLoss, Loss
from holdfast.queries.build import QueryLike
from holdfast.questions import KINDS, kind_named, missing_verb
from holdfast.questions.answer import AnyAnswer
from holdfast.questions.batch import Answers, Asked, Prices, Questions, build_all
from holdfast.questions.budget import Budget
from holdfast.questions.history import Standings, history_frame
from holdfast.questions.kind import Kind
from holdfast.questions.mean import MEAN
from holdfast.questions.price import Price
from holdfast.questions.question import Question
from holdfast.questions.sql import select
from holdfast.questions.verbs import Verbs
from holdfast.randomness import Randomness
from holdfast.rows.open import open_rows
from holdfast.rows.source import OnDisk, RowVerbs, Table
from holdfast.rows.units import warn_of_units
from holdfast.schema import Category, Schema
from holdfast.session.answering import Answering
from holdfast.session.beside import declare, ledger_beside, witnesses_beside
from holdfast.session.standing import SHARES

A = TypeVar("A", bound=AnyAnswer)
FORGOTTEN = "Its ledger is in memory and ends with this process; that of a file would go on."
AND_ITS_VALUE = "if the guess does not hold, its value is asked next, for the price of a mean"


@check.public
class Session(Verbs):
    """A dataset that answers questions, each chosen after the last answer, with intervals that stay true.

    Parameters
    ----------
    data
        A path, a frame, a dict of arrays or an opened row source.
    queries, margin, confidence
        The plan: how many questions, or the margin every answer should have, and the probability that all answers
        hold at once. Give `queries` or `margin` for a margin that stays constant for the planned questions and widens
        after them; without either, intervals widen slowly from the first answer on. The ledger begins with the first
        answer and records the plan, which then stands.
    ledger
        A path or a database URL. By default a file beside the data; for data in memory, a ledger in memory that all
        sessions of this process on the same rows share.
    guarantee, mechanism
        The name of a guarantee and of a mechanism, or "best".
    rows_per_query
        How many rows one answer reads: a number, "fast" (at most 12,000), "balanced" (at most 100,000; the default)
        or "best" (whatever gives the smallest margin; without a plan, of the first answers, and later ones are a little
        wider than with "balanced"). `Plan.readings` compares them.
    end
        Whether questions beyond the plan are refused, instead of answered with wider margins.
    identical
        Whether all rows follow one distribution, which makes intervals a little narrower. By default rows need only be
        independent; if they follow different distributions, answers are about their average.
    checks
        The share of rows, such as 0.2, that are set aside in secret to check guesses (`check`) and never answer other
        questions. By default none are, and the session cannot check.
    seed
        For tests only: makes draws predictable, which the ledger records. In memory, each such session has its own
        budget.
    analyst
        The name recorded with the answers.
    complete
        Columns of `data` whose values are never missing: see `holdfast.open`.
    unit
        The column that says which rows belong together, such as "patient", if only rows of different units are
        independent. Then n is the number of units, and one draw is one unit.
    bounds, categories, labels
        Declarations by column: the range of its numbers, its possible values, its name in plain words. Questions may
        then leave out `within` and lists of categories. "published" in place of a list of values shows everybody the
        texts in the column. A TOML file beside the data can declare the same: see `session.beside`.
    **reading
        How a CSV or JSON lines file is written: `types`, `separator`, `encoding`, `null_values` and `decimal`, as for
        `holdfast.open`. Its folder remembers them.
    """

    @check.options
    def __init__(
        self,
        data: Table,
        *,
        queries: Queries | None = None,
        margin: float | None = None,
        confidence: float | None = None,
        ledger: str | Path | None = None,
        guarantee: str = BEST,
        mechanism: str = BEST,
        rows_per_query: RowsPerQuery | None = None,
        end: bool = False,
        identical: bool | None = None,
        checks: float | None = None,
        seed: int | None = None,
        analyst: str | None = None,
        complete: Collection[str] = (),
        unit: str | None = None,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        categories: Mapping[str, Sequence[Category] | str] | None = None,
        labels: Mapping[str, str] | None = None,
        **reading: Unpack[check.TextFormat],
    ) -> None:
        if queries is not None and margin is not None:
            raise InvalidArgument("Give queries or margin, not both: the other follows from the rows.")
        request = PlanRequest(
            queries,
            margin,
            confidence,
            guarantee,
            mechanism,
            rows_per_query,
            end=end,
            identical=identical,
            checks=checks,
        )
        check_analyst(analyst)
        randomness = Randomness(seed)
        source = open_rows(data, complete=complete, unit=unit, **reading)
        if len(source) < 2:
            raise InvalidArgument(f"data must have at least 2 rows; {source.name} has 1.", name="data")
        schema = declare(source, bounds=bounds, categories=categories, labels=labels)
        # Close only what this session opened: rows that the caller opened may serve other sessions.
        self._opened = source if isinstance(source, OnDisk) and source is not data else None
        place = ledger_beside(source) if ledger is None else ledger
        opened = open_ledger(
            place,
            dataset=source.name,
            fingerprint=source.fingerprint,
            reproducible=randomness.reproducible,
            witnesses=witnesses_beside(source),
        )
        self._forgotten = place is None and not randomness.reproducible
        self._shared = place is None and opened.begun  # with other sessions of this process
        self._owns_ledger = True
        try:
            self.answering = Answering(source, schema, opened, request, randomness, analyst)
        except BaseException:
            opened.close()
            raise
        self._rows, self._schema, self._ledger, self._randomness = source, schema, opened, randomness
        standing = self.answering.plan.standing
        if standing.plan.vacuous and standing.context.guarantee.only_kind is None:
            check.warn(standing.plan.sentence, VacuousPlan)
        if not standing.recorded:
            warn_of_units(schema)
        if self._shared:
            self.answering.plan.warn_of_sharing()

    # -- asking -------------------------------------------------------------------------------------------------

    def _ask_kind(self, kind: Kind[..., A], args: tuple[object, ...], options: Mapping[str, object]) -> A:
        return self.answering.ask(kind, args, options)

    def flip(self, query: QueryLike) -> int:
        """Return 0 or 1, with expectation near the share of rows for which a condition is true.

        Parameters
        ----------
        query
            A condition on one row.
        """
        return self.flips(query, 1).bits[0]

    def ask(
        self,
        query: QueryLike | Loss | LinearLoss,
        kind: str = MEAN.name,
        *,
        idempotency_key: str | None = None,
        **options: object,
    ) -> AnyAnswer:
        """Ask by kind, with that kind's options.

        Parameters
        ----------
        query
            What is asked about; a loss for "minimize".
        kind
            The name of a kind of question, such as "mean".
        idempotency_key
            Makes retries safe for questions that are new each time (flips, functions): the same analyst, question and
            key return the first answer again.
        **options
            The options of the kind.

        Returns
        -------
        AnyAnswer
            The answer of that kind.
        """
        answer: AnyAnswer = self.answering.ask(kind_named(kind), (query,), options, idempotency_key)
        return answer

    def ask_many(self, questions: Iterable[Asked]) -> Answers:
        """Ask several questions: one reservation, one transaction, all of them or none.

        All are checked, and the budget must cover all of them, before the first is asked. Questions with a stored
        answer are free, as always. A long list takes one transaction for every 200 questions.

        Parameters
        ----------
        questions
            Texts, or dicts with the kind and the options of a question, such as ``{"query": "late", "by": "month"}``.
            A `Questions` list is registered first, so the history shows which questions were fixed beforehand.

        Returns
        -------
        Answers
            Their answers, in the same order.
        """
        if isinstance(questions, Questions):
            self.price_many(questions)  # a list that cannot be paid for must not be registered
            self.register(questions)
        return Answers(self.answering.ask_all(questions))

    def sql(self, text: str) -> pl.DataFrame:
        """Answer a SELECT of aggregates over the table; WHERE, and GROUP BY over declared categories, are allowed.

        Each aggregate of each group is one question. All are asked together, as by `ask_many`.

        Parameters
        ----------
        text
            The statement, such as ``SELECT carrier, AVG(dep_delay > 15) FROM flights GROUP BY carrier``.

        Returns
        -------
        DataFrame
            One line for each group; an aggregate named x has the columns x, x_low and x_high.
        """
        selected = select(text, self._schema, len(self._rows))
        return selected.frame(self.answering.ask_all(selected.questions, selected.names) if selected.questions else [])

    def prepare(
        self,
        query: QueryLike | Loss | LinearLoss,
        kind: str = MEAN.name,
        *,
        idempotency_key: str | None = None,
        **options: object,
    ) -> Question:
        """Return the question, checked and priced but not asked. Reads nothing.

        Parameters
        ----------
        query, kind, idempotency_key, **options
            As for `ask`.
        """
        return self.answering.question(kind_named(kind), (query,), options, idempotency_key)

    # -- looking before paying ----------------------------------------------------------------------------------

    def price(self, query: QueryLike | Loss | LinearLoss, kind: str = MEAN.name, **options: object) -> Price:
        """Return what a question would cost. Reads nothing, spends nothing.

        Parameters
        ----------
        query, kind, **options
            As for `ask`.
        """
        question = self.answering.look_to_come(self.answering.question(kind_named(kind), (query,), options))
        price = self.answering.price_of(question)
        return price if question.completed is None or price.cached else replace(price, cheaper=AND_ITS_VALUE)

    def price_many(self, questions: Iterable[Asked]) -> Prices:
        """Return what several questions would cost together. Reads nothing, spends nothing.

        Parameters
        ----------
        questions
            As for `ask_many`.
        """
        return self.answering.prices_of(build_all(questions, self.answering.plan.context()))

    def price_sql(self, text: str) -> Prices:
        """Return what a SELECT would cost. Reads nothing, spends nothing.

        Parameters
        ----------
        text
            The statement, as for `sql`.
        """
        selected = select(text, self._schema, len(self._rows))
        context = self.answering.plan.context()
        return self.answering.prices_of(
            build_all(selected.questions, context, selected.names) if selected.questions else []
        )

    def dry_run(self, query: QueryLike | Loss | LinearLoss, kind: str = MEAN.name, **options: object) -> AnyAnswer:
        """Answer from made-up rows: same checks, same shape of answer, but no data is read and nothing is spent.

        Parameters
        ----------
        query, kind, **options
            As for `ask`.

        Returns
        -------
        AnyAnswer
            An answer of that kind, which means nothing.
        """
        return self.answering.dry_run(kind_named(kind), (query,), options)

    # -- what stands --------------------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """The plan that stands: the ledger's, once anybody has begun it."""
        return self.answering.plan.now().plan

    @property
    def ledger(self) -> Ledger:
        """The ledger: entries, head, verify."""
        return self._ledger

    @property
    def budget(self) -> Budget:
        """How wide answers are now and later on, and how many are left if there is an end; shared by everyone."""
        return Budget.of(self.plan.standing, self._ledger.spent, self._ledger.answered)

    @property
    def schema(self) -> Schema:
        """Column names, types and declarations; nothing that depends on the values in the rows."""
        return self._schema

    @property
    def dataset(self) -> str:
        """The name of the dataset."""
        return self._rows.name

    @property
    def analyst(self) -> str | None:
        """The name recorded with the answers; `for_analyst` returns a session with another one."""
        return self.answering.analyst

    def receipt(self, answer: AnyAnswer | int) -> Receipt:
        """Return a proof that an answer is in the ledger, which a third party can check against a published head.

        Parameters
        ----------
        answer
            An answer, or its number.
        """
        seq = answer.seq if isinstance(answer, AnyAnswer) else answer
        if seq is None:
            raise InvalidArgument("A dry run is in no ledger, so there is no receipt for it.")
        return self._ledger.receipt(seq)

    def verify_data(self) -> None:
        """Read and hash all data again; raise RowSourceError if it is damaged or not what the ledger began with."""
        self._rows.verify()

    def history(self) -> pl.DataFrame:
        """Return every answer so far, from all analysts, as a frame."""
        return history_frame(self._ledger.entries(), self.plan.standing, self.answering.registered)

    def standings(self) -> pl.DataFrame:
        """Return the submissions to a board: improvements, the best first, then those that were no better."""
        return Standings(self._ledger, lambda: self.plan.standing).frame()

    def for_analyst(self, analyst: str | None) -> "Session":
        """Return the same session for another analyst: same data and ledger, but their name on the answers.

        This session keeps the ledger; closing the returned one does nothing.

        Parameters
        ----------
        analyst
            The name; None for none.
        """
        check_analyst(analyst)
        other = copy(self)
        other.answering, other._owns_ledger = self.answering.for_analyst(analyst), False
        return other

    def close(self) -> None:
        """Close the ledger. Later questions are refused, also on sessions from `for_analyst`."""
        if self._owns_ledger:
            self._ledger.close()
            if self._opened is not None:
                self._opened.close()

    def __len__(self) -> int:
        """How many rows, or units, an answer draws from."""
        return len(self._rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        kind = None if name.startswith("_") else KINDS.find(name)  # a kind that another package registered
        if kind is None:
            raise missing_verb(self, name)
        return partial(self.ask, kind=kind.name)

    def __repr__(self) -> str:
        seeded = " Seeded: reproducible, not for shared use." if self._randomness.reproducible else ""
        shared = f"\n{SHARES} {self._last_seen}." if self._shared else ""
        count = self.schema.units_of(len(self._rows))
        plan = self.answering.plan.standing.plan  # as last seen, like the budget: printing reads no ledger
        forgotten = f"\n{FORGOTTEN}" if self._forgotten else ""
        return f"Session on {self._rows.name} ({count}).{seeded}\n{plan.sentence}{shared}{forgotten}"

    def _repr_html_(self) -> str:
        title, _, sentences = repr(self).partition("\n")
        return notebook.paragraphs(title, *sentences.split("\n")) + self._last_seen._repr_html_()

    @property
    def _last_seen(self) -> Budget:
        return Budget.of(self.answering.plan.standing.plan.standing, *self._ledger.last_seen)

    def explore(self, data: Table) -> None:
        """Use other data to compute guesses that checks leave out.

        Parameters
        ----------
        data
            A table that anybody may look at.
        """
        rows = open_rows(data, unit=None if isinstance(data, RowVerbs) else self.schema.unit)
        self.answering.plan.explore(rows)
