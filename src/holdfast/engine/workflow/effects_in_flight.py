"""Effects in flight: a step that touches the world is not broken off because somebody cancels its task.

When one branch of an async workflow fails, the others are cancelled: by a task group, or when the workflow has ended. A
step with an effect that has begun would then be uncertain for no good reason. So its function is called in a task of
its own. A cancellation is held back until the function has ended and its result is journaled, but not for longer than
the step's timeout, or the ``effect_wait`` that the store was opened with. What has not ended by then is cancelled, and
uncertain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.engine.access.operations import Call
from holdfast.engine.log import WARNING, tell
from holdfast.engine.workflow.outcomes import Aborted

if TYPE_CHECKING:
    import asyncio

    from holdfast.engine.workflow.execution import Execution

PATIENCE = 5.0  # seconds for a function to end after it was cancelled


class Cancellation:
    """Whether the task that waits for an effect was cancelled."""

    def __init__(self) -> None:
        self.came = False

    def deliver(self) -> None:
        """Raise it, if it came."""
        if self.came:
            import asyncio

            raise asyncio.CancelledError


async def uninterrupted(execution: Execution, key: str, call: Call, cancellation: Cancellation) -> Any:
    """What the function gives. A cancellation that comes meanwhile is noted, to be delivered later."""
    import asyncio

    effect = asyncio.ensure_future(call.function(*call.args, **call.kwargs))
    loop = asyncio.get_running_loop()
    until: float | None = None
    while not effect.done():
        left = None if until is None else max(until - loop.time(), 0.0)
        try:
            await asyncio.wait({effect}, timeout=left)
        except asyncio.CancelledError:
            cancellation.came = True
            until = until or loop.time() + execution.in_flight[key]
        lost = cancellation.came and isinstance(execution.outcome, Aborted)  # nothing can be journaled any more
        if not effect.done() and until is not None and (lost or loop.time() >= until):
            await _cancelled(execution, key, effect)
            break
    if effect.done() and not effect.cancelled():
        return effect.result()
    raise asyncio.CancelledError


async def _cancelled(execution: Execution, key: str, effect: asyncio.Future[Any]) -> None:
    """Cancel a function that takes too long, and wait a little for its end."""
    import asyncio

    loop = asyncio.get_running_loop()
    until = loop.time() + PATIENCE
    effect.cancel()
    while not effect.done() and loop.time() < until:
        try:
            await asyncio.wait({effect}, timeout=until - loop.time())
        except asyncio.CancelledError:
            continue  # it is delivered when this is over
    if not effect.done():
        effect.add_done_callback(_look_at)
        text = "run {run}: step {step} was cancelled and does not end; it is left alone, and uncertain"
        tell(WARNING, "run.stubborn", text, run=execution.run.id, step=key)


def _look_at(effect: asyncio.Future[Any]) -> None:
    """Ask for the error, so that nobody is told that it was never looked at."""
    if not effect.cancelled():
        effect.exception()
