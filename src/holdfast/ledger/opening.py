"""Find a ledger where it is: in memory, in a file, in a database. Looking creates nothing."""

from pathlib import Path
from typing import Any

from holdfast.errors import InvalidArgument, MissingExtra, UnknownName
from holdfast.ledger.entry import Head
from holdfast.ledger.ledger import Ledger, verify_store
from holdfast.ledger.memory import MemoryStore
from holdfast.ledger.store import MAX_DATASET_NAME, Store


def open_ledger(location: str | Path | None, *, dataset: str, fingerprint: str, reproducible: bool = False) -> Ledger:
    """Open the ledger of a dataset and re-check all of it; if there is none, it is still to be begun.

    Parameters
    ----------
    location
        None keeps it in memory; a path is one SQLite file; a URL (``postgresql+psycopg://...``, ``sqlite:///...``)
        is a database that holds many datasets by name.
    dataset, fingerprint
        The name of the data, and what tells it from other data.
    reproducible
        Whether draws will be predictable, from a seed. Only a ledger that was begun so can be opened so.
    """
    store = _store(location, dataset)
    try:
        return Ledger(store, fingerprint=fingerprint, reproducible=reproducible)
    except BaseException:
        store.close()
        raise


def audit(
    location: str | Path, *, dataset: str | None = None, head: str | None = None
) -> tuple[dict[str, Any], Head, str]:
    """Re-check a ledger without its data; return its first entry, its head and its location as it may be shown.

    `head` is a hash published earlier, which must be in the chain. `dataset` may be left out for a file of its own.
    """
    store = _store(location, dataset or "data")
    try:
        if store.tip() is None:
            which = "" if dataset is None else f" of {dataset!r}"
            raise UnknownName(f"No ledger{which} at {store.location}.", name=dataset)
        verification = verify_store(store, head)
        return verification.genesis, Head(verification.tip.seq, verification.tip.hash), store.location
    finally:
        store.close()


def exists(location: str | Path | None, dataset: str) -> bool:
    """Return whether there is a ledger of this dataset at the location."""
    if location is None:
        return False
    store = _store(location, dataset)
    try:
        return store.tip() is not None
    finally:
        store.close()


def _store(location: str | Path | None, dataset: str) -> Store:
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
    except (ArgumentError, ValueError):  # the text may hold a password: do not quote it
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
