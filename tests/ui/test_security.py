"""Attacks: what comes from elsewhere, without a token, too large or too slow is refused, and nothing is told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

import holdfast
from holdfast import Holdfast
from holdfast.errors import StoreBusy, StoreDamaged, StoreFull, UsageError
from holdfast.ui.guard import Guard, own_path
from holdfast.ui.security import SESSION, Role, Tokens, allows_host, same_origin
from holdfast.ui.serve import Settings, is_loopback, serve
from holdfast.ui.site import Limits

ACT, VIEW = "a-token-for-those-who-act", "a-token-for-those-who-look"


def csrf_of(app: Starlette, person: TestClient) -> str:
    session = app.state.site.tokens.session(person.cookies["holdfast"])
    assert session is not None
    return str(session.csrf)


@pytest.fixture
def browser(client: Any) -> TestClient:
    """Somebody who has signed in by the address that was shown."""
    person: TestClient = client(None)
    person.get(f"/?token={ACT}")
    return person


# --- tokens


@pytest.mark.parametrize("token", [None, "", "wrong", ACT[:-1], f"{ACT}x", "ä" * 20])
@pytest.mark.parametrize("path", ["/api/v1/runs", "/api/openapi.json", "/api/v1/events", "/api/nonsense"])
def test_without_the_right_token_nothing_is_told(app: Starlette, client: Any, token: str | None, path: str) -> None:
    headers = {} if token is None else {"Authorization": f"Bearer {token}".encode()}
    answer = client(None).get(path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.headers["content-type"] == "application/problem+json"


def test_pages_lead_to_the_sign_in(client: Any) -> None:
    answer = client(None).get("/runs/x?a=1")
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in?next=%2Fruns%2Fx%3Fa%3D1")
    assert client(None).post("/runs/x/cancel").status_code == 401


def test_the_token_of_the_address_becomes_a_cookie_and_goes(client: Any) -> None:
    person = client(None)
    answer = person.get(f"/?token={ACT}&status=failed")
    assert (answer.status_code, answer.headers["location"]) == (303, "/?status=failed")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    assert ACT not in str(answer.headers)
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert person.get("/api/v1/runs").status_code == 200
    over_tls = client(None, base_url="https://testserver").get(f"/?token={ACT}")
    assert "Secure" in over_tls.headers["set-cookie"]


def test_a_wrong_token_in_the_address_signs_nobody_in(client: Any) -> None:
    person = client(None)
    answer = person.get("/?token=wrong")
    assert answer.headers["location"].startswith("/sign-in?refused=1")
    assert "set-cookie" not in answer.headers
    assert person.get("/api/v1/runs").status_code == 401


def test_the_sign_in_never_leads_to_another_site() -> None:
    for target in ("//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "", "/a\r\nb"):
        assert own_path(target) == "/"
    assert own_path("/runs?status=failed") == "/runs?status=failed"


def test_a_cookie_that_was_made_elsewhere_or_changed_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, others = Tokens(ACT, VIEW), Tokens("another-token-of-somebody", VIEW)
    cookie = tokens.begin(VIEW)
    assert cookie is not None
    assert tokens.session(cookie) is not None
    role, until, nonce, signature = cookie.split(".")
    changed = [
        f"act.{until}.{nonce}.{signature}",
        f"{role}.{int(until) + 9}.{nonce}.{signature}",
        f"{role}.{until}.{nonce}x.{signature}",
        f"{role}.{until}.{nonce}.{'0' * 64}",
        "",
        "....",
        "act.1.2.3",
        "ä.1.2.3",
    ]
    assert [tokens.session(one) for one in changed] == [None] * len(changed)
    own = tokens.begin(ACT)
    assert own is not None
    assert others.session(own) is None
    monkeypatch.setattr("time.time", lambda: 4_000_000_000.0 + SESSION)
    assert tokens.session(own) is None


def test_a_token_that_is_too_short_or_the_same_is_refused() -> None:
    for given in (("short",), (ACT, "short"), (ACT, ACT)):
        with pytest.raises(UsageError):
            Tokens(*given)


# --- roles


def test_who_may_only_look_cannot_act(client: Any, app: Starlette, order: str) -> None:
    person = client(VIEW)
    assert person.get(order).status_code == 200
    for method, path in (("POST", f"{order}/cancel"), ("DELETE", order), ("PATCH", "/api/v1/queues/q"), ("POST", "/x")):
        answer = person.request(method, path, headers={"If-Match": "*"})
        assert (answer.status_code, answer.json()["title"]) == (403, "View only")
    signed = client(None)
    signed.get(f"/?token={VIEW}")
    headers = {"If-Match": "*", "X-CSRF-Token": csrf_of(app, signed)}
    assert signed.post(f"{order}/cancel", headers=headers).status_code == 403
    assert person.get(order).json()["run"]["status"] == "waiting"


# --- other sites


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-CSRF-Token": "wrong"},
        {"X-CSRF-Token": "0" * 64},
        {"Origin": "https://evil.example", "X-CSRF-Token": "right"},
        {"Origin": "null", "X-CSRF-Token": "right"},
        {"Origin": "http://testserver:81", "X-CSRF-Token": "right"},
        {"Origin": "http://testserver.evil.example", "X-CSRF-Token": "right"},
    ],
)
def test_a_post_from_another_site_does_nothing(
    app: Starlette, browser: TestClient, order: str, headers: dict[str, str]
) -> None:
    own = csrf_of(app, browser)
    given = {name: own if value == "right" else value for name, value in headers.items()}
    answer = browser.post(f"{order}/cancel", headers={**given, "If-Match": "*"})
    assert (answer.status_code, answer.json()["title"]) == (403, "Cross site")
    assert browser.get(order).json()["run"]["status"] == "waiting"


def test_a_person_is_told_by_a_page(browser: TestClient, client: Any) -> None:
    html = {"Accept": "text/html"}
    refused = browser.post("/runs/broken/cancel", headers={**html, "Origin": "https://evil.example"})
    assert (refused.status_code, refused.headers["content-type"]) == (403, "text/html; charset=utf-8")
    assert "Cross site" in refused.text
    missing = browser.get("/nonsense", headers=html)
    assert (missing.status_code, "there is no such page" in missing.text) == (404, True)
    assert browser.get("/nonsense").headers["content-type"] == "application/problem+json"
    unsigned = client(None).post("/runs/broken/cancel", headers=html)
    assert (unsigned.status_code, unsigned.headers["location"]) == (303, "/sign-in")


def test_a_post_from_our_own_page_is_carried_out(app: Starlette, browser: TestClient, order: str) -> None:
    headers = {"Origin": "http://testserver", "X-CSRF-Token": csrf_of(app, browser), "If-Match": "*"}
    assert browser.post(f"{order}/cancel", headers=headers).status_code == 200


def test_another_origin_is_refused_with_a_bearer_token_too(api: TestClient, order: str) -> None:
    answer = api.post(f"{order}/cancel", headers={"Origin": "https://evil.example", "If-Match": "*"})
    assert answer.status_code == 403


@pytest.mark.parametrize("host", ["evil.example", "testserver.evil.example", "testserver@evil.example", "", "a b", "["])
def test_a_host_that_is_not_ours_is_refused(api: TestClient, host: str) -> None:
    answer = api.get("/api/v1/runs", headers={"Host": host})
    assert (answer.status_code, answer.json()["title"]) == (421, "Wrong host")


def test_hosts_and_origins() -> None:
    allowed = {"127.0.0.1:4653", "[::1]:4653", "runs.example.org"}
    for host in ("127.0.0.1:4653", "[::1]:4653", "runs.example.org", "RUNS.example.org:8443"):
        assert allows_host(host, allowed)
    for host in ("127.0.0.1", "127.0.0.1:80", "[::1]", "localhost:4653", "example.org", "runs.example.org:x"):
        assert not allows_host(host, allowed)
    assert same_origin("https://a:1", "a:1")
    for origin in ("http://a", "ftp://a:1", "null", "http://[", "//a:1"):
        assert not same_origin(origin, "a:1")


# --- what every answer carries


@pytest.mark.parametrize("path", ["/", "/sign-in", "/static/nothing.css", "/api/v1/runs", "/api/v1/nonsense"])
def test_every_answer_keeps_the_browser_to_this_site(api: TestClient, client: Any, path: str) -> None:
    for person in (api, client(None)):
        headers = person.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "cache-control" in headers


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static//etc/passwd",
        "/static/..%5capp.py",
        "/api/v1/runs/..%2f..%2fcounts",
        "/api/v1/runs/%2e%2e%2fcounts",
        "/api/v1/runs/%00",
    ],
)
def test_a_path_leads_nowhere_else(app: Starlette, path: str) -> None:
    """As raw bytes: a client would tidy the path before it is sent."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"testserver"), (b"authorization", f"Bearer {ACT}".encode())]
    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "path": path, "query_string": b"",
        "raw_path": path.encode(), "headers": headers, "server": ("testserver", 80), "client": None, "root_path": "",
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    body = b"".join(message.get("body", b"") for message in sent)
    assert sent[0]["status"] == 404, body
    assert b"import" not in body
    assert b"upto" not in body


