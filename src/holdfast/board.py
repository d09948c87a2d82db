"""`holdfast.Board`: labels that nobody sees, which score submissions and say whether they are better than the best.

A board is a session on sealed rows, ids and labels, under the ladder guarantee; its questions are submissions. The
ledger, receipts, the server and its quotas are those of every session.
"""

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import polars as pl

from holdfast import check, notebook
from holdfast.beside import CONFUSION, SEALED, ledger_beside, witnesses_beside
from holdfast.errors import InvalidArgument, PlanConflict, RowSourceError
from holdfast.guarantees.ladder import LABELS, Ladder
from holdfast.guarantees.solve import DEFAULT_CONFIDENCE, plan
from holdfast.guarantees.statistic import OutcomeShares
from holdfast.ledger import Receipt, SharedBudget, exists, open_ledger
from holdfast.queries.metrics import Interval, Metric
from holdfast.queries.submission import CELLS
from holdfast.questions.confusion import ConfusionAnswer
from holdfast.questions.predictions import PredictionsLike, read_table, typed
from holdfast.questions.submit import SubmitAnswer
from holdfast.randomness import Randomness
from holdfast.rows.columns import storage_of
from holdfast.rows.folder import FolderRows
from holdfast.rows.ingest import ingest
from holdfast.rows.local import LocalRows
from holdfast.rows.memory import memory_rows
from holdfast.rows.scans.files import Dialect, FileScan
from holdfast.schema import Type
from holdfast.session import Session

ANSWERS = 80  # that the rows which answer are planned for: those of twenty submissions; then margins widen
PART = 0.1  # of the failure probability, for scores, if some rows answer: it costs them 2.3 nats


