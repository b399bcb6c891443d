"""wesichain's lines of checkpoints, field by field; a torn line does not break the others."""

import json
from collections.abc import Callable
from pathlib import Path

from holdfast import Holdfast, Status
from holdfast.importers import Damaged, import_from

FILE = "checkpoints.jsonl"


def saves(hf: Holdfast, id: str) -> list[int]:
    return [entry.seq for entry in hf.get(id).history(kind="saved")]


def test_the_history_of_each_thread(hf: Holdfast, opened: Callable[..., Holdfast], left: Callable) -> None:
    summary = import_from("wesichain", left("wesichain"), hf)
    assert (summary.imported, summary.ok) == (("main", "other/thread"), True)
    run = opened().get("main")
    for n, seq in enumerate(saves(hf, "main")):
        at = run.checkpoint(seq)
        assert at.state == {"data": {"n": n, "messages": ["hi"] * n}}
        assert (at.node, at.next) == ("node", None)
        assert at.queue == [("tool", n + 1), ("merge", n + 2)]
        assert at.variables == {"step": n, "created_at": f"2026-03-01T09:00:0{n}.000000001+00:00"}
    assert len(saves(hf, "main")) == 3
    assert run.status is Status.READY
    other = opened().get("other/thread").checkpoint()
    assert (other.state, other.node, other.queue, other.variables["step"]) == ({"data": {"n": 100}}, "end", [], 7)


def test_a_thread_can_be_forked_at_any_of_its_checkpoints(hf: Holdfast, left: Callable) -> None:
    import_from("wesichain", left("wesichain"), hf)
    fork = hf.get("main").fork(at=saves(hf, "main")[1], id="branch")
    fork.save({"data": {"n": 50}})
    assert saves(hf, "branch")[:2] == saves(hf, "main")[:2]
    assert hf.get("main").checkpoint().state["data"]["n"] == 2


def test_a_torn_line_does_not_break_the_others(hf: Holdfast, left: Callable) -> None:
    """In the middle, by a writer that died and another that went on; and at the end."""
    path = left("wesichain") / FILE
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1][:40], b"\n", b"\n", *lines[2:], lines[3][:-30]]))
    summary = import_from("wesichain", path, hf)
    assert summary.imported == ("main", "other/thread")
    assert [(one.source, one.place) for one in summary.damaged] == [
        (FILE, "line 2, the end"),
        (FILE, "line 6, the end"),
    ]
    assert [hf.get("main").checkpoint(seq).variables["step"] for seq in saves(hf, "main")] == [0, 2]


def test_damage_inside_of_a_line_is_told_with_its_place(hf: Holdfast, left: Callable) -> None:
    path = left("wesichain") / FILE
    good = json.loads(path.read_text().splitlines()[0])
    for wrong in ({"queue": [["tool"]]}, {"step": -1}, {"queue": [["tool", "4"]]}, {"node": None}):
        with path.open("a") as file:
            file.write(json.dumps(good | wrong) + "\n")
    with path.open("a") as file:
        file.write(json.dumps({name: good[name] for name in good if name != "thread_id"}) + "\n")
    assert import_from("wesichain", path, hf).damaged == (
        Damaged(FILE, "line 5, $.queue[0]", "Expected array of length 2, got 1"),
        Damaged(FILE, "line 6, $.step", "Expected int >= 0"),
        Damaged(FILE, "line 7, $.queue[0][1]", "Expected int, got str"),
        Damaged(FILE, "line 8, $.node", "Expected str, got null"),
        Damaged(FILE, "line 9, $", "Object missing required field thread_id"),
    )


def test_two_checkpoints_of_one_step_are_both_kept(hf: Holdfast, left: Callable) -> None:
    path = left("wesichain") / FILE
    again = json.loads(path.read_text().splitlines()[0]) | {"node": "again"}
    with path.open("a") as file:
        file.write(json.dumps(again))  # and no end of line, which is all right
    import_from("wesichain", path, hf)
    run = hf.get("main")
    assert [run.checkpoint(seq).node for seq in saves(hf, "main")] == ["node"] * 3 + ["again"]


def test_a_line_that_is_too_long_is_passed_over(hf: Holdfast, left: Callable, monkeypatch) -> None:
    from holdfast.importers import reading

    path = left("wesichain") / FILE
    lines = path.read_bytes().splitlines(keepends=True)
    longest = json.dumps(json.loads(lines[0]) | {"state": "x" * 5000}).encode() + b"\n"
    path.write_bytes(lines[0] + longest + lines[1])
    monkeypatch.setattr(reading, "MAX_BYTES", 1000)
    summary = import_from("wesichain", path, hf)
    assert [one.place for one in summary.damaged] == ["line 2, $"]
    assert len(saves(hf, "main")) == 2


def test_a_thread_in_two_files_is_not_guessed_together(hf: Holdfast, left: Callable) -> None:
    folder: Path = left("wesichain")
    (folder / "more.jsonl").write_text((folder / FILE).read_text().splitlines()[0])
    summary = import_from("wesichain", folder, hf)
    [refused] = summary.refused
    assert (refused.source, refused.run) == ("more.jsonl", "main")
    assert FILE in refused.why
