"""Tokens are looked up together, and cached for a moment only if nothing changed meanwhile."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

import holdfast as hf
from holdfast.service import tokens
from holdfast.service.database import TokenDatabase
from holdfast.service.tokens import TokenStore
from serving import wait_until


@pytest.fixture
def database(tmp_path: Path) -> Iterator[TokenDatabase]:
    found = TokenDatabase(f"sqlite:///{tmp_path / 'tokens.db'}")
    yield found
    found.close()


def test_tokens_that_come_at_once_are_looked_up_by_one_query(database: TokenDatabase) -> None:
    store, statements = TokenStore(database), []
    secrets = [store.create(f"analyst {number}")[0] for number in range(50)]
    event.listen(database.durable, "before_cursor_execute", lambda *call: statements.append(call[2]))
    assert [store.cached(secret) for secret in secrets] == [None] * 50
    assert [store.authenticate(secret).name for secret in secrets] == [f"analyst {number}" for number in range(50)]
    assert len(statements) == 1


def test_recent_tokens_are_looked_up_by_one_query(database: TokenDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock, statements = TokenStore(database), [1_000.0], []
    monkeypatch.setattr(tokens.time, "monotonic", lambda: clock[0])
    secrets = [store.create(f"analyst {number}")[0] for number in range(20)]
    for secret in secrets:
        store.authenticate(secret)
    clock[0] += tokens.CACHE_SECONDS
    assert [store.cached(secret) for secret in secrets] == [None] * 20
    event.listen(database.durable, "before_cursor_execute", lambda *call: statements.append(call[2]))
    assert store.authenticate(secrets[7]).name == "analyst 7"
    assert [found.name for found in map(store.cached, secrets) if found] == [f"analyst {i}" for i in range(20)]
    assert len(statements) == 1
    for wrong in ("hf_wrong", ""):
        with pytest.raises(hf.NotSignedIn):
            store.authenticate(wrong)
    clock[0] += tokens.CACHE_SECONDS
    for _ in range(2):  # one that is no longer used is not looked up forever
        store.authenticate(secrets[0])
        clock[0] += tokens.CACHE_SECONDS
    assert statements[-1].count("?") == 1


def test_a_token_revoked_during_its_lookup_is_not_cached(
    database: TokenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TokenStore(database)
    secret, token = store.create("ana")
    original = tokens._token

    def revoke_meanwhile(row: Any) -> Any:
        found = original(row)
        if found.revoked is None:
            monkeypatch.setattr(tokens, "_token", original)
            store.revoke(token.id)
        return found

    monkeypatch.setattr(tokens, "_token", revoke_meanwhile)
    store.authenticate(secret)  # it was read before it was revoked
    assert store.cached(secret) is None
    with pytest.raises(hf.NotSignedIn):
        store.authenticate(secret)


# -- the clock --------------------------------------------------------------------------------------------------------

DAY = 86_400.0


class Machine:
    """A clock that somebody sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.steady = 1.8e9, 1_000.0
        monkeypatch.setattr(tokens.time, "time", lambda: self.wall)
        monkeypatch.setattr(tokens.time, "monotonic", lambda: self.steady)

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_what_has_expired_stays_so_when_the_clock_goes_back(database: TokenDatabase, machine: Machine) -> None:
    store = TokenStore(database, sign_in_seconds=DAY)
    secret, token = store.create("ana", days=2)
    cookie, link = store.sign_in(token), store.sign_in_link(token)
    machine.passes(3 * DAY)
    for _ in range(2):
        with pytest.raises(hf.NotSignedIn):
            store.authenticate(secret)
        for look, code in ((store.by_cookie, cookie), (store.redeem, link)):
            with pytest.raises(hf.NotSignedIn):
                look(code)
        machine.wall -= 10 * DAY  # and once more, with the clock set back
    assert not store.is_active(store.all()[0])


