"""Trees to bytes and back: the payload of an entry, and what may stand in its place.

The first byte tells what a payload is. JSON is itself, and never begins with one of these:

    00  redacted: the 32-byte digest of the payload that was there, so that the chain still verifies, and what is left
    01  JSON, compressed by zlib
    02  encrypted: `cipher.DataKey.open` gives one of the others
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.codec.tree import Tree
from holdfast.errors import TooLarge

REDACTED = b"\x00"
COMPRESSED = b"\x01"
ENCRYPTED = b"\x02"

_DIGEST_BYTES = 32


to_text: Callable[[Tree], bytes] = msgspec.json.Encoder().encode  # the JSON of a tree


def from_text(text: bytes) -> Tree:
    """The tree of a JSON text; raises ValueError."""
    try:
        return msgspec.json.decode(text)  # type: ignore[no-any-return]
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError(f"the payload is not valid JSON: {error}") from None


def squeeze(text: bytes, compress_over: int | None) -> bytes:
    """The payload of a text; compressed if longer than `compress_over` and if that saves a tenth or more."""
    if compress_over is None or len(text) <= compress_over:
        return text
    import zlib

    packed = COMPRESSED + zlib.compress(text, 1)
    return packed if len(packed) * 10 <= len(text) * 9 else text


def expand(data: bytes, *, max_bytes: int = 256 * 1024 * 1024) -> bytes:
    """The text of a payload; raises ValueError for what `squeeze` did not make, or for more than `max_bytes`."""
    first = data[:1]
    if first == COMPRESSED:
        data = _decompress(data[1:], max_bytes)
    elif first == REDACTED:
        raise ValueError("the payload was redacted")
    elif first == ENCRYPTED:
        raise ValueError("the payload is encrypted; open it with its data key first")
    if len(data) > max_bytes:
        raise ValueError(f"the payload is larger than {max_bytes:,} bytes")
    return data


def pack(tree: Tree, *, compress_over: int | None = 512) -> bytes:
    """The payload of a tree."""
    return squeeze(to_text(tree), compress_over)


def unpack(data: bytes, *, max_bytes: int = 256 * 1024 * 1024) -> Tree:
    """The tree of a payload; raises ValueError for what `pack` did not make."""
    return from_text(expand(data, max_bytes=max_bytes))


def _decompress(data: bytes, max_bytes: int) -> bytes:
    import zlib

    stream = zlib.decompressobj()
    try:
        # One byte more than allowed tells a payload that is too large from one that just fits.
        plain = stream.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise ValueError(f"the payload cannot be decompressed: {error}") from None
    if len(plain) <= max_bytes and (not stream.eof or stream.unused_data):
        raise ValueError("the compressed payload is cut short, or something follows it")
    return plain


def redaction(payload_digest: bytes, left: bytes = b"") -> bytes:
    """What stands in the place of a payload that was erased; `left` is a payload of what may stay of it."""
    if len(payload_digest) != _DIGEST_BYTES:
        raise ValueError(f"a payload digest has {_DIGEST_BYTES} bytes, not {len(payload_digest)}")
    return REDACTED + payload_digest + left


def redacted_digest(data: bytes) -> bytes | None:
    """The digest of the payload that was erased; None if this is no redaction."""
    return data[1 : 1 + _DIGEST_BYTES] if data[:1] == REDACTED and len(data) > _DIGEST_BYTES else None


def left_of(redaction: bytes) -> bytes:
    """What was left of an erased payload."""
    return redaction[1 + _DIGEST_BYTES :]


def check_size(data: bytes, path: str, *, limit: int, warn_at: int) -> None:
    """Raise `TooLarge` beyond the limit, and warn before it is reached."""
    size = len(data)
    if size > limit:
        raise TooLarge(
            path,
            f"{size:,} bytes are more than the limit of {limit:,}; "
            f"keep large data in a file and store its path, or raise the limit",
        )
    if size > warn_at:
        import logging

        logging.getLogger("holdfast").warning(
            "%s: %s bytes are stored; the limit is %s. Keep large data in a file and store its path.",
            path,
            f"{size:,}",
            f"{limit:,}",
        )
