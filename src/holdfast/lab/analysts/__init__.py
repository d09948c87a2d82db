"""Who asks: attacks and honest analysts, all behind one Protocol. They see answers only."""

from collections.abc import Callable, Mapping

from holdfast.lab.analysts.base import Analyst, Dialogue, Population, RowQuestion
from holdfast.lab.analysts.climbing import HillClimber
from holdfast.lab.analysts.fingerprint import Fingerprinting
from holdfast.lab.analysts.populations import Cells, CoinTable, Table, Universe
from holdfast.lab.analysts.selection import FeatureSelection
from holdfast.lab.analysts.voting import Boosting, Harmless, SignAttack, WeightedAttack

ANALYSTS: Mapping[str, Callable[[int], Analyst]] = {
    "sign": lambda queries: SignAttack(queries),
    "weighted": lambda queries: WeightedAttack(queries),
    "selection": lambda queries: FeatureSelection(queries),
    "selection-signal": lambda queries: FeatureSelection(queries, signal=min(20, queries - 1), name="selection-signal"),
    "boosting": lambda queries: Boosting(queries),
    "fingerprint": lambda queries: Fingerprinting(queries),
    "climber": lambda queries: HillClimber(queries),
    "harmless": lambda queries: Harmless(queries),
}

__all__ = [
    "ANALYSTS",
    "Analyst",
    "Boosting",
    "Cells",
    "CoinTable",
    "Dialogue",
    "FeatureSelection",
    "Fingerprinting",
    "Harmless",
    "HillClimber",
    "Population",
    "RowQuestion",
    "SignAttack",
    "Table",
    "Universe",
    "WeightedAttack",
]
