"""Containers and objects that refuse to be changed, so that what was saved cannot be changed behind the journal's back.

They are lists, dicts, sets and objects of their class for everybody who reads, compares, copies or pickles them; all
copies, and what ``+``, ``|`` and ``type(it)(...)`` give, are plain. Whoever owns a container changes it by the methods
of the builtin type itself (``list.extend(it, ...)``). They are stored as what they stand for.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any, NamedTuple, NoReturn

from msgspec import Struct

from holdfast.codec.shapes import Shape, shape_of
from holdfast.errors import StateReadOnly

REMEDY = "return an update instead, or change a copy of it"
_PLAIN = frozenset({str, int, float, bool, type(None), bytes})  # most values: there is nothing in them to be changed


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        kind = type(self).__mro__[1].__name__
        raise StateReadOnly(f"the {kind} is a part of a saved state, and {name} would change it; {REMEDY}")

    refuse.__name__ = name
    return refuse


def _refusing(names: str) -> dict[str, Callable[..., NoReturn]]:
    return {name: _refuse(name) for name in names.split()}


class ReadOnlyList(list[Any]):
    """A list of a state."""

    vars().update(
        _refusing(
            "__init__ append extend insert remove pop clear sort reverse __setitem__ __delitem__ __iadd__ __imul__"
        )
    )

    def __new__(cls, *items: Any) -> Any:
        """A plain list: whoever makes one of the same type makes one of his own."""
        return list(*items)

    def copy(self) -> list[Any]:
        """A plain list of the same items."""
        return list(self)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return thawed(self)  # type: ignore[no-any-return]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return list, (list(self),)


class ReadOnlyDict(dict[Any, Any]):
    """A dict of a state."""

    vars().update(_refusing("__init__ update pop popitem clear setdefault __setitem__ __delitem__ __ior__"))

    def __new__(cls, *items: Any, **more: Any) -> Any:
        """A plain dict: whoever makes one of the same type makes one of his own."""
        return dict(*items, **more)

    def copy(self) -> dict[Any, Any]:
        """A plain dict of the same entries."""
        return dict(self)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        return thawed(self)  # type: ignore[no-any-return]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (dict(self),)


class ReadOnlySet(set[Any]):
    """A set of a state."""

    vars().update(
        _refusing(
            "__init__ add remove discard pop clear update difference_update intersection_update "
            "symmetric_difference_update __ior__ __iand__ __isub__ __ixor__"
        )
    )

    def __new__(cls, *items: Any) -> Any:
        """A plain set: whoever makes one of the same type makes one of his own."""
        return set(*items)

    def copy(self) -> set[Any]:
        """A plain set of the same elements."""
        return set(self)

    __copy__ = copy

    def __repr__(self) -> str:
        return repr(set(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> set[Any]:
        return set(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return set, (set(self),)


class ReadOnlyDeque(deque[Any]):
    """A deque of a state."""

    vars().update(
        _refusing(
            "__init__ append appendleft clear extend extendleft insert pop popleft remove reverse rotate __setitem__ "
            "__delitem__ __iadd__ __imul__"
        )
    )

    def __new__(cls, *given: Any, **how: Any) -> Any:
        """A plain deque: whoever makes one of the same type makes one of his own."""
        return deque(*given, **how)

    def copy(self) -> Any:
        """A plain deque of the same items."""
        return deque(self, self.maxlen)

    def __copy__(self) -> Any:
        return self.copy()

    def __repr__(self) -> str:
        return repr(self.copy())

    def __deepcopy__(self, memo: dict[int, Any]) -> deque[Any]:
        return thawed(self)  # type: ignore[no-any-return]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return deque, (list(self), self.maxlen)


class ReadOnlyOrderedDict(OrderedDict[Any, Any]):
    """An ordered dict of a state."""

    vars().update(_refusing("__init__ update pop popitem clear setdefault move_to_end __setitem__ __delitem__ __ior__"))

    def __new__(cls, *items: Any, **more: Any) -> Any:
        """A plain one: whoever makes one of the same type makes one of his own."""
        return OrderedDict(*items, **more)

    def copy(self) -> Any:
        """A plain one with the same entries."""
        return OrderedDict(self)

    __copy__ = copy

    def __repr__(self) -> str:
        return repr(self.copy())

    def __deepcopy__(self, memo: dict[int, Any]) -> OrderedDict[Any, Any]:
        return thawed(self)  # type: ignore[no-any-return]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return OrderedDict, (list(self.items()),)


def read_only_dict(items: dict[Any, Any]) -> ReadOnlyDict:
    """A dict of a state, with these entries."""
    made: ReadOnlyDict = dict.__new__(ReadOnlyDict)
    dict.update(made, items)
    return made


class Quiet:
    """To derive from first: a class that keeps a list of those that derive from it is not told of this one."""

    __slots__ = ()

    def __init_subclass__(cls, **how: Any) -> None:
        """In place of that of the class."""

    @classmethod
    def __pydantic_init_subclass__(cls, **how: Any) -> None:
        """In place of that of the model."""


class _ReadOnly(Quiet):
    """What all classes of read-only objects derive from first, so that it comes before what their class does."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise StateReadOnly(f"{_name(self)}.{name} is a part of a saved state, and cannot be set; {REMEDY}")

    def __delattr__(self, name: str) -> NoReturn:
        raise StateReadOnly(f"{_name(self)}.{name} is a part of a saved state, and cannot be deleted; {REMEDY}")

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The original: for what compares classes, and what makes another object of the same."""
        return original(type(self))

    def __copy__(self) -> Any:
        return copy(_plain(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return deepcopy(thawed(self), memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return thawed(self).__reduce_ex__(protocol)


class _ReadOnlyStruct(_ReadOnly):
    """A msgspec struct compares types, and not what `__class__` says."""

    __slots__ = ()

    def __eq__(self, other: object) -> Any:
        return _plain(self) == _plain(other)

    def __lt__(self, other: Any) -> Any:
        return _plain(self) < _plain(other)

    def __le__(self, other: Any) -> Any:
        return _plain(self) <= _plain(other)

    def __gt__(self, other: Any) -> Any:
        return _plain(self) > _plain(other)

    def __ge__(self, other: Any) -> Any:
        return _plain(self) >= _plain(other)

    def __hash__(self) -> int:
        return hash(_plain(self))


def _name(value: Any) -> str:
    return original(type(value)).__name__


class _Shapes(NamedTuple):
    """How the objects of a class are taken apart and made, those that can be changed and those that refuse it."""

    plain: Shape
    read_only: Shape


_originals: dict[type, type] = {
    ReadOnlyDeque: deque,
    ReadOnlyOrderedDict: OrderedDict,
}  # of classes whose objects refuse to be changed: what they are otherwise
_shapes: dict[type, _Shapes | None] = {}  # None: its objects stay as they are


def read_only_class(cls: type[Any]) -> type[Any]:
    """A class like this one whose objects refuse that their attributes are set. They are stored as the original's."""
    known = _shapes_of(cls)
    if known is None:
        raise TypeError(f"{cls.__qualname__} cannot be derived from")
    return known.read_only.cls


