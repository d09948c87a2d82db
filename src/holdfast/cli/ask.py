"""Commands that ask: `holdfast ask`, with the options of every kind of question, `sql`, `batch` and `check`."""

from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, signature
from itertools import pairwise
from operator import methodcaller
from pathlib import Path
from re import sub
from typing import TYPE_CHECKING, Annotated, Any

import click

from holdfast.cli.options import Argument, Command, Flag, Price, open_session, spread, that_asks
from holdfast.cli.output import SHORT_BAR, bar, in_flags, note, noting_warnings, say, show_json, show_notes, table
from holdfast.errors import InvalidArgument

if TYPE_CHECKING:
    import polars as pl

    from holdfast.questions.answer import AnyAnswer
    from holdfast.questions.batch import Verdict
    from holdfast.questions.kind import Kind
    from holdfast.questions.options import Option
    from holdfast.session.session import Session

QUESTION = "Options of the question"


def _kinds(beginning: str) -> list[str]:
    from holdfast.questions import KINDS

    return [name for name in KINDS.names() if name.startswith(beginning)]


@that_asks
def ask(
    asked: Mapping[str, Any],
    question: Annotated[
        str,
        Argument(metavar="QUESTION", help='An expression about one row, such as "dep_delay > 15"; a loss for a fit.'),
    ],
    *,
    kind: Annotated[str, Flag(help="The kind of question.", section=QUESTION, complete=_kinds)] = "mean",
    texts: Mapping[str, str | None],
    price: Price = False,
    dry_run: Annotated[bool, Flag("--dry-run", help="Answer from made-up rows; spend nothing.")] = False,
) -> None:
    """Ask one question.

    The answer is for the population the rows were drawn from, not for these rows alone.

    \b
    A share, a mean (its range is declared, never read from the data), a group:
      holdfast ask flights.parquet "dep_delay > 15"
      holdfast ask flights.parquet distance --within 0 5000
      holdfast ask flights.parquet distance --within 0 5000 --where "carrier = 'UA'"
    Several groups, the difference of two:
      holdfast ask flights.parquet "dep_delay > 15" --by carrier --groups UA,AA,DL
      holdfast ask flights.parquet "dep_delay > 15" --kind difference --group "carrier = 'UA'" --other "carrier = 'AA'"
    A histogram, a quantile, a fit:
      holdfast ask flights.parquet carrier --kind histogram --categories UA,AA,DL
      holdfast ask flights.parquet dep_delay --kind histogram --bins 0,15,60
      holdfast ask flights.parquet dep_delay --kind quantile --q 0.9 --within -60 600
      holdfast ask flights.parquet "logistic: late ~ distance [0, 5000]" --kind minimize --radius 3
    Look before paying:
      holdfast ask flights.parquet "dep_delay > 15" --price

    The ledger begins with the first answer, under the plan given then; later the plan may be left out, and must agree
    if it is given. Asking the same question again is free.
    """
    from holdfast.questions import kind_named

    chosen = kind_named(kind)
    flags = _flags(chosen)
    with in_flags(flags):
        subject, options = _read(chosen, question, texts)
    act = methodcaller("price" if price else "dry_run" if dry_run else "ask", subject, chosen.name, **options)
    _run(asked, in_flags(flags)(act), _answer_json, _show_answer, price=price)


def _run(
    asked: Mapping[str, Any],
    act: "Callable[[Session], Any]",
    to_json: Callable[[Any], dict[str, Any]],
    show: Callable[[Any], None],
    *,
    price: bool = False,
) -> Any:
    """Open data and act; show the result (or the price), then what is left and where the ledger is."""
    plan = dict(asked)
    data, json, who = (
        plan.pop("data"),
        plan.pop("json"),
        {name: plan.pop(name) for name in ("ledger", "analyst", "unit")},
    )
    with noting_warnings() as notes, open_session(data, plan, **who) as session:
        before = session.ledger.begun
        result = act(session)
        budget, begun, location = session.budget, session.ledger.begun, session.ledger.location
    if json:
        document = {"price": result.to_dict()} if price else to_json(result)
        show_json(**document, budget=budget.to_dict(), ledger=location, ledger_begun=begun, notes=notes)
        return result
    show_notes(notes)
    if price:
        say(str(result))
    else:
        show(result)
    if begun and not before:
        shared = "It is the only one for these rows: everyone who asks them shares its budget."
        note(f"A new ledger begins: {location}. {shared}")
    note(f"{budget}; ledger {location}" + ("" if begun else ", which begins with the first answer"))
    return result


