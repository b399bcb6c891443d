"""Values to bytes and back.

A value passes through up to four stages on its way to the store. `Codec.encode` turns it into a *tree* of JSON-shaped
builtin containers, in which what JSON cannot say is tagged. `diff` compares two trees, so that a growing state costs
its growth. `pack` makes bytes of a tree: JSON text (`to_text`), compressed where that pays (`squeeze`).
`DataKey.seal` encrypts them, for runs that have a key. Reading is the same way back, and each stage refuses what it
cannot vouch for.
"""

from __future__ import annotations

from holdfast.codec.cipher import DataKey, Keyring, WrappedKey
from holdfast.codec.delta import diff, patch, patch_owned
from holdfast.codec.frame import (
    check_size,
    expand,
    from_text,
    left_of,
    pack,
    redacted_digest,
    redaction,
    squeeze,
    to_text,
    unpack,
)
from holdfast.codec.tree import Tree
from holdfast.codec.values import Codec

__all__ = [
    "Codec",
    "DataKey",
    "Keyring",
    "Tree",
    "WrappedKey",
    "check_size",
    "diff",
    "expand",
    "from_text",
    "left_of",
    "pack",
    "patch",
    "patch_owned",
    "redacted_digest",
    "redaction",
    "squeeze",
    "to_text",
    "unpack",
]
