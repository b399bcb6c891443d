"""Which classes a codec knows, by the names that they are stored under.

A stored name never causes an import. It is looked up among the classes that were registered, those that the reader's
annotation leads to, and those that were written before; what is in none of them is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from holdfast.codec.annotation_classes import reachable
from holdfast.codec.refused import Damaged, Refused
from holdfast.codec.shapes import EnumShape, Shape, name_of, shape_of
from holdfast.codec.tree import TAG, Tree
from holdfast.errors import UsageError

Upgrades = Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]


class Custom:
    """The shape of a class that was registered with functions of its own."""

    def __init__(self, cls: type, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> None:
        self.cls = cls
        self.encode = encode
        self.decode = decode


class Entry:
    """A class as it is stored: its name, its version, how to read older ones, and its shape."""

    def __init__(self, name: str, shape: Shape | EnumShape | Custom, version: int, upgrades: Upgrades) -> None:
        self.name = name
        self.shape = shape
        self.version = version
        self.upgrades = upgrades

    def head(self, tag: str) -> dict[str, Tree]:
        head: dict[str, Tree] = {TAG: tag, "t": self.name}
        if self.version != 1:
            head["n"] = self.version
        return head

    def upgrade(self, parts: Any, version: int) -> Any:
        """The parts of an older version, as those of this one."""
        if type(version) is not int or version < 1:
            raise Damaged(f"{version!r} is no version")
        if version > self.version:
            raise Refused(
                f"{self.name} is stored in version {version}, and version {self.version} is registered here; "
                f"read it with the newer code"
            )
        for older in range(version, self.version):
            step = self.upgrades.get(older)
            if step is None:
                raise Refused(
                    f"{self.name} is stored in version {version}, and there is no upgrade from version {older}; "
                    f"register it with hf.register({self.shape.cls.__name__}, version={self.version}, "
                    f"upgrades={{{older}: ...}})"
                )
            try:
                parts = step(parts)
            except Exception as error:  # the user's own function, which may raise anything
                raise Refused(f"the upgrade of {self.name} from version {older} failed: {error!r}") from error
        return parts


class Registry:
    """The classes of one codec. A registered class goes before one of the annotation, and that before a remembered."""

    def __init__(self) -> None:
        self._registered: dict[str, Entry] = {}
        self._registered_types: dict[type, Entry] = {}
        self._remembered: dict[str, Entry] = {}
        self._reached: dict[type, Entry] = {}
        self._scopes: dict[Any, dict[str, type]] = {}

    def register(
        self,
        cls: type,
        name: str | None,
        version: int,
        upgrades: Upgrades,
        encode: Callable[[Any], Any] | None,
        decode: Callable[[Any], Any] | None,
    ) -> Entry:
        """Make a class known; raises `UsageError` if it cannot be, or if its name is taken by another."""
        if not isinstance(cls, type):
            raise UsageError(f"register takes a class, not {cls!r}")
        entry = Entry(name or name_of(cls), _shape(cls, encode, decode), version, dict(upgrades))
        if type(version) is not int or version < 1:
            raise UsageError(f"the version of {entry.name} is {version!r}; it must be a whole number from 1")
        wrong = [older for older in upgrades if type(older) is not int or not 1 <= older < version]
        if wrong:
            raise UsageError(f"{entry.name} of version {version} cannot have an upgrade from version {wrong[0]!r}")
        other = self._registered.get(entry.name)
        if other is not None and other.shape.cls is not cls:
            raise UsageError(f"two classes are registered as {entry.name!r}; give one of them another name=")
        self._registered[entry.name] = self._registered_types[cls] = entry
        return entry

    def remember(self, cls: type) -> Entry | None:
        """The entry of a class that is written for the first time; None if it cannot be stored."""
        shape = EnumShape(cls) if issubclass(cls, Enum) else shape_of(cls)
        if shape is None:
            return None
        entry = Entry(name_of(cls), shape, 1, {})
        if entry.name in self._registered:
            raise Refused(f"another class is registered as {entry.name!r}; give one of them another name=")
        self._remembered[entry.name] = entry
        return entry

    def version(self, cls: type) -> int:
        """The version that a class was registered with; 1 if it was not."""
        entry = self._registered_types.get(cls)
        return entry.version if entry is not None else 1

    def find(self, name: str, as_type: Any) -> Entry:
        """The entry of a stored name, or a refusal."""
        if entry := self._registered.get(name):
            return entry
        if as_type is not None and (cls := self._scope(as_type).get(name)):
            return self._entry_of(cls)
        if entry := self._remembered.get(name):
            return entry
        # The last resort is slow: classes that known ones have fields of, and annotations that can be resolved by now.
        known = [entry.shape.cls for entry in (*self._registered.values(), *self._remembered.values())]
        if cls := reachable(as_type, *known).get(name):
            return self._entry_of(cls)
        short = str(name).rpartition(":")[2].rpartition(".")[2]
        raise Refused(f"stored as {name}, which is not known here; register it with hf.register({short})")

    def _scope(self, as_type: Any) -> dict[str, type]:
        try:
            scope = self._scopes.get(as_type)
        except TypeError:  # an annotation that cannot be hashed
            return reachable(as_type)
        if scope is None:
            scope = self._scopes[as_type] = reachable(as_type)
        return scope

    def _entry_of(self, cls: type) -> Entry:
        if entry := self._registered_types.get(cls):
            return entry
        if cls not in self._reached:
            self._reached[cls] = Entry(name_of(cls), _shape(cls, None, None), 1, {})
        return self._reached[cls]


def _shape(
    cls: type, encode: Callable[[Any], Any] | None, decode: Callable[[Any], Any] | None
) -> Shape | EnumShape | Custom:
    if encode is not None and decode is not None:
        return Custom(cls, encode, decode)
    if encode is not None or decode is not None:
        raise UsageError(f"{cls.__qualname__} needs both an encode and a decode function, or neither")
    shape = EnumShape(cls) if issubclass(cls, Enum) else shape_of(cls)
    if shape is None:
        raise UsageError(
            f"{cls.__qualname__} is no dataclass, msgspec struct, pydantic model, named tuple or enum; "
            f"register it with an encode and a decode function"
        )
    return shape
