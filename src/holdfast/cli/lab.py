"""Commands on made-up data: demo, attack, monitor, reproduce, selftest."""

import json as jsonlib
import os
from dataclasses import asdict
from math import ceil, floor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from holdfast.cli.options import (
    Argument,
    Confidence,
    Flag,
    Guarantee,
    Json,
    Ledger,
    Margin,
    Processes,
    Queries,
    Worlds,
    looking,
)
from holdfast.cli.output import note, progress_bar, say, show_json, table
from holdfast.errors import InvalidArgument, MissingExtra

if TYPE_CHECKING:
    from holdfast.lab.attack import AttackReport
    from holdfast.lab.demo import Discovery, SecondAct, TourAnswer
    from holdfast.lab.leaderboard import ThirdAct

ALL = "all"  # mechanisms to attack
BROKEN_CODE = 1  # of a self-test
Opponent = Annotated[
    str,
    Flag(help="weighted, persistent, sign, selection, selection-signal, boosting, fingerprint, climber or harmless."),
]


def demo(
    output: Annotated[Path, Flag(help="Folder for the data, the numbers and the picture.")] = Path("demo-output"),
    rows: Annotated[int, Flag(least=10_000, help="Rows of the made-up data.")] = 1_000_000,
    questions: Annotated[int, Flag(least=50, most=10_000, help="Questions of the analyst in part 3.")] = 10_000,
    seed: Annotated[int | None, Flag(least=0, help="Repeat a run: the same data, the same draws.")] = None,
    json: Json = False,
) -> None:
    """See holdfast work, in about a minute.

    Makes up data whose population is known, and works in the three ways. Ask: questions of several kinds, and then an
    analyst who searches for an effect that does not exist, for 10,000 questions, once with plain means, once with
    holdfast. Check: half of the rows of a table are open, and what is found there is checked on the other half. Seal:
    a thousand submissions that know nothing climb a leaderboard.

    \b
    holdfast demo
    holdfast demo --rows 100000 --questions 2000
    """
    from holdfast.errors import MissingExtra
    from holdfast.lab.demo import FLIP_ROWS, Demo, chart, to_json
    from holdfast.lab.leaderboard import climb
    from holdfast.lab.plots import demo_picture, second_act_picture

    def show(text: str, *, bold: bool = False) -> None:
        if not json:
            say(text, bold=bold)

    demo = Demo(output, rows=rows, questions=questions, seed=seed)
    show(f"1. Data: {rows:,} made-up flights, whose population is known by formula", bold=True)
    with demo.prepare() as session:
        show(f"   {demo.path}, opened like any file. The plan, fixed before the first question:")
        show(f"   {session.plan.sentence}\n")
        show("2. Ask: questions of several kinds, with the population's value", bold=True)
        tour = demo.tour(session)
        flips = demo.flips()
        if not json:
            _show_tour([*tour, flips])
        show(f"   (Flips need their own plan, so they were asked of another sample, of {FLIP_ROWS:,} rows.)\n")
        show(f"3. A discovery in noise: {questions:,} questions, each chosen after the earlier answers", bold=True)
        with progress_bar("   asking", questions, quiet=json) as progress:
            discovery = demo.discover(session, progress)
        budget = session.budget
        act, sealed = demo.second_act(), climb(demo.rng)
        numbers = to_json(demo, session, tour, flips, discovery, act) | {"board": sealed.to_json()}
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
    say("4. Check: half of the rows are open, and what is found there is checked on the others", bold=True)
    _show_act(act)
    say("5. Seal: a leaderboard whose labels nobody sees", bold=True)
    _show_board(sealed)
    say(f"   Numbers: {written}. {picture_note}")
    say(f'   Your turn: holdfast ask {demo.path} "dep_delay > 60"')


