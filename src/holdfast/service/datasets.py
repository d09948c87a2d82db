"""The datasets by name. Each is one `Session`, asked under the name of the caller's token."""

import json
import threading
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from holdfast.errors import HoldfastError, InvalidArgument, NotAllowed, NotCovered, RowSourceError, UnknownName
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.plan import Plan, VacuousPlan
from holdfast.ledger import Entry, Follower, Head, Receipt, content_of
from holdfast.queries.node import identifier
from holdfast.questions.check import CHECK
from holdfast.questions.history import Standings
from holdfast.questions.kind import Kind
from holdfast.questions.mean import MEAN
from holdfast.questions.options import Text
from holdfast.questions.submit import SUBMIT
from holdfast.questions.totals import UNITS
from holdfast.rows.open import open_rows
from holdfast.service.database import DatabaseWitness, TokenDatabase, read, registered_datasets, write
from holdfast.service.errors import naming
from holdfast.service.settings import DatasetSettings, Settings, check_name
from holdfast.service.tokens import Token
from holdfast.session.session import Session

MOST_STANDINGS = 1_000  # the most improvements, and the most other submissions, that are shown
MOST_SESSIONS = 1_000  # analysts whose sessions are kept in memory
LEAST = 1  # the fewest answers that a question takes from a quota, even if it takes less than one from the budget
NOT_BEGUN = "No question has been answered yet; the ledger begins with the first answer."
PLAN = (
    "queries",
    "margin",
    "confidence",
    "guarantee",
    "rows_per_query",
    "end",
    "identical",
    "checks",
    "seed",
)  # the arguments of `Session` that make the plan


AnyKind = Kind[..., Any]


class Usage:
    """How many answers of one dataset each analyst has used, read from the ledger as it grows."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._used: Counter[str | None] = Counter()
        self._follower = Follower(session.ledger, self._add)

    def by_analyst(self) -> Counter[str | None]:
        """Return the answers used so far, by name."""
        return self._follower.caught_up(self._used.copy)

    def _add(self, entry: Entry) -> None:
        answers = self._session.plan.terms.cost_in_answers(entry.place, entry.cost)
        self._used[entry.analyst] += max(LEAST, answers)


@dataclass(frozen=True)
class ServedDataset:
    """An open dataset."""

    name: str
    session: Session
    usage: Usage
    submissions: Standings
    places: tuple[str, ...] = ()  # where its data and its ledger are, which analysts must not see
    _sessions: dict[str, Session] = field(default_factory=dict, repr=False)  # by analyst
    _supported: dict[tuple[Guarantee, str], bool] = field(default_factory=dict, repr=False)  # by guarantee and kind

    def session_of(self, analyst: str) -> Session:
        """Return the session that asks under this analyst's name."""
        found = self._sessions.get(analyst)
        if found is None:
            if len(self._sessions) >= MOST_SESSIONS:
                self._sessions.clear()
            found = self._sessions[analyst] = self.session.for_analyst(analyst)
        return found

    @cached_property
    def naming(self) -> AbstractContextManager[None]:
        """Makes errors name the dataset instead of its location."""
        return naming(self.name, *self.places)

    def supported(self, kinds: Sequence[AnyKind]) -> list[AnyKind]:
        """Return the kinds of question that can be answered here, under this guarantee and about these rows."""
        standing, found = self.plan.standing, self._supported
        if standing.only_kind is not None:
            return [kind for kind in kinds if kind.name == standing.only_kind]
        for kind in kinds:
            if (standing, kind.name) not in found:
                found[standing, kind.name] = _answers(self.session, kind)
        return [kind for kind in kinds if found[standing, kind.name]]

    @property
    def is_board(self) -> bool:
        """Whether the dataset accepts only submissions."""
        return self.plan.standing.only_kind == SUBMIT.name

    @property
    def plan(self) -> Plan:
        """The ledger's plan."""
        return self.session.plan

    @property
    def head(self) -> Head | None:
        """The newest entry of the ledger; None before the first answer."""
        return self.session.ledger.head if self.session.ledger.begun else None

    def receipt(self, seq: int) -> Receipt:
        """Return the proof that an answer is in the ledger."""
        if not self.session.ledger.begun:
            raise UnknownName(f"No entry {seq}. {NOT_BEGUN}", name=seq)
        return self.session.receipt(seq)

    def standings(self) -> list[dict[str, Any]]:
        """Return the submissions to a board: improvements, the best first, then the newest of the others."""
        return self.submissions.lines(MOST_STANDINGS)

    def schema(self) -> list[dict[str, Any]]:
        """Return names, types and what else is declared. Never what the rows hold."""
        return [column.to_json() for column in self.session.schema]

    def overview(self) -> dict[str, Any]:
        """Return everything public about the dataset."""
        budget, plan, head = self.session.budget, self.plan, self.head
        return {
            "name": self.name,
            "rows": plan.rows,
            "unit": self.session.schema.unit,
            "guarantee": plan.sentence,
            "plan": plan.to_dict(),
            "budget": budget.to_dict(),
            "text": str(budget),
            "head": head and asdict(head),
            "reproducible": self.session.ledger.reproducible,
        }


def _answers(session: Session, kind: AnyKind) -> bool:
    """Whether a session answers questions of a kind, found by preparing examples, which reads and spends nothing.

    Examples that are refused for another reason than the guarantee say nothing about the kind.
    """
    if kind is UNITS and session.schema.unit is None:
        return False
    condition = f"{identifier(session.schema.names[0])} IS NULL"
    required = [option for option in kind.options if option.required]
    for text in (condition, f"CASE WHEN {condition} THEN 1 ELSE 0 END"):
        try:
            entered = {one: text if isinstance(one.form, Text) else one.form.example for one in required}
            values = {one.name: one.form.parse(one.name, example) for one, example in entered.items()}
            session.prepare(values.pop(kind.subject.name), kind.name, **values)
        except NotCovered:
            return False
        except HoldfastError:
            continue
    return True


