"""What a hostile or careless client sends: nothing is held up or grows without bound, and everybody is told why."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.testclient import TestClient
from uvicorn.server import ServerState

import holdfast
from holdfast import Holdfast, emit, workflow
from holdfast.ui import live
from holdfast.ui.guard import Guard
from holdfast.ui.security import Tokens
from holdfast.ui.serve import _timely
from holdfast.ui.site import Limits

ACT, VIEW = "a-token-for-those-who-act", "a-token-for-those-who-look"


def csrf_of(app: Starlette, browser: TestClient) -> str:
    session = app.state.site.tokens.session(next(iter(browser.cookies.values())))
    return str(session.csrf)


def test_who_may_only_look_can_sign_out(app: Starlette, client: Any) -> None:
    person = client(None)
    person.get(f"/?token={VIEW}")
    assert person.post("/sign-out").status_code == 403  # another site cannot do it
    left = person.post("/sign-out", headers={"X-CSRF-Token": csrf_of(app, person)})
    assert (left.status_code, left.headers["location"]) == (303, "/sign-in")
    assert person.get("/api/v1/counts").status_code == 401


@pytest.mark.parametrize("foreign", ['a={"x":1}', "x[y]=1", "path=/", "k", '"=1', "a b=c", 'other="un', "ü=1"])
def test_cookies_of_other_servers_of_the_machine_do_no_harm(app: Starlette, client: Any, foreign: str) -> None:
    cookie = app.state.site.tokens.begin(ACT)
    headers = {"Cookie": f"{foreign}; holdfast={cookie}; {foreign}".encode()}
    assert client(None).get("/api/v1/counts", headers=headers).status_code == 200


# --- bodies and queries


def asked(app: Starlette, method: str, path: str, bodies: list[bytes] | None, **limits: Any) -> tuple[int, Any, int]:
    """A request whose body comes in parts, or never comes; status, answer, and how many parts were taken."""
    app.state.site.limits = Limits(**limits)
    sent: list[dict[str, Any]] = []
    taken = 0

    async def receive() -> dict[str, Any]:
        nonlocal taken
        if bodies is None:
            await asyncio.sleep(3600)
        assert bodies is not None
        taken += 1
        return {"type": "http.request", "body": bodies[taken - 1], "more_body": taken < len(bodies)}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"testserver"), (b"authorization", f"Bearer {ACT}".encode())]
    scope = {
        "type": "http", "method": method, "scheme": "http", "path": path, "query_string": b"",
        "raw_path": path.encode(), "headers": headers,
    }  # fmt: skip
    asyncio.run(Guard(app, app.state.site)(scope, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"]), taken


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_bodies_are_limited_whatever_the_method(app: Starlette, method: str) -> None:
    status, told, taken = asked(app, method, "/api/v1/runs/broken", [b"x" * 100] * 100, body=1000)
    assert (status, told["title"], taken) == (413, "Too large", 11)
    status, told, _ = asked(app, method, "/api/v1/runs/broken", None, seconds=0.05)
    assert (status, told["title"]) == (408, "Too slow")


def test_a_query_of_too_many_parameters_is_refused(api: TestClient) -> None:
    for path in ("runs?status=ready", "events?run=a"):
        answer = api.get(f"/api/v1/{path}" + "&status=ready" * 1000)
        assert (answer.status_code, answer.json()["title"]) == (422, "Invalid")


@pytest.mark.parametrize("id", ["%ff", "%ed%a0%80", "x" * 513])
@pytest.mark.parametrize("part", ["", "/family", "/export", "/audit", "/entries", "/graph"])
def test_what_is_no_id_is_refused_everywhere(api: TestClient, id: str, part: str) -> None:
    answer = api.get(f"/api/v1/runs/{id}{part}")
    assert (answer.status_code, answer.json()["title"]) == (422, "Invalid id")


# --- clients that do not read


def test_a_client_that_reads_nothing_is_let_go_and_a_slow_one_is_not() -> None:
    size = 8_000_000

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        await send({"type": "http.response.body", "body": b"x" * size})

    async def look() -> None:
        config = uvicorn.Config(app, http=_timely(0.2), log_config=None, lifespan="off")
        config.load()
        state = ServerState()
        protocol = config.http_protocol_class
        made = await asyncio.get_running_loop().create_server(lambda: protocol(config, state, {}), "127.0.0.1", 0)
        port = made.sockets[0].getsockname()[1]
        async with asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            for _ in range(10):  # slower than the limit as a whole, but it goes on
                await reader.readexactly(size // 10)
                await asyncio.sleep(0.05)
            assert head.startswith(b"HTTP/1.1 200")
            writer.close()
            deaf, other = await asyncio.open_connection("127.0.0.1", port)
            other.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await deaf.readexactly(1)
            while state.connections:
                await asyncio.sleep(0.02)
            other.close()
        made.close()

    asyncio.run(look())


def test_a_stream_ends_with_the_sign_in(app: Starlette, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PAUSE", 0.01)
    monkeypatch.setattr("holdfast.ui.security.SESSION", 2)
    cookie = app.state.site.tokens.begin(VIEW)
    sent: list[dict[str, Any]] = []
    bodies = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        while not bodies:
            await asyncio.sleep(3600)
        return bodies.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    async def look() -> None:
        path = "/api/v1/events"
        scope = {
            "type": "http", "method": "GET", "scheme": "http", "path": path, "query_string": b"run=by%20hand",
            "raw_path": path.encode(),
            "headers": [(b"host", b"testserver"), (b"cookie", f"holdfast={cookie}".encode())],
        }  # fmt: skip
        async with asyncio.timeout(10):
            await app(scope, receive, send)
        app.state.site.live.stop()

    asyncio.run(look())
    told = b"".join(message.get("body", b"") for message in sent)
    assert (sent[0]["status"], b"event: run" in told, sent[-1].get("more_body")) == (200, True, False)


# --- what runs hold


@workflow(name="attack-odd")
def odd() -> None:
    emit({(1, 2): "a key of two", 3: b"\xff", None: 2**70})


def test_whatever_was_emitted_can_be_shown(office_hf: Holdfast, api: TestClient) -> None:
    office_hf.start(odd, id="odd")
    page = api.get("/runs/odd", headers={"Accept": "text/html"})
    assert (page.status_code, "a key of two" in page.text) == (200, True)
    [output] = api.get("/api/v1/runs/odd/outputs").json()["items"]
    assert "a key of two" in json.dumps(output)


def test_no_page_tells_where_a_run_or_a_schedule_was_moved_to(tmp_path: Any, serving: Any) -> None:
    with (
        holdfast.open(f"sqlite:///{tmp_path / 'here.db'}") as hf,
        holdfast.open(f"sqlite:///{tmp_path / 'whereabouts.db'}") as there,
    ):
        hf.run("moved").save({"n": 1})
        hf.schedule(odd, cron="0 3 * * *", id="nightly")
        hf.move(there)
        api = serving(hf)
        schedules = ["/schedules", "/api/v1/schedules", "/api/v1/schedules/nightly"]
        for path in ["/", "/runs/moved", "/runs/moved/journal", "/runs/moved/cancel", *schedules]:
            answer = api.get(path, headers={"Accept": "text/html"})
            assert answer.status_code == 200
            assert "whereabouts" not in answer.text
            assert path == "/schedules" or "another store" in answer.text
        for act in ("pause", "trigger"):
            refused = api.post(f"/api/v1/schedules/nightly/{act}")
            assert (refused.status_code, "secret" in refused.text) == (409, False)


@workflow(name="attack-names")
def named(id: str, queue: str, key: int = 1) -> str:
    return f"{id} {queue} {key}"


def test_parameters_may_have_the_names_of_options(office_hf: Holdfast, api: TestClient) -> None:
    begun = api.post("/api/v1/runs", json={"workflow": "attack-names", "input": {"queue": "b", "id": "a"}})
    assert (begun.status_code, begun.json()["queue"]) == (201, "default")
    office_hf.work(until_idle=True)
    assert office_hf.get(begun.json()["id"]).result() == "a b 1"


# --- schedules


def test_a_schedule_is_made_and_changed(api: TestClient, office_hf: Holdfast) -> None:
    path = "/api/v1/schedules/a%2Fb"
    body = {"workflow": "office-order", "input": {"order": "A", "cents": 1}, "cron": "0 3 * * *", "tags": {"t": "1"}}
    made = api.put(path, json=body)
    assert (made.status_code, made.json()["id"], made.json()["cron"]) == (200, "a/b", "0 3 * * *")
    assert made.json()["set_by"] == "operator"
    assert api.post(f"{path}/pause").json()["paused"]
    changed = api.put(path, json={**body, "cron": "0 4 * * *", "tz": "Europe/Berlin", "catch_up": "none"})
    assert (changed.json()["cron"], changed.json()["tz"], changed.json()["paused"]) == (
        "0 4 * * *",
        "Europe/Berlin",
        True,
    )
    assert not api.put(path, json={**body, "paused": False}).json()["paused"]
    run = api.post(f"{path}/trigger").json()
    assert (run["workflow"], run["tags"]["t"]) == ("office-order", "1")
    for wrong in ({"cron": "nonsense"}, {"tz": "Mars/Base"}, {"workflow": "nobody"}, {"input": {"cents": "x"}}):
        assert api.put(path, json={**body, **wrong}).status_code == 422
    assert len(office_hf.schedules()) == 1


def test_who_may_look_makes_no_schedule(client: Any) -> None:
    body = {"workflow": "office-broken", "cron": "0 3 * * *"}
    assert client(VIEW).put("/api/v1/schedules/s", json=body).status_code == 403


def test_a_session_says_how_long_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1000.0)
    tokens = Tokens(ACT)
    cookie = tokens.begin(ACT)
    assert cookie is not None
    session = tokens.session(cookie)
    assert session is not None
    assert session.until == 1000 + 12 * 3600
