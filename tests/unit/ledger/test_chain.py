"""Canonical text and links; where a ledger may be; what importing it costs."""

import doctest
import hashlib
import json
import pickle
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.errors import BudgetExhausted, InvalidArgument, LedgerUnavailable, MissingExtra
from holdfast.ledger import Cost, chain, exists, open_ledger
from ledger_writer import FINGERPRINT, begun, commit, environment, terms
from plain_tree import defined_root

NAMES = {"dataset": "d", "fingerprint": FINGERPRINT}


def test_the_chain_can_be_recomputed_from_its_description():
    ledger = begun(None, **NAMES)
    entries = [commit(ledger, "ü"), commit(ledger, None)]
    previous, hashes = "0" * 64, []
    for seq in range(3):
        body = ledger.receipt(seq).body
        assert body == json.dumps(json.loads(body), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        digest = hashlib.sha256(body.encode("utf-8")).hexdigest()
        text = f"{seq} {previous} {digest} {defined_root(hashes).hex()}"
        previous = hashlib.sha256(text.encode("ascii")).hexdigest()
        hashes.append(previous)
    assert previous == entries[-1].hash == ledger.head.hash
    assert json.loads(ledger.receipt(0).body)["terms"] == terms()


def test_an_entry_says_what_its_text_says_and_equals_itself_read_back():
    ledger = begun(None, **NAMES)
    first, other = commit(ledger, "a"), commit(ledger, "b")
    text = json.loads(ledger.receipt(1).body)
    for name in ("seq", "time", "analyst", "key", "question", "answer", "rows_read"):
        assert getattr(first, name) == text[name]
    assert first.cost == Cost(**text["cost"])
    assert (first.place.number, first.place.charge) == (text["place"]["number"], text["place"]["charge"])
    assert first == ledger.find("a") == next(ledger.entries()) == pickle.loads(pickle.dumps(first)) != other
    assert len({first, ledger.find("a"), other}) == 2
    with pytest.raises(AttributeError):
        first.price  # noqa: B018


def test_a_value_that_contains_itself_has_no_canonical_text():
    value: dict[str, object] = {}
    value["itself"] = [value]
    with pytest.raises(InvalidArgument, match="must be plain JSON"):
        chain.canonical(value)


def test_canonical_text_does_not_depend_on_order_or_tuples():
    assert chain.canonical({"b": (1, 2), "a": None}) == chain.canonical({"a": None, "b": [1, 2]})


@pytest.mark.parametrize("nanoseconds", [0, 999_999, 1_793_116_801_070_999_999, 1_793_116_801_999_999_999])
def test_the_time_of_an_entry_is_cut_to_milliseconds(monkeypatch, nanoseconds):
    monkeypatch.setattr(chain, "time_ns", lambda: nanoseconds)
    exact = datetime.fromtimestamp(nanoseconds // 10**9, UTC).replace(microsecond=nanoseconds // 1_000 % 10**6)
    assert chain.now() == exact.isoformat(timespec="milliseconds")


def test_the_time_of_an_entry_is_now():
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    assert before <= datetime.fromisoformat(chain.now()) <= datetime.now(UTC)


def test_doctests():
    assert doctest.testmod(chain) == (0, 1)


@pytest.mark.parametrize("wrong", [{"charge": -1}, {"charge": 1.0}, {"charge": True}, {"intervals": 2**63}])
def test_a_cost_is_two_whole_numbers(wrong):
    with pytest.raises(InvalidArgument, match="must be a whole number"):
        Cost(**({"charge": 1, "intervals": 1} | wrong))


def test_a_refusal_says_the_fact_then_the_way_out_and_survives_pickling():
    ledger = begun(None, terms(charge=10_000), **NAMES)
    commit(ledger, "k1", charge=9_960)
    with pytest.raises(BudgetExhausted) as refused:
        ledger.reserve(Cost(100, 1))
    assert str(refused.value).startswith(
        "The budget cannot pay for answer 2: it takes 100 of what the guarantee can carry, and 40 of 10,000 is left. "
    )
    assert pickle.loads(pickle.dumps(refused.value)).fields == refused.value.fields


@pytest.mark.parametrize("location", ["", 3, "mysql://host/db", "sqlite://", "sqlite:///:memory:", "://"])
def test_places_that_cannot_hold_a_ledger_are_refused(location):
    with pytest.raises(InvalidArgument, match="ledger must be"):
        begun(location, **NAMES)


@pytest.mark.parametrize("dataset", ["", "x" * 201, "a\0b", None])
def test_a_dataset_has_a_name(dataset):
    with pytest.raises(InvalidArgument, match="dataset must be"):
        open_ledger(None, dataset=dataset, fingerprint=FINGERPRINT)


def test_a_password_is_never_shown(tmp_path):
    url = f"postgresql://ann:secret@/db?host={tmp_path}/nowhere"
    with pytest.raises(LedgerUnavailable) as refused:
        begun(url, **NAMES)
    assert "ann:***@" in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "secret" not in str(refused.value.fields)
    with pytest.raises(InvalidArgument) as misspelt:
        begun("mysql://ann:secret@host/db", **NAMES)
    assert "secret" not in str(misspelt.value)


def test_postgres_without_its_driver_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "holdfast.ledger.postgres", raising=False)
    with pytest.raises(MissingExtra, match=r"holdfast\[postgres\]"):
        begun("postgresql://host/db", **NAMES)


def test_folders_and_missing_folders_are_named(tmp_path):
    for place in (tmp_path, tmp_path / "missing" / "trial.ledger"):
        with pytest.raises(LedgerUnavailable, match=str(place)):
            begun(place, **NAMES)


def test_looking_creates_nothing(tmp_path):
    assert not exists(tmp_path / "trial.ledger", "d")
    assert not exists(f"sqlite:///{tmp_path}/many.db", "d")
    assert not exists(None, "d")
    assert list(tmp_path.iterdir()) == []


def test_a_file_name_may_hold_any_character(tmp_path):
    path = tmp_path / "50% of ?x=1#y ü.ledger"
    with begun(path, **NAMES) as ledger:
        commit(ledger, "k1")
    assert exists(path, "d")


def test_the_file_stays_the_same_one_when_the_folder_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with begun("trial.ledger", **NAMES) as ledger:
        assert ledger.location == "trial.ledger"
        monkeypatch.chdir("/")
        commit(ledger, "k1")


def test_sqlite_syncs_before_a_commit_returns(tmp_path):
    from holdfast.ledger.sqlite import SqliteStore

    path = tmp_path / "trial.ledger"
    begun(path, **NAMES).close()
    store = SqliteStore(path, "d", own_file=True)
    connection: sqlite3.Connection = store.connect()
    settings = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")}
    connection.close()
    store.close()
    assert settings == {"synchronous": 2, "journal_mode": "wal"}  # 2 is FULL


def test_a_busy_file_is_named_after_the_wait(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.ledger.sqlite.LOCK_TIMEOUT", 0.05)
    path = tmp_path / "trial.ledger"
    with begun(path, **NAMES) as ledger:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerUnavailable, match="locked"):
            commit(ledger, "k1")
        other.execute("ROLLBACK")
        other.close()
        assert commit(ledger, "k1").seq == 1


@pytest.mark.slow
def test_postgres_syncs_before_a_commit_returns(postgres_url):
    from sqlalchemy import make_url

    from holdfast.ledger.postgres import PostgresStore

    store = PostgresStore(make_url(postgres_url), "d")
    connection = store.connect()
    shown = connection.execute("SHOW synchronous_commit").fetchone()
    connection.close()
    store.close()
    assert shown == ("on",)


def test_a_ledger_in_memory_needs_no_database_packages():
    script = (
        "import sys; from holdfast.ledger import open_ledger; "
        "ledger = open_ledger(None, dataset='d', fingerprint='f'); "
        "ledger.begin({'caps': {'charge': 1, 'intervals': 1}}); "
        "assert not {'sqlalchemy', 'sqlite3', 'psycopg'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, env=environment())


def test_a_ledger_in_a_file_needs_no_sqlalchemy(tmp_path):
    script = (
        "import sys; from ledger_writer import begun, commit; "
        f"commit(begun({str(tmp_path / 'x.ledger')!r})); assert not {{'sqlalchemy', 'psycopg'}} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, env=environment())
