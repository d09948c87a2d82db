"""`holdfast demo`."""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import Json
from holdfast.cli.output import say, show_json, table

if TYPE_CHECKING:
    from holdfast.lab.demo import Discovery, TourAnswer


def command(
    output: Annotated[Path, typer.Option("--output", help="Folder for the data, the numbers and the picture.")] = Path(
        "demo-output"
    ),
    rows: Annotated[int, typer.Option("--rows", min=10_000, help="Rows of the made-up data.")] = 1_000_000,
    questions: Annotated[
        int, typer.Option("--questions", min=50, max=10_000, help="Questions of the analyst in part 3.")
    ] = 10_000,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Repeat a run: the same data, the same draws.")
    ] = None,
    json: Json = False,
) -> None:
    """See holdfast work, in under a minute.

    Makes up data whose population is known, asks one question of every kind, and then lets an analyst search for an
    effect that does not exist, for 10,000 questions: once with plain means, once with holdfast.

    \b
    holdfast demo
    holdfast demo --rows 100000 --questions 2000
    """
    from holdfast.errors import MissingExtra
    from holdfast.lab.demo import FLIP_ROWS, Demo, chart, to_json
    from holdfast.lab.plots import demo_picture

    def show(text: str = "", *, bold: bool = False) -> None:
        if not json:
            say(text, bold=bold)

    demo = Demo(output, rows=rows, questions=questions, seed=seed)
    show(f"1. Data: {rows:,} made-up flights, whose population is known by formula", bold=True)
    with demo.prepare() as session:
        show(f"   {demo.path}, opened like any file. The plan, fixed before the first question:")
        show(f"   {session.plan.sentence}")
        show()
        show("2. A tour: one question of each kind, beside the population's value", bold=True)
        tour = demo.tour(session)
        flips = demo.flips()
        if not json:
            _show_tour([*tour, flips])
        show(f"   (Flips need a plan of their own, so they were asked of another sample, of {FLIP_ROWS:,} rows.)")
        show()
        show(f"3. A discovery in noise: {questions:,} questions, each chosen after the earlier answers", bold=True)
        with _progress(questions, shown=not json and sys.stderr.isatty()) as progress:
            discovery = demo.discover(session, progress)
        numbers = to_json(demo, session, tour, flips, discovery)
        budget = session.budget
    written, picture = output / "demo.json", output / "demo.png"
    written.write_text(jsonlib.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    try:
        demo_picture(discovery, picture, rows=rows)
        picture_note = f"Picture: {picture}"
    except MissingExtra:
        picture_note = "(Install matplotlib to get a picture as well.)"
    if json:
        show_json(**numbers)
        return
    say(
        "   The analyst looks for a rule that predicts `outcome`, a fair coin, from signals that are independent of it."
    )
    say("   Pairs of signals that seem to predict it vote; the chart shows how often the rule seems to be right.")
    say()
    say(chart(discovery))
    say()
    _conclude(discovery)
    read = discovery.rows_read
    say(f"   {budget}; {read:,} rows read in {discovery.seconds:.0f} s, {read // questions:,} for each question.")
    say()
    say(f"   Numbers: {written}. {picture_note}")
    say(f'   Your turn: holdfast ask {demo.path} "dep_delay > 60"')


def _show_tour(answers: list[TourAnswer]) -> None:
    digits = [4 if answer.population < 2 else 1 for answer in answers]
    rows = [
        (
            answer.call,
            f"{answer.value:.{places}f}",
            f"[{answer.low:.{places}f}, {answer.high:.{places}f}]",
            f"{answer.population:.{places}f}",
            "holds" if answer.holds else "missed",
            f"{answer.rows_read:,}",
            f"{answer.milliseconds:.1f}",
        )
        for answer, places in zip(answers, digits, strict=True)
    ]
    table(("question", "answer", "interval", "population", "", "rows read", "ms"), rows, right=(1, 3, 5, 6))


def _conclude(discovery: Discovery) -> None:
    last, ours, hint = discovery.naive[-1], discovery.holdfast[-1], discovery.hint
    error, missed = last.high - last.value, sum(look.misses for look in discovery.naive)
    say(
        f"   Plain mean: the rule is right for {100 * last.value:.2f} % of rows, ± {100 * error:.2f}."
        f" The truth is 50 %, {discovery.error_bars:.0f} error bars away."
    )
    say(f"   Of {len(discovery.naive)} plain means of the rule, {missed} missed the truth.")
    say(f"   holdfast:   the rule is right for {100 * ours.low:.1f} to {100 * ours.high:.1f} % of rows.", bold=True)
    say(f"   Of its {discovery.questions:,} intervals, {discovery.misses} missed the truth.", bold=True)
    say(
        f"   Real effects are found: `hint` equals the outcome in {100 * hint.population:.0f} % of rows;"
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
