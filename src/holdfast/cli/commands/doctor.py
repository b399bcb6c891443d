"""`holdfast doctor`: is everything as it should be, and if not, what to do about it."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import Literal, NamedTuple

import click

from holdfast.cli.codes import PROBLEMS
from holdfast.cli.commands.lists import every_run
from holdfast.cli.options import DEFAULT_STORE, command, opened, path_of, store_option
from holdfast.cli.remedies import command_line, told_error, typed
from holdfast.cli.rendering import COLOURS, console, say, write_json
from holdfast.engine.access.held_run import NOT_UNDONE
from holdfast.engine.app import Holdfast
from holdfast.errors import HoldfastError, StoreDamaged
from holdfast.present.remedies import worker_for
from holdfast.present.status import SOON, neglected
from holdfast.present.words import counted, one_line, span
from holdfast.stores.protocol import Examined

LITTLE_SPACE = 1 << 30  # bytes free on the store's disk, below which it is told
AUDITED = 200  # runs whose journals are verified without --full
TOLD = 20  # damages to a file that are told one by one
STUCK = timedelta(minutes=5)  # ready for so long, and nobody takes it
_EXTRAS = {
    "cron": "cronsim",
    "crypto": "cryptography",
    "draw": "igraph",
    "http": "httpx",
    "langgraph": "langgraph-checkpoint",
    "otel": "opentelemetry-api",
    "postgres": "psycopg",
    "ui": "sse-starlette",
}


class Finding(NamedTuple):
    """One thing that was looked at, how it is, and what to do about it."""

    level: Literal["ok", "warning", "problem"]
    what: str
    text: str
    remedy: str | None = None


@command("doctor", "holdfast doctor", "holdfast doctor --full --json", "holdfast doctor --recover")
@click.option("--full", is_flag=True, help=f"Verify the journals of all runs, and not of the newest {AUDITED} alone.")
@click.option("--recover", is_flag=True, help="Free the runs whose worker died; else this is left to the next claim.")
@store_option
def doctor_command(store: str | None, full: bool, recover: bool, as_json: bool) -> None:
    """Examine the environment and the store, and say what to do about what is found.

    The exit status is 12 if there is a problem; a warning is none.

    JSON: {"findings": [{"level": "ok|warning|problem", "what": …, "text": …, "remedy": …}, …]}.
    """
    found: list[Finding] = []
    for finding in examine(store, full=full, recover=recover):
        found.append(finding)
        if not as_json:
            _show(finding)
    if as_json:
        write_json({"findings": [finding._asdict() for finding in found]})
    problems = sum(finding.level == "problem" for finding in found)
    if not as_json:
        warnings = sum(finding.level == "warning" for finding in found)
        told = f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}."
        say(f"\n{told}" if problems or warnings else "\nAll is well.")
    if problems:
        click.get_current_context().exit(PROBLEMS)


def _show(finding: Finding) -> None:
    from rich.text import Text

    mark = {"ok": "✓", "warning": "!", "problem": "✗"}[finding.level]
    line = Text(mark, style=COLOURS[finding.level]).append(f" {finding.what:<12}", style="dim default")
    console().print(line.append(one_line(finding.text), style="default"))
    if finding.remedy:
        console().print(Text(f"{'':<14}→ {one_line(finding.remedy)}", style="cyan"))


def examine(url: str | None, *, full: bool, recover: bool) -> Iterator[Finding]:
    """Look at everything, one thing after the other."""
    yield from _environment()
    path = path_of(url or DEFAULT_STORE)
    if path is not None:
        yield from _disk(path)
    if path is not None and (url or DEFAULT_STORE).startswith("sqlite") and os.path.exists(path):
        yield from _sqlite(path)
    try:
        with opened(url) as hf:
            yield Finding("ok", "store", f"{hf.place} can be opened")
            yield from _server(hf)
            yield from _runs(hf, recover=recover)
            yield from _journals(hf, full=full)
    except HoldfastError as error:
        remedy = "`holdfast restore` takes a backup into a new store" if isinstance(error, StoreDamaged) else None
        yield Finding("problem", "store", told_error(error), remedy)


def _environment() -> Iterator[Finding]:
    from holdfast import __version__

    yield Finding("ok", "holdfast", f"{__version__} in {sys.prefix}")
    yield Finding("ok", "python", f"{platform.python_version()} on {platform.system()} {platform.release()}")
    here: list[str] = []
    for extra, package in _EXTRAS.items():
        try:
            here.append(f"{extra} ({package} {version(package)})")
        except PackageNotFoundError:
            continue
    missing = [extra for extra, package in _EXTRAS.items() if not any(one.startswith(f"{extra} ") for one in here)]
    told = ", ".join(here) or "none"
    yield Finding("ok", "extras", f"{told}; not installed: {', '.join(missing)}" if missing else told)


def _disk(path: str) -> Iterator[Finding]:
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        return
    free = shutil.disk_usage(folder).free
    text = f"{free / (1 << 30):,.1f} GiB free in {folder}"
    if free < LITTLE_SPACE:
        way = command_line("prune", options=["--older-than", "30d"])
        yield Finding("warning", "disk", text, f"free some space; `{way}` deletes old runs")
    else:
        yield Finding("ok", "disk", text)
    try:
        began = time.monotonic()
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"holdfast")
            file.flush()
            os.fsync(file.fileno())
            written = os.fstat(file.fileno()).st_mtime
        took = (time.monotonic() - began) * 1000
    except OSError as error:
        text = f"a file in {folder} cannot be written and synced: {error.strerror}"
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            yield Finding("warning", "read-only", text, "the store can be read; to work with it, check the permissions")
            return
        yield Finding("problem", "sync", text, "check the permissions of the folder, and the disk")
        return
    yield Finding("ok", "sync", f"a write is synced to disk in {took:.1f} ms")
    if abs(apart := time.time() - written) > 60:
        text = f"this machine's clock and that of the disk differ by {span(abs(apart))}"
        yield Finding("warning", "clock", text, "keep the store on a local disk, and the clock set by NTP")


def _sqlite(path: str) -> Iterator[Finding]:
    import sqlite3
    from contextlib import closing

    from holdfast.stores.sqlite.connect import connect_to_read
    from holdfast.stores.sqlite.damage import examine as examine_file
    from holdfast.stores.sqlite.statements import Q

    try:
        with closing(connect_to_read(path, sqlite3.Connection)) as db:
            said = list(examine_file(db, Q, f"sqlite:///{path}"))
    except sqlite3.Error as error:
        said = [str(error)]
    if not said:
        size = os.path.getsize(path) / (1 << 20)
        yield Finding("ok", "file", f"{path} is sound, {size:,.1f} MiB (SQLite {sqlite3.sqlite_version})")
    for text in said[:TOLD]:
        yield Finding("problem", "file", f"{path} is damaged: {text}", "restore a backup into a new store")
    if len(said) > TOLD:
        yield Finding("problem", "file", f"{path}: {len(said) - TOLD} more of the kind")


def _server(hf: Holdfast) -> Iterator[Finding]:
    """What the settings of a database server make of the promises of its store."""
    store = hf.client.store
    if isinstance(store, Examined):
        weaknesses = store.weaknesses()
        for weakness in weaknesses:
            text, _, remedy = weakness.rpartition("; ")
            yield Finding("warning", "durability", text, remedy)
        if not weaknesses:
            yield Finding("ok", "durability", "a commit is acknowledged when the server has synced it to disk")


def _runs(hf: Holdfast, *, recover: bool) -> Iterator[Finding]:
    infos = every_run(hf)
    counts = {status: sum(info.status == status for info in infos) for status in dict.fromkeys(i.status for i in infos)}
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    yield Finding("ok", "runs", f"{len(infos)}: {told}" if infos else "none yet")
    if dead := hf.recover(dry_run=not recover):
        text = f"{counted(len(dead), 'run')} held by workers that died: {_some(dead)}"
        way = command_line("doctor", options=["--recover"])
        remedy = None if recover else f"they can be claimed at any time; `{way}` frees them now"
        yield Finding("ok" if recover else "warning", "workers", text, remedy)
    if stopped := [info.id for info in infos if info.status == "blocked" and info.rolls_back is not None]:
        text = f"{counted(len(stopped), 'run')} blocked in the middle of a rollback, by an undo that failed: "
        ways = f"`{command_line('show', 'RUN')}` tells which, and how to go on"
        yield Finding("problem", "undos", text + _some(stopped), ways)
    if left := [info.id for info in infos if (info.reason or "").startswith(NOT_UNDONE)]:
        text = f"{counted(len(left), 'run')} of which not everything was undone: {_some(left)}"
        yield Finding("warning", "undos", text, f"`{command_line('effects', 'RUN')}` tells what may still be there")
    if blocked := [info.id for info in infos if info.status == "blocked" and info.rolls_back is None]:
        text = f"{counted(len(blocked), 'run')} blocked until a person acts: {_some(blocked)}"
        yield Finding(
            "warning",
            "blocked",
            text,
            f"`{command_line('show', 'RUN')}` tells why; then `{command_line('unblock', 'RUN')}`",
        )
    now = datetime.now(UTC)
    ways = f"have a worker: `{command_line('worker', 'MODULE')}`, or `{command_line('resume', 'RUN')}`"
    ready = Counter(
        info.queue for info in infos if info.status == "ready" and info.queue and now - info.updated_at > SOON
    )
    for queue in sorted(neglected(hf.client.store, ready)):
        text = f"{counted(ready[queue], 'run')} ready in queue {queue}, and no live worker of it is known"
        yield Finding("warning", "unattended", text, typed(worker_for(queue)))
    if idle := [info.id for info in infos if info.status == "ready" and info.queue and now - info.updated_at > STUCK]:
        text = f"{counted(len(idle), 'run')} ready since more than {span(STUCK.total_seconds())}: {_some(idle)}"
        yield Finding("warning", "idle", text, ways)
    late = [info.id for info in infos if info.status == "waiting" and info.wake_at and now - info.wake_at > STUCK]
    if late:
        text = f"{counted(len(late), 'run')} that should have gone on by now: {_some(late)}"
        yield Finding("warning", "late", text, ways)
    ahead = max((info.updated_at - now for info in infos), default=timedelta())
    if ahead > timedelta(minutes=1):
        text = f"the newest entry is {span(ahead.total_seconds())} in the future"
        yield Finding("warning", "clock", text, "set the clock, by NTP for instance: timers go by it")
    else:
        yield Finding("ok", "clock", f"{now:%Y-%m-%d %H:%M:%S} UTC, not before the newest entry")


def _journals(hf: Holdfast, *, full: bool) -> Iterator[Finding]:
    infos = every_run(hf) if full else list(hf.runs(limit=AUDITED))
    damaged = 0
    for info in infos:
        try:
            hf.audit(hf.get(info.id))
        except HoldfastError as error:
            damaged += 1
            yield Finding("problem", "journal", told_error(error))
    if not damaged:
        which = "all" if full or len(infos) < AUDITED else f"the newest {len(infos)}"
        yield Finding("ok", "journals", f"{which} verify" if infos else "none yet")


def _some(ids: list[str] | tuple[str, ...]) -> str:
    return ", ".join(map(one_line, ids[:5])) + (", …" if len(ids) > 5 else "")
