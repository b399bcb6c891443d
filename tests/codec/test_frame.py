"""Payloads: JSON, compressed JSON and redactions; nothing else is taken, and nothing blows up."""

from __future__ import annotations

import contextlib
import logging
import os
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.codec import check_size, pack, redacted_digest, redaction, unpack
from holdfast.errors import TooLarge

LONG: Any = {"text": "word " * 2000}


def test_small_payloads_are_plain_json() -> None:
    assert pack({"b": [1, 1.0, None, True, -0.0], "a": "é"}) == '{"b":[1,1.0,null,true,-0.0],"a":"é"}'.encode()


def test_large_payloads_are_compressed_where_it_pays() -> None:
    packed = pack(LONG)
    assert packed[:1] == b"\x01"
    assert len(packed) < 200
    assert unpack(packed) == LONG
    assert pack(LONG, compress_over=None)[:1] == b"{"
    assert pack(LONG, compress_over=100_000)[:1] == b"{"
    assert pack(["abcdefghijklmnop"], compress_over=10) == b'["abcdefghijklmnop"]'


def test_bombs_are_refused() -> None:
    bomb = b"\x01" + zlib.compress(b'"' + b"0" * 50_000_000 + b'"', 9)
    assert len(bomb) < 100_000
    with pytest.raises(ValueError, match="larger than 1,000,000 bytes"):
        unpack(bomb, max_bytes=1_000_000)
    with pytest.raises(ValueError, match="larger than 3 bytes"):
        unpack(b"12345", max_bytes=3)
    exact = len(pack(LONG, compress_over=None))
    assert unpack(pack(LONG), max_bytes=exact) == LONG
    with pytest.raises(ValueError, match="larger than"):
        unpack(pack(LONG), max_bytes=exact - 1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[1] x", "not valid JSON"),
        (b'"\xff"', "not valid JSON"),
        (b"\x07abc", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"\x01", "cut short"),
        (b"\x01abc", "cannot be decompressed"),
        (pack(LONG)[:-5], "cut short"),
        (pack(LONG) + b"x", "something follows"),
        (b"\x01" + zlib.compress(b"{"), "not valid JSON"),
        (b"\x02" + bytes(40), "is encrypted"),
        (redaction(bytes(32)), "was redacted"),
    ],
)
def test_what_is_no_payload(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        unpack(data)


@given(st.binary(max_size=100), st.sampled_from([b"", b"\x00", b"\x01", b"\x02"]))
def test_no_bytes_raise_anything_else(data: bytes, first: bytes) -> None:
    with contextlib.suppress(ValueError):
        unpack(first + data)


def test_redaction() -> None:
    digest = os.urandom(32)
    assert redaction(digest) == b"\x00" + digest
    assert redacted_digest(redaction(digest)) == digest
    assert redacted_digest(b"\x00short") is None
    assert redacted_digest(pack({})) is None
    with pytest.raises(ValueError, match="32 bytes, not 3"):
        redaction(b"abc")


def test_sizes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="holdfast")
    check_size(b"x" * 5, "state", limit=10, warn_at=5)
    assert not caplog.records
    check_size(b"x" * 6, "state", limit=10, warn_at=5)
    assert caplog.messages == [
        "state: 6 bytes are stored; the limit is 10. Keep large data in a file and store its path."
    ]
    with pytest.raises(TooLarge) as caught:
        check_size(b"x" * 2000, "state.a", limit=1000, warn_at=5)
    assert caught.value.path == "state.a"
    assert "2,000 bytes are more than the limit of 1,000" in str(caught.value)
