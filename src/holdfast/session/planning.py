"""`holdfast.plan`: what is possible with a given number of rows, or with the rows of a file.

The code that reads rows is imported only if there are data to count.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.guarantees.plan import BEST, Plan, RowsPerQuery
from holdfast.guarantees.request import PlanRequest, Queries

if TYPE_CHECKING:
    from holdfast.rows.source import Table


@check.options
def plan(
    data: "Table | None" = None,
    *,
    unit: str | None = None,
    rows: int | None = None,
    queries: Queries | None = None,
    margin: float | None = None,
    confidence: float | None = None,
    rows_per_query: RowsPerQuery | None = None,
    guarantee: str = BEST,
    mechanism: str = BEST,
    end: bool = False,
    identical: bool | None = None,
    checks: float | None = None,
    **reading: Unpack[check.TextFormat],
) -> Plan:
    """Say what is possible: leave out one of `rows`, `queries` and `margin`, and it is solved for.

    With `rows` alone it says what a session without an end can do. No question is asked, and no ledger is created.

    Parameters
    ----------
    data
        Instead of `rows`: a file, a frame, or whatever else `Session` takes; its rows are counted.
    unit
        The column of `data` that says which rows belong together. Units are then counted instead of rows.
    rows
        The number of rows in the dataset.
    queries
        How many questions will be asked, or how many of each kind: `{"mean": 500, "flip": 10_000}`; flips are single
        0/1 answers (sampling counting queries), which the information guarantee covers. More questions than these get
        wider answers, unless the plan ends.
    margin
        The largest distance between an answer and the population's value, for answers in [0, 1] (others scale with
        their bounds), all answers at once with probability `confidence`.
    confidence
        The probability that all answers hold at once; 0.95 if left out.
    rows_per_query
        Rows that one answer reads: a number, "fast" (at most 12,000), "balanced" (at most 100,000; the default) or
        "best" (the number with the smallest margin).
    guarantee, mechanism
        A name, or "best".
    end
        Whether questions beyond the plan are refused, instead of answered with wider margins.
    identical
        Whether rows are independent *and* identically distributed: margins are then a little smaller. If left out,
        rows need only be independent, where the guarantee allows that.
    checks
        The share of rows, such as 0.2, that only check guesses; the plan is for the others.
    **reading
        How a CSV or JSON lines file is written, as for `Session`.

    Returns
    -------
    Plan
        The best plan, with that of every guarantee in `alternatives`.

    Examples
    --------
    >>> import holdfast as hf
    >>> p = hf.plan(rows=1_000_000, queries=10_000)
    >>> p.guarantee, p.margin < 0.025
    ('exchange', True)
    """
    if data is not None:
        if rows is not None:
            raise InvalidArgument("rows must be left out where data are given: their rows are counted.", name="rows")
        if isinstance(data, int):
            raise InvalidArgument(f"Write rows={data}: a bare number would be taken for data.", name="rows")
        rows, unit = _counted(data, unit, reading)
    elif reading:
        name = next(iter(reading))
        raise InvalidArgument(f"{name} must be left out where no file is given.", name=name)
    elif unit is not None:
        raise InvalidArgument("unit must be left out where no data are given: rows are then units.", name="unit")
    request = PlanRequest(
        queries, margin, confidence, guarantee, mechanism, rows_per_query, end=end, identical=identical, checks=checks
    )
    return replace(request.make(rows), unit=unit)


def _counted(data: "Table", unit: str | None, reading: check.TextFormat) -> tuple[int, str | None]:
    """Return how many rows or units the data have, and the column that names the units."""
    from holdfast.rows.open import open_rows
    from holdfast.rows.source import OnDisk

    source = open_rows(data, unit=unit, **reading)
    try:
        return len(source), source.schema.unit
    finally:
        if source is not data and isinstance(source, OnDisk):
            source.close()
