"""The terminal and the page say the same about the same run."""

from __future__ import annotations

import json
import re
from typing import Any

import gallery
import pytest

from holdfast.present.words import mark, word
from holdfast.ui.paths import part

from .conftest import Both, head, region, words

RUNS = (
    "anew", "answered", "asks", "by hand", "cancelled", "died", "edited", "erased", "failed", "flow", "fork",
    "fork of anew", "graph", "lost by hand", "parent", "parent/sell#1", "retries", "rolled back", "secret",
    "uncertain", "undo failed", "waits",
)  # fmt: skip

LOOKS = {
    "anew": "asks",
    "answered": "ready",
    "asks": "asks",
    "by hand": "failed",
    "cancelled": "cancelled",
    "died": "died",
    "erased": "completed",
    "lost by hand": "running",
    "parent": "asks",  # by its child
    "retries": "delayed",
    "rolled back": "cancelled",
    "uncertain": "blocked",
    "undo failed": "blocked",
    "waits": "waiting",
}
INPUTS: dict[str, Any] = {
    "anew": {"n": 0},  # that of its newest chapter
    "asks": {"order": "A-1", "cents": 4200},
    "by hand": None,
    "edited": {"log": ["of old"]},
    "erased": None,
    "flow": {"who": "moon"},
    "fork": {"order": "A-1", "cents": 1},
    "fork of anew": {"n": 7},
    "parent/sell#1": {"order": "A-4", "cents": 100},
}
STEPS = {  # their statuses and attempts
    "asks": [("done", 1), ("done", 2), ("done", 1), ("needs input", 1)],
    "retries": [("retrying", 2)],
}
NEEDS = {  # what helps: the acts that both offer
    "anew": ["answer"],
    "answered": ["resume"],
    "by hand": ["retry"],
    "cancelled": ["retry"],
    "died": ["resume"],
    "erased": [],
    "failed": ["retry"],
    "fork": ["resume"],
    "lost by hand": ["watch"],
    "parent": ["answer"],
    "uncertain": ["resolve wire#1"],
    "undo failed": ["rollback to 0"],
    "waits": ["resume"],
}


def test_there_is_a_run_of_each_kind(both: Both) -> None:
    assert sorted(both.ids) == sorted(RUNS)


@pytest.mark.parametrize("id", RUNS)
def test_the_same_sign_and_word(both: Both, id: str) -> None:
    title = both.terminal("show", id).splitlines()[0]
    badge = words(re.findall(r'<span class="badge.*?</span>(?=\s*</div>)', head(both.page(id)))[0])
    assert title == f"{badge}  {id}"
    [listed] = [row for row in both.list_page().split("<tr data-row>") if f">{id}</a>" in row]
    assert words(listed).startswith(f"{badge} {id}")
    [row] = [line for line in both.terminal("runs").splitlines() if line.startswith(f"{id}  ")]
    assert row.removeprefix(id).strip().startswith(badge.partition(" ")[2])
    if id in LOOKS:
        assert badge == f"{mark(LOOKS[id])} {word(LOOKS[id])}"


@pytest.mark.parametrize("id", RUNS)
def test_the_same_input(both: Both, id: str) -> None:
    given = both.json("show", id)["input"]
    panel = both.page(id).partition('id="input-title"')[2].partition("<details>")[0].partition("</section>")[0]
    names = [words(name) for name in re.findall(r'<p class="label">(.*?)</p>', panel)]
    values = [words(value) for value in re.findall(r"<code>(.*?)</code>", panel, re.DOTALL)]
    shown = {name: _read(value) for name, value in zip(names, values, strict=True)}
    assert (shown or None) == ({"state": given} if list(shown) == ["state"] else given)
    if id in INPUTS:
        assert given == INPUTS[id]


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@pytest.mark.parametrize("id", RUNS)
def test_the_same_is_needed_next(both: Both, id: str) -> None:
    told = [line.strip() for line in both.terminal("show", id).splitlines() if line.startswith("  holdfast ")]
    typed = list(dict.fromkeys(_act(line) for line in told if " worker " not in line))
    page = both.page(id)
    offered = ["answer"] if "/answer" in region(page, "forms") else []
    offered += ["retry"] if re.search(r">Retry</a>", head(page)) else []
    offered += ["unblock"] if re.search(r">Let it go on</a>", head(page)) else []
    offered += [f"resolve {key}" for key in re.findall(r"Resolve<span class=\"sr\"> (.*?)</span>", page)]
    offered += [f"rollback to {to}" for to in re.findall(r"rollback\?to=(\d+)", head(page))]
    assert [act for act in typed if act not in ("resume", "watch", "show")] == offered
    assert (" worker " in " ".join(told)) == ("<code>holdfast worker" in head(page))
    if id in NEEDS:
        assert typed == NEEDS[id]


