"""The datasets by name, each one `Session` that is asked under the name of the caller's token; and quotas.

A quota is one analyst's part of a dataset's budget. It is counted in the ledger, as the budget is, and in the same
currency: answers. The price of a question is reserved before anything is drawn, and the reservation ends after the
answer is committed. A request reads other reservations first and the ledger second, so every process counts an answer
in progress at least once; between commit and end of the reservation it may be counted twice, and a retry then finds it
counted once. The reservation never ends if the draw was called off, or if another server answered the question first:
the budget has paid for the draw.
"""

import json
import secrets
import threading
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from holdfast import check
from holdfast.cached import cached_property
from holdfast.cancel import Work
from holdfast.errors import (
    HoldfastError,
    InvalidArgument,
    LedgerUnavailable,
    NotAllowed,
    NotCovered,
    QuotaExhausted,
    RowSourceError,
    UnknownName,
)
from holdfast.guarantees.guarantee import Guarantee
from holdfast.guarantees.plan import Plan, VacuousPlan
from holdfast.ledger import Entry, Follower, Head, Receipt, content_of
from holdfast.queries.node import identifier
from holdfast.questions.budget import write_answers
from holdfast.questions.check import CHECK
from holdfast.questions.history import Standings
from holdfast.questions.kind import Kind
from holdfast.questions.mean import MEAN
from holdfast.questions.options import Text
from holdfast.questions.price import Price
from holdfast.questions.question import Question
from holdfast.questions.submit import SUBMIT
from holdfast.questions.totals import COUNT, TOTAL, UNITS
from holdfast.rows.open import open_rows
from holdfast.service.database import (
    DatabaseWitness,
    TokenDatabase,
    read,
    registered_datasets,
    reservations,
    write,
    write_transaction,
)
from holdfast.service.errors import ALLOWED, naming
from holdfast.service.settings import DatasetSettings, Settings, check_name, in_settings, to_json
from holdfast.service.tokens import Token
from holdfast.session.session import Session

MOST_STANDINGS = 1_000  # the most improvements, and the most other submissions, that are shown
MOST_SESSIONS = 1_000  # analysts whose sessions are kept in memory
LEAST = 1  # the fewest answers that a question takes from a quota, even if it takes less than one from the budget
RESERVATION_SECONDS = 120.0  # an older reservation must belong to a process that died
FOREVER = 1e12  # seconds since 1970: when the reservation of a draw that nobody sees ends
NOT_BEGUN = "No question has been answered yet; the ledger begins with the first answer."
# Settings that say how rows are read; the others are a session's.
OF_ROWS = ("complete", "unit", "version", *check.TextFormat.__annotations__)

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
            "guarantee": promise_of(plan),
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
    if kind in ((UNITS,) if session.schema.unit is None else (COUNT, TOTAL)):  # of units, and of rows
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
            raise UnknownName(f"No dataset {name!r} for your token. {ALLOWED}", name=name)
        return served

    def register(self, name: str, file: str, **chosen: Any) -> ServedDataset:
        """Open a file from the data folder under a name, with settings, and keep it registered."""
        check_name("name", name)
        in_use = InvalidArgument(f"name must be new; {name!r} is already in use.", name="name")
        if name in self.names():
            raise in_use
        settings = DatasetSettings(path=str(self._path_in_folder(file)), **chosen)
        try:
            with self._lock:
                if name in self._open:
                    raise in_use
                served = self._open_new(name, settings)
        except RowSourceError as error:  # the caller chose the file, so report it as the caller's mistake
            message = in_settings(error.message.replace(settings.path, repr(file)))
            raise InvalidArgument(message, name="file") from error
        try:
            row = {"name": name, "settings": to_json(asdict(settings))}
            write(self._engine, insert(registered_datasets).values(row))
        except BaseException as error:  # nobody would serve it after a restart, or another process serves other rows
            with self._lock:
                self._open.pop(name, None)
            served.session.close()
            if isinstance(error, IntegrityError):
                raise in_use from None
            raise
        return served

    def close(self) -> None:
        """Close every ledger, even if another cannot be closed."""
        with self._lock, ExitStack() as closing:
            for served in self._open.values():
                closing.callback(served.session.close)
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
            return self._open.get(name) or self._open_new(name, settings)

    def _open_new(self, name: str, settings: DatasetSettings) -> ServedDataset:
        """Open a dataset; the caller holds the lock."""
        served = _open(name, settings, self._settings.database)
        try:
            self._watch(served)
        except BaseException:
            served.session.close()
            raise
        self._open[name] = served
        return served

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


