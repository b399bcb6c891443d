"""How a refusal finds its way out of a deep value.

Encoding and decoding recurse, and the path to a value is only wanted when something is wrong. So the innermost
function raises `Refused` with the problem, and each level that it passes adds its own part of the path.
"""

from __future__ import annotations

from typing import Any


class Refused(Exception):
    """The value at this place cannot be stored, or cannot be read."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self._trail: list[tuple[str, Any]] = []

    def inside(self, part: str, container: Any = None) -> Refused:
        """Add the step that leads from the container to the place of the problem."""
        self._trail.append((part, container))
        return self

    def path(self) -> str:
        return "".join(part for part, _ in reversed(self._trail))


class Damaged(Refused):
    """The stored form itself does not add up."""


class TooDeep(Refused):
    """Nested too deeply; perhaps because the value contains itself."""

    def find_cycle(self) -> str | None:
        """The path to the place where a container comes up again inside itself."""
        seen: set[int] = set()
        path = ""
        for part, container in reversed(self._trail):
            if container is not None:
                if id(container) in seen:
                    return path
                seen.add(id(container))
            path += part
        return None

    def path(self) -> str:
        parts = [part for part, _ in reversed(self._trail)]
        return "".join(parts[:20]) + ("…" if len(parts) > 20 else "")


def key_part(key: Any) -> str:
    """The step from a dict to the value under the key."""
    if type(key) is str:
        return f".{key}" if key.isidentifier() else f"[{key!r}]"
    try:
        text = repr(key)
    except Exception:  # of the user's own __repr__; it must not hide the error whose path is being told
        text = f"<{type(key).__qualname__}>"
    return f"[{text if len(text) <= 60 else text[:59] + '…'}]"
