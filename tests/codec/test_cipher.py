"""Sealed payloads open with the right key at the right place, and nowhere else."""

from __future__ import annotations

import copy
import os
import pickle
import sys
from typing import Any

import msgspec
import pytest

from holdfast.codec import DataKey, Keyring, WrappedKey
from holdfast.errors import KeyMissing, UsageError
from holdfast.kernel.clock import SystemClock

CLOCK = SystemClock()
OLD, NEW = os.urandom(32), os.urandom(16)


def test_seal_and_open() -> None:
    key, _ = Keyring({"k": OLD}, "k").new_data_key("uid", CLOCK)
    sealed = key.seal(b"secret", b"uid/1", CLOCK)
    assert sealed[:1] == b"\x02"
    assert len(sealed) == 1 + 12 + 6 + 16
    assert b"secret" not in sealed
    assert key.open(sealed, b"uid/1") == b"secret"
    assert key.seal(b"secret", b"uid/1", CLOCK) != sealed
    assert key.open(key.seal(b"", b"", CLOCK), b"") == b""


def test_what_does_not_open() -> None:
    ring = Keyring({"k": OLD}, "k")
    key, _ = ring.new_data_key("uid", CLOCK)
    other, _ = ring.new_data_key("uid", CLOCK)
    sealed = key.seal(b"secret", b"uid/1", CLOCK)
    with pytest.raises(ValueError, match="moved"):
        key.open(sealed, b"uid/2")
    with pytest.raises(ValueError, match="another key"):
        other.open(sealed, b"uid/1")
    for at in range(1, len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 1
        with pytest.raises(ValueError, match="changed"):
            key.open(bytes(changed), b"uid/1")
    for short in (b"\x02", sealed[:20], sealed[:-1]):
        with pytest.raises(ValueError, match="changed"):
            key.open(short, b"uid/1")
    with pytest.raises(ValueError, match="not encrypted"):
        key.open(b"{}", b"uid/1")


def test_rotation_leaves_sealed_data_alone() -> None:
    key, wrapped = Keyring({"old": OLD}, "old").new_data_key("uid", CLOCK)
    sealed = key.seal(b"secret", b"p", CLOCK)
    both = Keyring({"old": OLD, "new": NEW}, "new")
    assert both.unwrap("uid", wrapped).open(sealed, b"p") == b"secret"
    rewrapped = both.rewrap("uid", wrapped, CLOCK)
    assert rewrapped.key_id == "new"
    only = Keyring({"new": NEW}, "new")
    assert only.unwrap("uid", rewrapped).open(sealed, b"p") == b"secret"
    assert only.unwrap("uid", rewrapped).blind("a") == key.blind("a")
    with pytest.raises(KeyMissing, match="'old' is not in the keyring"):
        only.unwrap("uid", wrapped)
    with pytest.raises(KeyMissing):
        only.rewrap("uid", wrapped, CLOCK)


def test_wrapped_keys_are_bound() -> None:
    ring = Keyring({"a": OLD, "b": OLD}, "a")
    _, wrapped = ring.new_data_key("uid", CLOCK)
    for uid, key in [
        ("other", wrapped),
        ("uid", WrappedKey("b", wrapped.blob)),
        ("uid", WrappedKey("a", wrapped.blob[:-1])),
        ("uid", WrappedKey("a", b"")),
    ]:
        with pytest.raises(KeyMissing, match="does not open"):
            ring.unwrap(uid, key)
    with pytest.raises(KeyMissing, match="does not open with the master key 'a'"):
        Keyring({"a": NEW}, "a").unwrap("uid", wrapped)


def test_wrapped_keys_can_be_stored() -> None:
    _, wrapped = Keyring({"a": OLD}, "a").new_data_key("uid", CLOCK)
    assert msgspec.json.decode(msgspec.json.encode(wrapped), type=WrappedKey) == wrapped
    with pytest.raises(AttributeError):
        wrapped.key_id = "b"  # type: ignore[misc]


def test_blinding() -> None:
    ring = Keyring({"a": OLD}, "a")
    key, _ = ring.new_data_key("uid", CLOCK)
    other, _ = ring.new_data_key("uid", CLOCK)
    assert key.blind("operator") == key.blind("operator")
    assert len({key.blind("operator"), key.blind("west"), other.blind("operator"), key.blind("\ud800")}) == 4
    assert len(key.blind("")) == 64


@pytest.mark.parametrize(
    ("keys", "current", "message"),
    [
        ({}, "a", "'a' is not in the keyring"),
        ({"a": OLD}, "b", "'b' is not in the keyring"),
        ({"a": b"short"}, "a", "'a' must be 16, 24 or 32 bytes"),
        ({"a": "x" * 32}, "a", "'a' must be 16, 24 or 32 bytes"),
        ({"": OLD}, "", "not empty"),
        ({1: OLD}, 1, "not empty"),
    ],
)
def test_keyrings_that_are_refused(keys: Any, current: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        Keyring(keys, current)
    assert "short" not in str(caught.value)


def test_keys_are_never_shown_or_copied() -> None:
    ring = Keyring({"a": b"A" * 32}, "a")
    key = DataKey(b"B" * 32)
    assert repr(ring) == "Keyring(ids=['a'], current='a')"
    assert repr(key) == str(key) == "DataKey(…)"
    for thing in (ring, key):
        assert not hasattr(thing, "__dict__")
        with pytest.raises(UsageError, match="cannot be pickled"):
            pickle.dumps(thing)
        with pytest.raises(UsageError):
            copy.copy(thing)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(UsageError, match=r"pip install 'holdfast\[crypto\]'"):
        Keyring({"a": OLD}, "a")
