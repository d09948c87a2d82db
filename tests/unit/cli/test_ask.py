"""`holdfast ask` has every kind with every option that the registry describes, and refuses as `Session.ask` does."""

import json
import re
from inspect import signature
from typing import Annotated, Any

import pytest

import toys
from examples import few
from holdfast import InvalidArgument, Session
from holdfast.cli import main
from holdfast.cli.output import PLAN_FLAGS, spell
from holdfast.guarantees import GUARANTEES
from holdfast.mechanisms import MECHANISMS
from holdfast.questions import KINDS
from holdfast.questions.answer import Answer
from holdfast.questions.kind import Kind, kind_of
from holdfast.questions.mean import mean
from holdfast.questions.options import About, Choice, Form, Option, Query, Whole
from holdfast.questions.question import Context, Question

ROWS = "evens:100000"  # a row source of the toys, so that nothing is written
SUBJECTS = {"loss": "squared: even ~ number [0, 100000]"}
USUAL_KIND = signature(Session.ask).parameters["kind"].default
OWN = [(kind.name, option.name) for kind in KINDS.all() for option in kind.options[1:]]


@pytest.fixture(autouse=True)
def modules():
    with toys.added() as found:
        yield found


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """Run with --json; return the exit code and the document."""
    with pytest.raises(SystemExit) as ended:
        main(["ask", *words, "--json"])
    return int(ended.value.code or 0), json.loads(capsys.readouterr().out)


def subject(kind: Kind[..., Any]) -> str:
    return SUBJECTS.get(kind.subject.name, "even")


def example(form: Form) -> str:
    return form.words[0] if isinstance(form, Choice) else form.example


def required(kind: Kind[..., Any]) -> dict[str, str]:
    return {option.name: example(option.form) for option in kind.options[1:] if option.required}


def flags(texts: dict[str, str]) -> list[str]:
    return [word for name, text in texts.items() for word in ("--" + name.replace("_", "-"), text)]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, str, dict[str, object]]]:
    """What reaches `Session.ask`; it answers nothing."""
    calls: list[tuple[object, str, dict[str, object]]] = []

    def record(self: Session, query: object, kind: str = USUAL_KIND, **options: object) -> object:
        calls.append((query, kind, options))
        return self.dry_run("even")

    monkeypatch.setattr(Session, "ask", record)
    return calls


@pytest.mark.parametrize(("kind_name", "option_name"), [*OWN, ("percent", "where"), ("percent", "digits")])
def test_every_option_of_every_kind_reaches_the_session(capsys, asked, kind_name, option_name):
    kind = KINDS[kind_name]
    option = next(one for one in kind.options if one.name == option_name)
    texts = required(kind) | {option_name: example(option.form)}
    code, document = run(capsys, ROWS, subject(kind), "--kind", kind_name, *flags(texts))
    assert code == 0, document
    forms = {one.name: one.form for one in kind.options}
    read = {name: forms[name].parse(name, text) for name, text in texts.items()}
    assert asked == [(kind.subject.form.argument(kind.subject.name, subject(kind)), kind_name, read)]


@pytest.mark.parametrize("kind_name", [kind.name for kind in KINDS.all()] + ["percent"])
def test_what_is_left_out_is_left_to_the_kind(capsys, asked, kind_name):
    kind = KINDS[kind_name]
    code, document = run(capsys, ROWS, subject(kind), "--kind", kind_name, *flags(required(kind)))
    assert code == 0, document
    ((_, _, options),) = asked
    assert set(options) == set(required(kind))


def test_the_usual_kind_is_that_of_the_session(capsys, asked):
    run(capsys, ROWS, "even")
    assert asked == [("even", USUAL_KIND, {})]


def foreign() -> list[tuple[str, Option]]:
    """An option of each kind with one that this kind does not have."""
    everything = {option.name: option for kind in KINDS.all() for option in kind.options[1:]}
    found = []
    for kind in KINDS.all():
        names = {option.name for option in kind.options}
        found += [(kind.name, option) for name, option in everything.items() if name not in names]
    return found


