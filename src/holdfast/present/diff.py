"""The state of a run at an entry, and the places where two states differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any, Literal

from msgspec import Struct

from holdfast.codec.refused import key_part
from holdfast.engine.run.handle import Run
from holdfast.errors import NoCheckpoint

_LONG = 2_000  # items of lists that are compared place by place only


class State(Struct, frozen=True, kw_only=True):
    """A run as it was at an entry: its state, what comes next, and the results of its steps by their keys."""

    run: str
    seq: int
    state: Any = None
    node: str | None = None
    next: str | None = None
    queue: Any = None
    steps: dict[str, Any] = {}

    @property
    def shown(self) -> Any:
        """The state; the results of its steps, if the run has none."""
        return self.state if self.state is not None else self.steps


def state_of(run: Run, at: int | None = None, *, results: bool = True) -> State:
    """The run at an entry, in values that JSON can hold; without ``results``, the steps are left out."""
    newest = run.info().seq
    if at is not None and at > newest:
        raise NoCheckpoint(run.id, f"there is no entry {at}; the newest is {newest}")
    checkpoint = run.checkpoint(at)
    queue = checkpoint.queue
    return State(
        run=run.id,
        seq=checkpoint.seq,
        state=checkpoint.raw_state,
        node=checkpoint.node,
        next=checkpoint.next,
        queue=list(queue) if isinstance(queue, tuple | set | frozenset) else queue,
        steps=checkpoint.raw_results if results else {},
    )


def changes(a: State, b: State) -> Iterator[Difference]:
    """The places where two states differ: what was saved, what comes next, the results of steps."""
    compared = ("state", "node", "next", "queue", "steps")
    one, other = ({name: getattr(state, name) for name in compared} for state in (a, b))
    return differences(one, other)


class Difference(Struct, frozen=True):
    """One place where two states differ."""

    path: str
    change: Literal["added", "removed", "changed"]
    a: Any = None
    b: Any = None


def differences(a: Any, b: Any, path: str = "") -> Iterator[Difference]:
    """All places where the values differ, in their order. Integers, booleans and numbers are not the same."""
    if isinstance(a, dict) and isinstance(b, dict):
        for name in [*a, *(name for name in b if name not in a)]:
            inner = f"{path}{key_part(name)}".lstrip(".")
            if name not in b:
                yield Difference(inner, "removed", a=a[name])
            elif name not in a:
                yield Difference(inner, "added", b=b[name])
            else:
                yield from differences(a[name], b[name], inner)
    elif isinstance(a, list) and isinstance(b, list):
        yield from _in_lists(a, b, path)
    elif _text(a) != _text(b):
        yield Difference(path or "value", "changed", a, b)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _in_lists(a: list[Any], b: list[Any], path: str) -> Iterator[Difference]:
    """Items are found again where they moved to; what replaces as many others is compared with them."""
    if len(a) + len(b) > _LONG:
        blocks = [("replace", 0, min(len(a), len(b)), 0, min(len(a), len(b)))]
        blocks += [("delete", len(b), len(a), len(b), len(b))] if len(a) > len(b) else []
        blocks += [("insert", len(a), len(a), len(a), len(b))] if len(b) > len(a) else []
    else:
        matcher = SequenceMatcher(None, [_text(item) for item in a], [_text(item) for item in b], autojunk=False)
        blocks = list(matcher.get_opcodes())
    for change, a_from, a_to, b_from, b_to in blocks:
        if change == "equal":
            continue
        both = min(a_to - a_from, b_to - b_from)
        for n in range(both):
            yield from differences(a[a_from + n], b[b_from + n], f"{path}[{b_from + n}]")
        yield from (Difference(f"{path}[{n}]", "removed", a=a[n]) for n in range(a_from + both, a_to))
        yield from (Difference(f"{path}[{n}]", "added", b=b[n]) for n in range(b_from + both, b_to))