def test_also_for_the_next_process(database: TokenDatabase, machine: Machine) -> None:
    store = TokenStore(database)
    secret, _ = store.create("ana", days=2)
    machine.passes(3 * DAY)
    with pytest.raises(hf.NotSignedIn):
        store.authenticate(secret)
    wait_until(lambda: _stored(database) >= machine.wall)
    machine.wall -= 10 * DAY
    with pytest.raises(hf.NotSignedIn):
        TokenStore(database).authenticate(secret)


def test_time_goes_on_while_the_clock_is_behind(database: TokenDatabase, machine: Machine) -> None:
    store = TokenStore(database)
    secret, _ = store.create("ana", days=1)
    machine.wall -= 100 * DAY
    assert store.authenticate(secret).name == "ana"
    machine.steady += 2 * DAY
    with pytest.raises(hf.NotSignedIn):
        store.authenticate(secret)
    assert store.authenticate(store.create("bob", days=1)[0]).name == "bob"


def _stored(database: TokenDatabase) -> float:
    with database.relaxed.connect() as connection:
        return connection.exec_driver_sql("SELECT coalesce(max(latest), 0) FROM holdfast_clock").scalar_one()


LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)  # the bytes that SQLite's readers share
"""


def test_opening_the_database_once_more_drops_no_lock_of_the_first(tmp_path: Path) -> None:
    """Without it, whoever closes the file last elsewhere would take away the log under this process."""
    path = tmp_path / "tokens.db"
    first = TokenDatabase(f"sqlite:///{path}")
    with first.durable.connect() as connection:
        connection.exec_driver_sql("SELECT 1 FROM sqlite_master").fetchall()
        locked = [sys.executable, "-c", LOCK, str(path)]
        assert subprocess.run(locked, capture_output=True).returncode != 0
        second = TokenDatabase(f"sqlite:///{path}")
        assert subprocess.run(locked, capture_output=True).returncode != 0
        second.close()
    first.close()


class Growing(set[str]):
    """What another thread adds to as soon as somebody goes through it."""

    def __iter__(self) -> Iterator[str]:
        going_through = super().__iter__()
        self.update(map(str, range(100)))
        return going_through


def test_tokens_in_use_are_looked_up_while_others_are_presented(database: TokenDatabase) -> None:
    store = TokenStore(database)
    secret, _ = store.create("analyst")
    assert store.cached(secret) is None
    store._used = Growing(store._used)
    store._refresh()  # in a thread of its own, where an error would be printed and nobody looked up
    found = store.cached(secret)
    assert found is not None
    assert found.name == "analyst"


def test_cookies_that_are_made_up_leave_nothing_in_memory(database: TokenDatabase) -> None:
    store = TokenStore(database)
    for number in range(1_000):
        with pytest.raises(hf.NotSignedIn):
            store.by_cookie(f"cookie {number}")
    assert not store._used
    assert not store._cache


def test_a_cookie_is_no_token_and_a_token_no_cookie_also_when_they_were_just_used(database: TokenDatabase) -> None:
    # A cookie that was sent as a token passed where no cookie may, without coming from the server's own pages.
    store = TokenStore(database)
    secret, token = store.create("ana")
    cookie = store.sign_in(token)
    assert store.by_cookie(cookie).name == store.authenticate(secret).name == "ana"
    assert store.cached(cookie) is None
    for look, other in ((store.authenticate, cookie), (store.by_cookie, secret)):
        with pytest.raises(hf.errors.NotSignedIn):
            look(other)


def test_an_admin_whose_token_was_revoked_can_sign_in_after_a_restart(database: TokenDatabase) -> None:
    secret = "the-admins-token-of-a-server"
    first = TokenStore(database)
    revoked = first.admin(secret=secret)
    first.revoke(revoked.id)
    again = TokenStore(database)
    admin = again.admin(secret=secret)
    assert again.redeem(again.sign_in_link(admin)).admin
    with pytest.raises(hf.NotSignedIn):
        again.authenticate(secret)
    assert TokenStore(database).admin(secret=secret) == admin


def test_an_analysts_token_is_no_admins(database: TokenDatabase) -> None:
    store = TokenStore(database)
    secret, _ = store.create("ana")
    with pytest.raises(hf.InvalidArgument, match="admin_token must be an admin's"):
        store.admin(secret=secret)
