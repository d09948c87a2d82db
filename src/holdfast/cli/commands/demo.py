"""`holdfast demo`."""

from __future__ import annotations

import json as to_json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import Json
from holdfast.cli.output import say, show_json, table

if TYPE_CHECKING:
    from holdfast.lab.demo.story import Dig, Stop


def command(
    output: Annotated[Path, typer.Option("--output", help="Folder for data, numbers and picture.")] = Path(
        "demo-output"
    ),
    rows: Annotated[int, typer.Option("--rows", min=10_000, help="Rows of the made-up table.")] = 1_000_000,
    questions: Annotated[int, typer.Option("--questions", min=50, max=10_000, help="Of the digging analyst.")] = 10_000,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Make data and draws repeatable.")] = None,
    json: Json = False,
) -> None:
    """See it work, in under a minute.

    Makes a table whose population is known by formula, asks questions of every kind, and then lets an analyst dig
    10,000 questions deep for an effect that is not there: once with plain means, once with holdfast.

    \b
    holdfast demo
    holdfast demo --rows 100000 --questions 2000
    """
    from holdfast.lab.demo import picture
    from holdfast.lab.demo.story import FLIP_ROWS, Demo, document
    from holdfast.planning.present import sentence

    def tell(text: str = "", *, bold: bool = False) -> None:
        if not json:
            say(text, bold=bold)

    demo = Demo(output, rows=rows, questions=questions, seed=seed)
    tell(f"1. A table of {rows:,} flights from a population known by formula", bold=True)
    with demo.prepare() as session:
        tell(f"   {demo.path}, opened like any file. The plan, fixed before the first question:")
        tell(f"   {sentence(session.plan)}")
        tell()
        tell("2. A tour: the answers beside the population's own values", bold=True)
        tour = demo.tour(session)
        flips = demo.flips()
        if not json:
            _show_stops([*tour, flips])
        tell(f"   (Flips need a plan of their own: they were asked of another sample of {FLIP_ROWS:,} rows.)")
        tell()
        tell(f"3. A discovery: {questions:,} questions, each look built from all earlier answers", bold=True)
        with _progress(questions, shown=not json and sys.stderr.isatty()) as progress:
            dig = demo.dig(session, progress)
        numbers = document(demo, session, tour, flips, dig)
        budget = session.budget
    written = output / "demo.json"
    written.write_text(to_json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    drawn = picture.png(dig, output / "demo.png", rows=rows)
    if json:
        show_json(**numbers)
        return
    say("   Rules are voted by pairs of signals that seemed to tell `outcome`, a fair coin that no signal knows.")
    say()
    say(picture.terminal(dig))
    say()
    _conclude(dig)
    say(f"   {budget}; {dig.rows_read:,} rows read in {dig.seconds:.0f} s, {dig.rows_read // questions:,} a question.")
    say()
    say(f"   Numbers: {written}. " + (f"Picture: {output / 'demo.png'}" if drawn else "(matplotlib would add a PNG.)"))
    say(f'   Now you: holdfast ask {demo.path} "dep_delay > 60"')


def _show_stops(stops: list[Stop]) -> None:
    digits = [4 if stop.population < 2 else 1 for stop in stops]
    rows = [
        (
            stop.call,
            f"{stop.value:.{places}f}",
            f"[{stop.low:.{places}f}, {stop.high:.{places}f}]",
            f"{stop.population:.{places}f}",
            "holds" if stop.holds else "missed",
            f"{stop.rows_read:,}",
            f"{stop.milliseconds:.1f}",
        )
        for stop, places in zip(stops, digits, strict=True)
    ]
    table(("question", "answer", "interval", "population", "", "rows read", "ms"), rows, right=(1, 3, 5, 6))


def _conclude(dig: Dig) -> None:
    last, ours = dig.naive[-1], dig.holdfast[-1]
    error = last.high - last.value
    say(
        f"   Naive mean: the rule is right for {100 * last.value:.2f} % of rows, ± {100 * error:.2f}."
        f" Real: 50 %. It is {dig.error_bars:.0f} error bars off,"
    )
    say(f"   and {sum(look.misses for look in dig.naive)} of its {len(dig.naive)} looks missed the truth.")
    say(f"   holdfast:   between {100 * ours.low:.1f} and {100 * ours.high:.1f} %.", bold=True)
    say(f"   Of its {dig.questions:,} intervals, {dig.misses} missed the truth.", bold=True)
    hint = dig.hint
    say(
        f"   And what is real is found: `hint` tells the outcome in {100 * hint.population:.0f} % of rows;"
        f" holdfast says {100 * hint.low:.1f} to {100 * hint.high:.1f} %."
    )


@contextmanager
def _progress(total: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    if not shown:
        yield lambda asked: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("   asking"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("asking", total=total)
        yield lambda asked: bar.update(task, completed=asked)
