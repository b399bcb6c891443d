"""MUR's folders of executions, field by field, as the source document writes them."""

import json
from collections.abc import Callable
from pathlib import Path

from holdfast import Holdfast, Status
from holdfast.importers import Damaged, import_from, origin

EXECUTION = "3f2b8c1e-5a77-4c0e-9d41-0b6f1d2a9c55"
BUILD = {"step_name": "build", "success": True, "output": "ok"}
TEST = {"step_name": "test", "success": True, "output": "142 passed"}
TIMES = ["2026-03-01T09:00:00.123456789Z", "2026-03-01T09:00:07.500Z", "2026-03-01T09:01:30Z"]


def saves(hf: Holdfast, id: str = EXECUTION) -> list[int]:
    return [entry.seq for entry in hf.get(id).history(kind="saved")]


def test_each_file_becomes_a_checkpoint(hf: Holdfast, opened: Callable[..., Holdfast], left: Callable) -> None:
    summary = import_from("mur", left("mur"), hf)
    assert (summary.imported, summary.ok, summary.notes) == ((EXECUTION,), True, ())

    run = opened().get(EXECUTION)
    for n, seq in enumerate(saves(hf)):
        at = run.checkpoint(seq)
        assert at.state == {"step_index": n, "completed_steps": [BUILD, TEST][:n], "created_at": TIMES[n]}
        assert at.variables == {"env": "prod", "tries": str(n)}
        assert (at.step, at.next, at.node, at.queue) == (n, str(n), None, None)
    assert len(saves(hf)) == 3
    assert run.checkpoint().next == "2"
    assert run.status is Status.READY
    assert run.info().tags == {"imported_from": "mur"}


def test_the_origin_is_told(hf: Holdfast, left: Callable) -> None:
    import_from("mur", left("mur"), hf)
    came = origin(hf.get(EXECUTION))
    assert came is not None
    assert (came.system, came.id, came.source, came.kept) == ("mur", EXECUTION, EXECUTION, {})
    assert len(came.digest) == 64
    assert origin(hf.run("not imported")) is None


def test_the_folder_of_one_execution_and_a_single_file(hf: Holdfast, left: Callable) -> None:
    folder = left("mur") / EXECUTION
    assert import_from("mur", folder, hf).imported == (EXECUTION,)
    assert len(saves(hf)) == 3
    assert import_from("mur", folder / "1.json", hf, prefix="one/").imported == (f"one/{EXECUTION}",)
    assert hf.get(f"one/{EXECUTION}").checkpoint().state["step_index"] == 1


def test_an_execution_can_go_on_and_back(hf: Holdfast, left: Callable) -> None:
    import_from("mur", left("mur"), hf)
    run = hf.get(EXECUTION)
    with run.claim():
        run.save(run.checkpoint().state, next="3", variables=run.checkpoint().variables)
    run.rollback(to=saves(hf)[1])
    assert run.checkpoint().next == "1"
    assert run.fork(at=saves(hf)[0]).checkpoint().next == "0"


def test_a_corrupt_latest_file_does_not_block_the_run(hf: Holdfast, left: Callable) -> None:
    folder = left("mur")
    latest = folder / EXECUTION / "2.json"
    latest.write_bytes(latest.read_bytes()[:100])
    summary = import_from("mur", folder, hf)
    assert summary.imported == (EXECUTION,)
    assert summary.damaged == (Damaged(f"{EXECUTION}/2.json", "the end", "Input data was truncated"),)
    assert hf.get(EXECUTION).checkpoint().next == "1"


def test_an_abandoned_future_is_not_the_latest(hf: Holdfast, left: Callable, change: Callable) -> None:
    """It went back to step 1 and has saved that again; the file of step 2 is left over from before."""
    folder = left("mur")
    change(folder / EXECUTION / "1.json", created_at="2026-03-02T08:00:00Z", variables={"second": "time"})
    summary = import_from("mur", folder, hf)
    run = hf.get(EXECUTION)
    assert [run.checkpoint(seq).next for seq in saves(hf)] == ["0", "2", "1"]
    assert (run.checkpoint().next, run.checkpoint().variables) == ("1", {"second": "time"})
    [note] = summary.notes
    assert (note.run, "(2)" in note.text, "it went back, to step 1" in note.text) == (EXECUTION, True, True)


def test_files_that_do_not_belong_there_are_told(hf: Holdfast, left: Callable, change: Callable) -> None:
    folder = left("mur")
    execution = folder / EXECUTION
    other = "00000000-0000-4000-8000-000000000000"
    for name, fields in {
        "3.json": {"execution_id": other, "step_index": 3},
        "4.json": {"step_index": 5},
        "007.json": {"step_index": 7},
        "7.json": {"step_index": 7},
    }.items():
        (execution / name).write_bytes((execution / "0.json").read_bytes())
        change(execution / name, **fields)
    (execution / "notes.txt").write_text("not a checkpoint")
    (execution / "latest.json").write_text("not a checkpoint either")
    summary = import_from("mur", folder, hf)
    assert {(one.source.rpartition("/")[2], one.place) for one in summary.damaged} == {
        ("3.json", "$.execution_id"),
        ("4.json", "$.step_index"),
        ("007.json", "$.step_index"),
    }
    assert len(saves(hf)) == 4


def test_times_of_the_journal_are_those_of_the_import(hf: Holdfast, left: Callable) -> None:
    import_from("mur", left("mur"), hf)
    run = hf.get(EXECUTION)
    assert run.checkpoint().saved_at >= run.info().created_at
    assert run.checkpoint().state["created_at"] == TIMES[2]


def test_what_a_newer_version_wrote_beside_is_kept(hf: Holdfast, left: Callable, change: Callable) -> None:
    folder = left("mur")
    change(folder / EXECUTION / "2.json", workflow_hash="abc")
    import_from("mur", folder, hf)
    assert hf.get(EXECUTION).checkpoint().state["other"] == {"workflow_hash": "abc"}


def test_growth_is_stored_once(hf: Holdfast, memdir: Path, raw_bytes: Callable[..., bytes]) -> None:
    """There every file has all the results so far; here each is stored once."""
    folder = memdir / "left" / EXECUTION
    folder.mkdir(parents=True)
    results = [{"output": f"{n:04}" * 250} for n in range(40)]
    for n in range(40):
        record = {"execution_id": EXECUTION, "step_index": n, "variables": {}, "completed_steps": results[:n]}
        text = json.dumps(record | {"created_at": f"2026-03-01T09:00:{n:02}Z"})
        (folder / f"{n}.json").write_text(text)
    import_from("mur", folder, hf)
    assert hf.get(EXECUTION).checkpoint().state["completed_steps"] == results[:39]
    assert sum(raw_bytes().count(b"%04d" % n * 250) for n in range(39)) <= 2 * 39
