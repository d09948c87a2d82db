"""Looks at one question go on until its margin is small enough: each draws as many rows as all before it.

A look has its own place in the ledger and its own price, and its interval also uses the draws of the looks before it.
All looks at one question share the level of one statement, that of the first look: whether there is a next one depends
on what was seen, so looks that were not taken count as well (docs/proofs/endless.md). The total number of draws up to
each look is fixed, so a later question with a smaller margin continues where others stopped, and the looks they took
are free.
"""

from math import ceil, log2

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.guarantees.guarantee import AnswerGuarantee
from holdfast.guarantees.mathematics.shares import look_share
from holdfast.guarantees.statistic import GroupMean, Tally
from holdfast.ledger import Cost
from holdfast.queries.query import Query
from holdfast.questions.question import RELEASE_WORK, Context, Drawing, Forecast, Question, Result, encode

FIRST_LOOK = 1_000  # draws
OF_GROUPS = 16  # at most this many ordinary answers' worth of draws: how many a group takes depends on its size


def look_until(kind: str, context: Context, query: Query, until: float) -> Question:
    """Return the first look at the query; each answer says what the next one is, until the margin is reached."""
    check.positive(until=until)
    if query.identity is None:
        raise InvalidArgument(
            "until must be left out for a function, which nobody can recognize: a look is found again by its text. Ask"
            " with SQL or a Polars expression, or use margin.",
            name="until",
        )
    if context.mechanism is not None:
        raise InvalidArgument("until must be left out with a mechanism: looks are made of coins.", name="until")
    context.guarantee.require_flexible()
    if isinstance(query.statistic, GroupMean):
        most = OF_GROUPS * context.rows_per_query
    else:
        most = 2 * context.draws(query, None, until)  # for a share of one half; refuses what no number of draws reaches
    return _look(kind, context, query, float(until), most)


def _look(
    kind: str,
    context: Context,
    query: Query,
    until: float,
    most: int,
    number: int = 1,
    before: tuple[int, ...] = (),
    level: float | None = None,
) -> Question:
    """Return look `number`; `before` are the counts of all looks before it, `level` is the level that they share."""
    total = FIRST_LOOK * 2 ** (number - 1)
    draws = total if number == 1 else total // 2
    cost, rows_read = context.price(query, draws)
    if number > 1:
        cost = Cost(cost.charge, 0)  # the first look paid for the statement

    def run(drawing: Drawing) -> Result:
        release = drawing.release(query, draws)
        pooled = _pooled(query, release, before, drawing.answering)
        shared = drawing.answering.level if level is None else level
        (estimate,) = drawing.at_level(shared * look_share(number)).certify(query, pooled)
        return estimate.to_result(query.bounds) | {"counts": list(pooled.counts), "level": shared}

    def after(result: Result, later: Context) -> Question | None:
        value = result["value"]  # None: too few rows of a group to tell
        reached = value is not None and max(result["high"] - value, value - result["low"]) <= until
        if reached or total >= most:
            return None
        return _look(kind, later, query, until, most, number + 1, tuple(result["counts"]), result["level"])

    looks = 1 + max(0, ceil(log2(most / FIRST_LOOK)))
    return Question(
        kind,
        f"{query.text}, look {number} at {total:,} draws",
        encode({"look": number, "query": query.identity}),
        cost,
        rows_read,
        run,
        work=RELEASE_WORK + rows_read * query.work,
        forecast=lambda _: Forecast(remarks=(f"look {number} of at most {looks}, each with twice the draws",)),
        whole=query.speaks_of_units,
        after=after,
    )


def _pooled(query: Query, release: object, before: tuple[int, ...], guarantee: AnswerGuarantee) -> Tally:
    """Return the tally of all looks so far."""
    if not isinstance(release, Tally):
        raise guarantee.cannot_certify("several looks at one question")
    counts = tuple(map(sum, zip(release.counts, before, strict=True))) if before else release.counts
    draws = release.draws + sum(before)
    values = query.statistic.from_counts(counts, draws, mass=guarantee.coin_mass)
    return Tally(values, draws, counts, release.reported)
