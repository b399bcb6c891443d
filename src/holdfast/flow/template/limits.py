"""What a rendering may cost, and the plain values that templates work on.

Each operation of a template comes by here: its result is measured, and the time that the rendering has taken. So it can
be given up in the middle, without a thread or a signal.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NoReturn

from jinja2 import Undefined

from holdfast.flow.actions.secrets import MARKS, marked

MAX_TEXT = 1_000_000  # characters of what a template gives, and of each value in between
MAX_MADE = 10_000_000  # characters of all texts that it makes on the way
MAX_ITEMS = 100_000  # of a list in between
MAX_BITS = 1024  # of a whole number
MAX_SECONDS = 1.0  # of the processor: a busy machine is no fault of the template
MAX_DEPTH = 50


class Refused(Exception):
    """Why a template is not rendered, or not taken at all."""


class Unknown(Exception):
    """A dry run came to a value that only a real run has."""


class Placeholder:
    """Stands for a value that a dry run cannot know: its parts, and what is computed with it, are not known either."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def part(self, name: Any) -> Placeholder:
        """A part of the value."""
        return Placeholder(f"{self.path}.{name}")

    def _unknown(self, *others: Any) -> NoReturn:
        raise Unknown

    __bool__ = __iter__ = __len__ = __contains__ = __getitem__ = __call__ = _unknown
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __pos__ = _unknown
    __hash__ = None  # type: ignore[assignment]


class Budget:
    """How much longer a rendering may take, and how much more it may make."""

    __slots__ = ("left", "until")

    def __init__(self) -> None:
        self.until = time.thread_time() + MAX_SECONDS
        self.left = MAX_MADE


current: ContextVar[Budget | None] = ContextVar("holdfast_template", default=None)


def tick() -> None:
    """Give up the rendering that goes on here, if it has taken too long."""
    budget = current.get()
    if budget is not None and time.thread_time() > budget.until:
        refuse(f"it takes longer than {MAX_SECONDS:g} s")


def spend(characters: int) -> None:
    """Give up the rendering that goes on here, if it makes too much all in all."""
    budget = current.get()
    if budget is not None:
        budget.left -= characters
        if budget.left < 0:
            refuse(f"it makes more than {MAX_MADE:,} characters, all in all")


def refuse(why: str) -> NoReturn:
    """Give up on a template."""
    raise Refused(why)


def too_long() -> NoReturn:
    """Give up on a template that makes too long a text."""
    refuse(f"it makes a text of more than {MAX_TEXT:,} characters")


def sized(value: Any) -> Any:
    """The value, if it is not too large with all that is in it: the same list may be in it many times, and whoever
    compares, hashes or prints it goes through it each time.
    """
    if isinstance(value, str):
        spend(len(value))
        if len(value) > MAX_TEXT:
            too_long()
    elif isinstance(value, list | tuple | dict):
        if weight(value) > MAX_TEXT:
            refuse(f"it makes a value with more than {MAX_TEXT:,} parts and characters")
    elif isinstance(value, int) and value.bit_length() > MAX_BITS:
        refuse(f"it makes a number of more than {MAX_BITS:,} bits")
    return _not_too_many(value)


def _not_too_many(value: Any) -> Any:
    if isinstance(value, list | tuple | dict) and len(value) > MAX_ITEMS:
        refuse(f"it makes a list of more than {MAX_ITEMS:,} items")
    return value


def weight(value: Any) -> int:
    """The size of a value with all that is in it, as far as the limit: what costs time is what is in it, not where."""
    if isinstance(value, str):
        return len(value)
    total, pending = 0, [value]
    while pending and total <= MAX_TEXT:
        one = pending.pop()
        total += 1
        if isinstance(one, str):
            total += len(one)
        elif isinstance(one, dict):
            pending += one
            pending += one.values()
        elif isinstance(one, list | tuple):
            pending += one
    return total


def check_operands(operator: str, left: Any, right: Any) -> None:
    """Refuse an operation whose result would be too large, before it is made."""
    if operator == "%" and isinstance(left, str | bytes):
        refuse("text is not formatted with %; use ~ to join texts")
    elif operator == "**":
        bits = left.bit_length() if isinstance(left, int) else 1
        if isinstance(right, int | float) and abs(right) * max(bits, 1) > MAX_BITS:
            refuse(f"it makes a number of more than {MAX_BITS:,} bits")
    elif operator == "*":
        for one, times in ((left, right), (right, left)):
            if isinstance(one, str | list | tuple) and isinstance(times, int) and weight(one) * times > MAX_TEXT:
                refuse(f"it repeats something to a size of more than {MAX_TEXT:,}")
    elif operator == "+" and isinstance(left, str | list | tuple) and weight(left) + weight(right) > MAX_TEXT:
        refuse(f"it joins something to a size of more than {MAX_TEXT:,}")


def bounded(items: Any) -> Iterator[Any]:
    """The items, while there are not too many and there is time."""
    for count, item in enumerate(items):
        tick()
        if count >= MAX_ITEMS:
            refuse(f"it goes through more than {MAX_ITEMS:,} items")
        yield item


# --- values


def as_text(value: Any) -> str:
    """A value as it stands in a text: true and false as such, nothing for null, lists and mappings as JSON."""
    if isinstance(value, marked):
        return value.mark
    if isinstance(value, Placeholder):
        return f"<{value.path}>"
    value = plain(value)
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = json.dumps(value, ensure_ascii=False, default=as_text) if isinstance(value, list | dict) else str(value)
    return str(sized(text))


def plain(value: Any, depth: int = 0) -> Any:
    """A value as one that can be stored: what a filter gives bit by bit becomes a list, a secret becomes its mark."""
    tick()
    if depth > MAX_DEPTH:
        refuse(f"it makes a value that is nested more than {MAX_DEPTH} deep")
    if isinstance(value, Undefined):
        str(value)  # which says what is undefined
    if isinstance(value, marked):
        return value.mark
    if isinstance(value, str):
        _check_marks(value)
    if value is None or isinstance(value, bool | int | float | str | Placeholder):
        return sized(value)
    if isinstance(value, dict):
        return _not_too_many({_key(key): plain(part, depth + 1) for key, part in value.items()})
    if isinstance(value, (list, tuple, *_VIEWS)) or hasattr(value, "__next__"):
        return [plain(part, depth + 1) for part in bounded(value)]
    refuse(f"it gives a {type(value).__name__}, which is neither text, number, list nor mapping")


_VIEWS: tuple[type, ...] = (
    type(dict[str, str]().keys()),
    type(dict[str, str]().values()),
    type(dict[str, str]().items()),
)


def _key(key: Any) -> str:
    if not isinstance(key, str):
        refuse(f"a mapping's key is text, not {type(key).__name__}")
    _check_marks(key)
    return key


def _check_marks(text: str) -> None:
    """What a value has of itself must not be taken for a secret."""
    if not MARKS.isdisjoint(text):
        refuse("a value has a character that stands for secrets (U+FDD0 to U+FDD3)")
