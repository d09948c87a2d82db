"""Options that several commands share."""

from typing import Annotated

import typer

Data = Annotated[str, typer.Argument(metavar="DATA", help="A Parquet, CSV or Arrow file, or a holdfast folder.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
LedgerOption = Annotated[
    str | None,
    typer.Option("--ledger", metavar="PATH|URL", help="Where the ledger is; left out: beside the data."),
]
Queries = Annotated[int | None, typer.Option("--queries", help="How many questions the dataset is planned for.")]
FlipsPlanned = Annotated[
    int | None, typer.Option("--flips", help="How many single flips it is planned for (information guarantee).")
]
Confidence = Annotated[
    float | None, typer.Option("--confidence", help="Probability that all answers hold at once; 0.95 if left out.")
]
Guarantee = Annotated[
    str, typer.Option("--guarantee", help="best, posterior, information, dp, paper or split.", show_default=True)
]


def planned(queries: int | None, flips: int | None) -> int | dict[str, int] | None:
    """Return `queries` as the planner takes it."""
    if flips is None:
        return queries
    return {"mean": queries or 0, "flip": flips}
