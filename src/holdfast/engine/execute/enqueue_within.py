"""Enqueueing inside of a transaction of the user's own: the run is there if and only if that is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.engine.access.client import Client
from holdfast.engine.access.operations import Call, Op, Read
from holdfast.engine.execute.dedup import Find
from holdfast.errors import UsageError
from holdfast.stores.user_transaction import Asking, Guest, Joining

if TYPE_CHECKING:
    from holdfast.kernel.model import Filter, RunRecord

T = TypeVar("T")


def join(client: Client, connection: Any) -> Op[Guest]:
    """The store as a guest on the user's connection; raises `UsageError` if it cannot be one."""
    store = client.store
    if not isinstance(store, Joining):
        raise UsageError(
            f"{store.place}: within= needs a store with SQL, sqlite:///path or postgresql://user@host/name"
        )
    return (yield Read(store.join, connection, awaited=client.is_async))  # type: ignore[no-any-return]


def through(asking: Asking[T]) -> Op[T]:
    """Do on the user's connection what is asked of it, one call after the other."""
    try:
        ask = next(asking)
        while True:
            try:
                value = yield Call(ask, (), {})
            except BaseException as error:  # whoever asks decides
                ask = asking.throw(error)
            else:
                ask = asking.send(value)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def finder(guest: Guest) -> Find:
    """What looks for runs inside of the transaction, as `holdfast.engine.execute.dedup.find_alike` wants it."""

    def find(filter: Filter, before: str | None, limit: int) -> Op[list[RunRecord]]:
        return (yield from through(guest.find(filter, before=before, limit=limit)))

    return find
