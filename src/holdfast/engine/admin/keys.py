"""Rotating the master key."""

from __future__ import annotations

from holdfast.codec import WrappedKey
from holdfast.engine.access.client import Client
from holdfast.engine.access.operations import Op, Read
from holdfast.engine.worker.schedules import rotate_keys as rotate_schedules
from holdfast.errors import UsageError
from holdfast.kernel.model import Filter, Rewrap
from holdfast.stores.protocol import write_one


def rotate_keys(client: Client) -> Op[int]:
    """Wrap the data keys of all runs and schedules with the current master key; how many were. Entries stay."""
    keyring = client.journals.keyring
    if keyring is None:
        raise UsageError("open the store with keys= to rotate them")
    rotated, before = 0, None
    everything = Filter(hidden=None)
    while page := (yield Read(client.store.find, everything, before=before, limit=500)):
        before = page[-1].uid
        for record in page:
            if record.key_id in (None, keyring.current) or record.key_blob is None:
                continue
            wrapped = WrappedKey(record.key_id, record.key_blob)
            new = keyring.rewrap(record.uid, wrapped, client.store.clock, of=f"run {record.id!r}")
            rewrap = Rewrap(record.uid, record.key_blob, new.key_id, new.blob)
            rotated += yield Read(write_one, client.store, rewrap)
    return rotated + int((yield Read(rotate_schedules, client.engine)))
