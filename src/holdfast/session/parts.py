"""`holdfast.hold_back`: some rows to explore freely, the others to check what was found.

Chance alone decides which rows go where. So whatever is fitted, searched or plotted on the exploration part is
independent of the held rows, and a guess made from it is as valid as one made before the data existed.
"""

import os
import secrets
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
import polars as pl

from holdfast import check
from holdfast.errors import InvalidArgument, RowSourceError
from holdfast.guarantees.checks import Checks
from holdfast.ledger import SPLIT, ProcessWitness, Seen, Tip, Witness, content_of, exists
from holdfast.ledger.witness import BOARD, DEALT
from holdfast.process import this_process
from holdfast.randomness import Randomness, keyed_generator
from holdfast.rows.disk.ingest import ingest
from holdfast.rows.draws import without_replacement
from holdfast.rows.local import LocalRows
from holdfast.rows.memory import memory_rows
from holdfast.rows.open import open_rows
from holdfast.rows.scans.files import EXPLORE, FileScan
from holdfast.rows.scans.texts import Dialect
from holdfast.rows.source import RowSource, Table
from holdfast.session.beside import HELD, ledger_beside, witnesses_beside
from holdfast.session.session import Session

LEAST = 20  # fewest rows of an exploration part that can show whether a column names the rows


class HowSplit(NamedTuple):
    """How a table is split: how many rows or units are shown, which columns the held part lacks, and the unit."""

    shown: int
    dropped: frozenset[str]
    unit: str | None


_turn: dict[int, threading.RLock] = {}  # by process: a forked child does not wait for a thread of its parent
_keys: dict[str, tuple[HowSplit, bytes]] = {}  # of splits of rows in memory, by content. Secret.


class NamesRows(UserWarning):
    """A column seems to name the rows, so its values in one part tell which rows are in the other."""


@check.options
def hold_back(
    data: Table,
    explore: float = 0.5,
    *,
    id: str | Collection[str] = (),
    confidence: float | None = None,
    ledger: str | Path | None = None,
    seed: int | None = None,
    analyst: str | None = None,
    complete: Collection[str] = (),
    unit: str | None = None,
    **reading: Unpack[check.TextFormat],
) -> tuple[pl.DataFrame, Session]:
    """Split a table at random: return some rows to look at, and a session that checks guesses on the others.

    A file is split on disk: the two parts are stored beside it, for later sessions, as `<name>.explore.parquet` and
    `<name>.held.holdfast`. A table is split only once. The same call returns the same two parts again, and the held
    part's ledger goes on; another split is refused, and so is a session on all of the rows.

    Parameters
    ----------
    data
        A file, a frame, a dict of arrays, or opened rows. Rows, or declared units, must be independent of each other.
    explore
        The share of rows to look at.
    id
        Columns that name rows. They are left out of the held part, since the names that were seen reveal the others.
    confidence
        The probability that the intervals of all checks hold at once; left out, 0.95.
    ledger, seed, analyst, complete
        As for `Session`.
    unit
        The column that says which rows belong together; all rows of a unit go to the same side.
    **reading
        How a CSV or JSON lines file is written, as for `Session`.

    Returns
    -------
    tuple[DataFrame, Session]
        The exploration part, in random order, and the session on the held part.

    Examples
    --------
    >>> explore, held = hold_back({"x": range(2_000)}, explore=0.25, id="x", seed=1)
    Traceback (most recent call last):
        ...
    holdfast.errors.InvalidArgument: id must leave a column to ask about; got all of them.
    """
    check.probability(explore=explore)
    rows = open_rows(data, complete=complete, unit=unit, **reading)
    if not isinstance(rows, LocalRows):
        raise InvalidArgument(
            "data must be a file, a frame or arrays to be split; split this where it is stored.", name="data"
        )
    names, unit = _names(id, rows), rows.schema.unit
    witnesses = [] if seed is not None else [ProcessWitness(content_of(rows.fingerprint)), *witnesses_beside(rows)]
    options: dict[str, Any] = {"guarantee": Checks.name, "confidence": confidence, "ledger": ledger}
    options |= {"seed": seed, "analyst": analyst}
    count = check.part_of(len(rows), (1, 2), "a row to look at and two to hold back", explore=explore)
    split = HowSplit(count, frozenset(names), unit)
    with _alone(witnesses):
        return _parts(rows, split, witnesses, options, complete)


