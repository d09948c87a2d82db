"""Server settings from four sources, each overriding the next: arguments, environment, TOML file, defaults.

    database = "postgresql://..."        # left out: SQLite files beside the first dataset
    port = 8765

    [datasets.flights]
    path = "flights.parquet"
    queries = 10_000
    bounds = { dep_delay = [-60, 600] }  # declared, never read from the data: questions may leave out the range
    categories = { carrier = ["UA", "AA", "DL"], origin = "published" }   # "published": the texts that it has
    labels = { dep_delay = "departure delay in minutes" }
    complete = ["dep_delay"]             # never missing: a mean costs 1 answer instead of 2
    unit = "passenger"                   # which rows belong together, if rows are not independent of each other
    # version = 12                       # of a Delta table, or the snapshot of an Iceberg table; left out, the newest

    [datasets.trips]                     # a text file: how it is written, as for holdfast.open
    path = "trips.csv"
    types = { zip = "text", fare = "number" }
    null_values = ["NA"]
    separator = ";"
    decimal = ","
    encoding = "latin-1"

Environment variables use the same names in capitals, prefixed with HOLDFAST_: HOLDFAST_PORT=8765. A secret may also be
in a file that the environment names: HOLDFAST_DATABASE_FILE, HOLDFAST_ADMIN_TOKEN_FILE.
"""

import ast
import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from operator import methodcaller
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from holdfast import check
from holdfast.errors import InvalidArgument
from holdfast.guarantees.plan import BEST, RowsPerQuery
from holdfast.guarantees.request import Queries
from holdfast.rows.open import dialect_of
from holdfast.schema import Category
from holdfast.session.beside import Declarations

PREFIX = "HOLDFAST_"
SECRETS = ("database", "admin_token")
TRUE = ("1", "true", "yes", "on")
READ: dict[type, Callable[[str], Any]] = {int: int, float: float, bool: lambda text: text.lower() in TRUE}
MAX_NAME_LENGTH = 100
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
T = TypeVar("T", "DatasetSettings", "Settings")


