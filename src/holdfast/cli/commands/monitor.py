"""`holdfast monitor`."""

from dataclasses import asdict
from typing import Annotated

from holdfast.cli.command import Argument, Flag
from holdfast.cli.options import Json
from holdfast.cli.output import say, show_json


def command(
    mechanism: Annotated[
        str, Argument(metavar="MECHANISM", help="naive, split, thresholdout, laplace, gaussian, a1 or coins.")
    ] = "coins",
    analyst: Annotated[
        str,
        Flag(
            help="weighted, persistent, sign, selection, selection-signal, boosting, fingerprint, climber or harmless."
        ),
    ] = "weighted",
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
