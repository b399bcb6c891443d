"""The pages on every store."""

from __future__ import annotations

from collections.abc import Callable

import selling
from starlette.testclient import TestClient

from holdfast import Holdfast
from holdfast.ui.pages.addresses import run_url


def test_all_pages_on_every_store(hf: Holdfast, serving: Callable[[Holdfast], TestClient]) -> None:
    run = hf.start(selling.sell, "A/1", 4200, id="A/1", tags={"customer": "17"})
    run.fork(id="fork")
    hf.start(selling.draft, {"text": "", "notes": []}, id="draft").result()
    hf.start(selling.house, ["attic"], id="house").result()
    hf.enqueue(selling.sell, "A/2", 1, queue="mail")
    pages = serving(hf)
    told = {
        "/": ["asked: How shall A/1 go?", "customer=17"],
        "/?status=waiting&tag=customer%3D17&q=A": ["A/1"],
        "/questions": ["How shall A/1 go?"],
        "/queues": ["mail"],
        "/schedules": [],
        "/workers": [],
        "/runs/draft": ['class="hf"', "draft 2"],
        "/runs/draft/state?at=3": ["state.notes[0]", "read draft 1"],
        run_url("A/1"): ["card of A/1", "attempt 2", "A/1 is paid"],
        run_url("A/1", "effects"): ["mailbox of A/1"],
        run_url("A/1", "journal"): ["intended"],
        run_url("A/1", "fork"): ["Fork"],
        run_url("A/1", "family"): ["fork", "forked at"],
        run_url("A/1", "rollback", to="0"): ["charge#1"],
        "/runs/house/family": ["house/room#1"],
    }
    for path, words in told.items():
        answer = pages.get(path)
        assert answer.status_code == 200, path
        for word in words:
            assert word in answer.text, (path, word)
    [asked] = run.questions()
    pages.post(run_url("A/1", "answer"), data={"question": asked.id, "f0": "0", "f1": "1"})
    run.resume()
    assert run.result() == "receipt of A/1, by post"
