"""Several questions at once: lists of them, what they cost together, their answers, and what is expected of these.

A question in a list is text (a mean), or a dict with its kind and options, as in JSON or YAML:

    - dep_delay > 15
    - {query: dep_delay, where: carrier = 'UA'}
    - {kind: quantile, query: dep_delay, q: 0.9}

A list of expectations is a list of questions, each with what is expected of its answer, whose interval keeps that,
breaks it, or leaves it open:

    - {query: dep_delay > 15, expect: {at_most: 0.3}}
    - {query: distance, within: [0, 5000], expect: {at_least: 900, at_most: 1200}}
    - {query: cancelled, by: carrier, groups: [UA, AA], expect: {at_most: 0.1}}     # of every group

The verdict is about the population, and all verdicts hold at once: a list may grow after looking at its results.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, Self

import polars as pl

from holdfast import check, notebook
from holdfast.errors import HoldfastError, InvalidArgument, MissingExtra
from holdfast.guarantees.guarantee import Guarantee
from holdfast.ledger import Answered, Spent
from holdfast.questions import KINDS, kind_named
from holdfast.questions.answer import AnyAnswer, brief
from holdfast.questions.budget import write_answers
from holdfast.questions.estimate import Estimate, plus_minus, written
from holdfast.questions.kind import Kind
from holdfast.questions.options import DEFAULT_KIND
from holdfast.questions.plot import Panel, Picture, Pictured, picture_lines
from holdfast.questions.price import Price
from holdfast.questions.question import Context, Question, total_of

MOST_TOGETHER = 200  # questions that share a reservation and a transaction

Asked = str | Mapping[str, object]


def build_all(questions: Iterable[Asked], context: Context, names: Sequence[str] = ()) -> list[Question]:
    """Return the questions of a list, checked and priced; a refusal names the question that it is about."""
    if isinstance(questions, str | bytes | Mapping) or not isinstance(questions, Iterable):
        raise InvalidArgument(
            f"questions must be a list of questions; got {type(questions).__name__}.", name="questions"
        )
    built = []
    for place, asked in enumerate(questions, start=1):
        try:
            built.append(_build(asked, context))
        except HoldfastError as error:
            error.message = f"{names[place - 1] if names else f'Question {place}'}: {error.message}"
            raise
    if not built:
        raise InvalidArgument("questions must be a list of at least one question; got none.", name="questions")
    return built


def _build(asked: Asked, context: Context) -> Question:
    kind, subject, options = _read(asked)
    return kind.question(context, subject, **options)


def dry_run_of(asked: Asked, dry_run: Callable[..., AnyAnswer]) -> AnyAnswer:
    """Return what a session's `dry_run` makes of a question in a list: an answer of the same shape and range."""
    kind, subject, options = _read(asked)
    return dry_run(subject, kind.name, **options)


def _read(asked: Asked) -> tuple[Kind[..., Any], Any, dict[str, Any]]:
    values = _values(asked)
    kind = kind_named(values.pop("kind", DEFAULT_KIND))
    options = kind.from_json(values)
    return kind, options.pop(kind.subject.name), options


def together_of(questions: Sequence[Question], is_answered: Callable[[Question], bool] = lambda _: False) -> Question:
    """Return one question that costs as much as all those together that were not asked before."""
    _refuse_looks(questions)
    new = {one.identity or id(one): one.cost for one in questions if not is_answered(one)}.values()
    return replace(questions[0], cost=total_of(new))


def _refuse_looks(questions: Sequence[Question]) -> None:
    """Refuse questions that look again: how often depends on what they see, so their cost is not known beforehand."""
    for place, one in enumerate(questions, start=1):
        if one.after is not None:
            raise InvalidArgument(
                f"Question {place}: until must be left out in a list, which is asked and paid for at once; how often a"
                " question is looked at depends on what is seen. Ask it alone, or give margin.",
                name="until",
            )


