"""The outcome of a run that has ended: its result, or its error with where, why and by whom."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from holdfast.engine.run.handle import Run
from holdfast.kernel.model import ENDED, Kind, Status
from holdfast.views import RunInfo

_ENDS = (Kind.COMPLETED, Kind.FAILED, Kind.CANCELLED)


class Outcome(Struct, frozen=True, kw_only=True):
    """How a run ended; all None if it has not. ``failed_at`` is the call of the node that a graph failed at."""

    result: Any = None
    error: str | None = None
    failed_at: str | None = None
    trace: str | None = None
    by: str | None = None


def outcome_of(run: Run, info: RunInfo) -> Outcome:
    """How the run ended. It is the same whatever was noted or erased after its end."""
    if info.status not in ENDED:
        return Outcome()
    held = run.held
    record, journals = held.read_record(), held.journals
    uid, last = journals.entry(record, record.seq)
    if last.kind in _ENDS:
        said = journals.data(record.id, uid, last)
    else:
        ended = held.refold(record).ended
        said = ended[1] if ended is not None else {}
    if info.status is Status.COMPLETED:
        return Outcome(result=held.codec.raw(journals.result(record, said)))
    trace = (said.get("failure") or {}).get("traceback")
    return Outcome(error=said.get("error"), failed_at=said.get("node"), trace=trace, by=said.get("by"))
