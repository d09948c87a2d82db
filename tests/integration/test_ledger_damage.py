"""Whatever happens to a ledger behind its back is found when it is opened, and named."""

import os
import shutil
import sqlite3
import uuid
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from holdfast.errors import LedgerDamaged, LedgerUnavailable, RowSourceError
from holdfast.ledger import audit, chain, exists, open_ledger
from holdfast.ledger.opening import forget_all
from ledger_writer import DATASET, FINGERPRINT, begun, commit, terms

COUNT = 30
SWAPPED = """
    UPDATE holdfast_entries SET (body, previous, hash) = (
        SELECT body, previous, hash FROM holdfast_entries AS other WHERE other.seq = 41 - holdfast_entries.seq
    ) WHERE seq IN (20, 21)
"""


def reopen(path: Path) -> None:
    open_ledger(path, dataset=DATASET, fingerprint=FINGERPRINT).close()


@pytest.fixture
def path(tmp_path) -> Path:
    path = tmp_path / "trial.ledger"
    with begun(path) as ledger:
        for i in range(COUNT):
            commit(ledger, f"k{i}", charge=7)
    assert [file.name for file in tmp_path.iterdir() if file.name.endswith("-wal")] == []
    return path


def edit(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {trigger}")
    for statement in statements:
        assert connection.execute(statement).rowcount != 0, "the edit must change something"
    connection.close()


@pytest.mark.parametrize(
    ("statement", "entry", "says"),
    [
        (
            "UPDATE holdfast_entries SET body = replace(body, '0.25', '0.26') WHERE seq = 12",
            12,
            "its hash does not",
        ),
        ("UPDATE holdfast_entries SET hash = substr(hash, 2) || 'x' WHERE seq = 12", 12, "its hash does not"),
        (
            "UPDATE holdfast_entries SET previous = hash WHERE seq = 12",
            12,
            "its hash does not match entry 11",
        ),
        ("DELETE FROM holdfast_entries WHERE seq = 12", 12, "it is missing"),
        ("DELETE FROM holdfast_entries WHERE seq = 30", 30, "though the head is entry 30"),
        ("DELETE FROM holdfast_entries WHERE seq >= 12", 12, "though the head is entry 30"),
        ("DELETE FROM holdfast_entries WHERE seq = 0", 0, "it is missing"),
        ("UPDATE holdfast_entries SET seq = 31 WHERE seq = 30", 30, "it is missing"),
        ("UPDATE holdfast_entries SET charge = charge - 7 WHERE seq = 12", 12, "running totals"),
        ("UPDATE holdfast_entries SET intervals = 0 WHERE seq = 12", 12, "running totals"),
        ("UPDATE holdfast_entries SET key_digest = 'x' WHERE seq = 12", 12, "its key does not match"),
        ("UPDATE holdfast_entries SET key_digest = NULL WHERE seq = 12", 12, "its key does not match"),
        (
            "UPDATE holdfast_entries SET body = replace(body, '0.95', '0.5') WHERE seq = 0",
            0,
            "its hash does not",
        ),
        ("UPDATE holdfast_ledgers SET charge = 0", 30, "the head does not match"),
        ("UPDATE holdfast_ledgers SET hash = 'x'", 30, "the head does not match"),
        ("UPDATE holdfast_ledgers SET peaks = substr(peaks, 65)", 30, "the head does not match"),
        ("UPDATE holdfast_ledgers SET seq = 29", 30, "it lies beyond the head"),
        ("UPDATE holdfast_ledgers SET seq = 31", 31, "it is missing, though the head is entry 31"),
        (SWAPPED, 20, "its hash does not match entry 19"),
    ],
)
def test_an_edit_is_named(path, statement, entry, says):
    edit(path, statement)
    with pytest.raises(LedgerDamaged, match=f"{path} is damaged at entry {entry}: .*{says}") as found:
        reopen(path)
    assert found.value.fields == {"location": str(path), "entry": entry}
    if entry > 1:
        assert f"Entries 0-{entry - 1} are intact." in str(found.value)


@pytest.mark.parametrize("amount", ["taken_charge", "taken_intervals", "places"])
def test_less_taken_than_the_entries_hold_is_damage(path, amount):
    edit(path, f"UPDATE holdfast_ledgers SET {amount} = {amount} - 1")
    with pytest.raises(LedgerDamaged, match="a place that was never taken"):
        reopen(path)


@pytest.mark.parametrize("secret", ["", "00" * 32])
def test_another_secret_is_noticed(path, secret):
    edit(path, f"UPDATE holdfast_ledgers SET secret = '{secret}'")
    with pytest.raises(RowSourceError, match="belongs to other data"):
        reopen(path)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM holdfast_ledgers",
        "UPDATE holdfast_ledgers SET dataset = 'other'",
        "UPDATE holdfast_entries SET dataset = 'other'",
        "DROP TABLE holdfast_ledgers",
        "DROP TABLE holdfast_entries",
    ],
)
def test_a_missing_head_or_table_never_hands_out_a_new_budget(path, statement):
    edit(path, statement)
    for location in (path, f"sqlite:///{path}"):
        with pytest.raises(LedgerDamaged, match=str(path)):
            begun(location)