def _answer_json(answer: Any) -> dict[str, Any]:
    return {"answer": answer.to_dict()}


def _read(kind: "Kind[..., Any]", question: str, texts: Mapping[str, str | None]) -> tuple[object, dict[str, object]]:
    """Parse the question and the given options as the kind defines them; refuse options that it does not have."""
    own, flags = _parameters(kind), _flags(kind)
    given = {own[name].name if name in own else name: text for name, text in texts.items() if text is not None}
    kind.check_options((question,), given, lambda name: flags.get(name, _flag(name)))
    forms = {option.name: option.form for option in kind.options}
    options = {name: forms[name].parse(name, text) for name, text in given.items()}
    return kind.subject.form.argument(kind.subject.name, question), options


def _heading(answer: "AnyAnswer") -> str:
    from holdfast.questions.mean import GroupsAnswer

    return ", ".join(answer.by) if isinstance(answer, GroupsAnswer) else "category"


def _show_answer(answer: "AnyAnswer") -> None:
    from holdfast.questions.answer import Answer
    from holdfast.questions.check import SAYS, CheckAnswer
    from holdfast.questions.estimate import common_scale, rounded_alike, written

    say(answer.question, bold=True)
    if isinstance(answer, Answer):
        say("  ".join(written(answer)), bold=True)
        say(bar(answer, answer.bounds))
    elif isinstance(answer, CheckAnswer):
        ((_, estimate),) = answer.rows()
        say("  ".join((SAYS[answer.outcome], written(estimate)[1])), bold=True)
        say(bar(estimate, answer.bounds))
    elif isinstance(answer, Mapping):
        texts = rounded_alike([estimate for _, estimate in answer.rows()])
        every = list(answer.values())
        scale = common_scale(every, every[0].bounds)
        lines = [
            (label, value, f"[{low}, {high}]", bar(each, scale, SHORT_BAR))
            for (label, each), (value, low, high) in zip(answer.items(), texts, strict=True)
        ]
        table((_heading(answer), "value", "interval", ""), lines, right=(1,))
    elif isinstance(answer, Iterable):  # a series, which `repr` would shorten
        say("".join(map(str, answer)), bold=True)
        for _, estimate in answer.rows():
            say("  ".join(written(estimate)), bold=True)
            say(bar(estimate))
    else:
        say(repr(answer))
    if isinstance(answer, Answer | Mapping):  # other answers print their details themselves
        for name, text in answer.details():
            say(f"{name}: {text}")
    if answer.made_up:
        say("Made up: nothing was read or spent.")
        return
    read = "asked before: free" if answer.cached else f"{answer.rows_read:,} rows read"
    percent = f"{100 * answer.confidence:.12g}%"
    say(f"{read}, {answer.guarantee} guarantee, {percent} for all answers at once, no. {answer.seq} in the ledger")
    if isinstance(answer, CheckAnswer) and answer.value is not None:
        _show_answer(answer.value)


# -- options from kinds -----------------------------------------------------------------------------------------

OWN = [name for name in signature(ask).parameters if name != "texts"]


def _parameters(kind: "Kind[..., Any]") -> "dict[str, Option]":
    """Return the options of a kind by flag name: prefixed by the kind if this command uses the name itself."""
    taken = (*OWN, "help")
    return {f"{kind.name}_{each.name}" if each.name in taken else each.name: each for each in kind.options[1:]}


def _flag(parameter: str) -> str:
    return "--" + parameter.replace("_", "-")


def _flags(kind: "Kind[..., Any]") -> dict[str, str]:
    """Return how the question and the options of a kind are written on the command line."""
    return {each.name: _flag(name) for name, each in _parameters(kind).items()} | {kind.subject.name: "QUESTION"}


def _with_options_of(kinds: "Iterable[Kind[..., Any]]") -> Callable[..., None]:
    """Return the command with the options of these kinds in its signature."""
    uses: dict[str, list[tuple[Kind[..., Any], Option]]] = {}
    for kind in kinds:
        for name, option in _parameters(kind).items():
            uses.setdefault(name, []).append((kind, option))
    keyword = Parameter.KEYWORD_ONLY
    options = [Parameter(name, keyword, default=None, annotation=_option(name, uses[name])) for name in uses]
    return spread(ask, texts=options)


