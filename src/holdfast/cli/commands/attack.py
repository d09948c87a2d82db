"""`holdfast attack`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from holdfast.cli.command import Argument, Flag
from holdfast.cli.options import Json, Processes, Worlds
from holdfast.cli.output import progress_bar, say, show_json, table

if TYPE_CHECKING:
    from holdfast.lab.attack import AttackReport

ALL = "all"


def command(
    mechanism: Annotated[
        str,
        Argument(
            metavar="MECHANISM",
            help="naive, split, thresholdout, laplace, gaussian, a1 or coins; several, with commas; or all.",
        ),
    ] = ALL,
    analyst: Annotated[
        str,
        Flag(
            help="weighted, persistent, sign, selection, selection-signal, boosting, fingerprint, climber or harmless."
        ),
    ] = "weighted",
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
    reports = []
    with progress_bar("   worlds", len(names) * worlds, quiet=json) as show:
        for number, name in enumerate(names):
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
            seed = report.seed  # the same worlds for all mechanisms
            reports.append(report)
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
        table(heads, [_cells(report) for report in reports], right=range(1, len(heads)))
        say(f"\nThe {analyst} analyst asked {queries:,} questions about {rows:,} rows in each of {worlds} worlds.")
        say("The actual error is the largest of any answer, in the median world. A promise of 1 always holds.")
    say(f"Seed {seed}." + ("" if picture is None else f" Picture: {picture}"))


def _cells(report: "AttackReport") -> tuple[str, ...]:
    last, worlds = report.checkpoints()[-1], len(report.worlds)
    errors = (last.claimed, last.actual, report.largest.max(), report.promised)
    kept = "-" if report.broken is None else f"{worlds - report.broken} of {worlds}"
    written = ("-" if error is None else f"{error:.4f}" for error in errors)
    return report.mechanism, *written, kept, f"{report.rows_read:,}"