def _act(line: str) -> str:
    act = line.split()[1]
    if act == "resolve":
        return f"resolve {line.split()[3].strip(chr(39))}"
    return f"rollback to {line.split('--to ')[1].split()[0]}" if act == "rollback" else act


@pytest.mark.parametrize("id", RUNS)
def test_the_same_steps_in_the_same_order(both: Both, id: str) -> None:
    """With the same statuses and the same numbers of attempts."""
    typed, drawn = _rows_of_terminal(both.terminal("show", id)), _rows_of_page(both.page(id))
    assert [row[1:] for row in typed] == [row[1:] for row in drawn]
    if id in STEPS:
        assert [row[1:] for row in typed] == STEPS[id]
    assert all(
        one[0] == other[0] or not other[0] for one, other in zip(typed, drawn, strict=True)
    )  # a child has a link


def _rows_of_terminal(shown: str) -> list[tuple[str, str, int]]:
    lines = shown.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith("entry ")), None)
    if start is None:
        return []
    places = [lines[start].index(name) for name in ("status", "step")]
    found = []
    for line in lines[start + 1 :]:
        if not line.strip():
            break
        found.append((line[: places[0]].strip(), line[places[0] : places[1]].strip(), _attempts(line)))
    return found


def _rows_of_page(page: str) -> list[tuple[str, str, int]]:
    found = []
    for row in re.findall(r'<div class="(t-row[^"]*)" role="row" data-row>(.*?)<span class="t-track"', page, re.DOTALL):
        if "abandoned" in row[0]:
            continue
        seq = re.search(r"/entries/(\d+)", row[1])
        status = re.findall(r'<span class="sr">(.*?)</span>', row[1])[-1]
        found.append((seq[1] if seq else "", words(status), _attempts(row[1])))
    return found


def _attempts(row: str) -> int:
    found = re.search(r"attempt (\d+)", row)
    return int(found[1]) if found else 1


@pytest.mark.parametrize("id", RUNS)
def test_the_same_end(both: Both, id: str) -> None:
    shown, text, page = both.json("show", id), both.terminal("show", id), both.page(id)
    detail = both.api(f"/runs/{part(id)}")
    assert (shown.get("result"), shown.get("error")) == (detail["result"], detail["error"])
    for told in (shown.get("error"), *(question["prompt"] for question in shown["questions"])):
        assert told is None or (told in text and told in words(page))
    for answer in shown.get("untaken", ()):
        assert answer["prompt"] in text
        assert answer["prompt"] in words(page)


def test_who_cancelled_a_run_and_why(both: Both) -> None:
    text, page = both.terminal("show", "cancelled"), words(both.page("cancelled"))
    assert re.search(r"^error +no longer wanted", text, re.MULTILINE)
    assert re.search(r"^by +gina", text, re.MULTILINE)
    assert "no longer wanted by gina" in page


def test_no_secret_is_shown(both: Both) -> None:
    for parts in ((), ("journal",), ("state",), ("entries", "0")):
        assert gallery.VALUE not in both.page("secret", *parts)
    for command in ("show", "state", "watch"):
        assert gallery.VALUE not in both.terminal(command, "secret")
    assert gallery.VALUE not in both.terminal("history", "--contents", "secret")


def test_what_was_erased_is_said_to_be(both: Both) -> None:
    assert re.search(r"^ +1 +done +pack#1 .* erased", both.terminal("show", "erased"), re.MULTILINE)
    assert "pack done erased" in words(both.page("erased"))
    assert "attic" not in both.terminal("show", "erased").partition("result")[0]


@pytest.mark.parametrize("id", RUNS)
def test_the_same_entries(both: Both, id: str) -> None:
    page = both.page(id, "journal")
    rows = re.findall(r"<tr data-row(.*?)>(.*?)</tr>", page, re.DOTALL)
    shown = [(words(row).split()[0], "abandoned" in how, words(_cell(row))) for how, row in rows]
    lines = both.terminal("history", id).splitlines()
    told = [(line.split()[0], line.split()[3].startswith("("), line[48:].strip()) for line in lines]
    assert [one[:2] for one in told] == [one[:2] for one in shown]
    assert [one[2][:60] for one in told] == [one[2][:60] for one in shown]


def _cell(row: str) -> str:
    found = re.search(r'<td class="c-about">(.*?)</td>', row, re.DOTALL)
    return found[1] if found else ""


@pytest.mark.parametrize("id", ["graph", "edited", "asks", "by hand"])
def test_the_same_changes(both: Both, id: str) -> None:
    newest = both.json("show", id)["run"]["seq"]
    typed = both.json("diff", f"{id}@{newest - 1}", f"@{newest}")["differences"]
    path = part(id)
    assert typed == both.api(f"/runs/{path}/diff?at={newest - 1}&to={newest}")["differences"]
    assert [one["path"] for one in typed] == re.findall(r'<span class="where">(.*?)</span>', both.page(id, "state"))
    assert both.json("state", id) == both.api(f"/runs/{path}/state")
