"""`holdfast demo`."""

from __future__ import annotations

import json as jsonlib
from math import ceil, floor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from holdfast.cli.command import Flag
from holdfast.cli.options import Json
from holdfast.cli.output import progress_bar, say, show_json, table

if TYPE_CHECKING:
    from holdfast.lab.demo import Discovery, TourAnswer
    from holdfast.lab.demo_checks import SecondAct


def command(
    output: Annotated[Path, Flag(help="Folder for the data, the numbers and the picture.")] = Path("demo-output"),
    rows: Annotated[int, Flag(least=10_000, help="Rows of the made-up data.")] = 1_000_000,
    questions: Annotated[int, Flag(least=50, most=10_000, help="Questions of the analyst in part 3.")] = 10_000,
    seed: Annotated[int | None, Flag(least=0, help="Repeat a run: the same data, the same draws.")] = None,
    json: Json = False,
) -> None:
    """See holdfast work, in under a minute.

    Makes up data whose population is known, asks one question of every kind, and then lets an analyst search for an
    effect that does not exist, for 10,000 questions: once with plain means, once with holdfast. Finally, half of the
    rows of another table are open, and what is found there is checked on the other half.

    \b
    holdfast demo
    holdfast demo --rows 100000 --questions 2000
    """
    from holdfast.errors import MissingExtra
    from holdfast.lab.demo import FLIP_ROWS, Demo, chart, to_json
    from holdfast.lab.plots import demo_picture, second_act_picture

    def show(text: str, *, bold: bool = False) -> None:
        if not json:
            say(text, bold=bold)

    demo = Demo(output, rows=rows, questions=questions, seed=seed)
    show(f"1. Data: {rows:,} made-up flights, whose population is known by formula", bold=True)
    with demo.prepare() as session:
        show(f"   {demo.path}, opened like any file. The plan, fixed before the first question:")
        show(f"   {session.plan.sentence}\n")
        show("2. A tour: one question of each kind, with the population's value", bold=True)
        tour = demo.tour(session)
        flips = demo.flips()
        if not json:
            _show_tour([*tour, flips])
        show(f"   (Flips need their own plan, so they were asked of another sample, of {FLIP_ROWS:,} rows.)\n")
        show(f"3. A discovery in noise: {questions:,} questions, each chosen after the earlier answers", bold=True)
        with progress_bar("   asking", questions, quiet=json) as progress:
            discovery = demo.discover(session, progress)
        budget = session.budget
        act = demo.second_act()
        numbers = to_json(demo, session, tour, flips, discovery, act)
    written, picture, second = (output / name for name in ("demo.json", "demo.png", "checks.png"))
    written.write_text(jsonlib.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    try:
        demo_picture(discovery, picture, rows=rows)
        second_act_picture(act, second)
        picture_note = f"Pictures: {picture}, {second}"
    except MissingExtra:
        picture_note = "(Install matplotlib to get a picture as well.)"
    if json:
        show_json(**numbers)
        return
    say(
        "   The analyst looks for a rule that predicts `outcome`, a fair coin, from signals that are independent of it."
    )
    say("   Pairs of signals that seem to predict it vote; the chart shows how often the rule seems to be right.\n")
    say(f"{chart(discovery)}\n")
    _conclude(discovery)
    read = discovery.rows_read
    say(f"   {budget}; {read:,} rows read in {discovery.seconds:.0f} s, {read // questions:,} for each question.\n")
    say("4. Half of the rows open: what is found there is checked on the others", bold=True)
    _show_act(act)
    say(f"   Numbers: {written}. {picture_note}")
    say(f'   Your turn: holdfast ask {demo.path} "dep_delay > 60"')


def _show_tour(answers: list[TourAnswer]) -> None:
    from holdfast.questions.answer import Estimate, write_estimate

    rows = []
    for answer in answers:
        digits = 4 if answer.population < 2 else 1
        value, low, high = write_estimate(Estimate(answer.value, answer.low, answer.high), digits)
        holds, milliseconds = "holds" if answer.holds else "missed", f"{answer.milliseconds:.1f}"
        population, rows_read = f"{answer.population:.{digits}f}", f"{answer.rows_read:,}"
        rows.append((answer.call, value, f"[{low}, {high}]", population, holds, rows_read, milliseconds))
    table(("question", "answer", "interval", "population", "", "rows read", "ms"), rows, right=(1, 3, 5, 6))


def _conclude(discovery: Discovery) -> None:
    last, ours, hint = discovery.naive[-1], discovery.holdfast[-1], discovery.hint
    error, missed = last.high - last.value, sum(look.misses for look in discovery.naive)
    say(
        f"   Plain mean: the rule is right for {100 * last.value:.2f} % of rows, ± {100 * error:.2f}."
        f" The truth is 50 %, {discovery.error_bars:.0f} error bars away."
    )
    say(f"   Of {len(discovery.naive)} plain means of the rule, {missed} missed the truth.")
    say(f"   holdfast:   the rule is right for {_percent(ours.low, ours.high)} of rows.", bold=True)
    say(f"   Of its {discovery.questions:,} intervals, {discovery.misses} missed the truth.", bold=True)
    say(
        f"   Real effects are found: `hint` equals the outcome in {100 * hint.population:.0f} % of rows;"
        f" holdfast says {_percent(hint.low, hint.high)}."
    )


def _show_act(act: SecondAct) -> None:
    last = act.looks[-1]
    say(
        f"   {act.rows:,} rows, {last.signals:,} signals independent of `outcome`. Half of the rows are open; a"
        f" vote of signals seems right there for {100 * last.open_half:.1f} % of rows."
    )
    say(
        f"   A usual holdout, asked about every signal, confirms {100 * last.holdout:.1f} %:"
        f" {act.error_bars:.0f} error bars from the truth, which is 50 %."
    )
    say(f"   holdfast:   the guess of {100 * last.open_half:.1f} % is {act.doubted};", bold=True)
    say(f"               it is {_percent(last.low, last.high)}.", bold=True)
    say(f"   Of the intervals of {act.checks:,} checks, {act.missed} missed the truth.\n", bold=True)


def _percent(low: float, high: float) -> str:
    """Write an interval of shares in percent, rounded outwards."""
    return f"{floor(1_000 * low) / 10:.1f} to {ceil(1_000 * high) / 10:.1f} %"
