"""Scores of single cases from the files of evaluation harnesses, as a table that a board accepts.

    lm-evaluation-harness    samples_*.jsonl    one line for each document and filter; `doc_id`, a key for each metric
    Inspect                  *.eval, *.json     a ZIP archive, or JSON; scores by scorer: C, P, I, N or numbers
    Every Eval Ever          *_samples.jsonl    one line for each sample and result; `sample_id`, `evaluation`

The unit is the case: several lines about the same case (epochs, repeats) are averaged. A case without a score is left
out; a board then refuses the table, since the id is missing.
"""

import json
import struct
from collections.abc import Callable, Iterable, Iterator
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile, ZipFile, ZipInfo

import polars as pl

from holdfast.errors import InvalidArgument, MissingExtra
from holdfast.questions.predictions import PredictionsLike

ZSTANDARD = 93  # the compression method of a member of a ZIP archive
_LOCAL_HEADER, _LENGTHS = 30, slice(26, 30)  # size of a member's header; where the lengths of name and extra field are
_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}  # correct, partial, incorrect, no answer: Inspect's values
_TEXTS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}


class Scored(NamedTuple):
    """One score of one case: its metric, its part of the file, and its run if the lines tell."""

    id: object
    metric: str
    part: str
    value: Any
    run: str = ""


def read_evaluation(path: str | Path, *, metric: str | None = None, part: str | None = None) -> pl.DataFrame:
    """Return the score of every case in a file of an evaluation harness, as columns "id" and "score".

    Parameters
    ----------
    path
        `samples_*.jsonl` of lm-evaluation-harness, a log of Inspect (`.eval` or `.json`), or an instance file of
        Every Eval Ever.
    metric
        Which one to use, if the file has several: a metric, a scorer of Inspect (`scorer/key` if it gives several), or
        a result of Every Eval Ever.
    part
        The filter of lm-evaluation-harness, or the name of an evaluation, if the file has several.

    Returns
    -------
    DataFrame
        Epochs and repeats of a case are averaged; the order is that of the file.
    """
    path = Path(path)
    found = list(_records(path))
    if not found:
        raise InvalidArgument(
            f"{path.name} has no scores of single cases. (lm-evaluation-harness writes them with --log_samples, into"
            " samples_*.jsonl.)",
            name="path",
        )
    metric = _one("metric", metric, (each.metric for each in found), path)
    found = [each for each in found if each.metric == metric]
    part = _one("part", part, (each.part for each in found), path)
    found = [each for each in found if each.part == part]
    if len(runs := {each.run for each in found}) > 1:
        raise InvalidArgument(f"{path.name} has {len(runs)} runs; a submission is one. Split it by run.", name="path")
    scores: dict[object, list[float]] = {}
    for each in found:
        value = _number(each.value, metric, path)
        if value is not None:
            scores.setdefault(each.id, []).append(value)
    means = [sum(values) / len(values) for values in scores.values()]
    return pl.DataFrame({"id": _alike(scores), "score": pl.Series(means, dtype=pl.Float64)})


def read_submission(given: PredictionsLike, *, metric: str | None = None, part: str | None = None) -> PredictionsLike:
    """Return what a board takes: the scores in a file of an evaluation harness, anything else as it is."""
    chosen = metric is not None or part is not None
    if not isinstance(given, str | Path):
        if chosen:
            raise InvalidArgument(
                "metric and part must be left out unless predictions are a file of an evaluation harness.",
                name="metric",
            )
        return given
    return read_evaluation(given, metric=metric, part=part) if chosen or is_evaluation(given) else given


def read_cases(path: str | Path) -> pl.DataFrame:
    """Return the ids of all cases in such a file, scored or not, as the column "id", to make a board of scores.

    Parameters
    ----------
    path
        As for `read_evaluation`.
    """
    return pl.DataFrame({"id": _alike(dict.fromkeys(each.id for each in _records(Path(path))))})


def _alike(ids: Iterable[object]) -> list[object]:
    """Return ids of one type: all as text if any of them is text."""
    listed = list(ids)
    return [str(id) for id in listed] if any(isinstance(id, str) for id in listed) else listed


def is_evaluation(path: str | Path) -> bool:
    """Whether a file is one of these, by its name and its first line; tables never have the suffix .json."""
    path = Path(path)
    if path.suffix in (".eval", ".json"):
        return True
    if path.suffix != ".jsonl":
        return False
    try:
        with path.open(encoding="utf-8") as file:
            first = json.loads(file.readline())
    except (OSError, ValueError):
        return False
    return isinstance(first, dict) and _reader_of(first) is not None


