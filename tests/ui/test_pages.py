"""The pages, asked for as a browser does: what they show, and what they say when something is not as it should be."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from urllib.parse import unquote

import pytest
import selling
from starlette.testclient import TestClient

import holdfast
from holdfast import Holdfast, Keyring
from holdfast.stores import memory
from holdfast.ui.pages import state
from holdfast.ui.pages.addresses import run_url

Serve = Callable[[Holdfast], TestClient]


@pytest.fixture
def hf() -> Any:
    with holdfast.open("memory://") as opened:
        yield opened


@pytest.fixture
def pages(serving: Serve, hf: Holdfast) -> TestClient:
    return serving(hf)


def ids_in(text: str) -> list[str]:
    """The runs of a list, in its order."""
    return [html.unescape(id) for id in re.findall(r'<th scope="row" class="c-id"><a [^>]*>([^<]*)</a>', text)]


def words(text: str) -> str:
    """What a page says, without how."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text.partition("<main")[2])).split())


# --- the list


def test_the_list_is_paged_by_key(hf: Holdfast, pages: TestClient) -> None:
    for n in range(120):
        hf.run(f"r{n:03}")
    found: list[list[str]] = []
    url: str | None = "/"
    while url:
        text = pages.get(url).text
        found.append(ids_in(text))
        older = re.search(r'href="([^"]*)" rel="next"', text)
        url = html.unescape(older[1]) if older else None
        hf.run(f"new{len(found)}")  # what comes meanwhile moves nothing
    assert [len(page) for page in found] == [50, 50, 20]
    assert [id for page in found for id in page] == [f"r{n:03}" for n in reversed(range(120))]


def test_a_row_says_what_the_run_does_now(hf: Holdfast, pages: TestClient) -> None:
    hf.start(selling.sell, "A-1", 4200, id="A-1", tags={"customer": "17"})
    hf.start(selling.broken, 3, id="broken")
    hf.start(selling.draft, {"text": "", "notes": []}, id="draft").result()
    told = words(pages.get("/").text)
    assert "asked: How shall A-1 go?" in told
    assert "customer=17" in told
    assert "failed: ValueError: there are no 3" in told
    assert "waiting 1" in told
    assert "completed 1" in told


def test_filters_that_make_no_sense_are_told(hf: Holdfast, pages: TestClient) -> None:
    answer = pages.get("/?status=lazy")
    assert (answer.status_code, "no status" in answer.text) == (422, True)
    hf.run("r")
    wrong = pages.get("/?tag=oops")
    assert (wrong.status_code, ids_in(wrong.text)) == (422, [])
    assert re.search(r'<p class="error whole" id="tag-error" role="alert">a tag is name=value', wrong.text)
    assert pages.get("/?after=nonsense").status_code in (200, 422)
    assert pages.get("/?from=tomorrow").status_code == 422


def test_known_workflows_are_offered(hf: Holdfast, pages: TestClient) -> None:
    hf.run("r", workflow="of elsewhere")
    text = pages.get("/").text
    assert 'list="workflows"' in text
    for name in ("sell", "of elsewhere"):  # of this process, and of a run that is listed
        assert f'<option value="{name}"></option>' in text


def test_an_empty_store(pages: TestClient) -> None:
    assert "There are no runs yet." in pages.get("/").text
    for path in ("/questions", "/queues", "/schedules", "/workers"):
        assert pages.get(path).status_code == 200


@pytest.mark.parametrize(
    "id", [".", "..", "~", "~x", "a/b", "../../etc/passwd", "%2F", "a b?c#d&e=f", "ä€𝄞", "\n", "x" * 512]
)
def test_any_id_has_its_pages(hf: Holdfast, pages: TestClient, id: str) -> None:
    hf.run(id).save({"n": 1})
    link = html.unescape(re.search(r'class="id" href="([^"]+)"', pages.get("/").text)[1])  # type: ignore[index]
    assert "/.." not in unquote(link).replace("/../../etc", "")
    text = pages.get(link).text
    assert f"<h1>{html.escape(id)}</h1>".replace("&#x27;", "&#39;") in text
    for part in ("state", "effects", "family", "journal", "fork", "rollback", "cancel"):
        assert pages.get(f"{link}/{part}").status_code == 200, part


# --- one run


def test_a_run_from_all_sides(hf: Holdfast, pages: TestClient) -> None:
    run = hf.start(selling.sell, "A-1", 4200, id="A-1")
    told = words(pages.get("/runs/A-1").text)
    for part in ("attempt 2", "card of A-1", "mailbox of A-1", "A-1 is paid", '"paid": 4200', "How shall A-1 go?"):
        assert part in told
    effects = words(pages.get("/runs/A-1/effects").text)
    assert "charge#1 card of A-1 yes, by selling:refund" in effects
    assert "mail#1 mailbox of A-1 no" in effects
    run.rollback(to=0)
    assert "↩ undone" in words(pages.get("/runs/A-1/effects").text)
    journal = words(pages.get("/runs/A-1/journal").text)
    assert "abandoned" in journal
    assert "rewound to entry 0" in journal


