"""A task that says which process runs it, and takes its time until one of them was killed."""

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from holdfast.rows.engines import Task


@dataclass(frozen=True)
class SlowTask(Task):
    """`marks` is a folder that all workers reach."""

    marks: str = ""

    def run(self, partition: str, batches: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        marks = Path(self.marks)
        (marks / str(os.getpid())).touch()
        for number, cards in enumerate(super().run(partition, batches)):
            yield cards
            if number == 0 and not (marks / "killed").exists():  # in the middle of a partition
                time.sleep(5.0)
