"""Built-in losses as they travel between client and server: a name and plain values, never code."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from holdfast.errors import InvalidArgument
from holdfast.optimize import losses

NAMED: Mapping[str, type[losses.LinearLoss]] = {
    "squared": losses.Squared,
    "logistic": losses.Logistic,
    "huber": losses.Huber,
    "smoothed_hinge": losses.SmoothedHinge,
    "quantile": losses.Quantile,
    "poisson": losses.Poisson,
}


def said(loss: Any) -> dict[str, Any]:
    """Return a built-in loss as a name and its settings."""
    for name, cls in NAMED.items():
        if type(loss) is cls:
            settings = {one.name: getattr(loss, one.name) for one in fields(loss)}
            return {"name": name} | {one: value for one, value in settings.items() if value is not None}
    known = ", ".join(cls.__name__ for cls in NAMED.values())
    raise InvalidArgument(f"loss must be built in when a server is asked: {known}; got {type(loss).__name__}.")


def built(name: str, settings: Mapping[str, Any]) -> losses.LinearLoss:
    """Return the loss that `said` described."""
    cls = NAMED[name]
    unknown = sorted(set(settings) - {one.name for one in fields(cls)})
    if unknown:
        raise InvalidArgument(f"The {name} loss has no setting {unknown[0]!r}.", name=unknown[0])
    return cls(**settings)
