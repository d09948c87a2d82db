"""Find a ledger in memory, in a file or in a database. Looking for one creates nothing.

Data with the same content have one ledger. If it is in memory, all sessions of the process on the same rows share it;
otherwise witnesses remember where the ledger is and its newest entry.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import InvalidArgument, MissingExtra, UnknownName
from holdfast.ledger.chain import answered, spent
from holdfast.ledger.ledger import Ledger
from holdfast.ledger.memory import MemoryStore
from holdfast.ledger.store import MAX_DATASET_NAME, Answered, Head, Spent, Store
from holdfast.ledger.verify import verify_store
from holdfast.ledger.witness import FileWitness, ProcessWitness, Watch, Witness, content_of

SHARED = "in memory (one for all sessions of this process on these rows)"
_in_memory: dict[str, MemoryStore] = {}  # by content


class SharedBudget(UserWarning):
    """A session shares a budget that other sessions of this process have begun to spend."""


def open_ledger(
    location: str | Path | None,
    *,
    dataset: str,
    fingerprint: str,
    reproducible: bool = False,
    witnesses: Sequence[Witness] = (),
) -> Ledger:
    """Open the ledger of a dataset and re-check all of it; if there is none, return one that has not begun.

    Parameters
    ----------
    location
        None keeps the ledger in memory, one for each content and process; a path is one SQLite file; a URL
        (``postgresql+psycopg://...``, ``sqlite:///...``) is a database that holds many datasets by name.
    dataset, fingerprint
        The name of the data, and the fingerprint that distinguishes it from other data.
    reproducible
        Whether draws will be predictable, from a seed. Only a ledger that was begun this way can be opened this way.
        It has a separate budget, for tests, and no witnesses.
    witnesses
        Witnesses, other than this process, that remember the newest entry of the ledger.

    Returns
    -------
    Ledger
        The ledger; close it, or use it in a `with` statement.
    """
    store = store_at(location, dataset)
    if isinstance(store, MemoryStore) and not reproducible:
        store.location = SHARED
        store = _in_memory.setdefault(content_of(fingerprint), store)
    content = content_of(fingerprint)
    address = None if reproducible and store.address is None else address_of(store, location)
    watch = Watch(store, address, None if reproducible else content)
    try:
        ledger = Ledger(store, fingerprint=fingerprint, reproducible=reproducible, watch=watch)
        if not ledger.reproducible:
            watch.watch(ProcessWitness(content), *witnesses)
        return ledger
    except BaseException:
        store.close()
        watch.close()
        raise


def forget_all() -> None:
    """Forget every ledger that this process has seen, as a new process would. For tests."""
    _in_memory.clear()
    ProcessWitness.forget_all()


def address_of(store: Store, location: str | Path | None) -> str:
    """Return where a ledger is, in one form however its location is written."""
    if location is None:
        return "the memory of this process"
    if isinstance(location, Path) or "://" not in location:
        return str(Path(location).resolve())
    where = f"sqlite:///{Path(store.location).resolve()}" if location.startswith("sqlite") else store.location
    return f"{where} (dataset {store.dataset!r})"


@dataclass(frozen=True)
class Audit:
    """What `audit` found in a ledger without its data.

    Parameters
    ----------
    genesis
        The first entry.
    head
        The newest entry.
    location
        Where the ledger is, without passwords.
    confirmed_by
        The witnesses that have seen this newest entry. Without any, entries may be missing at the end.
    spent, answered
        What all questions have taken, and the cost of the answers given, as in `Ledger`; whatever has no answer yet
        counts as failed.
    """

    genesis: dict[str, Any]
    head: Head
    location: str
    confirmed_by: tuple[str, ...]
    spent: Spent
    answered: Answered


def audit(location: str | Path, *, dataset: str | None = None, head: str | None = None) -> Audit:
    """Re-check a ledger without its data, and compare it with the witness file beside it.

    `head` is a hash published earlier, which must be in the chain. `dataset` may be left out if the ledger is a file.
    """
    store = store_at(location, dataset or "data")
    try:
        if store.tip() is None:
            which = "" if dataset is None else f" of {dataset!r}"
            raise UnknownName(f"No ledger{which} at {store.location}.", name=dataset)
        verification = verify_store(store, head)
        content, beside = store.content(), Path(store.location).with_suffix(".witness")
        witnesses = [] if content is None or not beside.exists() else [FileWitness(beside, content)]
        confirmed = Watch(store, address_of(store, location), content).compare(*witnesses)
        found = Head(verification.tip.seq, verification.tip.hash)
        tip = store.tip() or verification.tip  # the stored tip also has what was taken
        taken = spent((0, 0), tip)
        return Audit(verification.genesis, found, store.location, tuple(confirmed), taken, answered(tip))
    finally:
        store.close()


def file_beside(data: Path) -> Path:
    """Return the default path of the ledger of a file, or of the folder that holds its columns.

    >>> file_beside(Path("flights.parquet.holdfast")) == file_beside(Path("flights.parquet"))
    True
    """
    return data.with_name(f"{data.name.removesuffix('.holdfast')}.ledger")


def exists(location: str | Path | None, dataset: str) -> bool:
    """Return whether there is a ledger of this dataset at the location."""
    if location is None:
        return False
    store = store_at(location, dataset)
    try:
        return store.tip() is not None
    finally:
        store.close()


def store_at(location: str | Path | None, dataset: str) -> Store:
    """Return the store where the ledger of a dataset is, or may be begun."""
    if not isinstance(dataset, str) or not 0 < len(dataset) <= MAX_DATASET_NAME or "\0" in dataset:
        raise InvalidArgument(
            f"dataset must be a name of 1 to {MAX_DATASET_NAME} characters; got {dataset!r}.", name="dataset"
        )
    if location is None:
        return MemoryStore(dataset)
    if isinstance(location, str) and "://" in location:
        return _from_url(location, dataset)
    if not isinstance(location, str | Path) or not str(location):
        raise InvalidArgument(f"ledger must be None, a path or a database URL; got {location!r}.", name="ledger")
    from holdfast.ledger.sqlite import SqliteStore

    return SqliteStore(Path(location), dataset, own_file=True)


def _from_url(location: str, dataset: str) -> Store:
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(location)
    except (ArgumentError, ValueError):  # do not quote the text: it may contain a password
        raise InvalidArgument("ledger must be a database URL; got one that cannot be read.", name="ledger") from None
    backend = url.get_backend_name()
    if backend == "sqlite" and url.database and url.database != ":memory:":
        from holdfast.ledger.sqlite import SqliteStore

        return SqliteStore(Path(url.database), dataset, own_file=False)
    if backend == "postgresql":
        try:
            from holdfast.ledger.postgres import PostgresStore
        except ImportError as error:
            raise MissingExtra(
                "A ledger in PostgreSQL needs psycopg. Install it with: pip install 'holdfast[postgres]'.",
                extra="postgres",
            ) from error
        return PostgresStore(url, dataset)
    shown = url.render_as_string(hide_password=True)
    raise InvalidArgument(
        f"ledger must be a sqlite:/// file or a postgresql:// database; got {shown!r}. None keeps it in memory.",
        name="ledger",
    )