def _show_tour(answers: "list[TourAnswer]") -> None:
    from holdfast.questions.estimate import Estimate, write_estimate

    rows = []
    for answer in answers:
        digits = 4 if answer.population < 2 else 1
        value, low, high = write_estimate(Estimate(answer.value, answer.low, answer.high), digits)
        holds, milliseconds = "holds" if answer.holds else "missed", f"{answer.milliseconds:.1f}"
        population, rows_read = f"{answer.population:.{digits}f}", f"{answer.rows_read:,}"
        rows.append((answer.call, value, f"[{low}, {high}]", population, holds, rows_read, milliseconds))
    table(("question", "answer", "interval", "population", "", "rows read", "ms"), rows, right=(1, 3, 5, 6))


def _conclude(discovery: "Discovery") -> None:
    last, ours, hint = discovery.naive[-1], discovery.holdfast[-1], discovery.hint
    error, missed = last.high - last.value, sum(look.misses for look in discovery.naive)
    say(
        f"   Plain mean: the rule is right for {100 * last.value:.2f}% of rows, ± {100 * error:.2f}."
        f" The truth is 50%, {discovery.error_bars:.0f} error bars away."
    )
    say(f"   Of {len(discovery.naive)} plain means of the rule, {missed} missed the truth.")
    say(f"   holdfast:   the rule is right for {_percent(ours.low, ours.high)} of rows.", bold=True)
    say(f"   Of its {discovery.questions:,} intervals, {discovery.misses} missed the truth.", bold=True)
    say(
        f"   Real effects are found: `hint` equals the outcome in {100 * hint.population:.0f}% of rows;"
        f" holdfast says {_percent(hint.low, hint.high)}."
    )


def _show_act(act: "SecondAct") -> None:
    last = act.looks[-1]
    say(
        f"   {act.rows:,} rows, {last.signals:,} signals independent of `outcome`. Half of the rows are open; a"
        f" vote of signals seems right there for {100 * last.open_half:.1f}% of rows."
    )
    say(
        f"   A usual holdout, asked about every signal, confirms {100 * last.holdout:.1f}%:"
        f" {act.error_bars:.0f} error bars from the truth, which is 50%."
    )
    say(f"   holdfast:   the guess of {100 * last.open_half:.1f}% is {act.doubted};", bold=True)
    say(f"               it is {_percent(last.low, last.high)}.", bold=True)
    say(f"   Of the intervals of {act.checks:,} checks, {act.missed} missed the truth.\n", bold=True)


def _show_board(act: "ThirdAct") -> None:
    say(
        f"   {act.labels:,} labels, fair coins; {act.submissions:,} submissions, coin tosses. A usual leaderboard shows"
        " how often each is right."
    )
    say(
        f"   A vote of them climbs to {100 * act.leaderboard:.1f}% there: {act.error_bars:.0f} error bars from the"
        " truth, which is 50%."
    )
    from holdfast.lab.leaderboard import HINT

    known = _percent(act.hint_low, act.hint_high)
    say(
        f"   holdfast:   {act.improvements} were better than the best before, and the board showed no more; their",
        bold=True,
    )
    say(f"               vote is right for at most {ceil(1_000 * act.vote_high) / 10:.1f}%.", bold=True)
    say(f"               One that knows something, and is right for {100 * HINT:.0f}%, is better: {known}.", bold=True)
    say(f"   Of the intervals of {act.submissions + 2:,} submissions, {act.missed} missed the truth.\n", bold=True)


def _percent(low: float, high: float) -> str:
    """Write an interval of shares in percent, rounded outwards."""
    return f"{floor(1_000 * low) / 10:.1f} to {ceil(1_000 * high) / 10:.1f}%"


