"""Idempotency keys: a request that is repeated with its key is carried out once, also if the server died in between.

That a request was begun, and what it gave, stands in a document of the store, under a digest of who asked for what with
which key. It is kept for a day, encrypted if the store is. A request that failed has done nothing, and its key is free
again. One whose server died half-way is carried out again when its time is over; what it makes has its name from the
key, so that this is not made twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.codec import WrappedKey
from holdfast.engine.app import Holdfast
from holdfast.errors import StoreDamaged
from holdfast.kernel.clock import new_uid
from holdfast.kernel.model import Document
from holdfast.stores.protocol import find_document
from holdfast.ui.api.problems import Refused

KIND = "http request"
KEPT = 24 * 3600 * 1_000_000  # microseconds that an answer is kept
GIVEN_UP = 60 * 1_000_000  # microseconds after which a request that has not ended counts as left by a dead server
SWEEP = 600 * 1_000_000  # microseconds between two looks for what is too old
_PLACE = "http"


class Given(Struct, frozen=True):
    """What a request gave."""

    status: int
    body: bytes
    etag: str | None = None
    kind: str = "application/json"


class _Kept(Struct, frozen=True, kw_only=True):
    """The document of a request."""

    uid: str
    at: int
    sealed: bytes
    done: bool = False
    key_id: str | None = None
    key_blob: bytes | None = None


class Once:
    """Carries out requests with keys, for one server."""

    def __init__(self, holdfast: Holdfast) -> None:
        self._hf = holdfast
        self._store = holdfast.client.store
        self._lock = threading.Lock()
        self._under_way: set[str] = set()
        self._swept = 0

    def carry_out(self, who: str, operation: str, key: str, request: bytes, act: Callable[[str], Given]) -> Given:
        """Call ``act``, or give what it gave before. ``request`` is all that says what is wanted."""
        self._sweep()
        name = sha256(msgspec.json.encode([who, operation, key])).hexdigest()
        wanted = sha256(request).hexdigest()
        kept = self._begin(name, wanted)
        if isinstance(kept, Given):
            return kept
        try:
            given = act(name[:16])
        except BaseException:  # also an interrupt: who asks again must not be told that it is under way
            self._put(name, kept, None)
            raise
        else:
            data = {"wanted": wanted, "status": given.status, "body": given.body.decode(), "etag": given.etag}
            self._put(name, kept, replace(kept, done=True, sealed=self._seal(kept.uid, data)))
            return given
        finally:
            with self._lock:
                self._under_way.discard(name)

    def _begin(self, name: str, wanted: str) -> _Kept | Given:
        """Take the key for a request; or give what the request gave, if it was carried out before."""
        while True:
            known = find_document(self._store, KIND, name)
            now = self._store.clock.now()
            if known is not None:
                before = self._read(known)
                if now - before.at < KEPT:
                    data = self._open(before)
                    if data["wanted"] != wanted:
                        raise Refused(422, "KeyReused", "this idempotency key was used for another request before")
                    if before.done:
                        return Given(data["status"], data["body"].encode(), data["etag"])
                    if name in self._under_way or now - before.at < GIVEN_UP:
                        detail = "a request with this idempotency key is being carried out"
                        raise Refused(409, "UnderWay", detail, {"Retry-After": "1"})
            uid = new_uid(self._store.clock)
            made = self._hf.client.journals.new_key(uid)
            kept = _Kept(
                uid=uid,
                at=now,
                sealed=self._seal(uid, {"wanted": wanted}),
                key_id=made.key_id if made else None,
                key_blob=made.blob if made else None,
            )
            with self._lock:
                if name in self._under_way:
                    continue
                if self._store.put_document(KIND, name, msgspec.json.encode(kept), known.version if known else None):
                    self._under_way.add(name)
                    return kept

    def _put(self, name: str, own: _Kept, after: _Kept | None) -> None:
        """Replace or delete the document of a request, if it is still this server's."""
        known = find_document(self._store, KIND, name)
        if known is not None and self._read(known).uid == own.uid:
            value = msgspec.json.encode(after) if after is not None else None
            self._store.put_document(KIND, name, value, known.version)

    def _seal(self, uid: str, data: dict[str, object]) -> bytes:
        encrypted = self._hf.client.journals.keyring is not None
        return self._hf.client.journals.seal(uid, encrypted, _PLACE, data, "answer")

    def _open(self, kept: _Kept) -> dict[str, Any]:
        if kept.key_id is not None and kept.key_blob is not None:
            wrapped = WrappedKey(kept.key_id, kept.key_blob)
            self._hf.client.journals.learn_key(kept.uid, wrapped, "the answer to a request")
        return self._hf.client.journals.open("request", kept.uid, _PLACE, kept.sealed)

    def _read(self, document: Document) -> _Kept:
        try:
            return msgspec.json.decode(document.value, type=_Kept)
        except msgspec.MsgspecError as error:
            raise StoreDamaged(self._store.place, f"what it says of a request cannot be read ({error})") from None

    def _sweep(self) -> None:
        """Forget what is too old, now and then."""
        now = self._store.clock.now()
        if now - self._swept < SWEEP:
            return
        self._swept = now
        for document in self._store.documents(KIND):
            if now - self._read(document).at >= KEPT:
                self._store.put_document(KIND, document.name, None, document.version)
