"""Two who act on one run at once, and one who repeats a request: each thing is done once, and everybody is told."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import office
import pytest
from starlette.testclient import TestClient

import holdfast
from holdfast import Holdfast, Keyring
from holdfast.ui.api import idempotency, operations
from holdfast.ui.api.calls import Call
from holdfast.ui.api.idempotency import Given, Once
from holdfast.ui.api.problems import Refused
from holdfast.ui.paths import part
from holdfast.ui.security import Person, Role


def answer_path(api: TestClient, order: str) -> str:
    [question] = api.get(f"{order}/questions").json()["items"]
    return f"{order}/questions/{part(question['id'])}/answer"


@pytest.mark.parametrize("act", ["cancel", "retry", "unblock", "rollback", "resolve", "redact"])
def test_an_act_without_a_match_is_refused(api: TestClient, order: str, act: str) -> None:
    bodies: dict[str, Any] = {"rollback": {"to": 0}, "resolve": {"key": "x", "done": True}, "redact": {"seqs": [0]}}
    before = api.get(order).headers["etag"]
    assert api.post(f"{order}/{act}", json=bodies.get(act, {})).status_code == 428
    stale = api.post(f"{order}/{act}", json=bodies.get(act, {}), headers={"If-Match": '"old"'})
    assert (stale.status_code, stale.headers["etag"]) == (412, before)
    assert api.get(order).headers["etag"] == before


def test_any_state_and_several_tags_match(api: TestClient, order: str) -> None:
    tag = api.get(order).headers["etag"]
    assert api.post(f"{order}/cancel", headers={"If-Match": f'"old", W/{tag}'}).status_code == 200
    assert api.post(f"{order}/retry", headers={"If-Match": "*"}).status_code == 200


def test_the_tag_is_another_one_after_each_change(api: TestClient, order: str, office_hf: Holdfast) -> None:
    run, tags = office_hf.get("by hand"), list[str]()

    def claim() -> None:
        with run.claim():
            pass

    for change in (lambda: run.save({"n": 2}), claim, run.complete, run.delete):
        tags.append(api.get("/api/v1/runs/by%20hand").headers["etag"])
        change()
    office_hf.run("by hand", workflow="loop").save({"n": 1})
    tags.append(api.get("/api/v1/runs/by%20hand").headers["etag"])
    assert len(set(tags)) == 5


def at_once(*calls: Any) -> list[Any]:
    """What the calls give that are made at the same time."""
    start, given = threading.Barrier(len(calls)), list[Any]()

    def work(call: Any) -> None:
        start.wait()
        given.append(call())

    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return given


def test_of_two_who_answer_at_once_one_wins_and_the_other_is_told(client: Any, order: str, office_hf: Holdfast) -> None:
    people = [client() for _ in range(4)]
    path, tag = answer_path(people[0], order), people[0].get(order).headers["etag"]

    def answering(n: int) -> Any:
        body = {"value": {"carrier": f"carrier {n}"}}
        return lambda: (n, people[n].post(path, json=body, headers={"If-Match": tag}))

    given = dict(at_once(*map(answering, range(4))))
    assert Counter(answer.status_code for answer in given.values()) == {200: 1, 412: 3}
    [winner] = [n for n, answer in given.items() if answer.status_code == 200]
    run = office_hf.get("orders/A 17%")
    run.resume()
    assert run.result() == f"A-17 by carrier {winner}"
    late = people[0].post(path, json={"value": {"carrier": "late"}}, headers={"If-Match": "*"})
    assert (late.status_code, late.json()["type"]) == (409, "urn:holdfast:problem:question-closed")


def test_what_was_matched_still_holds_when_it_is_acted_upon(
    client: Any, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    people, inside, most = [client() for _ in range(3)], list[int](), list[int]()
    check = operations.check_match

    def slow(*given: Any) -> None:
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.05)
        inside.pop()
        check(*given)

    monkeypatch.setattr(operations, "check_match", slow)
    tag = people[0].get(order).headers["etag"]
    calls = [lambda one=one: one.post(f"{order}/cancel", headers={"If-Match": tag}).status_code for one in people]
    assert sorted(at_once(*calls)) == [200, 412, 412]
    assert max(most) == 1


@pytest.mark.parametrize("act", ["rollback", "cancel", "redact"])
def test_what_was_matched_still_holds_if_somebody_acts_by_another_server(
    opened: Any, serving: Any, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    hf, other = opened(), opened()
    hf.start(office.fulfil, "A", 1, id="run")
    api = serving(hf)
    tag = api.get("/api/v1/runs/run").headers["etag"]
    check, faster = operations.check_match, [lambda: other.get("run").rollback(0)]

    def meanwhile(record: Any, if_match: str | None) -> Any:
        found = check(record, if_match)
        while faster:
            faster.pop()()
        return found

    monkeypatch.setattr(operations, "check_match", meanwhile)
    bodies: dict[str, Any] = {"rollback": {"to": 1}, "redact": {"seqs": [1]}}
    told = api.post(f"/api/v1/runs/run/{act}", json=bodies.get(act, {}), headers={"If-Match": tag})
    assert (told.status_code, told.json()["title"]) == (412, "Changed")
    record = other.get("run").info()
    assert (record.status, record.holder, record.generation) == ("ready", None, 1)
    assert api.post("/api/v1/runs/run/cancel", headers={"If-Match": told.headers["etag"]}).status_code == 200


def test_a_repeated_request_is_carried_out_once(api: TestClient, order: str, office_hf: Holdfast) -> None:
    headers = {"Idempotency-Key": "one"}
    made = [api.post(f"{order}/forks", json={"at": 2}, headers=headers) for _ in range(3)]
    assert [one.status_code for one in made] == [201] * 3
    assert len({one.json()["id"] for one in made}) == 1
    assert len(api.get(f"{order}/family").json()["forks"]) == 1
    other = api.post(f"{order}/forks", json={"at": 1}, headers=headers)
    assert (other.status_code, other.json()["type"]) == (422, "urn:holdfast:problem:key-reused")
    elsewhere = api.post("/api/v1/runs/broken/forks", json={"at": 0}, headers=headers)
    assert elsewhere.status_code == 422
    another = api.post("/api/v1/runs", json={"workflow": "office-broken"}, headers=headers)
    assert another.status_code == 201  # a key counts for one operation


def test_what_failed_may_be_tried_again_with_its_key(api: TestClient, order: str) -> None:
    headers = {"Idempotency-Key": "k", "If-Match": '"old"'}
    assert api.post(f"{order}/cancel", headers=headers).status_code == 412
    assert api.post(f"{order}/cancel", headers={**headers, "If-Match": "*"}).status_code == 200
    replayed = api.post(f"{order}/cancel", headers={**headers, "If-Match": '"old"'})
    assert (replayed.status_code, replayed.json()["status"]) == (200, "cancelled")


def test_repetitions_at_once(client: Any, order: str) -> None:
    people = [client() for _ in range(4)]

    def forking(person: TestClient) -> Any:
        return lambda: person.post(f"{order}/forks", json={"at": 2}, headers={"Idempotency-Key": "same"})

    given = at_once(*map(forking, people))
    assert {one.status_code for one in given} <= {201, 409}
    assert len(people[0].get(f"{order}/family").json()["forks"]) == 1


@pytest.fixture
def act() -> Any:
    """Counts how often it is carried out."""

    class Counted:
        times = 0
        keys: set[str] = set()  # noqa: RUF012

        def __call__(self, key: str) -> Given:
            self.times += 1
            self.keys.add(key)
            return Given(200, b'{"secret": "swordfish"}', '"e"')

    return Counted()


def test_a_key_is_kept_on_every_store_and_by_every_server(opened: Any, act: Any) -> None:
    first, second = Once(opened()), Once(opened())
    given = [one.carry_out("operator", "fork", "k", b"body", act) for one in (first, second, first)]
    assert (act.times, {one.body for one in given}) == (1, {b'{"secret": "swordfish"}'})
    assert first.carry_out("auditor", "fork", "k", b"other", act)
    assert second.carry_out("operator", "cancel", "k", b"other", act)
    with pytest.raises(Refused, match="another request"):
        second.carry_out("operator", "fork", "k", b"other", act)
    assert act.times == 3


def test_what_a_request_gave_is_encrypted_where_runs_are(opened: Any, act: Any, raw_bytes: Any) -> None:
    keys = Keyring({"a": b"k" * 32}, current="a")
    Once(opened(keys=keys)).carry_out("operator", "fork", "k", b"body", act)
    assert b"swordfish" not in raw_bytes()
    again = Once(opened(keys=keys)).carry_out("operator", "fork", "k", b"body", act)
    assert (act.times, again.body) == (1, b'{"secret": "swordfish"}')


def test_a_request_whose_server_died_is_carried_out_again_with_the_same_name(timed: Any, clock: Any, act: Any) -> None:
    class Died(BaseException):
        pass

    def dies(key: str) -> Given:
        act(key)
        raise Died

    first, second = Once(timed()), Once(timed())
    first._put = lambda *_: None  # type: ignore[method-assign]  # what is dead writes nothing
    with pytest.raises(Died):
        first.carry_out("operator", "fork", "k", b"body", dies)
    with pytest.raises(Refused, match="is being carried out"):
        second.carry_out("operator", "fork", "k", b"body", act)
    clock.advance(idempotency.GIVEN_UP / 1_000_000 + 1)
    second.carry_out("operator", "fork", "k", b"body", act)
    assert (act.times, len(act.keys)) == (2, 1)


def test_a_schedule_is_triggered_once_though_the_server_died_before_it_could_say_so(office_hf: Holdfast) -> None:
    office_hf.schedule(office.broken, cron="0 3 * * *", id="nightly")

    def trigger(key: str | None) -> str:
        person = Person("operator", Role.ACT)
        call: Call[Any, Any] = Call(office_hf, person, {"schedule": "nightly"}, None, None, key)
        return str(operations.perform("trigger_schedule", call).id)

    assert trigger("one") == trigger("one")
    assert len({trigger("one"), trigger("two"), trigger(None), trigger(None)}) == 4


def test_keys_are_forgotten_after_a_day(timed: Any, clock: Any, act: Any) -> None:
    hf = timed()
    keeper = Once(hf)
    keeper.carry_out("operator", "fork", "k", b"body", act)
    clock.advance(idempotency.KEPT / 1_000_000 + 1)
    keeper.carry_out("operator", "fork", "other", b"body", act)
    assert len(hf.client.store.documents(idempotency.KIND)) == 1
    keeper.carry_out("operator", "fork", "k", b"body", act)
    assert act.times == 3


def test_a_run_whose_key_is_not_here_shows_as_such(tmp_path: Any, serving: Any) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with holdfast.open(url, keys=Keyring({"a": b"k" * 32}, current="a")) as hf:
        hf.start(office.fulfil, "A", 1, id="locked")
    with holdfast.open(url) as hf:
        api = serving(hf)
        [listed] = api.get("/api/v1/runs").json()["items"]
        assert listed["encrypted"] is True
        shown = api.get("/api/v1/runs/locked").json()
        assert (shown["readable"], shown["questions"]) == (False, [])
        refused = api.get("/api/v1/runs/locked/entries/0")
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:holdfast:problem:key-missing")
        assert [one["run"] for one in api.get("/api/v1/questions").json()["unread"]] == ["locked"]


def test_the_same_on_every_store(opened: Any, serving: Any) -> None:
    hf = opened()
    api = serving(hf)
    hf.start(office.fulfil, "A", 1, id="a/b", tags={"t": "1"})
    assert [one["id"] for one in api.get("/api/v1/runs?tag=t%3D1&status=waiting&prefix=a%2F").json()["items"]] == [
        "a/b"
    ]
    assert api.get("/api/v1/counts").json()["counts"]["waiting"] == 1
    path = "/api/v1/runs/a%2Fb"
    tag = api.get(path).headers["etag"]
    made = api.post(f"{path}/forks", json={"at": 1, "id": "c"}, headers={"Idempotency-Key": "k"})
    assert made.status_code == 201
    assert [one["id"] for one in api.get(f"{path}/family").json()["forks"]] == ["c"]
    answer = answer_path(api, path)
    given = [api.post(answer, json={"value": {"carrier": "x"}}, headers={"If-Match": tag}) for _ in range(2)]
    assert [one.status_code for one in given] == [200, 412]
    assert api.get("/api/v1/queues").json()["items"][0]["name"] == "default"
    assert api.get("/api/v1/workers").status_code == 200
    assert api.delete(path, headers={"If-Match": "*"}).json() == {"deleted": True}
