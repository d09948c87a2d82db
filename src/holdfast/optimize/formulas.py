"""Built-in losses as text: a formula that people write, and the JSON that is sent to a server."""

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any

from holdfast.errors import InvalidArgument
from holdfast.optimize.losses import Huber, LinearLoss, Logistic, Poisson, Quantile, SmoothedHinge, Squared

BUILT_IN: Mapping[str, type[LinearLoss]] = {
    "squared": Squared,
    "logistic": Logistic,
    "huber": Huber,
    "smoothed_hinge": SmoothedHinge,
    "quantile": Quantile,
    "poisson": Poisson,
}
OTHERWISE_CALLED = {
    **dict.fromkeys(("linear", "ols", "least_squares", "gaussian", "mse"), "squared"),
    **dict.fromkeys(("logit", "binomial", "log_loss"), "logistic"),
    **dict.fromkeys(("hinge", "svm"), "smoothed_hinge"),
}
_FORMULA = re.compile(r"\s*(?P<name>\w+)\s*:(?P<target>.+?)~(?P<features>[^;]+)(;(?P<settings>.*))?", re.DOTALL)
_BOUNDED = re.compile(r"(?P<text>.+?)\[(?P<low>[^,\]]+),(?P<high>[^\]]+)\]\s*", re.DOTALL)


def write_loss(loss: object) -> dict[str, object]:
    """Return a built-in loss as its name and settings, which can be sent to a server; code cannot."""
    for name, cls in BUILT_IN.items():
        if type(loss) is cls:
            settings = {one.name: getattr(loss, one.name) for one in fields(cls)}
            return {"name": name} | {one: value for one, value in settings.items() if value is not None}
    known = ", ".join(cls.__name__ for cls in BUILT_IN.values())
    raise InvalidArgument(f"loss must be built in when a server is asked: {known}; got {type(loss).__name__}.")


def read_loss(described: str | Mapping[str, object]) -> LinearLoss:
    """Return the built-in loss that a mapping of settings, its JSON, or a formula describes.

    >>> read_loss("logistic: late ~ distance [0, 5000] + month [1, 12]; l2 = 0.01").names
    ('distance', 'month', 'intercept')
    """
    if isinstance(described, str):
        return read_loss(_json_object(described) if described.lstrip().startswith("{") else _formula(described))
    settings = dict(described)
    name = settings.pop("name", None)
    cls = BUILT_IN.get(name) if isinstance(name, str) else None
    if cls is None:
        meant = OTHERWISE_CALLED.get(str(name))
        near = [meant] if meant else get_close_matches(str(name), BUILT_IN, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InvalidArgument(
            f"The name of a loss must be one of {', '.join(BUILT_IN)}; got {name!r}.{hint}", name="loss"
        )
    known = {one.name: one.default is MISSING for one in fields(cls)}
    for one in sorted(set(settings) - set(known)):
        raise InvalidArgument(f"The {name} loss has no setting {one!r}.", name=one)
    for one, required in known.items():
        if required and one not in settings:
            raise InvalidArgument(f"The {name} loss must be given {one!r}.", name=one)
    given: dict[str, Any] = {one: value for one, value in settings.items() if value is not None}
    return cls(**given)


def _json_object(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError:
        raise InvalidArgument("loss must be valid JSON or a formula; got neither.", name="loss") from None
    settings: dict[str, object] = value
    return settings


def _formula(text: str) -> dict[str, object]:
    """Read `logistic: target ~ feature [low, high] + feature [low, high]; l2 = 0.01`."""
    parts = _FORMULA.fullmatch(text)
    if parts is None:
        raise InvalidArgument(
            "loss must be a formula such as 'logistic: late ~ distance [0, 5000] + month [1, 12]; l2 = 0.01';"
            f" got {text!r}.",
            name="loss",
        )
    target, bounds = _bounded(parts["target"])
    settings: dict[str, object] = {"name": parts["name"], "target": target, "target_within": bounds}
    features = [_bounded(each) for each in _terms(parts["features"])]
    settings["features"] = dict(features)
    if len(dict(features)) < len(features):
        raise InvalidArgument("features must differ from each other; one is named twice.", name="features")
    for setting in filter(str.strip, (parts["settings"] or "").split(",")):
        name, _, value = setting.partition("=")
        try:
            settings[name.strip()] = json.loads(value)
        except ValueError:
            settings[name.strip()] = value.strip()
    return settings


def _terms(text: str) -> list[str]:
    """Split at plus signs and commas outside brackets."""
    terms, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter in "+," and depth == 0:
            terms.append("")
        else:
            terms[-1] += letter
    return terms


def _bounded(text: str) -> tuple[str, tuple[float, float] | None]:
    parts = _BOUNDED.fullmatch(text)
    if parts is None:
        return text.strip(), None
    try:
        return parts["text"].strip(), (float(parts["low"]), float(parts["high"]))
    except ValueError:
        raise InvalidArgument(
            f"Bounds must be two numbers, as in 'distance [0, 5000]'; got {text.strip()!r}."
        ) from None
