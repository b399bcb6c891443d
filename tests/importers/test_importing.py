"""What holds for every importer: nothing twice, nothing changed at the source, nothing lost for one damaged file."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Keyring
from holdfast.errors import UsageError
from holdfast.importers import SYSTEMS, Progress, Summary, import_from, origin, reading

RUNS = {"mur": 1, "car": 3, "simple-agents": 1, "wesichain": 2, "brainwires": 2}


def first_file(folder: Path) -> Path:
    return min(path for path in folder.rglob("*.json*") if path.suffix in (".json", ".jsonl"))


def test_a_second_import_adds_nothing(hf: Holdfast, system: str, left: Callable, everything: Callable) -> None:
    folder = left(system)
    first = import_from(system, folder, hf)
    before = everything(hf)
    second = import_from(system, folder, hf)
    assert (len(first.imported), first.already) == (RUNS[system], ())
    assert (second.imported, second.already, second.notes) == ((), first.imported, ())
    assert everything(hf) == before
    assert str(second) == f"{system}: 0 imported, {RUNS[system]} already there, 0 damaged"


def test_the_source_is_never_changed(hf: Holdfast, system: str, left: Callable, tree: Callable) -> None:
    folder = left(system)
    (folder / "damaged.json").write_text("{")
    before = tree(folder)
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    import_from(system, folder, hf, dry_run=True)
    import_from(system, folder, hf)
    assert tree(folder) == before
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == times


def test_a_dry_run_tells_and_writes_nothing(
    hf: Holdfast, system: str, left: Callable, raw_bytes: Callable[..., bytes]
) -> None:
    folder = left(system)
    before = raw_bytes()
    would = import_from(system, folder, hf, dry_run=True)
    assert raw_bytes() == before
    assert str(would).startswith(f"{system}: {RUNS[system]} to be imported")
    did = import_from(system, folder, hf)
    assert (did.imported, did.notes) == (would.imported, would.notes)
    assert import_from(system, folder, hf, dry_run=True).already == did.imported


def test_progress_is_told(hf: Holdfast, system: str, left: Callable) -> None:
    told: list[Progress] = []
    import_from(system, left(system), hf, progress=told.append)
    [total] = {one.total for one in told}
    assert sorted({one.done for one in told}) == list(range(total + 1))
    assert (told[-1].done, told[-1].runs) == (total, RUNS[system])
    assert [one.done for one in told] == sorted(one.done for one in told)
    assert all(one.latest for one in told)


def test_what_went_on_here_is_left_alone(hf: Holdfast, system: str, left: Callable, everything: Callable) -> None:
    folder = left(system)
    for id in import_from(system, folder, hf).imported:
        hf.get(id).save("went on")
        hf.get(id).rollback(to=1)
        hf.get(id).complete()
    before = everything(hf)
    again = import_from(system, folder, hf)
    assert (len(again.already), again.ok, again.notes) == (RUNS[system], True, ())
    assert everything(hf) == before


def test_a_deleted_run_can_be_imported_again(hf: Holdfast, system: str, left: Callable, everything: Callable) -> None:
    folder = left(system)
    imported = import_from(system, folder, hf).imported
    before = everything(hf)
    for id in imported:
        hf.get(id).delete()
    assert import_from(system, folder, hf).imported == imported
    assert everything(hf) == before


def test_another_run_of_the_same_id_is_not_touched(hf: Holdfast, system: str, left: Callable) -> None:
    folder = left(system)
    ids = import_from(system, folder, hf, dry_run=True).imported
    for id in ids:
        hf.run(id).save("mine")
    for dry_run in (True, False):
        summary = import_from(system, folder, hf, dry_run=dry_run)
        assert {one.run for one in summary.refused} == set(ids)
        assert not summary.ok
        assert "prefix=" in summary.refused[0].why
    assert all(hf.get(id).checkpoint().state == "mine" for id in ids)
    assert import_from(system, folder, hf, prefix="old/").imported == tuple(f"old/{id}" for id in ids)
    assert origin(hf.get(f"old/{ids[0]}")).id == ids[0]


def test_systems_do_not_take_each_others_runs(hf: Holdfast, left: Callable) -> None:
    assert import_from("simple-agents", left("simple-agents"), hf).imported == ("run-1",)
    [refused] = import_from("car", left("car") / "run-1.json", hf).refused
    assert "does not come from car" in refused.why


def test_a_source_that_changed_is_told(hf: Holdfast, system: str, left: Callable, everything: Callable) -> None:
    folder = left(system)
    import_from(system, folder, hf)
    before = everything(hf)
    path = first_file(folder)
    path.write_bytes(path.read_bytes().replace(b"2026-03-01", b"2026-03-02").replace(b"177235", b"177236"))
    if system == "simple-agents":
        path.write_bytes(path.read_bytes().replace(b'"step": 3', b'"step": 4'))
    summary = import_from(system, folder, hf)
    assert (len(summary.already), summary.imported) == (RUNS[system], ())
    assert "changed since" in summary.notes[0].text
    assert everything(hf) == before


def test_what_was_erased_is_not_imported_again(hf: Holdfast, system: str, left: Callable) -> None:
    folder = left(system)
    ids = import_from(system, folder, hf).imported
    for chosen in (2, -1):  # what the last part builds on, and the last part itself
        for id in ids:
            run = hf.get(id)
            run.redact(chosen if chosen > 0 else origin(run).entries - 1, by="me")
        assert import_from(system, folder, hf).already == ids
    for id in ids:
        hf.get(id).redact(1, by="me")
        assert origin(hf.get(id)) is None
    assert import_from(system, folder, hf).already == ids


def test_what_is_imported_is_encrypted(
    opened: Callable[..., Holdfast], left: Callable, raw_bytes: Callable[..., bytes]
) -> None:
    keys = Keyring({"k": bytes(range(32))}, current="k")
    folders = {name: left(name) for name in RUNS}
    hf = opened(keys=keys)
    for name, folder in folders.items():
        assert import_from(name, folder, hf, prefix=f"{name}/").ok
    for text in (
        b"src/main.rs",
        b"142 passed",
        b"Approve the release?",
        b"use-1",
        b"approval.ok",
        b"checkpoints.jsonl",
    ):
        assert text not in raw_bytes()
    for name, folder in folders.items():  # without the key nobody can tell what is there
        summary = import_from(name, folder, opened(), prefix=f"{name}/")
        assert (len(summary.refused), summary.imported) == (RUNS[name], ())


# --- damage


BROKEN: dict[str, bytes] = {
    "nothing": b"",
    "half": b"HALF",
    "zeros": b"\0" * 500,
    "not JSON": b"hello",
    "not UTF-8": b'{"a": "\xff\xfe"}',
    "a lone surrogate": b'{"a": "\\ud800"}',
    "a list": b"[]",
    "null": b"null",
    "a text": b'"x"',
    "an empty object": b"{}",
    "nested too deep": b'{"a": ' * 500 + b"1" + b"}" * 500,
    "nested far too deep": b"[" * 100_000,
    "a number of thousands of digits": b'{"a": ' + b"9" * 5000 + b"}",
    "a number beyond floats": b'{"a": 1e999}',
    "not a number": b'{"a": NaN}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_damaged_file_is_told_and_the_rest_goes_on(system: str, how: str, left: Callable) -> None:
    folder = left(system)
    path = first_file(folder)
    good = path.read_bytes()
    broken = good[: len(good) // 2] if how == "half" else BROKEN[how]
    (folder / "zz.json").write_bytes(b"")
    path.with_name("99" + path.suffix).write_bytes(broken)
    with holdfast.open("memory://") as hf:
        summary = import_from(system, folder, hf)
        assert len(summary.imported) == RUNS[system]
    nothing = how == "nothing" and system == "wesichain"  # a file without lines is whole
    told = [one for one in summary.damaged if Path(one.source).name.startswith("99")]
    assert bool(told) is not nothing
    for one in told:
        assert one.place
        assert one.why
        assert "\n" not in one.place + one.why


ANY_VALUE = ("scope_snapshot", "state", "wf_state")


def test_each_missing_or_mistyped_field_is_told(system: str, left: Callable, change: Callable) -> None:
    folder = left(system)
    path = first_file(folder)
    text = path.read_text().splitlines()[0] if system == "wesichain" else path.read_text()
    good = json.loads(text)
    for name in good:
        for wrong in (..., {"wrong": True}):
            path.write_text(json.dumps(good))
            change(path, **{name: wrong})
            if wrong is not ... and name in ANY_VALUE:
                continue
            with holdfast.open("memory://") as hf:
                damaged = import_from(system, path, hf).damaged
            assert len(damaged) == 1, (name, wrong)
            if system == "mur" and name == "variables" and wrong is not ...:
                assert damaged[0].place.startswith("$.variables")
            else:
                assert name in damaged[0].place + damaged[0].why


def test_a_value_that_the_store_refuses_leaves_nothing_behind(system: str, left: Callable) -> None:
    """A state that is larger than the store allows: the run is told, and no half of it stays."""
    folder = left(system)
    with holdfast.open("memory://", max_bytes=60) as hf:
        summary = import_from(system, folder, hf)
        assert len(summary.refused) == RUNS[system]
        assert "more than the limit" in summary.refused[0].why
        assert len(hf.runs()) == 0


def test_an_id_that_is_too_long_is_refused(left: Callable) -> None:
    folder = left("wesichain")
    path = first_file(folder)
    path.write_text(path.read_text().replace('"main"', f'"{"m" * 600}"'))
    with holdfast.open("memory://") as hf:
        summary = import_from("wesichain", folder, hf)
    assert (summary.imported, len(summary.refused)) == (("other/thread",), 1)


# --- paths


def test_links_out_of_the_folder_are_not_followed(system: str, left: Callable, memdir: Path) -> None:
    folder = left(system)
    path = first_file(folder)
    outside = memdir / "outside"
    outside.mkdir()
    path.rename(outside / path.name)
    path.symlink_to(outside / path.name)
    (folder / "away").symlink_to(outside, target_is_directory=True)
    with holdfast.open("memory://") as hf:
        summary = import_from(system, folder, hf)
        assert len(summary.imported) == RUNS[system] - {"mur": 0, "wesichain": 2}.get(system, 1)
    told = [one for one in summary.damaged if one.source == str(path.relative_to(folder))]
    assert "symbolic link" in told[0].why
    with holdfast.open("memory://") as hf:
        assert import_from(system, path, hf).ok  # named by its user, it is the file to import


def test_a_link_inside_of_the_folder_is_all_right(left: Callable) -> None:
    folder = left("simple-agents")
    (folder / "kept").mkdir()
    (folder / "run-1.json").rename(folder / "kept" / "run-1.json")
    (folder / "run-1.json").symlink_to("kept/run-1.json")
    with holdfast.open("memory://") as hf:
        assert import_from("simple-agents", folder, hf).imported == ("run-1",)


def test_what_is_no_file_is_told(system: str, left: Callable) -> None:
    """A pipe would hold the reader up for ever; a folder has the name of a file; a link leads nowhere."""
    folder = left(system)
    where = first_file(folder).parent
    suffix = first_file(folder).suffix
    os.mkfifo(where / f"97{suffix}")
    (where / f"98{suffix}").mkdir()
    (where / f"99{suffix}").symlink_to(where / "nowhere")
    with holdfast.open("memory://") as hf:
        summary = import_from(system, folder, hf)
    assert len(summary.imported) == RUNS[system]
    why = {Path(one.source).name: one.why for one in summary.damaged}
    assert sorted(why) == [f"97{suffix}", f"98{suffix}", f"99{suffix}"]
    assert why[f"97{suffix}"] == why[f"98{suffix}"] == "it is no ordinary file"
    assert why[f"99{suffix}"].startswith("it cannot be read: ")


def test_a_file_that_is_too_large_is_told(left: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = left("simple-agents")
    monkeypatch.setattr(reading, "MAX_BYTES", 100)
    with holdfast.open("memory://") as hf:
        [damaged] = import_from("simple-agents", folder, hf).damaged
    assert damaged.why == "it is larger than 100 bytes"


def test_names_of_any_bytes_can_be_told(left: Callable) -> None:
    folder = left("simple-agents")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\n\x1b[31m.json")).write_text("{")
    with holdfast.open("memory://") as hf:
        [damaged] = import_from("simple-agents", folder, hf).damaged
    assert damaged.source == "\\xff\\n\\x1b[31m.json"


def test_paths_and_systems_that_are_none(hf: Holdfast, memdir: Path) -> None:
    with pytest.raises(UsageError, match="known are mur, car, simple-agents, wesichain, brainwires"):
        import_from("cron", memdir, hf)
    with pytest.raises(UsageError, match="there is nothing at"):
        import_from("mur", memdir / "missing", hf)
    with pytest.raises(UsageError, match="prefix=7: text is wanted"):
        import_from("mur", memdir, hf, prefix=7)
    for path in ("", "a\0b"):
        with pytest.raises(UsageError, match="give the path"):
            import_from("mur", path, hf)


def test_a_folder_without_runs_is_told(hf: Holdfast, system: str, memdir: Path) -> None:
    (memdir / "empty" / "folder").mkdir(parents=True)
    (memdir / "empty" / "README.txt").write_text("nothing of it")
    summary = import_from(system, memdir / "empty", hf)
    assert summary.ok
    assert "there is nothing of" in summary.notes[0].text


async def _awaited(url: str, folder: Path) -> None:
    async with holdfast.open(url) as hf:
        import_from("mur", folder, hf)


def test_async_handles_are_refused(store_url: str, left: Callable) -> None:
    import asyncio

    with pytest.raises(UsageError, match="not awaited"):
        asyncio.run(_awaited(store_url, left("mur")))


def test_the_table_of_systems(left: Callable) -> None:
    for name, runs in RUNS.items():
        system = SYSTEMS[name]
        assert system.name == name
        assert system.help.endswith(".")
        with holdfast.open("memory://") as hf:
            told: Any = system.run(left(name), hf, dry_run=False, progress=None)
        assert isinstance(told, Summary)
        assert len(told.imported) == runs
