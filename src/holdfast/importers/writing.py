"""A run that was found is written through the same calls that a loop of one's own uses.

Every part of it is one entry, always in the same order, after an entry that tells where it comes from. So the length
of the journal says how far an import has come: one that was broken off is finished by the next, and one that is
finished is left alone. What stands there is compared before anything is added to it.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from holdfast.engine.app import Holdfast
from holdfast.engine.run.handle import Run
from holdfast.errors import Redacted, RunNotFound, TypeMissing, ValueRefused
from holdfast.importers.origins import KEY, TAG, origin
from holdfast.importers.records import Asked, DoneElsewhere, Found, MadeElsewhere, Origin, Part, Saved
from holdfast.kernel.model import Kind


class Conflict(Exception):
    """Why a run cannot be taken in."""


class Standing(NamedTuple):
    """What is in the store of a run that was found."""

    state: Literal["missing", "begun", "there"]
    note: str | None = None


class Plan(NamedTuple):
    """The entries that an import makes after the run's creation, under the id that the run has here."""

    id: str
    system: str
    found: Found
    origin: Origin

    @property
    def parts(self) -> tuple[Origin | Part, ...]:
        return (self.origin, *self.found.parts)


def plan(system: str, found: Found, prefix: str) -> Plan:
    """What is to be written; raises `Conflict` if a key of it is not its own."""
    keys = [part.key for part in found.parts if isinstance(part, MadeElsewhere | DoneElsewhere)]
    if KEY in keys:
        raise Conflict(f"a tool call of it has the id {KEY!r}, which Holdfast uses itself")
    came = Origin(
        system=system,
        id=found.id,
        source=found.source,
        digest=found.digest,
        entries=len(found.parts) + 2,
        kept=found.kept,
    )
    return Plan(prefix + found.id, system, found, came)


def standing(hf: Holdfast, plan: Plan) -> Standing:
    """What there is of the run already; raises `Conflict` if it is another one's, or was changed half way."""
    try:
        run = hf.get(plan.id)
    except RunNotFound:
        return Standing("missing")
    info = run.info()
    if info.tags.get(TAG) != plan.system:
        raise Conflict(f"there is a run {plan.id!r} here that does not come from {plan.system}; give a prefix=")
    if info.seq == 0:
        return Standing("begun")
    came = origin(run)
    if came is None and "erased" not in run.entry(1).contents:
        raise _changed(plan)
    if came is None:
        return Standing("there")
    same, whole = came.digest == plan.origin.digest, info.seq + 1 >= came.entries
    if same and whole and not _is_made(run, came.entries - 1, plan.parts[-1]):  # the last part is not ours
        raise _changed(plan)
    if whole:
        return Standing("there", None if same else "what it was imported from has changed since; that was not imported")
    if not same:
        raise Conflict(
            f"its import was broken off, and what it is imported from has changed since; delete run {plan.id!r}, and "
            "import it again"
        )
    _compare(run, plan, info.seq)
    return Standing("begun")


def write(hf: Holdfast, plan: Plan) -> None:
    """Make the run, or go on where an import was broken off. What cannot be stored leaves no part of a run behind."""
    found = plan.found
    run = hf.run(
        plan.id,
        workflow=found.workflow,
        definition=found.definition,
        tags={**found.tags, TAG: plan.system},
    )
    with run.claim():
        made = run.info().seq
        _compare(run, plan, made)
        try:
            for part in plan.parts[made:]:
                _make(run, part)
            return
        except ValueRefused as refused:
            problem = str(refused)
    run.delete()
    raise Conflict(problem)


def _make(run: Run, part: Origin | Part) -> None:
    match part:
        case Origin():
            run.once(KEY, imported, msgspec.to_builtins(part), check_args=False)
        case Saved():
            run.save(part.state, next=part.next, queue=part.queue, variables=part.variables, node=part.node)
        case MadeElsewhere():
            run.mark(part.key, part.tool, part.target, part.reversible)
        case DoneElsewhere():
            run.once(part.key, done_elsewhere, check_args=False)
        case Asked():
            run.pause(part.prompt, part.fields, part.output_key)


def imported(origin: dict[str, Any]) -> dict[str, Any]:
    """The step that tells where a run comes from."""
    return origin


def done_elsewhere() -> None:
    """The step that stands for a call of which nothing but its end is known."""


def _compare(run: Run, plan: Plan, made: int) -> None:
    """Raise `Conflict` unless the entries that are there are the first ones of the plan."""
    for seq, part in enumerate(plan.parts[:made], 1):
        if not _is_made(run, seq, part):
            raise _changed(plan)


def _is_made(run: Run, seq: int, part: Origin | Part) -> bool:
    entry = run.entry(seq)
    if "erased" in entry.contents:
        return True  # nobody can tell any longer
    match part:
        case Saved():
            return entry.kind == Kind.SAVED and _is_saved_at(run, seq, part)
        case Origin():
            return entry.kind == Kind.DONE and entry.contents.get("key") == KEY
        case MadeElsewhere():
            return entry.kind == Kind.MARKED and entry.contents.get("key") == part.key
        case DoneElsewhere():
            return entry.kind == Kind.DONE and entry.contents.get("key") == part.key
        case Asked():
            return entry.kind == Kind.ASKED


def _is_saved_at(run: Run, seq: int, part: Saved) -> bool:
    try:
        at = run.checkpoint(seq)
        return part == Saved(state=at.state, node=at.node, next=at.next, queue=at.queue, variables=at.variables)
    except Redacted:  # a save that this one builds on was erased
        return True
    except TypeMissing:  # then it is somebody else's
        return False


def _changed(plan: Plan) -> Conflict:
    return Conflict(
        f"its import was broken off, and somebody has written to run {plan.id!r} since; delete that run, and import "
        "it again"
    )