def _values(asked: Asked) -> dict[str, Any]:
    if isinstance(asked, str):
        return {"kind": DEFAULT_KIND, "query": asked}
    if not isinstance(asked, Mapping) or not all(isinstance(name, str) for name in asked):
        raise InvalidArgument(
            f"a question must be text, or a dict of its kind and options; got {asked!r}.", name="questions"
        )
    named = () if "kind" in asked or "query" in asked else [name for name in asked if name in KINDS.names()]
    for kind in named:
        raise InvalidArgument(f"{kind} is a kind of question: write query: {asked[kind]}, kind: {kind}.", name="kind")
    return dict(asked)


class Questions(Sequence[Asked]):
    """A list of questions that is fixed before they are asked: `Session.ask_many` registers it first.

    Parameters
    ----------
    questions
        Texts and dicts, as for `Session.ask_many`.

    Examples
    --------
    >>> Questions(["dep_delay > 15", {"kind": "quantile", "query": "dep_delay", "q": 0.9}])
    Questions, 2:
      1  mean: dep_delay > 15
      2  quantile: dep_delay, q 0.9
    """

    def __init__(self, questions: Iterable[Asked]) -> None:
        if isinstance(questions, str | bytes | Mapping) or not isinstance(questions, Iterable):
            raise InvalidArgument(f"questions must be a list; got {type(questions).__name__}.", name="questions")
        self._questions = tuple(questions)
        for one in self._questions:
            kind = _values(one).get("kind", DEFAULT_KIND)
            kind_named(kind)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a list from a YAML file, or a JSON file.

        Parameters
        ----------
        path
            The file; JSON if its name ends in .json, else YAML.

        Returns
        -------
        Questions
            The list.
        """
        return cls(read_list(path))

    def __len__(self) -> int:
        return len(self._questions)

    def __getitem__(self, place: Any) -> Any:
        return self._questions[place]

    def __repr__(self) -> str:
        lines = [f"{place:>3}  {_line(one)}" for place, one in enumerate(self._questions, start=1)]
        return "\n".join([f"Questions, {len(self)}:", *lines])


def _line(asked: Asked) -> str:
    values = _values(asked)
    kind = kind_named(values.pop("kind", DEFAULT_KIND))
    subject = values.pop(kind.subject.name, "")
    return ", ".join([f"{kind.name}: {subject}", *(f"{name} {value}" for name, value in values.items())])


def read_list(path: str | Path) -> list[Any]:
    """Read a list from a YAML file, or from a JSON file, whose name ends in .json."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InvalidArgument(f"{path} cannot be read: {reason}.", name="questions") from None
    found = _json(text, file) if file.suffix.lower() == ".json" else _yaml(text, file)
    if not isinstance(found, list):
        got = "nothing" if found is None else repr(found)
        raise InvalidArgument(f"{path} must be a list of questions; got {got:.60}.", name="questions")
    return found


def _json(text: str, file: Path) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"{file} must be JSON: {error}.", name="questions") from None


def _yaml(text: str, file: Path) -> object:
    try:
        import yaml
    except ModuleNotFoundError as error:
        message = "Reading YAML needs PyYAML. Install it with: pip install 'holdfast[yaml]', or write the list as JSON."
        raise MissingExtra(message, extra="yaml") from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = "" if where is None else f", line {where.line + 1}"
        problem = getattr(error, "problem", error)
        raise InvalidArgument(f"{file} must be YAML{line}: {problem}.", name="questions") from None


