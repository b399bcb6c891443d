"""`holdfast show`, `history`, `state`, `diff` and `effects`: one run, from all sides."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import click

from holdfast.cli.about import about
from holdfast.cli.difference import Difference, differences
from holdfast.cli.inputs import input_of
from holdfast.cli.options import command, module_option, run_argument, with_store
from holdfast.cli.progress import entry_json
from holdfast.cli.rendering import (
    COLOURS,
    MARKS,
    ago,
    clock,
    columns,
    console,
    escaped,
    note_on,
    one_line,
    pairs,
    pretty,
    printable,
    say,
    short,
    span,
    status_text,
    undo_word,
    workflow_of,
    write_json,
)
from holdfast.cli.session import DIED, died, hints, is_attended, open_questions, open_runs, outcome, worker_command
from holdfast.cli.story import fan_of, task_name
from holdfast.cli.unfinished import rolling_back, untaken_answers
from holdfast.engine.app import Holdfast
from holdfast.engine.run.handle import Run
from holdfast.errors import KeyMissing, RunDamaged, RunNotFound, UsageError
from holdfast.kernel.model import Kind, Status
from holdfast.views import EntryContents, EntryInfo, RunInfo, StepInfo

_STEPS = 20  # lines of steps that `show` has
_ABOUT = 100  # characters of what an entry is about
_INPUT = 400  # characters of its input that `show` has
_FEW = 3  # steps of one gather or map that have a line each


@command("show", "holdfast show order-17", "holdfast show order-17 --json | jq .run.status")
@run_argument
@click.option("--trace", is_flag=True, help="Of a failed run: show where in your code it failed.")
@module_option
@with_store()
def show_command(hf: Holdfast, run: str, trace: bool, as_json: bool) -> None:
    """Show one run: what it is, how it stands, what it asks or why it failed, and how to go on.

    Its arguments have names if --module names what declares it.

    JSON: {"run": run, "input": …, "steps": [step, …], "questions": [question, …], "children": [id, …], "died": whether
    its process has died, "next": …, "queue": …} and, of a run that has ended, "result" or "error"; of a graph that has
    failed "failed_at", the call of its node. "untaken", if there are any, are the answers that nobody who drives it has
    taken yet.
    """
    handle = hf.get(run)
    info, steps, questions = handle.info(), handle.steps(), open_questions(hf, handle)
    checkpoint = handle.checkpoint()
    parts = {"next": checkpoint.next, "node": checkpoint.node, "queue": raw(checkpoint.queue)}
    ended, is_dead, input = outcome(handle, info), died(hf, info), input_of(handle, info)
    untaken = [answer for one in open_runs(hf, handle) for answer in untaken_answers(one)]
    if as_json:
        children = [str(entry.contents["id"]) for entry in entries_of(handle, Kind.CHILD)]
        found = {"run": info, "input": input, "steps": steps, "questions": questions, "children": children}
        waiting = {"untaken": untaken} if untaken else {}
        write_json({**found, **waiting, "died": is_dead, **parts, **ended})
        return
    from rich.text import Text

    title = Text().append(f"{MARKS[info.status]} {info.status}", style=COLOURS[info.status])
    title.append(f"  {one_line(info.id)}", style="bold")
    console().print(title.append(f"  {DIED}") if is_dead else title)
    words = {"next": "next", "node": "last node", "queue": "to do"}
    rolling = rolling_back(hf, [info], {info.id} if is_dead else ()).get(info.id)
    there = [name for name, value in parts.items() if value not in (None, [], ()) and rolling is None]
    facts = [("rollback", rolling), *((words[name], short(parts[name])) for name in there)]
    facts.append(("failed at", one_line(task_name(ended["failed_at"])) if "failed_at" in ended else None))
    error = Text(one_line(ended["error"]), style="red") if ended.get("error") else None
    shown = short(input, _INPUT) if input is not None else None
    pairs([*_facts(handle, info), ("input", shown), *facts, ("error", error)])
    if trace:
        _show_trace(handle)
    if steps:
        say("")
        _show_steps(steps)
    for question in questions:
        console().print(f"\n[yellow]?[/] {escaped(question.prompt)}  [dim]{escaped(question.id)}[/]")
    for answer in untaken:
        console().print(f"\n[yellow]?[/] {escaped(answer.prompt)}\n  {escaped(answer.told)}")
    if ended.get("result") is not None:
        say("\nresult")
        pretty(ended["result"])
    ways = hints(hf, handle, info, questions)
    if info.status is Status.READY and info.queue is not None and not is_attended(hf):
        say(f"\nThe store knows of no live worker; one of queue {one_line(info.queue)} goes on with it.")
        ways.append(worker_command(handle, info))
    if ways:
        say("\ngo on with")
        for way in ways:
            say(f"  {way}")


def _facts(run: Run, info: RunInfo) -> list[tuple[str, Any]]:
    parent = run.entry(0).contents.get("parent") if info.parent else None
    return [
        ("workflow", workflow_of(info)),
        ("reason", one_line(note_on(info)) if info.reason else None),
        ("created", f"{clock(info.created_at)}  ({ago(info.created_at)})"),
        ("last entry", f"{info.seq}  ({ago(info.updated_at)})"),
        ("wakes", clock(info.wake_at) if info.wake_at else None),
        ("holder", info.holder),
        ("queue", info.queue),
        ("tags", ", ".join(f"{name}={value}" for name, value in sorted(info.tags.items()))),
        ("part of", parent["id"] if parent else None),
        ("forked from", f"{info.forked_from[0]} at {info.forked_from[1]}" if info.forked_from else None),
        ("rolled back", f"{info.generation} times" if info.generation > 1 else "once" if info.generation else None),
    ]


def _show_steps(steps: tuple[StepInfo, ...]) -> None:
    rows: list[list[Any]] = []
    for (fan, status), group in groupby(steps, key=lambda one: (fan_of(one.key), one.status)):
        several = list(group)
        if fan is not None and len(several) > _FEW:
            first = several[0]
            rows.append([first.seq, status_text(status), fan, "", f"{len(several)} × {first.name}", first.error])
            continue
        for one in several:
            notes = [f"attempt {one.attempts}" if one.attempts > 1 else "", "erased" if one.erased else ""]
            took = span(one.seconds) if one.seconds is not None else ""
            noted = ", ".join(note for note in notes if note)
            rows.append([one.seq, status_text(one.status), one.key, took, noted, one.error])
    if len(rows) > _STEPS:
        say(f"({len(rows) - _STEPS} earlier lines; --json lists all steps)")
    columns(("entry", "status", "step", "took", "", ""), rows[-_STEPS:], right=("entry", "took"))


def _show_trace(run: Run) -> None:
    for entry in list(entries_of(run, Kind.FAILED))[-1:]:
        failure = entry.contents.get("failure") or {}
        say(f"\n{printable(failure.get('traceback', '').rstrip())}\n{one_line(entry.contents.get('error', ''))}")


def entries_of(run: Run, kind: str) -> list[EntryContents]:
    """All entries of a kind, with their contents."""
    found: list[EntryContents] = []
    after: str | None = None
    while True:
        page = run.history(kind=kind, limit=500, after=after)
        found += [run.entry(info.seq) for info in page]
        if (after := page.next) is None:
            return found


def raw(value: Any) -> Any:
    """Something that JSON can hold."""
    return list(value) if isinstance(value, tuple | set | frozenset) else value


@command(
    "history",
    "holdfast history order-17",
    "holdfast history order-17 --kind done --contents",
    "holdfast history order-17 --json | jq -c 'select(.kind == \"asked\")'",
)
@run_argument
@click.option("--kind", type=click.Choice([str(kind) for kind in Kind]), metavar="KIND", help="Entries of this kind.")
@click.option("--contents", "-c", is_flag=True, help="With what they say.")
@click.option("--after", type=click.IntRange(min=0), metavar="SEQ", help="Entries after this one.")
@click.option("--limit", "-n", type=click.IntRange(min=1), help="How many at most.")
@with_store()
def history_command(
    hf: Holdfast, run: str, kind: str | None, contents: bool, after: int | None, limit: int | None, as_json: bool
) -> None:
    """List the entries of a run's journal, oldest first. What a rollback abandoned is in brackets.

    What was acknowledged, and the holder of the run has not taken in yet, is the last, and pending.

    Beside its kind stands what an entry is about: a step, a node, a question. Of a run that is encrypted, with keys
    that are not here, or of an entry that is damaged, that is left out.

    JSON, a line for each: {"run": id, "seq": n, "kind": …, "at": …, "about": …, "live": …, "inherited": …, "pending":
    …}, and with --contents {"contents": …}.
    """
    handle, left = hf.get(run), limit
    cursor = None if after is None else str(after)
    while left is None or left > 0:
        page = handle.history(kind=kind, after=cursor, limit=min(500, left or 500))
        for info in page:
            entry = handle.entry(info.seq) if contents else _read(handle, info)
            told = about(entry)
            if as_json:
                flags = {"live": info.live, "inherited": info.inherited, "pending": info.pending}
                line = entry_json(run, entry) | {"about": told, **flags}
                write_json(line if contents else {name: value for name, value in line.items() if name != "contents"})
                continue
            kind_told = f"{info.kind} (pending)" if info.pending else info.kind if info.live else f"({info.kind})"
            text = f"{info.seq:>6}  {clock(info.at)}  {kind_told}"
            said = short(entry.contents, 500) if contents else short(told or "", _ABOUT)
            say(f"{text:<46}  {said}".rstrip())
        left = None if left is None else left - len(page)
        if (cursor := page.next) is None:
            return


def _read(run: Run, info: EntryInfo) -> EntryContents:
    """An entry with what it says, as far as that can be read: the list of entries is there without it, too."""
    try:
        return run.entry(info.seq)
    except (KeyMissing, RunDamaged):
        return EntryContents(info.seq, info.kind, info.at, {})


@command("state", "holdfast state order-17", "holdfast state order-17 --at 4 --json | jq .state")
@run_argument
@click.option("--at", type=click.IntRange(min=0), metavar="SEQ", help="As it was at this entry.")
@with_store()
def state_command(hf: Holdfast, run: str, at: int | None, as_json: bool) -> None:
    """Show the state of a run, now or at an entry; of a plain workflow, which has none, the results of its steps.

    JSON: {"run": id, "seq": n, "state": …, "node": …, "next": …, "queue": …, "steps": {key: result}}.
    """
    picture = picture_of(hf.get(run), at)
    if as_json:
        write_json(picture)
    elif picture["state"] is not None:
        pretty(picture["state"])
    else:
        pretty(picture["steps"])


def picture_of(run: Run, at: int | None) -> dict[str, Any]:
    """The run at an entry, in values that JSON can hold."""
    checkpoint = run.checkpoint(at)
    return {
        "run": run.id,
        "seq": checkpoint.seq,
        "state": checkpoint.raw_state,
        "node": checkpoint.node,
        "next": checkpoint.next,
        "queue": raw(checkpoint.queue),
        "steps": checkpoint.raw_results,
    }


@command(
    "diff",
    "holdfast diff order-17@3 @9",
    "holdfast diff order-17 order-17-courier",
)
@click.argument("a", metavar="RUN[@SEQ]")
@click.argument("b", metavar="RUN[@SEQ]|@SEQ")
@with_store()
def diff_command(hf: Holdfast, a: str, b: str, as_json: bool) -> None:
    """Compare two runs, or one run at two entries: states, what comes next, and results of steps.

    JSON: {"a": {"run": id, "seq": n}, "b": …, "differences": [{"path": …, "change": "added|removed|changed", "a": …,
    "b": …}, …]}.
    """
    first, first_at = _point(hf, a, None)
    second, second_at = _point(hf, b, first)
    one, other = picture_of(first, first_at), picture_of(second, second_at)
    compared = ("state", "node", "next", "queue", "steps")
    found = list(differences({name: one[name] for name in compared}, {name: other[name] for name in compared}))
    if as_json:
        places = {name: {"run": side["run"], "seq": side["seq"]} for name, side in (("a", one), ("b", other))}
        write_json({**places, "differences": [difference._asdict() for difference in found]})
        return
    if not found:
        say("There is no difference.")
    for difference in found:
        _show_difference(difference)


def _point(hf: Holdfast, text: str, before: Run | None) -> tuple[Run, int | None]:
    """A run, and the entry that is meant: ``order-17``, ``order-17@4``, or ``@4`` of the run named before."""
    id, at, number = text.rpartition("@")
    if at and number.isdecimal():
        if not id:
            if before is None:
                raise UsageError(f"{text}: name the run first, such as order-17{text}")
            return before, int(number)
        try:
            return hf.get(text), None  # an id may well look like that
        except RunNotFound:
            return hf.get(id), int(number)
    return hf.get(text), None


def _show_difference(difference: Difference) -> None:
    from rich.text import Text

    where = console()
    mark, colour = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}[difference.change]
    line = Text(f"{mark} {one_line(difference.path)}  ", style=colour)
    if difference.change != "added":
        line.append(short(difference.a, 400), style="red" if difference.change == "changed" else colour)
    if difference.change == "changed":
        line.append(" → ", style="dim")
    if difference.change != "removed":
        line.append(short(difference.b, 400), style="green")
    where.print(line)


@command("effects", "holdfast effects order-17")
@run_argument
@with_store()
def effects_command(hf: Holdfast, run: str, as_json: bool) -> None:
    """List what a run did to the outside world, oldest first, with what became of it.

    The column "undo" says whether a rollback would undo it: yes, no, that it is undone already, or that this is not
    needed, since it raised an error or was done again under another entry.

    JSON: {"effects": [effect, …]}.
    """
    found = hf.get(run).effects()
    if as_json:
        write_json({"effects": found})
        return
    if not found:
        say("It did nothing to the outside world that is on record.")
        return
    rows = [[one.seq, status_text(one.status), one.key, one.target, undo_word(one), one.error] for one in found]
    columns(("entry", "status", "step", "target", "undo", ""), rows, right=("entry",))
