"""`holdfast audit`, `redact`, `delete` and `prune`: looking after what is stored."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from holdfast.cli.codes import code_of
from holdfast.cli.commands.acting import agreed
from holdfast.cli.commands.lists import every_run
from holdfast.cli.options import (
    DURATION,
    STATUSES,
    by_option,
    command,
    filter_options,
    run_argument,
    runs_argument,
    with_store,
    yes_option,
)
from holdfast.cli.remedies import told_error
from holdfast.cli.rendering import say, write_json
from holdfast.engine.app import Holdfast
from holdfast.errors import HoldfastError, UsageError
from holdfast.present.words import counted, one_line

_PREVIEW = 20


@command(
    "audit",
    "holdfast audit",
    "holdfast audit order-17 --head 41:9f2c…",
    "holdfast audit --workflow fulfil --since 30d --json > heads.json",
)
@runs_argument
@filter_options
@click.option("--head", metavar="SEQ:HASH", help="What an earlier audit of this run gave: finds a history cut short.")
@with_store()
def audit_command(hf: Holdfast, runs: tuple[str, ...], wanted: dict[str, Any], head: str | None, as_json: bool) -> None:
    """Verify the journals of runs by their hash chains: of all runs, of those that are named, or by a filter.

    Keep the head that it gives elsewhere: given to a later audit, it also finds a history that was cut short. The exit
    status is 7 if one of them does not add up.

    JSON: {"audits": [{"run": id, "entries": n, "redacted": [seq, …], "head": …, "pending": [kind, …]}, …], "damaged":
    [{"run": id, "message": …}, …]}.
    """
    if runs and wanted:
        raise UsageError("name the runs to audit, or say which by --status, --workflow and so on; not both")
    if head is not None and len(runs) != 1:
        raise UsageError("--head belongs to one run; name it")
    ids = runs or tuple(info.id for info in every_run(hf, **wanted))
    sound, damaged, code = [], [], 0
    for id in ids:
        try:
            sound.append(hf.audit(hf.get(id), head=head))
        except HoldfastError as error:
            code = code or code_of(error)
            damaged.append({"run": id, "message": told_error(error)})
            if not as_json:
                say(f"✗ {one_line(told_error(error))}", err=True)
        else:
            if not as_json:
                erased = f", {len(sound[-1].redacted)} erased" if sound[-1].redacted else ""
                pending = f", {len(sound[-1].pending)} pending" if sound[-1].pending else ""
                say(f"✓ {one_line(id)}  {sound[-1].entries} entries{erased}{pending}  {sound[-1].head}")
    if as_json:
        write_json({"audits": sound, "damaged": damaged})
    elif len(ids) != 1:
        say(f"{len(sound)} of {len(ids)} runs verify.")
    if code:
        click.get_current_context().exit(code)


@command("redact", "holdfast redact order-17 3 7 --by privacy --why 'request 12'")
@run_argument
@click.argument("entries", nargs=-1, type=click.IntRange(min=0), required=True, metavar="SEQ...")
@click.option("--why", metavar="TEXT", help="It is kept in the journal.")
@by_option
@yes_option
@with_store()
def redact_command(
    hf: Holdfast, run: str, entries: tuple[int, ...], why: str | None, by: str | None, yes: bool, as_json: bool
) -> None:
    """Erase what entries of a run hold. That it was done, by whom and why, is kept, and the journal still verifies.

    It cannot be taken back. Backups that were made before still hold what is erased.

    JSON: {"run": run, "redacted": [seq, …]}.
    """
    handle = hf.get(run)
    for seq in entries:
        handle.entry(seq)
    several = len(set(entries)) > 1
    numbers = f"{'entries' if several else 'entry'} {', '.join(map(str, sorted(set(entries))))}"
    agreed(
        f"Erase what {numbers} of {one_line(run)} {'hold' if several else 'holds'}, for good?",
        len(set(entries)),
        "erase",
        yes=yes,
    )
    handle.redact(*entries, by=by, why=why)
    if as_json:
        write_json({"run": handle.info(), "redacted": sorted(set(entries))})
    else:
        say(f"Erased: {numbers} of {one_line(run)}.")


@command("delete", "holdfast delete order-17", "holdfast delete order-17 --yes")
@run_argument
@yes_option
@with_store()
def delete_command(hf: Holdfast, run: str, yes: bool, as_json: bool) -> None:
    """Delete a run, for good, whatever its status. Its id may be used again; what it did to the world stays.

    While somebody holds it, it is refused: cancel it first. Entries that a fork shares stay for the fork. `holdfast
    prune` deletes many.

    JSON: {"deleted": id}.
    """
    handle = hf.get(run)
    info = handle.info()
    agreed(f"Delete {one_line(run)}, which is {info.status}, for good?", 1, "delete", yes=yes)
    handle.delete()
    if as_json:
        write_json({"deleted": run})
    else:
        say(f"✓ {one_line(run)} is deleted")


@command(
    "prune",
    "holdfast prune --older-than 30d --dry-run",
    "holdfast prune --older-than 90d --keep-last 100 --status completed --yes",
)
@click.option("--older-than", type=DURATION, help="Runs that were not written to for this long, such as 30d.")
@click.option("--keep-last", type=click.IntRange(min=0), default=0, metavar="N", help="Spare the newest N of them.")
@click.option("--status", "-s", multiple=True, type=click.Choice(STATUSES), help="Of these statuses. Else: ended ones.")
@click.option("--dry-run", is_flag=True, help="Show which runs it would be, and do nothing.")
@yes_option
@with_store()
def prune_command(
    hf: Holdfast,
    older_than: timedelta | None,
    keep_last: int,
    status: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete old runs (previewed). What somebody holds, and what a fork or an unfinished parent needs, stays.

    JSON: {"pruned": [id, …], "count": n}; with --dry-run {"would": "prune", "count": n, "runs": [id, …]}.
    """
    how: dict[str, Any] = {"older_than": older_than, "keep_last": keep_last, "statuses": list(status) or None}
    if older_than is None and not keep_last and not status:
        raise UsageError("it would delete every run that has ended: say --older-than, --keep-last or --status")
    would = hf.prune(**how, dry_run=True)
    if dry_run and as_json:
        write_json({"would": "prune", "count": len(would), "runs": would})
        return
    if not as_json and (dry_run or not yes or not would):
        for id in would[:_PREVIEW]:
            say(one_line(id))
        if len(would) > _PREVIEW:
            say(f"… and {len(would) - _PREVIEW} more")
        say(f"{len(would)} to delete." if would else "There is nothing to delete.")
    if dry_run:
        return
    if would:
        agreed(f"Delete {counted(len(would), 'run')}, for good?", len(would), "delete", yes=yes)
    pruned = hf.prune(**how) if would else ()
    if as_json:
        write_json({"pruned": pruned, "count": len(pruned)})
    elif would:
        say(f"{len(pruned)} deleted.")