def original(cls: type[Any]) -> type[Any]:
    """The class that a class was made read-only of; any other is itself."""
    return _originals.get(cls, cls)


def _shapes_of(cls: type[Any]) -> _Shapes | None:
    try:
        return _shapes[cls]
    except KeyError:
        _shapes[cls] = _found(cls)
        return _shapes[cls]


def _found(cls: type[Any]) -> _Shapes | None:
    shape = shape_of(cls)
    if shape is None:
        return None
    if issubclass(cls, tuple):
        return _Shapes(shape, shape)
    mixin = _ReadOnlyStruct if issubclass(cls, Struct) and cls.__struct_config__.eq else _ReadOnly
    metaclass: Any = type(cls)
    body = {"__module__": cls.__module__, "__doc__": cls.__doc__, "__qualname__": cls.__qualname__}
    try:
        made: type[Any] = metaclass(cls.__name__, (mixin, cls), body)
    except TypeError:  # a class that cannot be derived from
        return None
    _originals[made] = cls
    read_only = shape_of(made)
    return _Shapes(shape, read_only) if read_only is not None else None


def frozen(value: Any) -> Any:
    """The value with every list, dict, set and object in it made one that refuses to be changed."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list:
        made: ReadOnlyList = list.__new__(ReadOnlyList)
        list.extend(made, [frozen(item) for item in value])
        return made
    if kind is dict:
        return read_only_dict({key: frozen(item) for key, item in value.items()})
    if kind is tuple:
        return tuple([frozen(item) for item in value])
    if kind is set:
        several: ReadOnlySet = set.__new__(ReadOnlySet)
        set.update(several, value)
        return several
    if kind is deque:
        queue: ReadOnlyDeque = deque.__new__(ReadOnlyDeque)
        deque.__init__(queue, [frozen(item) for item in value], value.maxlen)
        return queue
    if kind is OrderedDict:
        ordered: ReadOnlyOrderedDict = OrderedDict.__new__(ReadOnlyOrderedDict)
        for key, item in value.items():
            OrderedDict.__setitem__(ordered, key, frozen(item))
        return ordered
    if kind in _originals or (shapes := _shapes_of(kind)) is None:
        return value
    fields, rest = shapes.plain.take(value)
    return shapes.read_only.make({name: frozen(item) for name, item in fields.items()}, rest)


def thawed(value: Any) -> Any:
    """The value with plain containers and objects again."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is ReadOnlyList:
        return [thawed(item) for item in value]
    if kind is ReadOnlyDict:
        return {key: thawed(item) for key, item in value.items()}
    if kind is tuple:
        return tuple([thawed(item) for item in value])
    if kind is ReadOnlySet:
        return set(value)
    if kind is ReadOnlyDeque:
        return deque([thawed(item) for item in value], value.maxlen)
    if kind is ReadOnlyOrderedDict:
        return OrderedDict((key, thawed(item)) for key, item in value.items())
    cls = _originals.get(kind, kind if issubclass(kind, tuple) else None)
    shapes = _shapes_of(cls) if cls is not None else None
    if shapes is None:
        return value
    fields, rest = shapes.read_only.take(value)
    return shapes.plain.make({name: thawed(item) for name, item in fields.items()}, rest)


def _plain(value: Any) -> Any:
    """The object as one of the original class, with the same fields; anything else is itself."""
    cls = _originals.get(type(value))
    shapes = _shapes_of(cls) if cls is not None else None
    return value if shapes is None else shapes.plain.make(*shapes.read_only.take(value))
