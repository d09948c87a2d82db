"""The first entry: the plan that stands, whose data it is for; and the keys that the ledger's secret gives."""

import hmac
from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.errors import InvalidArgument, PlanConflict, RowSourceError
from holdfast.ledger import chain
from holdfast.ledger.drawn import now
from holdfast.ledger.entry import Cost
from holdfast.ledger.store import START, Row


class Opened(NamedTuple):
    """What a ledger was opened for: the data's name and fingerprint, and whether its draws are predictable."""

    dataset: str
    fingerprint: str
    reproducible: bool

    def first_row(self, terms: Mapping[str, Any], secret: bytes) -> Row:
        """Return the first entry, as stored."""
        caps = terms.get("caps") if isinstance(terms, Mapping) else None
        if not isinstance(caps, dict) or set(caps) != {"charge", "intervals"}:
            raise InvalidArgument(f"terms['caps'] must be a dict of charge and intervals; got {caps!r}.", name="terms")
        Cost(**caps)  # checks both
        body = chain.canonical(
            {
                "dataset": self.dataset,
                "fingerprint": self._keyed_fingerprint(secret),
                "format": chain.FORMAT,
                "reproducible": self.reproducible,
                "seq": 0,
                "terms": dict(terms),
                "time": now(),
            },
            "terms and fingerprint",
        )
        return chain.row_after(START, body, Cost(0, 0))

    def require(self, genesis: Mapping[str, Any], secret: bytes, location: str) -> None:
        """Refuse a ledger whose first entry is of other data, or of other draws."""
        if genesis["dataset"] != self.dataset:
            raise chain.damaged(location, 0, f"it belongs to dataset {genesis['dataset']!r}")
        if genesis["fingerprint"] != self._keyed_fingerprint(secret):
            raise RowSourceError(  # neither fingerprint is shown: it would confirm a guess of the table
                f"Ledger {location} belongs to other data: the fingerprints differ. Open the data it was begun with."
            )
        if self.reproducible and not genesis["reproducible"]:
            raise PlanConflict(
                f"Ledger {location} was begun with unpredictable draws, which a seed would spoil. "
                "Leave the seed out. Give ledger= a file of its own for a test.",
                standing={"reproducible": False},
                asked={"reproducible": True},
            )

    def _keyed_fingerprint(self, secret: bytes) -> str:
        """Return what the first entry says of the data: it tells nobody who lacks the secret which data these are."""
        return hmac.digest(derive_key(secret, "fingerprint"), self.fingerprint.encode(), "sha256").hex()


def derive_key(secret: bytes, purpose: str) -> bytes:
    """Return the key that the secret gives for a purpose: HMAC-SHA256."""
    return hmac.digest(secret, purpose.encode(), "sha256")