@pytest.mark.parametrize(("kind_name", "option"), few(foreign()), ids=lambda one: getattr(one, "name", one))
def test_an_option_of_another_kind_is_refused_as_the_session_refuses_it(capsys, kind_name, option):
    kind = KINDS[kind_name]
    text = example(option.form)
    code, document = run(capsys, ROWS, subject(kind), "--kind", kind_name, *flags(required(kind) | {option.name: text}))
    given = {
        one.name: one.form.parse(one.name, example(one.form)) for one in (*kind.options[1:], option) if one.required
    }
    given[option.name] = option.form.parse(option.name, text)
    with pytest.raises(InvalidArgument) as refused:
        Session(ROWS, queries=100).ask(kind.subject.form.parse("subject", subject(kind)), kind_name, **given)
    assert (code, document["kind"]) == (InvalidArgument.exit_code, InvalidArgument.kind)
    assert document["details"] == refused.value.fields
    assert document["error"].startswith(f"{kind_name} has no option --{option.name.replace('_', '-')}.")
    assert without_spelling(document["error"]) == without_spelling(str(refused.value), kind.subject.name)


def without_spelling(text: str, subject_name: str = "QUESTION") -> str:
    text = re.sub(rf"\b{subject_name}\b", "QUESTION", text.replace("'", ""))
    return re.sub(r"--([\w-]+)", lambda flag: flag[1].replace("-", "_"), text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--kind", "quantile"], "quantile needs --q, such as 0.9."),
        (["--kind", "quantile", "--q", "half", "--within", "0,1"], "--q must be a number; got 'half'."),
        (["--kind", "quantile", "--q", "2", "--within", "0,1"], "--q must be between 0 and 1; got 2.0."),
        (["--within", "1"], "--within must be 2 numbers"),
        (["--rows-per-query", "9", "--margin", "0.1"], "Give --rows-per-query or --margin, not both."),
        (["--margin", "0"], "--margin must be positive"),
        (["--margin", "0.1", "--where", "even"], "Use --rows-per-query to spend more or less, or declare"),
        (["--plan-margin", "0"], "--plan-margin must be strictly between 0 and 1"),
        (["--plan-margin", "0.1", "--queries", "9"], "Give --queries or --plan-margin, not both"),
        (["--guarantee", "hope"], "--guarantee must be one of 'best', "),
        (["--plan-mechanism", "hope"], "--plan-mechanism must be one of 'best', "),
        (["--kind", "mode"], "--kind must be one of "),
        (["--kind", "flips"], "Plan a session for them: --flips N"),
    ],
)
def test_messages_speak_the_command_line(capsys, words, message):
    code, document = run(capsys, ROWS, "even", *words)
    assert code != 0
    assert message in document["error"]


def test_a_missing_range_says_how_to_declare_it(capsys):
    code, document = run(capsys, ROWS, "number", "--kind", "quantile", "--q", "0.5")
    assert code != 0
    assert document["error"].startswith(
        "--within must say the range of 'number', low and high, such as --within 0 100."
    )
    assert "write number = [low, high] under [bounds] in a TOML file beside the data" in document["error"]
    assert not re.search(r"\w=(?!=)", document["error"])


def test_numbers_after_an_option_are_one_value(capsys, asked):
    run(capsys, ROWS, "number", "--within", "-60", "600", "--kind", "mean")
    run(capsys, ROWS, "number", "--within=-60,600")
    run(capsys, ROWS, "--within", "-60", "600", "number")
    assert [options for _, _, options in asked] == 3 * [{"within": (-60.0, 600.0)}]
    assert {query for query, _, _ in asked} == {"number"}


def test_one_question_opens_one_session(capsys, monkeypatch):
    opened = []
    real = Session.__init__
    monkeypatch.setattr(
        Session, "__init__", lambda self, *args, **options: opened.append(1) or real(self, *args, **options)
    )
    for words in ([], ["--price"], ["--dry-run"]):
        opened.clear()
        code, document = run(capsys, ROWS, "even", *words)
        assert (code, opened) == (0, [1]), document


