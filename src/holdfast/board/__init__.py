"""`holdfast.Board`: hidden labels that score submissions and tell whether each is better than the best so far.

A board is a session on sealed rows (ids and labels) under the ladder guarantee; its questions are submissions. The
ledger, receipts, the server and its quotas work as in every session.
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import polars as pl

from holdfast import check, notebook
from holdfast.board.evaluations import is_evaluation, read_cases, read_submission
from holdfast.board.sealing import all_rows, alone, leave_witness, refuse_shown, sealed_rows, split_off, store_sealed
from holdfast.errors import HoldfastError, InvalidArgument, NotCovered, PlanConflict, RowSourceError
from holdfast.guarantees.ladder import LABELS, Ladder
from holdfast.guarantees.plan import Plan
from holdfast.guarantees.request import DEFAULT_CONFIDENCE
from holdfast.ledger import Entry, Follower, Receipt, SharedBudget, open_ledger
from holdfast.queries.submission import Interval, Metric
from holdfast.questions.board_files import CONFUSION, SEALED
from holdfast.questions.budget import Budget
from holdfast.questions.confusion import ConfusionAnswer
from holdfast.questions.estimate import Estimate
from holdfast.questions.predictions import PredictionsLike, read_table, typed
from holdfast.questions.submit import SubmitAnswer
from holdfast.randomness import Randomness
from holdfast.rows.disk.folder import FolderRows
from holdfast.rows.local import LocalRows
from holdfast.session.beside import ledger_beside, witnesses_beside
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
        with alone(labels):
            everything = all_rows(labels)
            refuse_shown(labels, everything, None if confusion is not None else (table, unit))
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
            leave_witness(labels, everything, rows, self.session.ledger.head)

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
            raise PlanConflict(
                f"{rows.name} is not a board: it is a session that answers questions. Open it with Session."
            )
        self._best: Entry | None = None  # the best submission seen so far, for printouts, which read nothing
        self._follower = Follower(self.session.ledger, self._note)
        self._follow()

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
        answer = self.session.for_analyst(by).submit(given, name=name)
        with suppress(HoldfastError):  # the answer is committed: it is shown, even if a printout will lack it
            self._follow(answer.seq)
        return answer

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
        self._follow()
        return self.session.standings()

    def receipt(self, answer: SubmitAnswer | int) -> Receipt:
        """Return the proof that an answer is in the ledger, checkable by a third party against a published head.

        Parameters
        ----------
        answer
            A response, or its number.
        """
        return self.session.receipt(answer)

    def verify(self) -> str:
        """Check every entry of the ledger and all labels again.

        Returns
        -------
        str
            The hash of the newest entry.
        """
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
        return f"{self._so_far()}; {self._last_seen}."

    def _repr_html_(self) -> str:
        title, *sentences = f"{self._so_far()}.".split("\n")
        return notebook.paragraphs(title, *sentences) + self._last_seen._repr_html_()

    def _so_far(self) -> str:
        best, given = self._best, self._last_seen.answers_given
        lines = [f"Board on {self.session.dataset}: {self.ladder.terms.metric}.", self.session.plan.sentence]
        if best is not None:
            _, low, high = Estimate(best.answer["low"], best.answer["low"], best.answer["high"]).rounded()
            whose = "" if best.analyst is None else f"that of {best.analyst}, "
            lines.append(f"The best so far is {whose}no. {best.seq}: [{low}, {high}].")
        return "\n".join([*lines, f"{given:,} submission{'' if given == 1 else 's'} so far"])

    def _follow(self, to: int | None = None) -> None:
        """Note the best submission so far, reading the ledger up to submission `to` at least, or to its end."""
        self._follower.caught_up(lambda: None, to)

    def _note(self, entry: Entry) -> None:
        if entry.answer["improved"]:
            self._best = entry

    @property
    def _last_seen(self) -> Budget:
        return Budget.of(self.ladder, *self.session.ledger.last_seen)


def refuse_given(given: Mapping[str, object], board: str) -> None:
    """Refuse settings that can be given only when a board is made."""
    for name, value in given.items():
        if value is not None:
            raise InvalidArgument(f"{name} must be left out: {board} exists, and was made with its own.", name=name)