def _parts(
    rows: LocalRows, split: HowSplit, witnesses: list[Witness], options: Mapping[str, Any], complete: Collection[str]
) -> tuple[pl.DataFrame, Session]:
    """Split these rows, or return the parts of an earlier split, while nobody else splits or begins to ask them."""
    names, unit, seed = sorted(split.dropped), split.unit, options["seed"]
    before, key = _split_before(rows, witnesses), secrets.token_bytes(16)
    if before is not None and rows.location is not None:
        return _parts_again(rows, split, before, options, [name for name in complete if name not in names])
    if before is not None:
        key = _key_again(content_of(rows.fingerprint), split, before)
    chance = keyed_generator(key) if seed is None else Randomness(seed).generator()
    shown_rows = without_replacement(chance, len(rows), split.shown)
    held_rows = np.delete(np.arange(len(rows)), shown_rows)  # in their original order; those shown are in random order
    frame, held_frame = rows.frame(shown_rows), rows.frame(held_rows).drop(names)
    _warn_of_names(frame.drop(names, *([] if unit is None else [unit])))
    never = [column.name for column in rows.schema if not column.nullable and column.name not in names]
    if rows.location is None:
        held: RowSource = memory_rows(held_frame, name=f"{rows.name} held", complete=never, unit=unit)
        session = Session(held, **options)
        session.explore(memory_rows(frame, name=f"{rows.name} explored", unit=unit))
        session.answering.plan.begin()
        _keys[content_of(rows.fingerprint)] = split, key
        _remember(witnesses, session, "an exploration part and a held part, in memory")
        return frame, session
    shown, folder = part_paths(rows.location)
    for path in (shown, folder):
        if path.exists():
            raise RowSourceError(
                f"{path} is there already. If these rows were split, go on with it: the session on the held part is"
                f" holdfast.Session({str(folder)!r}). If not, move it away."
            )
    hidden = write_private(frame, _hidden(shown))
    held = write_private_rows(held_frame, folder, never, unit)
    session = Session(held, **options)
    session.answering.plan.begin()
    _remember(witnesses, session, f"{shown.name} and {folder.name}")
    hidden.replace(shown)  # last: until now nobody has seen a row
    return frame, session


@contextmanager
def _alone(witnesses: list[Witness]) -> Iterator[None]:
    """Keep other threads, and other processes with the same witnesses, from splitting or asking the rows meanwhile."""
    with ExitStack() as held:
        held.enter_context(_turn.setdefault(this_process.number, threading.RLock()))
        for witness in witnesses:
            held.enter_context(witness.alone())
        yield


def _names(id: str | Collection[str], rows: LocalRows) -> list[str]:
    names = [id] if isinstance(id, str) else list(id)
    for name in names:
        rows.schema[name]  # raises, with a suggestion
    if len(names) == len(rows.schema):
        raise InvalidArgument("id must leave a column to ask about; got all of them.", name="id")
    return names


def _split_before(rows: LocalRows, witnesses: list[Witness]) -> Seen | None:
    """Return what is known of an earlier split of these rows; refuse rows that have already answered a question."""
    for witness in witnesses:
        seen = witness.newest()
        if seen is not None and seen.address.startswith(SPLIT):
            return seen
        if seen is not None:
            raise _used(seen.address)
    beside = ledger_beside(rows)
    if exists(beside, rows.name):
        raise _used(str(beside))
    return None


def _parts_again(
    rows: LocalRows, split: HowSplit, before: Seen, options: Mapping[str, Any], complete: list[str]
) -> tuple[pl.DataFrame, Session]:
    """Return the parts of a file that was split before, or refuse another split."""
    shown, folder = part_paths(rows.location or Path())
    found, hidden = None, _hidden(shown)
    if folder.is_dir() and (shown.is_file() or hidden.is_file()):
        session = Session(folder, complete=complete, **options)
        dropped = frozenset(rows.schema.names) - frozenset(session.schema.names)
        found = HowSplit(len(rows) - session.plan.terms.all_rows, dropped, session.schema.unit)
        # The ledger of the held part tells which split it is: parts of other rows may have taken its place.
        if found == split and session.ledger.first == before.tip.hash:
            if not shown.is_file():
                hidden.replace(shown)  # the process that split the rows was killed just before
            return pl.read_parquet(shown), session
        session.close()
    here = Path.cwd()
    shown, folder = (path.relative_to(here) if path.is_relative_to(here) else path for path in (shown, folder))
    way = f"the session on the held part is holdfast.Session({str(folder)!r}), and {shown} is there to look at"
    raise _other_split(before, split, found, way if found else "bring them back to where they were, if they are files")


