"""`holdfast.Board`: hidden labels that score submissions and tell whether each is better than the best so far.

A board is a session on sealed rows (ids and labels) under the ladder guarantee; its questions are submissions. The
ledger, receipts, the server and its quotas work as in every session.
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Self

import numpy as np
import polars as pl

from holdfast import check, notebook
from holdfast.board.evaluations import is_evaluation, read_cases, read_submission
from holdfast.errors import HoldfastError, InvalidArgument, NotCovered, PlanConflict, RowSourceError
from holdfast.guarantees.ladder import LABELS, Ladder
from holdfast.guarantees.plan import Plan
from holdfast.guarantees.request import DEFAULT_CONFIDENCE
from holdfast.guarantees.statistic import OutcomeShares
from holdfast.ledger import (
    FileWitness,
    Head,
    Receipt,
    Seen,
    SharedBudget,
    Tip,
    content_of,
    open_ledger,
)
from holdfast.ledger.witness import BOARD, SPLIT
from holdfast.queries.submission import CELLS, Interval, Metric
from holdfast.questions.board_files import CONFUSION, SEALED
from holdfast.questions.confusion import ConfusionAnswer
from holdfast.questions.estimate import Estimate
from holdfast.questions.predictions import PredictionsLike, read_table, typed
from holdfast.questions.submit import SubmitAnswer
from holdfast.randomness import Randomness
from holdfast.rows.columns import storage_of
from holdfast.rows.decks.dealt import decks_of_scan, unordered_content, witness_of
from holdfast.rows.disk.folder import FolderRows
from holdfast.rows.draws import without_replacement
from holdfast.rows.local import LocalRows
from holdfast.rows.memory import memory_rows
from holdfast.rows.open import find_scan, known_ledger
from holdfast.schema import Type
from holdfast.session.beside import ledger_beside, witnesses_beside
from holdfast.session.parts import write_private_rows
from holdfast.session.planning import plan
from holdfast.session.session import Session

PART = 0.1  # share of the failure probability for scores if some rows answer confusion: it costs scores 2.3 nats


@check.public
class Board:
    """Sealed labels that score any number of submissions, each made after the earlier responses.

    The board tells whether a submission is better than the best so far, on a fixed grid. If it is, the submission gets
    its cell of the grid and a two-sided interval; if not, only the end that it does not exceed. All intervals hold at
    once.

    Parameters
    ----------
    labels
        A file (CSV, JSON lines, Parquet), a frame or a mapping of columns; or an existing board of a file, which is
        opened without any other arguments. A file's board is stored beside it, as `<name>.board.holdfast`. If
        submissions bring scores, ids are enough, for example those in an evaluation's file.
    id, target
        The columns of ids and of labels. If submissions bring scores, there is no target.
    unit
        The column that says which rows belong together, such as "conversation": a unit's score is the mean of its rows,
        a submission's score is the mean of its units, and units (not rows) must be independent.
    metric
        "accuracy", "exact_match", "absolute_error", "squared_error", "log_loss", "brier"; "score" or "loss" for numbers
        computed by a trusted program.
    within
        The range of labels (errors) or of scores.
    clip
        The smallest probability that log loss uses; by default, 0.001.
    classes
        The labels that log loss and Brier scores get probabilities for; by default, labels are true or false, or 0 or
        1. For accuracy on text labels: all that a prediction may be, so that one spelled differently is refused instead
        of counted as wrong. They must be declared, since which labels occur is secret.
    step
        The width of a cell of the grid, in units of the metric; by default, one that fits the number of rows.
    about
        What intervals are about. "population": new cases, if no submitter has seen these. "labels": these cases, with
        labels drawn again, if submitters know the cases. "rows": these rows alone, if the cases determine the labels.
    confidence
        The probability that all intervals hold at once; by default, 0.95.
    confusion
        The share of rows, such as 0.2, that do not score but answer for precision, recall and F1: see `confusion`. Only
        for labels in a file.
    ledger
        As for `Session`.

    Examples
    --------
    >>> board = Board({"id": [1, 2, 3, 4], "label": ["a", "b", "a", "a"]}, step=0.25)
    >>> board.submit({"id": [1, 2, 3, 4], "prediction": ["a", "a", "a", "a"]}, by="team 7").cell
    (0.75, 1.0)
    """

    @check.options
    def __init__(
        self,
        labels: PredictionsLike,
        *,
        id: str = "id",
        target: str | None = "label",
        unit: str | None = None,
        metric: str | None = None,
        within: Interval | None = None,
        clip: float | None = None,
        classes: Sequence[str] | None = None,
        step: float | None = None,
        about: str | None = None,
        confidence: float | None = None,
        confusion: float | None = None,
        ledger: str | Path | None = None,
    ) -> None:
        given = {"unit": unit, "metric": metric, "within": within, "clip": clip, "classes": classes, "step": step}
        if isinstance(labels, str | Path) and Path(labels).is_dir():
            refuse_given(given | {"about": about, "confidence": confidence, "confusion": confusion}, str(labels))
            self._open(FolderRows(Path(labels), name=Path(labels).name.removesuffix(SEALED)), ledger)
            return
        scored = Metric.of(metric or "accuracy", within, clip, classes)
        if unit is not None and confusion is not None:
            raise InvalidArgument(
                "confusion must be left out with unit: precision and recall count rows, and rows of a unit are not"
                " independent. Make a board with one row per unit, or leave out one of the two.",
                name="confusion",
            )
        if isinstance(labels, str | Path) and not scored.rule.targets and is_evaluation(labels):
            table = read_cases(labels).rename({"id": id})
        else:
            table = typed(read_table(labels, "labels"), labels)
        table = sealed_rows(table, id, target, unit, scored)
        whole = DEFAULT_CONFIDENCE if confidence is None else confidence
        with _alone(labels):
            contents = _not_shown(labels) if isinstance(labels, str | Path) else []
            if confusion is not None:
                check.probability(confidence=whole)
                table = split_off(table, labels, confusion, scored, 1 - (1 - PART) * (1 - whole))
                whole = 1 - PART * (1 - whole)
            rows = store_sealed(table, labels, unit)
            scale = scored.bounds[1] - scored.bounds[0]
            standing = Ladder.grid(
                len(rows),
                confidence=whole,
                step=step,
                scale=scale,
                about=about or LABELS,
                metric=scored.name,
                id=id,
                target=target if scored.rule.targets else None,
                low=scored.within[0],
                high=scored.within[1],
                clip=scored.clip,
                classes=json.dumps(scored.classes),
            )
            self._open(rows, ledger, standing)
            if isinstance(labels, str | Path):
                leave_witness(Path(labels), contents, self.session.ledger.head)

    def _open(self, rows: LocalRows, ledger: str | Path | None, standing: Ladder | None = None) -> None:
        place, witnesses = ledger_beside(rows) if ledger is None else ledger, witnesses_beside(rows)
        if standing is not None:
            with open_ledger(place, dataset=rows.name, fingerprint=rows.fingerprint, witnesses=witnesses) as begun:
                terms = Plan(standing, unit=rows.schema.unit).to_dict()
                new = begun.begin(terms, Randomness(None).secret())
                if not new and begun.terms != terms:
                    raise PlanConflict(
                        f"These labels already have a board with other settings (ledger {begun.location})."
                        " Open it as it is, or make one of other labels."
                    )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SharedBudget)  # submissions have no end
            self.session = Session(rows, ledger=place)
        if not isinstance(self.session.plan.standing, Ladder):
            self.session.close()
            raise PlanConflict(f"{rows.name} is no board but a session that answers questions. Open it with Session.")

        folder = rows.location
        other = None if folder is None else folder.with_name(folder.name.removesuffix(SEALED) + CONFUSION)
        self.confusion_session = None if other is None or not other.is_dir() else Session(other)
        if self.confusion_session is not None and other is not None:
            ids = (part.ids(self.ladder.terms.id) for part in (rows, FolderRows(other)))
            if pl.concat(ids, how="vertical").is_duplicated().any():
                self.close()
                raise RowSourceError(f"{folder} and {other} share rows, so neither is sealed. Create both again.")

    @property
    def ladder(self) -> Ladder:
        """The guarantee: grid, metric, and what intervals are about."""
        standing = self.session.plan.standing
        assert isinstance(standing, Ladder)
        return standing

    def submit(
        self,
        predictions: PredictionsLike,
        *,
        by: str | None = None,
        name: str | None = None,
        metric: str | None = None,
        part: str | None = None,
    ) -> SubmitAnswer:
        """Score predictions; tell whether they are better than the best so far, with an interval.

        Parameters
        ----------
        predictions
            A file (CSV, JSON lines, Parquet), a frame or a mapping of columns, with the ids of the board, each once.
            Or the file of an evaluation harness, for its scores.
        by
            Who submits.
        name
            The name of the submission in the standings.
        metric, part
            Which scores of an evaluation's file to take, if it has several: as for `read_evaluation`.

        Returns
        -------
        SubmitAnswer
            Submitting the same predictions again is free and returns the same answer.
        """
        given = read_submission(predictions, metric=metric, part=part)
        return self.session.for_analyst(by).submit(given, name=name)

    def confusion(
        self, predictions: PredictionsLike, *, positive_label: str = "true", by: str | None = None
    ) -> ConfusionAnswer:
        """Return precision, recall and F1 of predictions, from the rows set aside for that.

        Every answer makes the intervals of later ones a little wider, as in any session; scores are not affected.

        Parameters
        ----------
        predictions
            As for `submit`.
        positive_label
            The label that counts as positive.
        by
            Who asks.

        Returns
        -------
        ConfusionAnswer
            The four cells, and precision, recall and F1 from them.
        """
        if self.confusion_session is None:
            raise NotCovered(
                "This board was made without rows for confusion: it gives scores, but no precision or recall. Make one"
                " of other labels with confusion=0.2.",
                guarantee=self.ladder.name,
            )
        return self.confusion_session.for_analyst(by).confusion(predictions, positive_label=positive_label)

    def standings(self) -> pl.DataFrame:
        """Return all submissions, the best first; those that did not improve have no rank."""
        return self.session.standings()

    def receipt(self, answer: SubmitAnswer | int) -> Receipt:
        """Return the proof that an answer is in the ledger, checkable by a third party against a published head."""
        return self.session.receipt(answer)

    def verify(self) -> str:
        """Check every entry of the ledger and all labels again; return the hash of the newest entry."""
        self.session.verify_data()
        if self.confusion_session is not None:
            self.confusion_session.verify_data()
        return self.session.ledger.verify().hash

    def close(self) -> None:
        """Release the ledgers."""
        self.session.close()
        if self.confusion_session is not None:
            self.confusion_session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        given = self.session.ledger.spent.answers
        progress = f"{given:,} submission{'' if given == 1 else 's'} so far; {self.session.budget}."
        lines = [f"Board on {self.session.dataset}: {self.ladder.terms.metric}.", self.session.plan.sentence]
        return "\n".join([*lines, *self._leading(), progress])

    def _leading(self) -> list[str]:
        for best in self.standings().head(1).iter_rows(named=True):
            if best["rank"] is not None:
                _, low, high = Estimate(best["low"], best["low"], best["high"]).rounded()
                whose = "" if best["by"] is None else f"that of {best['by']}, "
                return [f"The best so far is {whose}no. {best['seq']}: [{low}, {high}]."]
        return []

    def _repr_html_(self) -> str:
        title, _, sentences = repr(self).partition("\n")
        progress = sentences.partition("; submissions have")[0]
        return notebook.paragraphs(title, *progress.split("\n")) + self.session.budget._repr_html_()


def refuse_given(given: Mapping[str, object], board: str) -> None:
    """Refuse settings that can be given only when a board is made."""
    for name, value in given.items():
        if value is not None:
            raise InvalidArgument(f"{name} must be left out: {board} exists, and was made with its own.", name=name)


ANSWERS = 80  # planned for the rows set aside: enough for twenty submissions; after that, margins widen


def board_path(labels: Path) -> Path:
    """Return the path of the board of a file of labels."""
    return labels.with_name(labels.stem + SEALED)


def sealed_rows(table: pl.DataFrame, id: str, target: str | None, unit: str | None, metric: Metric) -> pl.DataFrame:
    """Return only ids, labels and units, sorted by id, so that the order of the rows reveals nothing."""
    requested = [id, str(target)] if metric.rule.targets else [id]
    if unit in requested:
        raise InvalidArgument(f"unit must be another column than those of ids and labels; got {unit!r}.", name="unit")
    for name in requested if unit is None else [*requested, unit]:
        if name not in table.columns:
            raise InvalidArgument(
                f"labels must have a column {name!r}; they have: {', '.join(table.columns)}. Name yours with id=,"
                " target= and unit=.",
                name="labels",
            )
    sealed = table.select(requested if unit is None else [*requested, unit])
    if unit is not None and sealed[unit].null_count():
        raise InvalidArgument(
            f"unit must be known for every row; {sealed[unit].null_count():,} rows have none. A row that belongs"
            " with no other needs its own unit.",
            name="unit",
        )
    ids = sealed[id]
    if not (ids.dtype.is_integer() or ids.dtype == pl.String):
        raise InvalidArgument(f"id must be a column of text or whole numbers; {id!r} is {ids.dtype}.", name="id")
    _check_whole(sealed, ids)
    if (sealed.height if unit is None else sealed[unit].n_unique()) < 2:
        raise InvalidArgument(f"labels must have at least two {'rows' if unit is None else 'units'}.", name="labels")
    if metric.rule.targets:
        _check_target(sealed[str(target)], metric)
    return sealed.with_columns(pl.col(id).cast(pl.Int64 if ids.dtype.is_integer() else pl.String)).sort(id)


def _check_whole(sealed: pl.DataFrame, ids: pl.Series) -> None:
    """Refuse rows without an id or a label, and ids of several rows; whoever makes a board may be told which."""
    for column in sealed.get_columns():
        if missing := column.null_count():
            raise InvalidArgument(
                f"labels must be complete; {column.name!r} has no value in {missing:,} of {ids.len():,} rows."
                " Leave those rows out.",
                name="labels",
            )
    double = ids.filter(ids.is_duplicated()).unique(maintain_order=True)
    if double.len():
        shown, are = ", ".join(map(repr, double.head(3).to_list())), "is" if double.len() == 1 else "are"
        raise InvalidArgument(
            f"labels must have every id once; {double.len():,} in {ids.name!r} {are} there twice or more, such as"
            f" {shown}. If several rows belong together, that is the unit: name a column that differs in every row with"
            f" id=, and {ids.name!r} with unit=.",
            name="labels",
        )


def _check_target(labels: pl.Series, metric: Metric) -> None:
    """Refuse labels that do not fit the metric. Whoever makes a board has the labels, so errors may describe them."""
    type_ = storage_of(labels.name, labels.dtype).type
    allowed = metric.rule.targets
    if type_ not in allowed:
        named = " or ".join(allowed)
        raise InvalidArgument(f"target must be {named} for {metric.name}; {labels.name!r} is {type_}.", name="target")
    if type_.is_number and metric.rule.bounded and not labels.is_between(*metric.within).all():
        low, high = metric.within
        raise InvalidArgument(f"within must hold all labels; some are not between {low:g} and {high:g}.", name="within")
    if metric.rule.listed and metric.classes and type_ is not Type.STRING:
        raise InvalidArgument(
            f"classes must be left out for labels that are not text; {labels.name!r} is {type_}.", name="classes"
        )
    if metric.rule.probability and (type_ is Type.STRING) != bool(metric.classes):
        raise InvalidArgument(
            f"classes must be given for labels that are text, and left out for others; {labels.name!r} is {type_}.",
            name="classes",
        )
    if metric.classes and not labels.is_in(metric.classes).all():
        raise InvalidArgument("classes must hold all labels; some are not among them.", name="classes")
    if type_ is Type.INT and metric.rule.probability and not labels.is_in([0, 1]).all():
        raise InvalidArgument(f"target must be 0 or 1, or true or false, for {metric.name}.", name="target")


def split_off(
    table: pl.DataFrame, labels: PredictionsLike, share: float, metric: Metric, confidence: float
) -> pl.DataFrame:
    """Set aside random rows for a session that answers confusion questions; return the others."""
    check.probability(confusion=share)
    if not isinstance(labels, str | Path):
        raise InvalidArgument(
            "confusion must be left out for labels in memory: a second board would split them in another way. Write"
            " them to a file, and make a board of that.",
            name="confusion",
        )
    if not metric.rule.targets or not set(metric.rule.targets) & {Type.BOOL, Type.STRING}:
        raise InvalidArgument(f"confusion must be left out for {metric.name}: it is for labels of a few kinds.")
    folder = Path(labels).with_name(Path(labels).stem + CONFUSION)
    count = check.part_of(table.height, (2, 2), "two rows on either side", confusion=share)
    if not folder.exists():
        if board_path(Path(labels)).exists():
            raise RowSourceError(f"{board_path(Path(labels))} has no rows for confusion. Open it as it is.")
        try:  # before anything is written
            plan(rows=count, queries=ANSWERS).standing.answering().supports(OutcomeShares(len(CELLS)))
        except InvalidArgument:
            raise InvalidArgument(
                f"confusion must keep more rows: from {count:,} its answers would be mostly noise.", name="confusion"
            ) from None
        chosen = without_replacement(Randomness().generator(), table.height, count)
        write_private_rows(table[np.sort(chosen)], folder, table.columns)
    # Submitters know the ids, and given the ids, rows are not identically distributed, wherever they were drawn from.
    with Session(folder, queries=ANSWERS, confidence=confidence, identical=False) as session:
        session.answering.plan.begin()
    stored = FolderRows(folder)
    answering = pl.col(table.columns[0]).is_in(stored.ids(table.columns[0]).implode())
    if len(stored) != count or not table.filter(answering).equals(stored.frame(np.arange(len(stored)))):
        raise RowSourceError(f"{folder} contains rows of other labels, or another share of them. Move it away.")
    return table.filter(~answering)


def _alone(labels: PredictionsLike) -> AbstractContextManager[None]:
    """Keep other processes from asking or splitting a file of labels, or making a board of it, meanwhile."""
    if not isinstance(labels, str | Path):
        return nullcontext()
    return FileWitness(witness_of(Path(labels)), "").alone()


def store_sealed(table: pl.DataFrame, labels: PredictionsLike, unit: str | None) -> LocalRows:
    """Store the sealed rows: beside the file of labels, readable by its owner alone, or in memory."""
    complete = table.columns
    if not isinstance(labels, str | Path):
        return memory_rows(table, name="board", complete=complete, unit=unit)
    folder = board_path(Path(labels))
    name = folder.name.removesuffix(SEALED)
    if folder.exists():
        rows = FolderRows(folder, name=name)
        if rows.schema.unit != unit:
            made = "without unit" if rows.schema.unit is None else f"with the unit {rows.schema.unit!r}"
            raise RowSourceError(
                f"{folder} was made {made}, and stays so. Open it as it is, or make one of other labels."
            )
        if rows.fingerprint != memory_rows(table, name=name, complete=complete, unit=unit).fingerprint:
            raise RowSourceError(f"{folder} is the board of other labels. Move it away, or open it as it is.")
        return rows
    return write_private_rows(table, folder, complete, unit, name)


def _not_shown(labels: str | Path) -> list[str]:
    """Refuse a file that has answered questions, was split or was dealt, as far as the files beside it tell.

    Return under which identities witnesses know its rows, and those of decks; none of a file that no session can open.
    """
    scan = find_scan(labels)
    if scan is None:
        return []
    rows = None
    with warnings.catch_warnings(), suppress(HoldfastError):
        warnings.simplefilter("ignore")  # they are for those who ask
        scan.open()
        rows = memory_rows(pl.concat(scan.batches()), name="labels")
    known, decks = known_ledger(scan), decks_of_scan(scan, rows)
    if known is not None and not known.startswith(BOARD):
        fact = f"was {known}" if known.startswith(SPLIT) else "has answered questions already"
    elif decks:
        fact = f"was dealt as {decks[0].name}"
    else:
        return [] if rows is None else [content_of(rows.fingerprint), unordered_content(rows)]
    raise RowSourceError(f"{labels} {fact}, so its labels are not sealed. Make a board of other labels.")


def leave_witness(labels: Path, contents: Sequence[str], head: Head) -> None:
    """Note beside a file of labels that they are sealed: a session on it, or on a deck of it, is refused everywhere."""
    for content in contents:
        witness = FileWitness(witness_of(labels), content)
        witness.remember(Seen(f"{BOARD}{board_path(labels).name}", Tip(head.seq, head.hash, 0, 0)))
