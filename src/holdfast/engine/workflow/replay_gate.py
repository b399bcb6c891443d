"""The gate of a resumed run: nothing new is executed before the code has asked for everything that was recorded.

Keys tell which recorded call is which, and keys may shift: a library creates one more task, another Python creates one
less. A call whose key has shifted is not in the journal, and would be executed a second time. So a new call is held
here until every recorded call has been asked for, or every other branch is idle. If a recorded call is left then, the
code does something else than was recorded, and the run is blocked before anything is executed.

This cannot deadlock deterministic code: a recorded call never depends on a result that is not recorded, so the branch
that makes it never waits for one that is held. A recorded call is **moot** if nobody can ask for it: its branch lost a
race. It is **loose** if the code need not ask for it: its branch was cancelled in this execution, or it came after the
failure that a retry repeats. A loose call blocks nothing but a new call of the same step with the same arguments.

A fresh run has no gate, and the gate of a resumed one is taken away as soon as it has nothing left to watch.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.engine.workflow.outcomes import Parked, Unwind
from holdfast.engine.workflow.replay import DIFFERS, UNCHANGED, caller, is_moot, not_come_to
from holdfast.engine.workflow.scope import Scope, current_scope
from holdfast.kernel.fold import Fold, name_in

if TYPE_CHECKING:
    from holdfast.engine.access.operations import Op
    from holdfast.engine.workflow.execution import Execution

# Seconds to wait, without any progress, for branches that wait for something outside of Holdfast. What was recorded
# took no longer than the run has taken so far, so twice that is enough; but people may have taken days of it.
LEAST, MOST = 10.0, 60.0
TICK = 0.05  # seconds after which a held thread looks again
SHOWN = 5  # keys in a message

IDLE, BUSY, OUTSIDE = "idle", "busy", "outside"
_NUMBERED = re.compile(r"(^|/)\d+/")  # the scope of a task, before tasks had names


class Recorded(Struct, frozen=True):
    """A recorded call: the name of what was called, and a digest of the arguments if there is one."""

    name: str
    digest: str | None


class Attempt(Struct, frozen=True, eq=False):
    """A new call that the code wants to make, and the branch that waits for it."""

    key: str
    name: str
    digest: str | None
    here: Scope
    place: str
    thread: int


class Gate:
    """Holds the new calls of one execution."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.held: list[Attempt] = []
        self._lock = threading.RLock()  # not the condition: an interrupt in its __enter__ leaves it locked
        self._changed = threading.Condition(self._lock)
        self._left: dict[str, Recorded] | None = None  # what nobody asked for yet; None until somebody wants to know
        self._looks: Attempt | None = None  # the held thread that sees what the others do
        self._waits_until = 0.0
        self._deferred: list[Callable[[], Op[None]]] = []
        log = execution.lease.fold.log
        self.took = (log[-1][2] - log[0][2]) / 1_000_000  # seconds, from the first entry to the last

    def take(self, key: str) -> None:
        """A call was asked for. May be called by any thread, after it was added to `Execution.consumed`."""
        if self._left is None:
            return
        with self._lock:
            if self._left.pop(key, None) is None:
                return
            self._waits_until = 0.0
            if not self._left:
                self._let_go()

    def admits(self, attempt: Attempt) -> bool:
        """Whether a new call may be made now."""
        with self._lock:
            if self._is_needed():
                return False
            if not self._left:
                self._let_go()
            return not self._is_known(attempt)

    def check_now(self, attempt: Attempt) -> None:
        """Block the run if a new call, which cannot wait, may be one that was recorded under another key."""
        with self._lock:
            self._is_needed()
            if self._is_known(attempt):
                self._block([attempt])
                raise Unwind

    def defers(self, write: Callable[[], Op[None]]) -> bool:
        """Keep an entry back that nobody waits for, if nothing new may be written yet."""
        with self._lock:
            if not self._is_needed() and not self._deferred:
                return False
            self._deferred.append(write)
            return True

    def take_deferred(self) -> list[Callable[[], Op[None]]]:
        """What was kept back, to be written now."""
        with self._lock:
            deferred, self._deferred = self._deferred, []
            if self._left is not None and not self._left:
                self._let_go()
            return deferred

    def hold_thread(self, attempt: Attempt) -> None:
        """Hold a new call that a thread makes."""
        with self._lock:
            self.held.append(attempt)
            try:
                while not self.admits(attempt):
                    if self.execution.outcome is not None or attempt.here.is_over:
                        raise Unwind
                    attempt.here.give_slots_back()
                    self._looks = self._looks or attempt
                    if self._looks is attempt:  # one looks for all: there may be a thousand
                        self.execution.look_at_held(self)
                    self._changed.wait(TICK)
            finally:
                self._looks = None if self._looks is attempt else self._looks
                self.held.remove(attempt)

    def decide(self, found: str, latest: float = 0.0) -> None:
        """Let held calls go that may be made, or block the run if the other branches will not come any further.

        ``found`` says what they do. While they wait for something outside, they have time to come back: at least
        until ``latest``, the moment of the last timer that they may have waited for.
        """
        with self._lock:
            if any(self.admits(attempt) for attempt in self.held):
                self._let_go()
                return
            if found == BUSY:
                self._waits_until = 0.0
                return
            now = time.monotonic()
            if found == OUTSIDE:
                self._waits_until = self._waits_until or max(now + min(max(LEAST, 2 * self.took), MOST), latest + 1)
                if now < self._waits_until:
                    return
            if self.held:
                self._block(self.held)

    def wake(self) -> None:
        """Let held threads look again, since the execution has stopped."""
        with self._lock:
            self._changed.notify_all()

    def _let_go(self) -> None:
        if not self._left and not self._deferred:
            self.execution.gate = None
        self._changed.notify_all()
        self.execution.let_held_go()

    def is_needed(self) -> bool:
        """Whether a recorded call is left that the code must ask for."""
        with self._lock:
            return self._is_needed()

    def _is_needed(self) -> bool:
        """The same, under the lock. Calls that are moot are dropped."""
        if self._left is None:
            self._left = _left_of(self.execution)
            for key in self._left.keys() & self.execution.consumed:  # by other threads, meanwhile
                del self._left[key]
        fold, lost = self.execution.lease.fold, tuple(self.execution.lost)
        loose = _Loose(self.execution)
        moot: list[str] = []
        needed = False
        for key in self._left:
            if key.startswith(lost) or is_moot(fold, key):
                moot.append(key)
            elif key not in loose:
                needed = True
                break
        for key in moot:
            del self._left[key]
        return needed

    def _is_known(self, attempt: Attempt) -> bool:
        """Whether a new call may be one of those that are left, under another key."""
        if not self._left or attempt.key in self.execution.lease.fold.loose:  # that one is to be repeated
            return False
        loose = _Loose(self.execution)
        return any(
            one.name == attempt.name and _same(one.digest, attempt.digest, surely=key in loose)
            for key, one in self._left.items()
        )

    def _block(self, attempts: list[Attempt]) -> None:
        assert self._left is not None
        loose = _Loose(self.execution)
        left = [key for key in self._left if key not in loose] or list(self._left)
        self.execution.stop(Parked(_reason(left, attempts)))
        self._changed.notify_all()