def _option(name: str, uses: "list[tuple[Kind[..., Any], Option]]") -> Any:
    """Describe an option: each meaning once, with the kinds of questions that share it."""
    from holdfast.questions.options import Choice

    meanings: dict[str, list[str]] = {}
    for kind, option in uses:
        remark = " (required)" if option.required else "" if option.default is None else f" (default {option.default})"
        meanings.setdefault(_in_flags_of(kind, option.help), []).append(kind.name + remark)
    text = " ".join(f"{meaning} [{', '.join(kinds)}]" for meaning, kinds in meanings.items())
    form, metavar = uses[0][1].form, "VALUE"
    if isinstance(form, Choice):
        metavar = form.example
    elif form.example:
        example = form.example.replace(", ", ",")  # one word for the shell
        text += f' Example: "{example}"' if " " in example else f" Example: {example}"
    return Annotated[str | None, Flag(_flag(name), metavar=metavar, help=text, section=QUESTION)]


class AskCommand(Command):
    """Accepts the options of the kind that is asked; its help lists those of all kinds."""

    def __init__(self, name: str, function: Callable[..., None], *, no_args_is_help: bool = False) -> None:
        super().__init__(name, spread(function, texts=()), no_args_is_help=no_args_is_help)
        self._own = {flag for param in self.params for flag in (*param.opts, *param.secondary_opts)}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Join numbers: `--within -60 600` becomes `--within=-60,600`."""
        self.take(_with_options_of(self._kinds(args if not ctx.resilient_parsing else [])))
        flags = {opt for param in self.params if param.name not in OWN for opt in param.opts}
        joined: list[str] = []
        numbers = False  # whether the last word is an option's value that more numbers may follow
        for word in args:
            if numbers and _is_number(word):
                joined[-1] += f",{word}"
                continue
            numbers = bool(joined) and joined[-1] in flags and _is_number(word)
            joined.append(word)
        return super().parse_args(ctx, joined)

    def _kinds(self, args: list[str]) -> "tuple[Kind[..., Any], ...]":
        """Return only the kind that is asked, to import no other; all kinds if an option does not belong to it."""
        from holdfast.questions import KINDS

        words = [part for word in args for part in (word.split("=", 1) if word.startswith("--") else [word])]
        named = [value for flag, value in pairwise(words) if flag == "--kind"] or ["mean"]
        kind = KINDS.find(named[-1])
        known = self._own if kind is None else {*self._own, *_flags(kind).values()}
        given = {word for word in words if word.startswith("-") and not _is_number(word)}
        return KINDS.all() if kind is None or not args or given - known else (kind,)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the kinds, then the options."""
        from holdfast.questions import KINDS

        with formatter.section("Kinds of questions"):
            formatter.write_dl([(kind.name, _summary(kind)) for kind in KINDS.all()])
        super().format_options(ctx, formatter)


def _summary(kind: "Kind[..., Any]") -> str:
    """Describe the kind for the command line: with flags, and without "Return"."""
    text = _in_flags_of(kind, kind.summary.removeprefix("Return "))
    return text[:1].upper() + text[1:]


def _in_flags_of(kind: "Kind[..., Any]", text: str) -> str:
    """Write the names of a kind's options as flags; a subject that is no expression keeps its own name."""
    from holdfast.questions.options import Text

    flags = _flags(kind)
    if not isinstance(kind.subject.form, Text):
        del flags[kind.subject.name]
    return sub(r"`(\w+)`", lambda name: flags.get(name[1], name[1]), text)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


COMMANDS = {"ask": AskCommand("ask", ask, no_args_is_help=True)}


# -- several questions at once ----------------------------------------------------------------------------------


@that_asks
def sql(
    asked: Mapping[str, Any],
    statement: Annotated[str, Argument(metavar="SELECT", help="Aggregates over the data.")],
    price: Price = False,
) -> None:
    """Answer a SELECT of aggregates: a row for each group, and an interval for every value.

    Every aggregate is a separate question. Aggregates: AVG (also of a condition), COUNT, SUM, MEDIAN, QUANTILE, STDDEV,
    VARIANCE, CORR and COVAR_POP. The table's name is that of the file, without its extension. Declare the ranges of
    numbers and the groups of GROUP BY in a TOML file beside the data: flights.toml for flights.parquet.

    \b
    holdfast sql flights.parquet "SELECT AVG(dep_delay > 15) FROM flights WHERE month = 1"
    holdfast sql flights.parquet "SELECT carrier, AVG(dep_delay), COUNT(*) FROM flights GROUP BY carrier"
    """
    act = methodcaller("price_sql" if price else "sql", statement)
    _run(asked, act, _frame_json, _show_frame, price=price)


def _frame_json(frame: "pl.DataFrame") -> dict[str, Any]:
    return {"columns": frame.columns, "rows": frame.rows()}


