"""How a run stands, as a person sees it: a word that says more than its status, why it stands so, and what helps.

A run that has an open question, one that waits for a moment and one that waits for others are all ``waiting``; one
whose process was killed is ``running`` until somebody claims it. Here they are distinguished. A store knows a worker
from its first claim on: one that has found nothing to do yet is not known.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from holdfast.engine.app import Holdfast
from holdfast.engine.worker.queues import Settings, read_settings
from holdfast.errors import HoldfastError
from holdfast.kernel.model import Filter, Status
from holdfast.present.questions import awaited
from holdfast.present.remedies import Remedy, module_words, worker_for
from holdfast.present.words import clock, joined
from holdfast.stores.protocol import Store
from holdfast.views import RunInfo

SOON = timedelta(seconds=5)  # within which a worker takes what is ready
HELD = 1_000  # runs that are looked at to say who holds what
_FOR_A_WORKER = re.compile("waits for (a process that declares|another process: workflow .* is not declared)")


class Standing(Struct, frozen=True):
    """How a run stands: ``look`` is the word for it, ``note`` says why, ``rollback`` that one is not done.

    In a note, what helps is named as the engine does it, by calls: see `holdfast.present.remedies.reworded`. ``worker``
    is the worker that the run needs, if none of its queue is known to live.
    """

    look: str
    note: str = ""
    rollback: str = ""
    worker: Remedy | None = None

    @property
    def died(self) -> bool:
        """Whether the process that held the run has died."""
        return self.look == "died"

    @property
    def told(self) -> str:
        """All that there is to say, in one line."""
        return joined(self.rollback, self.note, by="; ")


def standing(hf: Holdfast, info: RunInfo) -> Standing:
    """How a run stands."""
    return standings(hf, [info])[0]


def standings(hf: Holdfast, infos: Sequence[RunInfo]) -> list[Standing]:
    """How each of the runs stands."""
    store = hf.client.store
    alive = living(store, {info.status for info in infos})
    late = datetime.now(UTC) - SOON
    ready = [info for info in infos if info.status is Status.READY and info.updated_at < late]
    idle = neglected(store, {info.queue for info in ready if info.queue is not None})
    return [_standing(hf, info, alive, idle if info.updated_at < late else ()) for info in infos]


def _standing(hf: Holdfast, info: RunInfo, alive: Collection[str], idle: Collection[str]) -> Standing:
    rollback = _rollback(hf, info)
    if _has_died(info, alive):
        if info.queue is None:
            return Standing("died", "its process has died; it can be claimed again", rollback)
        return Standing("died", "its process has died; a worker resumes it", rollback, _worker(hf, info))
    if rollback:
        finishing = "" if info.status is Status.RUNNING else "whoever resumes it finishes that"
        return Standing(_look(hf, info)[0], finishing, rollback)
    reason = info.reason if info.reason and not _FOR_A_WORKER.match(info.reason) else ""
    if info.status is Status.READY and info.queue in idle and not reason:
        return Standing("ready", f"no live worker of queue {info.queue} is known", "", _worker(hf, info))
    look, note = _look(hf, info)
    return Standing(look, reason or note)


def _look(hf: Holdfast, info: RunInfo) -> tuple[str, str]:
    """The word for a run, and what it waits for."""
    if info.status is not Status.WAITING:
        return str(info.status), ""
    what = awaited(hf, info)
    if info.wake_at is not None:
        return "asks" if what == "answer" else "delayed", f"until {clock(info.wake_at)}"
    return ("asks", "") if what == "answer" else ("waiting", what and f"for a {what}")


def remark(info: RunInfo) -> str:
    """Where a run comes from, for a list that has nothing else to say about it."""
    if info.forked_from is not None:
        return f"fork of {info.forked_from[0]} at {info.forked_from[1]}"
    return "rolled back" if info.generation else ""


def _rollback(hf: Holdfast, info: RunInfo) -> str:
    """That the run is being rolled back. The reason of a blocked one says more."""
    if info.rolls_back is None or info.status is Status.BLOCKED:
        return ""
    try:
        return f"is being rolled back to entry {hf.get(info.id).entry(info.rolls_back).contents['to']}"
    except HoldfastError:  # encrypted, damaged, deleted: whoever reads it says so
        return "is being rolled back"


def _worker(hf: Holdfast, info: RunInfo) -> Remedy:
    try:
        modules = module_words(hf.get(info.id))[1:]
    except HoldfastError:
        modules = ()
    return worker_for(info.queue, info.workflow, modules)


# --- who holds runs


def living(store: Store, statuses: Iterable[Status]) -> frozenset[str]:
    """The workers that live; the store is not asked if none of the runs of these statuses is held."""
    if Status.RUNNING not in statuses:
        return frozenset()
    return frozenset(one.worker for one in store.workers() if one.alive)


def _has_died(info: RunInfo, alive: Collection[str]) -> bool:
    return info.status is Status.RUNNING and info.holder is not None and info.holder not in alive


def dead_of(hf: Holdfast, infos: Sequence[RunInfo]) -> set[str]:
    """The ids of those of these runs whose process has died."""
    alive = living(hf.client.store, {info.status for info in infos})
    return {info.id for info in infos if _has_died(info, alive)}


def has_died(hf: Holdfast, info: RunInfo) -> bool:
    """Whether the process that holds the run has died; it can be claimed."""
    return bool(dead_of(hf, [info]))


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
