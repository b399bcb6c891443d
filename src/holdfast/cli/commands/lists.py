"""`holdfast runs`, `workers` and `questions`: what is in the store, who drives it, and what waits for a person."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.codes import code_of
from holdfast.cli.options import command, filter_options, runs_argument, with_store
from holdfast.cli.remedies import command_line, told_error
from holdfast.cli.rendering import RUN_TITLES, columns, run_rows, say, write_json
from holdfast.engine.app import Holdfast
from holdfast.errors import KeyMissing, RunError
from holdfast.present.status import dead_of
from holdfast.present.words import ago, one_line
from holdfast.views import Field, Question, RunInfo


@command(
    "runs",
    "holdfast runs --status failed --since 7d",
    "holdfast runs --workflow fulfil --tag customer=17 --json",
)
@filter_options
@click.option("--limit", "-n", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most.")
@click.option("--after", metavar="NEXT", help="Go on after a page, with what it gave as next.")
@with_store()
def runs_command(hf: Holdfast, wanted: dict[str, Any], limit: int, after: str | None, as_json: bool) -> None:
    """List runs, newest first.

    A run that was running when its process died is told so: it is claimed by the next worker that declares it.

    JSON: {"runs": [run, …], "died": [id of one whose process has died, …], "next": what to give to --after, or null}.
    """
    page = hf.runs(**wanted, limit=limit, after=after)
    if as_json:
        write_json({"runs": page.items, "died": sorted(dead_of(hf, page.items)), "next": page.next})
        return
    if not page.items:
        say("No runs." if not wanted else "No such runs.")
        return
    columns(RUN_TITLES, run_rows(hf, page.items), right=("entries",))
    if page.next is not None:
        say(f"There are more: --after {page.next}")


@command("workers", "holdfast workers", "holdfast workers --json")
@with_store()
def workers_command(hf: Holdfast, as_json: bool) -> None:
    """List the processes that drive runs, and which runs each of them holds.

    The store knows a process from the first run that it takes until it ends in good order. Of one that died there stay
    the runs that it held, until others go on with them; of one that has found nothing to do yet nothing is known.

    JSON: {"workers": [{"worker": name, "alive": …, "holds": [id, …]}, …]}.
    """
    found = [one for one in hf.workers() if one.alive or one.runs]
    if as_json:
        write_json({"workers": [{"worker": one.name, "alive": one.alive, "holds": one.runs} for one in found]})
    elif not found:
        say(f"The store knows of no worker; `{command_line('worker', 'MODULE')}` is one.")
    else:
        rows = [[one.name, "alive" if one.alive else "died", ", ".join(one.runs)] for one in found]
        columns(("worker", "", "holds"), rows)


def every_run(hf: Holdfast, **wanted: Any) -> list[RunInfo]:
    """All runs that are wanted, page by page."""
    found: list[RunInfo] = []
    after: str | None = None
    while True:
        page = hf.runs(**wanted, limit=500, after=after)
        found += page.items
        if (after := page.next) is None:
            return found


@command("questions", "holdfast questions", "holdfast questions order-17 --json")
@runs_argument
@with_store()
def questions_command(hf: Holdfast, runs: tuple[str, ...], as_json: bool) -> None:
    """List the questions that wait for an answer: of all runs, or of those that are named.

    A run that cannot be read is told, and the questions of the others are listed; the exit status is then that of the
    error: 7 damaged, 8 not found, 9 encrypted with keys that are not here.

    JSON: {"questions": [question, …], "unread": [{"run": id, "message": …}, …]}.
    """
    ids = runs or tuple(info.id for info in every_run(hf, status=["waiting", "ready", "running"]))
    found, unread, code = list[Question](), list[dict[str, str]](), 0
    for id in ids:
        try:
            found += hf.get(id).questions()
        except (RunError, KeyMissing) as error:
            code = code or code_of(error)
            unread.append({"run": id, "message": told_error(error)})
    if as_json:
        write_json({"questions": found, "unread": unread})
    else:
        _show_questions(found)
        for one in unread:
            say(f"✗ {one_line(one['message'])}", err=True)
    if code:
        click.get_current_context().exit(code)


def _show_questions(found: list[Question]) -> None:
    if not found:
        say("Nothing is asked.")
        return
    rows = [[one.run, one.id, ago(one.at), form_of(one), one.prompt] for one in found]
    columns(("run", "question", "asked", "answer", "prompt"), rows)
    several = len([one for one in found if one.run == found[0].run]) > 1
    options = ("--question", found[0].id) if several else ()
    say(f"\nAnswer with: {command_line('answer', found[0].run, options=options)}")


def form_of(question: Question) -> str:
    """What an answer looks like, in a few words."""
    if not question.fields:
        return "anything"
    if question.single:
        return kind_of(question.fields[0])
    return ", ".join(field.name for field in question.fields)


def kind_of(field: Field) -> str:
    """What a field takes."""
    if field.type == "choice":
        return " | ".join(map(str, field.labels or field.options))
    return field.type
