"""Schemathesis reads the OpenAPI description and tries to find the server saying anything else.

Left out is the check that whatever fits the schema succeeds: a query may be well-formed text and still not be one that
may be asked, and that is a 422. Everything else holds: no server error, only described statuses, types and shapes, bad
data refused, tokens not ignored, unknown methods refused.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as effort
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from holdfast.server.rates import Rates
from serving import Running, settings, table

KINDS = ("dep_delay > 15", "weekend", "carrier = 'UA'", "distance", "1=1", "no_such", "sum(x)")
fitting = {"now": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("described")
    plan = {"queries": 10_000, "flips": 10_000}
    with Running(settings(table(folder, 5_000), dataset=plan, data_folder=str(folder))) as running:
        running.desk.strangers = Rates(1e6, 10**6)  # wrong tokens are tried often
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
    """Some questions that fit are ones that can be answered."""
    if fitting["now"] and isinstance(body, dict) and isinstance(body.get("query"), str) and len(body["query"]) % 3:
        body["query"] = KINDS[len(body["query"]) % len(KINDS)]
    return body


def try_everything(server: Running, mode: GenerationMode, examples: int, check: Callable[[Any], None]) -> set[str]:
    """Run the check on generated requests of every operation; return the operations."""
    described = schemathesis.openapi.from_url(f"{server.url}/api/v1/openapi.json")
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
    keeper = {"Authorization": f"Bearer {server.token('keeper', keeper=True)}"}
    left_out = [positive_data_acceptance]

    def check(case: Any) -> None:
        case.call_and_validate(headers=keeper, excluded_checks=left_out)

    tried = try_everything(server, mode, 20, check)
    assert "POST /api/v1/datasets/{name}/ask" in tried
    if mode is GenerationMode.POSITIVE:
        assert len(tried) == 20


def test_without_a_token_everything_is_refused_as_described(server: Running) -> None:
    def check(case: Any) -> None:
        response = case.call()
        assert response.status_code == 401
        assert response.json()["kind"] == "not_signed_in"

    try_everything(server, GenerationMode.POSITIVE, 2, check)
