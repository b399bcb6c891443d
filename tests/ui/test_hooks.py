"""Webhooks: what happened is told once, signed, and again until it is taken; whoever dies in between."""

from __future__ import annotations

import base64
import hmac
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import office
import pytest

import holdfast
from holdfast import Holdfast
from holdfast.engine.workflow import revived
from holdfast.errors import StoreDamaged, UsageError
from holdfast.ui import outbox
from holdfast.ui.hooks import KIND, QUEUE, WORKFLOW, Event, Hook, delete_hook, hooks, set_hook, signed
from holdfast.ui.outbox import Outbox

SECRET = "a secret of the receiver"


class Receiver:
    """A server that notes what it is told, and answers as it is asked to."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        self.led: list[str] = []  # to where it sent whoever told it
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                status = outer.answers.pop(0) if outer.answers else 200
                self.send_response(status)
                self.send_header("Location", f"{outer.url}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                outer.led.append(self.path)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/in"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(one["type"], one["run"]) for one in (json.loads(body) for _, body in self.got)]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()
    made.thread.join()


@pytest.fixture
def hooked(timed: Callable[..., Holdfast], receiver: Receiver) -> Holdfast:
    """A store with a hook on everything, and a clock of the test's own."""
    hf = timed()
    set_hook(hf, "chat", url=receiver.url, secret="HOOK_SECRET")
    return hf


def deliver(hf: Holdfast) -> None:
    hf.work(queues=[QUEUE], until_idle=True)


def test_what_happens_is_told_once_and_signed(hooked: Holdfast, receiver: Receiver) -> None:
    run = hooked.start(office.fulfil, "A", 1, id="order/1")
    looking = Outbox(hooked)
    assert looking.look() == 1
    deliver(hooked)
    assert receiver.told == [("question.asked", "order/1")]
    run.answer({"carrier": "post"})
    run.result()
    hooked.start(office.broken, id="broken")
    hooked.run("given up").cancel()
    assert looking.look() == 3
    assert looking.look() == 0
    deliver(hooked)
    assert Counter(receiver.told) == Counter(
        [
            ("question.asked", "order/1"),
            ("run.completed", "order/1"),
            ("run.failed", "broken"),
            ("run.cancelled", "given up"),
        ]
    )
    for headers, body in receiver.got:
        text = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
        right = base64.b64encode(hmac.digest(SECRET.encode(), text, sha256)).decode()
        assert headers["webhook-signature"] == f"v1,{right}"
        assert json.loads(body)["id"] == headers["webhook-id"]
        assert b"receipt" not in body


def test_a_notice_that_is_not_taken_is_told_again_and_leads_nowhere_else(hooked: Holdfast, receiver: Receiver) -> None:
    receiver.answers = [500, 302, 404]
    hooked.start(office.broken, id="broken")
    Outbox(hooked).look()
    deliver(hooked)  # the clock of the test passes the time in between
    assert (len(receiver.got), receiver.led) == (4, [])
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 1
    [delivery] = hooked.runs(workflow=WORKFLOW)
    assert (delivery.status, hooked.get(delivery.id).result()) == ("completed", 200)


def test_who_looks_may_die_and_several_may_look(timed: Any, hooked: Holdfast, receiver: Receiver, clock: Any) -> None:
    first = Outbox(hooked)
    run = hooked.start(office.fulfil, "A", 1, id="a")
    first.look()
    clock.advance(3600)  # it is not among the new ones any more
    first.look()
    run.answer({"carrier": "post"})
    run.result()
    hooked.start(office.broken, id="b")
    del first
    clock.advance(3600)
    others = [Outbox(timed()) for _ in range(3)]
    for other in others:
        other.look()
    deliver(hooked)
    assert Counter(receiver.told) == Counter([("question.asked", "a"), ("run.completed", "a"), ("run.failed", "b")])


def test_a_run_that_goes_on_after_its_end_is_told_again(hooked: Holdfast, receiver: Receiver, clock: Any) -> None:
    run = hooked.start(office.broken, id="broken")
    looking = Outbox(hooked)
    looking.look()
    clock.advance(3600)
    looking.look()
    run.retry()
    assert run.resume() == "failed"  # before anybody looks again
    clock.advance(3600)
    looking.look()
    assert [one.name for one in hooked.client.store.documents(revived.KIND)] == []
    deliver(hooked)
    assert receiver.told == [("run.failed", "broken")] * 2


def test_a_note_is_kept_until_the_run_has_gone_on(hooked: Holdfast, clock: Any) -> None:
    run = hooked.start(office.broken, id="broken")
    record = hooked.client.store.get("broken")
    assert record is not None
    revived._note(hooked.client.store, run.uid, revived.Revival(record.epoch, clock.now()))
    looking = Outbox(hooked)
    looking.look()
    assert len(hooked.client.store.documents(revived.KIND)) == 1
    clock.advance(outbox.OVERLAP / 1_000_000 + 1)
    looking.look()
    assert len(hooked.client.store.documents(revived.KIND)) == 0


def test_without_hooks_nothing_is_noted(timed: Any) -> None:
    hf = timed()
    run = hf.start(office.broken, id="broken")
    run.retry()
    assert hf.client.store.documents(revived.KIND) == []
    assert Outbox(hf).look() == 0


