"""Forms on pages: fields from the options of a kind, suggestions from the schema, and the question in other languages.

Suggestions in an empty form are made from the schema alone. Under an answer, its question is shown in Python, as a
curl command, and in SQL where SQL can express it.
"""

import json
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode

from starlette.requests import Request

from holdfast import check
from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.queries.build import build_groups, build_histogram, build_mean
from holdfast.queries.node import identifier, literal_text
from holdfast.questions import kind_named
from holdfast.questions.histogram import HISTOGRAM
from holdfast.questions.kind import Kind
from holdfast.questions.mean import MEAN
from holdfast.questions.moments import SLOPE
from holdfast.questions.options import Choice, Option, Real, RealOrWord, Whole, plain
from holdfast.questions.predictions import PredictionsForm
from holdfast.questions.quantile import QUANTILE
from holdfast.questions.sql import select
from holdfast.questions.verbs import Verbs
from holdfast.schema import Column, Schema, Type
from holdfast.service.errors import ProtocolError
from holdfast.service.schemas import DEFAULT_KIND
from holdfast.service.settings import to_json

MOST = 4
OF_NUMBERS = ("total", "variance", "std", "covariance", "correlation", "slope", "quantile", "auc")  # kinds
OF_TEXTS = ("histogram", "top")

Suggestion = dict[str, str]


def suggestions(schema: Schema, asks: str | None = None) -> list[Suggestion]:
    """Return a few complete questions, each with its wording and the address of the filled-in form.

    There are none if the dataset accepts only questions of one kind, named by `asks`: it has its own form.
    """
    found = [] if asks is not None else list(_questions(schema))[:MOST]
    return [{"words": words, "address": f"?{urlencode(form)}"} for words, form in found]


def _questions(schema: Schema) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield questions, the simplest first."""
    condition, group = _condition(schema), _categorical(schema)
    number = next((one for one in _numbers(schema) if one.bounds is not None), None)
    if condition is not None:
        yield f"How often is {condition}?", {"kind": "mean", "query": condition}
        if group is not None and group.name not in condition:
            yield f"… for each {group.name}?", {"kind": "mean", "query": condition, "by": identifier(group.name)}
    if number is not None:
        name = identifier(number.name)
        yield f"What is the mean of {number.name}?", {"kind": "mean", "query": name}
        yield f"What is the 90th percentile of {number.name}?", {"kind": "quantile", "query": name, "q": "0.9"}
    if group is not None:
        yield f"How are rows spread over {group.name}?", {"kind": "histogram", "query": identifier(group.name)}


def examples(schema: Schema, kind: str) -> dict[str, str]:
    """Return the examples that empty fields of a kind show, by option name, made from this dataset's columns."""
    condition, numbers, group = _condition(schema), _numbers(schema), _categorical(schema)
    text = group or next((column for column in schema if column.type is Type.STRING), None)
    found = {"query": condition, "positive": condition, "where": condition, "group": condition}
    if text is not None:
        found |= {"by": identifier(text.name)} | ({"query": identifier(text.name)} if kind in OF_TEXTS else {})
    if group is not None:
        name, values = identifier(group.name), [literal_text(value) for value in group.categories or ()]
        found |= dict.fromkeys(("where", "group", "versus"), f"{name} = {values[0]}")
        found["other"] = f"{name} = {values[-1]}"
        found |= dict.fromkeys(("groups", "categories"), ", ".join(map(str, (group.categories or ())[:3])))
    if numbers:
        first, second = numbers[0], numbers[min(1, len(numbers) - 1)]
        found |= {"within": _range(first), "other_within": _range(second)}
        if kind in OF_NUMBERS:
            found |= {"query": identifier(first.name), "other": identifier(second.name)}
        if second is not first:
            found |= {"minus": _above(second), "positive": _above(second)}
        if second is not first and second.bounds is not None:
            found["loss"] = f"logistic: {_above(first)} ~ {identifier(second.name)} [{_range(second)}]"
    return {name: example for name, example in found.items() if example is not None}


