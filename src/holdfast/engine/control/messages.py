"""Messages to a run, from anybody: they wait in its inbox until its workflow receives them."""

from __future__ import annotations

from typing import Any

from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.operations import Op, Read
from holdfast.engine.access.posting import post_message
from holdfast.engine.argument_checks import check_texts
from holdfast.errors import RunEnded, UsageError
from holdfast.kernel.model import ENDED


def send(
    run: HeldRun, message: Any, *, topic: str | None = None, key: str | None = None, by: str | None = None
) -> Op[bool]:
    """Send a message to the run, for its workflow to ``receive``. A message with a ``key`` is sent once: False if it
    was sent before.
    """
    check_texts(topic=topic, key=key, by=by)
    record = yield Read(run.read_record)
    if record.queue is None:
        raise UsageError(f"run {run.id!r} is driven by hand, so nothing receives messages there")
    if record.status in ENDED:
        raise RunEnded(run.id, f"it is {record.status}, so nothing receives the message")
    unique = f"key/{run.journals.blind(record, key)}" if key is not None else run.store.clock.random_bytes(12).hex()
    return (yield from post_message(run.engine, record, message, topic, unique, by))