def promise_of(plan: Plan) -> str:
    """Return the sentence of a plan without the Python options that it proposes: analysts cannot choose the plan."""
    return plan.sentence.replace(" (queries=3, end=True)", "")


def _open(name: str, settings: DatasetSettings, database: str | None) -> ServedDataset:
    chosen = dict(vars(settings))
    rows = open_rows(chosen.pop("path"), name=name, **{each: chosen.pop(each) for each in OF_ROWS})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VacuousPlan)  # the plan's sentence is on every page
        session = Session(rows, ledger=chosen.pop("ledger") or database, **chosen)
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


# -- quotas ---------------------------------------------------------------------------------------------------------


class Quotas:
    """The quota reservations of all server processes."""

    def __init__(self, database: TokenDatabase) -> None:
        self._engine = database.relaxed

    def reserve(
        self, served: ServedDataset, token: Token, questions: Sequence[Question], work: Work
    ) -> "QuotaReservation":
        """Hold what these questions take of the token's quota, if it has one, during `work`; refuse if less is left."""
        held = QuotaReservation(self._engine, served, questions, work)
        if token.quota is not None:
            held.open(token.name, token.quota)
        return held

    def lost(self, analyst: str, dataset: str) -> int:
        """Return how many answers went to draws that were never shown."""
        kept = _reserved(analyst, dataset).where(reservations.c.expires >= FOREVER)
        return int(read(self._engine, kept)[0]["answers"])


class QuotaReservation:
    """Answers of a quota that are held from before they are drawn until they are committed."""

    def __init__(self, engine: Engine, served: ServedDataset, questions: Sequence[Question], work: Work) -> None:
        self._engine, self._served, self._questions, self._work = engine, served, questions, work
        self._costs: list[tuple[str | None, int]] = []  # of each question: its identity, and how many answers it takes
        self._held: dict[str, Any] = {}  # as the reservation is stored

    def open(self, analyst: str, quota: int) -> None:
        """Hold what the questions cost; refuse if less is left."""
        answering, dataset, new = self._served.session.answering, self._served.name, self._questions
        prices = [answering.price_of(new[0])] if len(new) == 1 else answering.prices_of(new).each
        self._costs = [(one.identity, of_quota(price)) for one, price in zip(new, prices, strict=True)]
        answers, now = sum(cost for _, cost in self._costs), time.time()
        if not answers:
            return
        self._work.begun = False  # an earlier look had a reservation of its own
        self._held = {"id": secrets.token_hex(16), "analyst": analyst, "dataset": dataset, "answers": answers}
        with write_transaction(self._engine) as connection:
            if self._engine.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(f"holdfast {dataset} {analyst}"))))
            connection.execute(delete(reservations).where(reservations.c.expires <= now))
            reserved = connection.scalar(_reserved(analyst, dataset))
            connection.execute(insert(reservations).values(self._held | {"expires": now + RESERVATION_SECONDS}))
        try:
            left = max(0, quota - self._served.usage.by_analyst()[analyst] - int(reserved or 0))
            if answers > left:
                message = (
                    f"Your quota cannot pay for this: it costs {write_answers(answers)}, and {left:,} of"
                    f" {quota:,} are left. Repeating an earlier question is free; the admin can raise the quota."
                )
                raise QuotaExhausted(message, cost=answers, left=left, total=quota, unit="answers")
        except BaseException as error:
            self.close(error)
            raise

    def close(self, error: BaseException | None = None) -> None:
        """End the reservation, but hold on to answers that are paid for and never shown.

        Those are draws that were dropped since another process had answered first; and after an error, if rows were
        drawn, all of them, unless they are in the ledger after all, and counted there.
        """
        if not self._held:
            return
        failed = error is not None and self._work.begun
        if failed and isinstance(error, LedgerUnavailable):
            failed = not self._is_written()
        kept = sum(cost for identity, cost in self._costs if failed or identity in self._work.dropped)
        ended = delete(reservations).where(reservations.c.id == self._held["id"])  # it may have expired
        keep = insert(reservations).values(self._held | {"answers": kept, "expires": FOREVER})
        write(self._engine, *((ended, keep) if kept else (ended,)))

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(error)

    def _is_written(self) -> bool:
        try:
            return all(map(self._served.session.answering.is_answered, self._questions))
        except HoldfastError:  # the ledger cannot be read
            return False


def _reserved(analyst: str, dataset: str) -> Any:
    total = func.coalesce(func.sum(reservations.c.answers), 0).label("answers")
    return select(total).where(reservations.c.analyst == analyst, reservations.c.dataset == dataset)


def of_quota(price: Price) -> int:
    """Return how many answers of a quota a question takes, also where it takes none of the budget, as a check."""
    return 0 if price.cached else max(LEAST, price.answers)
