"""Options: the store in commands that are told, what goes together, who does it, durations, yes or no."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

import pytest

import holdfast
from holdfast import Field, Holdfast, ask, workflow
from holdfast.cli.commands.doctor import _EXTRAS
from holdfast.cli.remedies import STORE, command_line

from .conftest import SHOPPING, Call

OTHER = "sqlite:///o ther.db"
FLOW = "name: deploy\nvars:\n  env: {type: text, required: true}\nsteps:\n  - {id: a, run: echo hi}\n"


@workflow
def consents() -> str:
    return "yes" if ask("Shall it go?", bool) else "no"


# --- the store


def told(out: str) -> list[str]:
    return [line.strip() for line in out.splitlines() if line.startswith("  holdfast ")]


def test_commands_name_the_store_of_the_command_line(call: Call, shop: Call) -> None:
    [way] = told(shop("sell", "o1", "--store", OTHER, order="A").out)
    assert way == f"holdfast answer o1 --resume --module {SHOPPING} --store 'sqlite:///o ther.db'"
    assert call("show", "o1").code == 8
    assert told(call("show", "o1", "--store", OTHER).out)[0].endswith("--store 'sqlite:///o ther.db'")
    done = call(*shlex.split(way)[1:], "--set", "carrier=post")
    assert (done.code, "completed" in done.out) == (0, True)
    refused = call("show", "nope", "--store", OTHER)
    assert "`holdfast runs --store 'sqlite:///o ther.db'` lists those that are" in refused.err


def test_commands_do_not_name_the_store_of_the_environment(call: Call, shop: Call) -> None:
    [way] = told(shop("sell", "o1", order="A").out)
    assert way == f"holdfast answer o1 --resume --module {SHOPPING}"
    assert "--store" not in call("show", "o1").out


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://app:pa:ss@db/shop", " --store postgresql://app@db/shop"),
        ("postgresql://db/shop?password=hush", " --store 'postgresql://db/shop?password=***'"),
        ("postgresql://app@db/shop?schema=s", " --store 'postgresql://app@db/shop?schema=s'"),
        ("sqlite:///a:b@c.db", " --store sqlite:///a:b@c.db"),
        ("", ""),
    ],
)
def test_a_password_is_never_told(url: str, words: str) -> None:
    import click

    with click.Context(click.Command("x")) as context:
        context.meta[STORE] = url
        assert command_line("show", "r") == f"holdfast show r{words}"
        assert command_line("show", "r", options=["--store", "x"]) == "holdfast show r --store x"
        assert command_line("show", "-r") == f"holdfast show{words} -- -r"
    assert command_line("show", "r") == "holdfast show r"


def test_init_tells_how_to_try_it_in_the_store(call: Call) -> None:
    [run, runs] = told(call("init", "sub", "--store", OTHER).out)
    assert run == f"holdfast run sub/hello.py --input '{{\"name\": \"you\"}}' --store '{OTHER}'"
    assert runs == f"holdfast runs --store '{OTHER}'"


# --- what goes together


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("schedule", "daily", "--delete", "--trigger"), ("--delete", "--trigger")),
        (("schedule", "daily", "--pause", "--resume"), ("--pause", "--resume")),
        (("schedule", "daily", "--cron", "0 3 * * *", "--run", SHOPPING, "--delete"), ("--cron", "--delete")),
        (("queue", "mail", "--resume", "--pause"), ("--pause", "--resume")),
        (("hook", "chat", "--pause", "--resume"), ("--pause", "--resume")),
        (("hook", "chat", "--pause", "--delete"), ("--pause", "--delete")),
        (("hook", "chat", "--url", "https://chat.example.org", "--delete"), ("--url", "--delete")),
    ],
)
def test_acts_that_do_not_go_together(call: Call, words: tuple[str, ...], named: tuple[str, str]) -> None:
    call("schedule", "daily", "--cron", "0 9 * * *", "--run", f"{SHOPPING}:quick")
    call("hook", "chat", "--url", "https://chat.example.org/in", "--secret-env", "SECRET")
    done = call(*words)
    assert (done.code, done.out) == (2, "")
    assert all(name in done.err for name in named)
    [schedule] = call("schedules", "--json").json["schedules"]
    assert (schedule["cron"], schedule["paused"], call("runs", "--json").json["runs"]) == ("0 9 * * *", False, [])
    assert [hook["paused"] for hook in call("hooks", "--json").json["hooks"]] == [False]
    assert call("queues", "--json").json["queues"] == []


@pytest.mark.parametrize(
    "words",
    [
        ("--tz", "Europe/Oslo"),
        ("--priority", "3"),
        ("--queue", "slow"),
        ("--catch-up", "all"),
        ("--tag", "a=b"),
        ("--input", "[1]"),
        ("--var", "a=b"),
        ("--pause", "--tz", "Europe/Oslo"),
    ],
)
def test_settings_alone_are_refused(call: Call, words: tuple[str, ...]) -> None:
    call("schedule", "daily", "--cron", "0 9 * * *", "--run", f"{SHOPPING}:quick")
    before = call("schedule", "daily", "--json").json
    done = call("schedule", "daily", *words)
    assert done.code == 2
    assert all(word in done.err for word in (words[-2], "add --cron", "--run"))
    assert call("schedule", "daily", "--json").json == before


# --- who does it


def test_who_set_a_schedule_is_kept(call: Call, url: str, memdir: Path) -> None:
    make = ("schedule", "daily", "--cron", "0 9 * * *", "--run", f"{SHOPPING}:quick", "--json")
    made = call(*make, "--by", "bob").json["schedule"]
    assert (made["set_by"], made["set_at"] is not None) == ("bob", True)
    assert call(*make, "--by", "ann").json["schedule"] == made  # it changed nothing
    assert call(*make, "--tz", "Europe/Oslo", "--by", "ann").json["schedule"]["set_by"] == "ann"
    assert call("schedule", "daily", "--pause", "--by", "eve", "--json").json["schedule"]["set_by"] == "eve"
    (memdir / "deploy.yaml").write_text(FLOW)
    flow = ("--run", "deploy.yaml", "--var", "env=prod", "--by", "dora")
    assert call("schedule", "f", "--cron", "0 9 * * *", *flow, "--json").json["schedule"]["set_by"] == "dora"


def test_help_says_what_a_name_is_kept_with(call: Call) -> None:
    def help_of(command: str) -> str:
        return " ".join(call(command, "--help").out.split())

    assert "it is kept with the schedule when that is made, changed, paused or resumed" in help_of("schedule")
    for command in ("run", "resume"):
        assert "it is kept with the answers" in help_of(command)
    assert "it is kept with what is done" in help_of("answer")


# --- answers


@pytest.mark.parametrize(("word", "result"), [("yes", "yes"), ("Y", "yes"), ("true", "yes"), ("no", "no"), ("N", "no")])
def test_yes_or_no(call: Call, store: Holdfast, word: str, result: str) -> None:
    store.start(consents, id="c")
    assert call("answer", "c", word).code == 0
    store.get("c").resume()
    assert store.get("c").result() == result


def test_neither_yes_nor_no(call: Call, store: Holdfast) -> None:
    store.start(consents, id="c")
    done = call("answer", "c", "maybe")
    assert (done.code, "'maybe' is neither yes nor no; give true or false" in done.err) == (2, True)
    assert call("answer", "c", "3").code == 9
    done = call("answer", "c", "--set", "x=true")
    assert done.code == 9
    assert "the question has one value, and no field 'x'; give it as `holdfast answer c true`" in done.err
    assert call("answer", "c", "--set", "value=yes").code == 0


def test_yes_or_no_of_a_field(call: Call, store: Holdfast) -> None:
    @workflow
    def form() -> object:
        return ask("?", [Field("insured", "boolean"), Field("note", "text")])

    store.start(form, id="f")
    assert call("answer", "f", "--set", "insured=Yes", "--set", "note=yes").code == 0
    store.get("f").resume()
    assert store.get("f").result() == {"insured": True, "note": "yes"}


# --- flows, durations


def test_a_worker_of_a_flow(call: Call, memdir: Path) -> None:
    (memdir / "deploy.yaml").write_text(FLOW)
    done = call("worker", "deploy.yaml")
    assert (done.code, "flows are driven with --flows" in done.err, "no module" in done.err) == (8, True, False)
    assert "worker [OPTIONS] [MODULE|FILE.py]...\n" in call("worker", "--help").out


def test_a_flow_without_a_variable_is_no_run(call: Call, memdir: Path) -> None:
    (memdir / "deploy.yaml").write_text(FLOW)
    done = call("run", "deploy.yaml", "--store", "sqlite:///new.db")
    assert (done.out, "'env' has no value" in done.err) == ("", True)
    assert not (memdir / "new.db").exists()


@pytest.mark.parametrize(("text", "seconds"), [("5m", 300), ("90", 90), ("0.5", 0.5), ("2d", 172_800)])
def test_a_deadline_is_a_duration(call: Call, shop: Call, store: Holdfast, text: str, seconds: float) -> None:
    assert shop("sell", "d", "--deadline", text, order="A").code == 3
    info = store.get("d").info()
    assert info.wake_at is not None
    assert (info.wake_at - info.created_at).total_seconds() == pytest.approx(seconds, abs=0.01)


@pytest.mark.parametrize("text", ["0", "0s", "-1", "soon", "5x"])
def test_what_is_no_deadline(shop: Call, text: str) -> None:
    done = shop("sell", "d", "--deadline", text, order="A")
    assert (done.code, "--deadline" in done.err) == (2, True)


def test_other_durations(call: Call, shop: Call) -> None:
    shop("sell", "w", order="A")
    for text in ("0s", "0", "0.01s"):
        assert call("watch", "w", "--timeout", text).code == 3
    for text in ("1m", "0", "2.5"):
        assert call("worker", SHOPPING, "--grace", text, "--until-idle", "--queue", "none").code == 0


# --- words


def test_prune_says_that_there_is_nothing(call: Call, shop: Call) -> None:
    assert call("prune", "--older-than", "30d", "--yes").out == "There is nothing to delete.\n"
    shop("quick", "q")
    assert call("prune", "--status", "completed", "--yes", "--dry-run").out == "q\n1 to delete.\n"
    assert call("prune", "--status", "completed", "--yes").out == "1 deleted.\n"


def test_exports_and_imports_speak_of_themselves(call: Call, shop: Call, memdir: Path) -> None:
    shop("sell", "s", order="A")
    done = call("export", "s", "--output", "/nonesuch/x")
    assert (done.code, done.err.startswith("Error: export /nonesuch/x: it could not be written")) == (10, True)
    assert call("backup", "/nonesuch/x").err.startswith("Error: backup /nonesuch/x: it could not be written")
    call("export", "s", "--output", "s.holdfast")
    whole = (memdir / "s.holdfast").read_bytes()
    (memdir / "cut.holdfast").write_bytes(whole[: len(whole) // 2])
    (memdir / "other.holdfast").write_text('{"a": 1}\n{"runs": 0, "sha256": ""}\n')
    call("answer", "s", "--set", "carrier=post")
    for file, code in (("s.holdfast", 9), ("cut.holdfast", 7), ("other.holdfast", 7)):
        done = call("import", file)
        assert done.code == code
        assert "import" in done.err
        assert not any(word in done.err for word in ("restore", "backup")), done.err
    assert "nothing was restored" in call("restore", "cut.holdfast").err


def test_one_entry_is_one(call: Call, shop: Call) -> None:
    shop("sell", "s", order="A")
    assert "Erase what entry 1 of s holds, for good?" in call("redact", "s", "1").err
    assert "Erase what entries 1, 2 of s hold, for good?" in call("redact", "s", "2", "1").err
    assert call("redact", "s", "1", "--yes").out == "Erased: entry 1 of s.\n"


def test_which_runs_names_every_way(call: Call) -> None:
    assert "--since, --before" in call("cancel").err


def test_doctor_knows_every_extra() -> None:
    project = Path(holdfast.__file__).parents[2] / "pyproject.toml"
    extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    assert set(_EXTRAS) == set(extras) - {"dev"}
    assert all(any(one.startswith(package) for one in extras[extra]) for extra, package in _EXTRAS.items())
