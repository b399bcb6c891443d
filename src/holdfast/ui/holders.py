"""Who holds runs, whether they live, and from which queues somebody takes, as far as the store knows.

A store knows a worker from its first claim on. One that has found nothing to do yet is not known to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from holdfast.cli.flows import FLOW
from holdfast.cli.remedies import command_line
from holdfast.engine.worker.queues import Settings, read_settings
from holdfast.kernel.model import Filter, Status
from holdfast.stores.protocol import Store
from holdfast.views import RunInfo

HELD = 1_000  # runs that are looked at to say who holds what
DEFAULT_QUEUE = "default"


def living(store: Store, statuses: Iterable[Status]) -> frozenset[str]:
    """The workers that live; nobody is asked for if none of the runs of these statuses is held."""
    if Status.RUNNING not in statuses:
        return frozenset()
    return frozenset(one.worker for one in store.workers() if one.alive)


def has_died(info: RunInfo, alive: Collection[str]) -> bool:
    """Whether the process has died that holds the run."""
    return info.status is Status.RUNNING and info.holder is not None and info.holder not in alive


def neglected(store: Store, queues: Collection[str]) -> frozenset[str]:
    """Those of the queues of which no living worker holds a run, though nothing that is set about them says why."""
    if not queues:
        return frozenset()
    held = store.find(Filter(statuses=(Status.RUNNING,)), limit=HELD)
    alive = living(store, {record.status for record in held})
    tended = {record.queue for record in held if record.worker in alive}
    known = {name: settings for name, (settings, _) in read_settings(store).items()}
    return frozenset(name for name in queues if name not in tended and not _is_held_back(known.get(name)))


def _is_held_back(settings: Settings | None) -> bool:
    return settings is not None and (settings.paused or settings.rate is not None)


def worker_command(queue: str, workflow: str | None = None) -> str:
    """The command that starts a worker which takes from the queue."""
    options = [] if queue == DEFAULT_QUEUE else ["--queue", queue]
    if workflow == FLOW:
        return command_line("worker", options=["--flows", *options])
    return command_line("worker", "MODULE", options=options)
