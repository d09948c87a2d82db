"""One file, one guarantee: statement, plan, price, interval, margin.

guarantee     what a guarantee is; terms: goals, terms, and what is promised about fits of models
statistic     what is asked of the population, and what leaves a mechanism, as guarantees see them
plan          what a plan says, and other ways to ask; request: what a caller asks for, and how plans are made
exchange, posterior, gaussian, information, split, dp    the guarantees
paper         the paper's, with intervals and on average (expectation), for comparison
checks        says only whether guesses hold
drawers       coins on some rows, checks on the others
ladder        for boards: says only whether a submission is better than the best so far
coins         what exchange and posterior share
mathematics/  theorems they share

To add one: a file with a subclass of `AnswerGuarantee`, and `GUARANTEES.register(name, cls)`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.errors import PlanConflict
from holdfast.registry import Registry

if TYPE_CHECKING:
    from holdfast.guarantees.guarantee import Guarantee

OWN = (
    "exchange",
    "posterior",
    "gaussian",
    "information",
    "dp",
    "paper",
    "paper.expectation",
    "split",
    "checks",
    "drawers",
    "ladder",
)
GUARANTEES: "Registry[type[Guarantee]]" = Registry("holdfast.guarantees", OWN)


def read(recorded: Mapping[str, Any], *, location: str = "the ledger") -> "Guarantee":
    """Return the guarantee whose terms a ledger's first entry records, as `Guarantee.to_json` wrote them.

    Refuse it if this installation does not know the name, the version or one of the terms: it cannot certify under
    them. `location` is where they were found, for messages.
    """
    values = {name: value for name, value in recorded.items() if name not in ("guarantee", "version", "caps", "unit")}
    name, version = recorded.get("guarantee"), recorded.get("version")
    known = GUARANTEES.find(name)
    if known is None:
        raise PlanConflict(
            f"{location} uses the guarantee {name!r}, which this installation does not know; it knows"
            f" {', '.join(GUARANTEES.names())}. Install the version or the package that wrote it.",
            guarantee=name,
        )
    if type(version) is not int or version != known.version:
        raise PlanConflict(
            f"{location} uses version {version!r} of the guarantee {name!r}; this installation knows version"
            f" {known.version}. Install the version of holdfast that wrote it.",
            guarantee=name,
            version=version,
        )
    try:
        return known(known.terms_class.from_json(values))
    except PlanConflict as unreadable:
        raise PlanConflict(
            f"{location} cannot be continued. {unreadable} Install the version of holdfast that wrote it.",
            guarantee=name,
        ) from None
