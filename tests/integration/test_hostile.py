"""Attacks on one budget that go round the ledger's own rules: a fork in mid-answer, a backup into itself, an error."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast as hf
from counting_rows import CountingRows
from holdfast.errors import InvalidArgument
from holdfast.ledger.opening import forget_all
from holdfast.rows.memory import memory_rows
from holdfast.session.session import Session
from serving import Running, settings, table

ROWS = 2_000
TOO_LONG = 20  # seconds after which the child is ended, should a lock that it inherited hold it up


class Forking(CountingRows):
    """Forks once, when rows were drawn and nothing is written."""

    def __init__(self) -> None:
        super().__init__(memory_rows({"x": np.arange(ROWS) % 2 == 0}))
        self.fork, self.child = False, -1

    def tally(self, *args: Any, **options: Any) -> Any:
        counts = super().tally(*args, **options)
        if self.fork:
            self.fork, self.child = False, os.fork()
            if self.child == 0:
                signal.alarm(TOO_LONG)
        return counts


def test_a_fork_in_mid_answer_gives_one_answer_for_one_place(tmp_path: Path) -> None:
    """The attack: pay once, fork, and let both processes write what they make of the same draw."""
    rows = Forking()
    with Session(rows, queries=100, guarantee="posterior", ledger=tmp_path / "a.ledger") as session:
        session.mean("x")
        rows.fork = True
        try:
            answer = session.mean(lambda row: row["x"])  # new each time: neither finds the other's
        except BaseException:
            if rows.child == 0:
                os._exit(7)
            raise
        if rows.child == 0:
            os._exit(0)
        _, status = os.waitpid(rows.child, 0)
        assert answer.seq is not None
        assert os.waitstatus_to_exitcode(status) == 7
        session.ledger.verify()
        assert session.ledger.spent.answers == 2


def test_a_backup_into_the_ledger_itself_is_refused(tmp_path: Path) -> None:
    """The mistake: it would replace the live file, under everybody's hands and with the old log beside it."""
    path = table(tmp_path)
    with Session(path, queries=100) as session:
        session.mean("weekend")
        ledger = tmp_path / "flights.parquet.ledger"
        (tmp_path / "link").symlink_to(ledger)
        for to in (ledger, tmp_path / "link"):
            with pytest.raises(InvalidArgument, match="different file"):
                hf.backup(ledger, to)
        assert session.mean("not weekend").seq == 2


def test_a_ledger_that_is_elsewhere_is_not_named_to_analysts(tmp_path: Path) -> None:
    """The leak: somebody began these rows' ledger at another place, and the refusal says where."""
    path = table(tmp_path)
    chosen = settings(path, database=f"sqlite:///{tmp_path}/ledgers.db")
    with Running(chosen) as server:
        private = tmp_path / "private"
        private.mkdir()
        forget_all()  # what follows is another process
        with Session(path, queries=100, ledger=private / "secret.ledger") as session:
            session.mean("weekend")
        forget_all()
        with server.client(server.token()) as client:
            sent = client.post("/api/v1/datasets/flights/ask", json={"kind": "mean", "query": "weekend"})
        assert str(tmp_path) not in sent.text
        assert "secret" not in sent.text
        assert sent.status_code == 503