# --- too large, too slow


def test_a_body_that_is_too_large_is_not_read(api: TestClient) -> None:
    answer = api.post("/api/v1/runs", content=b" " * 5000, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")

    def chunks() -> Any:
        for _ in range(100):
            yield b" " * 100

    endless = api.post("/api/v1/runs", content=chunks(), headers={"Content-Type": "application/json"})
    assert endless.status_code == 413


def test_a_body_that_does_not_arrive_is_given_up(app: Starlette) -> None:
    """The application by itself: the client has sent the headers, and never sends the body."""
    site = app.state.site
    site.limits = Limits(seconds=0.05)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(3600)
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"testserver"), (b"authorization", f"Bearer {ACT}".encode()), (b"content-length", b"9")]
    scope = {
        "type": "http", "method": "POST", "scheme": "http", "path": "/api/v1/runs", "query_string": b"",
        "raw_path": b"/api/v1/runs", "headers": headers,
    }  # fmt: skip
    asyncio.run(Guard(app, site)(scope, receive, send))
    assert sent[0]["status"] == 408
    assert json.loads(sent[1]["body"])["title"] == "Too slow"


# --- nothing is told


class Broken:
    """A store that fails as stores do, with its place in the message."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (StoreFull("sqlite:////secret/place/runs.db"), 507),
        (StoreBusy("sqlite:////secret/place/runs.db", "locked by /secret/place"), 503),
        (StoreDamaged("sqlite:////secret/place/runs.db"), 500),
        (RuntimeError("password=swordfish at /secret/place"), 500),
    ],
)
def test_no_error_tells_where_the_store_is(
    tmp_path: Any, serving: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    place = tmp_path / "secret" / "place"
    place.mkdir(parents=True)
    with holdfast.open(f"sqlite:///{place / 'runs.db'}") as hf:
        api = serving(hf)
        gone = api.get("/api/v1/runs/nobody")
        assert (gone.status_code, "secret" in gone.text, "runs.db" in gone.text) == (404, False, False)
        monkeypatch.setattr(hf.client.store, "find", Broken(error))
        answer = api.get("/api/v1/runs")
        assert answer.status_code == status
        for told in ("secret", "runs.db", "swordfish", "Traceback", "sqlite"):
            assert told not in answer.text


def test_where_a_run_was_moved_to_is_not_told(tmp_path: Any, serving: Any) -> None:
    with (
        holdfast.open(f"sqlite:///{tmp_path / 'here.db'}") as hf,
        holdfast.open(f"sqlite:///{tmp_path / 'secret.db'}") as there,
    ):
        hf.run("moved").save({"n": 1})
        hf.move(there)
        api = serving(hf)
        path = "/api/v1/runs/moved"
        answers = [
            api.get(path),
            api.get("/api/v1/runs"),
            api.post(f"{path}/cancel", headers={"If-Match": "*"}),
        ]
        assert [one.status_code for one in answers] == [200, 200, 409]
        assert not [one.text for one in answers if "secret" in one.text]


def test_the_token_is_in_no_log(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    person = client(None)
    person.get(f"/?token={ACT}")
    person.get("/api/v1/runs/nobody")
    person.get(f"/api/v1/runs?token={ACT}")
    own = [record.getMessage() for record in caplog.records if not record.name.startswith("httpx")]
    assert not [line for line in own if ACT in line]


# --- where it listens


def test_it_is_not_opened_to_others_without_a_token(office_hf: Holdfast) -> None:
    for host in ("0.0.0.0", "192.168.1.2", "::", "example.org"):
        with pytest.raises(UsageError, match="HOLDFAST_UI_TOKEN"):
            serve(office_hf, Settings(host=host), lambda _: None)
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "[::1]", "localhost", "127.1.2.3")] == [True] * 5


@pytest.mark.parametrize(("host", "name"), [("::1", "[::1]"), ("[::1]", "[::1]"), ("localhost", "localhost")])
def test_the_address_can_be_opened(office_hf: Holdfast, monkeypatch: pytest.MonkeyPatch, host: str, name: str) -> None:
    from holdfast.ui import serve

    listening = serve._listening
    monkeypatch.setattr(serve, "_listening", lambda host, port: listening("127.0.0.1", port))
    monkeypatch.setattr(serve._Server, "run", lambda server, sockets: server._ready())
    told: list[serve.Address] = []
    serve.serve(office_hf, serve.Settings(host=host, port=0), told.append)
    assert told[0].url.startswith(f"http://{name}:{told[0].port}/?token=")


def test_roles() -> None:
    tokens = Tokens(ACT, VIEW, name="operator")
    act, view = tokens.person(ACT), tokens.person(VIEW)
    assert act is not None
    assert view is not None
    assert [act.may(Role.ACT), act.may(Role.VIEW), view.may(Role.ACT), view.may(Role.VIEW)] == [True, True, False, True]


def test_stated_limits_are_those_of_the_code() -> None:
    from pathlib import Path

    from holdfast.ui import hooks
    from holdfast.ui.api import idempotency, read_ops, routes

    page = (Path(__file__).parents[2] / "docs" / "reference" / "limits.md").read_text()
    limits = Limits()
    assert limits.body == 1 << 20
    assert f"to arrive | {limits.seconds:.0f} s |" in page
    assert f"| {limits.streams:,}; {limits.runs} |" in page
    assert f"waits for it | {limits.seconds:.0f} s |" in page
    assert f"parameters of a query | {routes.MAX_FIELDS:,} |" in page
    assert f"counted | {read_ops.UPTO:,} |" in page
    assert idempotency.KEPT == 24 * 3600 * 1_000_000
    assert f"take | {hooks.post.retry.times} more attempts" in page
