"""Runs that had ended and go on again, noted for whoever tells others of the ends of runs (`holdfast.ui.outbox`).

Such a run may end again before anybody has looked, and then nothing but this note leads to it.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from holdfast.engine.access.operations import Op, Read
from holdfast.kernel.model import ENDED, RunRecord
from holdfast.stores.protocol import Store, find_document

HOOK = "hook"  # documents of those who want to be told; without them nothing is noted
KIND = "revived"


class Revival(Struct, frozen=True):
    """That a run is about to go on, which it has done when its epoch is a higher one."""

    epoch: int
    at: int


def note_revival(store: Store, record: RunRecord) -> Op[None]:
    """Note that the run goes on, if it has ended and somebody wants to know. Before it does."""
    if record.status in ENDED and (yield Read(store.documents, HOOK)):
        yield Read(lambda: _note(store, record.uid, Revival(record.epoch, store.clock.now())))


def _note(store: Store, uid: str, revival: Revival) -> None:
    noted = False
    while not noted:
        known = find_document(store, KIND, uid)
        noted = store.put_document(KIND, uid, msgspec.json.encode(revival), known.version if known else None)