@check.public
class Board:
    """Sealed labels that score any number of submissions, each made after the earlier responses.

    A submission is told whether it is better than the best so far, on a fixed grid. Then it gets its cell of the grid
    and a two-sided interval; if it is not better, the end that it does not exceed. All intervals hold at once.

    Parameters
    ----------
    labels
        A file (CSV, JSON lines, Parquet), a frame or a mapping of columns; or a board that was made of a file, which is
        then opened, and nothing else needs to be given. A file's board lies beside it, as `<name>.board.holdfast`.
    id, target
        The columns of ids and of labels. Where submissions bring scores, there is no target.
    metric
        "accuracy", "exact_match", "absolute_error", "squared_error", "log_loss", "brier"; "score" or "loss" for numbers
        that a trusted program made.
    within
        The range of labels (errors) or of scores.
    clip
        The least probability that log loss takes; left out, 0.001.
    classes
        The labels that log loss and Brier scores take probabilities of; left out, labels are true or false, or 0 or 1.
        They are declared, since which ones occur is a secret.
    step
        The width of a cell of the grid, in units of the metric; left out, one that fits the number of rows.
    about
        What intervals are about. "population": new cases, if nobody who submits has seen these. "labels": these cases,
        with labels drawn anew, if submitters know the cases. "rows": these rows alone, if the cases decide the labels.
    confidence
        The probability that all intervals hold at once; left out, 0.95.
    confusion
        The share of rows, such as 0.2, that score nothing and tell precision, recall and F1 instead: see `confusion`.
        For labels in a file.
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
        given = {"metric": metric, "within": within, "clip": clip, "classes": classes, "step": step, "about": about}
        if isinstance(labels, str | Path) and Path(labels).is_dir():
            refuse_given(given | {"confidence": confidence, "confusion": confusion}, str(labels))
            self._open(FolderRows(Path(labels), name=Path(labels).name.removesuffix(SEALED)), ledger)
            return
        scored = Metric.of(metric or "accuracy", within, clip, classes)
        table = _sealed(typed(read_table(labels, "labels"), labels), id, target, scored)
        whole = DEFAULT_CONFIDENCE if confidence is None else confidence
        if confusion is not None:
            check.probability(confidence=whole)
            table = _split(table, labels, confusion, scored, 1 - (1 - PART) * (1 - whole))
            whole = 1 - PART * (1 - whole)
        rows = _keep(table, labels)
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

    def _open(self, rows: LocalRows, ledger: str | Path | None, standing: Ladder | None = None) -> None:
        place, witnesses = ledger_beside(rows) if ledger is None else ledger, witnesses_beside(rows)
        if standing is not None:
            with open_ledger(place, dataset=rows.name, fingerprint=rows.fingerprint, witnesses=witnesses) as begun:
                new = begun.begin(standing.to_json(), Randomness(None).secret())
                if not new and begun.terms != standing.to_json():
                    raise PlanConflict(
                        f"These labels have a board already (ledger {begun.location}), which is scored in another way."
                        " Open it as it is, or make one of other labels."
                    )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SharedBudget)  # submissions have no end
            self.session = Session(rows, ledger=place)
        if not isinstance(self.session.plan.standing, Ladder):
            self.session.close()
            raise PlanConflict(f"{rows.name} is no board, but a session that answers questions. Open it with Session.")

        folder = rows.location
        other = None if folder is None else folder.with_name(folder.name.removesuffix(SEALED) + CONFUSION)
        self.answering = None if other is None or not other.is_dir() else Session(other)

    @property
    def ladder(self) -> Ladder:
        """The guarantee: grid, metric, what intervals are about."""
        standing = self.session.plan.standing
        assert isinstance(standing, Ladder)
        return standing

    def submit(self, predictions: PredictionsLike, *, by: str | None = None, name: str | None = None) -> SubmitAnswer:
        """Score predictions; say whether they are better than the best so far, with an interval.

        Parameters
        ----------
        predictions
            A file (CSV, JSON lines, Parquet), a frame or a mapping of columns, with the ids of the board, each once.
        by
            Who submits.
        name
            What the submission is called in the standings.

        Returns
        -------
        SubmitAnswer
            The same again, free, for the same predictions.
        """
        return self.session.for_analyst(by).submit(predictions, name=name)

    def confusion(
        self, predictions: PredictionsLike, *, positive_label: str = "true", by: str | None = None
    ) -> ConfusionAnswer:
        """Return precision, recall and F1 of predictions, by the rows that answer.

        Every answer makes later ones a little wider, as in every session that answers; scores are not affected.

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
            Four cells, and what follows from them.
        """
        if self.answering is None:
            raise PlanConflict(
                "This board was made without rows that answer: it tells scores, no precision or recall. Make one of"
                " other labels with confusion=0.2."
            )
        return self.answering.for_analyst(by).confusion(predictions, positive_label=positive_label)

    def standings(self) -> pl.DataFrame:
        """Return all submissions, the best first; those that did not improve have no rank."""
        return self.session.standings()

    def receipt(self, answer: SubmitAnswer | int) -> Receipt:
        """Return the proof that an answer is in the ledger, checkable by a third party against a published head."""
        return self.session.receipt(answer)

    def verify(self) -> str:
        """Check every entry of the ledger and all labels again; return the hash of the newest entry."""
        self.session.verify_data()
        if self.answering is not None:
            self.answering.verify_data()
        return self.session.ledger.verify().hash

    def close(self) -> None:
        """Let go of the ledgers."""
        self.session.close()
        if self.answering is not None:
            self.answering.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        given = self.session.ledger.spent.answers
        said = f"{given:,} submission{'' if given == 1 else 's'} so far; {self.session.budget}."
        return f"Board on {self.session.dataset}: {self.ladder.terms.metric}.\n{self.ladder.sentence}\n{said}"

    def _repr_html_(self) -> str:
        title, _, sentences = repr(self).partition("\n")
        said = sentences.partition("; submissions have")[0]
        return notebook.paragraphs(title, *said.split("\n")) + self.session.budget._repr_html_()


# -- making ----------------------------------------------------------------------------------------------------------


def board_path(labels: Path) -> Path:
    """Return where the board of a file of labels lies."""
    return labels.with_name(labels.stem + SEALED)


def refuse_given(given: Mapping[str, object], board: str) -> None:
    """Refuse what can be said only when a board is made."""
    for name, value in given.items():
        if value is not None:
            raise InvalidArgument(f"{name} must be left out: {board} was made before, and says it.", name=name)


def _sealed(table: pl.DataFrame, id: str, target: str | None, metric: Metric) -> pl.DataFrame:
    """Return ids and labels alone, sorted by id, so that the order of the rows says nothing."""
    wanted = [id, str(target)] if metric.rule.targets else [id]
    for name in wanted:
        if name not in table.columns:
            raise InvalidArgument(
                f"labels must have a column {name!r}; they have: {', '.join(table.columns)}. Name yours with id= and"
                " target=.",
                name="labels",
            )
    sealed = table.select(wanted)
    ids = sealed[id]
    if not (ids.dtype.is_integer() or ids.dtype == pl.String):
        raise InvalidArgument(f"id must be a column of text or whole numbers; {id!r} is {ids.dtype}.", name="id")
    if any(sealed.null_count().row(0)) or ids.n_unique() != ids.len():
        raise InvalidArgument("labels must be complete, with every id once; these are not.", name="labels")
    if sealed.height < 2:
        raise InvalidArgument("labels must have at least two rows.", name="labels")
    if metric.rule.targets:
        _check_target(sealed[str(target)], metric)
    return sealed.with_columns(pl.col(id).cast(pl.Int64 if ids.dtype.is_integer() else pl.String)).sort(id)


def _check_target(labels: pl.Series, metric: Metric) -> None:
    """Refuse labels that the metric is not for. Whoever makes a board has them, so what is wrong may be said."""
    type_ = storage_of(labels.name, labels.dtype).type
    allowed = metric.rule.targets
    if type_ not in allowed:
        named = " or ".join(allowed)
        raise InvalidArgument(f"target must be {named} for {metric.name}; {labels.name!r} is {type_}.", name="target")
    if type_.is_number and metric.rule.bounded and not labels.is_between(*metric.within).all():
        low, high = metric.within
        raise InvalidArgument(f"within must hold all labels; some are not between {low:g} and {high:g}.", name="within")
    if metric.rule.probability and (type_ is Type.STRING) != bool(metric.classes):
        raise InvalidArgument(
            f"classes must be given for labels that are text, and left out for others; {labels.name!r} is {type_}.",
            name="classes",
        )
    if metric.classes and not labels.is_in(metric.classes).all():
        raise InvalidArgument("classes must hold all labels; some are not among them.", name="classes")
    if type_ is Type.INT and metric.rule.probability and not labels.is_in([0, 1]).all():
        raise InvalidArgument(f"target must be 0 or 1, or true or false, for {metric.name}.", name="target")


def _split(
    table: pl.DataFrame, labels: PredictionsLike, share: float, metric: Metric, confidence: float
) -> pl.DataFrame:
    """Keep some rows, chosen by lot, for a session that answers; return the others."""
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
    if not folder.exists():
        if board_path(Path(labels)).exists():
            raise RowSourceError(f"{board_path(Path(labels))} has no rows that answer. Open it as it is.")
        count = round(share * table.height)
        if not 2 <= count <= table.height - 2:
            raise InvalidArgument(
                f"confusion must leave two rows on either side; {share:g} of {table.height:,} rows does not.",
                name="confusion",
            )
        try:  # before anything is written
            plan(rows=count, queries=ANSWERS).standing.supports(OutcomeShares(len(CELLS)))
        except InvalidArgument:
            raise InvalidArgument(
                f"confusion must keep more rows: from {count:,} its answers would be mostly noise.", name="confusion"
            ) from None
        order = Randomness(None).generator().permutation(table.height)
        _write(table[np.sort(order[:count])], folder)
    # Who submits knows the ids: given those, rows are not identical, whatever they were drawn from.
    with Session(folder, queries=ANSWERS, confidence=confidence, rows="independent") as session:
        session.begin()
    answering = FolderRows(folder).ids(table.columns[0])
    return table.filter(~pl.col(answering.name).is_in(answering.implode()))


def _keep(table: pl.DataFrame, labels: PredictionsLike) -> LocalRows:
    """Keep the sealed rows: beside the file of labels, readable by its owner alone, or in memory."""
    complete = table.columns
    if not isinstance(labels, str | Path):
        return memory_rows(table, name="board", complete=complete)
    folder = board_path(Path(labels))
    if exists(Path(labels).with_suffix(".ledger"), Path(labels).stem):
        raise RowSourceError(
            f"{labels} has answered questions already, so its labels are not sealed. Make a board of other labels."
        )
    name = folder.name.removesuffix(SEALED)
    if folder.exists():
        rows = FolderRows(folder, name=name)
        if rows.fingerprint != memory_rows(table, name=name, complete=complete).fingerprint:
            raise RowSourceError(f"{folder} is the board of other labels. Move it away, or open it as it is.")
        return rows
    return _write(table, folder, name)


def _write(table: pl.DataFrame, folder: Path, name: str | None = None) -> LocalRows:
    """Write rows to a folder that only its owner can read."""
    source = folder.with_suffix(".parquet")
    source.unlink(missing_ok=True)
    with os.fdopen(os.open(source, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        table.write_parquet(file)
    try:
        scan = FileScan(source, [source], Dialect())
        return ingest(scan, folder, name=name, progress=False, complete=table.columns)
    finally:
        source.unlink()