class Datasets:
    """All datasets of a server, opened at the start or when first requested."""

    def __init__(self, settings: Settings, database: TokenDatabase) -> None:
        self._settings = settings
        self._database, self._engine = database, database.durable
        self._open: dict[str, ServedDataset] = {}
        self._lock = threading.Lock()

    def open_all(self) -> None:
        """Open the datasets that the settings name and that the admin registered."""
        for name in self.names():
            self._get(name)

    def names(self) -> list[str]:
        """Return every name, in order."""
        return sorted({*self._settings.datasets, *self._registered()})

    def visible(self, token: Token) -> list[ServedDataset]:
        """Return the datasets a token gives access to."""
        found = (self._get(name) for name in self.names() if token.allows(name))
        return [served for served in found if served is not None]

    def get(self, name: str, token: Token) -> ServedDataset:
        """Return a dataset; one the token does not allow is refused like one that does not exist."""
        allowed = token.allows(name)
        served = self._open.get(name) if allowed else None
        if allowed and served is None:
            with naming(name):
                served = self._get(name)
        if served is None:
            message = f"No dataset {name!r} for your token. GET /api/v1/datasets lists those it allows."
            raise UnknownName(message, name=name)
        return served

    def register(self, name: str, file: str, **plan: Any) -> ServedDataset:
        """Open a file from the data folder under a name, and keep it registered."""
        check_name("name", name)
        in_use = InvalidArgument(f"name must be new; {name!r} is already in use.", name="name")
        if name in self.names():
            raise in_use
        settings = DatasetSettings(path=str(self._path_in_folder(file)), **plan)
        try:
            served = self._open_once(name, settings)
        except RowSourceError as error:  # the caller chose the file, so report it as the caller's mistake
            raise InvalidArgument(error.message.replace(settings.path, repr(file)), name="file") from error
        try:
            row = {"name": name, "settings": json.dumps(asdict(settings))}
            write(self._engine, insert(registered_datasets).values(row))
        except IntegrityError:
            raise in_use from None
        return served

    def close(self) -> None:
        """Close every ledger."""
        with self._lock:
            for served in self._open.values():
                served.session.close()
            self._open.clear()

    def _get(self, name: str) -> ServedDataset | None:
        served = self._open.get(name)
        if served is not None:
            return served
        settings = self._settings.datasets.get(name) or self._registered().get(name)
        return None if settings is None else self._open_once(name, settings)

    def _registered(self) -> dict[str, DatasetSettings]:
        rows = read(self._engine, select(registered_datasets))
        return {row["name"]: DatasetSettings(**json.loads(row["settings"])) for row in rows}

    def _path_in_folder(self, file: str) -> Path:
        """Return the path of a file in the data folder; nothing else can be registered over HTTP."""
        if self._settings.data_folder is None:
            raise NotAllowed("Files can only be registered from a data folder. Start the server with --data-folder.")
        folder = Path(self._settings.data_folder).resolve()
        path = folder if "\0" in file else (folder / file).resolve()
        if path == folder:
            raise InvalidArgument("file must be the name of a file or folder in the data folder.", name="file")
        if not path.is_relative_to(folder):
            raise NotAllowed(f"file must be in the data folder; {file!r} is not.", name="file")
        if not path.exists():
            raise UnknownName(f"No file {file!r} in the data folder.", name="file")
        return path

    def _open_once(self, name: str, settings: DatasetSettings) -> ServedDataset:
        with self._lock:
            if name not in self._open:
                served = _open(name, settings, self._settings.database)
                try:
                    self._watch(served)
                except BaseException:
                    served.session.close()
                    raise
                self._open[name] = served
            return self._open[name]

    def _watch(self, served: ServedDataset) -> None:
        """Watch the ledger; refuse rows that are served under another name, or whose ledger went back in time."""
        ledger = served.session.ledger
        if ledger.reproducible:
            return
        content = content_of(ledger.fingerprint)
        for other in self._open.values():
            theirs = other.session.ledger
            if content_of(theirs.fingerprint) == content and not theirs.reproducible:
                raise InvalidArgument(
                    f"datasets must be different rows; {other.name!r} and {served.name!r} are the same, which have one"
                    " budget. Serve them under one name.",
                    name="datasets",
                )
        ledger.watch(DatabaseWitness(self._database, content))


def _open(name: str, settings: DatasetSettings, database: str | None) -> ServedDataset:
    rows = open_rows(settings.path, name=name, complete=settings.complete, unit=settings.unit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VacuousPlan)  # the plan's sentence is on every page
        plan = {each: getattr(settings, each) for each in PLAN}
        declared = {name: getattr(settings, name) for name in ("bounds", "categories", "labels")}
        session = Session(rows, ledger=settings.ledger or database, **plan, **declared)
    # Ask made-up rows once, so that lazy imports happen now, in one thread: two threads that first import a large
    # package at the same time can each see it half initialized.
    quoted = session.schema.names[0].replace('"', '""')
    asks = session.plan.standing.only_kind
    if asks != SUBMIT.name:
        guess = {"guess": 0.5, "margin": 0.25} if asks == CHECK.name else {}
        session.dry_run(f'"{quoted}" IS NULL', asks or MEAN.name, **guess)
    places = {session.ledger.location, settings.path, str(Path(settings.path).absolute())} - {"in memory"}
    submissions = Standings(session.ledger, lambda: session.plan.standing)
    return ServedDataset(name, session, Usage(session), submissions, tuple(places))
