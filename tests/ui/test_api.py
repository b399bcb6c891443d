"""The HTTP API: each thing that can be done to runs, by its route."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import office
import pytest
from starlette.testclient import TestClient

import holdfast
from holdfast import Holdfast
from holdfast.ui.api.operations import TABLE
from holdfast.ui.paths import id_of, part
from holdfast.ui.security import Role


def seen(api: TestClient, path: str) -> dict[str, str]:
    """The header that says how the run was seen."""
    return {"If-Match": api.get(path).headers["etag"]}


def asked(api: TestClient, path: str) -> str:
    [question] = api.get(f"{path}/questions").json()["items"]
    return f"{path}/questions/{part(question['id'])}/answer"


def test_runs_are_listed_newest_first_and_paged_by_key(api: TestClient, office_hf: Holdfast) -> None:
    for n in range(5):
        office_hf.run(f"r{n}", tags={"n": str(n % 2)})
    first = api.get("/api/v1/runs", params={"limit": 2, "prefix": "r"}).json()
    second = api.get("/api/v1/runs", params={"limit": 2, "prefix": "r", "after": first["next"]}).json()
    last = api.get("/api/v1/runs", params={"limit": 2, "prefix": "r", "after": second["next"]}).json()
    assert [[one["id"] for one in page["items"]] for page in (first, second, last)] == [
        ["r4", "r3"],
        ["r2", "r1"],
        ["r0"],
    ]
    assert last["next"] is None


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("status=failed", ["broken"]),
        ("status=failed&status=waiting", ["broken", "orders/A 17%"]),
        ("workflow=office-order", ["orders/A 17%"]),
        ("tag=customer%3D17", ["orders/A 17%"]),
        ("tag=customer%3D18", []),
        ("prefix=orders%2F", ["orders/A 17%"]),
        ("created_before=2020-01-01T00:00:00Z", []),
        ("created_from=2020-01-01T00:00:00%2B02:00&prefix=b", ["by hand", "broken"]),
    ],
)
def test_runs_are_filtered(api: TestClient, query: str, found: list[str]) -> None:
    assert [one["id"] for one in api.get(f"/api/v1/runs?{query}").json()["items"]] == found


def test_the_counts_of_statuses(api: TestClient) -> None:
    counts = api.get("/api/v1/counts").json()
    assert (counts["counts"]["waiting"], counts["counts"]["failed"], counts["upto"]) == (1, 1, 1_000)


def test_a_run_with_what_it_asks(api: TestClient, order: str) -> None:
    shown = api.get(order)
    assert shown.json()["run"]["id"] == "orders/A 17%"
    assert shown.headers["etag"] == shown.json()["run"]["etag"]
    assert [one["prompt"] for one in shown.json()["questions"]] == ["Ship it?"]


def test_a_run_is_looked_at_from_every_side(api: TestClient, order: str) -> None:
    entries = api.get(f"{order}/entries", params={"limit": 2}).json()
    assert [one["seq"] for one in entries["items"]] == [0, 1]
    more = api.get(f"{order}/entries", params={"after": entries["next"], "kind": "asked"}).json()
    assert [one["kind"] for one in more["items"]] == ["asked"]
    assert api.get(f"{order}/entries/0").json()["contents"]["args"] == ["A-17", 4200]
    assert api.get(f"{order}/state").json()["steps"] == {"charge#1": "receipt of A-17", "note#1": None}
    assert api.get(f"{order}/state", params={"at": 0}).json()["steps"] == {}
    found = api.get(f"{order}/diff", params={"at": 0}).json()["differences"]
    assert [one["change"] for one in found] == ["added", "added"]
    assert "charge#1" in found[0]["path"]
    assert [one["key"] for one in api.get(f"{order}/steps").json()["items"]] == ["charge#1", "note#1"]
    assert [one["status"] for one in api.get(f"{order}/effects").json()["items"]] == ["done"]
    assert [one["value"] for one in api.get(f"{order}/outputs").json()["items"]] == ["charged"]
    assert api.get(f"{order}/audit").json()["entries"] == api.get(order).json()["run"]["seq"] + 1
    plan = api.get(f"{order}/rollback", params={"to": 0}).json()
    assert [one["action"] for one in plan["steps"]] == ["undo"]
    assert api.get(f"{order}/graph").status_code == 422
    assert {"office-broken", "office-order"} <= set(api.get("/api/v1/workflows").json()["items"])


@pytest.mark.parametrize(
    "id", ["..", ".", "~", "~..", "a/../b", "%2e%2e", "a?b#c", "ä/☃", "x" * 512, " ", "\x00", "&=+"]
)
def test_any_id_is_one_part_of_a_path(api: TestClient, office_hf: Holdfast, id: str) -> None:
    assert id_of(part(id)) == id
    office_hf.run(id)
    assert api.get(f"/api/v1/runs/{part(id)}").json()["run"]["id"] == id
    assert api.get(f"/api/v1/runs/{part(id)}/entries/0").json()["kind"] == "created"


def test_a_workflow_is_begun(api: TestClient, office_hf: Holdfast) -> None:
    made = api.post(
        "/api/v1/runs", json={"workflow": "office-order", "input": {"order": "B", "cents": 5}, "tags": {"t": "1"}}
    )
    assert made.status_code == 201
    assert (made.json()["status"], made.json()["tags"]) == ("ready", {"t": "1"})
    assert office_hf.get(made.json()["id"]).entry(0).contents["args"] == ["B", 5]
    refused = api.post("/api/v1/runs", json={"workflow": "office-order", "input": {"order": "B", "cents": "five"}})
    assert refused.status_code == 422
    assert "cents" in refused.json()["detail"]
    assert api.post("/api/v1/runs", json={"workflow": "nobody"}).status_code == 422


def test_a_question_is_answered_and_who_did_it_is_journaled(api: TestClient, order: str, office_hf: Holdfast) -> None:
    path = asked(api, order)
    done = api.post(path, json={"value": {"carrier": "post"}}, headers=seen(api, order))
    assert (done.status_code, done.json()["status"]) == (200, "ready")
    run = office_hf.get("orders/A 17%")
    assert run.resume() == "completed"
    [answered] = run.history(kind="answered")
    assert run.entry(answered.seq).contents["by"] == "operator"
    assert api.get(order).json()["result"] == "A-17 by post"


def test_an_answer_that_does_not_fit_names_every_field(api: TestClient, order: str) -> None:
    refused = api.post(asked(api, order), json={"value": {"insured": 7, "x": 1}}, headers=seen(api, order))
    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"
    assert {one.partition(":")[0] for one in refused.json()["problems"]} >= {"carrier", "insured"}
    assert refused.json()["run"] == "orders/A 17%"


def test_a_fork_goes_another_way(api: TestClient, order: str, office_hf: Holdfast) -> None:
    made = api.post(f"{order}/forks", json={"at": 2, "id": "other", "results": {"charge#1": "free"}})
    assert made.status_code == 201
    assert made.json()["forked_from"] == {"run": "orders/A 17%", "seq": 2}
    family = api.get(f"{order}/family").json()
    assert [one["id"] for one in family["forks"]] == ["other"]
    assert api.get("/api/v1/runs/other/family").json()["forked_from"] == [{"run": "orders/A 17%", "seq": 2}]
    [forked] = office_hf.get("other").history(kind="forked")
    assert office_hf.get("other").entry(forked.seq).contents["by"] == "operator"


def test_a_rollback_undoes_and_says_who(api: TestClient, order: str, office_hf: Holdfast) -> None:
    office.undone.clear()
    done = api.post(f"{order}/rollback", json={"to": 0, "then": "cancelled"}, headers=seen(api, order))
    assert done.status_code == 200
    assert [one["key"] for one in done.json()["report"]["undone"]] == ["charge#1"]
    assert done.json()["run"]["status"] == "cancelled"
    assert office.undone == ["receipt of A-17"]
    run = office_hf.get("orders/A 17%")
    assert [run.entry(one.seq).contents["by"] for one in run.history(kind="rollback_begun")] == ["operator"]


def test_cancel_retry_and_delete(api: TestClient, order: str, office_hf: Holdfast) -> None:
    cancelled = api.post(f"{order}/cancel", json={"why": "gone"}, headers=seen(api, order))
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    retried = api.post(f"{order}/retry", headers={"If-Match": cancelled.headers["etag"]})
    assert retried.json()["status"] == "ready"
    assert api.post(f"{order}/unblock", headers=seen(api, order)).status_code == 422
    assert api.delete(order, headers=seen(api, order)).json() == {"deleted": True}
    assert api.get(order).status_code == 404
    hand = "/api/v1/runs/by%20hand"
    assert api.post(f"{hand}/cancel", headers=seen(api, hand)).status_code == 200
    [ended] = office_hf.get("by hand").history(kind="cancelled")
    assert office_hf.get("by hand").entry(ended.seq).contents["by"] == "operator"


def test_several_runs_are_cancelled_after_a_look(api: TestClient, office_hf: Holdfast) -> None:
    for n in range(3):
        office_hf.enqueue(office.patient, "news", id=f"p{n}")
    where = {"where": {"prefix": "p"}}
    looked = api.post("/api/v1/cancel", json={**where, "dry_run": True}).json()
    assert ([one["run"] for one in looked["items"]], looked["dry_run"]) == (["p2", "p1", "p0"], True)
    done = api.post("/api/v1/cancel", json=where).json()
    assert {one["status"] for one in done["items"]} == {"cancelled"}
    again = api.post("/api/v1/retry", json={"runs": ["p0", "orders/A 17%"]}).json()["items"]
    assert [(one["status"], "error" in one and one["error"] is not None) for one in again] == [
        ("ready", False),
        ("waiting", True),
    ]
    assert api.post("/api/v1/cancel", json={}).status_code == 422
    assert api.post("/api/v1/cancel", json={"runs": ["p1"], "why": "w", "undo": True}).status_code == 200
    for act in ("retry", "unblock"):
        for extra in ({"why": "w"}, {"undo": True}):
            refused = api.post(f"/api/v1/{act}", json={"runs": ["p1"], **extra})
            assert (refused.status_code, next(iter(extra)) in refused.json()["detail"]) == (422, True)
    assert api.post("/api/v1/prune", json={"statuses": ["failed"], "dry_run": True}).json()["runs"] == ["broken"]


def test_a_message_with_a_key_is_sent_once(api: TestClient, office_hf: Holdfast) -> None:
    office_hf.start(office.patient, "news", id="p")
    sent = [
        api.post("/api/v1/runs/p/messages", json={"value": 1, "topic": "news", "key": "k"}).json() for _ in range(2)
    ]
    assert [one["sent"] for one in sent] == [True, False]


def test_an_entry_is_redacted(api: TestClient, order: str) -> None:
    assert (
        api.post(f"{order}/redact", json={"seqs": [0], "why": "asked for"}, headers=seen(api, order)).status_code == 200
    )
    assert "args" not in api.get(f"{order}/entries/0").json()["contents"]


def test_a_run_is_exported(api: TestClient, order: str, tmp_path: Path) -> None:
    given = api.get(f"{order}/export")
    assert given.headers["content-type"].startswith("application/x-ndjson")
    (tmp_path / "run").write_bytes(given.content)
    with holdfast.open("memory://imported") as hf:
        hf.restore(str(tmp_path / "run"))
        assert [one.id for one in hf.runs()] == ["orders/A 17%"]
    assert api.get("/api/v1/runs/nobody/export").status_code == 404


def test_queues(api: TestClient) -> None:
    changed = api.patch("/api/v1/queues/mail", json={"limit": 3, "rate": {"count": 10, "seconds": 60}, "paused": True})
    assert changed.status_code == 200
    told = api.get("/api/v1/queues/mail").json()
    assert (told["limit"], told["rate"], told["paused"]) == (3, {"count": 10, "seconds": 60.0}, True)
    assert api.patch("/api/v1/queues/mail", json={"limit": None, "paused": False}).json()["limit"] is None
    assert "mail" in [one["name"] for one in api.get("/api/v1/queues").json()["items"]]
    assert api.delete("/api/v1/queues/mail").json() == {"deleted": True}


def test_schedules(api: TestClient, office_hf: Holdfast) -> None:
    office_hf.schedule(office.broken, cron="0 3 * * *", id="night/ly")
    path = f"/api/v1/schedules/{part('night/ly')}"
    assert [one["id"] for one in api.get("/api/v1/schedules").json()["items"]] == ["night/ly"]
    assert api.post(f"{path}/pause").json()["paused"] is True
    assert api.post(f"{path}/resume").json()["paused"] is False
    assert api.post(f"{path}/trigger").status_code == 201
    assert api.delete(path).json() == {"deleted": True}
    gone = api.get(path)
    assert gone.status_code == 404
    assert "memory:" not in gone.text


def test_workers_and_what_they_hold(api: TestClient, office_hf: Holdfast) -> None:
    with office_hf.run("held").claim():
        [worker] = api.get("/api/v1/workers").json()["items"]
        assert (worker["alive"], worker["runs"]) == (True, ["held"])


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/api/v1/runs?limit=0", None, 422),
        ("GET", "/api/v1/runs?nonsense=1", None, 422),
        ("GET", "/api/v1/runs?limit=1&limit=2", None, 422),
        ("GET", "/api/v1/runs?after=zz", None, 422),
        ("GET", "/api/v1/counts?x=1", None, 422),
        ("GET", "/api/v1/runs/broken/entries/99", None, 404),
        ("GET", "/api/v1/runs/broken/entries/-1", None, 404),
        ("GET", "/api/v1/runs/broken/entries/" + "9" * 5000, None, 404),
        ("GET", "/api/v1/runs/broken/state?at=99", None, 404),
        ("GET", "/api/v1/runs/nobody", None, 404),
        ("GET", "/api/v1/runs/%ff", None, 422),
        ("GET", "/api/v1/nonsense", None, 404),
        ("PUT", "/api/v1/runs", {}, 405),
        ("POST", "/api/v1/runs", {"workflow": 7}, 422),
        ("POST", "/api/v1/runs", {"workflow": "office-order", "more": 1}, 422),
    ],
)
def test_what_does_not_fit_is_a_problem_document(
    api: TestClient, method: str, path: str, body: Any, status: int
) -> None:
    answer = api.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert answer.json().keys() >= {"type", "title", "detail"}


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b'{"workflow": "office-order", "input": ' + b"[" * 3000, "application/json", 400),
        (b'"\\ud800"', "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"a=1", "application/x-www-form-urlencoded", 415),
        (b"{}", "text/plain", 415),
    ],
)
def test_a_body_that_is_none(api: TestClient, body: bytes, kind: str, status: int) -> None:
    answer = api.post("/api/v1/runs", content=body, headers={"Content-Type": kind})
    assert answer.status_code == status, answer.text


def test_who_may_look_may_do_nothing_else() -> None:
    assert {one.name for one in TABLE if one.role is Role.VIEW} == {one.name for one in TABLE if one.method == "GET"}
    assert all(one.guarded for one in TABLE if one.method == "POST" and one.path.startswith("/runs/{run}/")) is False
    unguarded = {one.name for one in TABLE if one.method != "GET" and "{run}" in one.path and not one.guarded}
    assert unguarded == {"fork_run", "send_message"}  # which leave the run as it is