def test_a_failure_with_its_traceback(hf: Holdfast, pages: TestClient) -> None:
    hf.start(selling.broken, 3, id="b")
    told = words(pages.get("/runs/b").text)
    assert "What it failed with ValueError: there are no 3" in told
    assert "in broken" in told


def test_a_graph_is_drawn_with_the_path_that_was_taken(hf: Holdfast, pages: TestClient) -> None:
    hf.start(selling.draft, {"text": "", "notes": []}, id="d").result()
    text = pages.get("/runs/d").text
    assert '<svg xmlns="http://www.w3.org/2000/svg" class="hf"' in text
    assert "×2" in text
    assert "style=" not in text
    assert "<style" not in text
    assert ".hf .done" in pages.get("/graph.css").text


def test_children_and_forks_as_a_tree(hf: Holdfast, pages: TestClient) -> None:
    house = hf.start(selling.house, ["kitchen", "attic"], id="house")
    house.result()
    house.fork(id="other").fork(id="third")
    told = words(pages.get("/runs/house/family").text)
    for part in ("house this run", "house/room#1 child", "house/room#2 child", "other forked at", "third forked at"):
        assert part in told
    assert "house ✓ completed house/room#1 child this run" in words(pages.get(run_url("house/room#1", "family")).text)
    hf.get("house/room#1").fork(id="room")
    told = words(pages.get("/runs/room/family").text)
    assert "✓ completed house ✓ completed house/room#1 child ○ ready room forked at" in told
    hf.get("house").delete()
    assert "deleted house" in words(pages.get("/runs/other/family").text)


def test_long_values_are_cut_and_the_whole_is_paged(hf: Holdfast, pages: TestClient) -> None:
    hf.run("big").save({"text": "x" * 150_000 + "END"})
    text = pages.get("/runs/big/state").text
    assert len(text) < 60_000
    link = html.unescape(re.search(r'<a href="([^"]+)">the whole</a>', text)[1])  # type: ignore[index]
    seen, url = "", link
    while url:
        text = pages.get(url).text
        seen += re.search(r"<pre[^>]*><code>(.*?)</code>", text, re.S)[1]  # type: ignore[index]
        later = re.search(r'href="([^"]+)" rel="next"', text)
        url = html.unescape(later[1]) if later else ""
    assert html.unescape(seen).count("x") == 150_001  # and that of "text"
    assert "END" in seen


def test_the_timeline_of_a_long_run_is_a_window_and_says_so(hf: Holdfast, pages: TestClient) -> None:
    run = hf.run("long")
    with run.claim():
        for n in range(1_000):
            run.once(f"step-{n}", int, n)
    text = pages.get("/runs/long").text
    assert "entries 701 to 1000 of 1000" in words(text)
    assert text.count("data-row") == 300  # all of them: what is before is on the pages before
    earlier = html.unescape(re.search(r'href="([^"]+)">Earlier entries', text)[1])  # type: ignore[index]
    assert "entries 401 to 700 of 1000" in words(pages.get(earlier).text)
    journal = pages.get("/runs/long/journal").text
    assert re.findall(r"entries/(\d+)\"", journal) == [str(n) for n in range(901, 1001)]
    assert len(re.findall(r"entries/\d+\"", pages.get("/runs/long/journal?from=250").text)) == 100


