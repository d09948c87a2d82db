"""Who may do what: every route is tried with no token, a wrong one, an analyst's and the admin's.

The role of each route is written here a second time, on purpose: a route that opens further, or a new one that nobody
thought about, fails.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.service.access import GuardedRoute
from holdfast.service.app import build
from holdfast.service.rates import RateLimiter
from holdfast.service.tokens import Token
from serving import Running, settings, table, wait_until

ANYONE, ANALYST, ADMIN = "anyone", "analyst", "admin"
ONE = "/api/v1/datasets/{name}"
ROLES = {
    ("GET", "/health"): ANYONE,
    ("GET", "/ready"): ANYONE,
    ("GET", "/api/v1/openapi.json"): ANYONE,
    ("GET", "/sign-in"): ANYONE,
    ("POST", "/sign-in"): ANYONE,
    ("GET", "/metrics"): ADMIN,
    ("POST", "/sign-out"): ANALYST,
    ("GET", "/"): ANALYST,
    ("GET", "/plan"): ANALYST,
    ("GET", "/datasets/{name}"): ANALYST,
    ("GET", "/datasets/{name}/history"): ANALYST,
    ("POST", "/datasets/{name}/ask"): ANALYST,
    ("POST", "/datasets/{name}/price"): ANALYST,
    ("POST", "/datasets/{name}/dry-run"): ANALYST,
    ("GET", "/datasets/{name}/sql"): ANALYST,
    ("POST", "/datasets/{name}/sql"): ANALYST,
    ("POST", "/datasets/{name}/sql/price"): ANALYST,
    ("GET", "/admin"): ADMIN,
    ("POST", "/admin/tokens"): ADMIN,
    ("POST", "/admin/tokens/{id}/revoke"): ADMIN,
    ("POST", "/admin/tokens/{id}/quota"): ADMIN,
    ("POST", "/admin/datasets"): ADMIN,
    ("POST", "/admin/datasets/{name}/verify"): ADMIN,
    ("GET", "/api/v1/datasets"): ANALYST,
    ("POST", "/api/v1/datasets"): ADMIN,
    ("GET", "/api/v1/me"): ANALYST,
    ("GET", "/api/v1/plan"): ANALYST,
    ("GET", "/api/v1/tokens"): ADMIN,
    ("POST", "/api/v1/tokens"): ADMIN,
    ("PATCH", "/api/v1/tokens/{id}"): ADMIN,
    ("DELETE", "/api/v1/tokens/{id}"): ADMIN,
    ("GET", ONE): ANALYST,
    ("GET", f"{ONE}/schema"): ANALYST,
    ("GET", f"{ONE}/budget"): ANALYST,
    ("GET", f"{ONE}/plan"): ANALYST,
    ("GET", f"{ONE}/head"): ANALYST,
    ("GET", f"{ONE}/history"): ANALYST,
    ("GET", f"{ONE}/standings"): ANALYST,
    ("GET", f"{ONE}/receipts/{{seq}}"): ANALYST,
    ("POST", f"{ONE}/ask"): ANALYST,
    ("POST", f"{ONE}/price"): ANALYST,
    ("POST", f"{ONE}/dry-run"): ANALYST,
    ("POST", f"{ONE}/batch"): ANALYST,
    ("POST", f"{ONE}/batch/price"): ANALYST,
    ("POST", f"{ONE}/sql"): ANALYST,
    ("POST", f"{ONE}/sql/price"): ANALYST,
    ("POST", f"{ONE}/verify"): ADMIN,
}
ROUTES = sorted(ROLES)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(settings(table(tmp_path_factory.mktemp("access")))) as running:
        running.state.failed_sign_ins = RateLimiter(1e6, 10**6)  # these tests fail to sign in often
        yield running


def send(server: Running, method: str, path: str, token: str | None, **more: Any) -> httpx.Response:
    filled = path.format(name="flights", id="nobody", seq=0)
    with server.client(token) as client:
        return client.request(method, filled, **more)


def is_error(response: httpx.Response) -> None:
    payload = response.json()
    assert set(payload) == {"ok", "error", "kind", "status", "details"}
    assert payload["ok"] is False
    assert payload["status"] == response.status_code
    assert payload["error"].endswith(".")


def test_the_list_of_routes_is_complete(server: Running) -> None:
    served = {
        (method, route.path)
        for route in server.app.routes
        if isinstance(route, GuardedRoute)
        for method in route.methods
    }
    assert served == set(ROLES)
    others = [route.path for route in server.app.routes if not isinstance(route, GuardedRoute)]  # type: ignore[attr-defined]
    assert others == ["/mcp", "/static"]  # the first checks tokens itself, and is tried below


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("token", [None, "hf_wrong"])
def test_agents_without_a_token_are_refused(server: Running, method: str, token: str | None) -> None:
    response = send(server, method, "/mcp", token)
    assert response.status_code == 401
    is_error(response)


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("token", [None, "hf_wrong", "hf_" + "x" * 43])
def test_without_a_token_only_open_routes_respond(server: Running, method: str, path: str, token: str | None) -> None:
    response = send(server, method, path, token)
    if ROLES[method, path] != ANYONE:
        assert response.status_code == 401
        assert response.headers["www-authenticate"].startswith("Bearer")
        is_error(response)
    elif method == "GET":
        assert response.status_code == 200


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_an_analyst_cannot_use_admin_routes(server: Running, method: str, path: str) -> None:
    response = send(server, method, path, server.token("ana"))
    if ROLES[method, path] == ADMIN:
        assert response.status_code == 403
        is_error(response)
    elif ROLES[method, path] == ANALYST:
        assert response.status_code not in (401, 403)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_the_admin_can_use_every_route(server: Running, method: str, path: str) -> None:
    if ROLES[method, path] == ANYONE:
        return
    response = send(server, method, path, server.token("admin", admin=True))
    assert response.status_code not in (401, 403)
    if response.status_code >= 400:
        is_error(response)


def test_a_route_without_a_role_cannot_be_added(server: Running) -> None:
    async def forgotten() -> dict[str, bool]:
        return {"ok": True}

    with pytest.raises(TypeError, match="does not declare a role"):
        server.app.get("/forgotten")(forgotten)


def test_revoked_and_expired_tokens_are_refused(server: Running) -> None:
    secret, token = server.state.tokens.create("leaving")
    assert send(server, "GET", "/api/v1/me", secret).status_code == 200
    server.state.tokens.revoke(token.id)
    assert send(server, "GET", "/api/v1/me", secret).status_code == 401
    brief, _ = server.state.tokens.create("brief", days=0.2 / 86_400)
    time.sleep(0.25)
    assert send(server, "GET", "/api/v1/me", brief).status_code == 401


def test_a_token_allows_only_its_datasets(server: Running) -> None:
    elsewhere = server.token("bob", datasets=["other"])
    assert send(server, "GET", "/api/v1/datasets", elsewhere).json()["datasets"] == []
    forbidden = send(server, "GET", ONE, elsewhere)
    with server.client(elsewhere) as client:
        unknown = client.get("/api/v1/datasets/nothing")
    assert forbidden.status_code == unknown.status_code == 404
    assert forbidden.json()["error"].replace("flights", "nothing") == unknown.json()["error"]


def test_tokens_are_kept_as_digests_only(server: Running, tmp_path: Path) -> None:
    text = server.token("secretive")
    with server.client(text) as client:
        client.post("/sign-in", data={"token": text}, headers={"Origin": server.url})
    database = Path(server.state.settings.token_database.removeprefix("sqlite:///"))
    kept = b"".join(path.read_bytes() for path in database.parent.glob(database.name + "*"))
    assert b"secretive" in kept
    assert text.encode() not in kept


def test_signing_in_sets_a_cookie_scripts_cannot_read(server: Running) -> None:
    token = server.token("ana")
    with server.client(Origin=server.url) as client:
        response = client.post("/sign-in", data={"token": token})
        assert response.status_code == 303
        cookie = response.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert token.lower() not in cookie
        assert client.get("/", headers={"Accept": "text/html"}).status_code == 200
        assert client.post("/sign-out").status_code == 303
        assert client.get("/").status_code == 401


def test_a_cookie_from_another_page_changes_nothing(server: Running) -> None:
    token = server.token("ana")
    with server.client() as client:
        client.post("/sign-in", data={"token": token}, headers={"Origin": server.url})
        assert client.get("/api/v1/me").status_code == 200
        for origin in (
            {},
            {"Origin": "null"},
            {"Origin": "https://evil.example"},
            {"Origin": server.url + ".evil.example"},
        ):
            asked = client.post("/datasets/flights/ask", data={"query": "dep_delay > 1"}, headers=origin)
            assert asked.status_code == 403
            is_error(asked)
            over_api = client.post("/api/v1/datasets/flights/ask", json={"query": "dep_delay > 1"}, headers=origin)
            assert over_api.status_code == 403
        ours = client.post("/datasets/flights/ask", data={"query": "dep_delay > 1"}, headers={"Origin": server.url})
        assert ours.status_code == 200


def test_nobody_is_signed_in_from_another_page(server: Running) -> None:
    with server.client(Origin="https://evil.example") as client:
        assert client.post("/sign-in", data={"token": server.token("ana")}).status_code == 403


def test_a_link_signs_in_once(server: Running) -> None:
    code = server.state.tokens.sign_in_link(server.state.admin)
    with server.client(Origin=server.url) as client:
        assert client.get(f"/sign-in?code={code}", headers={"Accept": "text/html"}).status_code == 200
        assert client.post("/sign-in", data={"code": code}).status_code == 303
        assert client.get("/admin").status_code == 200
    with server.client(Origin=server.url) as client:
        assert client.post("/sign-in", data={"code": code}).status_code == 401


def test_the_admin_cannot_revoke_the_token_in_use(server: Running) -> None:
    secret, token = server.state.tokens.create("admin", admin=True)
    assert send(server, "DELETE", f"/api/v1/tokens/{token.id}", secret).status_code == 403
    assert send(server, "GET", "/api/v1/tokens", secret).status_code == 200


def test_every_response_carries_the_security_headers(server: Running) -> None:
    for path in ("/sign-in", "/api/v1/datasets", "/nowhere", "/static/page.css", "/health"):
        with server.client() as client:
            headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"


def test_too_many_requests_are_refused_with_the_time_to_wait(tmp_path: Path) -> None:
    with Running(settings(table(tmp_path), rate=1.0, burst=3)) as server:
        token, other = server.token("ana"), server.token("bob")
        codes = [send(server, "GET", "/api/v1/me", token).status_code for _ in range(6)]
        assert codes.count(200) in (3, 4)  # a token may arrive meanwhile
        refused = send(server, "GET", "/api/v1/me", token)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        is_error(refused)
        assert send(server, "GET", "/api/v1/me", other).status_code == 200


def test_every_question_of_a_list_counts_as_a_request_also_if_only_its_price_is_asked(tmp_path: Path) -> None:
    """To work out the price of four hundred questions keeps a processor busy for as long as to ask many of them."""
    api, statement = "/api/v1/datasets/flights", "SELECT {} FROM flights"
    listed = {"kind": "register", "questions": [f"distance > {i}" for i in range(45)]}
    with Running(settings(table(tmp_path), rate=0.001, burst=50)) as server:
        for number, (path, body) in enumerate(
            (
                ("sql/price", {"sql": statement.format(", ".join(f"AVG(distance > {i})" for i in range(45)))}),
                ("sql", {"sql": statement.format(", ".join(f"AVG(distance > {i})" for i in range(45)))}),
                ("batch/price", {"asks": [{"query": f"distance > {i}"} for i in range(45)]}),
                ("batch/price", {"asks": [listed]}),
                ("batch", {"asks": [listed]}),
                ("price", listed),
                ("dry-run", listed),
                ("ask", listed),
            )
        ):
            token = server.token(f"eve {number}")
            assert send(server, "POST", f"{api}/{path}", token, json=body).status_code == 200
            again = send(server, "POST", f"{api}/{path}", token, json=body)
            assert again.status_code == 429, path
        much = {"sql": statement.format(", ".join(f"AVG(distance > {i})" for i in range(101)))}
        refused = send(server, "POST", f"{api}/sql", server.token("mallory"), json=much)
        assert refused.status_code == 422  # before its price is worked out
        lists = {"asks": [listed, listed, listed]}
        assert send(server, "POST", f"{api}/batch/price", server.token("trudy"), json=lists).status_code == 422


def test_guessing_tokens_is_slowed_down(tmp_path: Path) -> None:
    with Running(settings(table(tmp_path))) as server:
        server.state.failed_sign_ins = RateLimiter(0.001, 5)
        codes = [send(server, "GET", "/api/v1/me", f"hf_guess{i}").status_code for i in range(8)]
        assert codes == [401] * 5 + [429] * 3
        assert send(server, "GET", "/api/v1/me", server.token("ana")).status_code == 200


def test_looking_up_guesses_takes_few_threads_however_many_are_sent(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All wait for the database; four threads of those for reads are theirs, and whoever is known goes on."""
    ana, store = server.token("ana"), server.state.tokens
    known = store.authenticate(ana)
    go, look_up, begun = threading.Event(), store.authenticate, []

    def waits(secret: str) -> Token:
        begun.append(secret)
        go.wait(30)
        return look_up(secret)

    monkeypatch.setattr(store, "authenticate", waits)
    guesses = [threading.Thread(target=send, args=(server, "GET", "/api/v1/me", f"hf_guess{i}")) for i in range(20)]
    for one in guesses:
        one.start()
    wait_until(lambda: len(server.state.lanes.reads.turns.waiting.get("at 127.0.0.1", ())) == 16)
    monkeypatch.setattr(store, "cached", lambda secret: known if secret == ana else None)
    assert send(server, "GET", "/api/v1/me", ana).status_code == 200
    assert len(begun) == 4
    go.set()
    for one in guesses:
        one.join()


def test_the_description_which_anyone_may_ask_for_is_written_once(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = send(server, "GET", "/api/v1/openapi.json", None)
    assert first.json()["info"]["title"] == "holdfast"
    monkeypatch.setattr(server.app, "openapi", lambda: pytest.fail("written again"))
    assert send(server, "GET", "/api/v1/openapi.json", None).content == first.content


def test_metrics_can_be_opened(tmp_path: Path) -> None:
    with Running(settings(table(tmp_path), open_metrics=True)) as server:
        text = send(server, "GET", "/metrics", None).text
    assert 'holdfast_budget_left{dataset="flights"} 200' in text


def test_built_twice_the_admin_stays_the_same(tmp_path: Path) -> None:
    chosen = settings(table(tmp_path), token_file=str(tmp_path / "token"))
    first = build(chosen).state.server
    second = build(chosen).state.server
    assert first.admin.id == second.admin.id
    assert (tmp_path / "token").stat().st_mode & 0o077 == 0
    for state in (first, second):
        state.close()
