"""Two server processes, each on a deck of its own, one ledger in PostgreSQL: one budget, and no card twice."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from holdfast.ledger.opening import open_ledger
from holdfast.rows.decks.deal import deal
from serving import process, table

QUERIES, ROWS_EACH = 40, 500


@pytest.mark.slow
def test_two_servers_on_two_decks_spend_one_budget(tmp_path: Path, postgres_url: str) -> None:
    name = f"flights{uuid.uuid4().hex[:8]}"
    decks = deal(table(tmp_path, name=name), tmp_path / f"{name}.deck", cards=QUERIES * ROWS_EACH, slices=2)
    assert isinstance(decks, list)
    plan = ["--queries", str(QUERIES), "--plan-rows-per-query", str(ROWS_EACH), "--end"]
    more = ["--database", postgres_url, "--port", "0", "--rate", "1e6", "--burst", "1000000"]
    more += ["--token-file", str(tmp_path / "token")]
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    first, second = ((f"{name}={deck.location}", *plan, *more) for deck in decks)
    with process(*first, folder=folders[0]) as one, process(*second, folder=folders[1]) as two:
        headers = {"Authorization": f"Bearer {(tmp_path / 'token').read_text().strip()}"}

        def ask(number: int) -> int:
            url = f"{(one, two)[number % 2].url}/api/v1/datasets/{name}/ask"
            sent = httpx.post(url, json={"kind": "mean", "query": f"distance > {number}"}, headers=headers, timeout=30)
            return sent.status_code

        with ThreadPoolExecutor(4) as pool:
            codes = list(pool.map(ask, range(QUERIES + 10)))
        assert codes.count(200) == QUERIES
        assert codes.count(409) == 10
    with open_ledger(postgres_url, dataset=name, fingerprint=decks[0].fingerprint) as ledger:
        places = sorted((entry.place.charge, entry.cost.charge) for entry in ledger.entries())
    ends = [start + charge for start, charge in places]
    assert all(end <= start for end, (start, _) in zip(ends, places[1:], strict=False))  # so no card of either twice
    assert {deck.used.ledger for deck in decks} == {ledger.first}
    assert max(deck.used.cards for deck in decks) == QUERIES * ROWS_EACH
    for deck in decks:
        deck.close()
