"""The datasets by name. Each is one `Session`; whoever asks gets it under their own name."""

import json
import threading
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from holdfast.beginning import DefaultPlan
from holdfast.errors import InvalidArgument, NotAllowed, RowSourceError, UnknownName
from holdfast.planning.present import sentence
from holdfast.rows.open import open_rows
from holdfast.service.people import Person
from holdfast.service.quotas import Usage
from holdfast.service.settings import DatasetSettings, Settings, check_name
from holdfast.service.tables import Tables, reading, registered, writing
from holdfast.session import Session


@dataclass(frozen=True)
class Served:
    """A dataset that is open."""

    name: str
    session: Session
    usage: Usage
    bounds: Mapping[str, tuple[float, float]]

    def sentence(self) -> str:
        """Say the guarantee in a sentence."""
        return sentence(self.session.plan)

    def schema(self) -> list[dict[str, Any]]:
        """Return names, types and declared bounds. Never values."""
        return [
            {
                "name": column.name,
                "type": str(column.type),
                "nullable": column.nullable,
                "bounds": list(self.bounds[column.name]) if column.name in self.bounds else None,
            }
            for column in self.session.schema
        ]

    def overview(self) -> dict[str, Any]:
        """Return everything public about the dataset on one page."""
        head = self.session.ledger.head
        return {
            "name": self.name,
            "rows": self.session.plan.rows,
            "guarantee": self.sentence(),
            "plan": self.session.plan.to_dict(),
            "budget": self.session.budget.to_dict(),
            "left": str(self.session.budget),
            "head": {"seq": head.seq, "hash": head.hash},
            "reproducible": self.session.ledger.reproducible,
        }


class Datasets:
    """Opened at the start, or when first asked for."""

    def __init__(self, settings: Settings, tables: Tables) -> None:
        self._settings = settings
        self._tables = tables
        self._open: dict[str, Served] = {}
        self._lock = threading.Lock()

    def open_all(self) -> None:
        """Open what the settings name and what the keeper registered."""
        for name in self.names():
            self._get(name)

    def names(self) -> list[str]:
        """Return every name, in order."""
        return sorted({*self._settings.datasets, *self._registered()})

    def visible(self, person: Person) -> list[Served]:
        """Return what this person may ask."""
        found = [self._get(name) for name in self.names() if person.may_see(name)]
        return [served for served in found if served is not None]

    def get(self, name: str, person: Person) -> Served:
        """Return a dataset; one that is out of reach is refused like one that does not exist."""
        served = self._get(name) if person.may_see(name) else None
        if served is None:
            raise UnknownName(
                f"No dataset {name!r} that your token reaches. GET /api/v1/datasets lists those.", name=name
            )
        return served

    def register(self, name: str, file: str, **plan: Any) -> Served:
        """Open a file from the data folder under a name, and remember it."""
        check_name("name", name)
        if name in self.names():
            raise InvalidArgument(f"name must be new; {name!r} is served already.", name="name")
        settings = DatasetSettings(path=str(self._inside(file)), **plan)
        try:
            served = self._begin(name, settings)
        except RowSourceError as error:  # the caller named it, so it is the caller's mistake
            raise InvalidArgument(error.message, name="file") from error
        try:
            with writing(self._tables.durable) as connection:
                connection.execute(insert(registered).values(name=name, settings=json.dumps(asdict(settings))))
        except IntegrityError:
            raise InvalidArgument(f"name must be new; {name!r} is served already.", name="name") from None
        return served

    def close(self) -> None:
        """Let go of every ledger."""
        with self._lock:
            for served in self._open.values():
                served.session.close()
            self._open.clear()

    def _get(self, name: str) -> Served | None:
        served = self._open.get(name)
        if served is not None:
            return served
        settings = self._settings.datasets.get(name) or self._registered().get(name)
        return None if settings is None else self._begin(name, settings)

    def _registered(self) -> dict[str, DatasetSettings]:
        with reading(self._tables.durable) as connection:
            rows = connection.execute(select(registered)).all()
        return {row.name: DatasetSettings(**json.loads(row.settings)) for row in rows}

    def _inside(self, file: str) -> Path:
        """Return the path of a file in the data folder; nothing else can be registered over HTTP."""
        if self._settings.data_folder is None:
            raise NotAllowed("Files can be registered only from a data folder. Start the server with --data-folder.")
        folder = Path(self._settings.data_folder).resolve()
        if "\0" in file:
            raise InvalidArgument("file must be the name of a file in the data folder.", name="file")
        path = (folder / file).resolve()
        if not path.is_relative_to(folder):
            raise NotAllowed(f"file must lie in the data folder; {file!r} does not.", name="file")
        if not path.exists():
            raise UnknownName(f"No file {file!r} in the data folder.", name="file")
        return path

    def _begin(self, name: str, settings: DatasetSettings) -> Served:
        with self._lock:
            if name not in self._open:
                self._open[name] = _open(name, settings, self._settings.database)
            return self._open[name]


def _warm_up(session: Session) -> None:
    """Ask made-up rows once: what is imported when first used is imported now, by one thread.

    Two threads that import a package of many modules for the first time can each find it half ready.
    """
    import holdfast.optimize.named
    import holdfast.optimize.question  # noqa: F401

    quoted = session.schema.names[0].replace('"', '""')
    session.dry_run(f'"{quoted}" IS NULL')


def _open(name: str, settings: DatasetSettings, database: str | None) -> Served:
    queries: int | dict[str, int] | None = settings.queries
    if settings.flips:
        queries = {"mean": settings.queries or 0, "flip": settings.flips}
    rows = open_rows(settings.path, name=name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DefaultPlan)  # the plan is said when the server starts, and on every page
        session = Session(
            rows,
            queries=queries,
            accuracy=settings.accuracy,
            confidence=settings.confidence,
            guarantee=settings.guarantee,
            ledger=settings.ledger or database,
            seed=settings.seed,
        )
    _warm_up(session)
    unknown = sorted(set(settings.bounds) - set(session.schema.names))
    if unknown:
        session.close()
        raise InvalidArgument(f"bounds must name columns of {name}; it has no {unknown[0]!r}.", name="bounds")
    return Served(name, session, Usage(session.ledger), settings.bounds)
