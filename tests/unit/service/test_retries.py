"""What was answered under a key: at once in this process, a moment later in every other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.service import retries
from holdfast.service.retries import Retries
from holdfast.service.tables import Tables

SAID = {"ok": True, "answer": {"value": 0.5}}


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tables]:
    monkeypatch.setattr(retries, "GATHERED_SECONDS", 3_600.0)  # written when the test says so
    found = Tables(f"sqlite:///{tmp_path / 'people.db'}")
    yield found
    found.close()


def test_a_response_is_found_at_once_and_by_others_when_written(tables: Tables) -> None:
    here, elsewhere = Retries(tables), Retries(tables)
    here.keep("ana", "k", "request", SAID)
    assert here.find("ana", "k", "request") == SAID
    assert elsewhere.find("ana", "k", "request") is None
    here.write()
    assert elsewhere.find("ana", "k", "request") == SAID == here.find("ana", "k", "request")
    assert here.find("bob", "k", "request") is None
    for one in (here, elsewhere):
        with pytest.raises(hf.InvalidArgument, match="must be new for each request"):
            one.find("ana", "k", "another request")
        one.close()


def test_the_first_response_stands_wherever_it_is_kept(tables: Tables) -> None:
    here, elsewhere = Retries(tables), Retries(tables)
    here.keep("ana", "k", "request", SAID)
    here.keep("ana", "k", "request", {"ok": False})
    here.write()
    elsewhere.keep("ana", "k", "request", {"ok": False})
    elsewhere.write()
    assert here.find("ana", "k", "request") == SAID == elsewhere.find("ana", "k", "request")
    here.close()
    elsewhere.close()


def test_closing_writes_what_is_left(tables: Tables) -> None:
    here = Retries(tables)
    here.keep("ana", "k", "request", SAID)
    here.close()
    assert Retries(tables).find("ana", "k", "request") == SAID


def test_old_responses_are_forgotten(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Retries(tables)
    monkeypatch.setattr(retries, "KEPT_SECONDS", -1.0)
    here.keep("ana", "k", "request", SAID)
    assert here.find("ana", "k", "request") is None
    here.write()
    assert here.find("ana", "k", "request") is None
    monkeypatch.setattr(retries, "SWEEP_SECONDS", -1.0)
    here.write()
    with tables.light.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM holdfast_retries").scalar() == 0
    here.close()


def test_what_cannot_be_written_is_not_forgotten(tables: Tables) -> None:
    here = Retries(tables)
    with tables.durable.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE holdfast_retries RENAME TO elsewhere")
    here.keep("ana", "k", "request", SAID)
    for _ in range(2):
        with pytest.raises(hf.LedgerUnavailable, match="database of tokens"):
            here.write()
    assert here.find("ana", "k", "request") == SAID
    with tables.durable.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO holdfast_retries")
    here.close()
    assert Retries(tables).find("ana", "k", "request") == SAID
