"""`holdfast show`, `history`, `state`, `diff` and `effects`: one run, from all sides."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import click

from holdfast.cli.options import command, module_option, run_argument, with_store
from holdfast.cli.remedies import in_commands, typed
from holdfast.cli.rendering import columns, console, escaped, pairs, pretty, say, status_text, write_json
from holdfast.cli.session import outcome_json, title
from holdfast.engine.app import Holdfast
from holdfast.engine.run.handle import Run
from holdfast.errors import RunNotFound, UsageError
from holdfast.kernel.model import Kind
from holdfast.present.about import journal_lines
from holdfast.present.description import describe
from holdfast.present.diff import Difference, changes, state_of
from holdfast.present.names import fan_of, task_name
from holdfast.present.status import Standing
from holdfast.present.timeline import Bar
from holdfast.present.words import ago, clock, joined, one_line, printable, short, undo_word, workflow_of
from holdfast.views import EntryContents, RunInfo

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
    found = describe(hf, handle)
    info, stands, ended, at = found.info, found.standing, found.outcome, state_of(handle, results=False)
    if as_json:
        children = [str(entry.contents["id"]) for entry in entries_of(handle, Kind.CHILD)]
        told = {"run": info, "input": found.input.value, "steps": handle.steps(), "questions": found.questions}
        told |= {"children": children, **({"untaken": found.untaken} if found.untaken else {}), "died": stands.died}
        write_json(told | {"next": at.next, "node": at.node, "queue": at.queue, **outcome_json(info, ended)})
        return
    from rich.text import Text

    console().print(title(info, stands))
    facts = [("next", at.next), ("last node", at.node), ("to do", at.queue)] if not stands.rollback else []
    shown = [(name, short(value)) for name, value in facts if value not in (None, [], ())]
    shown.append(("failed at", task_name(ended.failed_at) if ended.failed_at is not None else ""))
    error = Text(one_line(ended.error), style="red") if ended.error else None
    input = short(found.input.value, _INPUT) if found.input.value is not None else None
    pairs([*_facts(handle, info, stands), ("input", input), *shown, ("error", error), ("by", ended.by)])
    if trace and ended.trace is not None:
        say(f"\n{printable(ended.trace.rstrip())}\n{one_line(ended.error)}")
    if bars := [bar for bar in found.window.bars if bar.live]:
        say("" if found.window.whole else f"\n(from entry {found.window.lo})")
        _show_bars(bars)
    for question in found.questions:
        console().print(f"\n[yellow]?[/] {escaped(question.prompt)}  [dim]{escaped(question.id)}[/]")
    for answer in found.untaken:
        console().print(f"\n[yellow]?[/] {escaped(answer.prompt)}\n  {escaped(answer.told)}")
    if ended.result is not None:
        say("\nresult")
        pretty(ended.result)
    ways = [*found.remedies, *([stands.worker] if stands.worker is not None else [])]
    if ways:
        say("\ngo on with")
        for way in ways:
            say(f"  {typed(way)}")


def _facts(run: Run, info: RunInfo, stands: Standing) -> list[tuple[str, Any]]:
    parent = run.entry(0).contents.get("parent") if info.parent else None
    delayed = info.wake_at is not None and not info.reason  # until when, has a line of its own
    return [
        ("workflow", workflow_of(info)),
        ("rollback" if stands.rollback else "reason", in_commands(stands.told, info.id) if not delayed else None),
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


def _show_bars(bars: list[Bar]) -> None:
    rows: list[list[Any]] = []
    for (fan, status), group in groupby(bars, key=lambda one: (fan_of(one.key), one.look)):
        several = list(group)
        if fan is not None and len(several) > _FEW:
            first = several[0]
            rows.append([first.seq, status_text(status), fan, "", f"{len(several)} × {first.name}", first.error])
            continue
        for one in several:
            key = one.key if one.sort in ("step", "child") else one.name
            note = joined(f"attempt {one.attempt}" if one.attempt > 1 else "", one.detail, one.link)
            rows.append([one.seq, status_text(status), key, one.took, note, one.error if status != "done" else ""])
    if len(rows) > _STEPS:
        say(f"({len(rows) - _STEPS} earlier lines; --json lists all steps)")
    columns(("entry", "status", "step", "took", "", ""), rows[-_STEPS:], right=("entry", "took"))


def entries_of(run: Run, kind: str) -> list[EntryContents]:
    """All entries of a kind, with their contents."""
    found: list[EntryContents] = []
    after: str | None = None
    while True:
        page = run.history(kind=kind, limit=500, after=after)
        found += [run.entry(info.seq) for info in page]
        if (after := page.next) is None:
            return found


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
    that are not here, or of an entry that is damaged, it says that it cannot be read.

    JSON, a line for each: {"run": id, "seq": n, "kind": …, "at": …, "about": …, "live": …, "inherited": …, "pending":
    …}, and with --contents {"contents": …}.
    """
    handle, left = hf.get(run), limit
    cursor = None if after is None else str(after)
    while left is None or left > 0:
        page = handle.history(kind=kind, after=cursor, limit=min(500, left or 500))
        for line in journal_lines(handle, page.items):
            info, entry = line.info, line.entry
            if contents and entry is None:
                entry = handle.entry(info.seq)  # which says why it cannot be read
            said = entry.contents if contents and entry is not None else None
            if as_json:
                given = {"run": run, "seq": info.seq, "kind": info.kind, "at": info.at}
                given |= {"contents": said} if contents else {}
                flags = {"live": info.live, "inherited": info.inherited, "pending": info.pending}
                write_json({**given, "about": line.about, **flags})
                continue
            kind_told = f"({info.kind})" if line.abandoned else info.kind
            text = f"{info.seq:>6}  {clock(info.at)}  {kind_told}{' (pending)' if info.pending else ''}"
            say(f"{text:<46}  {short(said, 500) if contents else short(line.told, _ABOUT)}".rstrip())
        left = None if left is None else left - len(page)
        if (cursor := page.next) is None:
            return


@command("state", "holdfast state order-17", "holdfast state order-17 --at 4 --json | jq .state")
@run_argument
@click.option("--at", type=click.IntRange(min=0), metavar="SEQ", help="As it was at this entry.")
@with_store()
def state_command(hf: Holdfast, run: str, at: int | None, as_json: bool) -> None:
    """Show the state of a run, now or at an entry; of a plain workflow, which has none, the results of its steps.

    JSON: {"run": id, "seq": n, "state": …, "node": …, "next": …, "queue": …, "steps": {key: result}}.
    """
    found = state_of(hf.get(run), at)
    if as_json:
        write_json(found)
    else:
        pretty(found.shown)


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
    one, other = state_of(first, first_at), state_of(second, second_at)
    found = list(changes(one, other))
    if as_json:
        places = {name: {"run": side.run, "seq": side.seq} for name, side in (("a", one), ("b", other))}
        write_json({**places, "differences": found})
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
