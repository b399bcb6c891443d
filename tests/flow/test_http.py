"""`http:` against a real server."""

import builtins
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.errors import FlowFailed
from holdfast.flow.actions import web


class Server(BaseHTTPRequestHandler):
    seen: list[tuple[str, str, dict[str, str], str]]

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.server.seen.append((self.command, self.path, dict(self.headers), body))  # type: ignore[attr-defined]
        path = self.path.partition("?")[0]
        count = sum(one[1] == self.path for one in self.server.seen)  # type: ignore[attr-defined]
        status, text = {
            "/json": (200, json.dumps({"path": self.path, "body": body})),
            "/echo": (200, str(self.headers.get("Authorization"))),
            "/missing": (404, "not here"),
            "/moved": (302, ""),
            "/busy": (503 if count < 3 else 200, "busy"),
            "/big": (200, "x" * 100_000),
            "/odd": (200, "616263"),
        }.get(path, (500, "?"))
        if path == "/slow":
            threading.Event().wait(0.2)
        if path == "/drip":
            self._drip()
        self.send_response(status)
        if path == "/odd":
            self.send_header("Content-Type", "text/plain; charset=hex")
        if status == 302:
            self.send_header("Location", "/json")
        self.end_headers()
        self.wfile.write(text.encode())

    def _drip(self) -> None:
        """Send a header after the other, so that something always comes and the answer never does."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while not self.server.enough.wait(0.01):  # type: ignore[attr-defined]
            self.wfile.write(b"X-More: 1\r\n")

    do_GET = do_POST = do_PUT = do_DELETE = _answer

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture
def server() -> Iterator[Any]:
    made = HTTPServer(("127.0.0.1", 0), Server)
    made.seen = []  # type: ignore[attr-defined]
    made.enough = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.enough.set()  # type: ignore[attr-defined]
    made.shutdown()
    thread.join()
    made.server_close()


def one(load: Any, mem: Holdfast, server: Any, http: str, more: str = "", head: str = "") -> Any:
    url = f"http://127.0.0.1:{server.server_port}"
    run = load(f"{head}vars: {{url: '{url}', n: 3}}\nsteps:\n  - {{id: a, http: {http}{more}}}\n").start(mem)
    run.result()
    return run.checkpoint().state["steps"]["a"]


def test_a_request_and_its_answer(load: Any, mem: Holdfast, server: Any) -> None:
    http = (
        "{url: '{{ vars.url }}/json', method: POST, params: {q: 'a b'}, json: {n: '{{ vars.n }}'}, headers: {X-A: b}}"
    )
    record = one(load, mem, server, http)
    assert record["status_code"] == 200
    assert record["result"] == {"path": "/json?q=a+b", "body": '{"n":3}'}
    [(method, _, headers, _)] = server.seen
    assert (method, headers["X-A"]) == ("POST", "b")
    assert len(headers["Idempotency-Key"]) == 32


def test_a_url_alone_is_fetched(load: Any, mem: Holdfast, server: Any) -> None:
    record = one(load, mem, server, "'{{ vars.url }}/big'")
    assert len(record["body"]) == 64_000
    assert "Idempotency-Key" not in server.seen[0][2]


def test_a_body_as_text(load: Any, mem: Holdfast, server: Any) -> None:
    one(load, mem, server, "{url: '{{ vars.url }}/json', method: PUT, body: 'n={{ vars.n }}'}")
    assert server.seen[0][3] == "n=3"


@pytest.mark.parametrize(
    ("http", "why"),
    [
        ("'{{ vars.url }}/missing'", "status code 404: not here"),
        ("'{{ vars.url }}/moved'", "status code 302 to /json"),
        ("{url: '{{ vars.url }}/json', expect: [201]}", "status code 200: "),
        ("'http://127.0.0.1:1/'", "GET http://127.0.0.1:1/: .*[Rr]efused"),
        ("'nonsense'", "GET nonsense: "),
        ("'http://[::1'", "GET "),
    ],
)
def test_what_is_no_success_fails(load: Any, mem: Holdfast, server: Any, http: str, why: str) -> None:
    with pytest.raises(FlowFailed, match=why):
        one(load, mem, server, http)


def test_a_redirect_is_followed_if_said(load: Any, mem: Holdfast, server: Any) -> None:
    assert one(load, mem, server, "{url: '{{ vars.url }}/moved', follow_redirects: true}")["status_code"] == 200


def test_it_is_tried_again(load: Any, mem: Holdfast, server: Any) -> None:
    record = one(load, mem, server, "'{{ vars.url }}/busy'", ", retry: {times: 5, delay: 0, on: [503]}")
    assert record["status_code"] == 200
    assert len(server.seen) == 3


def test_a_timeout(load: Any, mem: Holdfast, server: Any) -> None:
    with pytest.raises(FlowFailed, match=r"timed out|no whole answer came within"):
        one(load, mem, server, "'{{ vars.url }}/slow'", ", timeout: 50ms")


@pytest.mark.parametrize(
    ("own", "around", "why"),
    [("100ms", "1m", r"no whole answer came within 0\.1 s"), ("1m", "100ms", r"did not end within 0\.1 s")],
)
def test_a_time_limit_holds_while_something_comes(
    load: Any, mem: Holdfast, server: Any, own: str, around: str, why: str
) -> None:
    url = f"http://127.0.0.1:{server.server_port}/drip"
    inside = f"{{id: a, http: {{url: '{url}'}}, timeout: {own}}}"
    run = load(f"steps:\n  - {{id: g, timeout: {around}, steps: [{inside}]}}\n").start(mem)
    with pytest.raises(FlowFailed, match=why):
        run.result()
    assert not server.enough.is_set()


def test_a_request_that_is_in_vain_is_given_up_while_nothing_comes(server: Any) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    how: dict[str, Any] = {"headers": {}, "params": {}, "json": None, "body": None, "follow_redirects": False}
    with pytest.raises(KeyboardInterrupt):
        request = web.Request("GET", f"http://127.0.0.1:{server.server_port}/drip", **how)
        web.send(request, timeout=60, keep_on=stop)


def test_an_encoding_that_is_none_of_text_is_an_error(load: Any, mem: Holdfast, server: Any) -> None:
    with pytest.raises(FlowFailed, match="'hex' is not a text encoding"):
        one(load, mem, server, "'{{ vars.url }}/odd'")


def test_a_secret_in_a_header_is_masked_in_the_answer(
    load: Any, mem: Holdfast, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "top-secret")
    http = "{url: '{{ vars.url }}/echo', headers: {Authorization: 'Bearer {{ secrets.TOKEN }}'}}"
    record = one(load, mem, server, http, head="secrets: [TOKEN]\n")
    assert server.seen[0][2]["Authorization"] == "Bearer top-secret"
    assert record["body"] == "Bearer ***"


def test_an_undo_by_a_request(load: Any, mem: Holdfast, server: Any) -> None:
    url = f"http://127.0.0.1:{server.server_port}"
    undo = f"undo: {{http: {{url: '{url}/json', method: DELETE}}}}"
    run = load(f"steps:\n  - {{id: a, http: '{url}/json', {undo}}}\n").start(mem)
    run.rollback(to=0, then="cancelled")
    assert [one[0] for one in server.seen] == ["GET", "DELETE"]


def test_without_httpx_the_extra_is_named(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refusing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "httpx":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refusing)
    from holdfast.errors import FlowInvalid

    with pytest.raises(FlowInvalid, match=r"`http:` needs a package .* pip install 'holdfast\[http\]'"):
        load("steps:\n  - {id: a, http: 'http://x'}\n")
