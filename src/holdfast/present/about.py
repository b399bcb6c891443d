"""What an entry of a journal is about, in a few words: the step, node, question or run that it speaks of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.kernel.model import Kind
from holdfast.present.words import clock, one_line, short
from holdfast.views import EntryContents, EntryInfo, moment

Contents = dict[str, Any]


def about(entry: EntryContents) -> str | None:
    """What the entry is about; None if its kind says it all, or if what it said was erased or cannot be read."""
    tell = _ABOUT.get(entry.kind, _nothing)
    return one_line(tell(entry.contents)) or None


def is_abandoned(info: EntryInfo) -> bool:
    """Whether a rollback left the entry behind. What a rollback itself did is there to stay."""
    return not info.live and info.kind not in (Kind.ROLLBACK_BEGUN, Kind.UNDONE)


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
