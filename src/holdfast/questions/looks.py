"""Looking again at one question until its margin is small enough: each look draws as many rows as all before it.

A look is a question of its own, with its own place in the ledger and its own price, and the draws of the looks before
it count. All looks at a question share the level of the first, a part for each that is fixed for good: whether there is
another look depends on what was seen, so a level that depends on when it is taken would be wrong
(docs/proofs/endless.md). How many draws a look has in all is fixed, too, so whoever asks for a smaller margin later
goes on where others stopped, and what was looked at before is free.
"""

from dataclasses import replace
from math import ceil, log2
from typing import NamedTuple

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.mathematics.posterior_means import look_share
from holdfast.guarantees.release import Tally
from holdfast.guarantees.statistic import GroupMean
from holdfast.ledger import Cost
from holdfast.queries.query import Query
from holdfast.questions.question import RELEASE_WORK, Context, Drawing, Question, Result, encode

FIRST = 1_000  # draws of the first look
OF_GROUPS = 16  # ordinary answers' worth of draws, at most: how many a group takes depends on its size


class Seen(NamedTuple):
    """What the looks before have shown: how often each outcome came up, and the level that all looks share."""

    counts: tuple[int, ...]
    level: float


def look_until(kind: str, context: Context, query: Query, until: float) -> Question:
    """Return the first look at the query; each answer says what the next one is, until the margin is reached.

    Parameters
    ----------
    kind
        That of the answers.
    context, query
        What is asked.
    until
        The margin to reach, in the query's units.
    """
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
        most = 2 * context.draws(query, None, until)  # of a share of one half; refuses what no number of draws reaches
    return _look(kind, context, query, float(until), most, 1, None)


def _look(
    kind: str, context: Context, query: Query, until: float, most: int, number: int, before: Seen | None
) -> Question:
    total = FIRST * 2 ** (number - 1)
    draws = total if number == 1 else total // 2
    cost, rows_read = context.price(query, draws)
    if before is not None:
        cost = Cost(cost.charge, 0)  # it is part of the statement that the first one made

    def run(drawing: Drawing) -> Result:
        standing = drawing.guarantee
        level = standing.statement_level if before is None else before.level
        assert level is not None  # of coins
        pooled = _pooled(query, drawing.release(query, draws), before, standing)
        looking = replace(drawing, guarantee=standing.at_level(level * look_share(number)))
        (estimate,) = looking.certify(query, pooled)
        told = {"bounds": list(query.bounds), "counts": list(pooled.counts), "level": level}
        return estimate.to_json() | told

    def after(result: Result, later: Context) -> Question | None:
        value = result["value"]  # None: too few rows of a group to tell
        reached = value is not None and max(result["high"] - value, value - result["low"]) <= until
        if reached or total >= most:
            return None
        return _look(kind, later, query, until, most, number + 1, Seen(tuple(result["counts"]), result["level"]))

    looks = 1 + max(0, ceil(log2(most / FIRST)))
    return Question(
        kind,
        f"{query.text}, look {number} at {total:,} draws",
        encode({"look": number, "query": query.identity}),
        cost,
        rows_read,
        run,
        work=RELEASE_WORK + rows_read * query.work,
        cheaper=f"look {number} of at most {looks}, each with twice the draws",
        whole=query.speaks_of_units,
        after=after,
    )


def _pooled(query: Query, release: object, before: Seen | None, guarantee: Guarantee) -> Tally:
    """Return the tally of all looks so far."""
    if not isinstance(release, Tally):
        raise guarantee.cannot_certify("several looks at one question")
    counts, draws = release.counts, release.draws
    if before is not None:
        counts, draws = tuple(map(sum, zip(counts, before.counts, strict=True))), draws + sum(before.counts)
    values = query.statistic.from_counts(counts, draws, mass=guarantee.coin_mass)
    return Tally(values, draws, counts, release.reported)
