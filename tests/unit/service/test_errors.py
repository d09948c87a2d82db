"""Every error has the one shape, whatever it carries."""

import json

import pytest

from holdfast import errors
from holdfast.service.errors import (
    ProtocolError,
    error_headers,
    error_payload,
    invalid_request,
    not_holdfast,
    unreachable,
)

FIELDS = {"ok", "error", "kind", "status", "details"}


def every_error(cls: type[errors.HoldfastError] = errors.HoldfastError) -> list[type[errors.HoldfastError]]:
    return [cls, *(found for one in cls.__subclasses__() for found in every_error(one))]


@pytest.mark.parametrize("cls", every_error(), ids=lambda cls: cls.__name__)
def test_every_error_has_the_shape(cls: type[errors.HoldfastError]) -> None:
    payload = error_payload(cls("A fact \ud800. A way out.", dataset="x", left=3, odd={1, 2}, broken="\ud800"))
    assert set(payload) == FIELDS
    assert (payload["ok"], payload["kind"], payload["status"]) == (False, cls.kind, cls.status)
    assert payload["details"]["dataset"] == "x"
    behind = cls in (errors.RowSourceError, errors.LedgerDamaged, errors.LedgerUnavailable)
    assert payload["details"].get("left") == (None if behind else 3)  # what is wrong behind the server is for its log
    payload["error"].encode()
    json.dumps(payload)


@pytest.mark.parametrize("status", [400, 404, 405, 408, 413, 415, 500])
def test_errors_of_http_have_it_too(status: int) -> None:
    payload = error_payload(ProtocolError(status, message="not for the caller"))
    assert set(payload) == FIELDS
    assert payload["status"] == status
    assert payload["error"] != "not for the caller"


def test_other_statuses_have_it_too() -> None:
    payload = error_payload(ProtocolError(418, message="I am a teapot."))
    assert (payload["status"], payload["kind"], payload["error"]) == (418, "http", "I am a teapot.")


def test_what_the_client_finds_instead_of_a_server_has_it_too() -> None:
    for payload, status in ((unreachable(TimeoutError("no")), 503), (not_holdfast(502), 502)):
        assert set(payload) == FIELDS
        assert (payload["kind"], payload["status"]) == ("service_unavailable", status)
    assert not_holdfast(502)["error"] == (
        "The server answered 502, which is not a holdfast response. Check the address."
    )


def test_validation_errors_say_where_and_quote_no_values() -> None:
    payload = error_payload(invalid_request([{"loc": ("body", "q"), "msg": "Input should be a number", "input": "x7"}]))
    assert (payload["status"], payload["kind"]) == (422, "invalid_argument")
    assert payload["error"].startswith("body.q: must be a number.")
    assert "x7" not in json.dumps(payload)


def test_the_text_of_an_unexpected_error_is_withheld() -> None:
    payload = error_payload(ZeroDivisionError("the value was 42.4242"))
    assert (payload["status"], payload["kind"], payload["details"]) == (500, "internal", {})
    assert "42.4242" not in payload["error"]


def test_headers_of_errors() -> None:
    assert error_headers(errors.NotSignedIn("No."))["WWW-Authenticate"].startswith("Bearer")
    assert error_headers(errors.TooManyRequests("Wait.", retry_after=7.2)) == {"Retry-After": "7"}
    assert error_headers(ProtocolError(405, headers={"Allow": "GET"})) == {"Allow": "GET"}
    assert error_headers(errors.InvalidQuery("No.")) == {}


def test_what_is_no_number_is_not_sent_as_a_missing_one() -> None:
    from holdfast.service.api import json_response

    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            json_response({"ok": True, "answer": {"value": value, "low": 0.1, "high": 0.2}})
