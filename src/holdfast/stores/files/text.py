"""What stands in the files of a run's folder: records to text and back, without touching a disk.

Everything is JSON that a person can read. Every file, or every line of a file that grows, ends with ``sum``, a
checksum over all the text before it; so a line that was cut off is told from a whole one, and damage is noticed
before it is believed. A payload that is JSON stands as it is under ``data``, any other under ``data64``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b, sha256
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from holdfast.errors import InvalidId
from holdfast.kernel.model import Change, Document, Entry, Item, RunRecord, Status
from holdfast.kernel.rules import Term, check_id

T = TypeVar("T")

MAX_SLUG = 40
_HEADROOM = 250  # levels of nesting that a payload must leave free, so that it can be read wherever it was written
_SUM_CHARS = 16
_LINE = (b',"sum":"', b'"}')
_PAGE = (b',\n  "sum": "', b'"\n}\n')
_RUN_BYTES = ("root", "hash", "key_blob")  # fields of a record that are written in hexadecimal
_UID = re.compile(rb'"uid": "([0-9A-Za-z_.-]+)"')
_ID = re.compile(rb'"id": ("(?:[^"\\]|\\.)*")')


class Damage(Exception):
    """The text is not what was written."""


# --- names


def folder_name(id: str) -> str:
    """The folder of a run: readable, and never that of another id. Raises `InvalidId`."""
    slug = re.sub(r"[^a-z0-9]+", "-", check_id(id).lower()).strip("-")[:MAX_SLUG].rstrip("-")
    return f"{slug or 'run'}-{_name_digest(id)}"


def item_name(number: int, key: str) -> str:
    """The file of an inbox item."""
    return f"{number:08d}-{_name_digest(key)}.json"


def marker_name(key: str) -> str:
    """The file that says that an inbox item was taken."""
    return f"{_name_digest(key)}.json"


def _name_digest(text: str) -> str:
    # Keys, unlike ids, are not checked by anybody; a lone surrogate must not end in a bare UnicodeEncodeError.
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


# --- checksums


def _sum(text: bytes) -> bytes:
    return blake2b(text, digest_size=_SUM_CHARS // 2).hexdigest().encode()


def _sealed(text: bytes, around: tuple[bytes, bytes]) -> bytes:
    before, after = around
    return b"".join((text, before, _sum(text), after))


def _check_seal(text: bytes, around: tuple[bytes, bytes]) -> None:
    before, after = around
    cut = len(text) - len(before) - _SUM_CHARS - len(after)
    if cut < 0 or text[cut:] != b"".join((before, _sum(text[:cut]), after)):
        raise Damage("its checksum does not fit")


# --- payloads


def _is_plain(payload: bytes) -> bool:
    """Whether the payload can stand in a line as it is, and comes back from there byte for byte."""
    if not payload or payload[0] <= 0x20 or payload[-1] <= 0x20 or b"\n" in payload or b"\r" in payload:
        return False
    try:
        payload.decode()
        msgspec.json.decode(b"[" * _HEADROOM + payload + b"]" * _HEADROOM, type=Raw)
        msgspec.json.decode(payload, type=Raw)  # `1],[2` is JSON only inside of other brackets
    except (ValueError, RecursionError):
        return False
    return True


class _Stored(Struct, frozen=True):
    """Something with a payload, in the form in which it is written."""

    data: Raw | UnsetType = UNSET
    data64: bytes | UnsetType = UNSET

    @property
    def payload(self) -> bytes:
        if self.data is not UNSET:
            return bytes(self.data)
        if self.data64 is UNSET:
            raise Damage("it has no payload")
        return self.data64


def _payload(payload: bytes) -> dict[str, Any]:
    return {"data": Raw(payload)} if _is_plain(payload) else {"data64": payload}


# --- lines of a journal


class StoredEntry(_Stored, frozen=True, kw_only=True):
    """An entry in a line. The hash before it is that of the entry before it, so it is not written."""

    seq: int
    kind: str
    at: int
    state: int | None = None
    hash: str

    def entry(self, prev: bytes, *, payload: bool = True) -> Entry:
        data = self.payload if payload else b""
        return Entry(self.seq, self.kind, self.at, self.state, prev, bytes.fromhex(self.hash), data)


Erasures = tuple[tuple[int, bytes], ...]  # numbers of entries, and what their payloads are replaced by


class Line(Struct, frozen=True):
    """One transaction: entries, and what it did beside adding them.

    ``mail`` says that the inbox held an item then that wakes the run, so that a later reader decides as the writer did.
    """

    epoch: int
    entries: tuple[StoredEntry, ...]
    worker: str | None = None
    change: Change | None = None
    took: tuple[str, ...] = ()
    redact: Erasures = ()
    mail: bool = False

    @property
    def first(self) -> int:
        return self.entries[0].seq

    @property
    def last(self) -> int:
        return self.entries[-1].seq


_decode_line = msgspec.json.Decoder(Line).decode


def line_text(
    epoch: int,
    worker: str | None,
    entries: Sequence[Entry],
    change: Change | None = None,
    took: Sequence[str] = (),
    redact: Erasures = (),
    mail: bool = False,
) -> bytes:
    """The line that commits a transaction, with its newline."""
    fields: dict[str, Any] = {"epoch": epoch, "worker": worker, "entries": [_entry_fields(entry) for entry in entries]}
    if change is not None:
        named = msgspec.structs.asdict(replace(change, final=False)).items()  # it decides whether there is a line
        fields["change"] = {name: value for name, value in named if value is not None and value is not False}
    if took:
        fields["took"] = took
    if redact:
        fields["redact"] = redact
    if mail:
        fields["mail"] = mail
    return _line(fields)


def _entry_fields(entry: Entry) -> dict[str, Any]:
    fields = {"seq": entry.seq, "kind": entry.kind, "at": entry.at}
    if entry.state is not None:
        fields["state"] = entry.state
    return {**fields, "hash": entry.hash.hex(), **_payload(entry.payload)}


def _line(fields: dict[str, Any]) -> bytes:
    return _sealed(msgspec.json.encode(fields)[:-1], _LINE) + b"\n"


def read_line(text: bytes) -> Line:
    """The transaction of a line without its newline; raises `Damage`."""
    _check_seal(text, _LINE)
    try:
        line = _decode_line(text)
    except msgspec.MsgspecError as error:
        raise Damage(f"it does not hold a transaction: {error}") from None
    if not line.entries or any(entry.seq != line.first + n for n, entry in enumerate(line.entries)):
        raise Damage("its entries are not in order")
    return line


def is_whole(text: bytes) -> bool:
    """Whether the text is a line, but for its newline."""
    try:
        _check_seal(text, _LINE)
    except Damage:
        return False
    return True


def erased_line(line: Line, erased: Mapping[int, bytes]) -> bytes:
    """The line with the payloads of these entries replaced, and its newline."""
    entries = [stored.entry(b"") for stored in line.entries]
    entries = [replace(entry, payload=erased.get(entry.seq, entry.payload)) for entry in entries]
    return line_text(line.epoch, line.worker, entries, line.change, line.took, line.redact, line.mail)


# --- the record


class RunFile(Struct, frozen=True, omit_defaults=True):
    """What run.json holds: the record as it was after the entry ``record.seq``.

    ``posted`` is the number of the newest inbox item that was accepted. ``took`` and ``redact`` are what a
    transaction without entries has still to do.
    """

    record: RunRecord
    posted: int = 0
    took: tuple[str, ...] = ()
    redact: tuple[tuple[int, str], ...] = ()  # in hexadecimal


def run_text(run: RunFile) -> bytes:
    """The text of run.json."""
    fields = msgspec.to_builtins(run, builtin_types=(bytes,))
    for name in _RUN_BYTES:
        if fields["record"][name] is not None:
            fields["record"][name] = fields["record"][name].hex()
    text = msgspec.json.format(msgspec.json.encode(fields), indent=2)
    return _sealed(text.removesuffix(b"\n}"), _PAGE)


def read_run(text: bytes) -> RunFile:
    """The contents of run.json; raises `Damage`."""
    _check_seal(text, _PAGE)
    try:
        fields = msgspec.json.decode(text)
        for name in _RUN_BYTES:
            if fields["record"][name] is not None:
                fields["record"][name] = bytes.fromhex(fields["record"][name])
        return msgspec.convert(fields, RunFile, builtin_types=(bytes,))
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise Damage(f"it does not hold a run: {error}") from None


class Sketch(Struct, frozen=True):
    """What a look at run.json tells about when a run is due, as a `RunRecord` does."""

    uid: str
    created_at: int
    queue: str | None
    workflow: str | None
    status: Status
    worker: str | None
    wake_at: int | None
    epoch: int
    hidden: bool
    crashes: int
    crashed_at: int
    seq: int
    priority: int = 0
    lane: str | None = None


class _Sketched(Struct, frozen=True):
    record: Sketch


_decode_sketch = msgspec.json.Decoder(_Sketched).decode


def sketch_in(text: bytes) -> Sketch | None:
    """A part of the record in run.json, cheaper than all of it and not checked; None if it cannot be read."""
    try:
        return _decode_sketch(text).record
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def uid_in(text: bytes) -> str | None:
    """The uid in run.json, also if the rest is damaged."""
    found = _UID.search(text)
    return found[1].decode() if found else None


def id_in(text: bytes, folder: str) -> str | None:
    """The id in run.json, also if the rest is damaged; the folder's name proves that it is right."""
    found = _ID.search(text)
    try:
        id = msgspec.json.decode(found[1], type=str) if found else ""
        return id if id and folder_name(id) == folder else None
    except (ValueError, InvalidId):
        return None