def test_a_head_lost_in_a_shared_file_never_hands_out_a_new_budget(path):
    edit(path, "DELETE FROM holdfast_ledgers")
    with pytest.raises(LedgerDamaged, match="entries of flights but no head"):
        begun(f"sqlite:///{path}")


def test_a_chain_rewritten_throughout_is_betrayed_by_a_published_head(path, tmp_path):
    with open_ledger(path, dataset=DATASET, fingerprint=FINGERPRINT) as ledger:
        published = ledger.head.hash
    rewritten = tmp_path / "rewritten.ledger"
    forget_all()  # by another process
    with begun(rewritten) as ledger:
        commit(ledger, "k0", answer={"value": 0.99})
        ledger.verify()
        with pytest.raises(LedgerDamaged, match="does not contain the published head"):
            ledger.verify(published)


def spoil_truncate(text: bytes) -> bytes:
    return text[: len(text) // 2]


def spoil_short(text: bytes) -> bytes:
    return text[:50]


def spoil_empty(text: bytes) -> bytes:
    return b""


def spoil_garbage(text: bytes) -> bytes:
    return b"\x17" * len(text)


def spoil_middle(text: bytes) -> bytes:
    at = text.index(b'"seq":12,')
    return text[: at + 6] + b"99" + text[at + 8 :]


@pytest.mark.parametrize("spoil", [spoil_truncate, spoil_short, spoil_empty, spoil_garbage, spoil_middle])
def test_a_spoilt_file_is_named(path, spoil: Callable[[bytes], bytes]):
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(LedgerDamaged, match=f"Ledger {path} is damaged"):
        reopen(path)


def test_a_database_of_something_else_is_left_alone(tmp_path):
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE precious (x)")
    connection.close()
    with pytest.raises(LedgerDamaged, match="holds no ledger"):
        begun(path)
    assert not exists(f"sqlite:///{path}", DATASET)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("precious",)]
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()


def test_ledgers_may_move_into_a_database_that_is_there(tmp_path):
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE precious (x)")
    connection.close()
    for _ in range(2):
        with begun(f"sqlite:///{path}") as ledger:
            commit(ledger, "k1")
            assert ledger.verify().seq == 1


def test_a_log_without_its_file_is_not_adopted(path):
    path.rename(path.with_name("away"))
    path.with_name(path.name + "-wal").write_bytes(b"old log")
    with pytest.raises(LedgerDamaged, match=r"its log trial.ledger-wal is there"):
        begun(path)


def test_a_file_replaced_under_an_open_ledger_is_noticed(path):
    with open_ledger(path, dataset=DATASET, fingerprint=FINGERPRINT) as ledger:
        commit(ledger, "before")
        path.rename(path.with_name("away"))
        with pytest.raises(LedgerUnavailable, match="moved or replaced"):
            commit(ledger, "after")


@pytest.mark.parametrize("together", [False, True])
def test_who_refuses_an_older_copy_keeps_nobody_from_writing(path, tmp_path, together):
    old = tmp_path / "old"
    shutil.copy(path, old)
    with begun(path) as ledger:
        for _ in range(3):
            commit(ledger)
        edit(path, "PRAGMA wal_checkpoint(TRUNCATE)")
        assert ledger.head.seq > 0
        shutil.copy(old, path)
        if together:
            ledger._store._last_thread = None  # hand over
        with pytest.raises(LedgerDamaged, match="older copy was written into the file"):
            commit(ledger, "new", charge=10**6)
        edit(path, "BEGIN IMMEDIATE", "ROLLBACK")


def test_what_the_system_refuses_is_said_as_the_ledgers_trouble(tmp_path, monkeypatch):
    with pytest.raises(LedgerUnavailable) as refused:
        begun(tmp_path / ("x" * 300))
    assert refused.value.fields

    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")  # as where there are no links

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(LedgerUnavailable, match="cannot be begun"):
        begun(tmp_path / "x.ledger")


