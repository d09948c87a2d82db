"""Open a ledger where it is kept, or begin one."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.errors import (
    InvalidArgument,
    LedgerDamaged,
    MissingExtra,
    PlanConflict,
    RowSourceError,
    UnknownName,
)
from holdfast.ledger import chain
from holdfast.ledger.entry import Cost, Head
from holdfast.ledger.ledger import Ledger, walk
from holdfast.ledger.memory import MemoryStore
from holdfast.ledger.store import Row, Store

LONGEST_DATASET = 200


def open_ledger(
    location: str | Path | None,
    *,
    dataset: str,
    fingerprint: str,
    reproducible: bool = False,
) -> Ledger:
    """Open the ledger of a dataset and re-check all of it; begin it if it is not there and `terms` say how.

    `location`: None keeps it in memory; a path is one SQLite file; a URL (`postgresql+psycopg://...`,
    `sqlite:///...`) is a database that keeps many datasets by name. `terms` is the plan as plain JSON, with
    `terms["caps"] = {"charge": ..., "intervals": ...}`; None resumes under the plan that stands.
    """
    store = _store(location, dataset)

    def check() -> dict[str, Any]:
        genesis = walk(store).genesis
        _same_format(store, genesis)
        _same_data(store, genesis, fingerprint)
        _same_chance(store, genesis, reproducible)
        return genesis

    def begin(terms: dict[str, Any]) -> bool:
        return store.create(_genesis(dataset, fingerprint, terms, reproducible))

    return Ledger(store, dataset, fingerprint, check, begin)


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
        steps = walk(store, head)
        _same_format(store, steps.genesis)
        return steps.genesis, Head(steps.tip.seq, steps.tip.hash), store.location
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
    if not isinstance(dataset, str) or not 0 < len(dataset) <= LONGEST_DATASET or "\0" in dataset:
        raise InvalidArgument(
            f"dataset must be a name of 1 to {LONGEST_DATASET} characters; got {dataset!r}.", name="dataset"
        )
    if location is None:
        return MemoryStore(dataset)
    if isinstance(location, str) and "://" in location:
        return _from_url(location, dataset)
    if not isinstance(location, str | Path) or not str(location):
        raise InvalidArgument(f"ledger must be None, a path or a database URL; got {location!r}.", name="ledger")
    from holdfast.ledger.sqlite import SqliteStore

    return SqliteStore(Path(location), dataset, sole=True)


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

        return SqliteStore(Path(url.database), dataset, sole=False)
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


def _genesis(dataset: str, fingerprint: str, terms: dict[str, Any], reproducible: bool) -> Row:
    caps = terms.get("caps") if isinstance(terms, dict) else None
    if not isinstance(caps, dict) or set(caps) != {"charge", "intervals"}:
        raise InvalidArgument(f"terms['caps'] must be a dict of charge and intervals; got {caps!r}.", name="terms")
    Cost(**caps)  # checks both
    body = chain.canonical(
        {
            "dataset": dataset,
            "fingerprint": fingerprint,
            "format": chain.FORMAT,
            "reproducible": bool(reproducible),
            "seq": 0,
            "terms": terms,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        },
        "terms and fingerprint",
    )
    reached = chain.link(chain.GENESIS_PREVIOUS, chain.digest(body))
    return Row(0, None, body, chain.GENESIS_PREVIOUS, reached, 0, 0)


def _same_format(store: Store, genesis: dict[str, Any]) -> None:
    if genesis.get("format") != chain.FORMAT:
        raise LedgerDamaged(
            f"Ledger {store.location} has format {genesis.get('format')}; this version reads {chain.FORMAT}. "
            "Use the version that wrote it.",
            location=store.location,
        )


def _same_data(store: Store, genesis: dict[str, Any], fingerprint: str) -> None:
    if genesis["dataset"] != store.dataset:
        raise chain.damaged(store.location, 0, f"it belongs to dataset {genesis['dataset']!r}")
    if genesis["fingerprint"] != fingerprint:
        raise RowSourceError(
            f"Ledger {store.location} belongs to other data: its fingerprint is {genesis['fingerprint']!r}, "
            f"the data's is {fingerprint!r}. Open the data it was begun with, or begin another ledger.",
            ledger=genesis["fingerprint"],
            data=fingerprint,
        )


def _same_terms(store: Store, standing: dict[str, Any], asked: dict[str, Any]) -> None:
    if chain.canonical(asked, "terms") == chain.canonical(standing):
        return
    names = sorted(standing.keys() | asked.keys())
    apart = [
        f"{name} is {standing.get(name)!r} there, {asked.get(name)!r} here"
        for name in names
        if chain.canonical(standing.get(name)) != chain.canonical(asked.get(name))
    ]
    raise PlanConflict(
        f"Ledger {store.location} stands by another plan: {'; '.join(apart)}. "
        "Leave the plan out to continue under the one that stands.",
        standing=standing,
        asked=asked,
    )


def _same_chance(store: Store, genesis: dict[str, Any], reproducible: bool) -> None:
    if reproducible and not genesis["reproducible"]:
        raise PlanConflict(
            f"Ledger {store.location} was begun with unpredictable draws, which a seed would spoil. "
            "Leave the seed out, or use another ledger.",
            standing={"reproducible": False},
            asked={"reproducible": True},
        )