def test_only_what_is_wanted_is_told(hooked: Holdfast, receiver: Receiver) -> None:
    set_hook(hooked, "chat", events=(Event.FAILED,), workflow="office-broken")
    hooked.start(office.fulfil, "A", 1)
    hooked.start(office.broken, id="b")
    assert Outbox(hooked).look() == 1
    deliver(hooked)
    assert receiver.told == [("run.failed", "b")]


def test_a_paused_hook_is_told_nothing_of_that_time(hooked: Holdfast, receiver: Receiver, clock: Any) -> None:
    looking = Outbox(hooked)
    set_hook(hooked, "chat", paused=True)
    hooked.start(office.broken, id="while paused")
    looking.look()
    clock.advance(1)
    set_hook(hooked, "chat", paused=False)
    hooked.start(office.broken, id="later")
    looking.look()
    deliver(hooked)
    assert receiver.told == [("run.failed", "later")]


def test_what_happened_before_the_hook_is_not_told(timed: Any, receiver: Receiver, clock: Any) -> None:
    hf = timed()
    hf.start(office.broken, id="before")
    clock.advance(1)
    set_hook(hf, "chat", url=receiver.url, secret="HOOK_SECRET")
    hf.start(office.broken, id="after")
    Outbox(hf).look()
    deliver(hf)
    assert receiver.told == [("run.failed", "after")]


def test_a_hook_that_is_gone_is_told_nothing(hooked: Holdfast, receiver: Receiver) -> None:
    hooked.start(office.broken)
    Outbox(hooked).look()
    assert delete_hook(hooked, "chat")
    assert not delete_hook(hooked, "chat")
    deliver(hooked)
    assert receiver.told == []
    assert [one.status for one in hooked.runs(workflow=WORKFLOW)] == ["completed"]


def test_a_delivery_without_its_secret_fails_and_says_so(
    hooked: Holdfast, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOOK_SECRET")
    hooked.start(office.broken)
    Outbox(hooked).look()
    deliver(hooked)
    [delivery] = hooked.runs(workflow=WORKFLOW)
    assert delivery.status == "failed"
    assert "HOOK_SECRET" in str(hooked.get(delivery.id).checkpoint().error)
    assert receiver.told == []


def test_the_secret_is_nowhere_in_the_store(hooked: Holdfast, receiver: Receiver, raw_bytes: Any) -> None:
    hooked.start(office.broken)
    Outbox(hooked).look()
    deliver(hooked)
    assert len(receiver.got) == 1
    assert SECRET.encode() not in raw_bytes()


def test_signatures_are_those_of_the_standard_webhooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of its specification."""
    monkeypatch.setenv("S", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    hook = Hook(url="https://x", secret="S")
    headers = signed(hook, "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', 1614265330)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x",
        "file:///x",
        "https://",
        "x",
        "https://a:b@x/",
        "http://[::1",
        "http://x:99999/",
        "http://x/ü",
        "http://x/a b",
    ],
)
def test_a_hook_leads_to_an_address(hooked: Holdfast, url: str) -> None:
    with pytest.raises(UsageError):
        set_hook(hooked, "chat", url=url)


def test_a_hook_needs_a_name_an_address_and_a_secret(hooked: Holdfast) -> None:
    for name, given in (
        ("", {}),
        ("a/b", {}),
        ("x" * 65, {}),
        ("café", {}),
        ("a b", {}),
        ("a\nb", {}),
        ("new", {"url": "https://x"}),
        ("new", {"secret": "S"}),
    ):
        with pytest.raises(UsageError):
            set_hook(hooked, name, **given)  # type: ignore[arg-type]
    hooked.client.store.put_document(KIND, "bad", b"[", None)
    with pytest.raises(StoreDamaged, match="cannot be read"):
        hooks(hooked.client.store)
    assert [delete_hook(hooked, "bad"), delete_hook(hooked, "bad")] == [True, False]
    assert list(hooks(hooked.client.store)) == ["chat"]


def test_a_process_delivers_until_it_is_told_to_stop(tmp_path: Any, receiver: Receiver) -> None:
    import os
    import signal
    import subprocess
    import sys

    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with holdfast.open(url) as hf:
        set_hook(hf, "chat", url=receiver.url, secret="HOOK_SECRET")
        hf.start(office.broken, id="broken")
        command = [sys.executable, "-m", "holdfast", "hooks", "--deliver", "--store", url]
        process = subprocess.Popen(command, env={**os.environ, "HOOK_SECRET": SECRET}, stderr=subprocess.PIPE)
        try:
            [delivery] = _until(lambda: [one for one in hf.runs(workflow=WORKFLOW) if one.status == "completed"])
        finally:
            process.send_signal(signal.SIGTERM)
            _, told = process.communicate(timeout=20)
    assert receiver.told == [("run.failed", "broken")]
    assert process.returncode == 0, told
    assert delivery.id.startswith("webhook/chat/")


def _until(ask: Callable[[], list[Any]]) -> list[Any]:
    import time

    end = time.monotonic() + 20
    while time.monotonic() < end:
        if found := ask():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come to pass within 20 seconds")
