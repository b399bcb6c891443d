"""Encryption of payloads, by AES-GCM.

Each journal has a *data key* of its own, made once and stored beside it, wrapped by a *master key* that the store never
sees. Master keys have ids; a new one takes over by wrapping the data keys again, and no entry is rewritten. What is
sealed is bound to its place, so that it does not open anywhere else. A sealed payload is

    02 ‖ nonce of 12 bytes ‖ ciphertext and tag
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast.codec.frame import ENCRYPTED
from holdfast.errors import KeyMissing, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12
_KEY_BYTES = 32


class RandomSource(Protocol):
    """Where keys and nonces come from: a clock, which tests replace."""

    def random_bytes(self, count: int, /) -> bytes: ...


class WrappedKey(msgspec.Struct, frozen=True):
    """A data key, encrypted by the master key of this id."""

    key_id: str
    blob: bytes


class DataKey:
    """The key of one journal. It opens only what it sealed for the same place."""

    __slots__ = ("_aes", "_blind", "_key")

    def __init__(self, key: bytes) -> None:
        from hashlib import blake2b

        self._key = key
        self._aes = _aes(key)
        # A key of its own, so that blinding tells nothing about what is sealed.
        self._blind = blake2b(b"blind", key=key, digest_size=_KEY_BYTES).digest()

    def __repr__(self) -> str:
        return "DataKey(…)"

    def __reduce__(self) -> Any:
        raise UsageError("a data key cannot be pickled or copied")

    def seal(self, plain: bytes, place: bytes, random: RandomSource) -> bytes:
        """The payload, encrypted for this place."""
        nonce = random.random_bytes(_NONCE_BYTES)
        return ENCRYPTED + nonce + self._aes.encrypt(nonce, plain, place)

    def open(self, data: bytes, place: bytes) -> bytes:
        """The payload that was sealed for this place; raises ValueError for anything else."""
        if data[:1] != ENCRYPTED:
            raise ValueError("the payload is not encrypted")
        plain = _decrypt(self._aes, data[1:], place)
        if plain is None:
            raise ValueError("the payload does not open: it was changed, moved, or sealed with another key")
        return plain

    def blind(self, text: str) -> str:
        """64 hexadecimal digits that are the same for the same text under this key, and do not show it."""
        from hashlib import blake2b

        return blake2b(text.encode("utf-8", "surrogatepass"), key=self._blind, digest_size=32).hexdigest()


class Keyring:
    """The master keys by id, of 16, 24 or 32 bytes; new data keys are wrapped by the current one."""

    __slots__ = ("_keys", "current")

    def __init__(self, keys: Mapping[str, bytes], current: str) -> None:
        if not isinstance(keys, Mapping):
            raise UsageError(f"a keyring is Keyring({{id: key}}, current=id), not of one {type(keys).__name__}")
        for key_id, key in keys.items():
            if not isinstance(key_id, str) or not key_id:
                raise UsageError(f"the id of a master key is a text that is not empty, not {key_id!r}")
            if not isinstance(key, bytes) or len(key) not in (16, 24, 32):
                raise UsageError(f"master key {key_id!r} must be 16, 24 or 32 bytes, such as os.urandom(32) gives")
        if current not in keys:
            raise UsageError(f"the current master key {current!r} is not in the keyring")
        self._keys = {key_id: _aes(key) for key_id, key in keys.items()}
        self.current = current

    def __repr__(self) -> str:
        return f"Keyring(ids={sorted(self._keys)}, current={self.current!r})"

    def __reduce__(self) -> Any:
        raise UsageError("a keyring cannot be pickled or copied")

    def new_data_key(self, uid: str, random: RandomSource) -> tuple[DataKey, WrappedKey]:
        """A key for the journal of this uid, and its wrapped form to be stored."""
        key = random.random_bytes(_KEY_BYTES)
        return DataKey(key), self._wrap(uid, key, random)

    def unwrap(self, uid: str, wrapped: WrappedKey, *, of: str | None = None) -> DataKey:
        """The data key of the journal; raises `KeyMissing` if its master key is not here, or is another.

        ``of`` says in the message whose it is.
        """
        return DataKey(self._unwrap(uid, wrapped, of))

    def rewrap(self, uid: str, wrapped: WrappedKey, random: RandomSource, *, of: str | None = None) -> WrappedKey:
        """The same data key, wrapped by the current master key."""
        return self._wrap(uid, self._unwrap(uid, wrapped, of), random)

    def _wrap(self, uid: str, key: bytes, random: RandomSource) -> WrappedKey:
        nonce = random.random_bytes(_NONCE_BYTES)
        sealed = self._keys[self.current].encrypt(nonce, key, _binding(self.current, uid))
        return WrappedKey(key_id=self.current, blob=nonce + sealed)

    def _unwrap(self, uid: str, wrapped: WrappedKey, of: str | None) -> bytes:
        whose = of or f"journal {uid}"
        master = self._keys.get(wrapped.key_id)
        if master is None:
            raise KeyMissing(f"{whose}: the master key {wrapped.key_id!r} is not in the keyring; add it")
        key = _decrypt(master, wrapped.blob, _binding(wrapped.key_id, uid))
        if key is None:
            raise KeyMissing(
                f"{whose}: its data key does not open with the master key {wrapped.key_id!r}; "
                f"another key was put under that id, or the wrapped key was changed"
            )
        return key


def _binding(key_id: str, uid: str) -> bytes:
    return msgspec.json.encode(["holdfast data key", key_id, uid])


def _aes(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise UsageError("encryption needs the cryptography package: pip install 'holdfast[crypto]'") from None
    return AESGCM(key)


def _decrypt(aes: AESGCM, data: bytes, associated: bytes) -> bytes | None:
    from cryptography.exceptions import InvalidTag

    if len(data) < _NONCE_BYTES + 16:
        return None
    try:
        return aes.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], associated)
    except InvalidTag:
        return None
