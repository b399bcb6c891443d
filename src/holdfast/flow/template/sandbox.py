"""Jinja's immutable sandbox, made smaller: plain values, a few methods of them, and nothing else to reach.

Attributes are looked up by a function of our own, which knows mappings, and a short list of methods of text, lists and
mappings. There is no way from there to Python's objects, whatever they have.
"""

from __future__ import annotations

from functools import lru_cache
from types import BuiltinMethodType
from typing import Any

import jinja2
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from holdfast.flow.template import filters
from holdfast.flow.template.limits import (
    MAX_ITEMS,
    MAX_TEXT,
    Placeholder,
    as_text,
    bounded,
    check_operands,
    refuse,
    sized,
    tick,
    too_long,
)

COUNTED, JOINED, SIZED = "#counted", "#joined", "#sized"  # filters for what is no filter in a template

NO_COMMENT = "\ufdd0{#"  # what no template has: ${#name} is for the shell

METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        {
            *("capitalize", "count", "endswith", "find", "isdigit", "lower", "lstrip", "removeprefix", "removesuffix"),
            *("rstrip", "split", "splitlines", "startswith", "strip", "title", "upper"),
        }
    ),
    dict: frozenset({"get", "items", "keys", "values"}),
    list: frozenset({"count", "index"}),
}
_LOOP = frozenset({"first", "index", "index0", "last", "length", "revindex", "revindex0"})


class Environment(ImmutableSandboxedEnvironment):
    """Where templates are compiled. Each operator and call is measured."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def getattr(self, obj: Any, attribute: str) -> Any:
        """A part of a mapping, or a method that templates may call."""
        if isinstance(obj, Placeholder):
            return obj.part(attribute)
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        if isinstance(obj, LoopContext) and attribute in _LOOP:
            return getattr(obj, attribute)
        for kind, methods in METHODS.items():
            if isinstance(obj, kind) and attribute in methods:
                exact = obj if type(obj) is kind else kind(obj)
                return getattr(exact, attribute)
        return self._missing(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """A part of a mapping, list or text."""
        if isinstance(obj, Placeholder):
            return obj.part(argument)
        if isinstance(obj, dict | list | tuple | str):
            try:
                return obj[argument]
            except (LookupError, TypeError):
                pass
        return self._missing(obj, argument)

    def _missing(self, obj: Any, name: Any) -> jinja2.Undefined:
        if not isinstance(obj, dict):
            return self.undefined(obj=obj, name=name)
        known = ", ".join(str(key) for key in list(obj)[:10]) or "nothing"
        return self.undefined(f"there is no {name!r}, only {known}")

    def is_safe_callable(self, obj: Any) -> bool:
        """Whether templates may call it: ``range``, and the methods above."""
        if obj is _range:
            return True
        if not isinstance(obj, BuiltinMethodType):
            return False
        return any(type(obj.__self__) is kind and obj.__name__ in methods for kind, methods in METHODS.items())

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call what templates may call."""
        tick()
        kwargs.pop("_loop_vars", None)  # for functions that take the context
        kwargs.pop("_block_vars", None)
        if isinstance(__obj, Placeholder):
            return __obj
        if isinstance(__obj, jinja2.Undefined):
            __obj()  # it says what is undefined
        if not __self.is_safe_callable(__obj):
            refuse("it calls something that templates may not call")
        return sized(__obj(*args, **kwargs))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Compute, unless the result would be too large."""
        tick()
        for value in (left, right):
            if isinstance(value, Placeholder):
                return value
        check_operands(operator, left, right)
        return sized(super().call_binop(context, operator, left, right))


def _range(*args: Any) -> list[int]:
    """As Python's, for not too many numbers."""
    numbers = range(*args)
    if len(numbers) > MAX_ITEMS:
        refuse(f"range() gives more than {MAX_ITEMS:,} numbers")
    return list(numbers)


@jinja2.pass_context
def _finalized(context: Any, value: Any) -> Any:
    """What stands in the text for a value. It takes the context so that nothing is computed when it is compiled."""
    tick()
    return value if isinstance(value, jinja2.Undefined) else as_text(value)  # the text of the former is an error


def _joined(*values: Any) -> str:
    texts, length = [], 0
    for value in values:
        texts.append(as_text(value))
        length += len(texts[-1])
        if length > MAX_TEXT:
            too_long()
    return "".join(texts)


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The one environment."""
    made = Environment(
        undefined=jinja2.StrictUndefined,
        finalize=_finalized,
        optimized=False,
        comment_start_string=NO_COMMENT,
        autoescape=False,
        keep_trailing_newline=True,
    )
    made.globals.clear()
    made.globals["range"] = _range
    made.filters.clear()
    made.filters.update(filters.filters())
    made.filters[COUNTED] = bounded
    made.filters[JOINED] = _joined
    made.filters[SIZED] = sized
    made.tests.clear()
    made.tests.update(filters.tests())
    return made
