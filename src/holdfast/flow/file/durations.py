"""Durations: seconds, or a text such as 1h30m."""

from __future__ import annotations

import re
from typing import Any

from holdfast.flow.file.document import Node
from holdfast.flow.file.shapes import Path, Reader, Shape

_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
MAX_SECONDS = 10 * 365 * 86400.0


class DurationShape(Shape):
    """Seconds, or a text such as 5m; with ``positive`` more than none."""

    told = "a duration, such as 90 (seconds), 5m or 1h30m"

    def __init__(self, *, positive: bool = False) -> None:
        self._positive = positive

    def takes(self, node: Node) -> bool:
        return node.kind == "scalar" and isinstance(node.value, int | float | str) and not isinstance(node.value, bool)

    def read(self, reader: Reader, node: Node, path: Path) -> Any:
        seconds = duration(node.value) if self.takes(node) else None
        if seconds == 0 and self._positive:
            return reader.wrong(node, f"`{path[-1]}` is longer than nothing; leave it out for no limit")
        return self._wants(reader, node, path) if seconds is None else seconds

    def schema(self) -> dict[str, Any]:
        least = "exclusiveMinimum" if self._positive else "minimum"
        return {"anyOf": [{"type": "number", least: 0}, {"type": "string", "pattern": f"^{_DURATION.pattern}$"}]}


def duration(value: Any) -> float | None:
    """The seconds of a duration; None if it is none."""
    if isinstance(value, str):
        if not _DURATION.fullmatch(value.strip()):
            return None
        value = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(value))
    return float(value) if 0 <= value <= MAX_SECONDS else None
