"""`holdfast hooks`, `hook` and `ui`, as far as they end by themselves."""

from __future__ import annotations

import pytest

from .conftest import Call


def test_a_hook_is_made_changed_paused_and_deleted(call: Call) -> None:
    assert call("hooks").out == "No hooks.\n"
    made = call("hook", "chat", "--url", "https://chat.example.org/in", "--secret-env", "CHAT", "--on", "run.failed")
    assert (made.code, "run.failed" in made.out, "CHAT" in made.out) == (0, True, True)
    assert "paused" in call("hook", "chat", "--pause").out
    [hook] = call("hooks", "--json").json["hooks"]
    assert hook == {
        "name": "chat", "url": "https://chat.example.org/in", "events": ["run.failed"], "secret": "CHAT",
        "workflow": None, "paused": True,
    }  # fmt: skip
    assert call("hook", "chat", "--resume", "--json").json["hook"]["paused"] is False
    assert call("hook", "chat", "--delete", "--json").json == {"deleted": "chat"}
    gone = call("hook", "chat", "--delete")
    assert (gone.code, "there is no hook 'chat'" in gone.err) == (2, True)
    assert call("hook", "chat").code == 2
    half = call("hook", "chat", "--url", "https://chat.example.org/in")
    assert (half.code, "make it with --url and --secret-env" in half.err) == (2, True)
    assert call("hook", "chat", "--url", "ftp://x", "--secret-env", "S").code == 2


def test_the_page_is_not_opened_to_others_without_a_token(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_UI_TOKEN", raising=False)
    refused = call("ui", "--host", "0.0.0.0")
    assert (refused.code, "set a token on purpose" in refused.err) == (2, True)
    short = call("ui", "--token", "short")
    assert (short.code, "short" not in short.err.replace("too short", ""), "at least 16" in short.err) == (
        2,
        True,
        True,
    )


def test_a_port_that_is_taken_is_told(call: Call) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = call("ui", "--port", str(taken.getsockname()[1]))
    assert (refused.code, "--port 0" in refused.err) == (2, True)
