"""A progress bar for long runs, on a terminal only."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LONG = 5_000_000  # rows to be read before a bar is worth its place


@contextmanager
def watched(steps: int, rows: int) -> Iterator[Callable[[], None] | None]:
    """Yield what to call after every step; None if nobody watches."""
    if rows < LONG or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("Descending"), BarColumn(), MofNCompleteColumn(), TextColumn("steps"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=steps)
        yield lambda: bar.advance(task)
