"""LangGraph's values to trees and back.

LangGraph's own serializer decides what a value is stored as: it gives a type and bytes, mostly MessagePack. What is
MessagePack is kept as the tree that it says, in the tags that all of Holdfast's payloads have, so that a message can be
read by any tool, and so that two states can be compared element by element. From the tree the same bytes are made
again, and LangGraph's serializer reads them. Anything else is kept as the bytes that it is.

    {"$": "obj", "t": "module:name", "f": {...}, "m": [5, ...]}       an object of fields, by LangGraph's extension 5
    {"$": "as", "t": "msgpack:0", "v": [module, name, argument]}      any other, by extension 0
    {"$": "as", "t": "langgraph:msgpack+aes", "v": {"$": "bytes"}}    what another serializer gave, and its type
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.codec.tree import TAG, Tree, from_base64, to_base64
from holdfast.errors import NotStorable, TypeMissing, UsageError
from holdfast.integrations.langgraph.grown_list import PACK, Look, Marks

_EXTENSION = "msgpack:"
_OF_FIELDS = (2, 4, 5)  # extensions for objects that are given as a class and its fields
_UNREAD = "msgpack-bytes:"  # an extension whose contents are not MessagePack
_OTHER = "langgraph:"

LARGE = 1 << 62  # what an integer must be smaller than,
SMALL = 16  # elements of a container that is looked through rather than packed, and
SHALLOW = 8  # how many there may be inside of each other

_READ = ormsgpack.OPT_NON_STR_KEYS


class Cells:
    """What one serializer makes of values."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde
        # Whether the bytes of a list are those of its elements, one after the other.
        self.by_element = type(serde) is JsonPlusSerializer

    def tree(self, value: Any, place: str, *part: str) -> Tree:
        """The tree of a value; raises `NotStorable` with its place for what the serializer refuses.

        It may be part of what is at that place, such as ``"channel", "messages"``.
        """
        if self.by_element and (tree := _simple_now(value)) is not _NO_TREE:
            return tree  # type: ignore[no-any-return]
        if part:
            place = f"{' '.join([part[0], *map(repr, part[1:])])} of {place}"
        dumped = self._dumped(value, place)
        try:
            return tree_of(*dumped, place)
        except RecursionError as error:
            raise _refused(place, error) from error

    def element(self, value: Any, place: str, *part: str) -> Tree:
        """The tree of an element of a list, where the list has one by element."""
        if type(value) is bytearray:  # which is told apart by itself only
            listed: Any = self.tree([value], place, *part)
            return listed[0]  # type: ignore[no-any-return]
        return self.tree(value, place, *part)

    def trees(self, values: dict[str, Any], place: str) -> dict[str, Tree]:
        """The trees of values by name."""
        if self.by_element and (trees := _simple_now(values)) is not _NO_TREE:
            return trees  # type: ignore[no-any-return]
        return {name: self.tree(value, place, name) for name, value in values.items()}

    def value(self, tree: Tree, place: str) -> Any:
        """The value of a tree; raises `TypeMissing` for what the serializer cannot read."""
        kind, data = typed(tree)
        try:
            return self.serde.loads_typed((kind, data))
        except NotImplementedError as error:
            raise TypeMissing(place, f"it is of serialization type {kind!r}; give the saver that serializer") from error

    def looks(self, value: list[Any]) -> list[Look]:
        """What is to be remembered of the elements of a list before its tree is made, if each has a tree of its own."""
        return [Look.at(each) for each in value] if self.by_element else []

    def marks(self) -> Marks:
        """To tell whether a list has only grown since."""
        return Marks(lambda each: self.serde.dumps_typed(each)[1])

    def _dumped(self, value: Any, place: str) -> tuple[str, bytes]:
        try:
            return self.serde.dumps_typed(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise _refused(place, error) from error


def by_id(looks: Sequence[Look], tree: Any) -> dict[int, tuple[Look, Tree]]:
    """The elements of a list with their trees, by their ids."""
    return {id(look.value): (look, each) for look, each in zip(looks, tree, strict=True)}


def _refused(place: str, error: Exception) -> NotStorable:
    problem = str(error.__cause__ or error) or type(error).__name__
    return NotStorable(place, f"LangGraph's serializer refuses it ({problem}); give a dataclass or a pydantic model")


def check_serde(serde: Any) -> None:
    """Raise `UsageError` for a serializer that pickles: what is unpickled can run any code."""
    inner = getattr(serde, "serde", serde)
    if getattr(inner, "pickle_fallback", False) or getattr(inner, "__name__", "") in ("pickle", "dill", "cloudpickle"):
        raise UsageError("serde= pickles, and Holdfast never does; use JsonPlusSerializer() without pickle_fallback")


# --- typed bytes and trees


def tree_of(kind: str, data: bytes, place: str) -> Tree:
    """The tree of what a serializer gave."""
    if kind == "msgpack":
        try:
            tree: Tree = _tree(ormsgpack.unpackb(data, ext_hook=_Extension, option=_READ))
            return tree
        except ormsgpack.MsgpackDecodeError:
            pass  # of a serializer that means something else by that name
    elif kind == "null" and not data:
        return None
    elif kind in ("bytes", "bytearray"):
        return {TAG: kind, "v": to_base64(data)}
    elif kind.startswith("pickle"):
        raise NotStorable(place, "it would be pickled, and Holdfast never does; use JsonPlusSerializer()")
    return {TAG: "as", "t": _OTHER + kind, "v": {TAG: "bytes", "v": to_base64(data)}}


def typed(tree: Any) -> tuple[str, bytes]:
    """What the serializer gave for the value of a tree."""
    if tree is None:
        return "null", b""
    if type(tree) is dict and (tag := tree.get(TAG)) is not None:
        if tag in ("bytes", "bytearray"):
            return tag, from_base64(tree["v"])
        if tag == "as" and tree["t"].startswith(_OTHER):
            return tree["t"].removeprefix(_OTHER), from_base64(tree["v"]["v"])
    return "msgpack", _packed(_plain(tree))


class _Extension:
    """An object in MessagePack, unread."""

    __slots__ = ("code", "data")

    def __init__(self, code: int, data: bytes) -> None:
        self.code = code
        self.data = data


def _simple(value: Any, levels: int = SHALLOW) -> Any:
    """The tree of a value that would come back from MessagePack, and from JSON, as what it is; of small ones only.

    It is asked several times for each checkpoint, so what is mostly there, texts, is not asked about by itself.
    """
    kind = type(value)
    if value is None or kind is bool or (kind is str and value.isascii()) or (kind is int and -LARGE < value < LARGE):
        return value
    if kind is dict and levels and len(value) <= SMALL and TAG not in value:
        entries: dict[str, Any] = {}
        for key, each in value.items():
            if type(key) is not str or not key.isascii():
                return _NO_TREE
            is_text = type(each) is str and each.isascii()
            entries[key] = tree = each if is_text else _simple(each, levels - 1)
            if tree is _NO_TREE:
                return tree
        return entries
    if kind is list and levels and len(value) <= SMALL:
        trees = [each if type(each) is str and each.isascii() else _simple(each, levels - 1) for each in value]
        return trees if _NO_TREE not in trees else _NO_TREE
    return _NO_TREE


def _simple_now(value: Any) -> Any:
    """The same, while others may change the value."""
    try:
        return _simple(value)
    except RuntimeError:  # a dict that another thread changes meanwhile; to pack it takes one moment
        return _NO_TREE


_NO_TREE = object()


def _packed(value: Any) -> bytes:
    return ormsgpack.packb(value, option=PACK)


def _tree(value: Any) -> Any:
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is list:
        return [_tree(each) for each in value]
    if kind is dict:
        return _tree_of_dict(value)
    if kind is float:
        return value if math.isfinite(value) else {TAG: "float", "v": str(value)}
    if kind is bytes:
        return {TAG: "bytes", "v": to_base64(value)}
    if kind is tuple:  # only as a key
        return {TAG: "tuple", "v": [_tree(each) for each in value]}
    assert kind is _Extension
    return _tree_of_extension(value)


def _tree_of_dict(value: dict[Any, Any]) -> dict[str, Any]:
    for key in value:
        if type(key) is not str:
            return {TAG: "dict", "v": [[_tree(key), _tree(each)] for key, each in value.items()]}
    entries = {key: _tree(each) for key, each in value.items()}
    return {TAG: "map", "v": entries} if TAG in value else entries


def _tree_of_extension(value: _Extension) -> dict[str, Any]:
    try:
        inside = _tree(ormsgpack.unpackb(value.data, ext_hook=_Extension, option=_READ))
    except ormsgpack.MsgpackDecodeError:
        return {TAG: "as", "t": f"{_UNREAD}{value.code}", "v": {TAG: "bytes", "v": to_base64(value.data)}}
    match inside:
        case [str(module), str(name), dict(fields), *more] if value.code in _OF_FIELDS and TAG not in fields:
            if ":" not in module:
                return {TAG: "obj", "t": f"{module}:{name}", "f": fields, "m": [value.code, *more]}
    return {TAG: "as", "t": f"{_EXTENSION}{value.code}", "v": inside}


def _plain(tree: Any) -> Any:
    """What MessagePack is made of."""
    kind = type(tree)
    if kind is list:
        return [_plain(each) for each in tree]
    if kind is dict:
        if TAG in tree:
            return _TAGS[tree[TAG]](tree)
        return {key: _plain(each) for key, each in tree.items()}
    return tree


def _plain_extension(tree: dict[str, Any]) -> Any:
    name, _, code = tree["t"].rpartition(":")
    inside = _plain(tree["v"])
    return ormsgpack.Ext(int(code), inside if name + ":" == _UNREAD else _packed(inside))


def _plain_object(tree: dict[str, Any]) -> Any:
    module, _, name = tree["t"].partition(":")
    code, *more = tree["m"]
    return ormsgpack.Ext(code, _packed([module, name, _plain(tree["f"]), *map(_plain, more)]))


_TAGS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "as": _plain_extension,
    "bytes": lambda tree: from_base64(tree["v"]),
    "dict": lambda tree: {_plain(key): _plain(each) for key, each in tree["v"]},
    "float": lambda tree: float(tree["v"]),
    "map": lambda tree: {key: _plain(each) for key, each in tree["v"].items()},
    "obj": _plain_object,
    "tuple": lambda tree: tuple(_plain(each) for each in tree["v"]),
}