def test_a_renamed_dataset_keeps_its_ledger_and_other_data_does_not_get_it(path):
    with open_ledger(path, dataset="renamed", fingerprint=FINGERPRINT) as ledger:
        assert ledger.spent.answers == COUNT
    with pytest.raises(RowSourceError, match="belongs to other data"):
        open_ledger(path, dataset=DATASET, fingerprint="other")


@pytest.mark.parametrize("table", ["holdfast_entries", "holdfast_ledgers"])
def test_sqlite_refuses_to_forget(path, table):
    connection = sqlite3.connect(path)
    acts = [f"DELETE FROM {table}"]
    if table == "holdfast_entries":
        acts.append("UPDATE holdfast_entries SET charge = 0")
    for act in acts:
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(act)
    connection.close()


def test_postgres_refuses_to_forget_and_edits_are_named(postgres_url):
    names = {"dataset": uuid.uuid4().hex, "fingerprint": uuid.uuid4().hex}
    with begun(postgres_url, **names) as ledger:
        for i in range(5):
            commit(ledger, f"k{i}", charge=7)
    plain = postgres_url.replace("postgresql+psycopg", "postgresql")
    with psycopg.connect(plain, autocommit=True) as connection:
        for act in (
            "UPDATE holdfast_entries SET charge = 0",
            "DELETE FROM holdfast_entries",
            "TRUNCATE holdfast_entries",
            "DELETE FROM holdfast_ledgers",
            "TRUNCATE holdfast_ledgers",
        ):
            with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
                connection.execute(act)
        try:
            connection.execute("ALTER TABLE holdfast_entries DISABLE TRIGGER USER")
            connection.execute(
                "UPDATE holdfast_entries SET body = replace(body, '0.25', '0.26') WHERE dataset = %s AND seq = 3",
                [names["dataset"]],
            )
        finally:
            connection.execute("ALTER TABLE holdfast_entries ENABLE TRIGGER USER")
    with pytest.raises(LedgerDamaged, match="damaged at entry 3: its hash does not match entry 2"):
        open_ledger(postgres_url, **names)


EARLIER = (
    "CREATE TABLE holdfast_ledgers (dataset VARCHAR(200) PRIMARY KEY, seq BIGINT, hash VARCHAR(64), flips BIGINT, "
    "intervals BIGINT)",
    "CREATE TABLE holdfast_entries (dataset VARCHAR(200), seq BIGINT, key_digest VARCHAR(64), body TEXT, "
    "previous VARCHAR(64), hash VARCHAR(64), flips BIGINT, intervals BIGINT, PRIMARY KEY (dataset, seq))",
    "INSERT INTO holdfast_ledgers VALUES ('flights', 0, 'x', 0, 0)",
    "INSERT INTO holdfast_entries VALUES ('flights', 0, NULL, '{}', 'x', 'x', 0, 0)",
)
WRITTEN_EARLIER = r"was written by an earlier, unreleased version of holdfast .*: begin a new ledger with fresh data"


def refused_as_earlier(location: str | Path) -> None:
    for look in (
        lambda: open_ledger(location, dataset=DATASET, fingerprint=FINGERPRINT),
        lambda: open_ledger(location, dataset="another", fingerprint=FINGERPRINT).begin(terms()),
        lambda: audit(location, dataset=DATASET),
        lambda: exists(location, DATASET),
    ):
        with pytest.raises(LedgerUnavailable, match=WRITTEN_EARLIER):
            look()


def test_tables_of_an_earlier_version_are_refused_in_words(tmp_path):
    path = tmp_path / "earlier.ledger"
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in EARLIER:
        connection.execute(statement)
    connection.close()
    refused_as_earlier(path)
    refused_as_earlier(f"sqlite:///{path}")


def test_tables_of_an_earlier_version_are_refused_in_words_by_postgres_too(postgres_url):
    name = f"earlier_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    location = postgres_url.replace("/postgres?", f"/{name}?")
    assert location != postgres_url
    with psycopg.connect(location.replace("+psycopg", ""), autocommit=True) as connection:
        for statement in EARLIER:
            connection.execute(statement)
    refused_as_earlier(location)


@pytest.mark.parametrize(
    ("number", "says"),
    [(1, "an earlier, unreleased"), (2, "an earlier"), (None, "an earlier"), (chain.FORMAT + 1, "a later")],
)
def test_another_format_is_refused_in_words(tmp_path, monkeypatch, number, says):
    path = tmp_path / "trial.ledger"
    with monkeypatch.context() as other:
        other.setattr(chain, "FORMAT", number)
        begun(path).close()
    with pytest.raises(LedgerUnavailable, match=f"Ledger {path} was written by {says}"):
        reopen(path)
    with pytest.raises(LedgerUnavailable, match=says):
        audit(path)
