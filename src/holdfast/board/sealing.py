"""Labels that are being sealed: checked, stored for their owner alone, and known to be on a board.

Whatever the other rows or columns of the table are: once its labels are sealed, a session on the table would answer
questions about them, and labels that have answered questions, or that were split, are not sealed. Both are refused, as
far as the files beside the labels tell, and this process.
"""

import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import polars as pl

from holdfast import check
from holdfast.errors import HoldfastError, InvalidArgument, RowSourceError
from holdfast.guarantees.statistic import OutcomeShares
from holdfast.ledger import FileWitness, Head, ProcessWitness, Seen, Tip, Witness, content_of
from holdfast.ledger.witness import BOARD, SPLIT
from holdfast.queries.submission import CELLS, Metric
from holdfast.questions.board_files import CONFUSION, SEALED
from holdfast.questions.predictions import PredictionsLike, named_columns
from holdfast.randomness import Randomness
from holdfast.rows.columns import storage_of
from holdfast.rows.decks.dealt import decks_of_copies, decks_of_scan, unordered_content, witness_of
from holdfast.rows.disk.folder import FolderRows
from holdfast.rows.draws import without_replacement
from holdfast.rows.local import LocalRows
from holdfast.rows.memory import memory_rows
from holdfast.rows.open import find_scan, known_ledger
from holdfast.rows.scans.scan import Scan
from holdfast.schema import Type
from holdfast.session.beside import NeighborWitness
from holdfast.session.parts import write_private_rows
from holdfast.session.planning import plan
from holdfast.session.session import Session

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
                f"labels must have a column {name!r}; they have: {named_columns(table.columns)}. Name yours with"
                " id=, target= and unit=.",
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
    if _beyond(ids):
        raise InvalidArgument(
            f"id must be from -2^63 to 2^63 - 1; some of {id!r} are beyond. Write them as text.", name="id"
        )
    _check_whole(sealed, ids)
    if (sealed.height if unit is None else sealed[unit].n_unique()) < 2:
        raise InvalidArgument(f"labels must have at least two {'rows' if unit is None else 'units'}.", name="labels")
    if metric.rule.targets:
        _check_target(sealed[str(target)], metric)
    return sealed.with_columns(pl.col(id).cast(pl.Int64 if ids.dtype.is_integer() else pl.String)).sort(id)


def _beyond(numbers: pl.Series) -> bool:
    """Whether some are whole numbers that 64 bits cannot hold."""
    return numbers.dtype.is_integer() and numbers.cast(pl.Int64, strict=False).null_count() > numbers.null_count()


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
    if metric.rule.listed and _beyond(labels):  # in questions, all of these are the same number
        raise InvalidArgument(
            f"target must be from -2^63 to 2^63 - 1; some of {labels.name!r} are beyond. Write them as text.",
            name="target",
        )
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


def alone(labels: PredictionsLike) -> AbstractContextManager[None]:
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


def all_rows(labels: PredictionsLike) -> LocalRows | None:
    """Return all rows and columns of the labels, as a session on them has them; None if no session can open them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are for those who ask
        try:
            if not isinstance(labels, str | Path):
                return memory_rows(labels, name="labels")
            scan = find_scan(labels)
            if scan is None:
                return None
            scan.open()
            return memory_rows(pl.concat(scan.batches()), name="labels")
        except HoldfastError:
            return None


def refuse_shown(
    labels: PredictionsLike, everything: LocalRows | None, sealed: tuple[pl.DataFrame, str | None] | None
) -> None:
    """Refuse labels that have answered questions, were split or were dealt.

    That is told by the files beside them, or by this process, which may have opened the same rows from elsewhere. If
    the rows that are sealed, with this unit, are `everything`, what it knows of them is the board itself.
    """
    scan = find_scan(labels) if isinstance(labels, str | Path) else None
    known, decks = (None, []) if scan is None else (known_ledger(scan), decks_of_scan(scan, everything))
    if known is None and everything is not None and not _are_all(sealed, everything):
        seen = ProcessWitness(content_of(everything.fingerprint)).newest()
        known = None if seen is None else seen.address
    if known is not None and not known.startswith(BOARD):
        fact = f"was {known}" if known.startswith(SPLIT) else "has answered questions already"
    elif decks:
        fact = f"was dealt as {decks[0].name}"
    else:
        if isinstance(labels, str | Path) and everything is not None and not board_path(Path(labels)).exists():
            _refuse_copies(Path(labels), everything, scan)
        return
    table = labels if isinstance(labels, str | Path) else "This table"
    raise RowSourceError(f"{table} {fact}, so its labels are not sealed. Make a board of other labels.")


def _refuse_copies(labels: Path, everything: LocalRows, scan: Scan | None) -> None:
    """Refuse labels that another file in the folder has, or had, if it answered, was split or dealt, or is sealed."""
    own, board = witness_of(labels), witness_of(board_path(labels))
    contents = (content_of(everything.fingerprint), unordered_content(everything))
    found = [NeighborWitness(own, content, but=board).newest() for content in contents]
    facts = [
        f"was {seen.address}" if seen.address.startswith((BOARD, SPLIT)) else "has answered questions already"
        for seen in found
        if seen is not None
    ]
    if not facts and scan is not None:
        facts = [f"was dealt as {deck.name}" for deck in decks_of_copies(scan, everything)]
    if facts:
        raise RowSourceError(
            f"{labels} has the rows of another file in its folder, which {facts[0]}, so its labels are not sealed. Make"
            " a board of other labels."
        )


def _are_all(sealed: tuple[pl.DataFrame, str | None] | None, everything: LocalRows) -> bool:
    if sealed is None:
        return False
    table, unit = sealed
    return memory_rows(table, complete=table.columns, unit=unit).fingerprint == everything.fingerprint


def leave_witness(labels: PredictionsLike, everything: LocalRows | None, rows: LocalRows, head: Head) -> None:
    """Note that these labels are sealed: for this process, and beside a file of labels for any other.

    A session on all of the rows, or on a deck of them, is then refused.
    """
    if everything is None:
        return
    contents = [content_of(everything.fingerprint), unordered_content(everything)]
    where, witnesses = "'board' in memory", list[Witness]()
    if isinstance(labels, str | Path):
        where = board_path(Path(labels)).name
        witnesses += [FileWitness(witness_of(Path(labels)), content) for content in contents]
    own = content_of(rows.fingerprint)  # which is known where its ledger is
    witnesses += [ProcessWitness(content) for content in contents if content != own]
    for witness in witnesses:
        witness.remember(Seen(f"{BOARD}{where}", Tip(head.seq, head.hash, 0, 0)))
