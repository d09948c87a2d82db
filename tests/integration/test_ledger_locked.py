"""A ledger whose lock is held elsewhere: writes give up after a time, reads never wait; its files are private."""

import fcntl
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

import holdfast as hf
from holdfast.ledger.postgres import PostgresStore
from serving import table

QUICK = 0.2


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the queue of writers, as another process would."""
    with open(f"{path}-lock", "a") as queue:
        fcntl.flock(queue, fcntl.LOCK_EX)
        yield


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[hf.Session]:
    monkeypatch.setattr("holdfast.ledger.sqlite.LOCK_TIMEOUT", QUICK)
    with hf.Session(table(tmp_path, 2_000), queries=50, ledger=tmp_path / "x.ledger") as session:
        session.mean("dep_delay > 1")
        yield session


def test_writes_give_up_and_reads_do_not_wait(session: hf.Session, tmp_path: Path) -> None:
    with held(tmp_path / "x.ledger"):
        for number in (2, 3):
            with pytest.raises(hf.LedgerUnavailable, match="held its lock"):
                session.mean(f"dep_delay > {number}")
        assert session.mean("dep_delay > 1").cached
        assert session.history().height == 1
        with pytest.raises(hf.LedgerUnavailable):
            session.ledger.probe()
    session.ledger.probe()
    assert session.mean("dep_delay > 3").seq == 2
    assert session.ledger.verify().seq == 2


def test_threads_that_give_up_do_not_wait_for_each_other(session: hf.Session, tmp_path: Path) -> None:
    refused = []

    def ask(number: int) -> None:
        try:
            session.mean(f"dep_delay > {number}")
        except hf.LedgerUnavailable as error:
            refused.append(error)

    with held(tmp_path / "x.ledger"):
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(10, 16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(refused) == 6


def test_threads_learn_together_that_a_server_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for one attempt to connect, not for one after another; whoever comes later makes an attempt anew."""
    attempts, refusals, came = [], [], []

    class Clock:
        def monotonic(self) -> float:  # each thread looks before it waits for the others
            came.append(threading.get_ident())
            return time.monotonic()

    def connect(**address: object) -> None:
        attempts.append(address["connect_timeout"])
        while len(set(came)) < 8:
            time.sleep(0.001)
        came.clear()
        raise psycopg.OperationalError("no route to host")

    monkeypatch.setattr(psycopg, "connect", connect)
    monkeypatch.setattr("holdfast.ledger.database.time", Clock())
    store = PostgresStore(make_url("postgresql://nobody@nowhere/none"), "flights")

    def look() -> None:
        with pytest.raises(hf.LedgerUnavailable, match="no route") as refused:
            store.tip()
        refusals.append(refused.value)

    for count in (1, 2):
        threads = [threading.Thread(target=look) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert attempts == [10] * count
        came.clear()
    assert len({id(one) for one in refusals}) == 16


def test_a_server_that_falls_silent_is_given_up_unless_its_address_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses: list[dict[str, object]] = []

    def connect(**address: object) -> None:
        addresses.append(address)
        raise psycopg.OperationalError("no route to host")

    monkeypatch.setattr(psycopg, "connect", connect)
    with pytest.raises(hf.LedgerUnavailable):
        PostgresStore(make_url("postgresql://nobody@nowhere/none?keepalives_idle=99"), "flights").tip()
    (address,) = addresses
    assert int(str(address["keepalives_idle"])) == 99
    assert {"connect_timeout", "tcp_user_timeout", "keepalives_interval", "keepalives_count"} <= address.keys()


def test_a_probe_writes_nothing(session: hf.Session) -> None:
    before = session.ledger.head, session.ledger.spent
    session.ledger.probe()
    assert (session.ledger.head, session.ledger.spent) == before


def test_a_probe_finds_a_ledger_that_is_gone(session: hf.Session, tmp_path: Path) -> None:
    (tmp_path / "x.ledger").rename(tmp_path / "elsewhere")
    with pytest.raises(hf.LedgerUnavailable):
        session.ledger.probe()
    (tmp_path / "elsewhere").rename(tmp_path / "x.ledger")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_files_are_for_their_owner_alone_whatever_the_umask_says(tmp_path: Path, umask: int) -> None:
    data = table(tmp_path, 2_000)
    hf.open(data)
    before = os.umask(umask)
    try:
        with hf.Session(data, queries=50, ledger=tmp_path / "x.ledger") as session:
            session.mean("dep_delay > 1")
            session.mean("dep_delay > 2")
            found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("x.ledger*")}
    finally:
        os.umask(before)
    assert set(found) >= {"x.ledger", "x.ledger-lock", "x.ledger-wal"}
    assert set(found.values()) == {0o600}