class _Loose:
    """The recorded calls that the code need not ask for."""

    def __init__(self, execution: Execution) -> None:
        self._keys, self._paths = execution.lease.fold.loose, tuple(execution.gone)

    def __contains__(self, key: str) -> bool:
        return key in self._keys or key.startswith(self._paths)


def _same(one: str | None, other: str | None, *, surely: bool) -> bool:
    """Whether two calls may have the same arguments; ``surely``: whether they have some, and these are the same."""
    return bool(one) and one == other if surely else one is None or other is None or one == other


def _left_of(execution: Execution) -> dict[str, Recorded]:
    """The recorded calls that the code has not asked for yet."""
    fold = execution.lease.fold
    return {key: _recorded(fold, key) for key in not_come_to(execution) if key not in fold.accepted}


def _recorded(fold: Fold, key: str) -> Recorded:
    name = name_in(key) if "#" in key else key
    found = fold.steps.get(key) or fold.failures.get(key)
    if found is not None:
        return Recorded(found.tool or name, found.digest)
    if (begun := fold.intents.get(key)) is not None:
        declared = fold.ledger[begun].data
        return Recorded(declared.get("tool") or name, declared.get("digest"))
    return Recorded(name, None)


def _reason(left: list[str], attempts: list[Attempt]) -> str:
    recorded, attempted = _listed(left), _listed([attempt.key for attempt in attempts])
    many = len(left) > 1
    text = (
        f"{DIFFERS}: {recorded} {'were' if many else 'was'} recorded, and no branch asks "
        f"for {'them' if many else 'it'}; attempted instead: {attempted}, at {attempts[0].place}. "
    )
    if any(_NUMBERED.search(key) for key in left):
        return text + (
            "The journal has the keys of an earlier Holdfast, which numbered tasks by their creation, so its calls in "
            "tasks cannot be found: fork the run before them, or roll it back; run.unblock(accept=True) executes them "
            "again"
        )
    return text + (
        f"{UNCHANGED} put back the tasks and calls that it had, and run.unblock(), or fork the run before them; "
        "run.unblock(accept=True) continues with what is attempted"
    )


def _listed(keys: list[str]) -> str:
    more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
    return ", ".join(map(repr, keys[:SHOWN])) + more


def attempt(scope: Scope, key: str, name: str, digest: str | None) -> Attempt:
    """A new call, made at the line of the user's code that is being executed."""
    here = current_scope.get()
    return Attempt(key, name, digest, here if isinstance(here, Scope) else scope, caller(), threading.get_ident())
