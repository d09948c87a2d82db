"""Tokens are looked up together, and believed for a moment only if nothing changed meanwhile."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

import holdfast as hf
from holdfast.service import people
from holdfast.service.people import People
from holdfast.service.tables import Tables


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    found = Tables(f"sqlite:///{tmp_path / 'people.db'}")
    yield found
    found.close()


def test_everyone_who_came_lately_is_looked_up_with_the_first(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    desk, clock, asked = People(tables), [1_000.0], []
    monkeypatch.setattr(people.time, "monotonic", lambda: clock[0])
    texts = [desk.make(f"analyst {number}")[0] for number in range(20)]
    for text in texts:
        desk.who(text)
    clock[0] += people.FRESH
    assert [desk.remembered(text) for text in texts] == [None] * 20
    event.listen(tables.durable, "before_cursor_execute", lambda *told: asked.append(told[2]))
    assert desk.who(texts[7]).name == "analyst 7"
    assert [found.name for found in map(desk.remembered, texts) if found] == [f"analyst {i}" for i in range(20)]
    assert len(asked) == 1
    for wrong in ("hf_wrong", ""):
        with pytest.raises(hf.NotSignedIn):
            desk.who(wrong)
    clock[0] += people.FRESH
    for _ in range(2):  # who has gone is not looked up for ever
        desk.who(texts[0])
        clock[0] += people.FRESH
    assert asked[-1].count("?") == 1


def test_a_token_revoked_while_it_is_looked_up_is_not_believed(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = People(tables)
    text, person = desk.make("ana")
    plain = people._person

    def slowly(row: Any) -> Any:
        found = plain(row)
        if found.revoked is None:
            monkeypatch.setattr(people, "_person", plain)
            desk.revoke(person.id)
        return found

    monkeypatch.setattr(people, "_person", slowly)
    desk.who(text)  # had been read before it was revoked
    assert desk.remembered(text) is None
    with pytest.raises(hf.NotSignedIn):
        desk.who(text)
