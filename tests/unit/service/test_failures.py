"""Every error becomes the one shape, whatever it carries."""

import json

import pytest
from starlette.exceptions import HTTPException

from holdfast import errors
from holdfast.service.failures import Failure, headers, shape


def every_error(cls: type[errors.HoldfastError] = errors.HoldfastError) -> list[type[errors.HoldfastError]]:
    return [cls, *(found for one in cls.__subclasses__() for found in every_error(one))]


@pytest.mark.parametrize("cls", every_error(), ids=lambda cls: cls.__name__)
def test_every_error_has_the_shape(cls: type[errors.HoldfastError]) -> None:
    said = shape(cls("A fact \ud800. A way out.", left=3, odd={1, 2}, broken="\ud800"))
    assert set(said) == {"ok", "error", "kind", "status", "details"}
    assert (said["ok"], said["kind"], said["status"]) == (False, cls.kind, cls.status)
    assert said["details"]["left"] == 3
    said["error"].encode()
    json.dumps(said)


@pytest.mark.parametrize("status", [400, 404, 405, 408, 413, 415, 500])
def test_refusals_of_the_protocol_have_it_too(status: int) -> None:
    assert shape(Failure(status))["status"] == shape(HTTPException(status))["status"] == status


def test_what_nobody_foresaw_is_said_without_its_words() -> None:
    said = shape(ZeroDivisionError("the value was 42.4242"))
    assert (said["status"], said["kind"], said["details"]) == (500, "internal", {})
    assert "42.4242" not in said["error"]


def test_headers_tell_programs_what_to_do() -> None:
    assert headers(errors.NotSignedIn("No."))["WWW-Authenticate"].startswith("Bearer")
    assert headers(errors.TooManyRequests("Wait.", retry_after=7.2)) == {"Retry-After": "7"}
    assert headers(HTTPException(405, headers={"Allow": "GET"})) == {"Allow": "GET"}
    assert headers(errors.InvalidQuery("No.")) == {}
