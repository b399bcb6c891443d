"""Errors as data: what a step raised is kept with its type, and raised again as what it was.

`describe` makes a JSON-able tree of an error, without the values of secrets. `revive` makes the error again. Stored
data must not run code: a type is only looked up among the modules that are loaded already, and an error is filled by
the functions of the interpreter alone, never by a constructor, property or method of its class. What cannot be made
like that comes back as `StepFailed`, with the same text.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from types import MemberDescriptorType, ModuleType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

import holdfast
from holdfast.codec import Codec, Tree, to_text
from holdfast.engine.access.operations import Op
from holdfast.errors import ActionFailed, StepFailed, TypeMissing
from holdfast.kernel.journal import Data
from holdfast.kernel.model import Kind

if TYPE_CHECKING:
    from holdfast.engine.workflow.execution import Execution

MESSAGE_CHARS = 2_000
TRACEBACK_CHARS = 8_000
CHAIN = 5  # causes of causes, and groups in groups
MEMBERS = 20  # of one group
NOTES = 20
ERRORS = 100  # in one description, whatever its form
VALUE_BYTES = 256 * 1024  # of all args and attributes together: a failure must never be too large to be kept

_FRAMES = 60
_LOOKED_AT = 4 * _FRAMES  # for these
_OWN = os.path.join(os.path.dirname(holdfast.__file__), "")
_ORIGINAL = "The original traceback:\n"
_MADE_IN_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE

# Their `__str__` trusts its fields to be of the right types; so these are set by their own `__init__`, which checks.
_CHECKED = (UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError)


class _Failure(Struct, omit_defaults=True):
    """What is kept of an error. ``args`` is None if they could not be kept; ``group`` is the text of a group."""

    type: str
    message: str
    args: list[Any] | None = None
    attributes: dict[str, Any] = {}
    traceback: str = ""
    notes: list[str] = []
    cause: _Failure | None = None
    context: _Failure | None = None
    group: str | None = None
    members: list[_Failure] = []


def describe(error: BaseException, codec: Codec) -> dict[str, Any]:
    """The error as JSON-able data; what of it cannot be stored is left out. Never fails."""
    return codec.take_out_secrets(msgspec.to_builtins(_Describing(codec).failure(error, CHAIN)))


def revive(data: Any, codec: Codec) -> Exception:
    """The error that was described; raises ValueError for what `describe` did not make."""
    try:
        return _revived(_read(data), codec)
    except RecursionError:
        raise ValueError("a stored error is nested too deeply") from None


def account_of(error: BaseException, codec: Codec, limit: int) -> dict[str, Any]:
    """What an entry says of an error: ``error`` for people, and ``failure`` as described. Both fit in the limit."""
    text, failure = one_line(error, codec), describe(error, codec)
    if len(to_text([text, failure])) > limit // 2:
        text = text[: limit // 16]
        failure = {"type": failure["type"], "message": failure["message"][: limit // 16]}
    return {"error": text, "failure": failure}


def one_line(error: BaseException, codec: Codec) -> str:
    """One line for people, without the values of secrets: ``ValueError: text``. Never fails."""
    name = "" if isinstance(error, ActionFailed) and error.speaks_for_itself else f"{type(error).__name__}: "
    return _clean(codec.scrub(name + _text_of(error)))[:MESSAGE_CHARS]


def summary(data: Any) -> str:
    """One line for lists: ``ValueError: text``."""
    failure = _read(data)
    name = failure.type.rpartition(":")[2].rpartition(".")[2]
    return f"{name}: {failure.message}" if failure.message else name


def _read(data: Any) -> _Failure:
    try:
        failure = msgspec.convert(data, _Failure)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(f"a stored error is damaged: {error}") from None
    for one in _all_of(failure):
        if ":" not in one.type:
            raise ValueError(f"a stored error is damaged: {one.type!r} is not module:name")
    return failure


def _all_of(failure: _Failure) -> Iterator[_Failure]:
    todo = [failure]
    while todo:
        one = todo.pop()
        yield one
        todo += [part for part in (one.cause, one.context, *one.members) if part is not None]


# --- describing


class _Describing:
    """One description, and how much more it may hold."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._room = VALUE_BYTES
        self._errors = ERRORS

    def failure(self, error: BaseException, chain: int) -> _Failure:
        self._errors -= 1
        notes, trace = self._notes(error)
        failure = _Failure(
            type=_clean(f"{type(error).__module__}:{type(error).__qualname__}"),
            message=self._text(_text_of(error))[:MESSAGE_CHARS],
            args=self._args(error),
            attributes=self._attributes(error),
            traceback=trace or self._traceback(error),
            notes=notes,
            cause=self._linked(error.__cause__, chain),
            context=None if error.__suppress_context__ else self._linked(error.__context__, chain),
        )
        if isinstance(error, BaseExceptionGroup):
            failure.group = self._text(error.message)[:MESSAGE_CHARS]
            members = [self._linked(member, chain) for member in error.exceptions[:MEMBERS]]
            failure.members = [member for member in members if member is not None]
        return failure

    def _linked(self, error: BaseException | None, chain: int) -> _Failure | None:
        return self.failure(error, chain - 1) if error is not None and chain and self._errors > 0 else None

    def _text(self, text: str) -> str:
        # Before it is cut: the first half of a secret is secret too.
        return _clean(self._codec.scrub(text))

    def _args(self, error: BaseException) -> list[Tree] | None:
        kept = self._kept(list(error.args))
        return None if kept is None else kept[0]

    def _attributes(self, error: BaseException) -> dict[str, Tree]:
        found: dict[str, Any] = {}
        for name, member in _members(type(error)).items():
            with suppress(AttributeError):  # a slot that is empty
                found[name] = member.__get__(error)
                # An empty field of a builtin error reads as None, and filling it with None is not the same.
                if found[name] is None and not member.__objclass__.__flags__ & _MADE_IN_PYTHON:
                    del found[name]
        found |= {name: value for name, value in vars(error).items() if isinstance(name, str) and not _is_special(name)}
        kept = {_clean(name): self._kept(value) for name, value in found.items()}
        return {name: tree[0] for name, tree in kept.items() if tree is not None}

    def _kept(self, value: Any) -> tuple[Any] | None:
        """The tree of a value, if it can be stored and there is room for it."""
        try:
            tree = self._codec.encode_scrubbed(value)
            size = len(to_text(tree))
        except Exception:  # whatever a user's object does when it is looked at: the failure itself must be kept
            return None
        if size > self._room:
            return None
        self._room -= size
        return (tree,)

    def _notes(self, error: BaseException) -> tuple[list[str], str]:
        """The notes, and the first traceback of an error that was revived before: that is the one to keep."""
        found = getattr(error, "__notes__", [])
        texts = [self._text(note) for note in found if isinstance(note, str)] if isinstance(found, list) else []
        traces = [text.removeprefix(_ORIGINAL) for text in texts if text.startswith(_ORIGINAL)]
        notes = [text[:MESSAGE_CHARS] for text in texts if not text.startswith(_ORIGINAL)]
        return notes[:NOTES], traces[0][-TRACEBACK_CHARS:] if traces else ""

    def _traceback(self, error: BaseException) -> str:
        """The innermost frames of the user's code, as many as there is room for; if it has none, Holdfast's own."""
        found = traceback.extract_tb(error.__traceback__, limit=-_LOOKED_AT)
        theirs = [frame for frame in found if not frame.filename.startswith(_OWN)] or found
        frames = [self._text(frame) for frame in traceback.StackSummary.from_list(theirs[-_FRAMES:]).format()]
        kept: list[str] = []
        room = TRACEBACK_CHARS
        for frame in reversed(frames):
            if len(frame) > room:
                break
            room -= len(frame)
            kept.append(frame)
        return "".join(reversed(kept))


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as problem:  # the error's own __str__, which may raise anything
        return f"<its text cannot be made: {type(problem).__name__}>"


