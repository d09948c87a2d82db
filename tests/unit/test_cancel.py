"""Work that is called off ends before its next block of rows, in its own thread and in no other."""

import threading

import numpy as np
import pytest

import holdfast as hf
from holdfast.cancel import Work, checkpoint
from holdfast.queries.build import build_mean
from holdfast.rows import local
from holdfast.rows.draws import AllRows


def test_a_checkpoint_ends_work_that_was_called_off() -> None:
    work = Work()
    assert work.run(lambda: 7) == 7
    assert not work.begun
    work.run(checkpoint)
    assert work.begun
    work.cancel()
    with pytest.raises(hf.ServiceUnavailable):
        work.run(checkpoint)
    checkpoint()  # outside of any work


def test_other_threads_go_on() -> None:
    work, reached = Work(), []
    work.cancel()

    def in_another_thread() -> None:
        checkpoint()
        reached.append(True)

    other = threading.Thread(target=in_another_thread)
    work.run(lambda: (other.start(), other.join()))
    assert reached == [True]


@pytest.mark.parametrize("verb", ["tally", "sample"])
def test_rows_are_drawn_in_blocks_and_no_further_block_is(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_BLOCK", 10)
    rows = hf.open({"x": np.arange(100.0)})
    query, work, blocks = build_mean("x > 50", rows.schema), Work(), []
    about_to_read = type(rows)._about_to_read

    def counted(self, *arguments):
        blocks.append(1)
        if len(blocks) == 3:
            work.cancel()
        return about_to_read(self, *arguments)

    monkeypatch.setattr(type(rows), "_about_to_read", counted)
    rng = np.random.default_rng(1)
    act = {
        "tally": lambda: rows.tally(query, draws=100, mass=0.01, rng=rng),
        "sample": lambda: rows.sample(query, AllRows(), rng),
    }[verb]
    with pytest.raises(hf.ServiceUnavailable):
        work.run(act)
    assert len(blocks) == 3
    act()  # without being called off, to the end
    assert len(blocks) == 13
