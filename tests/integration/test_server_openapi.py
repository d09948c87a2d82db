"""Schemathesis reads the OpenAPI description and tries to find the server saying anything else.

Every check of it holds: no server error, only described statuses, types and shapes, bad data refused, tokens not
ignored, unknown methods refused, and what fits is accepted. The last needs a word: a text may fit and still be no
question that may be asked, which is a 422 like a body that does not fit. So 422 is allowed for what fits, but only for
what it says: never for its shape (then description and server would disagree); and questions that can be asked, drawn
from a list, must be answered.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as effort
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig

from holdfast.service.rates import RateLimiter
from serving import Running, settings, table

KINDS = ("dep_delay > 15", "weekend", "carrier = 'UA'", "distance", "1=1", "no_such", "sum(x)")
ASKABLE: list[dict[str, Any]] = [
    {"query": "dep_delay > 15"},
    {"kind": "mean", "query": "distance", "within": [0, 5000], "where": "carrier = 'UA'"},
    {"kind": "histogram", "query": "carrier", "categories": ["UA", "AA"]},
    {"kind": "histogram", "query": "dep_delay", "bins": [-60, 0, 600]},
    {"kind": "quantile", "query": "dep_delay", "q": 0.9, "within": [-60, 600]},
    {"kind": "flips", "query": "weekend", "count": 3},
    {
        "kind": "minimize",
        "loss": {"name": "logistic", "features": {"distance": [0, 5000]}, "target": "weekend"},
        "radius": 1,
        "iterations": 1,
    },
    {"kind": "minimize", "loss": "squared: distance [0, 5000] ~ weekend", "box": [-1, 1], "iterations": 1},
]
STATEMENTS = ["SELECT AVG(dep_delay > 15), COUNT(*) FROM flights", "SELECT AVG(weekend) FROM flights GROUP BY weekend"]
ASKING = ("ask", "price", "dry-run", "batch", "batch/price", "sql", "sql/price")
ACCEPTED = ["2xx", "401", "403", "404", "409", "422", "429"]
REJECTED = ["400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429", "5xx"]  # 413: too large
PATIENT = SchemathesisConfig.from_dict(
    {
        "checks": {
            "positive_data_acceptance": {"expected-statuses": ACCEPTED},
            "negative_data_rejection": {"expected-statuses": REJECTED},
        }
    }
)
fitting = {"now": True, "askable": False}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("described")
    plan = {"queries": {"mean": 10_000, "flip": 10_000}}
    with Running(settings(table(folder, 5_000), dataset=plan, data_folder=str(folder))) as running:
        running.state.failed_sign_ins = RateLimiter(1e6, 10**6)  # wrong tokens are tried often
        yield running


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Most requests that fit name the dataset that is there."""
    if (
        fitting["now"]
        and path_parameters
        and isinstance(path_parameters.get("name"), str)
        and len(path_parameters["name"]) % 4
    ):
        path_parameters["name"] = "flights"
    return path_parameters


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Some questions that fit are ones that can be answered; or all of them."""
    if fitting["askable"] and isinstance(body, dict):
        if "sql" in body:
            return {"sql": STATEMENTS[len(str(body)) % len(STATEMENTS)]}
        asks = [ASKABLE[len(str(body)) % len(ASKABLE)]]
        return {"asks": asks} if "asks" in body else asks[0]
    if fitting["now"] and isinstance(body, dict) and isinstance(body.get("query"), str) and len(body["query"]) % 3:
        body["query"] = KINDS[len(body["query"]) % len(KINDS)]
    return body


def try_everything(server: Running, mode: GenerationMode, examples: int, check: Callable[[Any], None]) -> set[str]:
    """Run the check on generated requests of every operation; return the operations."""
    described = schemathesis.openapi.from_url(f"{server.url}/api/v1/openapi.json", config=PATIENT)
    tried = set()
    fitting["now"] = mode is GenerationMode.POSITIVE
    for found in described.get_all_operations():
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query or operation.path_parameters):
            continue  # nothing that could be wrong

        @effort(
            max_examples=examples,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def run(case: Any) -> None:
            check(case)

        run()
        tried.add(operation.label)
    return tried


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_the_server_says_what_is_described(server: Running, mode: GenerationMode) -> None:
    admin = {"Authorization": f"Bearer {server.token('admin', admin=True)}"}

    def check(case: Any) -> None:
        response = case.call_and_validate(headers=admin)
        if mode is GenerationMode.POSITIVE and response.status_code == 422:
            assert "problems" not in response.json()["details"], response.text

    tried = try_everything(server, mode, 20, check)
    assert "POST /api/v1/datasets/{name}/ask" in tried
    if mode is GenerationMode.POSITIVE:
        assert len(tried) == 24


def test_what_can_be_asked_is_answered(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = {"Authorization": f"Bearer {server.token('admin', admin=True)}"}
    monkeypatch.setitem(fitting, "askable", True)
    answered = set()

    def check(case: Any) -> None:
        verb = case.operation.path.partition("{name}/")[2]
        if verb in ASKING and case.path_parameters["name"] == "flights":
            case.headers.pop("Idempotency-Key", None)  # a key used before, for another question, is refused
            response = case.call_and_validate(headers=admin)
            assert response.status_code == 200, response.text
            assert all(one["ok"] for one in response.json().get("results", []))
            answered.add(verb)

    try_everything(server, GenerationMode.POSITIVE, 10, check)
    assert answered == set(ASKING)


def test_without_a_token_everything_is_refused_as_described(server: Running) -> None:
    def check(case: Any) -> None:
        response = case.call()
        assert response.status_code == 401
        assert response.json()["kind"] == "not_signed_in"

    try_everything(server, GenerationMode.POSITIVE, 2, check)