def _clean(text: str) -> str:
    """The text as JSON can say it: no lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _members(cls: type) -> dict[str, MemberDescriptorType]:
    """What an error of this class has beside its ``__dict__``: the fields of builtin errors, and ``__slots__``."""
    return {
        name: member
        for base in reversed(cls.__mro__)
        if base not in _CHECKED and base is not BaseExceptionGroup
        for name, member in _names_in(base).items()
        # `obj` is whatever was asked for an attribute, which has no place in a journal.
        if isinstance(member, MemberDescriptorType)
        and not _is_special(name)
        and (base, name) != (AttributeError, "obj")
    }


# --- reviving


def _revived(failure: _Failure, codec: Codec) -> Exception:
    error = _own(failure, codec) or StepFailed(failure.type, failure.message)
    for note in failure.notes:
        BaseException.add_note(error, note)
    if failure.traceback:
        BaseException.add_note(error, _ORIGINAL + failure.traceback)
    if failure.context is not None:
        object.__setattr__(error, "__context__", _revived(failure.context, codec))
    if failure.cause is not None:
        object.__setattr__(error, "__cause__", _revived(failure.cause, codec))
    return error


def _own(failure: _Failure, codec: Codec) -> Exception | None:
    """The error as its own type; None if that is not possible."""
    cls = _class_of(failure.type)
    if cls is None:
        return None
    args = _args_of(failure, codec)
    attributes = {name: _decoded(tree, codec) for name, tree in failure.attributes.items()}
    if issubclass(cls, BaseExceptionGroup):
        args = (failure.group, [_revived(member, codec) for member in failure.members])
    try:
        error = _made(cls, (failure.message,) if args is None else args)
    except (TypeError, ValueError, OverflowError):  # only its own module can make it, or what it needs is not there
        return None
    _fill(error, {name: value[0] for name, value in attributes.items() if value is not None})
    return error if args is not None or _says(error, failure.message) else None


def _made(cls: type[Exception], args: tuple[Any, ...]) -> Exception:
    """An error of the class with these args and nothing else; by no code of the class's own."""
    base: Any = cls
    while base.__flags__ & _MADE_IN_PYTHON:
        base = base.__base__
    error: Exception
    if issubclass(cls, BaseExceptionGroup):
        error = base.__new__(cls, *args)
        return error
    error = base.__new__(cls)
    BaseException.__init__(error, *args)
    if issubclass(cls, OSError) and 2 <= len(args) <= 5:  # as its own constructor does, also with None
        _fill(error, {"errno": args[0], "strerror": args[1]})
    if issubclass(cls, _CHECKED):
        if any(type(arg) is int and arg < 0 for arg in args):  # older Pythons read memory at such an offset
            raise ValueError("a negative position")
        base.__init__(error, *args)
    return error


