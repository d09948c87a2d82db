"""The question on a page in other languages: in Python, as a curl command, and in SQL where SQL can express it."""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.queries.node import identifier
from holdfast.questions import kind_named
from holdfast.questions.mean import MEAN
from holdfast.questions.predictions import PredictionsForm
from holdfast.questions.quantile import QUANTILE
from holdfast.questions.sql import select
from holdfast.questions.verbs import Verbs
from holdfast.schema import Schema

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


def python(question: Mapping[str, Any], url: str, dataset: str) -> str:
    """Return the question for the Python client; a file is given by name, not by content."""
    kind = kind_named(question["kind"])
    given = {option.name: question[option.name] for option in kind.options if option.name in question}
    if _has_file(question):
        given[kind.subject.name] = "predictions.csv"
    subject = repr(given.pop(kind.subject.name))
    options = "".join(f", {name}={value!r}" for name, value in given.items())
    asked = f"s.{kind.name}({subject}" if hasattr(Verbs, kind.name) else f"s.ask({subject}, {kind.name!r}"
    return (
        "import os\nimport holdfast as hf\n\n"
        f'with hf.connect({url!r}, os.environ["HOLDFAST_TOKEN"], dataset={dataset!r}) as s:\n'
        f"    print({asked}{options}))"
    )


def curl(question: Mapping[str, Any], url: str, dataset: str) -> str:
    """Return the question as a curl command."""
    where = shlex.quote(f"{url}/api/v1/datasets/{dataset}/ask")
    return (
        f'curl {where} -H "Authorization: Bearer $HOLDFAST_TOKEN" \\\n'
        f"  -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(question, ensure_ascii=False))}"
    )


def sql(question: Mapping[str, Any], schema: Schema, rows: int) -> str | None:
    """Return a SELECT that asks exactly this question, or None if there is none.

    Each candidate is compiled, and returned only if it becomes exactly the same question, also in how it treats NULL.
    """
    for text in _candidates(question, identifier(schema.dataset)):
        try:
            compiled = select(text, schema, rows).questions
        except HoldfastError:
            continue
        if compiled == (dict(question),):
            return text
    return None


def _candidates(question: Mapping[str, Any], table: str) -> Iterator[str]:
    """Yield statements that might be the question in SQL."""
    query, where, by = (question.get(name) for name in ("query", "where", "by"))
    after = f" FROM {table}" + (f" WHERE {where}" if where else "")
    if question["kind"] == MEAN.name and isinstance(by, str | None):
        after += f" GROUP BY {by}" if by else ""
        yield f"SELECT {f'{by}, ' if by else ''}AVG({query}){after}"
        yield f"SELECT COUNT_IF({query}){after}"
    elif question["kind"] == QUANTILE.name:
        yield f"SELECT QUANTILE({query}, {question.get('q')}){after}"
    elif question["kind"] in _AGGREGATES:
        arguments = ", ".join(str(question[name]) for name in ("query", "other") if name in question)
        yield f"SELECT {_AGGREGATES[question['kind']]}({arguments}){after}"


_AGGREGATES = {"variance": "VARIANCE", "std": "STDDEV", "correlation": "CORR", "covariance": "COVAR_POP"}


def _has_file(question: Mapping[str, Any]) -> bool:
    return isinstance(kind_named(question["kind"]).subject.form, PredictionsForm)