# --- documents


class _StoredDocument(_Stored, frozen=True, kw_only=True):
    name: str
    version: int


def document_text(document: Document) -> bytes:
    """The file of a document."""
    return _line({"name": document.name, "version": document.version, **_payload(document.value)})


def read_document(text: bytes) -> Document:
    """A document; raises `Damage`."""
    found = _read_small(text, _StoredDocument)
    return Document(found.name, found.payload, found.version)


# --- the inbox


class _StoredItem(_Stored, frozen=True, kw_only=True):
    key: str
    kind: str
    at: int
    wakes: bool = True


class _Marker(Struct, frozen=True):
    key: str


def item_text(item: Item) -> bytes:
    """The file of an inbox item."""
    fields = {"key": item.key, "kind": item.kind, "at": item.at, "wakes": item.wakes}
    return _line({**fields, **_payload(item.payload)})


def read_item(text: bytes) -> Item:
    """An inbox item; raises `Damage`."""
    found = _read_small(text, _StoredItem)
    return Item(found.key, found.kind, found.at, found.payload, found.wakes)


def marker_text(key: str) -> bytes:
    """The file that says that the item of this key was taken."""
    return _line({"key": key})


def read_marker(text: bytes) -> str:
    """The key of an item that was taken; raises `Damage`."""
    return _read_small(text, _Marker).key


def term_text(term: Term) -> bytes:
    """The file of a worker: until when its leases hold."""
    return _line(msgspec.structs.asdict(term))


def read_term(text: bytes) -> Term:
    """Until when the leases of a worker hold; raises `Damage`."""
    return _read_small(text, Term)


def _read_small(text: bytes, kind: type[T]) -> T:
    line = text.removesuffix(b"\n")
    _check_seal(line, _LINE)
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.MsgspecError as error:
        raise Damage(f"it holds something else: {error}") from None
