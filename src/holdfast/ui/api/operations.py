"""Everything that can be done through the API, in one table: from it come the routes and the OpenAPI document.

The pages act by `perform` too, so there is one way to do each thing, with the same checks.
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any, get_args, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import LeaseLost
from holdfast.ui import streams
from holdfast.ui.api import fleet_ops, read_ops, write_ops
from holdfast.ui.api.calls import TURNS, AnyCall, check_match
from holdfast.ui.api.problems import Refused
from holdfast.ui.security import Role


class Operation(Struct, frozen=True, kw_only=True):
    """One thing that can be done: ``call``, whose name, docstring and annotations say the rest.

    ``path`` has the names of its parts in braces; those are ids, but for ``seq``. One that is ``guarded`` wants to know
    by If-Match how the run was seen. One that ``streams`` gives events without end.
    """

    method: str
    path: str
    call: Callable[..., Any]
    query: type[Struct] | None
    body: type[Struct] | None
    gives: Any
    guarded: bool = False
    streams: bool = False
    status: int = 200

    @property
    def name(self) -> str:
        """By what it is found."""
        return self.call.__name__

    @property
    def summary(self) -> str:
        """What it does, in a line."""
        return (self.call.__doc__ or "").strip().partition("\n")[0]

    @property
    def role(self) -> Role:
        """Who may: whoever may look, if it changes nothing."""
        return Role.VIEW if self.method == "GET" else Role.ACT

    @property
    def params(self) -> list[str]:
        """The names of the parts of its path."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    @property
    def repeatable(self) -> bool:
        """Whether it takes an idempotency key."""
        return self.method == "POST"


def _operation(
    method: str, path: str, call: Callable[..., Any], *, guarded: bool = False, streams: bool = False, status: int = 200
) -> Operation:
    hints = get_type_hints(call)
    query, body = (None if kind is NoneType else kind for kind in get_args(hints["call"]))
    return Operation(
        method=method,
        path=path,
        call=call,
        query=query,
        body=body,
        gives=hints["return"],
        guarded=guarded,
        streams=streams,
        status=status,
    )


RUN = "/runs/{run}"
TABLE = (
    _operation("GET", "/runs", read_ops.list_runs),
    _operation("POST", "/runs", write_ops.start_run, status=201),
    _operation("GET", "/counts", read_ops.count_runs),
    _operation("GET", "/workflows", read_ops.list_workflows),
    _operation("POST", "/cancel", write_ops.cancel_runs),
    _operation("POST", "/retry", write_ops.retry_runs),
    _operation("POST", "/unblock", write_ops.unblock_runs),
    _operation("POST", "/prune", write_ops.prune_runs),
    _operation("GET", RUN, read_ops.show_run),
    _operation("GET", f"{RUN}/entries", read_ops.list_entries),
    _operation("GET", f"{RUN}/entries/{{seq}}", read_ops.show_entry),
    _operation("GET", f"{RUN}/state", read_ops.show_state),
    _operation("GET", f"{RUN}/diff", read_ops.compare_runs),
    _operation("GET", f"{RUN}/steps", read_ops.list_steps),
    _operation("GET", f"{RUN}/effects", read_ops.list_effects),
    _operation("GET", f"{RUN}/outputs", read_ops.list_outputs),
    _operation("GET", f"{RUN}/questions", read_ops.list_run_questions),
    _operation("GET", f"{RUN}/family", read_ops.show_family),
    _operation("GET", f"{RUN}/graph", read_ops.draw_run),
    _operation("GET", f"{RUN}/audit", read_ops.audit_run),
    _operation("GET", f"{RUN}/export", read_ops.export_run),
    _operation("GET", f"{RUN}/rollback", read_ops.plan_rollback),
    _operation("GET", f"{RUN}/events", streams.follow_run, streams=True),
    _operation("POST", f"{RUN}/questions/{{question}}/answer", write_ops.answer_question, guarded=True),
    _operation("POST", f"{RUN}/messages", write_ops.send_message),
    _operation("POST", f"{RUN}/forks", write_ops.fork_run, status=201),
    _operation("POST", f"{RUN}/rollback", write_ops.roll_back_run, guarded=True),
    _operation("POST", f"{RUN}/cancel", write_ops.cancel_run, guarded=True),
    _operation("POST", f"{RUN}/retry", write_ops.retry_run, guarded=True),
    _operation("POST", f"{RUN}/unblock", write_ops.unblock_run, guarded=True),
    _operation("POST", f"{RUN}/resolve", write_ops.resolve_step, guarded=True),
    _operation("POST", f"{RUN}/redact", write_ops.redact_run, guarded=True),
    _operation("DELETE", RUN, write_ops.delete_run, guarded=True),
    _operation("GET", "/questions", read_ops.list_questions),
    _operation("GET", "/queues", fleet_ops.list_queues),
    _operation("GET", "/queues/{queue}", fleet_ops.show_queue),
    _operation("PATCH", "/queues/{queue}", fleet_ops.change_queue),
    _operation("DELETE", "/queues/{queue}", fleet_ops.forget_queue),
    _operation("GET", "/schedules", fleet_ops.list_schedules),
    _operation("GET", "/schedules/{schedule}", fleet_ops.show_schedule),
    _operation("PUT", "/schedules/{schedule}", fleet_ops.set_schedule),
    _operation("POST", "/schedules/{schedule}/pause", fleet_ops.pause_schedule),
    _operation("POST", "/schedules/{schedule}/resume", fleet_ops.resume_schedule),
    _operation("POST", "/schedules/{schedule}/trigger", fleet_ops.trigger_schedule, status=201),
    _operation("DELETE", "/schedules/{schedule}", fleet_ops.delete_schedule),
    _operation("GET", "/workers", fleet_ops.list_workers),
    _operation("GET", "/events", streams.watch, streams=True),
)
OPERATIONS = {operation.name: operation for operation in TABLE}


def perform(name: str, call: AnyCall, *, if_match: str | None = None) -> Any:
    """Carry out an operation; what it gives. It asks the store, so call it in a thread.

    What changes a run wants to know in which state that was seen (``if_match``, its etag; ``*`` for any), and refuses
    if it is another one now.
    """
    operation = OPERATIONS[name]
    if not call.person.may(operation.role):
        raise Refused(403, "ViewOnly", "this token may look, and not act")
    query = call.query if call.query is not None or operation.query is None else operation.query()
    body = call.body if call.body is not None or operation.body is None else operation.body()
    call = replace(call, query=query, body=body)
    if not operation.guarded:
        return operation.call(call)
    with TURNS.turn(call.params["run"]):
        call = replace(call, seen=check_match(call.record(), if_match))
        try:
            return operation.call(call)
        except LeaseLost:  # somebody acts on the run from elsewhere, and was faster
            check_match(call.record(), if_match)
            raise