def attack(
    mechanism: Annotated[
        str,
        Argument(
            metavar="MECHANISM",
            help="naive, split, thresholdout, laplace, gaussian, a1 or coins; several, with commas; or all.",
        ),
    ] = ALL,
    analyst: Opponent = "weighted",
    rows: Annotated[int, Flag(least=20, help="Rows in each world.")] = 5_000,
    queries: Annotated[int, Flag(least=3, help="Questions the analyst asks in each world.")] = 501,
    worlds: Worlds = 20,
    confidence: Annotated[float, Flag(help="Probability with which promises must hold.")] = 0.95,
    seed: Annotated[int | None, Flag(least=0, help="Repeat a run; by default, a random seed, which is shown.")] = None,
    processes: Processes = None,
    picture: Annotated[Path | None, Flag(help="Write a PNG (needs matplotlib).")] = None,
    json: Json = False,
) -> None:
    """Attack mechanisms on data whose population is known, and compare claimed, actual and promised errors.

    \b
    holdfast attack                                    all mechanisms against the weighted attack
    holdfast attack naive,coins --analyst climber      an agent that keeps every change that seems to help
    holdfast attack coins --rows 20000 --picture a.png
    """
    from holdfast.lab.attack import HEADINGS, attack, processes_for
    from holdfast.lab.contenders import MECHANISM_NAMES

    names = list(MECHANISM_NAMES) if mechanism == ALL else [name.strip() for name in mechanism.split(",")]
    reports, missing = [], dict[str, str]()  # and why others are left out
    with progress_bar("   worlds", len(names) * worlds, quiet=json) as show:
        for number, name in enumerate(names):
            try:
                report = attack(
                    name,
                    analyst,
                    rows=rows,
                    queries=queries,
                    worlds=worlds,
                    confidence=confidence,
                    seed=seed,
                    processes=processes or processes_for(rows * queries * worlds),
                    progress=lambda done, before=number * worlds: show(before + done),  # type: ignore[misc]
                )
            except MissingExtra as error:
                if mechanism != ALL:
                    raise
                missing[name] = error.message
                continue
            seed = report.seed  # the same worlds for all mechanisms
            reports.append(report)
    if missing:
        note(f"Left out: {', '.join(missing)}. {' '.join(dict.fromkeys(missing.values()))}")
    if picture is not None:
        from holdfast.lab.plots import attack_picture

        attack_picture(reports, picture)
    if json:
        show_json(attacks=[report.to_dict() for report in reports])
        return
    if len(reports) == 1:
        table(HEADINGS, reports[0].cells(), right=range(len(HEADINGS)))
        say(f"\n{reports[0].verdict()}")
    else:
        heads = ("mechanism", "claimed error", "actual error", "worst world", "promised", "kept in", "rows read")
        table(heads, [_attack_cells(report) for report in reports], right=range(1, len(heads)))
        say(f"\nThe {analyst} analyst asked {queries:,} questions about {rows:,} rows in each of {worlds} worlds.")
        say("The actual error is the largest of any answer, in the median world. A promise of 1 always holds.")
    say(f"Seed {seed}." + ("" if picture is None else f" Picture: {picture}"))


def _attack_cells(report: "AttackReport") -> tuple[str, ...]:
    last, worlds = report.checkpoints()[-1], len(report.worlds)
    errors = (last.claimed, last.actual, report.largest.max(), report.promised)
    kept = "-" if report.broken is None else f"{worlds - report.broken} of {worlds}"
    written = ("-" if error is None else f"{error:.4f}" for error in errors)
    return report.mechanism, *written, kept, f"{report.rows_read:,}"


def monitor(
    mechanism: Annotated[
        str, Argument(metavar="MECHANISM", help="naive, split, thresholdout, laplace, gaussian, a1 or coins.")
    ] = "coins",
    analyst: Opponent = "weighted",
    rows: Annotated[int, Flag(least=20, help="Rows in each sample.")] = 2_000,
    queries: Annotated[int, Flag(least=3, help="Questions in each interaction.")] = 501,
    samples: Annotated[int, Flag(least=1, help="Samples on which the interaction is simulated.")] = 5,
    epsilon: Annotated[float, Flag(help="How private the choice among all questions is.")] = 0.1,
    after: Annotated[
        int | None, Flag(least=0, help="Instead, resume one interaction after this many questions (A5).")
    ] = None,
    seed: Annotated[int | None, Flag(least=0, help="Repeat a run.")] = None,
    json: Json = False,
) -> None:
    """Simulate interactions and search them for a question on which the sample misleads (the paper's monitors).

    \b
    holdfast monitor naive --rows 500 --queries 501     exact answers: a question that is far off
    holdfast monitor coins --rows 500 --queries 501     coins: none
    holdfast monitor coins --after 400                  resume after 400 questions, again and again
    """
    from holdfast.lab.monitors import monitor

    found = monitor(
        mechanism, analyst, rows=rows, queries=queries, samples=samples, epsilon=epsilon, after=after, seed=seed
    )
    if json:
        show_json(**asdict(found))
        return
    say(repr(found))


