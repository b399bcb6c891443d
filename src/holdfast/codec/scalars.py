"""Values of the standard library that have no parts: how each is written as a tag and read back.

Dispatch is by exact type: a subclass would come back as its base, so it is not stored here. Modules that few programs
need (pathlib, zoneinfo) are looked up where they are used; a value of theirs proves that they are loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from holdfast.codec.refused import Refused
from holdfast.codec.tree import PLAIN_WRITERS, TAG, Tree, Writer, check_text, from_base64, to_base64, write_float

Reader = Callable[[dict[str, Any]], Any]

_MICROSECOND = timedelta(microseconds=1)
_PATHS = ("PosixPath", "PurePosixPath", "PureWindowsPath", "WindowsPath")


def _write_complex(value: complex, depth: int) -> Tree:
    return {TAG: "complex", "v": [write_float(value.real, depth), write_float(value.imag, depth)]}


def _write_bytes(value: bytes | bytearray, _depth: int) -> Tree:
    return {TAG: type(value).__name__, "v": to_base64(value)}


def _write_zone(zone: Any, _depth: int = 0) -> dict[str, Tree]:
    kind = type(zone)
    if kind is timezone:
        offset, *name = zone.__getinitargs__()
        tag: dict[str, Tree] = {TAG: "tz", "v": offset // _MICROSECOND}
        if name:
            tag["n"] = check_text(name[0])
        return tag
    zoneinfo = sys.modules.get("zoneinfo")
    if zoneinfo and kind is zoneinfo.ZoneInfo and zone.key:
        return {TAG: "zone", "v": check_text(zone.key)}
    raise Refused(f"time zone of type {kind.__qualname__} cannot be stored; use datetime.timezone or ZoneInfo")


def _write_time(value: datetime | time, _depth: int) -> Tree:
    tag: dict[str, Tree] = {TAG: type(value).__name__, "v": value.replace(tzinfo=None).isoformat()}
    if value.tzinfo is not None:
        tag["z"] = _write_zone(value.tzinfo)
    if value.fold:
        tag["o"] = 1
    return tag


def _write_timedelta(value: timedelta, _depth: int) -> Tree:
    return {TAG: "timedelta", "v": [value.days, value.seconds, value.microseconds]}


def _write_decimal(value: Decimal, _depth: int) -> Tree:
    # The letter of the exponent depends on the decimal context of the moment.
    return {TAG: "decimal", "v": str(value).replace("e", "E")}


def _write_path(value: Any, _depth: int) -> Tree:
    return {TAG: "path", "k": type(value).__name__, "v": check_text(str(value))}


WRITERS: dict[type, Writer] = {
    **PLAIN_WRITERS,
    complex: _write_complex,
    bytes: _write_bytes,
    bytearray: _write_bytes,
    date: lambda value, _depth: {TAG: "date", "v": value.isoformat()},
    datetime: _write_time,
    time: _write_time,
    timedelta: _write_timedelta,
    timezone: _write_zone,
    Decimal: _write_decimal,
    UUID: lambda value, _depth: {TAG: "uuid", "v": str(value)},
    msgspec.UnsetType: lambda value, _depth: {TAG: "unset"},
}


def late_writer(kind: type) -> Writer | None:
    """The writer of a type whose module is not loaded with Holdfast."""
    pathlib = sys.modules.get("pathlib")
    if pathlib and any(kind is getattr(pathlib, name) for name in _PATHS):
        return _write_path
    zoneinfo = sys.modules.get("zoneinfo")
    if zoneinfo and kind is zoneinfo.ZoneInfo:
        return _write_zone
    return None


def _read_zone(tag: dict[str, Any]) -> tzinfo:
    if tag[TAG] == "tz":
        offset = timedelta(microseconds=tag["v"])
        return timezone(offset, tag["n"]) if "n" in tag else timezone(offset)
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(tag["v"])
    except (zoneinfo.ZoneInfoNotFoundError, OSError):
        raise Refused(f"the time zone {tag['v']!r} is not known on this machine; install the tzdata package") from None


def _read_time(kind: type[datetime] | type[time]) -> Reader:
    def read(tag: dict[str, Any]) -> datetime | time:
        zone = _read_zone(tag["z"]) if "z" in tag else None
        return kind.fromisoformat(tag["v"]).replace(tzinfo=zone, fold=tag.get("o", 0))

    return read


def _read_float(tag: dict[str, Any]) -> float:
    return float(tag["v"])


def _read_complex(tag: dict[str, Any]) -> complex:
    real, imaginary = (part if type(part) is float else _read_float(part) for part in tag["v"])
    return complex(real, imaginary)


def _read_path(tag: dict[str, Any]) -> Any:
    import pathlib

    name = tag["k"]
    if name not in _PATHS:
        raise ValueError(name)
    try:
        return getattr(pathlib, name)(tag["v"])
    except NotImplementedError:
        raise Refused(f"a {name} cannot be made on this system; store a Pure{name} instead") from None


READERS: dict[str, Reader] = {
    "bytearray": lambda tag: bytearray(from_base64(tag["v"])),
    "bytes": lambda tag: from_base64(tag["v"]),
    "complex": _read_complex,
    "date": lambda tag: date.fromisoformat(tag["v"]),
    "datetime": _read_time(datetime),
    "decimal": lambda tag: Decimal(tag["v"]),
    "float": _read_float,
    "int": lambda tag: int(tag["v"], 16),
    "path": _read_path,
    "time": _read_time(time),
    "timedelta": lambda tag: timedelta(*tag["v"]),
    "tz": _read_zone,
    "unset": lambda tag: msgspec.UNSET,
    "uuid": lambda tag: UUID(tag["v"]),
    "zone": _read_zone,
}
