"""What a node is made of: a function that takes the state, and what was declared of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from msgspec import Struct

from holdfast.engine.argument_checks import check_texts
from holdfast.engine.workflow.undo_functions import check_signature, name_of
from holdfast.errors import UsageError
from holdfast.graph.model import END, Join, Node, Quorum
from holdfast.graph.plan import ITEM

_TAKEN = ("/", "#", ITEM)  # by the keys of calls and the queue


class NodeContext(Struct, frozen=True):
    """What a node can know of where it is called: give it a second parameter that is annotated with this."""

    run: str
    graph: str
    node: str
    visit: int  # from 1: how often the run has come to the node
    item: int | None = None  # from 1: of a map, the number of the item


def quorum(count: int) -> Quorum:
    """A join that fires when so many branches have arrived."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise UsageError(f"quorum({count!r}): takes a number of branches, from 1")
    return Quorum(count)


def node_of(
    graph: str,
    function: Callable[..., Any],
    place: str,
    *,
    name: str | None = None,
    undo: Callable[..., Any] | None = None,
    join: Join = "all",
    **how: Any,
) -> Node:
    """A node, checked. ``how`` are further fields of `Node`."""
    if not callable(function):
        raise UsageError(f"graph {graph}: a node is a function of the state, not {function!r}")
    name = name if name is not None else getattr(function, "__name__", "")
    check_texts(name=name)
    if not name or name == END or any(mark in name for mark in _TAKEN):
        raise UsageError(f"graph {graph}: {name!r} cannot be a node's name; it must not have /, # or : in it")
    if join not in ("all", "any") and not isinstance(join, Quorum):
        raise UsageError(f"graph {graph}, node {name}: join={join!r}: 'all', 'any' or quorum(n)")
    if undo is not None:
        check_signature(undo, name, [])
    return Node(
        name=name,
        function=function,
        place=place,
        is_async=_is_async(function),
        takes_context=_takes_context(graph, name, function, 2 if how.get("kind") == "map" else 1),
        join=join,
        undo=name_of(undo) if undo is not None else None,
        **how,
    )


def _is_async(function: Callable[..., Any]) -> bool:
    """Whether it is a coroutine function, or an object that is called like one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _takes_context(graph: str, name: str, function: Callable[..., Any], given: int) -> bool:
    """Whether a node wants a context after what it is always given."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin that does not tell
        return False
    by_position = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if any(one.kind is one.VAR_POSITIONAL for one in parameters) and len(by_position) <= given:
        return False
    more = [one for one in by_position[given:] if one.default is one.empty or _is_context(function, one)]
    needed = [one for one in parameters if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
    if len(by_position) < given or len(more) > 1 or needed or (more and not _is_context(function, more[0])):
        wanted = "state, item" if given == 2 else "state"
        raise UsageError(
            f"graph {graph}, node {name}: it is called with ({wanted}) or ({wanted}, context: NodeContext), which "
            f"{getattr(function, '__name__', name)}{inspect.signature(function)} does not take"
        )
    return bool(more)


def _is_context(function: Callable[..., Any], parameter: inspect.Parameter) -> bool:
    if parameter.name == "context":
        return True
    annotation: Any = parameter.annotation
    if isinstance(annotation, str):
        try:
            annotation = get_type_hints(function).get(parameter.name)
        except (NameError, TypeError, AttributeError):  # what cannot be resolved is known by its name
            return str(annotation).rpartition(".")[2] == "NodeContext"
    return annotation is NodeContext