def test_a_page_of_a_long_run_reads_its_window_and_not_all_of_it(
    hf: Holdfast, pages: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = hf.run("long")
    with run.claim():
        for n in range(3_000):
            run.once(f"step-{n}", int, n)
        run.complete("well")
    read, entries = memory.MemoryStore.read, [0]

    def counted(store: Any, *args: Any, **kwargs: Any) -> Any:
        found = read(store, *args, **kwargs)
        entries[0] += len(found)
        return found

    monkeypatch.setattr(memory.MemoryStore, "read", counted)
    for path in ("/", "/runs/long", "/runs/long/journal", "/runs/long/entries/5"):
        entries[0] = 0
        assert pages.get(path).status_code == 200
        assert entries[0] < 2_000, path


def test_the_list_does_not_read_again_what_runs_at_work_did_not_ask_before(
    hf: Holdfast, pages: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, reads = memory.MemoryStore.read, [0]

    def counted(store: Any, *args: Any, **kwargs: Any) -> Any:
        reads[0] += 1
        return read(store, *args, **kwargs)

    with ExitStack() as held:
        runs = [hf.run(f"r{n}") for n in range(60)]
        for run in runs:
            held.enter_context(run.claim())
        assert pages.get("/").status_code == 200
        monkeypatch.setattr(memory.MemoryStore, "read", counted)
        assert pages.get("/").status_code == 200
        assert reads[0] == 0
        runs[7].pause("Well?")
        assert "Well?" in pages.get("/").text
        hf.get("r7").answer("yes")
        assert "Well?" not in pages.get("/").text


def test_the_state_at_each_entry_and_what_changed(hf: Holdfast, pages: TestClient) -> None:
    run = hf.run("r")
    run.save({"a": 1, "b": [1]})
    run.save({"a": 2, "b": [1, 2], "c": None})
    told = words(pages.get("/runs/r/state?at=2").text)
    assert "changed: state.a 1 2" in told
    assert "added: state.b[1] 2" in told
    assert pages.get("/runs/r/state?at=3").status_code == 404
    assert pages.get("/runs/r/state?at=x").status_code == 422
    assert "Nothing, beside being there." in words(pages.get("/runs/r/state?at=0").text)


def test_where_results_become_too_many_to_compare_nothing_seems_to_change(
    hf: Holdfast, pages: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = hf.run("r")
    for n in range(4):
        run.once(f"step-{n}", int, n)
    monkeypatch.setattr(state, "RESULTS", 2)
    assert "added: steps['step-1'] 1" in words(pages.get("/runs/r/state?at=2").text)
    assert "The results of so many steps are not compared" in words(pages.get("/runs/r/state?at=3").text)


def test_the_journal_says_who_rolled_back_and_what_that_did_stays(hf: Holdfast, pages: TestClient) -> None:
    run = hf.start(selling.sell, "A-1", 4200, id="A-1")
    run.rollback(0, by="Ada")
    run.fork(id="other", by="Ben")
    told = words(pages.get("/runs/A-1/journal").text)
    assert "done abandoned charge#1" in told
    assert "rollback_begun to entry 0 by Ada" in told
    assert "undone entry 1" in told
    assert "by Ben" in words(pages.get("/runs/other/journal").text)
    assert "rolls back to entry 0 done by Ada" in words(pages.get("/runs/A-1").text)


def test_a_run_that_waits_for_a_message_says_so(hf: Holdfast, pages: TestClient) -> None:
    @holdfast.workflow
    def receiver() -> object:
        return holdfast.receive("parcel")

    hf.start(receiver, id="r")
    assert "… waiting for a message" in words(pages.get("/runs/r").text)


def test_what_is_not_there_is_a_page_too(hf: Holdfast, pages: TestClient) -> None:
    answer = pages.get("/runs/nobody")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    hf.run("r")
    for path in ("/runs/r/entries/9", "/runs/r/entries/x", "/runs/r/entries/" + "9" * 40):
        assert pages.get(path).status_code == 404
    assert pages.get("/runs/r/resolve?key=none").status_code == 404


def test_an_encrypted_run_without_its_key_is_shown_as_such(serving: Serve, tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with holdfast.open(url, keys=Keyring({"k1": b"k" * 32}, current="k1")) as secret:
        secret.run("hidden", tags={"a": "b"}).save({"word": "abracadabra"})
    with holdfast.open(url) as hf:
        pages = serving(hf)
        assert "hidden" in pages.get("/").text
        told = words(pages.get("/runs/hidden").text)
        assert "encrypted with key 'k1'" in told
        assert "abracadabra" not in told
        for part in ("state", "effects", "journal", "fork", "entries/1"):
            answer = pages.get(f"/runs/hidden/{part}")
            assert (answer.status_code, str(tmp_path) in answer.text) == (200 if part == "journal" else 409, False), (
                part
            )
        assert pages.get("/runs/hidden/family").status_code == 200


def test_an_erased_run_is_shown_as_far_as_it_goes(hf: Holdfast, pages: TestClient) -> None:
    run = hf.run("r")
    run.save({"word": "abracadabra"})
    run.save({"word": "abracadabra", "n": 1})
    run.redact(1)
    for part in ("", "journal", "effects", "family"):
        answer = pages.get(f"/runs/r/{part}".rstrip("/"))
        assert (answer.status_code, "abracadabra" in answer.text) == (200, False), part
    assert pages.get("/runs/r/state?at=2").status_code == 410


def test_a_page_that_has_not_changed_is_not_sent_again(hf: Holdfast, pages: TestClient) -> None:
    first = pages.get("/schedules")
    again = pages.get("/schedules", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.text) == (304, "")
    assert first.headers["cache-control"] == "no-cache, private"


def test_what_nobody_foresaw_is_a_page_without_its_details(
    hf: Holdfast, pages: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the password is 1234")

    monkeypatch.setattr(Holdfast, "runs", fail)
    answer = pages.get("/")
    assert (answer.status_code, "1234" in answer.text) == (500, False)
    assert "<h1>Unexpected</h1>" in answer.text


def test_what_a_holder_has_not_taken_in_is_pending(hf: Holdfast, pages: TestClient) -> None:
    run = hf.run("held")
    run.pause("Which?")
    with run.claim():
        hf.get("held").mark("m", "tool", "a.txt")
        hf.get("held").answer("left")
        journal = words(pages.get("/runs/held/journal").text)
        assert journal.count("pending") == 2
        assert "a.txt" in pages.get("/runs/held/effects").text
        assert pages.get("/runs/held/entries/3").status_code == 200
        listed = pages.get("/api/v1/runs/held/entries").json()["items"]
        assert [(one["kind"], one["pending"]) for one in listed[-2:]] == [("marked", True), ("answered", True)]
        assert pages.get("/runs/held").status_code == 200