def _show_frame(frame: "pl.DataFrame") -> None:
    from holdfast.questions.sql import written_table

    headings, rows, numbers = written_table(frame)
    table(headings, rows, right=numbers)


@that_asks
def batch(
    asked: Mapping[str, Any],
    questions: Annotated[str, Argument(metavar="QUESTIONS", help="A YAML or JSON file with a list of questions.")],
    price: Price = False,
    register: Annotated[bool, Flag("--register", help="Write the list into the ledger, and ask nothing yet.")] = False,
) -> None:
    """Ask a list of questions at once, registered in the ledger before the first answer.

    All are checked and paid for together: either all are answered, or none. The history shows which questions were on a
    list before they were asked.

    \b
    A question is text, or has a kind and options, as in questions.yml:
      - dep_delay > 15
      - {query: distance, within: [0, 5000], where: carrier = 'UA'}
      - {kind: quantile, query: dep_delay, q: 0.9, within: [-60, 600]}
    \b
    holdfast batch flights.parquet questions.yml --price
    holdfast batch flights.parquet questions.yml
    """
    from holdfast.questions.batch import Questions

    act = methodcaller("price_many" if price else "register" if register else "ask_many", Questions.read(questions))
    if register:
        _run(asked, act, _answer_json, lambda registration: say(repr(registration)), price=price)
    else:
        _run(asked, act, _answers_json, _show_answers, price=price)


def _answers_json(answers: "Iterable[AnyAnswer]") -> dict[str, Any]:
    return {"answers": [answer.to_dict() for answer in answers]}


def _show_answers(answers: "Iterable[AnyAnswer]") -> None:
    from holdfast.questions.estimate import written

    lines = [
        (answer.question if label is None else f"{answer.question}: {label}", *written(estimate))
        for answer in answers
        for label, estimate in answer.rows()
    ]
    table(("question", "value", "interval"), lines, right=(1,))


BROKEN_CODE, OPEN_CODE = 20, 21  # above the exit codes of errors


@that_asks
def check(
    asked: Mapping[str, Any],
    expectations: Annotated[
        str, Argument(metavar="EXPECTATIONS", help="A YAML or JSON file with a list of expectations.")
    ],
    strict: Annotated[
        bool, Flag("--strict", help="Exit with code 21 if an interval leaves an expectation open.")
    ] = False,
) -> None:
    """Check expectations about the population, for a build that should fail if one is broken.

    An expectation is kept if the whole interval is inside it, broken if the whole interval is outside, and open
    otherwise. The exit code is 0, or 20 if one is broken. All verdicts hold at once, and checking a list again is free.

    \b
    As in expectations.yml:
      - {query: dep_delay > 15, expect: {at_most: 0.3}}
      - {query: distance, within: [0, 5000], expect: {at_least: 900, at_most: 1200}}
    \b
    holdfast check flights.parquet expectations.yml
    """
    from holdfast.questions.batch import BROKEN, OPEN, judge, read_expectations, refuse_unreachable

    if not Path(expectations).is_file():
        raise InvalidArgument(
            f"There is no file {expectations!r} with expectations. To check one guess on rows that are kept aside:"
            f' holdfast ask {asked["data"]} "{expectations}" --kind check',
            name="expectations",
        )
    requested = read_expectations(expectations)

    def act(session: "Session") -> "list[Verdict]":
        refuse_unreachable(requested, session.dry_run)
        return judge(requested, session.ask_many([dict(one.question) for one in requested]))

    verdicts = _run(asked, act, _verdicts_json, _show_verdicts)
    outcomes = [one.outcome for one in verdicts]
    if BROKEN in outcomes:
        raise click.exceptions.Exit(BROKEN_CODE)
    if strict and OPEN in outcomes:
        raise click.exceptions.Exit(OPEN_CODE)


def _verdicts_json(verdicts: "list[Verdict]") -> dict[str, Any]:
    return {"expectations": [one.to_dict() for one in verdicts]}


def _show_verdicts(verdicts: "list[Verdict]") -> None:
    from holdfast.questions.estimate import written

    lines = [(one.outcome, one.question, one.expected, *written(one.estimate)) for one in verdicts]
    table(("", "question", "expected", "value", "interval"), lines, right=(3,))
    outcomes = [one.outcome for one in verdicts]
    counts = ", ".join(f"{outcomes.count(name)} {name}" for name in dict.fromkeys(outcomes))
    say(f"{len(outcomes)} expectation{'' if len(outcomes) == 1 else 's'}: {counts}.", bold=True)
