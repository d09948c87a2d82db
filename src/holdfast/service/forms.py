"""Forms on pages, read as the API's requests."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request

from holdfast.errors import InvalidArgument
from holdfast.schema import Schema, Type
from holdfast.service.datasets import ServedDataset
from holdfast.service.errors import ProtocolError
from holdfast.service.schemas import AskIn, validate

MAX_FIELDS = 60
# The options of each kind of question; the form also has fields of other kinds, which are ignored.
_OPTIONS = {
    "mean": ("within", "where", "rows_per_query"),
    "histogram": ("categories", "bins", "rows_per_query"),
    "quantile": ("within", "where", "q"),
    "flip": (),
    "flips": ("count",),
}
_FEATURE = re.compile(r"(?P<name>.+):\s*(?P<low>\S+)\s+to\s+(?P<high>\S+)")
Bounds = Mapping[str, tuple[float, float]]


async def fields(request: Request) -> dict[str, str]:
    """Return the non-empty fields of a form."""
    try:
        found = parse_qs(
            (await request.body()).decode("utf-8"), max_num_fields=MAX_FIELDS, errors="strict", encoding="utf-8"
        )
    except ValueError:
        raise ProtocolError(400) from None
    return {name: values[-1].strip() for name, values in found.items() if values[-1].strip()}


def is_filled(form: dict[str, str]) -> bool:
    """Whether enough is filled in to have a price."""
    return "target" in form and "features" in form if form.get("kind") == "minimize" else "query" in form


def question(form: dict[str, str], served: ServedDataset) -> AskIn:
    """Return the question of the ask form."""
    kind, schema = form.get("kind", "mean"), served.session.schema
    if kind == "minimize":
        return _minimize(form, schema, served.bounds)
    if "query" not in form:
        raise InvalidArgument("Enter a query: a condition, or a number with its bounds.", name="query")
    values: dict[str, Any] = {}
    if "low" in form or "high" in form:
        values["within"] = _pair(form, "low", "high")
    if "where" in form:
        values["where"] = form["where"]
    if "categories" in form:
        values["categories"] = [_category(form, word.strip(), schema) for word in form["categories"].split(",")]
    if "bins" in form:
        values["bins"] = [_parse("bins", word, float) for word in form["bins"].split(",")]
    values |= _numbers(form, q=float, count=int, rows_per_query=int)
    options = {name: value for name, value in values.items() if name in _OPTIONS.get(kind, ())}
    return validate(AskIn, {"kind": kind, "query": form["query"]} | options)


def _minimize(form: dict[str, str], schema: Schema, declared: Bounds) -> AskIn:
    """Return the question of the part of the form that fits a model."""
    name = form.get("loss", "")
    loss: dict[str, Any] = {"name": name, "target": form.get("target", "")} | _numbers(form, l2=float)
    loss["features"] = dict(
        _feature(line.strip(), schema, declared) for line in form.get("features", "").splitlines() if line.strip()
    )
    if "target_low" in form or "target_high" in form:
        loss["target_within"] = _pair(form, "target_low", "target_high")
    elif name not in ("logistic", "smoothed_hinge") and form.get("target") in declared:
        loss["target_within"] = list(declared[form["target"]])
    if name == "quantile" and "loss_q" in form:
        loss["q"] = _number(form, "loss_q")
    values = _numbers(form, radius=float, iterations=int, excess=float)
    if "box_low" in form or "box_high" in form:
        values["box"] = _pair(form, "box_low", "box_high")
    return validate(AskIn, {"kind": "minimize", "loss": loss} | values)


def _feature(line: str, schema: Schema, declared: Bounds) -> tuple[str, list[float] | None]:
    """Read `distance: 0 to 5000`; a column alone has the bounds declared in the settings, or is boolean."""
    parts = _FEATURE.fullmatch(line)
    if parts is not None:
        return parts["name"].strip(), [_parse("features", parts[end], float) for end in ("low", "high")]
    if line in declared:
        return line, list(declared[line])
    if line in schema and schema[line].type is not Type.BOOL:
        raise InvalidArgument(f"features must have bounds: '{line}: 0 to 100'; {line!r} has none.", name="features")
    return line, None


def integer(form: dict[str, str], name: str) -> int | None:
    """Return an integer, or None if the field is empty."""
    value: int | None = _parse(name, form[name], int) if name in form else None
    return value


def decimal(form: dict[str, str], name: str) -> float | None:
    """Return a number, or None if the field is empty."""
    return _number(form, name) if name in form else None


def _numbers(form: dict[str, str], **types: type) -> dict[str, Any]:
    return {name: _parse(name, form[name], type_) for name, type_ in types.items() if name in form}


def _pair(form: dict[str, str], low: str, high: str) -> list[float]:
    return [_number(form, low), _number(form, high)]


def _number(form: dict[str, str], name: str) -> float:
    value: float = _parse(name, form.get(name, ""), float)
    return value


def _parse(name: str, text: str, type_: Any) -> Any:
    try:
        return type_(text.replace(",", "").replace("_", "") if type_ is int else text)
    except ValueError:
        what = "an integer" if type_ is int else "a number"
        raise InvalidArgument(f"{name} must be {what}; got {text!r}.", name=name) from None


def _category(form: dict[str, str], word: str, schema: Schema) -> Any:
    """Return a category in the type of the column; for anything but a plain column it stays text."""
    query = form.get("query", "")
    if query in schema:
        type_ = schema[query].type
        if type_ is Type.BOOL and word.lower() in ("true", "false"):
            return word.lower() == "true"
        if type_ is Type.INT:
            return _parse("categories", word, int)
        if type_ is Type.FLOAT:
            return _parse("categories", word, float)
    return word
