"""One description of each kind: wherever one asks, there are the same kinds, options, defaults and refusals.

Compared are the verbs of `Session` and of both clients, the HTTP schema, the form on the page, the tools of agents and
the command line (whose refusals, in flags, are compared in the tests of `holdfast ask`), for every kind that is
registered, the toy of the page about extending included.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from html import unescape
from inspect import signature
from pathlib import Path
from typing import Any, get_args

import anyio
import numpy as np
import polars as pl
import pytest
from anyio.from_thread import start_blocking_portal

import holdfast as hf
from holdfast.cli import main
from holdfast.cli.ask import _with_options_of
from holdfast.questions import KINDS
from holdfast.questions.kind import Kind
from holdfast.questions.options import BoxForm, Choice, Form, QuestionList, Real, Reals, ShortText, Text, Whole
from holdfast.questions.predictions import PredictionsForm
from holdfast.questions.verbs import verb
from holdfast.service.client import AsyncRemoteSession, RemoteSession, connect, connect_async
from holdfast.service.errors import error_payload
from holdfast.service.forms import OF_UNITS
from holdfast.service.mcp import Tools
from holdfast.session.session import Session
from serving import Running, settings
from toys import added

API = "/api/v1/datasets/flights"
TOYS = ("percent",)
OWN = KINDS.names()
ANY_KIND = pytest.mark.parametrize("name", [*OWN, *TOYS])
# Questions that can be asked; of other kinds, the example of every option that is required.
ASKABLE: dict[str, dict[str, Any]] = {
    "difference": {"query": "late", "group": "carrier = 'UA'", "other": "carrier = 'AA'"},
    "total": {"query": "distance", "within": (0.0, 5_000.0)},
    "covariance": {"query": "late", "other": "distance", "other_within": (0.0, 5_000.0)},
    "correlation": {"query": "late", "other": "distance", "other_within": (0.0, 5_000.0)},
    "slope": {"query": "late", "other": "distance", "other_within": (0.0, 5_000.0)},
    "histogram": {"query": "carrier", "categories": ["UA", "AA"]},
    "auc": {"query": "dep_delay", "positive": "late", "within": (-60.0, 600.0), "cuts": [0.0, 15.0]},
    "top": {"query": "carrier", "longest": 2, "most": 2, "alphabet": "ADLU"},
    "quantile": {"query": "dep_delay", "q": 0.9, "within": (-60.0, 600.0), "steps": 2},
    "minimize": {"loss": "logistic: late ~ distance [0, 5000]", "radius": 1.0, "iterations": 2},
    "submit": {"predictions": "id,prediction\n" + "\n".join(f"{number},true" for number in range(200))},
    "confusion": {"predictions": "id,prediction\n" + "\n".join(f"{number},true" for number in range(4_000))},
}


def table(folder: Path, seed: int = 3) -> Path:
    """Write flights with the columns that the examples of options name."""
    rng, rows = np.random.default_rng(seed), 20_000
    columns = {
        "dep_delay": rng.gamma(1.5, 12.0, rows) - 10,
        "distance": rng.integers(80, 5_000, rows),
        "month": rng.integers(1, 13, rows),
        "carrier": rng.choice(["UA", "AA", "DL"], rows),
        "late": rng.random(rows) < 0.2,
        "plane": rng.integers(0, 8_000, rows),
    }
    path = folder / "flights.parquet"
    pl.DataFrame(columns).write_parquet(path)
    return path


@pytest.fixture(scope="module", autouse=True)
def toys() -> Iterator[None]:
    with added():
        yield


@pytest.fixture(scope="module")
def server(toys: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    plan = {"queries": {"mean": 500, "flip": 500}}
    with Running(settings(table(tmp_path_factory.mktemp("surfaces")), dataset=plan)) as running:
        yield running


@pytest.fixture(scope="module")
def units_server(toys: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server for data of units, which the kind `units` is for."""
    plan = {"queries": 500, "unit": "plane"}
    with Running(settings(table(tmp_path_factory.mktemp("units"), seed=5), dataset=plan)) as running:
        yield running


