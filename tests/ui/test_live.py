"""Live streams: everybody is told how things stand in the end, however many they are and however slowly they read."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

import holdfast
from holdfast import Holdfast
from holdfast.ui import live
from holdfast.ui.api.problems import Refused
from holdfast.ui.live import Live

TOKEN = "a-token-for-those-who-act"


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PAUSE", 0.01)


@pytest.fixture
def watching(office_hf: Holdfast) -> Iterator[Live]:
    made = Live(office_hf, streams=100, runs=10)
    yield made
    made.stop()
    made.join()


async def take(stream: Any, until: Any) -> list[dict[str, Any]]:
    """The events of a stream, up to the first that is waited for."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(10):
        async for event in stream:
            found.append({"event": event.name, **json.loads(event.data)})
            if until(found[-1]):
                return found
    return found


def test_a_stream_begins_with_how_a_run_stands_and_tells_each_change(watching: Live, office_hf: Holdfast) -> None:
    async def look() -> None:
        with watching.open(["by hand", "nobody"], store=True) as stream:
            wanted = {"by hand", "nobody"}
            first = await take(stream, lambda one: not (wanted.discard(one.get("run")) or wanted))
            assert {"event": "store", "mark": 0} in first
            [stands] = [one for one in first if one.get("run") == "by hand"]
            assert (stands["status"], stands["seq"]) == ("ready", 1)
            assert [one["gone"] for one in first if one.get("run") == "nobody"] == [True]
            await asyncio.to_thread(office_hf.get("by hand").save, {"n": 2})
            changed = await take(stream, lambda one: one.get("seq") == 2)
            assert changed[-1]["etag"] != stands["etag"]
            await asyncio.to_thread(office_hf.get("by hand").delete)
            assert (await take(stream, lambda one: one.get("gone")))[-1]["run"] == "by hand"
        assert len(watching) == 0

    asyncio.run(look())


def test_a_slow_client_gets_the_newest_and_costs_no_memory(watching: Live, office_hf: Holdfast) -> None:
    run = office_hf.get("by hand")

    async def look() -> None:
        with watching.open(["by hand"], store=True) as slow, watching.open(["by hand"]) as quick:
            for n in range(30):
                await asyncio.to_thread(run.save, {"n": n})
                await take(quick, lambda one, n=n: one["seq"] >= n + 2)
                assert len(slow._pending) <= 2
            told = await take(slow, lambda one: one.get("seq") == 31)
            assert len([one for one in told if one["event"] == "run"]) == 1

    asyncio.run(look())


def test_there_is_a_limit_to_streams_and_to_what_one_watches(watching: Live) -> None:
    async def look() -> None:
        with pytest.raises(Refused, match="up to 10 runs"):
            watching.open([str(n) for n in range(11)])
        opened = [watching.open() for _ in range(100)]
        with pytest.raises(Refused, match="100 live streams"):
            watching.open()
        for stream in opened:
            watching.leave(stream)
        watching.leave(watching.open(["x"]))
        assert (len(watching), watching._watched, watching._marks) == (0, {}, {})

    asyncio.run(look())


def test_streams_end_with_the_server(office_hf: Holdfast) -> None:
    async def look() -> None:
        watching = Live(office_hf, streams=10, runs=10)
        with watching.open(["broken"]) as stream:
            asyncio.get_running_loop().call_later(0.1, watching.stop)
            await take(stream, lambda _: False)
        watching.join()

    asyncio.run(look())


