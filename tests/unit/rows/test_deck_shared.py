"""One deck for several threads, processes and ledgers: every card once, nobody waits for ever, refusals are free."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from holdfast.errors import RowSourceError
from holdfast.rows.deal import deal
from holdfast.rows.deck import Deck

ROWS = 20_000
pytestmark = pytest.mark.filterwarnings("ignore::holdfast.guarantees.plan.VacuousPlan")  # decks are small here

PATIENCE = 10.0  # seconds; whoever takes longer hangs

forks = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")  # the runner has threads


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"id": np.arange(ROWS)}).write_parquet(path)
    return path


@pytest.fixture
def deck(table: Path) -> Deck:
    return dealt(table, 2_000)


def dealt(table: Path, cards: int, file: str = "t", **options: Any) -> Deck:
    made = deal(table, table.with_name(f"{file}.deck"), cards=cards, **options)
    assert isinstance(made, Deck)
    return made


# -- threads and processes ------------------------------------------------------------------------------------------


def test_cards_that_were_cut_off_are_refused(table: Path) -> None:
    """Reading them would end the process."""
    deck = dealt(table, 2_000, distinct=True)
    (cards,) = deck._deals
    (file,) = (deck.location / "0001").glob("00001.values.npy")
    os.truncate(file, 128)
    with pytest.raises(RowSourceError, match="is damaged"):
        cards.which(range(2_000))
