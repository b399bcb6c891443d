"""Forking: a new run that shares the past of another one. Nothing is copied, and no lease is needed.

A fork may differ from its origin in something that was done: another input, another result of a step, another answer.
The difference is part of the fork's first entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from holdfast.codec import Tree
from holdfast.engine.access.operations import Op, Read, Settle
from holdfast.engine.argument_checks import check_seq, check_texts
from holdfast.engine.control.edit import edited_text
from holdfast.engine.workflow.declare import registered
from holdfast.errors import NoCheckpoint, Redacted, RunExists, UsageError
from holdfast.forms import check_answer, load_form
from holdfast.kernel.fold import Fold
from holdfast.kernel.journal import Data, fork_lineage, fork_rewinds, next_entry
from holdfast.kernel.model import Create, Kind, RunRecord, Status
from holdfast.kernel.rules import check_id, ending

if TYPE_CHECKING:
    from holdfast.engine.access.held_run import HeldRun, Line

# What a fork of the head takes over although it is not in the journal yet. A cancel and a message are the origin's own.
_ACKNOWLEDGED = frozenset({Kind.ANSWERED, Kind.DECLINED, Kind.MARKED})
Point = int | Literal["failure"] | None


class Way(Struct, frozen=True):
    """Where a fork begins, and how it differs: see `fork`."""

    at: Point = None
    id: str | None = None
    input: Mapping[str, Any] | None = None
    results: Mapping[str, Any] | None = None
    answers: Mapping[str, Any] | None = None
    edit: Any = None
    by: str | None = None


def fork(
    run: HeldRun,
    at: Point = None,
    *,
    id: str | None = None,
    input: Mapping[str, Any] | None = None,
    results: Mapping[str, Any] | None = None,
    answers: Mapping[str, Any] | None = None,
    edit: Any = None,
    by: str | None = None,
) -> Op[HeldRun]:
    """A new run that shares this one's history up to ``at`` (by default: all of it) and then goes its own way.

    By default it has all answers and marks that were acknowledged, too, whether or not the holder has taken them in.

    Of a workflow's run, it can go another way: ``input`` changes arguments by their names (then it begins at the
    beginning, unless ``at`` says otherwise), ``results`` what steps gave, by their keys, and ``answers`` what was
    answered, by the keys of the questions (``ask#1``); then it goes on right after the first of these. With
    ``at="failure"`` it goes on right before the step that failed. Its deadline begins anew. Of a graph's run, ``edit``
    is an update of the state that it begins with; of one that is driven by hand, it is that state. Who did it (``by``)
    is journaled.
    """
    way = {"at": at, "id": id, "input": input, "results": results, "answers": answers, "edit": edit, "by": by}
    [made] = yield from fork_each(run, [way])
    return made


def fork_each(run: HeldRun, ways: Sequence[Mapping[str, Any]]) -> Op[list[HeldRun]]:
    """Several forks at once, in one commit; each of ``ways`` is what `fork` takes, as a mapping."""
    record, pending = yield from run.pending()
    creates: list[Create] = []
    for way in ways:
        unknown = set(way) - set(Way.__struct_fields__)
        if unknown:
            raise UsageError(f"fork has no {', '.join(sorted(unknown))}; it takes {', '.join(Way.__struct_fields__)}")
        creates.append((yield Read(_create, run, record, pending, Way(**way))))
    tickets = [run.committer.submit(create) for create in creates]
    made: list[HeldRun] = []
    taken: str | None = None
    for create, ticket in zip(creates, tickets, strict=True):
        stored = yield Settle(ticket)
        if stored.uid != create.record.uid:
            taken = create.record.id
        made.append(run.sibling(create.record.id, create.record.uid))
        made[-1].adopted = run.adopted
    if taken is not None:
        raise RunExists(taken, "a run with this id exists already; choose another id")
    run.engine.bell.ring()
    return made


def _create(run: HeldRun, record: RunRecord, pending: Sequence[Line], way: Way) -> Create:
    at, input, by = way.at, way.input, way.by
    check_texts(by=by)
    changed = {**(way.results or {}), **_checked(run, record, way.answers or {})}
    point, again = _point(run, record, at, bool(input), list(changed))
    _check_not_undone(run, record, point)
    again = [key for key in again if key not in changed]
    is_head = at is None and not input and not changed
    given_since = [(kind, data) for _, kind, _, data in pending if is_head and kind in _ACKNOWLEDGED]
    origin, shared = run.journals.entry(record, point)
    now = run.store.clock.now()
    data: Data = {"from": record.id, "origin": origin, "at": point}
    if by is not None:
        data["by"] = by
    if again:
        data["again"] = again
    if changed:
        data["results"] = {name: run.codec.encode(value, f"result of {name}") for name, value in changed.items()}
    given = _input(run, record, point, input) if input else {}
    if (seconds := _seconds(run, record, point)) is not None:
        given["deadline"] = now + round(seconds * 1_000_000)
    if given:
        data["input"] = given
    state = shared.seq if shared.kind == Kind.SAVED else shared.state
    waiting = record.queue is None and (
        shared.kind == Kind.ASKED or (point == record.seq and record.status is Status.WAITING)
    )
    child = run.journals.new_record(
        now,
        check_id(way.id) if way.id is not None else lambda uid: f"{run.id[:490]}.fork-{uid[-8:]}",
        root=shared.hash,
        base=point + 1,
        workflow=record.workflow,
        tags=record.tags,
        lineage=fork_lineage(record, point),
        queue=record.queue,
        status=Status.WAITING if waiting and not _answers(given_since) else Status.READY,
        rewinds=fork_rewinds(record, point),
        chapter=run.journals.chapter(record, point),
    )
    entries = [run.journals.first_entry(child, Kind.FORKED, data, "fork", state)]
    entries += run.journals.next_entries(ending(child, entries), given_since, now, state, "fork", acknowledged=True)
    if way.edit is not None:
        text, snapshot = edited_text(run, record, point, way.edit)
        seq = entries[-1].seq + 1
        place = f"{seq}/{Kind.SAVED}"
        payload = run.journals.seal_text(child.uid, child.key_id is not None, place, text, "state")
        begins = seq if snapshot is None else snapshot
        entries.append(next_entry(entries[-1].hash, seq, Kind.SAVED, now, begins, payload))
    return run.journals.create(child, tuple(entries))


def _check_not_undone(run: HeldRun, record: RunRecord, point: int) -> None:
    """Refuse a point whose effects are being undone: which of them the fork would have is not decided yet."""
    if record.rollback is None:
        return
    uid, begun = run.journals.entry(record, record.rollback)
    to = run.journals.data(record.id, uid, begun)["to"]
    if point > to:
        raise NoCheckpoint(
            record.id,
            f"it is in the middle of its rollback to entry {to}; until that has ended, fork it at that entry or an "
            f"earlier one: run.fork(at={to})",
        )


def _answers(lines: Sequence[tuple[str, Data]]) -> bool:
    return any(kind == Kind.ANSWERED for kind, _ in lines)


def _point(run: HeldRun, record: RunRecord, at: Point, has_input: bool, keys: list[str]) -> tuple[int, list[str]]:
    """Where the fork leaves its origin, and which failed steps it tries again."""
    fold = run.journals.fold(record, record.seq) if keys or at == "failure" else None
    changed = [_completed(run, fold, key) for key in keys] if fold is not None else []
    if at == "failure":
        assert fold is not None
        return _before_failure(run, record, fold)
    if at is not None:
        check_seq("at", at)
        return int(at), []
    if has_input:
        return record.chapter, []
    return min(changed, default=record.seq), []


def _checked(run: HeldRun, record: RunRecord, answers: Mapping[str, Any]) -> dict[str, Any]:
    """The answers as they are stored, each checked against what was asked."""
    checked = dict(answers)
    log = run.journals.fold(record, record.seq).log if answers else []
    for _, kind, _, data in log:
        if kind == Kind.ASKED and data.get("key") in answers and "fields" in data:
            checked[data["key"]] = check_answer(run.id, load_form(data["fields"]), answers[data["key"]])
    return checked


def _completed(run: HeldRun, fold: Fold, key: str) -> int:
    found = fold.steps.get(key) or fold.failures.get(key)
    if found is None:
        seqs = [seq for seq, _, _, data in fold.log if data.get("key") == key]
        if not seqs:
            asked = (one.key for one in fold.questions.values() if one.key is not None)
            known = ", ".join([*fold.steps, *fold.failures, *asked][:20]) or "none"
            raise NoCheckpoint(run.id, f"it has no step or answer {key!r} to change; it has: {known}")
        return seqs[-1]  # it was begun, or asked
    return found.seq


def _before_failure(run: HeldRun, record: RunRecord, fold: Fold) -> tuple[int, list[str]]:
    if fold.ended is None or fold.ended[0] is not Status.FAILED:
        raise NoCheckpoint(run.id, f"at='failure' is for a failed run, and it is {record.status}")
    keys = [key for key in fold.ended[1].get("keys", ()) if key in fold.failures]
    ended = max(seq for seq, kind, _, _ in fold.log if kind == Kind.FAILED)
    point = min([ended, *(seq for seq, _, _, data in fold.log if data.get("key") in keys)]) - 1
    retried = [key for seq, kind, _, data in fold.log if kind == Kind.RETRIED and seq > point for key in data["keys"]]
    return point, sorted({*keys, *retried})


def _seconds(run: HeldRun, record: RunRecord, point: int) -> float | None:
    """How long the run may take, if there is a limit."""
    if record.queue is None:
        return None
    uid, first = run.journals.entry(record, run.journals.chapter(record, point))
    return run.journals.data(record.id, uid, first).get("seconds")


def _input(run: HeldRun, record: RunRecord, point: int, changed: Mapping[str, Any]) -> Data:
    """The arguments with some of them changed."""
    fold = run.journals.fold(record, point)
    workflow = registered(record.workflow, fold.input.get("version"), fold.input.get("module"))
    if workflow is None:
        raise UsageError(f"input= needs workflow {record.workflow!r}, which is not declared in this process")
    names = list(workflow.signature.parameters)
    takes_any = any(one.kind is one.VAR_KEYWORD for one in workflow.signature.parameters.values())
    unknown = [name for name in changed if name not in names]
    if unknown and not takes_any:
        raise UsageError(f"workflow {workflow.name}{workflow.signature} has no argument {', '.join(unknown)}")
    if fold.input.get("args") is None:
        raise Redacted(run.id, "its input was erased on request, so a fork cannot take it over; start a new run")
    args: list[Tree] = list(fold.input["args"])
    kwargs: dict[str, Tree] = dict(fold.input["kwargs"])
    for name, value in changed.items():
        tree = run.codec.encode(value, f"{workflow.name}.{name}")
        place = names.index(name) if name in names else len(args)
        if place < len(args):
            args[place] = tree
        else:
            kwargs[name] = tree
    return {"args": args, "kwargs": kwargs}
