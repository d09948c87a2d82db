"""Tokens, and the sign-ins made from them.

A token's secret is 32 random bytes, shown once and stored as its SHA-256: with that much entropy, no slower hash is
needed. Anybody who presents the secret acts under the token's name. A cookie is another such secret that stands for a
token, so that the token itself is never stored in a browser; a one-time link is a third, exchanged for a cookie when
it is used.
"""

import json
import os
import secrets
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, delete, func, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from holdfast import check
from holdfast.errors import InvalidArgument, NotSignedIn, ServiceUnavailable, UnknownName
from holdfast.ledger.concurrency import open_private
from holdfast.service.database import TokenDatabase, clock, read, sign_ins, tokens, write, write_transaction
from holdfast.service.settings import check_name

PREFIX = "hf_"
CACHE_SECONDS = 1.0  # a token revoked by another process is refused after at most this long
REFRESH_SECONDS = 0.4  # at this age a token in use is looked up again, while its cache entry is still valid
LINK_SECONDS = 3_600
REMEMBER_SECONDS = 60.0  # how far the time stored in the database may lag behind
MAX_CACHED = 10_000
MAX_LOOKUPS = 500  # tokens looked up by one query


@dataclass(frozen=True)
class Token:
    """A token without its secret. `datasets` None: all; `quota`: the most answers it may use of each dataset."""

    id: str
    name: str
    admin: bool
    datasets: tuple[str, ...] | None
    quota: int | None
    created: float
    expires: float | None
    revoked: float | None

    def allows(self, dataset: str) -> bool:
        """Whether the token gives access to this dataset."""
        return self.datasets is None or dataset in self.datasets

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; nothing secret."""
        return asdict(self) | {"datasets": None if self.datasets is None else list(self.datasets)}


class Clock:
    """The time, which never goes back: not at all within a process, and at most a minute from one process to the next.

    Otherwise expired tokens would be valid again after the machine's clock is set back.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        stored = read(engine, select(func.max(clock.c.latest).label("latest")))[0]["latest"]
        self._stored: float = stored or 0.0
        self._latest, self._at = max(time.time(), self._stored), time.monotonic()
        self._lock = threading.Lock()

    def now(self) -> float:
        """Return seconds since 1970."""
        with self._lock:
            at = time.monotonic()
            now = max(time.time(), self._latest + max(0.0, at - self._at))
            self._latest, self._at = now, at
            remember = now > self._stored + REMEMBER_SECONDS
            if remember:
                self._stored = now
        if remember:  # in another thread: the caller need not wait
            threading.Thread(target=self._remember, args=(now,), daemon=True).start()
        return now

    def _remember(self, latest: float) -> None:
        later, none = update(clock).where(clock.c.latest < latest), select(func.count()).select_from(clock)
        # If another process writes the first row at this moment, this fails, and the time is stored the next time.
        with suppress(ServiceUnavailable, SQLAlchemyError), write_transaction(self._engine) as connection:
            connection.execute(later.values(latest=latest))
            if connection.scalar(none) == 0:
                connection.execute(insert(clock).values(id=1, latest=latest))