def _condition(schema: Schema) -> str | None:
    """Return a condition about a column: a number above 0 or the middle of its declared bounds, or else a boolean."""
    number = next(iter(_numbers(schema)), None)
    boolean = next((column for column in schema if column.type is Type.BOOL), None)
    if number is None:
        return None if boolean is None else identifier(boolean.name)
    return _above(number)


def _above(number: Column) -> str:
    low, high = number.bounds or (0.0, 0.0)
    middle = 0.0 if low < 0 < high else (low + high) / 2
    return f"{identifier(number.name)} > {_round(middle)}"


def _range(number: Column) -> str | None:
    return None if number.bounds is None else "{:.15g}, {:.15g}".format(*number.bounds)


def _numbers(schema: Schema) -> list[Column]:
    """Return the columns of numbers: first those whose range is declared, last whole numbers, which may be years."""
    numbers = (one for one in schema if one.type.is_number)
    return sorted(numbers, key=lambda one: (one.bounds is None, one.type is Type.INT))


def _categorical(schema: Schema) -> Column | None:
    return next((column for column in schema if column.categories), None)


def _round(x: float) -> Any:
    return f"{x:.2g}" if abs(x) < 100 else f"{x:.0f}"


MAX_FIELDS = 60
SHOWN = 4  # optional fields of a kind that are always shown; the rest are folded away
USUAL = ("group", "other", "minus", "guess", "q", "where", "by", "groups", "within")  # shown first
CALLED = {  # where capital letters do not make a name readable
    "auc": "AUC",
    "mean": "Share or mean",
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
    if name not in form:
        return None
    value = Real().parse(name, form[name])
    check.number(**{name: value})  # "nan" is read, too
    return value


def settings(form: Entered, name: str) -> dict[str, Any]:
    """Return settings that were entered as the lines of a TOML file."""
    try:
        found: dict[str, Any] = json.loads(to_json(tomllib.loads(form.get(name, ""))))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidArgument(
            f"{label(name)} must be lines such as margin = 0.02, in TOML; {error}.", name=name
        ) from None
    return found


Snippet = dict[str, str]


def snippets(question: Mapping[str, Any], *, url: str, dataset: str, schema: Schema, rows: int) -> list[Snippet]:
    """Return texts that ask the same question, each with the name of its language.

    Parameters
    ----------
    question
        The question as JSON.
    url, dataset
        The server and the dataset to ask.
    schema, rows
        The schema and the number of rows that SQL is compiled for.
    """
    found = []
    file = _has_file(question)
    if file or isinstance(question[kind_named(question["kind"]).subject.name], str):  # a loss is an object in Python
        found.append({"language": "Python", "text": python(question, url, dataset)})
    if not file:
        found.append({"language": "curl", "text": curl(question, url, dataset)})
    text = sql(question, schema, rows)
    return [*found, {"language": "SQL", "text": text}] if text is not None else found


def snippets_of_select(text: str, *, url: str, dataset: str) -> list[Snippet]:
    """Return texts that ask the same SELECT.

    Parameters
    ----------
    text
        The statement.
    url, dataset
        The server and the dataset to ask.
    """
    asked = _in_python(f"s.sql({text!r})", url, dataset)
    return [
        {"language": "Python", "text": asked},
        {"language": "curl", "text": _in_curl("sql", {"sql": text}, url, dataset)},
    ]


def python(question: Mapping[str, Any], url: str, dataset: str) -> str:
    """Return the question for the Python client; a file is given by name, not by content."""
    kind = kind_named(question["kind"])
    given = {option.name: question[option.name] for option in kind.options if option.name in question}
    if _has_file(question):
        given[kind.subject.name] = "predictions.csv"
    subject = repr(given.pop(kind.subject.name))
    options = "".join(f", {name}={value!r}" for name, value in given.items())
    asked = f"s.{kind.name}({subject}" if hasattr(Verbs, kind.name) else f"s.ask({subject}, {kind.name!r}"
    return _in_python(f"{asked}{options})", url, dataset)


def _in_python(asked: str, url: str, dataset: str) -> str:
    return (
        "import os\nimport holdfast as hf\n\n"
        f'with hf.connect({url!r}, os.environ["HOLDFAST_TOKEN"], dataset={dataset!r}) as s:\n'
        f"    print({asked})"
    )


def curl(question: Mapping[str, Any], url: str, dataset: str) -> str:
    """Return the question as a curl command."""
    return _in_curl("ask", question, url, dataset)


def _in_curl(operation: str, body: Mapping[str, Any], url: str, dataset: str) -> str:
    where = shlex.quote(f"{url}/api/v1/datasets/{dataset}/{operation}")
    return (
        f'curl {where} -H "Authorization: Bearer $HOLDFAST_TOKEN" \\\n'
        f"  -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body, ensure_ascii=False))}"
    )


def sql(question: Mapping[str, Any], schema: Schema, rows: int) -> str | None:
    """Return a SELECT that asks exactly this question, or None if there is none.

    Each candidate is compiled, and returned only if it becomes exactly the same question, also in how it treats NULL.
    """
    for text in _candidates(question, identifier(schema.dataset)):
        try:
            compiled = select(text, schema, rows).questions
            if len(compiled) == 1 and _meaning(compiled[0], schema) == _meaning(question, schema):
                return text
        except HoldfastError:
            continue
    return None


def _meaning(question: Mapping[str, Any], schema: Schema) -> tuple[Any, ...]:
    """Return what identifies a question however it is written, with what follows from declarations: and all else."""
    rest = dict(question)
    kind, where = rest.pop("kind"), rest.pop("where", None)
    if kind == HISTOGRAM.name:
        counted = {name: rest.pop(name, None) for name in ("categories", "bins", "within")}
        return kind, build_histogram(rest.pop("query"), schema, where=where, **counted).identity, rest
    if kind == MEAN.name and "by" in rest:
        options = {name: rest.pop(name, None) for name in ("by", "groups", "within")}
        return kind, build_groups(rest.pop("query"), schema, where=where, **options).identity, rest
    ranges = {"query": "within", "other": "other_within"}
    values = [(rest.pop(name), rest.pop(within, None)) for name, within in ranges.items() if name in rest]
    return kind, *(build_mean(value, schema, within=within, where=where).identity for value, within in values), rest


def _candidates(question: Mapping[str, Any], table: str) -> Iterator[str]:
    """Yield statements that might be the question in SQL."""
    query, where, by = (question.get(name) for name in ("query", "where", "by"))
    after = f" FROM {table}" + (f" WHERE {where}" if where else "")
    if question["kind"] == MEAN.name and by:
        keys = by if isinstance(by, str) else ", ".join(map(str, by))
        yield f"SELECT {keys}, AVG({query}){after} GROUP BY {keys}"
    elif question["kind"] == MEAN.name:
        yield f"SELECT AVG({query}){after}"
        yield f"SELECT COUNT_IF({query}){after}"
    elif question["kind"] == HISTOGRAM.name:
        yield f"SELECT {query}, COUNT(*){after} GROUP BY {query}"
    elif question["kind"] == SLOPE.name:
        yield f"SELECT REGR_SLOPE({question.get('other')}, {query}){after}"
    elif question["kind"] == QUANTILE.name:
        yield f"SELECT QUANTILE({query}, {question.get('q')}){after}"
    elif question["kind"] in _AGGREGATES:
        arguments = ", ".join(str(question[name]) for name in ("query", "other") if name in question)
        yield f"SELECT {_AGGREGATES[question['kind']]}({arguments}){after}"


_AGGREGATES = {"variance": "VARIANCE", "std": "STDDEV", "correlation": "CORR", "covariance": "COVAR_POP"}


def _has_file(question: Mapping[str, Any]) -> bool:
    return isinstance(kind_named(question["kind"]).subject.form, PredictionsForm)
