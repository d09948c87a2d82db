"""Rows on disk whose session has its ledger in memory: what an answer costs without a ledger file."""

from itertools import count
from typing import Any

_numbers = count()


class WithoutLocation:
    """A row source without a location, so that no ledger file is put next to it. Each has a budget of its own."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.name, self.schema, self.fingerprint = source.name, source.schema, f"{source.fingerprint} {next(_numbers)}"
        self.location = None
        self.tally, self.sample, self.verify = source.tally, source.sample, source.verify
        self.fold = source.fold

    def __len__(self) -> int:
        return len(self._source)

    def tally_passes(self, *args: Any, **options: Any) -> Any:
        """Return what the rows say."""
        return self._source.tally_passes(*args, **options)