def test_a_store_that_cannot_be_read_for_a_while_is_read_later(
    watching: Live, office_hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PATIENCE", 0.01)
    get, failures = office_hf.client.store.get, [1, 1]

    def failing(id: str) -> Any:
        if failures and failures.pop():
            raise holdfast.errors.StoreBusy("memory://x")
        return get(id)

    monkeypatch.setattr(office_hf.client.store, "get", failing)

    async def look() -> None:
        with watching.open(["broken"]) as stream:
            assert (await take(stream, lambda _: True))[0]["status"] == "failed"

    asyncio.run(look())


def test_the_entries_of_a_run_until_it_has_ended(api: TestClient) -> None:
    with api.stream("GET", "/api/v1/runs/broken/events", params={"after": 0}) as answer:
        text = "".join(answer.iter_text())
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [line for line in text.splitlines() if line.startswith("event")] == ["event: entry", "event: end"]
    assert '"kind":"failed"' in text
    assert api.get("/api/v1/runs/nobody/events").status_code == 404
    assert api.get("/api/v1/events?" + "run=x&" * 300).status_code == 422


def test_what_another_process_writes_is_told(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PATIENCE", 0.1)
    hf, other = opened(), opened()
    run = other.run("a")

    async def look() -> None:
        watching = Live(hf, streams=10, runs=10)
        try:
            with watching.open(["a"], store=True) as stream:
                await take(stream, lambda one: one.get("seq") == 0)
                await asyncio.to_thread(run.save, {"n": 1})
                await take(stream, lambda one: (one.get("seq"), one.get("status")) == (1, "ready"))
        finally:
            watching.stop()
            await asyncio.to_thread(watching.join)

    asyncio.run(look())


def test_a_slow_store_holds_up_nobody_else(
    app: Starlette, office_hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answered = threading.Event(), threading.Event()
    find = office_hf.client.store.find

    def slow(*given: Any, **how: Any) -> Any:
        asked.set()
        assert answered.wait(10)
        return find(*given, **how)

    monkeypatch.setattr(office_hf.client.store, "find", slow)

    async def look() -> None:
        transport = httpx.ASGITransport(app)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver", headers=headers) as api:
            waiting = asyncio.create_task(api.get("/api/v1/runs"))
            await asyncio.to_thread(asked.wait, 10)
            assert (await api.get("/api/v1/counts")).status_code == 200
            assert not waiting.done()
            answered.set()
            assert (await waiting).status_code == 200

    asyncio.run(look())


# --- a real server


@pytest.fixture
def server(tmp_path: Any) -> Iterator[Any]:
    """A server in a process of its own: its store and its port."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with holdfast.open(url) as hf:
        command = [sys.executable, "-m", "holdfast", "ui", "--store", url, "--port", "0", "--json"]
        env = {**os.environ, "HOLDFAST_UI_TOKEN": TOKEN}
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            told = json.loads(process.stdout.readline())
            assert "token" not in told["url"]
            yield hf, told["port"], process
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")


def test_a_server_ends_its_streams_in_good_order(server: Any) -> None:
    _, port, process = server
    lines = ["GET /api/v1/events HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {TOKEN}"]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as stream:
        stream.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        told = b""
        while b"mark" not in told:
            told += stream.recv(4096)
        process.send_signal(signal.SIGTERM)
        while some := stream.recv(4096):
            told += some
    assert told.endswith(b"0\r\n\r\n")  # the end of a whole answer


async def listen(port: int, run: str, last: int) -> int:
    """One client of the stream about a run, until it is told of the entry; how many events it got."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = (
        f"GET /api/v1/events?run={run} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    )
    writer.write(request.encode())
    events = 0
    try:
        while True:
            line = (await reader.readline()).decode()
            assert line, "the stream ended early"
            if line.startswith("data: "):
                events += 1
                if json.loads(line[6:])["seq"] >= last:
                    return events
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def test_fifty_streams_while_ten_runs_write(server: Any) -> None:
    hf, port, _ = server
    runs = [hf.run(f"r{n}") for n in range(10)]

    def write() -> None:
        for step in range(20):
            for run in runs:
                run.save({"step": step})

    async def look() -> list[int]:
        async with asyncio.timeout(30):
            streams = [asyncio.create_task(listen(port, f"r{n % 10}", 20)) for n in range(50)]
            await asyncio.to_thread(write)
            return await asyncio.gather(*streams)

    told = asyncio.run(look())
    assert len(told) == 50
    assert max(told) <= 21


def test_a_client_that_sends_its_headers_slowly_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.ui.serve import _timely

    async def look() -> bytes:
        import uvicorn
        from uvicorn.server import ServerState

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        config = uvicorn.Config(app, http=_timely(0.1), log_config=None, lifespan="off")
        config.load()
        state = ServerState()
        protocol = config.http_protocol_class
        made = await asyncio.get_running_loop().create_server(lambda: protocol(config, state, {}), "127.0.0.1", 0)
        port = made.sockets[0].getsockname()[1]
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            first = await reader.readuntil(b"\r\n\r\n")
            writer.write(b"GET / HTTP/1.1\r\nHo")  # and never the rest
            assert await reader.read() == b""
            writer.close()
            silent, other = await asyncio.open_connection("127.0.0.1", port)
            assert await silent.read() == b""
            other.close()
        made.close()
        return first

    assert b"204" in asyncio.run(look())
