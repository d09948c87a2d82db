"""Tokens are looked up together, and cached for a moment only if nothing changed meanwhile."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

import holdfast as hf
from holdfast.service import tokens
from holdfast.service.database import TokenDatabase
from holdfast.service.tokens import TokenStore


@pytest.fixture
def database(tmp_path: Path) -> Iterator[TokenDatabase]:
    found = TokenDatabase(f"sqlite:///{tmp_path / 'tokens.db'}")
    yield found
    found.close()


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
