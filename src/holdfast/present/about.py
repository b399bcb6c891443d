"""What an entry of a journal is about, in a few words: the step, node, question or run that it speaks of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from holdfast.engine.run.handle import Run
from holdfast.engine.run.outputs import stretches
from holdfast.errors import KeyMissing, RunDamaged
from holdfast.kernel.model import Kind
from holdfast.present.words import clock, joined, one_line, short
from holdfast.views import EntryContents, EntryInfo, moment

Contents = dict[str, Any]


def about(entry: EntryContents) -> str | None:
    """What the entry is about; None if its kind says it all, or if what it said was erased or cannot be read."""
    tell = _ABOUT.get(entry.kind, _nothing)
    return one_line(tell(entry.contents)) or None


class JournalLine(Struct, frozen=True):
    """An entry in a list, with what it is about. ``abandoned``, if a rollback left it behind."""

    info: EntryInfo
    about: str | None
    abandoned: bool
    entry: EntryContents | None  # None if it cannot be read

    @property
    def told(self) -> str:
        """What the entry is about, for people."""
        return self.about or ("" if self.entry is not None else "cannot be read")


def journal_lines(run: Run, infos: Sequence[EntryInfo]) -> list[JournalLine]:
    """The entries, each with what it is about. Of what is encrypted or damaged the rest of the line is there, too."""
    found: dict[int, EntryContents] = {}
    for lo, hi in stretches([info.seq for info in infos]):
        try:
            found |= {one.seq: one for one in run.entries(after=str(lo - 1) if lo else None, limit=hi - lo + 1)}
        except KeyMissing:
            continue
        except RunDamaged:
            for seq in range(lo, hi + 1):
                with suppress(RunDamaged):
                    found[seq] = run.entry(seq)
    lines: list[JournalLine] = []
    for info in infos:
        entry = found.get(info.seq)
        # What a rollback itself did is there to stay.
        abandoned = not info.live and info.kind not in (Kind.ROLLBACK_BEGUN, Kind.UNDONE)
        lines.append(JournalLine(info, about(entry) if entry is not None else None, abandoned, entry))
    return lines


def newest(entry: EntryContents) -> str:
    """What a run did last, from its newest entry: what the entry is about, or the nodes that come next."""
    queue = entry.contents.get("queue") if entry.kind == Kind.SAVED else None
    if queue:
        return f"{', '.join(map(str, queue))} next" if isinstance(queue, list) else ""
    return joined(entry.kind, about(entry), by=": ")


def _nothing(said: Contents) -> str:
    return ""


def _field(name: str, words: str = "{}") -> Callable[[Contents], str]:
    return lambda said: words.format(said[name]) if said.get(name) is not None else ""


def _step(said: Contents) -> str:
    key, target = str(said.get("key", "")), said.get("target")
    return f"{key}: {target}" if target else key


def _raised(said: Contents) -> str:
    return ": ".join(str(said[name]) for name in ("key", "error") if said.get(name))


def _resolved(said: Contents) -> str:
    if "done" not in said:
        return _step(said)
    return f"{said.get('key', '')}: {'done' if said.get('done') else 'not done'}{_by(said)}"


def _saved(said: Contents) -> str:
    parts = [str(said["node"])] if said.get("node") else []
    following = said.get("next") if said.get("next") is not None else said.get("queue")
    if isinstance(following, list) and all(isinstance(name, str) for name in following):
        following = ", ".join(following)  # the nodes that come next
    if following:
        parts.append(f"next {short(following)}")
    return ", ".join(parts)


def _answered(said: Contents) -> str:
    if "question" not in said:
        return ""
    which = f"entry {said['question']}"
    return f"{which}: no answer in time" if "failure" in said else f"{which}{_by(said)}"


def _timer(said: Contents) -> str:
    return f"{said.get('key', '')} until {clock(moment(said['until']))}" if "until" in said else ""


def _child(said: Contents) -> str:
    return f"{said.get('key', '')}: run {said['id']}" if "id" in said else ""


def _emitted(said: Contents) -> str:
    value = short(said["value"]) if "value" in said else ""
    return value if said.get("stream") in (None, "notes") else f"{said['stream']}: {value}"


def _undone(said: Contents) -> str:
    if "effect" not in said:
        return ""
    how = "passed over by force" if "uncertain" in said else f"failed: {said.get('error')}"
    passed = ", passed over by force" if "passed" in said and "uncertain" not in said else ""
    return f"entry {said['effect']}" + (f": {how}{passed}" if not said.get("ok") else "")


def _redacted(said: Contents) -> str:
    return f"entries {', '.join(map(str, said['seqs']))}{_by(said)}" if "seqs" in said else ""


def _ended(said: Contents) -> str:
    return f"{said.get('error') or ''}{_by(said)}".lstrip()


def _by(said: Contents) -> str:
    return f" by {said['by']}" if said.get("by") else ""


_ABOUT: dict[str, Callable[[Contents], str]] = {
    Kind.FORKED: lambda said: f"run {said['from']} at entry {said['at']}{_by(said)}" if "from" in said else "",
    Kind.SAVED: _saved,
    Kind.STARTED: _step,
    Kind.INTENDED: _step,
    Kind.DONE: _step,
    Kind.MARKED: _step,
    Kind.RAISED: _raised,
    Kind.RESOLVED: _resolved,
    Kind.ASKED: _field("prompt"),
    Kind.ANSWERED: _answered,
    Kind.DECLINED: lambda said: _by(said).lstrip(),
    Kind.LATE: lambda said: _by(said).lstrip(),
    Kind.CLOSED: _field("question", "entry {}"),
    Kind.TIMER: _timer,
    Kind.RECEIVED: lambda said: f"{said.get('topic') or ''}{_by(said)}".lstrip(),
    Kind.CHILD: _child,
    Kind.EMITTED: _emitted,
    Kind.RETRIED: lambda said: ", ".join(map(str, said.get("keys", ()))) + _by(said),
    Kind.ROLLBACK_BEGUN: lambda said: f"to entry {said['to']}{_by(said)}" if "to" in said else "",
    Kind.UNDONE: _undone,
    Kind.REWOUND: _field("to", "to entry {}"),
    Kind.REDACTED: _redacted,
    Kind.UNBLOCKED: lambda said: _by(said).lstrip(),
    Kind.FAILED: _ended,
    Kind.CANCELLED: _ended,
}
