"""`holdfast board`: make, submit, standings, verify."""

import json as jsonlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.cli.ledger import show_checks, with_data
from holdfast.cli.options import Argument, Confidence, Flag, Json, Ledger, group
from holdfast.cli.output import in_flags, note, noting_warnings, say, show_json, show_notes, table
from holdfast.errors import InvalidArgument

if TYPE_CHECKING:
    from holdfast.board import Board
    from holdfast.service.client import RemoteSession

BoardPlace = Annotated[
    str, Argument(metavar="BOARD", help="The folder of a board, or https://server/name, with HOLDFAST_TOKEN set.")
]


def board() -> None:
    """Score submissions on labels that nobody sees: make a board, submit, show the standings, verify.

    \b
    holdfast board make labels.csv --metric accuracy
    holdfast board submit labels.board.holdfast predictions.csv --by "team 7"
    holdfast board standings labels.board.holdfast
    """


def make(
    labels: Annotated[
        str,
        Argument(
            metavar="LABELS",
            help="A CSV, JSON lines or Parquet file; if scores are submitted, also an evaluation's file.",
        ),
    ],
    id: Annotated[str, Flag(help="The column of ids.")] = "id",
    target: Annotated[str, Flag(help="The column of labels.")] = "label",
    unit: Annotated[
        str | None, Flag(help="The column that says which rows belong together, such as a conversation.")
    ] = None,
    metric: Annotated[str, Flag(help="What is scored: {metrics}.")] = "accuracy",
    within: Annotated[
        tuple[float, float] | None, Flag(metavar="LOW HIGH", help="The range of labels or scores.")
    ] = None,
    clip: Annotated[float | None, Flag(help="The smallest probability that log loss uses.")] = None,
    classes: Annotated[
        str | None,
        Flag(
            metavar="A,B,C",
            help="The labels to give probabilities for, one column each; for accuracy, all labels there are.",
        ),
    ] = None,
    step: Annotated[float | None, Flag(help="The width of a cell of the grid, in units of the metric.")] = None,
    about: Annotated[
        str, Flag(help="What intervals are about: population, labels (of these cases) or rows.")
    ] = "labels",
    confidence: Confidence = None,
    confusion: Annotated[
        float | None, Flag(help="The share of rows used for precision, recall and F1 instead of scores.")
    ] = None,
    ledger: Ledger = None,
    json: Json = False,
) -> None:
    """Seal labels: make a folder that scores submissions, and reveals nothing else.

    Choose what intervals are about. population: new cases, if no submitter has seen these. labels: these cases with
    labels drawn again, if submitters know the cases. rows: these rows alone, if the cases determine the labels.

    \b
    holdfast board make labels.csv --metric accuracy
    holdfast board make prices.parquet --target price --metric absolute_error --within 0 500
    holdfast board make samples_mmlu.jsonl --metric score --within 0 1 --about population
    """
    from holdfast.board import Board
    from holdfast.board.sealing import board_path

    options = {
        "unit": unit,
        "metric": metric,
        "within": within,
        "clip": clip,
        "step": step,
        "classes": classes and classes.split(","),
        "about": about,
        "confusion": confusion,
    }
    with Board(labels, id=id, target=target, confidence=confidence, ledger=ledger, **options) as board:  # type: ignore[arg-type]
        folder, place, plan = board_path(Path(labels)), board.session.ledger.location, board.session.plan
        if json:
            show_json(board=folder, ledger=place, plan=plan.to_dict(), text=plan.sentence)
            return
        say(f"The board: {folder}", bold=True)
        say(plan.sentence)
        say(f"Submit: holdfast board submit {folder} FILE --by TEAM; let teams submit: holdfast serve {folder}")
        note(f"ledger {place}; keep {labels} away from submitters")