def _one(name: str, given: str | None, there: Iterable[str], path: Path) -> str:
    """Return the name that was given, or the only one in the file."""
    names = list(dict.fromkeys(there))
    if given is None and len(names) == 1:
        return names[0]
    if given not in names:
        got = "nothing" if given is None else repr(given)
        raise InvalidArgument(f"{name} must be one of {', '.join(names)}, which {path.name} has; got {got}.", name=name)
    return str(given)


def _number(value: Any, metric: str, path: Path) -> float | None:
    """Return a score as a number; None if it is missing."""
    if isinstance(value, str):
        value = _GRADES.get(value, _TEXTS.get(value.lower(), value))
    try:
        number = float(value)
    except (TypeError, ValueError):
        if value is None:
            return None
        raise InvalidArgument(
            f"metric must have one number for each case; {metric} of {path.name} has a {type(value).__name__}.",
            name="metric",
        ) from None
    return None if isnan(number) else number


# -- formats ---------------------------------------------------------------------------------------------------------


def _records(path: Path) -> Iterator[Scored]:
    try:
        if path.suffix == ".eval":
            yield from _inspect(_from_archive(path))
        elif path.suffix == ".json":
            yield from _inspect(json.loads(path.read_text(encoding="utf-8")).get("samples") or [])
        else:
            yield from _lines(path)
    except (OSError, ValueError, AttributeError, KeyError, TypeError, BadZipFile):
        raise InvalidArgument(
            f"{path.name} cannot be read as a file of lm-evaluation-harness, Inspect or Every Eval Ever.", name="path"
        ) from None


def _lines(path: Path) -> Iterator[Scored]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.strip():
                values = json.loads(line)
                reader = _reader_of(values)
                if reader is None:
                    raise ValueError
                yield from reader(values)


def _reader_of(values: dict[str, Any]) -> Callable[[dict[str, Any]], Iterator[Scored]] | None:
    """Return the reader for a line's format, recognized by keys that only this format has."""
    if {"doc_id", "doc"} <= values.keys():
        return _lm_eval
    return _every_eval_ever if {"sample_id", "evaluation"} <= values.keys() else None


def _lm_eval(values: dict[str, Any]) -> Iterator[Scored]:
    """Read one document under one filter. Older files do not list their metrics: there, every number is one."""
    metrics = values.get("metrics")
    if metrics is None:
        known = {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter"}
        metrics = [name for name, value in values.items() if name not in known and isinstance(value, int | float)]
    for name in metrics:
        yield Scored(values["doc_id"], name, str(values.get("filter", "none")), values[name])


def _every_eval_ever(values: dict[str, Any]) -> Iterator[Scored]:
    """Read one sample under one result: a sample with several metrics has a line for each."""
    part, run, judged = str(values["evaluation_name"]), str(values["evaluation_id"]), values["evaluation"]
    if (result := values.get("evaluation_result_id")) is not None:
        yield Scored(values["sample_id"], str(result), part, judged["score"], run)
        return
    for name in ("score", "is_correct"):
        yield Scored(values["sample_id"], name, part, judged[name], run)


def _inspect(samples: list[dict[str, Any]]) -> Iterator[Scored]:
    for sample in samples:
        for scorer, score in (sample.get("scores") or {}).items():
            value = score["value"]
            if isinstance(value, dict):
                for key, each in value.items():
                    yield Scored(sample["id"], f"{scorer}/{key}", "", each)
            else:
                yield Scored(sample["id"], scorer, "", value)


def _from_archive(path: Path) -> list[dict[str, Any]]:
    """Return the samples of an archive: from the summaries, or one by one if the run was interrupted."""
    with ZipFile(path) as archive, path.open("rb") as file:
        members = {member.filename: member for member in archive.infolist()}

        def read(name: str) -> Any:
            return json.loads(_content(archive, file, members[name]))

        if "summaries.json" in members:
            return list(read("summaries.json"))
        return [read(name) for name in members if name.startswith("samples/") and name.endswith(".json")]


def _content(archive: ZipFile, file: Any, member: ZipInfo) -> bytes:
    """Return a member's content; the standard library cannot read Zstandard before Python 3.14."""
    if member.compress_type != ZSTANDARD:
        return archive.read(member)
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtra(
            "Logs of Inspect are compressed with Zstandard. Install it with: pip install 'holdfast[evaluations]'.",
            extra="evaluations",
        ) from error
    file.seek(member.header_offset)
    name_length, extra_length = struct.unpack("<HH", file.read(_LOCAL_HEADER)[_LENGTHS])
    file.seek(name_length + extra_length, 1)
    content: bytes = zstandard.ZstdDecompressor().decompressobj().decompress(file.read(member.compress_size))
    return content