def _key_again(content: str, split: HowSplit, before: Seen) -> bytes:
    """Return the key of an earlier split of rows in memory, or refuse another split."""
    found, key = _keys.get(content, (None, b""))
    if found != split:
        raise _other_split(before, split, found, "they are what the first call returned, and the same call returns")
    return key


def _other_split(before: Seen, split: HowSplit, found: HowSplit | None, way: str) -> InvalidArgument:
    pairs = zip(("explore", "id", "unit"), split, found or split, strict=True)
    other = ", ".join(f"another value of {name}" for name, now, then in pairs if now != then)
    return InvalidArgument(
        f"These rows were {before.address} before{other and f', with {other}'}. Go on with the two parts: {way}. A"
        " second split would show rows that checks are held on.",
        name="data",
    )


def _used(where: str) -> InvalidArgument:
    if where.startswith(BOARD):
        return InvalidArgument(f"The labels in these rows were {where}, a board. Split other rows.", name="data")
    if where.startswith(DEALT):
        return InvalidArgument(
            f"These rows were {where}, so none of them can be held back. Go on with the deck, or split other rows.",
            name="data",
        )
    return InvalidArgument(
        f"These rows have answered questions already (ledger {where}), so none of them can be held back. Split new"
        " rows, or go on asking these.",
        name="data",
    )


def _warn_of_names(frame: pl.DataFrame) -> None:
    for column in frame.get_columns():
        kind = column.dtype
        plain = kind.is_integer() or isinstance(kind, pl.String | pl.Datetime | pl.Categorical | pl.Enum)
        if plain and column.len() >= LEAST and column.n_unique() == column.len():
            check.warn(
                f"Column {column.name!r} differs in every row. If it names rows, those seen reveal which are held: do"
                f" not ask about it. A table is split once; next time, id={column.name!r} leaves it out.",
                NamesRows,
            )


def part_paths(data: Path) -> tuple[Path, Path]:
    """Return the paths of the two parts of a file (or of its folder): the exploration part and the held part."""
    name = Path(data.name.removesuffix(".holdfast")).stem
    return data.with_name(name + EXPLORE), data.with_name(name + HELD)


def _hidden(shown: Path) -> Path:
    """Return where the exploration part is until the split is known to all witnesses."""
    return shown.with_name(f".{shown.name}")


def write_private_rows(
    frame: pl.DataFrame, folder: Path, complete: Collection[str], unit: str | None = None, name: str | None = None
) -> LocalRows:
    """Write rows to a folder that only its owner may read."""
    source = write_private(frame, folder.with_suffix(".parquet"))
    try:
        scan = FileScan(source, [source], Dialect())
        return ingest(scan, folder, name=name, progress=False, complete=complete, unit=unit)
    finally:
        source.unlink()


def write_private(frame: pl.DataFrame, path: Path) -> Path:
    """Write a frame to a file that only its owner may read."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        frame.write_parquet(file)
    return path


def _remember(witnesses: list[Witness], session: Session, parts: str) -> None:
    """Record with the witnesses of the whole table that it was split; refuse if somebody has begun to ask it meanwhile.

    That can be a thread of this process that asks rows in memory. Whoever is later is not remembered: either it is the
    split, refused here, or the ledger, which from then on takes nothing.
    """
    head = session.ledger.head
    for witness in witnesses:
        witness.remember(Seen(f"{SPLIT}{parts}", Tip(head.seq, head.hash, 0, 0)))
        witness.close()
    known = witnesses[0].newest() if witnesses else None
    if known is not None and known.tip.hash != head.hash:
        session.close()
        raise _used(known.address)
