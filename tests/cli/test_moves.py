"""`holdfast move`, and schedules that are made at the command line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast

from .conftest import SHOPPING, Call

FLOW = "name: tidy\nvars: {room: hall}\nsteps:\n  - id: say\n    set: {said: 'tidy {{ vars.room }}'}\n"


@pytest.fixture
def target(memdir: Path) -> str:
    return f"files:///{memdir / 'there'}"


@pytest.fixture
def hf(url: str, call: Call) -> Iterator[Holdfast]:
    with holdfast.open(url) as hf:
        yield hf


def by_hand(hf: Holdfast, *names: str) -> None:
    for name in names:
        hf.run(name, workflow="loop", tags={"n": name}).save({"name": name})


def test_all_is_moved_and_told(call: Call, hf: Holdfast, url: str, target: str) -> None:
    by_hand(hf, "a", "b")
    hf.queue("mail", limit=2)
    would = call("move", url, target, "--dry-run")
    assert (would.code, "runs to be moved" in would.out) == (0, True)
    assert not Path(target.removeprefix("files:///")).exists()
    done = call("move", url, target)
    assert done.code == 0
    assert [line.split() for line in done.out.splitlines()] == [
        ["runs", "moved", "2"],
        ["schedules", "moved", "0"],
        ["queues'", "settings", "1"],
        ["left", "0"],
    ]
    assert call("move", url, target, "--json").json["moved"] == []
    with holdfast.open(target) as there:
        assert sorted(info.id for info in there.runs()) == ["a", "b"]


def test_a_filter_is_that_of_all_commands(call: Call, hf: Holdfast, url: str, target: str) -> None:
    by_hand(hf, "a", "b", "c")
    assert call("move", url, target, "--tag", "n=a", "--json").json["moved"] == ["a"]
    assert call("move", url, target, "--prefix", "b", "--workflow", "loop", "--json").json["moved"] == ["b"]
    assert call("move", url, target, "--status", "completed", "--json").json["moved"] == []
    assert call("move", url, target, "--before", "1h", "--json").json["moved"] == []


def test_the_source_tells_where_it_is(call: Call, hf: Holdfast, url: str, target: str) -> None:
    by_hand(hf, "a")
    call("move", url, target)
    shown = call("show", "a")
    assert "was moved to" in shown.out
    assert f"holdfast show a --store files:///{Path(target.removeprefix('files:///'))}" in shown.out.replace("\n", "")
    assert call("show", "a", "--json").json["run"]["away"].startswith("files:///")
    refused = call("cancel", "a")
    assert (refused.code, "it was moved to" in refused.err) == (9, True)
    assert [run["status"] for run in call("runs", "--status", "away", "--json").json["runs"]] == ["away"]
    assert call("history", "a").code == 0
    assert call("audit", "a").code == 0
    assert call("prune", "--status", "away", "--yes", "--json").json["pruned"] == ["a"]


def test_what_is_left_gives_the_exit_status(call: Call, hf: Holdfast, url: str, target: str) -> None:
    by_hand(hf, "a", "b")
    with hf.get("a").claim():
        held = call("move", url, target, "--timeout", "0s")
        assert (held.code, "held by" in held.out, "1 left behind" in held.out) == (6, True, True)
    with holdfast.open(target) as there:
        there.run("a")
    taken = call("move", url, target, "--json")
    assert (taken.code, taken.json["left"][0]["error"]) == (9, "RunExists")


@pytest.mark.parametrize(
    ("source", "to", "said"),
    [
        ("memory://x", "{target}", "in memory"),
        ("{target}", "memory://", "in memory"),
        ("{url}", "{url}", "to itself"),
        ("{target}", "{url}", "there is nothing at"),
        ("{url}", "nowhere", "no store of this kind"),
    ],
)
def test_wrong_use(call: Call, url: str, target: str, source: str, to: str, said: str) -> None:
    done = call("move", source.format(url=url, target=target), to.format(url=url, target=target))
    assert (done.code in (2, 8), said in done.err) == (True, True)


def test_a_schedule_is_made_for_a_flow(call: Call, hf: Holdfast, memdir: Path) -> None:
    (memdir / "tidy.yaml").write_text(FLOW)
    when = ("--cron", "0 3 * * *", "--tz", "Europe/Oslo")
    made = call("schedule", "nightly", *when, "--run", "tidy.yaml", "--var", "room=den")
    assert (made.code, "0 3 * * * (Europe/Oslo)" in made.out) == (0, True)
    run = hf.get(call("schedule", "nightly", "--trigger", "--json").json["run"])
    import holdfast.flow  # noqa: F401

    hf.work(until_idle=True)
    assert run.status == "completed"
    assert "den" in json.dumps(run.entry(0).contents)


def test_a_schedule_is_made_for_a_workflow(call: Call) -> None:
    target = f"{SHOPPING}:quick"
    made = call("schedule", "daily", "--cron", "0 9 * * *", "--run", target, "--input", "[3]", "--json")
    assert (made.code, made.json["schedule"]["cron"]) == (0, "0 9 * * *")
    for words in (["--cron", "0 9 * * *"], ["--run", target], ["--cron", "1", "--run", target, "--var", "a=b"]):
        assert call("schedule", "daily", *words).code == 2
