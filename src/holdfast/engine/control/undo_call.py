"""What an undo is called with: the result of its step and then the step's arguments, read by the annotations of both.

As with everything that is stored, no class is imported because a journal names it. The annotations of the step and of
its undo say where classes may come from, so any process that has imported their modules can read the values.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

from holdfast.engine.workflow.step import annotations_of, step_undone_by
from holdfast.errors import TypeMissing

Reader = Callable[[Any, Any], Any]  # the value of a tree, which is read as a type

_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class UndoCall:
    """The arguments of one call of an undo. ``state`` is the type of the state that the run has, if it is a graph's."""

    def __init__(self, function: Callable[..., Any], name: str, tool: str, state: Any = None) -> None:
        self.result: Any = None
        self.args: list[Any] = []
        self.kwargs: dict[str, Any] = {}
        self._state = state
        self._of_undo = _Annotated(function, list(signature(function).parameters.values()))
        step = step_undone_by(name, tool)
        self._of_step = _Annotated(step.function, step.given()) if step is not None else None

    def read(self, reader: Reader, result: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Read what is stored; raises `TypeMissing` if neither annotation leads to a class that is needed."""
        returned = self._of_step.returned if self._of_step is not None else None
        self.result = self._value(reader, result, returned, self._of_undo.at(0))
        self.args = [
            self._value(reader, tree, self._of_step and self._of_step.at(n), self._of_undo.at(n + 1))
            for n, tree in enumerate(args)
        ]
        self.kwargs = {
            word: self._value(reader, tree, self._of_step and self._of_step.named(word), self._of_undo.named(word))
            for word, tree in kwargs.items()
        }

    def _value(self, reader: Reader, tree: Any, *types: Any) -> Any:
        known = [kind for kind in (*types, self._state) if kind is not None]
        for kind in known:
            try:
                return reader(tree, kind)
            except TypeMissing:
                continue  # the next one may lead to it
        return reader(tree, None)


class _Annotated:
    """The parameters of a function, and what they are annotated with."""

    def __init__(self, function: Callable[..., Any], parameters: list[Parameter]) -> None:
        self._parameters = parameters
        self._types = annotations_of(function)

    @property
    def returned(self) -> Any:
        return self._types.get("return")

    def at(self, n: int) -> Any:
        """The annotation of the argument at this position."""
        names = [one.name for one in self._parameters if one.kind in _BY_POSITION]
        return self._types.get(names[n]) if n < len(names) else self._rest(Parameter.VAR_POSITIONAL)

    def named(self, word: str) -> Any:
        """The annotation of the argument of this name."""
        known = any(one.name == word for one in self._parameters)
        return self._types.get(word) if known else self._rest(Parameter.VAR_KEYWORD)

    def _rest(self, kind: Any) -> Any:
        return next((self._types.get(one.name) for one in self._parameters if one.kind is kind), None)