class TokenStore:
    """The tokens of a server."""

    def __init__(self, database: TokenDatabase, *, sign_in_seconds: float = 12 * 3_600) -> None:
        self._engine = database.durable
        self._clock = Clock(database.relaxed)
        self._sign_in_seconds = sign_in_seconds
        self._cache: dict[str, tuple[float, Token]] = {}
        self._used: set[str] = set()  # digests of tokens presented since the last lookup, which empties it
        self._changes = 0
        self._lock, self._lookup_lock = threading.Lock(), threading.Lock()
        self._refreshed = 0.0

    # -- tokens -------------------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        *,
        admin: bool = False,
        datasets: list[str] | tuple[str, ...] | None = None,
        quota: int | None = None,
        days: float | None = None,
        secret: str | None = None,
    ) -> tuple[str, Token]:
        """Create a token; its secret is returned here and never again."""
        check_name("name", name)
        if quota is not None:
            check.whole(0, quota=quota)
        if days is not None:
            check.positive(days=days)
            check.at_most("a century", 36_525, days=days)
        secret = PREFIX + secrets.token_urlsafe(32) if secret is None else secret
        now = self._clock.now()
        allowed = None if datasets is None else tuple(sorted(set(datasets)))
        expires = None if days is None else now + days * 86_400
        token = Token(secrets.token_hex(8), name, admin, allowed, quota, created=now, expires=expires, revoked=None)
        stored = {"digest": _digest(secret), "datasets": "*" if allowed is None else json.dumps(allowed)}
        write(self._engine, insert(tokens).values(asdict(token) | stored))
        return secret, token

    def authenticate(self, secret: str) -> Token:
        """Return the token with this secret, or refuse."""
        digest = _digest(secret)
        self._used.add(digest)
        with self._lookup_lock:  # threads that wait here are served by the first one's query, through the cache
            return self._require_active(self._cached(digest)[0] or self._look_up(digest))

    def cached(self, secret: str) -> Token | None:
        """Return the token with this secret if it was looked up a moment ago; never blocks.

        Otherwise the next lookup, by any thread, also fetches this token: when many arrive at once, one query serves
        all. Tokens in use are looked up again before they are too old, so that frequent callers never wait.
        """
        digest, now = _digest(secret), time.monotonic()
        self._used.add(digest)
        token, at = self._cached(digest)
        if token is not None and now - at > REFRESH_SECONDS < now - self._refreshed:
            self._refreshed = now
            threading.Thread(target=self._refresh, name="holdfast tokens", daemon=True).start()
        return token if token is not None and self.is_active(token) else None

    def is_active(self, token: Token) -> bool:
        """Return whether the token is neither revoked nor expired."""
        return token.revoked is None and (token.expires is None or self._clock.now() < token.expires)

    def _require_active(self, token: Token | None) -> Token:
        if token is None or not self.is_active(token):
            raise NotSignedIn("This token is unknown, revoked or expired. Ask the admin for a new one.")
        return token

    def all(self) -> list[Token]:
        """Return every token ever created, newest first."""
        return [_token(row) for row in read(self._engine, select(tokens).order_by(tokens.c.created.desc()))]

    def revoke(self, id: str) -> Token:
        """Refuse this token from now on."""
        return self._update(id, {"revoked": self._clock.now()})

    def set_quota(self, id: str, quota: int | None) -> Token:
        """Set how many answers of each dataset may be used under the token's name."""
        if quota is not None:
            check.whole(0, quota=quota)
        return self._update(id, {"quota": quota})

    def _update(self, id: str, values: dict[str, Any]) -> Token:
        with write_transaction(self._engine) as connection:
            active = update(tokens).where(tokens.c.id == id, tokens.c.revoked.is_(None))
            changed = connection.execute(active.values(values))
            row = connection.execute(select(tokens).where(tokens.c.id == id)).mappings().first()
        if row is None or changed.rowcount == 0:
            raise UnknownName(f"No active token {id!r}. Active tokens are listed at /admin.", name=id)
        self._clear_cache()
        return _token(row)

    # -- the admin ----------------------------------------------------------------------------------------------

    def admin(self, token_file: str | None = None, secret: str | None = None) -> Token:
        """Return the admin's token, created at the first start; `token_file` holds or receives its secret.

        If that token was revoked or has expired, it stays so, and the admin is the one who was created first.
        """
        if token_file is not None:
            secret = _secret_from_file(Path(token_file))
        if secret is not None:
            if len(secret) < 20:
                rule = f"admin_token must be at least 20 characters; got {len(secret)}."
                raise InvalidArgument(f"{rule} Leave it out to have one made.", name="admin_token")
            token = self._look_up(_digest(secret)) or self.create("admin", admin=True, secret=secret)[1]
            if not token.admin:
                raise InvalidArgument("admin_token must be an admin's; this one is an analyst's.", name="admin_token")
            if self.is_active(token):
                return token
        active = [token for token in self.all() if token.admin and self.is_active(token)]
        return active[-1] if active else self.create("admin", admin=True)[1]

    # -- sign-ins -----------------------------------------------------------------------------------------------

    def sign_in_link(self, token: Token) -> str:
        """Return the code of a link that signs in with this token, once."""
        return self._create_sign_in(token.id, once=True, seconds=LINK_SECONDS)

    def sign_in(self, token: Token) -> str:
        """Return the secret of a new cookie."""
        return self._create_sign_in(token.id, once=False, seconds=self._sign_in_seconds)

    def redeem(self, code: str) -> Token:
        """Use up a one-time link."""
        now = self._clock.now()
        with write_transaction(self._engine) as connection:
            this = (sign_ins.c.digest == _digest(code)) & sign_ins.c.once
            row = connection.execute(select(sign_ins).where(this)).mappings().first()
            # Of two requests at once, only one deletes it.
            used = connection.execute(delete(sign_ins).where(this)).rowcount
        if row is None or used != 1 or row["expires"] <= now:
            message = "This link was already used or has expired. Restart the server for a new one, or use a token."
            raise NotSignedIn(message)
        found = read(self._engine, select(tokens).where(tokens.c.id == row["token"]))
        return self._require_active(_token(found[0]) if found else None)

    def by_cookie(self, secret: str) -> Token:
        """Return the token signed in by this cookie, or refuse."""
        digest = _digest(secret)
        cached = f"cookie {digest}"  # apart from tokens: whatever is sent as one must be one
        token, _ = self._cached(cached)
        if token is None:
            before = self._version()
            both = select(tokens, sign_ins.c.expires.label("until")).join(sign_ins, sign_ins.c.token == tokens.c.id)
            found = read(self._engine, both.where(sign_ins.c.digest == digest, sign_ins.c.once.is_(False)))
            if not found or found[0]["until"] <= self._clock.now():
                raise NotSignedIn("This sign-in has expired. Sign in again.")
            token = _token(found[0])
            self._store(before, {cached: token})
        return self._require_active(token)

    def sign_out(self, secret: str) -> None:
        """Delete a cookie."""
        write(self._engine, delete(sign_ins).where(sign_ins.c.digest == _digest(secret)))
        self._clear_cache()

    def _create_sign_in(self, token: str, *, once: bool, seconds: float) -> str:
        secret, now = secrets.token_urlsafe(32), self._clock.now()
        row = {"digest": _digest(secret), "token": token, "once": once, "expires": now + seconds}
        write(self._engine, delete(sign_ins).where(sign_ins.c.expires <= now), insert(sign_ins).values(row))
        return secret

    # -- the cache ----------------------------------------------------------------------------------------------

    def _cached(self, digest: str) -> tuple[Token | None, float]:
        """Return a token that was looked up a moment ago, and when."""
        at, token = self._cache.get(digest, (0.0, None))
        return (token if time.monotonic() - at < CACHE_SECONDS else None), at

    def _version(self) -> tuple[float, int]:
        return time.monotonic(), self._changes

    def _store(self, before: tuple[float, int], found: dict[str, Token]) -> None:
        """Cache what was read, unless something changed meanwhile."""
        at, changes = before
        with self._lock:
            if len(self._cache) + len(found) > MAX_CACHED:
                self._cache.clear()
            if changes == self._changes:
                self._cache.update({digest: (at, token) for digest, token in found.items()})

    def _clear_cache(self) -> None:
        with self._lock:
            self._changes += 1
            self._cache.clear()

    def _refresh(self) -> None:
        with suppress(ServiceUnavailable, SQLAlchemyError), self._lookup_lock:  # if it fails, the next caller looks up
            self._look_up(None)

    def _look_up(self, digest: str | None) -> Token | None:
        """Look up a token, and in the same query all others presented lately; with None, only those."""
        used, self._used = self._used, set()
        first = [] if digest is None else [digest]
        others = used.difference(first)  # a single C call: a thread that read `_used` before may still add to it
        digests, before = [*first, *others][:MAX_LOOKUPS], self._version()
        rows = read(self._engine, select(tokens).where(tokens.c.digest.in_(digests)))
        found = {row["digest"]: _token(row) for row in rows}
        self._store(before, found)
        return None if digest is None else found.get(digest)


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _token(row: Any) -> Token:
    datasets = None if row["datasets"] == "*" else tuple(json.loads(row["datasets"]))
    return Token(**{one.name: row[one.name] for one in fields(Token)} | {"datasets": datasets})


def _secret_from_file(path: Path) -> str:
    """Read the admin's secret, or write a new one that only the file's owner can read."""
    if path.exists():
        secret = path.read_text(encoding="utf-8").strip()
        if len(secret) < 20:
            rule = f"The token in {path} must be at least 20 characters; got {len(secret)}."
            raise InvalidArgument(f"{rule} Delete it to get a new one.", name="token_file")
        return secret
    secret = PREFIX + secrets.token_urlsafe(32)
    with os.fdopen(open_private(path), "w", encoding="utf-8") as file:
        file.write(secret + "\n")
    return secret
