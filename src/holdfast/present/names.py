"""The names of steps, nodes and branches for people, from the keys of calls."""

from __future__ import annotations

import re

from holdfast.kernel.fold import name_in

_BRANCHING = frozenset({"map", "gather", "first", "timeout", ""})
_FAN = re.compile(r"(.*#\d+)\.\d+/")


def step_name(key: str) -> str:
    """The name of a step, with its number from the second on."""
    if "#" not in key:
        return key
    name, _, number = key.rpartition("#")
    return name_in(key) if number == "1" else f"{name.rpartition('/')[2]} #{number}"


def call_name(key: str) -> str:
    """The name of the function that a call calls, without its number."""
    return name_in(f"/{key}") if "#" in key else key


def fan_of(key: str) -> str | None:
    """The call that a key is a branch of: ``map#1`` of ``map#1.3/fetch#1``."""
    found = _FAN.match(key)
    return found[1] if found else None


def fan_name(fan: str) -> str:
    """The name of such a call: that of the node or step which maps, if it is inside of one."""
    names = [part.partition("#")[0] for part in fan.split("/")]
    return next((name for name in reversed(names) if name not in _BRANCHING), names[0])


def node_of(key: str) -> str | None:
    """The node of a graph that a key belongs to: ``plan`` of ``plan#1/think#2``."""
    first, slash, _ = key.partition("/")
    name = first.partition("#")[0]
    return name if slash and "#" in first and name not in _BRANCHING else None


def is_node(key: str) -> bool:
    """Whether a step is all that its node does, as the steps of flows are: ``build#1/build#1``."""
    return node_of(key) == name_in(f"/{key}") and fan_of(key) is None


def task_name(path: str) -> str:
    """The name of a call of a node: ``check`` of ``check#1``, ``check (visit 2)``, ``fetch (item 3)``."""
    node, _, numbers = path.rpartition("#")
    visit, _, item = numbers.partition(".")
    more = [f"visit {visit}" if visit != "1" else "", f"item {item}" if item else ""]
    return f"{node} ({', '.join(part for part in more if part)})" if any(more) else node


def lane_name(lane: str) -> str:
    """The name of a branch: ``map, branch 3`` for ``map#1.3``; the node for the steps of a node."""
    return " / ".join(_part(part) for part in lane.split("/"))


def _part(part: str) -> str:
    name, _, number = part.partition("#")
    call, dot, branch = number.partition(".")
    words = name or "branch"
    if call not in ("", "1"):
        words += f" #{call}"
    return f"{words}, branch {branch}" if dot else words