def crowded(
    context: Context,
    query: Query,
    json: Annotated[int, About(Whole(), "An option whose name the command has for itself.")] = 1,
) -> Question:
    """Return what a mean returns."""
    return mean(context, query)


def test_an_option_whose_name_is_taken_gets_the_name_of_its_kind(capsys, asked):
    KINDS.register("crowded", kind_of(crowded, Answer))
    try:
        code, document = run(capsys, ROWS, "even", "--kind", "crowded", "--crowded-json", "7")
        assert (code, asked) == (0, [("even", "crowded", {"json": 7})]), document
    finally:
        KINDS.pop("crowded")


def test_help_has_every_kind_option_and_default(capsys):
    with pytest.raises(SystemExit):
        main(["ask", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "percent The share of rows for which QUESTION is true, in percent." in shown
    for kind in KINDS.all():
        assert f" {kind.name} " in shown
        for option in kind.options[1:]:
            assert "--" + option.name.replace("_", "-") in shown
            if option.default is not None:
                assert f"{kind.name} (default {option.default})" in shown
            if option.required:
                assert f"{kind.name} (required)" in shown
    for registry in (GUARANTEES, MECHANISMS):
        for name in registry.names():
            assert name in shown.split("Options of the plan:")[1]


def test_no_plan_needs_no_note(capsys):
    _, document = run(capsys, ROWS, "even", "--price")
    assert document["notes"] == []
    assert document["ledger_begun"] is False
    assert document["budget"]["answers_left"] is None


def test_what_the_data_is_called_is_no_option():
    message = "No column 'margin' in flights. It has: q, within, rows, rows_per_query."
    names = {name: f"--{name}" for name in ("margin", "q", "within", "rows", "rows_per_query")}
    assert spell(message, names) == message
    assert spell("within[0] must be a finite number; got 'a'.", names).startswith("--within[0] must")
    assert spell(message, PLAN_FLAGS) == message
    quoted = "A mean needs numbers or yes-or-no values; 'CASE WHEN guarantee='posterior' THEN margin=0 END' is a text."
    assert spell(quoted, names) == quoted


def test_errors_keep_their_class_and_fields(capsys):
    code, document = run(capsys, ROWS, "even", "--margin", "1e-9")
    assert (code, document["kind"]) == (4, "plan_infeasible")
    assert document["details"]["margin"] == 1e-9


@pytest.mark.parametrize(
    ("words", "way"),
    [
        (["ask", "mean", "flights.parquet", "late"], "its kind is said by --kind"),
        (["ask", "flights.parquet", "dep_delay", "15"], "Put the question in quotation marks"),
        (["sql", "flights.parquet", "SELECT", "COUNT(*)", "FROM", "flights"], "Put the statement in quotation marks"),
    ],
)
def test_a_question_that_the_shell_took_apart_is_told_the_way_out(words, way, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert way in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "way"),
    [
        (["ask", "flights.parquet", "late", "--filter", "hour > 3"], "Did you mean '--where'?"),
        (["ask", "flights.csv", "late", "--separator", ";"], "to holdfast open flights.csv --separator ';', which"),
        (["ask", "flights.csv", "late", "--types=zip code=text"], "open flights.csv --types 'zip code=text', which"),
        (["budget", "flights.csv", "--na-values", "NA"], "to holdfast open flights.csv --null-values NA, which"),
        (["mcp", "visits.parquet", "--unit", "patient"], "to holdfast open visits.parquet --unit patient, which"),
        (["ask", "flights.csv", "late", "--complete", "late,hour"], "open flights.csv --complete late,hour, which"),
        (["budget", "--types", "zip=text"], "give it once to holdfast open DATA --types, which"),
        (["open", "flights.csv", "--sep", ";"], "Did you mean '--separator'?"),
        (["ask", "flights.parquet", "late", "--nothing-like-it"], "No such option '--nothing-like-it'"),
    ],
)
def test_an_option_of_another_name_or_place_is_told_the_way_out(words, way, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert way in capsys.readouterr().err
