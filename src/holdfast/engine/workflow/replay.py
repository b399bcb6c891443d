"""Does the code still do what was recorded? If not, the run is parked, with what was recorded and what is attempted."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.kernel.fold import Failed, Fold, Step

if TYPE_CHECKING:
    from holdfast.engine.workflow.execution import Execution

Arguments = tuple[list[Any], dict[str, Any]]  # as they are stored
SHOWN = 200  # characters of arguments in a message
DIFFERS = "the code no longer does what was recorded"
UNCHANGED = "If the code was not changed, it depends on time or chance: put that into a step. Else"


def check_same(
    execution: Execution, key: str, name: str, found: Step | Failed, digest: str | None, call: Arguments | None = None
) -> None:
    if found.digest != digest and found.digest is not None and digest is not None:
        recorded = _shown(execution, _recorded(execution, key, found))
        if key in execution.consumed:  # in this same drive, so the code did not change
            execution.park(
                f"the key {key!r} was used before in this run, with other arguments{recorded} than "
                f"now{_shown(execution, call)}, at {caller()}. Give each call a key of its own; then run.unblock(), or "
                "fork the run before it"
            )
        other = (
            "run.unblock(accept=True) continues with what is attempted"
            if name in ("ask", "receive")
            else "or let the step take any arguments with @step(check_args=False)"
        )
        execution.park(
            f"{DIFFERS}: {key!r} was called with other arguments{recorded} at "
            f"entry {found.seq} than now{_shown(execution, call)}, at {caller()}. {UNCHANGED} put back what it did, "
            f"and run.unblock(), or fork the run before it; {other}"
        )
    if found.tool is not None and found.tool != name:
        execution.park(
            f"{DIFFERS}: {key!r} was recorded as {found.tool} at entry "
            f"{found.seq}, and is attempted as {name} now, at {caller()}. Use another key; then run.unblock()"
        )


def _recorded(execution: Execution, key: str, found: Step | Failed) -> Arguments | None:
    """The arguments of a call that was begun, as far as the journal has them: of most there is only a digest."""
    fold = execution.lease.fold
    begun = fold.ledger.get(fold.intents.get(key, -1)) or next(
        (mark for mark in fold.ledger.values() if mark.settled == found.seq and "args" in mark.data), None
    )
    if begun is not None:
        return begun.data["args"], begun.data["kwargs"]
    if not found.digest:
        return [], {}
    if not found.digest.startswith("["):  # short arguments are their own digest
        return None
    trees, named = msgspec.json.decode(found.digest, type=Arguments)
    return trees, named


def _shown(execution: Execution, call: Arguments | None) -> str:
    """Arguments for people, shortened. Of an encrypted run nothing is shown: a reason stands in the clear."""
    if call is None or execution.lease.record.key_id is not None:
        return ""
    trees, named = call
    parts = [repr(execution.codec.raw(tree)) for tree in trees]
    parts += [f"{word}={execution.codec.raw(tree)!r}" for word, tree in named.items()]
    text = execution.codec.scrub(", ".join(parts))
    return f" ({text if len(text) <= SHOWN else text[: SHOWN - 1] + '…'})"


def check_place(execution: Execution, path: str, n: int, key: str) -> None:
    """A call must not come where the journal has another one."""
    if execution.places is None:
        execution.places = {}
        for seq, _, _, data in execution.lease.fold.log:
            if execution.lease.fold.accepted_at < seq <= execution.began_at and "n" in data:
                recorded = str(data["key"])
                execution.places[recorded[: recorded.rfind("/") + 1], data["n"]] = recorded
    recorded_key = execution.places.get((path, n))
    if recorded_key is not None and recorded_key != key and recorded_key not in execution.lease.fold.loose:
        where = f"branch {path.rstrip('/')!r}" if path else "the workflow"
        execution.park(
            f"{DIFFERS}: call {n} of {where} was recorded as "
            f"{recorded_key!r}, and is attempted as {key!r} now, at {caller()}. {UNCHANGED} put back what it did, or "
            'guard the change with holdfast.patched("name"); then run.unblock(), or fork the run before it'
        )


def is_replaying(execution: Execution) -> bool:
    """Whether the journal has something that the workflow did not come to yet."""
    fold = execution.lease.fold
    return any(not is_moot(fold, key) for key in not_come_to(execution) if key not in fold.loose)


def leftover(execution: Execution) -> str | None:
    """A call of the main branch that the journal has and the workflow did not make before it returned."""
    loose = execution.lease.fold.loose
    return next((key for key in not_come_to(execution) if "/" not in key and "#" in key and key not in loose), None)


def not_come_to(execution: Execution) -> Iterator[str]:
    """The calls that the journal has, done or begun, and the workflow did not make in this drive."""
    fold = execution.lease.fold
    recorded: tuple[dict[str, Any], ...] = (
        fold.steps,
        fold.failures,
        fold.timers,
        fold.intents,
        fold.attempts,
        fold.children,
    )
    for known in recorded:
        for key, found in known.copy().items():  # others write meanwhile, and only a copy is made in one go
            if isinstance(found, Step) and found.seq in fold.ledger:
                continue  # a person marked it, so no code has to ask for it
            if key not in execution.consumed and key not in fold.lost and not key.startswith("patched:"):
                yield key
    for asked in fold.questions.copy().values():
        if asked.key is not None and asked.key not in execution.consumed and asked.key not in fold.lost:
            yield asked.key


def is_moot(fold: Fold, key: str) -> bool:
    """Whether a call was made in a branch that lost its race, and so is not made again."""
    if key in fold.lost:
        return True
    parts = key.split("/")
    for end in range(1, len(parts)):
        for begin in range(end):  # the path of a race stands in front of its own key, which holds the path too
            race, _, number = "/".join(parts[begin:end]).rpartition(".")
            won = fold.steps.get(race)
            if (
                race in fold.lost
                or race in fold.failures
                or (won is not None and race.rpartition("/")[2].startswith("first#") and number != str(won.result + 1))
            ):
                return True
    return False


def caller() -> str:
    """The line of the user's code that is being run."""
    own = __name__.partition(".")[0]
    for frame, line in traceback.walk_stack(sys._getframe(1)):  # without a frame it would leave out some
        if frame.f_globals.get("__name__", "").partition(".")[0] not in (own, "asyncio", "threading", "concurrent"):
            return f"{frame.f_code.co_filename}:{line}"
    return "an unknown place"
