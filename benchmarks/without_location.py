"""Rows on disk whose session has its ledger in memory: what an answer costs without a ledger file."""

from typing import Any


class WithoutLocation:
    """A row source without a place of its own, so that no ledger is put beside it."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.name, self.schema, self.fingerprint = source.name, source.schema, source.fingerprint
        self.location = None
        self.tally, self.sample, self.verify = source.tally, source.sample, source.verify

    def __len__(self) -> int:
        return len(self._source)