@dataclass(frozen=True, kw_only=True)
class DatasetSettings:
    """One dataset: its path and the plan its ledger starts with."""

    path: str
    queries: Queries | None = None
    margin: float | None = None
    confidence: float | None = None
    guarantee: str = BEST
    rows_per_query: RowsPerQuery | None = None
    end: bool = False
    identical: bool | None = None  # whether rows follow one distribution
    checks: float | None = None  # the share of rows that check guesses
    ledger: str | None = field(default=None, repr=False)  # may hold a password
    seed: int | None = None  # for tests only
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    categories: Mapping[str, Sequence[Category] | str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    complete: Sequence[str] = ()
    unit: str | None = None
    version: int | None = None  # of a Delta table, or the snapshot of an Iceberg table
    types: Mapping[str, str] = field(default_factory=dict)  # this and what follows: how a CSV file is written
    separator: str | None = None
    encoding: str = "utf-8"
    null_values: Sequence[str] = ()
    decimal: str = "."

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "null_values", dialect_of(**self.reading).null_values
        )  # raises if no file is like this
        if self.version is not None:
            check.whole(0, version=self.version)
        Declarations(self.bounds, self.categories, self.labels)  # raises if no dataset could have these
        object.__setattr__(self, "complete", _names("complete", self.complete))

    @property
    def reading(self) -> check.TextFormat:
        """How the file is written, if it is a CSV or JSON lines file."""
        given = {name: getattr(self, name) for name in check.TextFormat.__annotations__}
        return cast(check.TextFormat, given)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything a server process needs."""

    datasets: Mapping[str, DatasetSettings] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8765
    workers: int = 1
    pin: bool = False  # whether each of several processes keeps to a processor of its own: nothing else may need those
    database: str | None = field(default=None, repr=False)  # may hold a password
    admin_token: str | None = field(default=None, repr=False)
    data_folder: str | None = None  # the folder whose files the admin may register; None: no files
    token_file: str | None = None
    public_url: str | None = None  # the public address, behind a proxy
    hosts: tuple[str, ...] = ()  # names that the server answers to, or "*"; empty: see `known_hosts`
    open_metrics: bool = False
    rate: float = 50.0  # requests per second and token, on average
    burst: int = 200
    max_connections: int = 1_000
    connections_per_address: int = 256  # ignored behind a proxy, where all have the proxy's address
    max_header_bytes: int = 32_768
    max_body_bytes: int = 1_000_000
    header_timeout: float = 10.0  # seconds for the headers of a request, and for the first request of a connection
    idle_timeout: float = 30.0  # seconds that a connection may do nothing between requests
    timeout: float = 30.0  # seconds for a request, from its first byte to the answer
    grace: float = 10.0  # seconds after which a stopped server ends, whatever its threads wait for
    sign_in_hours: float = 12.0
    asks_at_once: int = 4  # requests of one person in progress at once, in eight threads; more wait
    asks_waiting: int = 100  # requests of one person that may wait; more are refused
    max_work: int = 1_000_000_000  # steps that one question may take: rows times steps per row
    tick: float = 0.01  # seconds: new answers are written a multiple of this after the question arrived

    def __post_init__(self) -> None:
        check.whole(1, workers=self.workers, burst=self.burst, max_body_bytes=self.max_body_bytes)
        check.whole(1, asks_at_once=self.asks_at_once, asks_waiting=self.asks_waiting, max_work=self.max_work)
        check.whole(1, max_connections=self.max_connections, connections_per_address=self.connections_per_address)
        check.whole(1_000, max_header_bytes=self.max_header_bytes)
        check.whole(0, port=self.port)
        check.at_most("the largest port", 65_535, port=self.port)
        check.positive(rate=self.rate, timeout=self.timeout, sign_in_hours=self.sign_in_hours)
        check.positive(header_timeout=self.header_timeout, idle_timeout=self.idle_timeout, grace=self.grace)
        check.number(tick=self.tick)
        most = min(self.timeout, self.grace) / 2
        if not 0 <= self.tick <= most:
            raise InvalidArgument(
                f"tick must be between 0 and {most:g} seconds, half of timeout and of grace: an answer that is paid for"
                f" is written before they end; got {self.tick:g}.",
                name="tick",
            )
        object.__setattr__(self, "hosts", _names("hosts", self.hosts))
        for name in self.datasets:
            check_name("dataset", name)
        if self.public_url is not None:
            parts = urlsplit(self.public_url)
            if parts.scheme not in ("http", "https") or not parts.netloc or parts.path not in ("", "/"):
                message = f"public_url must be like https://host, without a path; got {self.public_url!r}."
                raise InvalidArgument(message, name="public_url")

    @property
    def origin(self) -> str | None:
        """The Origin that browsers send from the server's own pages, if the public address is declared."""
        return None if self.public_url is None else self.public_url.rstrip("/").lower()

    @property
    def known_hosts(self) -> frozenset[str] | None:
        """The host names that requests may be sent to; None: any.

        By default the names of this machine and of the public address; without a public address, any name is allowed
        unless the server listens only on this machine.
        """
        if "*" in self.hosts:
            return None
        names = {host.lower() for host in self.hosts}
        if not names and self.public_url is not None:
            names.add((urlsplit(self.public_url).hostname or "").lower())
        if not names and self.host not in LOOPBACK:
            return None
        return frozenset(names | LOOPBACK)

    @property
    def token_database(self) -> str:
        """The URL of the token database: the ledger's PostgreSQL server, or a SQLite file beside the ledger."""
        if self.database is not None:  # SQLite: a separate file, so that ledger writes never wait for its lock
            return f"{self.database}-tokens" if self.database.startswith("sqlite") else self.database
        folder = Path(next(iter(self.datasets.values())).path).absolute().parent if self.datasets else Path.cwd()
        return f"sqlite:///{folder / 'holdfast-tokens.db'}"

    def to_json(self) -> str:
        """Serialize for a worker process."""
        return to_json(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        """Read what `to_json` wrote."""
        return _build(json.loads(text))


def to_json(values: Mapping[str, Any]) -> str:
    """Write what a TOML file may hold as JSON: dates, which are among a column's categories, as their texts."""
    return json.dumps(values, default=methodcaller("isoformat"))


_READING = re.compile(rf"\b({'|'.join(check.TextFormat.__annotations__)})=(\{{[^{{}}]*\}}|\[[^\]]*\]|'[^']*')")


def in_settings(message: str) -> str:
    """Write what a message proposes to say when opening a file as lines of a TOML file.

    >>> in_settings("If values are missing there, say so when opening: null_values=['NA'].")
    'If values are missing there, say so in its settings: null_values = ["NA"].'
    >>> in_settings("say it when opening. All together: separator=';', types={'zip code': 'text'}.")
    'say it in its settings. All together: separator = ";" and types = { "zip code" = "text" }.'
    """
    parts: list[str] = []
    end = 0
    for found in _READING.finditer(message):
        try:
            written = _toml(ast.literal_eval(found[2]))
        except (SyntaxError, ValueError):
            continue
        between = message[end : found.start()]
        parts += [" and " if parts and between == ", " else between, f"{found[1]} = {written}"]
        end = found.end()
    return "".join([*parts, message[end:]]).replace("when opening", "in its settings") if parts else message


def _toml(value: Any) -> str:
    """Write a text, a list or a mapping of texts; JSON's texts are TOML's, too."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {json.dumps(each)}" for name, each in value.items()) + " }"
    return json.dumps(value)


def _names(setting: str, given: Any) -> tuple[str, ...]:
    """Return names from a list, or from comma-separated text, as in the environment."""
    listed = given.split(",") if isinstance(given, str) else given
    if not isinstance(listed, list | tuple) or not all(isinstance(one, str) for one in listed):
        raise InvalidArgument(f"{setting} must be a list of names; got {given!r}.", name=setting)
    return tuple(one.strip() for one in listed if one.strip())


def check_name(what: str, name: Any) -> str:
    """Require printable text without slashes, which is safe in a URL and in a log."""
    fits = isinstance(name, str) and 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable() and name == name.strip()
    if not fits or set(name) & set("/\\") or name in (".", ".."):
        rule = f"1 to {MAX_NAME_LENGTH} printable characters without slashes"
        raise InvalidArgument(f"{what} must be a name of {rule}; got {name!r}.", name=what)
    return str(name)


def load(
    files: Mapping[str, DatasetSettings],
    *,
    config: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    **arguments: Any,
) -> Settings:
    """Merge the four sources. Arguments that are None count as not given."""
    given = {} if config is None else _read(Path(config))
    given |= _from_environment(os.environ if environment is None else environment)
    given |= {name: value for name, value in arguments.items() if value is not None}
    settings = _build(given)
    return replace(settings, datasets={**settings.datasets, **files})


def _read(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidArgument(f"config must be a TOML file; there is no {path}.", name="config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"config must be a TOML file; {path} is not: {error}.", name="config") from None
    for one in found.get("datasets", {}).values():
        if isinstance(one, dict) and isinstance(one.get("path"), str):
            one["path"] = str(path.parent / one["path"])  # relative to the config file
    return found


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Read HOLDFAST_PORT and the like; unknown names may belong to other programs and are ignored."""
    found: dict[str, Any] = {}
    for one in fields(Settings):
        text, kind = environment.get(variable := PREFIX + one.name.upper()), type(one.default)
        if one.name in SECRETS and (path := environment.get(f"{variable}_FILE")) is not None:
            text = _secret_in(Path(path), f"{variable}_FILE")
        if text is None or one.name == "datasets":
            continue
        try:
            found[one.name] = READ.get(kind, str)(text)
        except ValueError:
            raise InvalidArgument(f"{variable} must be a number; got {text!r}.", name=one.name) from None
    return found


def _secret_in(path: Path, variable: str) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InvalidArgument(f"{variable} must be a file that can be read; {reason}.", name=variable) from None


def _build(given: Mapping[str, Any]) -> Settings:
    datasets = given.get("datasets", {})
    if not isinstance(datasets, Mapping):
        raise InvalidArgument("datasets must be tables: [datasets.NAME] with path = ...", name="datasets")
    built = {name: _known(DatasetSettings, value, f"datasets.{name}") for name, value in datasets.items()}
    return _known(Settings, {**given, "datasets": built}, "settings")


def _known(cls: type[T], given: Any, where: str) -> T:
    if not isinstance(given, Mapping) or (cls is DatasetSettings and "path" not in given):
        raise InvalidArgument(f"{where} must be a table with path = ...; got {given!r}.", name=where)
    names = sorted(one.name for one in fields(cls))
    for name in sorted(set(given) - set(names)):
        raise InvalidArgument(f"{where} has no setting {name!r}. It has: {', '.join(names)}.", name=name)
    return cls(**given)
