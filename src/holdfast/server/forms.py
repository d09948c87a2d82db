"""What a form on a page says, as the API would have said it."""

from typing import Any
from urllib.parse import parse_qs

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from holdfast.errors import InvalidArgument
from holdfast.schema import Schema, Type
from holdfast.server.failures import Failure
from holdfast.server.shapes import Ask

MOST_FIELDS = 60
# The fields each kind of question uses; others on the form are for other kinds and are left out.
_USED = {
    "mean": ("within", "where", "rows_per_query"),
    "histogram": ("categories", "bins", "rows_per_query"),
    "quantile": ("within", "where", "q"),
    "flip": (),
    "flips": ("count",),
}


async def fields(request: Request) -> dict[str, str]:
    """Return the fields of a form that are not empty."""
    try:
        found = parse_qs(
            (await request.body()).decode("utf-8"), max_num_fields=MOST_FIELDS, errors="strict", encoding="utf-8"
        )
    except ValueError:
        raise Failure(400) from None
    return {name: values[-1].strip() for name, values in found.items() if values[-1].strip()}


def ask_of(form: dict[str, str], schema: Schema) -> Ask:
    """Return the question of the ask form."""
    kind = form.get("kind", "mean")
    said: dict[str, Any] = {}
    if "low" in form or "high" in form:
        said["within"] = [_number(form, "low"), _number(form, "high")]
    if "where" in form:
        said["where"] = form["where"]
    if "categories" in form:
        said["categories"] = [_category(form, word.strip(), schema) for word in form["categories"].split(",")]
    if "bins" in form:
        said["bins"] = [_parsed("bins", word, float) for word in form["bins"].split(",")]
    for name, type_ in (("q", float), ("count", int), ("rows_per_query", int)):
        if name in form:
            said[name] = _parsed(name, form[name], type_)
    used = _USED.get(kind, ())
    options = {name: value for name, value in said.items() if name in used}
    ask: Ask = checked(Ask, {"kind": kind, "query": form.get("query", "")} | options)
    return ask


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
