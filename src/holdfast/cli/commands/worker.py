"""`holdfast worker`: drive whatever is due."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import click

from holdfast.cli.options import SECONDS, command, with_store
from holdfast.cli.remedies import command_line
from holdfast.cli.rendering import say, write_json
from holdfast.cli.session import prints_elsewhere
from holdfast.cli.targets import TargetRefused, import_named, is_flow
from holdfast.engine.access.engine import MAX_CRASHES
from holdfast.engine.app import Holdfast
from holdfast.engine.workflow.declare import registered_names
from holdfast.errors import UsageError
from holdfast.present.words import clock, counted, one_line


@command(
    "worker",
    "holdfast worker orders",
    "holdfast worker orders ./reports.py --concurrency 20 --queue default --queue slow",
    "holdfast worker --flows --until-idle",
)
@click.argument("modules", nargs=-1, metavar="[MODULE|FILE.py]...", envvar="HOLDFAST_MODULES")
@click.option("--concurrency", "-c", type=click.IntRange(min=1), default=10, show_default=True, help="Runs at a time.")
@click.option("--queue", "-q", "queues", multiple=True, default=["default"], show_default=True, help="May be repeated.")
@click.option("--grace", type=SECONDS, default=30.0, show_default=True, help="How long steps have to end, such as 2m.")
@click.option(
    "--max-crashes",
    type=click.IntRange(min=1),
    default=MAX_CRASHES,
    show_default=True,
    help="Block a run that killed its process this often while that executed nothing else.",
)
@click.option("--flows", is_flag=True, help="Drive flows, too: whoever can write to the store decides what is run.")
@click.option("--until-idle", is_flag=True, help="End when nothing is left to do or to wait for.")
@click.option("--verbose", "-v", is_flag=True, help="Tell of each step.")
@with_store(make=True)
def worker_command(
    hf: Holdfast,
    modules: tuple[str, ...],
    concurrency: int,
    queues: tuple[str, ...],
    grace: float,
    max_crashes: int,
    flows: bool,
    until_idle: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Import modules, and drive all runs of their workflows that are due, until told to stop.

    SIGTERM and Ctrl-C stop it in good order: what it drives is released at the next durable call, and steps have
    --grace to end. Told twice, it waits no longer. Start as many workers as you like: each run is driven by
    one of them.

    What happens is told on standard error.

    JSON, a line for each event: {"at": …, "level": …, "event": …, "run": id, …}.
    """
    for name in modules:
        if is_flow(name):
            way = command_line("worker", options=["--flows"])
            raise TargetRefused(f"{name}: flows are driven with --flows, all of the store: `{way}`")
        import_named(name)
    if flows:
        import holdfast.flow  # noqa: F401
    if not registered_names():
        raise UsageError(
            "name the modules that declare the workflows, such as `holdfast worker orders`, or say --flows"
        )
    with told_on(as_json=as_json, level=logging.DEBUG if verbose else logging.INFO), prints_elsewhere(as_json):
        hf.client.engine.max_crashes = max_crashes
        hf.work(concurrency=concurrency, queues=queues, until_idle=until_idle, grace=grace)
    if not as_json:
        _tell_left(hf, queues, [*modules, *(["--flows"] if flows else [])])
        say("The worker has stopped.", err=True)


def _tell_left(hf: Holdfast, queues: Sequence[str], again: list[str]) -> None:
    """Tell of other queues that have work, which somebody may have forgotten."""
    for one in hf.queues():
        if one.ready and one.name not in queues:
            way = command_line("worker", options=[*again, "--queue", one.name])
            say(
                f"{counted(one.ready, 'run')} ready in queue {one_line(one.name)}, which it does not take: {way}",
                err=True,
            )


@contextmanager
def told_on(*, as_json: bool, level: int) -> Iterator[None]:
    """While this lasts, tell what happens: as text on standard error, or as JSON on standard output."""
    log = logging.getLogger("holdfast")
    handler = _Json() if as_json else _Lines(sys.stderr)
    log.addHandler(handler)
    before = log.level
    log.setLevel(level)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


class _Lines(logging.StreamHandler):  # type: ignore[type-arg]
    """A line of text for each event."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{clock(datetime.fromtimestamp(record.created, UTC))}  {record.getMessage()}"


class _Json(logging.Handler):
    """A line of JSON for each event, where standard output was when it began."""

    def __init__(self) -> None:
        super().__init__()
        self._stream = sys.stdout

    def emit(self, record: logging.LogRecord) -> None:
        at = datetime.fromtimestamp(record.created, UTC)
        parts = getattr(record, "holdfast", {"event": "other", "text": record.getMessage()})
        write_json({"at": at, "level": record.levelname.lower(), **parts}, self._stream)