@dataclass(frozen=True)
class Prices:
    """What questions would cost: `each`, and all together.

    Parameters
    ----------
    each
        The price of each, if those before it are asked first.
    answers, rows_read
        By how much the number of answers left will fall, and how many rows will be read.
    affordable
        Whether the budget can pay for all of them.
    """

    each: tuple[Price, ...]
    answers: int
    rows_read: int
    affordable: bool

    @classmethod
    def of(
        cls,
        questions: Sequence[Question],
        guarantee: Guarantee,
        spent: Spent,
        answered: Answered,
        is_answered: Callable[[Question], bool],
    ) -> "Prices":
        """Return the prices of questions.

        Parameters
        ----------
        questions, guarantee, spent
            What is asked, under which guarantee, and what was spent before.
        answered
            The cost of the answers given so far.
        is_answered
            Whether a question was asked before.
        """
        _refuse_looks(questions)
        each: list[Price] = []
        seen: set[str] = set()
        now = spent
        for one in questions:
            cached = one.identity in seen or is_answered(one)
            each.append(Price.of(one, guarantee, now, answered, cached=cached))
            if not cached:
                now = Spent(now.charge + one.cost.charge, now.intervals + one.cost.intervals, now.answers + 1)
                seen.add(one.identity or "")
        affordable, answers = all(price.affordable for price in each), sum(price.answers for price in each)
        if not affordable:
            answers = guarantee.terms.worth(now.charge - spent.charge, now.intervals - spent.intervals)
        return cls(tuple(each), answers, sum(price.rows_read for price in each), affordable)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        total = {"answers": self.answers, "rows_read": self.rows_read, "affordable": self.affordable}
        return total | {"prices": [price.to_dict() for price in self.each]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Prices":
        """Rebuild prices.

        Parameters
        ----------
        values
            What `to_dict` wrote.

        Returns
        -------
        Prices
            The same prices.
        """
        each = tuple(Price.from_dict(price) for price in values["prices"])
        return cls(each, values["answers"], values["rows_read"], values["affordable"])

    def __str__(self) -> str:
        short = "" if self.affordable else "; more than is left"
        total = f"{write_answers(self.answers)} of the budget, {self.rows_read:,} rows read, for all of them{short}"
        return "\n".join([*map(str, self.each), total])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = []
        for price in self.each:
            margin = "" if price.margin is None else plus_minus(price.margin)
            answers = "free" if price.cached else f"{price.answers:,}"
            rows.append((brief(price.question), answers, f"{price.rows_read:,}", margin))
        total = "all of them" if self.affordable else "all of them: more than is left"
        rows.append((total, f"{self.answers:,}", f"{self.rows_read:,}", ""))
        return notebook.table(("question", "answers", "rows read", "margin"), rows)


class Answers(Pictured, Sequence[AnyAnswer]):
    """Answers to several questions, in their order; `frame` has a line for every interval.

    Parameters
    ----------
    answers
        The answers.
    """

    def __init__(self, answers: Iterable[AnyAnswer]) -> None:
        self._answers = tuple(answers)

    def __len__(self) -> int:
        return len(self._answers)

    def __getitem__(self, place: Any) -> Any:
        return self._answers[place]

    def __iter__(self) -> Iterator[AnyAnswer]:
        return iter(self._answers)

    @property
    def frame(self) -> pl.DataFrame:
        """Question, category, value, low and high."""
        lines = [(answer.question, label, estimate) for answer in self for label, estimate in answer.rows()]
        return pl.DataFrame(
            {
                "question": [question for question, _, _ in lines],
                "category": pl.Series([label for _, label, _ in lines], dtype=pl.String),
                **{name: [estimate.to_json()[name] for _, _, estimate in lines] for name in ("value", "low", "high")},
            }
        )

    def plot(self) -> Picture:
        """Return a picture of all intervals, those with the same declared range in one panel."""
        panels: dict[tuple[float, float], list[tuple[str, str, Estimate]]] = {}
        for answer in self:
            for label, estimate in answer.rows():
                group, name = ("", answer.question) if label is None else (answer.question, label)
                panels.setdefault(answer.bounds, []).append((group, name, estimate))
        drawn = []
        for bounds, named in panels.items():
            lines = picture_lines([(name, estimate) for _, name, estimate in named])
            grouped = [replace(line, question=group) for line, (group, _, _) in zip(lines, named, strict=True)]
            drawn.append(Panel("between {:.15g} and {:.15g}".format(*bounds), tuple(grouped), bounds))
        return Picture(drawn)

    def _lines(self) -> list[tuple[str, str, str]]:
        found = []
        for answer in self:
            for label, estimate in answer.rows():
                value, interval = written(estimate)
                question = brief(answer.question)
                found.append((question if label is None else f"{question}: {label}", value, interval))
        return found

    def __repr__(self) -> str:
        lines = self._lines()
        widest = max((len(value) for _, value, _ in lines), default=0)
        far = max((len(interval) for _, _, interval in lines), default=0)
        return "\n".join(f"{value:>{widest}}  {interval:<{far}}  {question}" for question, value, interval in lines)

    def _repr_html_(self) -> str:
        return notebook.table(("question", "answer", "interval"), self._lines())


KEPT, BROKEN, OPEN = "kept", "broken", "open"
ENDS = ("at_least", "at_most")


@dataclass(frozen=True)
class Expected:
    """A question, and the range that its answer should lie in."""

    question: Mapping[str, object]
    at_least: float = -inf
    at_most: float = inf

    def verdict(self, one: Estimate) -> str:
        """Say whether an interval lies inside (kept), outside (broken) or neither (open).

        >>> few = Expected({"query": "late"}, at_most=0.3)
        >>> [few.verdict(Estimate(0.2, 0.1, high)) for high in (0.3, 0.4)], few.verdict(Estimate(0.5, 0.4, 0.6))
        (['kept', 'open'], 'broken')
        """
        if self.at_least <= one.low and one.high <= self.at_most:
            return KEPT
        return BROKEN if one.high < self.at_least or self.at_most < one.low else OPEN

    @property
    def text(self) -> str:
        """What is expected, in words."""
        ends = {"at least": self.at_least, "at most": self.at_most}
        return ", ".join(f"{name} {end:.6g}" for name, end in ends.items() if abs(end) != inf)


def read_expectations(path: str | Path) -> list[Expected]:
    """Read expectations from a YAML file, or a JSON file; a refusal names the place of the faulty one."""
    found = [_read_expected(one, place) for place, one in enumerate(read_list(path), start=1)]
    if not found:
        raise InvalidArgument(f"{path} has no expectations.", name="expectations")
    return found


def _read_expected(one: object, place: int) -> Expected:
    where = f"Expectation {place}"
    example = "such as {query: dep_delay > 15, expect: {at_most: 0.3}}"
    if not isinstance(one, Mapping) or not isinstance(one.get("expect"), Mapping) or not one["expect"]:
        raise InvalidArgument(f"{where} must be a question with `expect`, {example}; got {one!r}.", name="expectations")
    ends: dict[str, Any] = dict(one["expect"])
    for name, end in ends.items():
        check.one_of(f"{where}: a name in expect", name, ENDS)
        if isinstance(end, bool) or not isinstance(end, int | float):
            raise InvalidArgument(f"{where}: {name} must be a number; got {end!r}.", name="expectations")
    if ends.get("at_least", -inf) > ends.get("at_most", inf):
        raise InvalidArgument(f"{where}: at_least must be no more than at_most.", name="expectations")
    return Expected({name: value for name, value in one.items() if name != "expect"}, **ends)


def refuse_unreachable(expectations: Sequence[Expected], dry_run: Callable[..., AnyAnswer]) -> None:
    """Refuse an end outside the range that the answer has: no answer could ever break it, or keep it. Spends nothing.

    A share expected to be at most 30, for 30%, would pass forever.
    """
    for place, requested in enumerate(expectations, start=1):
        try:
            low, high = dry_run_of(requested.question, dry_run).bounds
        except HoldfastError as error:
            error.message = f"Expectation {place}: {error.message}"
            raise
        for name in ENDS:
            end = getattr(requested, name)
            if abs(end) != inf and not low <= end <= high:
                hint = check.percent(end) if (low, high) == (0.0, 1.0) else ""
                raise InvalidArgument(
                    f"Expectation {place}: {name} must be between {low:.6g} and {high:.6g}, the range of the answer;"
                    f" got {end:g}.{hint}",
                    name="expectations",
                )


@dataclass(frozen=True)
class Verdict:
    """One line of the report: an interval, what was expected of it, and whether that was kept."""

    question: str
    expected: str
    estimate: Estimate
    outcome: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        facts = {"question": self.question, "expected": self.expected, "outcome": self.outcome}
        return facts | self.estimate.to_json()


def judge(expectations: Sequence[Expected], answers: Sequence[AnyAnswer]) -> list[Verdict]:
    """Return a verdict for every interval of every answer."""
    return [
        Verdict(
            answer.question if label is None else f"{answer.question}: {label}",
            requested.text,
            one,
            requested.verdict(one),
        )
        for requested, answer in zip(expectations, answers, strict=True)
        for label, one in answer.rows()
    ]
