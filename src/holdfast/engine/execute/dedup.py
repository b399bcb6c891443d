"""De-duplication across runs: a second start with the same key gives the run that there is.

The runs of a key are numbered. A start looks at the newest one: if it counts, it is the run; if not, the next number is
made. Two that start at the same time come to the same number, and so to the same run: the store makes an id once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from hashlib import blake2b

from holdfast.engine.access.operations import Op, Read
from holdfast.kernel.model import Filter, RunRecord, Status
from holdfast.stores.protocol import Store

_READABLE = re.compile(r"[A-Za-z0-9_.:/@ -]{1,200}")
_LOOK_AT = 20  # runs whose ids begin alike, at a time


def prefix_of(name: str, key: str) -> str:
    """How the ids of the runs of a key begin. A key that is short and plain can be read in it."""
    if not _READABLE.fullmatch(key):
        key = "~" + blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{name[:250]}({key})#"


Find = Callable[[Filter, str | None, int], Op[list[RunRecord]]]


def find_alike(
    store: Store,
    name: str,
    key: str,
    *,
    ttl: float | None = None,
    but: Collection[Status] = (),
    find: Find | None = None,
) -> Op[tuple[str, RunRecord | None]]:
    """The id for a start of this workflow or flow with this key, and the run of it that counts, if there is one.

    A run counts unless it is older than ``ttl`` seconds, or has one of the statuses in ``but``. ``find`` looks for
    it in another way than the store's own.
    """
    prefix = prefix_of(name, key)
    numbered: list[tuple[int, RunRecord]] = []
    page, before = None, None
    while not numbered and page != []:  # the ids of their children begin alike
        page = yield from (find or _finder(store))(Filter(prefix=prefix), before, _LOOK_AT)
        numbered = [(int(tail), one) for one in page if (tail := one.id.removeprefix(prefix)).isdecimal()]
        before = page[-1].uid if page else None
    if not numbered:
        return f"{prefix}1", None
    number, newest = max(numbered, key=lambda one: one[0])
    young = ttl is None or store.clock.now() - newest.created_at < ttl * 1_000_000
    if young and newest.status not in but:
        return newest.id, newest
    return f"{prefix}{number + 1}", None


def _finder(store: Store) -> Find:
    def find(filter: Filter, before: str | None, limit: int) -> Op[list[RunRecord]]:
        return (yield Read(store.find, filter, before=before, limit=limit))  # type: ignore[no-any-return]

    return find