def submit(
    board: BoardPlace,
    predictions: Annotated[
        str, Argument(metavar="PREDICTIONS", help="CSV, JSON lines or Parquet with ids; or an evaluation's file.")
    ],
    by: Annotated[str | None, Flag(help="Who submits; on a server, the token says.")] = None,
    name: Annotated[str | None, Flag(help="The name of the submission in the standings.")] = None,
    metric: Annotated[str | None, Flag(help="Which scores of an evaluation's file to use, if it has several.")] = None,
    part: Annotated[str | None, Flag(help="Which filter or evaluation of the file, if it has several.")] = None,
    dry_run: Annotated[bool, Flag("--dry-run", help="Check the file; score and spend nothing.")] = False,
    receipt: Annotated[Path | None, Flag(help="Write the receipt to this file.")] = None,
    ledger: Ledger = None,
    json: Json = False,
) -> None:
    """Score predictions: are they better than the best so far, and where is their score?

    \b
    holdfast board submit labels.board.holdfast predictions.csv --by "team 7" --name baseline
    holdfast board submit https://boards.example.org/labels predictions.csv --receipt receipt.json
    holdfast board submit https://boards.example.org/mmlu samples_mmlu.jsonl --metric acc
    """
    from holdfast.board.evaluations import read_submission
    from holdfast.questions.predictions import read_table

    given = read_table(read_submission(predictions, metric=metric, part=part))

    with in_flags({}), _opened(board, ledger) as opened:
        session = _session(opened, by)
        if dry_run:
            session.dry_run(given, "submit", name=name)
            say("The file is complete and fits the board. Nothing was scored or spent.")
            return
        answer = session.submit(given, name=name)
        proof = session.receipt(answer).to_dict()
        budget = session.budget
    if receipt is not None:
        receipt.write_text(jsonlib.dumps(proof, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if json:
        show_json(answer=answer.to_dict(), details=dict(answer.details()), receipt=proof, budget=budget.to_dict())
        return
    say(f"{answer.question}: {answer.outcome}", bold=True)
    _, low, high = answer.rows()[0][1].rounded()
    for what, text in (("interval", f"[{low}, {high}]"), *answer.details()):
        say(f"{what}: {text}")
    say(f"{'submitted before: free' if answer.cached else 'scored'}, no. {answer.seq} in the ledger")
    note(str(budget))


def standings(board: BoardPlace, ledger: Ledger = None, json: Json = False) -> None:
    """Show all submissions: improvements, the best first, then those that were no better.

    \b
    holdfast board standings labels.board.holdfast
    """
    from holdfast.questions.estimate import Estimate

    with in_flags({}), _opened(board, ledger) as opened:
        rows = opened.standings().to_dicts()
    if json:
        show_json(standings=rows)
        return
    if not rows:
        say("No submissions yet.")
        return
    lines = []
    for row in rows:
        _, low, high = Estimate(row["low"], row["low"], row["high"]).rounded()
        rank, when = "" if row["rank"] is None else str(row["rank"]), row["time"][:19].replace("T", " ")
        lines.append(
            (rank, row["by"] or "", row["name"] or "", row["outcome"], f"[{low}, {high}]", str(row["seq"]), when)
        )
    table(("rank", "by", "name", "outcome", "interval", "no.", "time (UTC)"), lines, right=(0, 5))


def verify(
    board: Annotated[str, Argument(metavar="BOARD", help="The folder of a board.")],
    head: Annotated[str | None, Flag(help="A head published earlier, which the ledger must contain.")] = None,
    ledger: Ledger = None,
    json: Json = False,
) -> None:
    """Check the ledger of a board, and that its labels are those it began with.

    \b
    holdfast board verify labels.board.holdfast --head HASH
    """
    if "://" in board:
        raise InvalidArgument(
            "BOARD must be a folder: a server's boards are verified where they are kept. A receipt can be verified"
            " anywhere: holdfast verify --receipt FILE --head HASH.",
            name="board",
        )
    show_checks(with_data(board, ledger, head), json=json)


COMMANDS = {"board": group(board, make, submit, standings, verify)}


@contextmanager
def _opened(board: str, ledger: str | None) -> "Iterator[Board | RemoteSession]":
    """Open a board in a folder, or one on a server."""
    if "://" in board:
        from holdfast.service.client import connect

        url, _, name = board.rstrip("/").rpartition("/")
        if url.endswith("/"):  # only http:// is left
            raise InvalidArgument(f"BOARD must end in the board's name: {board.rstrip('/')}/NAME.", name="board")
        token = os.environ.get("HOLDFAST_TOKEN", "").strip()
        if not token:
            raise InvalidArgument("A server needs a token: set HOLDFAST_TOKEN.", name="token")
        remote = connect(url, token, dataset=name)
        try:
            yield remote
        finally:
            remote.close()
        return
    from holdfast.board import Board

    if not Path(board).is_dir():
        sealed = Path(board).with_name(f"{Path(board).stem}.board.holdfast")
        meant = f" Did you mean {str(sealed)!r}?" if sealed.is_dir() else ""
        raise InvalidArgument(
            f"BOARD must be a folder that `holdfast board make` wrote; got {board!r}.{meant}", name="board"
        )
    with noting_warnings() as notes:
        opened = Board(board, ledger=ledger)
    show_notes(notes)
    with opened:
        yield opened


def _session(opened: "Board | RemoteSession", by: str | None) -> Any:
    from holdfast.board import Board

    if isinstance(opened, Board):
        return opened.session.for_analyst(by)
    if by is not None:
        raise InvalidArgument("by must be left out on a server: the token says who submits.", name="by")
    return opened
