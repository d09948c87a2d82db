"""Who is asking: tokens, and the sign-ins made from them.

A token is 32 random bytes, shown once and kept as its SHA-256: with that much chance in it, nothing slower is needed.
Whoever holds it is the person it was made for. A cookie is another such secret that stands for a token, so that the
token itself is never in a browser's store; a one-time link is a third, which becomes a cookie when first used.
"""

import json
import secrets
import threading
import time
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlalchemy import delete, insert, select, update

from holdfast import check
from holdfast.errors import InvalidArgument, NotSignedIn, UnknownName
from holdfast.service.settings import check_name
from holdfast.service.tables import Tables, reading, sign_ins, tokens, writing

PREFIX = "hf_"
FRESH = 1.0  # seconds a looked-up token may be believed: a token revoked by another process is refused after that
LINK_SECONDS = 3_600
MOST_CACHED = 10_000
MOST_AT_ONCE = 500
UNKNOWN = "This token is unknown, revoked or expired. Ask the keeper of the dataset for another."


@dataclass(frozen=True)
class Person:
    """Whom a token stands for. `datasets` None: all of them; `quota`: the most answers of each dataset."""

    id: str
    name: str
    keeper: bool
    datasets: tuple[str, ...] | None
    quota: int | None
    created: float
    expires: float | None
    revoked: float | None

    def may_see(self, dataset: str) -> bool:
        """Whether the token reaches this dataset."""
        return self.datasets is None or dataset in self.datasets

    @property
    def stands(self) -> bool:
        """Whether the token is good at this moment."""
        return self.revoked is None and (self.expires is None or time.time() < self.expires)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; nothing secret."""
        return asdict(self) | {"datasets": None if self.datasets is None else list(self.datasets)}


class People:
    """The tokens of a server."""

    def __init__(self, tables: Tables, *, sign_in_seconds: float = 12 * 3_600) -> None:
        self._tables = tables
        self._sign_in_seconds = sign_in_seconds
        self._seen: dict[str, tuple[float, Person]] = {}
        self._used: set[str] = set()  # digests of those who came since the last look
        self._changes = 0
        self._lock, self._look = threading.Lock(), threading.Lock()

    # -- tokens -------------------------------------------------------------------------------------------------

    def make(
        self,
        name: str,
        *,
        keeper: bool = False,
        datasets: list[str] | tuple[str, ...] | None = None,
        quota: int | None = None,
        days: float | None = None,
        text: str | None = None,
    ) -> tuple[str, Person]:
        """Make a token; its text is returned here and never again."""
        check_name("name", name)
        if quota is not None:
            check.whole(0, quota=quota)
        if days is not None:
            check.positive(days=days)
            check.at_most("a century", 36_525, days=days)
        text = PREFIX + secrets.token_urlsafe(32) if text is None else text
        now = time.time()
        row = {
            "id": secrets.token_hex(8),
            "digest": _digest(text),
            "name": name,
            "keeper": keeper,
            "datasets": "*" if datasets is None else json.dumps(sorted(set(datasets))),
            "quota": quota,
            "created": now,
            "expires": None if days is None else now + days * 86_400,
            "revoked": None,
        }
        with writing(self._tables.durable) as connection:
            connection.execute(insert(tokens).values(row))
        return text, _person(row)

    def who(self, text: str) -> Person:
        """Return whom a token stands for, or refuse."""
        digest = _digest(text)
        with self._look:  # who comes while another looks is looked up with them, and finds themselves remembered
            return _standing(self._remembered(digest) or self._look_up(digest))

    def remembered(self, text: str) -> Person | None:
        """Return whom a token stands for if that was looked up a moment ago; never waits."""
        person = self._remembered(_digest(text))
        return person if person is not None and person.stands else None

    def everyone(self) -> list[Person]:
        """Return every token ever made, newest first."""
        with reading(self._tables.durable) as connection:
            rows = connection.execute(select(tokens).order_by(tokens.c.created.desc())).mappings().all()
        return [_person(row) for row in rows]

    def revoke(self, id: str) -> Person:
        """Refuse this token from now on."""
        return self._change(id, {"revoked": time.time()})

    def set_quota(self, id: str, quota: int | None) -> Person:
        """Set how many answers of each dataset the token's person may use."""
        if quota is not None:
            check.whole(0, quota=quota)
        return self._change(id, {"quota": quota})

    def _change(self, id: str, values: dict[str, Any]) -> Person:
        with writing(self._tables.durable) as connection:
            changed = connection.execute(
                update(tokens).where(tokens.c.id == id, tokens.c.revoked.is_(None)).values(values)
            )
            row = connection.execute(select(tokens).where(tokens.c.id == id)).mappings().first()
        if row is None or changed.rowcount == 0:
            raise UnknownName(f"No token {id!r} that stands. Those that do are listed at /keeper.", name=id)
        self._forget()
        return _person(row)

    # -- the keeper ---------------------------------------------------------------------------------------------

    def keeper(self, token_file: str | None = None) -> Person:
        """Return the keeper, made at the first start; `token_file` holds the keeper's token, or receives a new one."""
        if token_file is not None:
            text = _from_file(Path(token_file))
            return self._look_up(_digest(text)) or self.make("keeper", keeper=True, text=text)[1]
        standing = [person for person in self.everyone() if person.keeper and person.stands]
        return standing[-1] if standing else self.make("keeper", keeper=True)[1]

    def link(self, person: Person) -> str:
        """Return the code of a link that signs this person in, once."""
        return self._secret(person.id, once=True, seconds=LINK_SECONDS)

    # -- sign-ins -----------------------------------------------------------------------------------------------

    def sign_in(self, person: Person) -> str:
        """Return the secret of a new cookie."""
        return self._secret(person.id, once=False, seconds=self._sign_in_seconds)

    def redeem(self, code: str) -> Person:
        """Use up a one-time link."""
        now = time.time()
        with writing(self._tables.durable) as connection:
            this = (sign_ins.c.digest == _digest(code)) & sign_ins.c.once
            row = connection.execute(select(sign_ins).where(this)).mappings().first()
            # Only one of two that come at once deletes it.
            used = connection.execute(delete(sign_ins).where(this)).rowcount
        if row is None or used != 1 or row["expires"] <= now:
            raise NotSignedIn(
                "This link was used before or is too old. Restart the server for another, or use a token."
            )
        return _standing(self._by_id(row["token"]))

    def by_cookie(self, secret: str) -> Person:
        """Return who is signed in by this cookie, or refuse."""
        digest = _digest(secret)
        person = self._remembered(digest)
        if person is None:
            before = self._now()
            with reading(self._tables.durable) as connection:
                row = connection.execute(
                    select(tokens, sign_ins.c.expires.label("until"))
                    .join(sign_ins, sign_ins.c.token == tokens.c.id)
                    .where(sign_ins.c.digest == digest, sign_ins.c.once.is_(False))
                ).mappings()
                found = row.first()
            if found is None or found["until"] <= time.time():
                raise NotSignedIn("This sign-in has ended. Sign in again.")
            person = _person(found)
            self._remember(before, {digest: person})
        return _standing(person)

    def sign_out(self, secret: str) -> None:
        """Forget a cookie."""
        with writing(self._tables.durable) as connection:
            connection.execute(delete(sign_ins).where(sign_ins.c.digest == _digest(secret)))
        self._forget()

    def _secret(self, token: str, *, once: bool, seconds: float) -> str:
        secret, now = secrets.token_urlsafe(32), time.time()
        row = {"digest": _digest(secret), "token": token, "once": once, "expires": now + seconds}
        with writing(self._tables.durable) as connection:
            connection.execute(delete(sign_ins).where(sign_ins.c.expires <= now))
            connection.execute(insert(sign_ins).values(row))
        return secret

    # -- looking up ---------------------------------------------------------------------------------------------

    def _remembered(self, digest: str) -> Person | None:
        at, person = self._seen.get(digest, (0.0, None))
        if person is not None:
            self._used.add(digest)
        return person if time.monotonic() - at < FRESH else None

    def _now(self) -> tuple[float, int]:
        return time.monotonic(), self._changes

    def _remember(self, before: tuple[float, int], found: dict[str, Person]) -> None:
        """Believe for a moment what was read; not if something was changed while it was."""
        at, changes = before
        with self._lock:
            if len(self._seen) + len(found) > MOST_CACHED:
                self._seen.clear()
            if changes == self._changes:
                self._seen.update({digest: (at, person) for digest, person in found.items()})

    def _forget(self) -> None:
        with self._lock:
            self._changes += 1
            self._seen.clear()

    def _look_up(self, digest: str) -> Person | None:
        """Look up a token, and with it those of everyone else who came lately: one question for all of them."""
        used, self._used = self._used, set()
        wanted, before = [digest, *(used - {digest})][:MOST_AT_ONCE], self._now()
        with reading(self._tables.durable) as connection:
            rows = connection.execute(select(tokens).where(tokens.c.digest.in_(wanted))).mappings().all()
        found = {row["digest"]: _person(row) for row in rows}
        self._remember(before, found)
        return found.get(digest)

    def _by_id(self, id: str) -> Person | None:
        with reading(self._tables.durable) as connection:
            row = connection.execute(select(tokens).where(tokens.c.id == id)).mappings().first()
        return None if row is None else _person(row)


def _standing(person: Person | None) -> Person:
    if person is None or not person.stands:
        raise NotSignedIn(UNKNOWN)
    return person


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _person(row: Any) -> Person:
    return Person(
        id=row["id"],
        name=row["name"],
        keeper=row["keeper"],
        datasets=None if row["datasets"] == "*" else tuple(json.loads(row["datasets"])),
        quota=row["quota"],
        created=row["created"],
        expires=row["expires"],
        revoked=row["revoked"],
    )


def _from_file(path: Path) -> str:
    """Read the keeper's token, or write a new one where only the owner can read it."""
    if path.exists():
        text = path.read_text(encoding="utf-8").strip()
        if len(text) < 20:
            raise InvalidArgument(
                f"The token in {path} must be at least 20 characters; got {len(text)}. Remove the file for a new one.",
                name="token_file",
            )
        return text
    text = PREFIX + secrets.token_urlsafe(32)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(text + "\n", encoding="utf-8")
    return text
