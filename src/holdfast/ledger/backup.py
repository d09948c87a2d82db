"""Copy a ledger, and restore it from a copy without handing out its budget twice.

A backup is one SQLite file with the rows, the tip, the secret and the content of one ledger, wherever that ledger is
stored. Rows are only ever appended, so the rows up to a tip are the ledger as it was when the tip was read, even if
others write meanwhile.

A restore continues from the newest copy at hand: the backup, or what is left at the ledger's location. If a witness saw
entries beyond that copy, those answers are lost, but their cost is not: one entry records the newest tip that was seen
(`lost`) and takes everything that had been taken by then. That entry explains the break in the chain to anybody who
holds an older head or receipt.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from holdfast.errors import HoldfastError, InvalidArgument, LedgerDamaged, LedgerUnavailable, UnknownName
from holdfast.ledger import chain
from holdfast.ledger.concurrency import Connection
from holdfast.ledger.database import Database
from holdfast.ledger.ledger import Ledger
from holdfast.ledger.opening import address_of, file_beside, store_at
from holdfast.ledger.store import APART, APART_CHARGE, Cost, Head, Row, Store, Tip
from holdfast.ledger.verify import READ_CHUNK, verify_store
from holdfast.ledger.witness import ProcessWitness, Seen, Witness, contains


def backup(location: str | Path, to: str | Path, *, dataset: str | None = None) -> Head:
    """Copy a ledger into a file, even while the ledger is in use.

    Parameters
    ----------
    location
        Where the ledger is: a path or a database URL.
    to
        The file to write. An existing file is replaced; it must be an older copy of the same ledger.
    dataset
        Which ledger to copy, if a database holds several.

    Returns
    -------
    Head
        The newest entry of the copy.
    """
    path = Path(to)
    source = _existing(location, dataset)
    try:
        verify_store(source)
        tip, new = _tip(source), path.with_name(f"{path.name}-copy")
        if path.exists():
            _require_another(path, source)
            _require_older(path, source, tip)
        _unlink(new)
        copy = store_at(new, source.dataset)
        assert isinstance(copy, Database)
        try:
            copy.create(lambda connection: _append(copy, connection, source, None, tip))
        finally:
            copy.close()
        try:
            new.replace(path)
        except OSError as error:
            raise LedgerUnavailable(f"Cannot write {path}: {error.strerror}.", location=str(path)) from error
        finally:
            _unlink(new)
        return Head(tip.seq, tip.hash)
    finally:
        source.close()


@dataclass(frozen=True)
class Restored:
    """What a restore did.

    Parameters
    ----------
    location
        Where the ledger is.
    head
        The number and hash of its newest entry.
    lost
        How many answers a witness had seen that no copy holds; their cost is counted as spent.
    witnesses
        The witnesses that remembered a state of the ledger. Without any, what was spent after the backup is unknown.
    begun
        How many more questions used cards of a deck; nobody knows whether they were answered. They count as spent.
    """

    location: str
    head: Head
    lost: int
    witnesses: tuple[str, ...]
    begun: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    def sentences(self) -> list[str]:
        """Return a description of the restore, in sentences."""
        back = f"Ledger {self.location} is restored: entries 0 to {self.head.seq}, head {self.head.hash}."
        if not self.witnesses:
            unknown = "No witness remembers its newest entry. Answers given after the backup, if any, are not"
            return [
                back,
                f"{unknown} counted as spent; if there are any, the guarantee does not hold for later questions.",
            ]
        who = " and ".join(self.witnesses)
        if self.begun:
            several = "1 newer question" if self.begun == 1 else f"{self.begun:,} newer questions"
            back += f" The deck was used by {several}: they stay spent, and their answers, if any, are lost."
            if not self.lost:
                return [back]
        if self.lost:
            one = self.lost == 1
            gone = f"{self.lost:,} newer answer{'' if one else 's'} that {who} saw"
            lost = "it is lost, but its" if one else "they are lost, but their"
            return [back, f"The backup lacked {gone}: {lost} cost stays spent, and an entry says so."]
        return [back, f"Nothing is missing at its end, as far as {who} saw."]


def restore(
    copy: str | Path,
    location: str | Path,
    *,
    fingerprint: str | None = None,
    witnesses: Sequence[Witness] = (),
) -> Restored:
    """Restore a ledger from a backup. What witnesses saw being spent stays spent, even if the backup lacks it.

    Parameters
    ----------
    copy
        A file that `backup` wrote.
    location
        Where the ledger belongs. If there is a ledger already, one of the two must continue the other.
    fingerprint
        The fingerprint of the data that the ledger must belong to.
    witnesses
        The witnesses that remember the newest entry of the ledger.

    Returns
    -------
    Restored
        What is in the ledger now, and what was lost.
    """
    source = _existing(copy, None)
    target, found = _target(location, source.dataset)
    content = source.content()
    everyone = [*([] if content is None else [ProcessWitness(content)]), *witnesses]
    try:
        verify_store(source)
        if fingerprint is not None:
            Ledger(source, fingerprint=fingerprint)  # raises if the ledger belongs to other data
        best, tip = _newest(source, target, found)
        seen = [(witness.name, newest.tip) for witness in everyone if (newest := witness.newest()) is not None]
        for name, each in seen:
            if each.seq == 0 and each.hash != best.hash_at(0):
                raise InvalidArgument(f"The backup is of another ledger than the one that {name} saw.", name="copy")
        missing = [each for _, each in seen if not contains(best, tip, each)]
        reached = _taken(tip, [each for _, each in seen])
        known = [tip, *(each for _, each in seen if each.seq)]  # all but a deck, which knows no answers
        begun = reached.places - max(each.places for each in known)
        lost, charge, intervals = tip, 0, 0
        if missing:
            lost = max(missing, key=lambda each: each.seq)
            charge, intervals = max(0, lost.charge - tip.charge), max(0, lost.intervals - tip.intervals)
        checks = reached.taken_intervals // APART
        if checks > max(each.taken_intervals for each in known) // APART:
            # Checks of which only a deck knows: each may have failed, or told that a guess is wrong. So it counts as
            # both, as an answer in the entry below and, taken once more, as a failure (docs/proofs/checks.md).
            unknown = checks - (tip.intervals + intervals) // APART
            charge, intervals = charge + unknown * APART_CHARGE, intervals + unknown * APART
            reached = reached._replace(taken_intervals=reached.taken_intervals + unknown * APART)
        reached = _taken(reached, [tip.taking(tip.taken_charge + charge, tip.taken_intervals + intervals, 0)])
        entries = [_lost_row(tip, reached, lost, (charge, intervals))] if missing or intervals else []
        ends = _after(reached, entries)
        if ends == found:
            raise InvalidArgument(
                f"Ledger {target.location} has everything that the backup has and any witness saw: there is nothing to"
                " restore.",
                name="location",
            )
        target.create(lambda connection: _append(target, connection, best, found, ends, entries))
        for witness in everyone:
            witness.accept(Seen(address_of(target, location), ends))
        return Restored(
            location=target.location,
            head=Head(ends.seq, ends.hash),
            lost=max([0, *(each.seq - tip.seq for each in missing)]),
            begun=max(0, begun),
            witnesses=tuple(name for name, _ in seen),
        )
    finally:
        source.close()
        target.close()
        for witness in everyone:
            witness.close()


# -- what is there --------------------------------------------------------------------------------------------------


def _refuse_others(location: str | Path) -> None:
    """Refuse a file that is not a ledger, such as data: a restore would take it for a damaged ledger and rename it."""
    path = Path(location)
    if "://" in str(location) or not path.exists():
        return
    if path.is_dir() or (path.suffix != ".ledger" and _is_no_database(path)):
        raise InvalidArgument(
            f"{location} is not a ledger. If it is data, give its ledger: {file_beside(path)}; if it is a damaged"
            " ledger, move it away first.",
            name="location",
        )


def _is_no_database(path: Path) -> bool:
    """Whether SQLite finds that a file is not a database.

    The file is not opened in Python to read its first bytes: closing it would drop all (POSIX) locks that this process
    has on the file, including those of an open session. The next process to close the ledger would then believe that
    it is the last one, and remove the log that the session is still using.
    """
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)
        try:
            connection.execute("PRAGMA schema_version")
        finally:
            connection.close()
    except sqlite3.Error as error:
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB
    return False


def _existing(location: str | Path, dataset: str | None) -> Store:
    _refuse_others(location)
    store = store_at(location, dataset or "data")
    try:
        if store.tip() is None:
            which = "" if dataset is None else f" of {dataset!r}"
            hint = " Name the dataset." if dataset is None and "://" in str(location) else ""
            raise UnknownName(f"No ledger{which} at {store.location}.{hint}", name=dataset)
    except BaseException:
        store.close()
        raise
    return store


def _tip(store: Store) -> Tip:
    tip = store.tip()
    assert tip is not None
    return tip


def _require_another(path: Path, source: Store) -> None:
    """Refuse to replace the ledger by its copy: others may have it open, and the copy would inherit its log."""
    ledger = Path(source.location)
    if ledger.exists() and path.samefile(ledger):
        raise InvalidArgument(f"The copy must be a different file than the ledger; {path} is the ledger.", name="to")


def _require_older(path: Path, source: Store, tip: Tip) -> None:
    there = store_at(path, "data")
    try:
        older = contains(source, tip, _tip(there)) if there.tip() is not None else False
    except HoldfastError:
        older = False
    finally:
        there.close()
    if not older:
        raise InvalidArgument(
            f"The copy must be a new file, or one that holds an older copy of this ledger; {path} does not.", name="to"
        )


def _target(location: str | Path, dataset: str) -> tuple[Database, Tip | None]:
    """Return the store to restore into, and the tip of the ledger there, if any; rename a damaged file, to keep it."""
    _refuse_others(location)
    target = store_at(location, dataset)
    assert isinstance(target, Database)
    try:
        tip = target.tip()
        if tip is not None:
            verify_store(target)
        return target, tip
    except LedgerDamaged:
        target.close()
        if isinstance(location, str) and "://" in location:
            raise
    except BaseException:
        target.close()
        raise
    path = Path(location)
    aside = f"{path.name}-damaged-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    for suffix in ("-wal", "-shm", ""):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(path.with_name(aside + suffix))
    return _target(location, dataset)


def _newest(source: Store, target: Store, found: Tip | None) -> tuple[Store, Tip]:
    """Return the store that continues the other one, and its tip."""
    tip = _tip(source)
    if found is None or contains(source, tip, found):
        return source, tip
    if contains(target, found, tip):
        return target, found
    raise InvalidArgument(
        f"Ledger {target.location} and the backup each have entries that the other lacks: they are not the same"
        " ledger. Move away the one that should not count, and restore again.",
        name="location",
    )


# -- what is written ------------------------------------------------------------------------------------------------


def _taken(tip: Tip, seen: list[Tip]) -> Tip:
    """Return the tip with the most that any of these tips has taken.

    If there are two accounts (`APART`), take the maximum in each, since different tips may be ahead in each.
    """
    charge, intervals, places = zip(*(each.taken for each in (tip, *seen)), strict=True)
    if max(intervals) < APART:
        return tip.taking(max(charge), max(intervals), max(places))
    return tip.taking(_most_of_either(charge, APART_CHARGE), _most_of_either(intervals, APART), max(places))


def _most_of_either(amounts: Sequence[int], account: int) -> int:
    """Return the largest multiple of `account` in any amount, plus the largest remainder of any amount.

    >>> _most_of_either([2_003, 1_007], 1_000)
    2007
    """
    return max(each // account for each in amounts) * account + max(each % account for each in amounts)


def _lost_row(tip: Tip, reached: Tip, lost: Tip, cost: tuple[int, int]) -> Row:
    """Return the entry that records a restore; its cost is that of the lost answers."""
    charge, intervals = cost
    body = chain.canonical(
        {
            "analyst": None,
            "answer": {},
            "cost": {"charge": charge, "intervals": intervals},
            "key": None,
            chain.LOST: reached._replace(seq=lost.seq, hash=lost.hash, peaks="")._asdict(),
            "place": {
                "charge": tip.taken_charge,
                "intervals": tip.taken_intervals,
                "number": reached.places + 1,
                "reached": tip.taken_charge + charge,
            },
            "question": {},
            "rows_read": 0,
            "seq": tip.seq + 1,
            "time": chain.now(),
        }
    )
    return chain.row_after(tip, body, Cost(charge, intervals))


def _after(reached: Tip, entries: Sequence[Row]) -> Tip:
    """Return the tip after these entries, each of which takes one place number."""
    for entry in entries:
        reached = reached.after(entry)._replace(places=reached.places + 1)
    return reached


def _append(
    target: Database,
    connection: Connection,
    source: Store,
    found: Tip | None,
    ends: Tip,
    extra: Sequence[Row] = (),
) -> bool:
    """Write all rows that the target lacks, and the tip, inside an open transaction."""
    sql, dataset = target.sql, source.dataset
    row = connection.execute(sql.lock, (dataset,)).fetchone()
    if (None if row is None else Tip._make(row)) != found:
        raise LedgerUnavailable(
            f"Ledger {target.location} is in use. Stop the programs that use it, then try again.",
            location=target.location,
        )
    if found is None:
        target.insert_ledger(connection, ends, source.secret() or b"", source.content())
    last = ends.seq - len(extra)
    for rows in (_rows(source, -1 if found is None else found.seq, last), extra):
        for each in rows:
            connection.execute(sql.insert, (dataset, *each))
    if found is not None:
        connection.execute(sql.advance, (*ends, dataset))
    return True


def _rows(source: Store, after: int, last: int) -> Iterator[Row]:
    while after < last:
        rows = source.read(after + 1, min(READ_CHUNK, last - after))
        if not rows:
            raise chain.damaged(source.location, after + 1, "it is missing")
        yield from rows
        after = rows[-1].seq


def _unlink(path: Path) -> None:
    """Remove a file that nobody else uses, and the files that SQLite puts beside it."""
    for suffix in ("", "-wal", "-shm", "-lock"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
