"""Rows on disk whose session has its ledger in memory: what an answer costs without a ledger file."""

from typing import Any


class WithoutLocation:
    """A row source without a location, so that no ledger file is put next to it."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.name, self.schema, self.fingerprint = source.name, source.schema, source.fingerprint
        self.location = None
        self.tally, self.sample, self.verify = source.tally, source.sample, source.verify

    def __len__(self) -> int:
        return len(self._source)
