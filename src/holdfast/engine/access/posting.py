"""Leaving things in the inbox of a run: messages and answers."""

from __future__ import annotations

from typing import Any

from holdfast.engine.access.engine import Engine
from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.operations import Op, Read
from holdfast.kernel.journal import Data
from holdfast.kernel.model import Post, RunRecord
from holdfast.stores.protocol import write_one


def was_posted(engine: Engine, record: RunRecord, unique: str) -> bool:
    """Whether the message was left with the run before, by a sender who died before it could say so."""
    key = f"message:{unique}"
    inbox = engine.store.inbox
    items = [*inbox(record.uid), *inbox(record.uid, taken=True)]  # in this order, since it may be taken meanwhile
    return any(item.key == key for item in items)


def post_message(
    engine: Engine, record: RunRecord, message: Any, topic: str | None, unique: str, by: str | None
) -> Op[bool]:
    """Leave a message in the inbox of a run; False if this one was left there before."""
    data: Data = {"topic": topic, "value": engine.codec.encode(message, "message"), "by": by}
    item = engine.journals.item(record, f"message:{unique}", "message", data, wakes=True)
    posted = bool((yield Read(write_one, engine.store, Post(record.uid, item))))
    engine.watch.tell(record.uid)
    engine.bell.ring()
    return posted


def post_answer(run: HeldRun, id: str, question: int, given: Data, by: str | None = None) -> Op[bool]:
    """Leave an answer in the inbox; False if there was one already."""
    data: Data = {"question": question, "id": id, "by": by, **given}
    record = yield Read(run.read_record)
    item = run.journals.item(record, f"answer:{id}", "answer", data, wakes=True)
    return bool((yield Read(write_one, run.store, Post(record.uid, item))))