def _fill(error: Exception, attributes: dict[str, Any]) -> None:
    members = _members(type(error))
    own = object.__getattribute__(error, "__dict__")
    for name, value in attributes.items():
        if name in members:
            with suppress(AttributeError, TypeError, ValueError, OverflowError):  # read-only, or not of this type
                members[name].__set__(error, value)
        elif not _is_special(name):
            own[name] = value


def _says(error: Exception, message: str) -> bool:
    """Whether an error whose args were lost still has its text; asked only of a `__str__` of the interpreter's."""
    return isinstance(type(error).__str__, WrapperDescriptorType) and _text_of(error) == message


def _args_of(failure: _Failure, codec: Codec) -> tuple[Any, ...] | None:
    args = _decoded(failure.args, codec) if failure.args is not None else None
    return None if args is None else tuple(args[0])


def _decoded(tree: Tree, codec: Codec) -> tuple[Any] | None:
    try:
        return (codec.decode(tree),)
    except TypeMissing:
        return None


def _class_of(name: str) -> type[Exception] | None:
    """The class of this name in a module that is loaded already, if it is that of an error."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    if not issubclass(type(found), ModuleType):
        return None
    for part in path.split("."):
        names = _names_in(found)
        if part not in names:
            return None
        found = names[part]
    return found if issubclass(type(found), type) and issubclass(found, Exception) else None


def _names_in(thing: Any) -> dict[str, Any]:
    """What a module or class itself defines. Plain getattr might run a module's `__getattr__`, which may import."""
    if issubclass(type(thing), type):
        return type.__getattribute__(thing, "__dict__")  # type: ignore[no-any-return]
    if issubclass(type(thing), ModuleType):
        return object.__getattribute__(thing, "__dict__")  # type: ignore[no-any-return]
    return {}


def fail(execution: Execution, key: str, data: Data, error: Exception) -> Op[int]:
    """Journal that a call has failed for good; the number of the entry."""
    execution.failed.append((error, key))
    said = account_of(error, execution.codec, execution.run.journals.max_bytes)
    return (yield from execution.write([(Kind.RAISED, {**data, "final": True, **said})]))
