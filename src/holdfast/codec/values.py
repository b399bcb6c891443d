"""Values to trees and back: the `Codec`.

Writing dispatches on the exact type of a value, so that nothing comes back as something else; what has no writer is
refused with the path to it. Reading knows tags by name. A tagged object names its class, and that name is only looked
up: among the registered classes, those that the annotation leads to, and those that this codec itself has written. It
never causes an import.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Any, TypeVar, overload

from holdfast.codec.frame import to_text
from holdfast.codec.readonly import ReadOnlyDict, ReadOnlyList, ReadOnlySet, original
from holdfast.codec.refused import Damaged, Refused, TooDeep, key_part
from holdfast.codec.registry import Custom, Entry, Registry, Upgrades
from holdfast.codec.scalars import READERS, WRITERS, late_writer
from holdfast.codec.scrub import Scrub
from holdfast.codec.shapes import EnumShape, Shape
from holdfast.codec.tree import TAG, Tree, Writer, canonical, check_text, digest, raw, short_digest
from holdfast.errors import NotStorable, TypeMissing, UsageError
from holdfast.secret import Lookup, Secret, exposed, from_tag, known_values, to_tag
from holdfast.secret import names as secret_names

__all__ = ["Codec", "Tree"]

T = TypeVar("T")


class _Writers(dict[type, Writer]):
    """Writers by exact type, which learns a type at its first value."""

    def __init__(self, learn: Callable[[type], Writer]) -> None:
        super().__init__(WRITERS)
        self._learn = learn

    def __missing__(self, kind: type) -> Writer:
        writer = self[kind] = self._learn(kind)
        return writer


class Codec:
    """Turns values into trees and trees into values; remembers the classes that it is told of, and those it meets.

    `max_depth` limits the levels of the tree. A tagged container, such as a tuple or an object, takes two.
    `secrets` is where the values of secrets are looked up that were made in another process: a mapping by name, or a
    function that takes the name.
    """

    def __init__(self, *, max_depth: int = 200, secrets: Lookup | None = None) -> None:
        if not (secrets is None or isinstance(secrets, Mapping) or callable(secrets)):
            raise UsageError(f"secrets= is a mapping by name, or a function of the name, not {type(secrets).__name__}")
        self._max_depth = max_depth
        self._lookup = secrets
        # Every secret that was written or read, by token: kept alive, so that reading finds it again.
        self.secrets: dict[str, Secret] = {}
        self._scrubbed: tuple[frozenset[str | bytes], Scrub] = frozenset(), Scrub(())
        self._registry = Registry()
        self._writers = _Writers(self._learn)
        self._builtin: dict[type, Writer] = {
            dict: self._write_dict,
            list: self._write_list,
            tuple: self._write_tuple,
            set: partial(self._write_set, "set"),
            frozenset: partial(self._write_set, "frozenset"),
            deque: self._write_deque,
            OrderedDict: partial(self._write_pairs, "odict"),
            Secret: self._write_secret,
            ReadOnlyDict: self._write_dict,
            ReadOnlyList: self._write_list,
            ReadOnlySet: partial(self._write_set, "set"),
        }
        self._writers.update(self._builtin)
        self._readers: dict[str, Callable[[dict[str, Any], Any], Any]] = {
            "as": self._read_custom,
            "deque": lambda tag, as_type: deque(self._read_list(tag["v"], as_type), tag.get("m")),
            "dict": lambda tag, as_type: dict(self._read_pairs(tag["v"], as_type)),
            "enum": self._read_enum,
            "frozenset": lambda tag, as_type: frozenset(self._read_list(tag["v"], as_type)),
            "map": lambda tag, as_type: self._read_entries(tag["v"], as_type),
            "obj": self._read_object,
            "odict": lambda tag, as_type: OrderedDict(self._read_pairs(tag["v"], as_type)),
            "secret": self._read_secret,
            "set": lambda tag, as_type: set(self._read_list(tag["v"], as_type)),
            "tuple": lambda tag, as_type: tuple(self._read_list(tag["v"], as_type)),
        }

    # What callers use

    @overload
    def register(
        self,
        cls: type[T],
        *,
        name: str | None = None,
        version: int = 1,
        upgrades: Upgrades | None = None,
        encode: Callable[[Any], Any] | None = None,
        decode: Callable[[Any], Any] | None = None,
    ) -> type[T]: ...

    @overload
    def register(
        self,
        cls: None = None,
        *,
        name: str | None = None,
        version: int = 1,
        upgrades: Upgrades | None = None,
        encode: Callable[[Any], Any] | None = None,
        decode: Callable[[Any], Any] | None = None,
    ) -> Callable[[type[T]], type[T]]: ...

    def register(
        self,
        cls: type[T] | None = None,
        *,
        name: str | None = None,
        version: int = 1,
        upgrades: Upgrades | None = None,
        encode: Callable[[Any], Any] | None = None,
        decode: Callable[[Any], Any] | None = None,
    ) -> type[T] | Callable[[type[T]], type[T]]:
        """Make a class known, so that its stored objects can be read; also usable as a decorator.

        The name is what the class is stored under; give the old one to a class that was moved or renamed.
        `upgrades[n]` takes the fields of version n and gives those of n + 1. (For an enum the fields are
        ``{"name": ...}``; for a class with functions of its own, they are what `encode` gave.) A class that is no
        dataclass, msgspec struct, pydantic model, named tuple or enum needs both functions: `encode` gives a
        storable value, `decode` takes it.
        """

        def add(cls: type[T]) -> type[T]:
            if isinstance(cls, type) and (cls in WRITERS or cls in self._builtin or late_writer(cls)):
                raise UsageError(f"{cls.__qualname__} is stored by Holdfast itself; it cannot be registered")
            entry = self._registry.register(cls, name, version, upgrades or {}, encode, decode)
            self._writers[cls] = self._writer_of(entry)
            return cls

        return add if cls is None else add(cls)

    def encode(self, value: Any, path: str = "value") -> Tree:
        """The tree of a value, in containers of its own; raises `NotStorable` with the path to what cannot be kept.

        The value of a secret cannot: see `refuse_secrets`.
        """
        tree = self._encode(value, path)
        if secret_names:
            self.refuse_secrets(to_text(tree), path, tree)
        return tree

    def encode_scrubbed(self, value: Any) -> Tree:
        """The tree of a value, with ``***`` for the values of secrets in its texts and bytes."""
        return self._scrub().tree(self._encode(value, "value"))  # type: ignore[no-any-return]

    def _encode(self, value: Any, path: str) -> Tree:
        try:
            return self._writers[type(value)](value, 0)
        except TooDeep as refused:
            cycle = refused.find_cycle()
            if cycle is not None:
                raise NotStorable(path + cycle, "it contains itself, and a cycle cannot be stored") from None
            raise NotStorable(path + refused.path(), refused.problem) from None
        except Refused as refused:
            raise NotStorable(path + refused.path(), refused.problem) from refused.__cause__
        except RecursionError:
            raise NotStorable(path, "it is nested too deeply") from None

    def encode_call(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call as trees; raises `NotStorable` with the name of the function and the argument."""
        if not secret_names:
            writers = self._writers
            with suppress(Refused, RecursionError):  # told below, with the path to it, which is seldom needed
                trees = [writers[type(value)](value, 0) for value in args]
                return trees, {word: writers[type(value)](value, 0) for word, value in kwargs.items()} if kwargs else {}
        trees = [self.encode(value, f"{name}.args[{n}]") for n, value in enumerate(args)]
        return trees, {word: self.encode(value, f"{name}.{word}") for word, value in kwargs.items()}

    def decode(self, tree: Tree, as_type: Any = None, path: str = "value") -> Any:
        """The value of a tree, in containers of its own.

        The annotation only says where classes may come from: what was stored is what comes back. Raises `TypeMissing`
        for a class that is not known or no longer fits, and ValueError for a tree that `encode` did not make.
        """
        try:
            return self._read(tree, as_type)
        except Damaged as refused:
            raise ValueError(f"{path}{refused.path()}: {refused.problem}") from refused.__cause__
        except Refused as refused:
            raise TypeMissing(path + refused.path(), refused.problem) from refused.__cause__
        except RecursionError:
            raise ValueError(f"{path}: nested too deeply") from None

    def version(self, cls: type) -> int:
        """The version in which objects of a class are stored."""
        return self._registry.version(cls)

    def scrub(self, text: str) -> str:
        """The text with ``***`` for the value of every secret that is known here; see `scrub`."""
        return self._scrub().text(text)

    def refuse_secrets(self, text: bytes, what: str, tree: Tree = None) -> None:
        """Raise `NotStorable` if this JSON, or bytes in its tree, have the value of a secret that is known here."""
        if self._has_secrets(text, tree):
            named = [name for name, value in known_values(self.secrets) if Scrub([value]).is_in(text)]
            raise NotStorable(self.scrub(what), exposed(named))

    def take_out_secrets(self, data: dict[str, Tree]) -> dict[str, Tree]:
        """These values with ``***`` where `refuse_secrets` would refuse them, as far as they can still be read then.

        For what somebody left who did not know the secret, and was told that it is kept.
        """
        if not secret_names or not any(self._has_secrets(to_text(tree), tree) for tree in data.values()):
            return data
        scrub = self._scrub()
        return {name: scrub.tree(tree) for name, tree in data.items()}

    def _has_secrets(self, text: bytes, tree: Tree) -> bool:
        if not secret_names:
            return False
        scrub = self._scrub()
        return scrub.is_in(text) or (b'"$":"byte' in text and scrub.tree(tree) != tree)

    def _scrub(self) -> Scrub:
        values = frozenset(value for _, value in known_values(self.secrets))
        if values != self._scrubbed[0]:
            self._scrubbed = values, Scrub(values)
        return self._scrubbed[1]

    raw = staticmethod(raw)
    digest = staticmethod(digest)
    short_digest = staticmethod(short_digest)

    def _learn(self, kind: type) -> Writer:
        """The writer of a type that is met for the first time; refused if there can be none."""
        if writer := late_writer(kind):
            return writer
        if (cls := original(kind)) is not kind:
            return self._writers[cls]
        if entry := self._registry.remember(kind):
            return self._writer_of(entry)
        raise Refused(_not_storable(kind))

    def _writer_of(self, entry: Entry) -> Writer:
        match entry.shape:
            case Custom():
                return partial(self._write_custom, entry, entry.shape)
            case EnumShape():
                return partial(self._write_enum, entry, entry.shape)
            case Shape():
                return partial(self._write_object, entry, entry.shape)

    # Writing. A writer takes the value and the level of the tree that it writes to.

    def _too_deep(self) -> TooDeep:
        return TooDeep(f"nested deeper than {self._max_depth} levels")

    def _write_list(self, value: list[Any] | tuple[Any, ...] | deque[Any], depth: int) -> list[Tree]:
        if depth >= self._max_depth:
            raise self._too_deep()
        writers = self._writers
        out: list[Tree] = []
        try:
            for item in value:
                kind = type(item)
                if kind is str and item.isascii():
                    out.append(item)
                else:
                    out.append(writers[kind](item, depth + 1))
        except Refused as refused:
            refused.inside(f"[{len(out)}]", value)
            raise
        return out

    def _write_dict(self, value: dict[Any, Any], depth: int) -> dict[str, Tree]:
        for key in value:
            if type(key) is not str:
                return self._write_pairs("dict", value, depth)
        if TAG in value:
            return {TAG: "map", "v": self._write_entries(value, depth + 1)}
        return self._write_entries(value, depth)

    def _write_entries(self, value: dict[str, Any], depth: int) -> dict[str, Tree]:
        if depth >= self._max_depth:
            raise self._too_deep()
        writers = self._writers
        out: dict[str, Tree] = {}
        key = ""
        try:
            for key, item in value.items():
                if not key.isascii():
                    check_text(key)
                kind = type(item)
                if kind is str and item.isascii():
                    out[key] = item
                else:
                    out[key] = writers[kind](item, depth + 1)
        except Refused as refused:
            refused.inside(key_part(key), value)
            raise
        return out

    def _write_pairs(self, tag: str, value: Mapping[Any, Any], depth: int) -> dict[str, Tree]:
        if depth >= self._max_depth:
            raise self._too_deep()
        out: list[Tree] = []
        part = ""
        try:
            for key, item in value.items():
                part = f".keys()[{len(out)}]"
                stored = self._writers[type(key)](key, depth + 3)
                part = key_part(key)
                out.append([stored, self._writers[type(item)](item, depth + 3)])
        except Refused as refused:
            refused.inside(part, value)
            raise
        return {TAG: tag, "v": out}

    def _write_tuple(self, value: tuple[Any, ...], depth: int) -> Tree:
        return {TAG: "tuple", "v": self._write_list(value, depth + 1)}

    def _write_deque(self, value: deque[Any], depth: int) -> Tree:
        tag: dict[str, Tree] = {TAG: "deque", "v": self._write_list(value, depth + 1)}
        if value.maxlen is not None:
            tag["m"] = value.maxlen
        return tag

    def _write_set(self, tag: str, value: set[Any] | frozenset[Any], depth: int) -> Tree:
        if depth >= self._max_depth:
            raise self._too_deep()
        try:
            items = [self._writers[type(item)](item, depth + 2) for item in value]
        except Refused as refused:
            refused.inside("[*]", value)
            raise
        return {TAG: tag, "v": sorted(items, key=canonical)}

    def _write_object(self, entry: Entry, shape: Shape, value: Any, depth: int) -> Tree:
        fields, rest = shape.take(value)
        tag = entry.head("obj")
        try:
            tag["f"] = self._write_entries(fields, depth + 1)
            if rest:
                tag["r"] = {section: self._writers[type(part)](part, depth + 2) for section, part in rest.items()}
        except TooDeep as refused:
            refused.inside("", value)
            raise
        return tag

    def _write_enum(self, entry: Entry, shape: EnumShape, value: Enum, depth: int) -> Tree:
        tag = entry.head("enum")
        tag["v"] = shape.take(value)
        return tag

    def _write_custom(self, entry: Entry, custom: Custom, value: Any, depth: int) -> Tree:
        if depth >= self._max_depth:
            raise self._too_deep()
        try:
            inner = custom.encode(value)
        except Exception as error:  # the user's own function, which may raise anything
            raise Refused(f"the encode function of {entry.name} failed: {error!r}") from error
        tag = entry.head("as")
        tag["v"] = self._writers[type(inner)](inner, depth + 1)
        return tag

    def _write_secret(self, value: Secret, _depth: int) -> Tree:
        check_text(value.name)
        tag = to_tag(value)
        self.secrets[tag["t"]] = value
        return {TAG: "secret", **tag}

    # Reading

    def _read(self, tree: Any, as_type: Any) -> Any:
        kind = type(tree)
        if kind is list:
            return self._read_list(tree, as_type)
        if kind is not dict:
            return tree
        return self._read_tag(tree, as_type) if TAG in tree else self._read_entries(tree, as_type)

    def _read_list(self, tree: list[Any], as_type: Any) -> list[Any]:
        out: list[Any] = []
        try:
            for item in tree:
                kind = type(item)
                out.append(self._read(item, as_type) if kind is dict or kind is list else item)
        except Refused as refused:
            refused.inside(f"[{len(out)}]")
            raise
        return out

    def _read_entries(self, tree: dict[str, Any], as_type: Any) -> dict[str, Any]:
        out: dict[str, Any] = {}
        key = ""
        try:
            for key, item in tree.items():
                kind = type(item)
                out[key] = self._read(item, as_type) if kind is dict or kind is list else item
        except Refused as refused:
            refused.inside(key_part(key))
            raise
        return out

    def _read_pairs(self, pairs: list[Any], as_type: Any) -> list[tuple[Any, Any]]:
        out: list[tuple[Any, Any]] = []
        part = ""
        try:
            for stored, item in pairs:
                part = f".keys()[{len(out)}]"
                key = self._read(stored, as_type)
                part = key_part(key)
                out.append((key, self._read(item, as_type)))
        except Refused as refused:
            refused.inside(part)
            raise
        return out

    def _read_tag(self, tag: dict[str, Any], as_type: Any) -> Any:
        name = tag[TAG]
        try:
            if name in READERS:
                return READERS[name](tag)
            if name in self._readers:
                return self._readers[name](tag, as_type)
        except (Refused, RecursionError):
            raise
        except Exception as error:  # a damaged tag may have any shape, and each reader trips over it in its own way
            raise Damaged(f"the stored {name} is damaged ({error!r})") from error
        raise Refused(f"stored with the tag {name!r}, which this Holdfast does not know; upgrade it")

    def _read_object(self, tag: dict[str, Any], as_type: Any) -> Any:
        entry = self._registry.find(tag["t"], as_type)
        if not isinstance(entry.shape, Shape):
            raise Refused(f"stored as fields of {entry.name}, which is no longer such a class")
        fields = entry.upgrade(self._read_entries(tag["f"], as_type), tag.get("n", 1))
        if type(fields) is not dict:
            raise Refused(f"the last upgrade of {entry.name} gave {type(fields).__name__}, not the dict of its fields")
        return entry.shape.make(fields, self._read_rest(tag["r"], as_type) if "r" in tag else {})

    def _read_rest(self, sections: dict[str, Any], as_type: Any) -> dict[str, Any]:
        return {section: self._read(part, as_type) for section, part in sections.items()}

    def _read_secret(self, tag: dict[str, Any], _as_type: Any) -> Secret:
        found = self.secrets.get(tag["t"])
        if found is None:
            found = self.secrets[tag["t"]] = from_tag(tag, self._lookup)
        return found

    def _read_enum(self, tag: dict[str, Any], as_type: Any) -> Any:
        entry = self._registry.find(tag["t"], as_type)
        if not isinstance(entry.shape, EnumShape):
            raise Refused(f"stored as a member of {entry.name}, which is no longer an enum")
        member = tag["v"]
        if (version := tag.get("n", 1)) != entry.version:
            key = "name" if isinstance(member, str) else "value"
            parts = entry.upgrade({key: member}, version)
            if type(parts) is not dict or not parts.keys() & {"name", "value"}:
                raise Refused(f"the last upgrade of {entry.name} gave {parts!r}, not a dict with the member's name")
            member = parts["name"] if "name" in parts else parts["value"]
        return entry.shape.make(member)

    def _read_custom(self, tag: dict[str, Any], as_type: Any) -> Any:
        entry = self._registry.find(tag["t"], as_type)
        if not isinstance(entry.shape, Custom):
            raise Refused(f"stored by functions of {entry.name}; register it with its encode and decode functions")
        inner = entry.upgrade(self._read(tag["v"], as_type), tag.get("n", 1))
        try:
            return entry.shape.decode(inner)
        except Exception as error:  # the user's own function, which may raise anything
            raise Refused(f"the decode function of {entry.name} failed: {error!r}") from error


def _not_storable(kind: type) -> str:
    if kind.__module__ == "builtins":
        remedy = {"coroutine": "; await it first", "generator": "; make a list of it"}.get(kind.__qualname__, "")
        return f"{kind.__qualname__} cannot be stored{remedy}"
    return (
        f"{kind.__qualname__} cannot be stored; convert it, or register it with "
        f"hf.register({kind.__name__}, encode=..., decode=...)"
    )
