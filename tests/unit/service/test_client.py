"""What the client does when the connection fails; the server is a function."""

import ssl
from collections.abc import Callable
from typing import Any

import httpx
import pytest

import holdfast as hf
from holdfast.service import client
from holdfast.service.calls import choose
from holdfast.service.client import RemoteSession

ANSWER = {
    "kind": "mean",
    "question": "share of x",
    "value": 0.5,
    "low": 0.4,
    "high": 0.6,
    "confidence": 0.95,
    "population": "the average of the rows' distributions",
    "guarantee": "posterior",
    "bounds": [0.0, 1.0],
    "rows_read": 10,
    "cost": 10,
    "seq": 1,
    "cached": False,
    "receipt": "1:x",
    "made_up": False,
}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []
    monkeypatch.setattr(client.time, "sleep", waits.append)
    return waits


def connected(respond: Callable[[httpx.Request], httpx.Response], dataset: str | None = None) -> RemoteSession:
    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/datasets"):
            return httpx.Response(200, json={"ok": True, "datasets": [{"name": "flights"}]})
        return respond(request)

    http = httpx.Client(transport=httpx.MockTransport(handle), base_url="http://x/api/v1/")
    session = RemoteSession(http, "")
    session.dataset = session._send(choose(dataset))
    return session


def error(status: int, kind: str, **details: Any) -> httpx.Response:
    payload = {"ok": False, "error": "No.", "kind": kind, "status": status, "details": details}
    return httpx.Response(status, json=payload)


def test_certificates_are_read_once_for_all_sessions_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    real, read = ssl.SSLContext.load_verify_locations, []

    def counted(self: ssl.SSLContext, *args: Any, **options: Any) -> None:
        read.append(self)
        real(self, *args, **options)

    client._certificates.cache_clear()
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", counted)
    for _ in range(3):
        with httpx.Client(**client._http_options("https://x", "hf_x", 1.0)):
            pass
    assert len(read) == 1
    assert read[0].verify_mode == ssl.CERT_REQUIRED


def test_a_question_sent_again_carries_the_same_key() -> None:
    keys: list[str] = []

    def respond(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["idempotency-key"])
        if len(keys) == 1:
            raise httpx.ReadError("lost")
        if len(keys) == 2:
            return error(503, "ledger_unavailable")
        return httpx.Response(200, json={"ok": True, "answer": ANSWER})

    session = connected(respond)
    assert session.mean("x").value == 0.5
    assert len(keys) == 3
    assert len(set(keys)) == 1
    session.mean("x")
    assert keys[-1] != keys[0]


def test_it_waits_as_long_as_the_server_asks(no_waiting: list[float]) -> None:
    responses = iter(
        [error(429, "too_many_requests", retry_after=3.5), httpx.Response(200, json={"ok": True, "answer": ANSWER})]
    )
    connected(lambda _: next(responses)).mean("x")
    assert no_waiting == [3.5]


def test_it_gives_up_in_the_end(no_waiting: list[float]) -> None:
    def respond(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(hf.ServiceUnavailable, match="cannot be reached"):
        connected(respond).mean("x")
    assert len(no_waiting) == client.MAX_ATTEMPTS - 1


def test_errors_are_not_retried(no_waiting: list[float]) -> None:
    with pytest.raises(hf.BudgetExhausted) as refused:
        connected(lambda _: error(409, "budget_exhausted", left=3)).mean("x")
    assert refused.value.fields == {"left": 3}
    assert no_waiting == []


def test_kinds_of_a_newer_server_are_plain_errors() -> None:
    with pytest.raises(hf.HoldfastError, match="No"):
        connected(lambda _: error(418, "teapot")).mean("x")


def test_something_else_at_the_address_is_noticed() -> None:
    with pytest.raises(hf.ServiceUnavailable, match="The server answered 200, which is not a holdfast response"):
        connected(lambda _: httpx.Response(200, text="<html>")).mean("x")


def test_a_dataset_must_be_one_that_is_there() -> None:
    assert connected(lambda _: error(404, "x")).dataset == "flights"
    with pytest.raises(hf.UnknownName, match="It allows: flights"):
        connected(lambda _: error(404, "x"), "trains")


def test_looking_at_a_session_sends_nothing() -> None:
    session = connected(lambda _: error(404, "x"))
    session._http.close()
    assert repr(session) == "Session on flights at http://x/api/v1/"


def test_history_follows_its_pages() -> None:
    row = {"seq": 1, "kind": "mean", "question": "share of x", "value": 0.5, "low": 0.4, "high": 0.6}
    pages = iter([{"rows": [row], "next": 2}, {"rows": [row | {"seq": 2}], "next": None}])
    sent: list[str] = []

    def respond(request: httpx.Request) -> httpx.Response:
        sent.append(request.url.params["start"])
        return httpx.Response(200, json={"ok": True, **next(pages)})

    assert connected(respond).history()["seq"].to_list() == [1, 2]
    assert sent == ["1", "2"]


def test_no_kind_and_no_attribute_is_made_up() -> None:
    session = connected(lambda _: error(404, "x"))
    with pytest.raises(AttributeError, match="no attribute 'median'"):
        session.median("x")


@pytest.mark.parametrize("query", [lambda rows: rows["x"], 5, None])
def test_only_text_can_be_sent(query: Any) -> None:
    with pytest.raises(hf.InvalidArgument, match="must be text"):
        connected(lambda _: error(404, "x")).mean(query)


def test_only_built_in_losses_can_be_sent() -> None:
    with pytest.raises(hf.InvalidArgument, match="built in"):
        connected(lambda _: error(404, "x")).minimize(object(), radius=1.0)


@pytest.mark.parametrize(("url", "token"), [("ftp://x", "t"), ("x", "t"), ("http://x", ""), ("http://x", "a\nb")])
def test_addresses_and_tokens_are_checked(url: str, token: str) -> None:
    with pytest.raises(hf.InvalidArgument):
        hf.connect(url, token)
