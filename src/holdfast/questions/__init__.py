"""One file, one kind of question: signature, price, steps, answer class, JSON.

question     what a question is; context (what is known beforehand) and drawing (what its steps may use)
kind         what a kind of question is: one signature, and the class of its answers
options      the options of questions: how each is written in JSON, on a command line, in a form
verbs        the methods of `Session` and of the client, made from kinds
price        what a question would cost; the budget: what is left to ask
batch        several questions at once: lists of them, their price, their answers, what is expected of these
history      every answer so far, as a frame; the submissions to a board, the best first; lists registered beforehand
answer       what all answers share: values with intervals, a record of where they come from, how they print
estimate     a value with its interval, in the units of a question, and as text; plot: as a picture
sql          turns a SELECT into questions, and their answers into a frame
stages       questions in several steps: the means that moments are computed from, slices
looks        looks at one question, until its margin is small enough
predictions  what is submitted to a board: read from files and frames, matched with the rows by id
board_files  what a board has besides its rows: ids, and the best submission so far
moments      the kinds variance, std, covariance, correlation and slope
totals       the kinds count, total and units
mean, difference, histogram, top, auc, quantile, flips, minimize, check, submit, confusion    the other kinds

To add one: a file with a function and an answer class, and `KINDS.register(name, kind_of(function, answer))`.
"""

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from holdfast.errors import InvalidArgument
from holdfast.registry import Registry

if TYPE_CHECKING:
    from holdfast.questions.kind import Kind

OWN = (
    "mean",
    "difference",
    *("totals.count", "totals.total"),
    *("moments.variance", "moments.std", "moments.covariance", "moments.correlation", "moments.slope"),
    "histogram",
    "top",
    "auc",
    "quantile",
    "flips",
    "minimize",
    "check",
    "history.register",
    "submit",
    "confusion",
    "totals.units",
)
OTHERWISE_CALLED = {  # names that other tools use for these kinds
    **dict.fromkeys(("average", "avg", "share", "proportion", "percentage", "rate"), "mean"),
    **dict.fromkeys(("median", "percentile", "max", "min", "maximum", "minimum"), "quantile"),
    **dict.fromkeys(("value_counts", "counts"), "histogram"),
    **dict.fromkeys(("mode", "unique"), "top"),
    **dict.fromkeys(("stddev", "sd"), "std"),
    **dict.fromkeys(("fit", "regression", "train"), "minimize"),
    **dict.fromkeys(("compare", "ab", "lift", "ratio"), "difference"),
    **{"sum": "total", "var": "variance", "corr": "correlation", "cov": "covariance", "guess": "check"},
}
COLUMNS = ("columns", "dtypes", "info", "names", "shape")  # what frames call a schema
SHOWN = ("collect", "describe", "head", "iloc", "loc", "rows", "sample", "tail", "to_pandas", "to_polars")
OPTIONS_OTHERWISE_CALLED = {
    **dict.fromkeys(("condition", "filter", "filters", "having"), "where"),
    **dict.fromkeys(("bounds", "limits", "range"), "within"),
    **dict.fromkeys(("group", "group_by", "groupby"), "by"),
    **dict.fromkeys(("n", "n_rows", "sample_size"), "rows_per_query"),
    **{"question": "query", "values": "categories", "edges": "bins", "quantile": "q", "level": "q", "k": "most"},
}
KINDS: "Registry[Kind[..., Any]]" = Registry("holdfast.questions", OWN)


def missing_verb(session: object, name: str) -> AttributeError:
    """Word that a session has no such method, with the one that may be meant."""
    meant = OTHERWISE_CALLED.get(name) or ("schema" if name in COLUMNS else None)
    if meant is None and name not in SHOWN and not name.startswith("_"):
        known = [verb for verb in dir(type(session)) if not verb.startswith("_")]
        meant = next(iter(get_close_matches(name, known, n=1)), None)
    hint = f". Did you mean: {meant!r}?" if meant else ": rows are never shown" if name in SHOWN else ""
    return AttributeError(f"{type(session).__name__!r} object has no attribute {name!r}{hint}")


def kind_named(name: object) -> "Kind[..., Any]":
    """Return the kind with this name, or refuse it with a suggestion."""
    found = KINDS.find(name)
    if found is None:
        meant = OTHERWISE_CALLED.get(str(name).lower())
        near = [meant] if meant else get_close_matches(str(name).lower(), KINDS.names(), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InvalidArgument(f"kind must be one of {', '.join(KINDS.names())}; got {name!r}.{hint}", name="kind")
    return found
