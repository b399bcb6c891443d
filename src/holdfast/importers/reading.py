"""Reading what somebody else wrote: nothing outside of the given folder, nothing endless, nothing unchecked.

Files are only opened for reading. A symbolic link that leads out of the folder is not followed; what is no ordinary
file (a pipe, a device) is not opened. JSON is checked against a record's types, and for depth and numbers as the Rust
programs that wrote it would.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from hashlib import sha256
from typing import Annotated, Any, BinaryIO, TypeVar

import msgspec

from holdfast.errors import UsageError
from holdfast.importers.records import Damaged

MAX_BYTES = 64 * 1024 * 1024  # of one file, or of one line of a file of lines
MAX_DEPTH = 128  # serde_json itself reads no deeper

T = TypeVar("T")
Count = Annotated[int, msgspec.Meta(ge=0)]  # usize, u64: that none has more than 64 bits is checked of all numbers
Count32 = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Seconds = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # i64
Name = Annotated[str, msgspec.Meta(min_length=1)]
Label = Annotated[str, msgspec.Meta(max_length=512)]  # what runs are listed by, in the clear


class Unreadable(Exception):
    """What is wrong with a file, and where in it."""

    def __init__(self, place: str, why: str) -> None:
        self.place = place
        self.why = why
        super().__init__(f"{place}: {why}")


class Source:
    """The folder or the single file that is imported from."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        given = os.fspath(path)
        if not isinstance(given, str) or not given or "\0" in given:
            raise UsageError(f"path={given!r}: give the path of a folder or a file")
        self.path = os.path.realpath(os.path.expanduser(given))
        if not os.path.exists(self.path):
            raise UsageError(f"there is nothing at {told(given)}; give the folder, or one file, of the other system")
        self.is_file = not os.path.isdir(self.path)
        self.root = os.path.dirname(self.path) if self.is_file else self.path

    def name(self, path: str) -> str:
        """A path as it is told: from the folder on."""
        return told(os.path.relpath(path, self.root))

    def damaged(self, path: str, error: Unreadable) -> Damaged:
        """The record of what is wrong with a file."""
        return Damaged(self.name(path), error.place, error.why)

    def inside(self, path: str) -> str:
        """The real path; raises `Unreadable` if it lies outside of the folder."""
        real = os.path.realpath(path)
        if os.path.commonpath([real, self.root]) != self.root:
            raise Unreadable("the file", "it is a symbolic link that leads out of the folder, and is not followed")
        return real

    def names(self, folder: str) -> list[str]:
        """The names in a folder, in order; raises `Unreadable`."""
        try:
            return sorted(os.listdir(self.inside(folder)))
        except OSError as error:
            raise Unreadable("the folder", f"it cannot be read: {error.strerror}") from None

    def open(self, path: str) -> BinaryIO:
        """An ordinary file, open for reading; raises `Unreadable`."""
        try:
            # Without waiting: a pipe would hold us up for ever.
            opened = os.open(self.inside(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise Unreadable("the file", f"it cannot be read: {error.strerror}") from None
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise Unreadable("the file", "it is no ordinary file")
        return os.fdopen(opened, "rb")

    def read(self, path: str) -> bytes:
        """All of a file; raises `Unreadable`."""
        try:
            with self.open(path) as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise Unreadable("the file", f"it cannot be read: {error.strerror}") from None
        if len(data) > MAX_BYTES:
            raise Unreadable("the file", f"it is larger than {MAX_BYTES:,} bytes")
        return data


def files_named(source: Source, *endings: str) -> Iterator[str]:
    """The files of a folder with these endings, in order, or the one file that was given."""
    if source.is_file:
        yield source.path
        return
    for name in source.names(source.path):
        if name.endswith(endings) and name not in endings:
            yield os.path.join(source.path, name)


def told(path: str) -> str:
    """A path as text that can be stored and shown, whatever bytes it has."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def digest_of(*pieces: bytes) -> str:
    """What tells one content from another."""
    whole = sha256()
    for piece in pieces:
        whole.update(len(piece).to_bytes(8))
        whole.update(piece)
    return whole.hexdigest()


def is_named_after(file: str, id: str) -> bool:
    """Whether a file has the name ``<id>.json`` or the like. An id may have slashes, and then lies in a folder."""
    return _stem(file) == _composed(id.rsplit("/", 1)[-1])


def has_safe_name(file: str, id: str) -> bool:
    """Whether a file is named after an id in which some characters were replaced by ``_``."""
    stem, wanted = _stem(file), _composed(id)
    return len(stem) == len(wanted) and all(a in (b, "_") for a, b in zip(stem, wanted, strict=True))


def _stem(file: str) -> str:
    return _composed(os.path.basename(file).rpartition(".")[0])


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)  # some disks store names decomposed


# --- JSON -------------------------------------------------------------------------------------------------------------

_TOO_DEEP = f"it is nested deeper than {MAX_DEPTH} levels"
_BYTE = re.compile(r" \(byte (\d+)\)$")


def decode(data: bytes, kind: type[T]) -> tuple[dict[str, Any], T]:
    """A record as it stands in the JSON, and checked; raises `Unreadable` naming the place."""
    raw = _parsed(data)
    _check(raw)
    try:
        return raw, msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None


def _parsed(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None
    except RecursionError:
        raise Unreadable("$", _TOO_DEEP) from None
    except UnicodeDecodeError:
        raise Unreadable(f"byte {_not_utf8(data)}", "it is not UTF-8") from None
    except ValueError as error:  # of msgspec, and of Python for a number with thousands of digits
        found = _BYTE.search(str(error))
        place = f"byte {found[1]}" if found else "the end" if "truncated" in str(error) else "$"
        raise Unreadable(place, _sentence(_BYTE.sub("", str(error)))) from None


def _not_utf8(data: bytes) -> int:
    """Where in the data, since msgspec counts from the beginning of a text in it."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return 0


def _invalid(error: msgspec.ValidationError) -> Unreadable:
    why, _, path = str(error).partition(" - at ")
    return Unreadable(path.strip("`") or "$", _sentence(why))


def _sentence(why: str) -> str:
    return " ".join(why.replace("`", "").split())[:300]


def _check(value: Any) -> None:
    """Depth and numbers as the other side has them."""
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                below += one.values()
            elif isinstance(one, list):
                below += one
            elif isinstance(one, int) and not -(2**63) <= one < 2**64:
                raise Unreadable("$", "it has a whole number of more than 64 bits")
        if not below:
            return
        level = below
    raise Unreadable("$", _TOO_DEEP)


def beside(raw: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """What a record has beside the fields that are known, under ``other``; nothing if there is no such thing."""
    other = {name: value for name, value in raw.items() if name not in kind.__struct_fields__}
    return {"other": other} if other else {}


# --- lines ------------------------------------------------------------------------------------------------------------


def lines(file: BinaryIO) -> Iterator[tuple[int, int, bytes | None]]:
    """The lines that are not empty: number from 1, offset, and text; None for one that is too long."""
    number = 0
    while True:
        number, offset = number + 1, file.tell()
        line = file.readline(MAX_BYTES + 1)
        if not line:
            return
        if len(line) > MAX_BYTES:
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_BYTES)
            yield number, offset, None
        elif line.strip():
            yield number, offset, line
