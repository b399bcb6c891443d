"""Values that a workflow uses and that are never written down.

A `Secret` is stored as its name and a random token. In the process that made it the token leads back to it; in another
one its value is looked up by name, when it is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias
from weakref import WeakValueDictionary

from holdfast.errors import SecretMissing, UsageError

Value: TypeAlias = str | bytes
Lookup: TypeAlias = Mapping[str, Value] | Callable[[str], Value | None]

# Every secret that this process made and still holds, by token.
_made_here: WeakValueDictionary[str, Secret] = WeakValueDictionary()
# The names of all secrets that this process ever had: as long as there is none, there is nothing to look for.
names: set[str] = set()


class Secret:
    """A text or bytes that is never stored or printed: only its name is. It is made by
    ``Secret(value, name)`` or ``Secret.from_env(variable)``, and `reveal` gives the value.

    Another process finds the value by the name in ``holdfast.open(..., secrets=...)``. Two secrets are equal only if
    they are the same object. A copy is the secret itself, and pickling is refused.
    """

    __slots__ = ("__weakref__", "_env", "_lookup", "_token", "_value", "name")

    def __init__(self, value: str | bytes, name: str | None = None) -> None:
        if not isinstance(value, str | bytes):
            raise UsageError(f"the value of a secret is text or bytes, not {type(value).__name__}")
        self._fill("secret" if name is None else name, os.urandom(16).hex())
        self._value: Value | None = value
        _made_here[self._token] = self

    @classmethod
    def from_env(cls, name: str) -> Secret:
        """The secret in this environment variable; another process reads it from its own environment."""
        secret = cls.__new__(cls)
        secret._fill(name, os.urandom(16).hex(), env=True)
        _made_here[secret._token] = secret
        return secret

    def _fill(self, name: str, token: str, *, env: bool = False, lookup: Lookup | None = None) -> None:
        if not isinstance(name, str) or not name:
            raise UsageError(f"the name of a secret is a text that is not empty, not {name!r}")
        self.name = name
        names.add(name)
        self._token = token
        self._env = env
        self._lookup = lookup
        # What is in the environment is known from the start, so that it is kept out of texts from the start.
        self._value = os.environ.get(name) if env else None

    def reveal(self) -> Any:
        """The value, text or bytes as it was given; raises `SecretMissing` if this process cannot find it."""
        if self._value is None:
            self._value = self._find()
        return self._value

    def _find(self) -> Value:
        if self._env:
            found: Any = os.environ.get(self.name)
            remedy = "set this environment variable"
        else:
            found = _looked_up(self._lookup, self.name)
            remedy = f"give it: holdfast.open(..., secrets={{{self.name!r}: ...}})"
        if not isinstance(found, str | bytes):
            raise SecretMissing(self.name, remedy)
        return found

    def __repr__(self) -> str:
        return f"<Secret {self.name!r}>"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: Any) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise UsageError(f"secret {self.name!r} cannot be pickled; give the other process its value and its name")

    __getstate__ = __reduce__

    def __init_subclass__(cls) -> None:
        raise UsageError("Secret cannot be subclassed: what a subclass adds might be stored or printed")


def _looked_up(lookup: Lookup | None, name: str) -> Any:
    """What the user's mapping or function has under the name; None if nothing."""
    try:
        return lookup[name] if isinstance(lookup, Mapping) else lookup and lookup(name)
    except LookupError:
        return None


def to_tag(secret: Secret) -> dict[str, Any]:
    """What is stored of a secret, but for the tag: its name, its token, and whether it is from the environment."""
    tag: dict[str, Any] = {"n": secret.name, "t": secret._token}
    if secret._env:
        tag["e"] = 1
    return tag


def from_tag(tag: dict[str, Any], lookup: Lookup | None) -> Secret:
    """The secret that this process made under the token, or else one that looks its value up when it is revealed."""
    name, token = tag["n"], tag["t"]
    if type(name) is not str or type(token) is not str:
        raise ValueError("a secret has a name and a token")
    secret = _made_here.get(token)
    if secret is None:
        secret = Secret.__new__(Secret)
        secret._fill(name, token, env="e" in tag, lookup=lookup)
    return secret


def known_values(secrets: Mapping[str, Secret]) -> set[tuple[str, Value]]:
    """Names and values of these secrets, and of all that were made here, as far as they are known by now."""
    # Copies: another thread may make a secret meanwhile.
    alive = [ref() for ref in _made_here.valuerefs()]
    found = {(secret.name, secret._value) for secret in [*alive, *list(secrets.values())] if secret is not None}
    return {(name, value) for name, value in found if value is not None}


def exposed(names: list[str]) -> str:
    """Why a value is refused that has the value of a secret in it."""
    which = f"secret {min(names)!r}" if names else "a secret"
    return f"it holds the value of {which}, which is never stored; give the Secret itself, or leave the value out"