@pytest.fixture(scope="module")
def checking_server(toys: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server for rows that were held back: they answer checks, and nothing else does."""
    path = table(tmp_path_factory.mktemp("checks"), seed=4)
    hf.hold_back(path)[1].close()
    served = settings(path.with_name("flights.held.holdfast"), dataset={"queries": None})
    (held,) = served.datasets.values()
    with Running(replace(served, datasets={"flights": held})) as running:
        yield running


@pytest.fixture(scope="module")
def board_server(toys: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server for a board, which takes submissions alone."""
    labels = tmp_path_factory.mktemp("board") / "flights.csv"
    pl.DataFrame({"id": range(200), "label": [number % 3 > 0 for number in range(200)]}).write_csv(labels)
    hf.Board(labels).close()
    served = settings(labels.with_name("flights.board.holdfast"), dataset={"queries": None})
    (board,) = served.datasets.values()
    with Running(replace(served, datasets={"flights": board})) as running:
        yield running


@pytest.fixture(scope="module")
def confusion_server(toys: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server for the rows of a board that answer."""
    labels = tmp_path_factory.mktemp("confusion") / "flights.csv"
    pl.DataFrame({"id": range(4_000), "label": [number % 3 > 0 for number in range(4_000)]}).write_csv(labels)
    hf.Board(labels, confusion=0.5).close()
    with Running(settings(labels.with_name("flights.confusion.holdfast"), dataset={"queries": None})) as running:
        yield running


def askable(kind: Kind[..., Any]) -> dict[str, Any]:
    """Return subject and options of a question that can be asked, as a caller in Python writes them."""
    required = [option for option in kind.options if option.required]
    return ASKABLE.get(kind.name) or {one.name: one.form.parse(one.name, one.form.example) for one in required}


def described(kind: Kind[..., Any]) -> dict[str, Any]:
    """Return the options of a kind and their defaults; `...` where there is none."""
    return {option.name: ... if option.required else option.default for option in kind.options}


# -- kinds, options, defaults -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("asker", [Session, RemoteSession, AsyncRemoteSession])
def test_every_session_has_a_verb_with_the_signature_of_the_kind(name: str, asker: Any) -> None:
    found, expected = signature(getattr(asker, name)), signature(verb(KINDS[name]))
    assert found == expected
    parameters = list(found.parameters.values())[1:]
    defaults = {one.name: ... if one.default is one.empty else one.default for one in parameters}
    assert defaults == described(KINDS[name])
    assert getattr(asker, name).__doc__ == KINDS[name].build.__doc__


@ANY_KIND
def test_openapi_describes_the_kind(server: Running, name: str) -> None:
    with server.client() as client:
        schemas = client.get("/api/v1/openapi.json").json()["components"]["schemas"]
    assert set(schemas["AskIn"]["discriminator"]["mapping"]) == {*OWN, *TOYS}
    model = schemas[schemas["AskIn"]["discriminator"]["mapping"][name].rpartition("/")[2]]
    options = {key: value for key, value in model["properties"].items() if key != "kind"}
    found = {key: ... if key in model["required"] else value["default"] for key, value in options.items()}
    assert found == described(KINDS[name])
    assert {key: value["description"] for key, value in options.items()} == {
        o.name: o.help for o in KINDS[name].options
    }


@ANY_KIND
def test_the_page_has_a_form_for_the_kind(server: Running, name: str) -> None:
    with server.client(server.token()) as client:
        page = client.get("/datasets/flights", params={"kind": name, "format": "json"}).json()
        html = client.get("/datasets/flights", params={"kind": name}, headers={"Accept": "text/html"}).text
    refused = {"check", "confusion", "submit", "units"}  # by these rows, whatever is asked: a form does not offer it
    assert {one["name"] for one in page["kinds"]} == {*OWN, *TOYS} - refused
    fields = {one["name"]: one for one in page["form"]["fields"] + page["form"]["more"]}
    for option in KINDS[name].options:
        if option.name in OF_UNITS:  # these rows belong to none
            continue
        field = fields.pop(option.name)
        assert (field["required"], field["help"]) == (option.required, option.help)
        assert field["value"] == ("" if option.default is None else str(option.default))
        assert f'name="{option.name}"' in html
    assert fields == {}


@ANY_KIND
@pytest.mark.parametrize("tool", ["ask", "price"])
def test_the_tools_of_agents_take_the_options_of_the_kind(name: str, tool: str) -> None:
    found = {one.name: one for one in Tools({}).described()}[tool]
    properties = found.input_schema["properties"]
    assert set(properties["kind"]["enum"]) == {*OWN, *TOYS}
    for option in KINDS[name].options:
        assert name in properties[option.name]["description"].partition(".")[0]
        if option.default is not None:
            assert properties[option.name]["default"] == option.default
    every = {option.name for kind in KINDS.all() for option in kind.options}
    assert set(properties) - every - {"kind", "dataset", "idempotency_key"} == set()


def command_line_options(kind: Kind[..., Any]) -> dict[str, str | None]:
    """Return the options of a kind on the command line, and the default that their help names."""
    found = {}
    for parameter in signature(_with_options_of([kind])).parameters.values():
        help_text = getattr(get_args(parameter.annotation)[1].parameter(parameter.name, str, None), "help", None) or ""
        stated = re.search(rf"[\[ ]{kind.name}(?P<remark> \([^)]*\))?[,\]]", help_text)
        if stated is not None:
            name = parameter.name.removeprefix(f"{kind.name}_")  # where the command has an option of that name
            found[name] = (stated["remark"] or "").strip(" ()").removeprefix("default ") or None
    return found


@ANY_KIND
def test_the_command_line_has_the_options_of_the_kind(name: str) -> None:
    expected = {
        option.name: "required" if option.required else None if option.default is None else str(option.default)
        for option in KINDS[name].options[1:]
    }
    assert command_line_options(KINDS[name]) == expected


# -- answers ----------------------------------------------------------------------------------------------------------


@ANY_KIND
def test_every_surface_answers_the_kind(
    server: Running,
    checking_server: Running,
    board_server: Running,
    confusion_server: Running,
    units_server: Running,
    name: str,
) -> None:
    others = {"check": checking_server, "submit": board_server, "units": units_server, "confusion": confusion_server}
    server = others.get(name, server)
    dataset = "flights.confusion" if name == "confusion" else "flights"
    kind = KINDS[name]
    question = askable(kind)
    subject = kind.subject.form.from_json(question[kind.subject.name])
    options = {key: value for key, value in question.items() if key != kind.subject.name}
    with connect(server.url, server.token()) as client:
        first = getattr(client, name)(subject, **options)
        assert type(first) is kind.answer
        assert first.kind == name
        assert client.price(subject, name, **options).question == first.question
        assert type(client.dry_run(subject, name, **options)) is kind.answer

    async def later() -> hf.AnyAnswer:
        async with await connect_async(server.url, server.token()) as session:
            answer: hf.AnyAnswer = await getattr(session, name)(subject, **options)
            return answer

    second = anyio.run(later)
    assert second.question == first.question
    assert second.cached or second.seq != first.seq  # flips are new each time
    session = server.state.datasets.get(dataset, server.state.admin).session
    local = getattr(session, name)(subject, **options)
    assert local.question == first.question
    tools = Tools({dataset: session})
    arguments = {"kind": name, **kind.to_json(kind.from_json(question)), "idempotency_key": "once"}
    told = anyio.run(tools.call, "ask", arguments).structured_content
    assert told is not None
    assert told["answer"]["question"] == first.question
    with server.client(server.token(), Accept="text/html") as browser:
        form = {"kind": name} | {key: written(value) for key, value in question.items()}
        page = browser.post(f"/datasets/{dataset}/ask", data=form)
        assert page.status_code == 200
        assert first.question in unescape(page.text)


# -- refusals ---------------------------------------------------------------------------------------------------------


def written(value: Any) -> str:
    """Write a value as a person types it."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def wrong_value(form: Form) -> Any:
    """Return a value that fits the type of a form and breaks its rule; None if there is none."""
    match form:
        case Whole():
            return form.least - 1
        case Real():
            return -1.5
        case Reals(count=2) | BoxForm():
            return (5.5, 1.5)
        case Choice():
            return "guess"
        case QuestionList():
            return ["no_such_column > 1"]
        case Text():
            return "no_such_column > 1"
        case ShortText():
            return "two\nlines"
        case PredictionsForm():
            return "nothing"
    return None


def wrong_questions(kind: Kind[..., Any]) -> Iterator[dict[str, Any]]:
    right = askable(kind)
    yield right | {"colour": 1}
    yield right | {f"{kind.options[-1].name}s": 1}
    for option in kind.options:
        if option.required:
            yield {key: value for key, value in right.items() if key != option.name}
        value = wrong_value(option.form)
        if value is not None:
            yield right | {option.name: value}


def refusal(ask: Callable[[], Any]) -> str | None:
    """Return the text of the refusal, or None if there is none."""
    try:
        ask()
    except hf.HoldfastError as error:
        return error.message
    return None


Surfaces = dict[str, Callable[[Kind[..., Any], dict[str, Any]], str | None]]


@pytest.fixture(scope="module")
def surfaces(server: Running) -> Iterator[Surfaces]:
    """Every surface: what it says to a question."""
    with surfaces_of(server) as found:
        yield found


@contextmanager
def surfaces_of(server: Running) -> Iterator[Surfaces]:
    """Every surface of a server."""
    session = server.state.datasets.get("flights", server.state.admin).session
    tools, token = Tools({"flights": session}), server.token()

    def price(asker: Any) -> Callable[[Kind[..., Any], dict[str, Any]], str | None]:
        def ask(kind: Kind[..., Any], question: dict[str, Any]) -> str | None:
            options = dict(question)
            subjects = [options.pop(kind.subject.name)] if kind.subject.name in options else []
            arguments = [kind.subject.form.from_json(subject) for subject in subjects]  # in Python a loss is an object
            return refusal(lambda: asker(kind, arguments, options))

        return ask

    def in_python(kind: Kind[..., Any], arguments: list[Any], options: dict[str, Any]) -> Any:
        return kind.question(session.answering.plan.standing.context, *arguments, **options)

    def over_http(kind: Kind[..., Any], question: dict[str, Any]) -> str | None:
        answer = plain.post(f"{API}/price", json={"kind": kind.name, **question}).json()
        return None if answer["ok"] else str(answer["error"])

    def by_agent(kind: Kind[..., Any], question: dict[str, Any]) -> str | None:
        listed = {key: list(value) if isinstance(value, tuple) else value for key, value in question.items()}
        told = anyio.run(tools.call, "price", {"kind": kind.name, **listed}).structured_content
        assert told is not None
        return None if told["ok"] else str(told["error"])

    def on_the_page(kind: Kind[..., Any], question: dict[str, Any]) -> str | None:
        form = {"kind": kind.name} | {key: written(value) for key, value in question.items()}
        page = plain.post("/datasets/flights/dry-run", data=form, headers={"Accept": "application/json"}).json()
        return None if page["ok"] else str(page["error"])

    with server.client(token) as plain, connect(server.url, token) as client, start_blocking_portal() as portal:
        later = portal.call(connect_async, server.url, token)
        yield {
            "Python": price(in_python),
            "client": price(lambda kind, arguments, options: client._ask_kind(kind, tuple(arguments), options)),
            "async client": price(
                lambda kind, arguments, options: portal.call(later._ask_kind, kind, tuple(arguments), options)
            ),
            "HTTP": over_http,
            "agent": by_agent,
            "page": on_the_page,
        }
        portal.call(later.close)


@ANY_KIND
def test_the_same_mistake_is_refused_in_the_same_words(surfaces: Surfaces, name: str) -> None:
    kind, refused = KINDS[name], 0
    for question in wrong_questions(kind):
        words = surfaces["Python"](kind, question)
        if words is None:  # an option that the kind does not check unless another one is given
            continue
        refused += 1
        unknown = not set(question) <= {option.name for option in kind.options}
        served = error_payload(hf.HoldfastError(words))[
            "error"
        ]  # a way out that only the admin has is said as settings
        for surface, ask in surfaces.items():
            if surface == "page" and unknown:
                continue  # a form leaves out the fields of other kinds
            assert ask(kind, question) == (words if surface == "Python" else served), (surface, question)
    assert refused >= 4


def test_groups_that_would_take_the_whole_session_are_refused_everywhere(
    toys: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a small table without a plan; before anything is read, so the ledger does not even begin."""
    path = tmp_path / "flights.parquet"
    pl.DataFrame({"late": [True, False] * 1_000, "plane": range(2_000)}).write_parquet(path)
    question = {"query": "late", "by": "plane", "groups": list(range(200))}  # a server takes no more
    with Running(settings(path, dataset={"queries": None})) as running, surfaces_of(running) as surfaces:
        said = {surface: ask(KINDS["mean"], question) for surface, ask in surfaces.items()}
        assert not running.state.datasets.get("flights", running.state.admin).session.ledger.begun
    with pytest.raises(SystemExit):
        main(["ask", str(path), "late", "--by", "plane", "--groups", written(question["groups"]), "--json"])
    said["command line"] = json.loads(capsys.readouterr().out)["error"]
    (words,) = set(said.values())
    assert re.fullmatch(
        r"200 groups at once would take so much of this session that no later answer would say anything; ask"
        r" about at most \d+, or bring more rows\.",
        words or "",
    )


def test_an_unknown_kind_is_refused_in_the_same_words(server: Running) -> None:
    session = server.state.datasets.get("flights", server.state.admin).session
    words = refusal(lambda: session.price("late", "median"))
    assert words is not None
    with server.client(server.token()) as plain, connect(server.url, server.token()) as client:
        assert refusal(lambda: client.price("late", "median")) == words
        assert plain.post(f"{API}/price", json={"kind": "median", "query": "late"}).json()["error"] == words
        form = {"kind": "median", "query": "late"}
        assert plain.post("/datasets/flights/price", data=form).json()["error"] == words
    told = anyio.run(Tools({"flights": session}).call, "price", form).structured_content
    assert told is not None
    assert told["error"] == words
