"""What a form on a page says, as the API would have said it."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from holdfast.errors import InvalidArgument
from holdfast.schema import Schema, Type
from holdfast.service.datasets import Served
from holdfast.service.failures import Failure
from holdfast.service.shapes import Ask

MOST_FIELDS = 60
# The fields each kind of question uses; others on the form are for other kinds and are left out.
_USED = {
    "mean": ("within", "where", "rows_per_query"),
    "histogram": ("categories", "bins", "rows_per_query"),
    "quantile": ("within", "where", "q"),
    "flip": (),
    "flips": ("count",),
}
_FEATURE = re.compile(r"(?P<name>.+):\s*(?P<low>\S+)\s+to\s+(?P<high>\S+)")
Bounds = Mapping[str, tuple[float, float]]


async def fields(request: Request) -> dict[str, str]:
    """Return the fields of a form that are not empty."""
    try:
        found = parse_qs(
            (await request.body()).decode("utf-8"), max_num_fields=MOST_FIELDS, errors="strict", encoding="utf-8"
        )
    except ValueError:
        raise Failure(400) from None
    return {name: values[-1].strip() for name, values in found.items() if values[-1].strip()}


def is_begun(form: dict[str, str]) -> bool:
    """Whether enough is filled in to have a price."""
    return "target" in form and "features" in form if form.get("kind") == "minimize" else "query" in form


def ask_of(form: dict[str, str], served: Served) -> Ask:
    """Return the question of the ask form."""
    kind, schema = form.get("kind", "mean"), served.session.schema
    if kind == "minimize":
        return _minimize(form, schema, served.bounds)
    if "query" not in form:
        raise InvalidArgument("Say what to ask about each row: a condition, or a number with its bounds.", name="query")
    said: dict[str, Any] = {}
    if "low" in form or "high" in form:
        said["within"] = _pair(form, "low", "high")
    if "where" in form:
        said["where"] = form["where"]
    if "categories" in form:
        said["categories"] = [_category(form, word.strip(), schema) for word in form["categories"].split(",")]
    if "bins" in form:
        said["bins"] = [_parsed("bins", word, float) for word in form["bins"].split(",")]
    said |= _numbers(form, q=float, count=int, rows_per_query=int)
    used = _USED.get(kind, ())
    options = {name: value for name, value in said.items() if name in used}
    ask: Ask = checked(Ask, {"kind": kind, "query": form["query"]} | options)
    return ask


def _minimize(form: dict[str, str], schema: Schema, declared: Bounds) -> Ask:
    """Return the question of the form's part about fitting a model."""
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
    said = _numbers(form, radius=float, iterations=int, excess=float)
    if "box_low" in form or "box_high" in form:
        said["box"] = _pair(form, "box_low", "box_high")
    ask: Ask = checked(Ask, {"kind": "minimize", "loss": loss} | said)
    return ask


def _feature(line: str, schema: Schema, declared: Bounds) -> tuple[str, list[float] | None]:
    """Read `distance: 0 to 5000`; a column alone has the bounds the keeper declared, or is true or false."""
    parts = _FEATURE.fullmatch(line)
    if parts is not None:
        return parts["name"].strip(), [_parsed("features", parts[end], float) for end in ("low", "high")]
    if line in declared:
        return line, list(declared[line])
    if line in schema and schema[line].type is not Type.BOOL:
        raise InvalidArgument(f"features must have bounds: '{line}: 0 to 100'; {line!r} has none.", name="features")
    return line, None


def checked(model: type[Any], values: dict[str, Any]) -> Any:
    """Check values as if they had come as JSON."""
    try:
        built: BaseModel = model.model_validate(values)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None
    return built


def whole(form: dict[str, str], name: str) -> int | None:
    """Return a whole number, or None if the field is empty."""
    value: int | None = _parsed(name, form[name], int) if name in form else None
    return value


def real(form: dict[str, str], name: str) -> float | None:
    """Return a number, or None if the field is empty."""
    return _number(form, name) if name in form else None


def _numbers(form: dict[str, str], **types: type) -> dict[str, Any]:
    return {name: _parsed(name, form[name], type_) for name, type_ in types.items() if name in form}


def _pair(form: dict[str, str], low: str, high: str) -> list[float]:
    return [_number(form, low), _number(form, high)]


def _number(form: dict[str, str], name: str) -> float:
    value: float = _parsed(name, form.get(name, ""), float)
    return value


def _parsed(name: str, text: str, type_: Any) -> Any:
    try:
        return type_(text.replace(",", "").replace("_", "") if type_ is int else text)
    except ValueError:
        what = "a whole number" if type_ is int else "a number"
        raise InvalidArgument(f"{name} must be {what}; got {text!r}.", name=name) from None


def _category(form: dict[str, str], word: str, schema: Schema) -> Any:
    """Return a category as the column's type writes it; anything but a column's name is left as text."""
    query = form.get("query", "")
    if query in schema:
        type_ = schema[query].type
        if type_ is Type.BOOL and word.lower() in ("true", "false"):
            return word.lower() == "true"
        if type_ is Type.INT:
            return _parsed("categories", word, int)
        if type_ is Type.FLOAT:
            return _parsed("categories", word, float)
    return word
