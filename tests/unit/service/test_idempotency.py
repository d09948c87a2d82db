"""A response under a key is found at once in this process, and a moment later in others."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.service import database as databases
from holdfast.service.database import Body, IdempotencyKeys, TokenDatabase
from holdfast.service.datasets import Quotas
from serving import wait_until

RESPONSE = Body(ok=True, answer={"value": 0.5})


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenDatabase]:
    monkeypatch.setattr(databases, "BATCH_SECONDS", 3_600.0)  # written when the test says so
    found = TokenDatabase(f"sqlite:///{tmp_path / 'tokens.db'}")
    yield found
    found.close()


def test_a_response_is_found_at_once_and_by_others_when_written(database: TokenDatabase) -> None:
    here, elsewhere = IdempotencyKeys(database), IdempotencyKeys(database)
    here.store("ana", "k", "request", RESPONSE)
    assert here.find("ana", "k", "request") == RESPONSE
    assert elsewhere.find("ana", "k", "request") is None
    here.write()
    assert elsewhere.find("ana", "k", "request") == RESPONSE == here.find("ana", "k", "request")
    assert here.find("bob", "k", "request") is None
    for one in (here, elsewhere):
        with pytest.raises(hf.InvalidArgument, match="must be new for each request"):
            one.find("ana", "k", "another request")
        one.close()


def test_the_first_response_wins_wherever_it_is_stored(database: TokenDatabase) -> None:
    here, elsewhere = IdempotencyKeys(database), IdempotencyKeys(database)
    here.store("ana", "k", "request", RESPONSE)
    here.store("ana", "k", "request", Body(ok=False))
    here.write()
    elsewhere.store("ana", "k", "request", Body(ok=False))
    elsewhere.write()
    assert here.find("ana", "k", "request") == RESPONSE == elsewhere.find("ana", "k", "request")
    here.close()
    elsewhere.close()


def test_closing_writes_what_is_left(database: TokenDatabase) -> None:
    here = IdempotencyKeys(database)
    here.store("ana", "k", "request", RESPONSE)
    here.close()
    assert IdempotencyKeys(database).find("ana", "k", "request") == RESPONSE


def test_old_responses_are_deleted(database: TokenDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    here = IdempotencyKeys(database)
    monkeypatch.setattr(databases, "KEEP_SECONDS", -1.0)
    here.store("ana", "k", "request", RESPONSE)
    assert here.find("ana", "k", "request") is None
    here.write()
    assert here.find("ana", "k", "request") is None
    monkeypatch.setattr(databases, "SWEEP_SECONDS", -1.0)
    here.write()
    with database.relaxed.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM holdfast_idempotency_keys").scalar() == 0
    here.close()


def test_what_cannot_be_written_is_not_forgotten(database: TokenDatabase) -> None:
    here = IdempotencyKeys(database)
    with database.durable.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE holdfast_idempotency_keys RENAME TO elsewhere")
    here.store("ana", "k", "request", RESPONSE)
    for _ in range(2):
        with pytest.raises(hf.ServiceUnavailable, match="token database"):
            here.write()
    assert here.find("ana", "k", "request") == RESPONSE
    with database.durable.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO holdfast_idempotency_keys")
    here.close()
    assert IdempotencyKeys(database).find("ana", "k", "request") == RESPONSE


def test_a_moment_in_which_every_thread_looks_leaves_connections_for_quotas(
    database: TokenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, pool = IdempotencyKeys(database), database.relaxed.pool
    monkeypatch.setattr(pool, "_timeout", 0.1)
    with ExitStack() as everybody:
        for _ in range(20):  # threads of a server
            everybody.enter_context(here._cursor())
        for _ in range(5):
            everybody.enter_context(database.relaxed.connect())
        with pytest.raises(hf.ServiceUnavailable, match="token database"):
            Quotas(database).lost("ana", "flights")
    assert pool.checkedout() == databases.MOST_IDLE
    assert Quotas(database).lost("ana", "flights") == 0
    here.close()


def test_whatever_happens_once_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database, failures = TokenDatabase(f"sqlite:///{tmp_path / 'tokens.db'}"), [ZeroDivisionError(), MemoryError()]
    here, elsewhere = IdempotencyKeys(database), IdempotencyKeys(database)
    plain = here.write

    def fails_at_first() -> None:
        if failures:
            raise failures.pop()
        plain()

    monkeypatch.setattr(here, "write", fails_at_first)
    here.store("ana", "k", "request", RESPONSE)
    wait_until(lambda: elsewhere.find("ana", "k", "request") == RESPONSE)
    for one in (here, elsewhere, database):
        one.close()


def test_what_is_no_json_is_refused_before_others_wait_for_it(database: TokenDatabase) -> None:
    here = IdempotencyKeys(database)
    with pytest.raises(ValueError, match="not JSON compliant"):
        here.store("ana", "k", "request", Body(ok=True, value=float("nan")))
    here.store("ana", "other", "request", RESPONSE)
    here.write()
    assert IdempotencyKeys(database).find("ana", "other", "request") == RESPONSE
    here.close()
