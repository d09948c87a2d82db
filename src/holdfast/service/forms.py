"""Forms on pages: the fields of a question kind, made from its options, and the values entered in them."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request

from holdfast.questions import kind_named
from holdfast.questions.kind import Kind
from holdfast.questions.options import Choice, Option, Real, RealOrWord, Whole, plain
from holdfast.schema import Schema
from holdfast.service.errors import ProtocolError
from holdfast.service.schemas import DEFAULT_KIND
from holdfast.service.suggestions import examples

MAX_FIELDS = 60
SHOWN = 4  # optional fields of a kind that are always shown; the rest are folded away
USUAL = ("group", "other", "minus", "guess", "q", "where", "by", "groups", "within")  # shown first
CALLED = {  # where capital letters do not make a name readable
    "auc": "AUC",
    "minimize": "Minimize a loss",
    "q": "Quantile",
    "std": "Standard deviation",
    "top": "Most frequent values",
}
OF_UNITS = ("rows_per_unit",)  # options that mean something only where rows belong to units

Entered = dict[str, str]


async def fields(request: Request) -> Entered:
    """Return the non-empty fields of a form."""
    try:
        found = parse_qs(
            (await request.body()).decode("utf-8"), max_num_fields=MAX_FIELDS, errors="strict", encoding="utf-8"
        )
    except ValueError:
        raise ProtocolError(400) from None
    return {name: values[-1].strip() for name, values in found.items() if values[-1].strip()}


def query_fields(request: Request) -> Entered:
    """Return the non-empty fields of a form that was sent in the query string."""
    return {name: value.strip() for name, value in request.query_params.items() if value.strip()}


def kind_of(form: Entered) -> Kind[..., Any]:
    """Return the kind of question that was chosen."""
    return kind_named(form.get("kind", DEFAULT_KIND))


def describe(kind: Kind[..., Any], form: Entered, schema: Schema) -> dict[str, Any]:
    """Return the fields of a kind with the values entered so far; empty ones show examples from this dataset."""
    known = examples(schema, kind.name)
    apply = [option for option in kind.options if schema.unit is not None or option.name not in OF_UNITS]
    optional = sorted((option for option in apply if not option.required), key=_usual)
    required = [option for option in apply if option.required]
    folded = [_field(kind, option, form, known) for option in optional[SHOWN:]]
    return {
        "kind": kind.name,
        "summary": summary(kind),
        "fields": [_field(kind, option, form, known) for option in (*required, *optional[:SHOWN])],
        "more": folded,
        "more_used": any(field["name"] in form for field in folded),
    }


def _usual(option: Option) -> int:
    """Return the sort key of an option: those in `USUAL` come first, the others in the kind's order."""
    return USUAL.index(option.name) if option.name in USUAL else len(USUAL)


def _field(kind: Kind[..., Any], option: Option, form: Entered, known: Mapping[str, str]) -> dict[str, Any]:
    default = "" if option.default is None else str(plain(option.default))
    return {
        "name": option.name,
        "label": label(option.name),
        "help": option.help,
        "example": known.get(option.name, option.form.example),
        "value": form.get(option.name, default),
        "required": option.required,
        "words": list(option.form.words) if isinstance(option.form, Choice) else None,
        "subject": option is kind.subject,
        "wide": option is kind.subject,
        "numeric": isinstance(option.form, Whole | Real) and not isinstance(option.form, RealOrWord),
    }


def summary(kind: Kind[..., Any]) -> str:
    """Say what the answer is, without the verb of a docstring."""
    text = kind.summary.removeprefix("Return ")
    return text[:1].upper() + text[1:]


def label(name: str) -> str:
    """Return the name of a kind or an option as a label."""
    return CALLED.get(name) or name.replace("_", " ").capitalize()


def question(form: Entered) -> tuple[Kind[..., Any], dict[str, Any]]:
    """Return the kind and the options that were entered; fields of other kinds are left out."""
    kind = kind_of(form)
    return kind, {one.name: one.form.parse(one.name, form[one.name]) for one in kind.options if one.name in form}


def is_filled(kind: Kind[..., Any], values: dict[str, Any]) -> bool:
    """Whether enough is filled in to have a price."""
    return all(option.name in values for option in kind.options if option.required)


def integer(form: Entered, name: str) -> int | None:
    """Return an integer, or None if the field is empty."""
    return Whole().parse(name, form[name]) if name in form else None


def decimal(form: Entered, name: str) -> float | None:
    """Return a number, or None if the field is empty."""
    return Real().parse(name, form[name]) if name in form else None