def reproduce(
    names: Annotated[
        list[str] | None,
        Argument(
            metavar="EXPERIMENT",
            help="cost, lower_bound, sample_size, counting, sampling, optimization, looseness, attacked; or all.",
        ),
    ] = None,
    full: Annotated[bool, Flag("--full", help="Run at full size: minutes instead of seconds.")] = False,
    output: Annotated[Path, Flag(help="Folder for the numbers, the figures and the page.")] = Path("reproduce-output"),
    seed: Annotated[int, Flag(least=0)] = 1,
    processes: Annotated[int | None, Flag(least=1, help="Parts to run at once; by default, one per processor.")] = None,
    json: Json = False,
) -> None:
    """Reproduce the paper's table and claims.

    Writes the raw numbers as JSON, and figures and a page made from these numbers alone.

    \b
    holdfast reproduce                          all experiments, at small size
    holdfast reproduce sample_size --full
    """
    from holdfast.lab.experiments import NAMES, reproduce

    written = reproduce(
        output,
        names=names or NAMES,
        size="full" if full else "small",
        seed=seed,
        processes=processes or os.cpu_count() or 1,
        progress=None if json else lambda title: note(f"{title} ..."),
    )
    if json:
        show_json(written=[str(path) for path in written])
        return
    for path in written:
        say(str(path))


def selftest(
    data: Annotated[str | None, Argument(metavar="DATA", help="Test the plan of this dataset; no row is read.")] = None,
    ledger: Ledger = None,
    rows: Annotated[int | None, Flag(help="Or test a plan for this many rows.")] = None,
    queries: Queries = None,
    margin: Margin = None,
    confidence: Confidence = None,
    guarantee: Guarantee = "best",
    worlds: Worlds = 60,
    questions: Annotated[
        int | None, Flag(least=3, help="Questions in each world; by default, as many as planned.")
    ] = None,
    seed: Annotated[int, Flag(least=0)] = 0,
    processes: Processes = None,
    json: Json = False,
) -> None:
    """Simulate a plan on made-up rows and see whether it keeps its promise.

    In every world new rows are drawn from a known population, and an analyst adapts to every answer. The exit code is
    1 if the promise was broken.

    \b
    holdfast selftest flights.parquet                      the plan of this dataset
    holdfast selftest --rows 100000 --queries 1000
    holdfast selftest --rows 1000000 --queries 10000 --worlds 10
    """
    from holdfast.lab.attack import processes_for
    from holdfast.lab.selftest import selftest
    from holdfast.session.planning import plan

    if data is not None:
        if any(given is not None for given in (rows, queries, margin, confidence)):
            raise InvalidArgument("Give either DATA, whose ledger has a plan, or the numbers of a plan; not both.")
        with looking(data, ledger) as session:
            planned = session.plan
    else:
        planned = plan(rows=rows, queries=queries, margin=margin, confidence=confidence, guarantee=guarantee)
    if not json:
        say(f"{planned.sentence}\n")
    with progress_bar("   worlds", worlds, quiet=json) as show:
        found = selftest(
            planned,
            worlds=worlds,
            questions=questions,
            seed=seed,
            processes=processes
            or processes_for(worlds * (questions or planned.queries or 1_000) * planned.rows_per_query),
            progress=show,
        )
    if json:
        show_json(**found.to_dict())
    else:
        say(found.sentence, bold=True)
        note(f"Seed {found.seed}.")
    if not found.kept:
        raise click.exceptions.Exit(BROKEN_CODE)
