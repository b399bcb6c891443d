"""How a run stands, as a person sees it: a sign and a word that say more than its status, why, and what helps.

A run that asks, one that waits for a moment and one that waits for others are all ``waiting``; one whose process was
killed is ``running`` until somebody claims it. Here they are told apart.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from holdfast.cli.remedies import in_commands
from holdfast.cli.rendering import note_on
from holdfast.cli.unfinished import rolling_back
from holdfast.engine.app import Holdfast
from holdfast.kernel.model import Status
from holdfast.ui.api.problems import without_place
from holdfast.ui.holders import has_died, living, neglected, worker_command
from holdfast.ui.pages.questions import asked
from holdfast.views import RunInfo

SOON = timedelta(seconds=5)  # within which a worker takes what is ready

_BUTTONS = [  # what the engine names as a call of Python, and what does it on the pages
    (re.compile(pattern), instead)
    for pattern, instead in (
        (r"run\.resolve\(('[^']*'|\"[^\"]*\"), done=True, result=\.\.\.\) or done=False", "“Resolve”"),
        (r"`?run\.resolve\(\.\.\.\)`?", "“Resolve”"),
        (r"`?run\.unblock\(\)`?", "“Let it go on”"),
        (r"`?run\.unblock\(accept=True\)`?", "`holdfast resume --accept`"),
        (r"`?run\.retry\(\)`?", "“Retry”"),
        (r"`?run\.fork\(\)`?", "“Fork”"),
        (r"run\.rollback\(to=(\d+)\)", r"“Roll back” to entry \1"),
        (r"run\.cancel\(force=True\)", "“Cancel”, with undos that fail passed over,"),
        (r"with force=True it passes over it", "if you say so, it passes over it"),
        (r"a rollback with force=True passes over it", "a rollback passes over it if you say so"),
        (r"`?run\.effects\(\)`?", "“Effects”"),
    )
]


class Standing(Struct, frozen=True):
    """How a run stands: ``look`` is the word of its badge; ``command`` is what a person may type about it."""

    look: str
    note: str = ""
    command: str = ""


def standing(hf: Holdfast, info: RunInfo) -> Standing:
    """How a run stands."""
    return standings(hf, [info])[0]


def standings(hf: Holdfast, infos: Sequence[RunInfo]) -> list[Standing]:
    """How each of the runs stands."""
    alive = living(hf.client.store, {info.status for info in infos})
    late = datetime.now(UTC) - SOON
    ready = [info for info in infos if info.status is Status.READY and info.updated_at < late]
    idle = neglected(hf.client.store, {info.queue for info in ready if info.queue is not None})
    dead = {info.id for info in infos if has_died(info, alive)}
    rolling = rolling_back(hf, infos, dead)
    return [
        _standing(hf, info, info.id in dead, rolling.get(info.id), idle if info.updated_at < late else ())
        for info in infos
    ]


def _standing(hf: Holdfast, info: RunInfo, died: bool, rolling: str | None, idle: Collection[str]) -> Standing:
    if died:
        who = "a worker goes" if info.queue is not None else "whoever claims it goes"
        note = f"its process has died; {who} on with it"
        return Standing("died", f"{rolling}; {note}" if rolling else note, _command(info))
    if rolling:
        return Standing(_look(hf, info), rolling)
    reason = _reason(info)
    if info.status is Status.READY and info.queue in idle and not reason:
        return Standing("ready", f"no live worker of queue {info.queue} is known", _command(info))
    return Standing(_look(hf, info), without_place(reason or note_on(info), hf.place))


def _command(info: RunInfo) -> str:
    return worker_command(info.queue, info.workflow) if info.queue is not None else ""


def _look(hf: Holdfast, info: RunInfo) -> str:
    """The word of its badge."""
    if info.status is not Status.WAITING:
        return str(info.status)
    if info.seq > 0 and asked.by(hf, info):
        return "asks"
    return "delayed" if info.wake_at is not None else "waiting"


def _reason(info: RunInfo) -> str:
    """Why it does not go on, where that is worth a note."""
    noted = info.reason is not None and note_on(info) == in_commands(info.reason, info.id)
    return in_buttons(info.reason or "") if noted else ""


def in_buttons(text: str) -> str:
    """A reason of the engine's, with the buttons of the pages that do what its calls of Python would do."""
    for call, instead in _BUTTONS:
        text = call.sub(instead, text)
    return text


def goes_on_when_let(info: RunInfo) -> bool:
    """Whether a parked run may get further by being let go on: not, if it only waits for word of an uncertain step."""
    reason = info.reason or ""
    return info.status is Status.BLOCKED and ("run.resolve(" not in reason or "run.unblock()" in reason)
