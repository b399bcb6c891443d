"""The state of a graph: how it begins, how nodes see it, and how updates change it.

`StateType` knows the type that the graph was declared with. `Held` is the state of one run while it is driven: the
values of its fields, in containers that refuse to be changed, beside the stored tree, which belongs to the lease. An
update is checked and encoded once, when its node has ended; from then on only what was stored is used, so that a run
that was not broken off sees exactly what a resumed one would.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, is_typeddict

import msgspec

from holdfast.codec import Codec, Tree, diff
from holdfast.codec.readonly import (
    ReadOnlyDict,
    ReadOnlyList,
    frozen,
    original,
    read_only_class,
    read_only_dict,
    thawed,
)
from holdfast.codec.shapes import Shape, shape_of
from holdfast.codec.tree import TAG
from holdfast.errors import NotStorable, TypeMissing, UpdateRefused, UsageError
from holdfast.graph.fields import Field, fields_of, type_name
from holdfast.graph.pydantic_state import model_checks
from holdfast.graph.reducers import (
    ABSENT,
    Cell,
    Delta,
    add,
    append,
    empty,
    in_place,
    keep_last,
    merge,
    reduced,
    union,
    whole,
)
from holdfast.graph.type_fit import contents, misfit, type_text

Update = dict[str, Tree]  # what a node brings, by field, as it is stored
_COLLECTIONS = (list, tuple, set, frozenset)


class StateType:
    """The declared type of a state: a TypedDict, dataclass, msgspec struct or pydantic model."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.fields = fields_of(kind)
        self.is_dict = is_typeddict(kind)
        if TAG in self.fields:
            raise UsageError(f"{type_name(kind)} has a field named {TAG!r}, which Holdfast uses itself; rename it")
        self.view_shape: Shape | None = None if self.is_dict else shape_of(read_only_class(kind))
        self.shape: Shape | None = None if self.is_dict else shape_of(kind)
        self.checks = None if self.is_dict else model_checks(kind)

    @property
    def described(self) -> dict[str, str]:
        """The fields and their types as text, to see later whether they are still the same."""
        return {name: type_text(field.type) for name, field in self.fields.items()}

    def begin(self, graph: str, given: Any) -> Any:
        """The state that a run begins with: of the declared type, checked, with what its reducers begin with."""
        values = self._given(graph, given)
        values |= self.beginnings(values)
        for name, value in values.items():
            if name not in self.fields:
                raise UsageError(f"graph {graph}: the state has no field {name!r}; it has {', '.join(self.fields)}")
            is_validated = self.checks is not None and isinstance(given, Mapping)
            if not is_validated and (problem := misfit(value, self.fields[name].type)) is not None:
                raise UsageError(f"graph {graph}: field {name!r} of the state does not fit: {problem}")
        if self.is_dict:
            return values
        return given if original(type(given)) is self.kind else self._made(graph, values)

    def beginnings(self, values: dict[str, Any]) -> dict[str, Any]:
        """What the fields that are not among these begin with, as far as their reducers tell."""
        missing = [field for field in self.fields.values() if field.name not in values]
        found = {field.name: empty(field.reducer, field.type) for field in missing if self.is_dict or field.required}
        return {name: value for name, value in found.items() if value is not ABSENT}

    def _given(self, graph: str, given: Any) -> dict[str, Any]:
        if isinstance(given, Mapping):
            return {str(name): value for name, value in given.items()}
        if not self.is_dict and isinstance(given, self.kind):
            assert self.shape is not None
            return self.shape.take(given)[0]
        raise UsageError(
            f"graph {graph} begins with a {type_name(self.kind)}, or a dict of its fields, and not with {given!r}"
        )

    def _made(self, graph: str, values: dict[str, Any]) -> Any:
        try:
            if self.checks is not None:
                assert self.shape is not None
                return self.checks.made(values, self.shape)
            return self.kind(**values)
        except (TypeError, ValueError) as error:  # a missing field; what a model does not take
            raise UsageError(f"graph {graph}: {type_name(self.kind)} cannot be made of this: {error}") from error

    # --- updates

    def update(self, held: Held, node: str, returned: Any, writes: tuple[str, ...] | None) -> Update:
        """What a node returned, checked and as it is stored; raises `UpdateRefused` naming the field."""
        graph, codec = held.graph, held.codec
        brought = self._brought(graph, node, returned)
        stored: Update = {}
        for name, value in brought.items():
            field = self.fields.get(name)
            if field is None:
                known = ", ".join(self.fields)
                raise UpdateRefused(graph, node, str(name), f"there is no such field; the state has {known}")
            if writes is not None and name not in writes:
                said = ", ".join(writes) or "nothing"
                raise UpdateRefused(graph, node, name, f"the node was declared to write {said}")
            if value is held.values.get(name) and _would_repeat(field, value):
                raise UpdateRefused(graph, node, name, "it is what the state has already; return only what changes")
            value = self._checked(held, node, field, value)
            try:
                stored[name] = codec.encode(value, name)
            except NotStorable as error:
                raise UpdateRefused(graph, node, name, f"it cannot be stored: {error}") from error
        return stored

    def _brought(self, graph: str, node: str, returned: Any) -> Mapping[Any, Any]:
        if returned is None:
            return {}
        if type(returned) is ReadOnlyDict or original(type(returned)) is not type(returned):
            raise UpdateRefused(graph, node, None, "it is the state that the node was given; return only what changes")
        if isinstance(returned, Mapping):
            return returned
        fields_set = getattr(returned, "__pydantic_fields_set__", None)
        shape = shape_of(type(returned)) if not isinstance(returned, type | tuple) else None
        if shape is None:
            raise UpdateRefused(
                graph, node, None, f"a node returns a dict of fields, or None, and not {type(returned).__name__}"
            )
        fields = shape.take(returned)[0]
        return {
            name: value
            for name, value in fields.items()
            if value is not msgspec.UNSET and (fields_set is None or name in fields_set)
        }

    def _checked(self, held: Held, node: str, field: Field, value: Any) -> Any:
        """The value of an update, if it fits; what a pydantic model makes of it, if the state is one."""
        if field.reducer is None and self.checks is not None:
            return held.validated(node, field, value)
        problem = _misfit(field, value)
        if problem is not None:
            raise UpdateRefused(held.graph, node, field.name, problem)
        return value


def _would_repeat(field: Field, value: Any) -> bool:
    """Whether to bring what the state has already (as ``{**state, ...}`` does, or a changed copy) would double it."""
    return type(value) in (ReadOnlyList, ReadOnlyDict) and field.reducer not in (None, keep_last, merge)


def _misfit(field: Field, value: Any) -> str | None:
    """What is wrong with what an update brings for a field, by its reducer."""
    kind, reducer = field.type, field.reducer
    if reducer is None or reducer is keep_last or reducer is add:
        return misfit(value, kind)
    container, arguments = contents(kind)
    if reducer is merge:
        return misfit(value, container)
    items: Collection[Any]
    if reducer is append:
        items = value if isinstance(value, list | tuple) else [value]
    elif reducer is union:
        if not isinstance(value, _COLLECTIONS):
            return misfit(value, container) or f"got {type(value).__name__}, wants a collection"
        items = value
    else:
        return None  # what another reducer takes is its own affair; what it gives is checked
    [wanted] = arguments[:1] or (Any,)
    return next((problem for item in items if (problem := misfit(item, wanted)) is not None), None)


class Held:
    """The state of a run that is driven: its values, and the tree that they are stored as."""

    def __init__(self, kind: StateType, codec: Codec, graph: str, tree: Any) -> None:
        self.kind = kind
        self.codec = codec
        self.graph = graph
        self.tree = tree
        self._rest: dict[str, Any] = {}
        self.values: dict[str, Any] = self._read()

    @property
    def trees(self) -> dict[str, Any]:
        """The stored fields."""
        return self.tree if self.kind.is_dict else self.tree["f"]  # type: ignore[no-any-return]

    def _read(self) -> dict[str, Any]:
        value = self.codec.decode(self.tree, self.kind.kind, "state")
        if value is None:
            raise TypeMissing("state", "it was erased on request; fork the run, or roll it back, to another entry")
        if not isinstance(value, dict if self.kind.is_dict else self.kind.kind):
            was = "dict" if isinstance(value, dict) else type_name(type(value))
            raise TypeMissing(
                "state", f"it was stored as {was}, and the graph's state is now {self._name}; put it back"
            )
        if self.kind.shape is not None:
            fields, self._rest = self.kind.shape.take(value)
        else:
            if gone := sorted(value.keys() - self.kind.fields.keys()):
                raise TypeMissing("state", f"{self._name} has no field {', '.join(gone)} any more; put it back")
            fields = {**value, **self.kind.beginnings(value)}  # of fields that are new since it was stored
        return {name: frozen(item) for name, item in fields.items()}

    @property
    def _name(self) -> str:
        return type_name(self.kind.kind)

    def misfits(self) -> dict[str, str]:
        """What of the state does not fit its type, which may have changed since, by field."""
        found = {name: misfit(value, self.kind.fields[name].type) for name, value in self.values.items()}
        return {name: problem for name, problem in found.items() if problem is not None}

    def unfit(self, update: Update) -> dict[str, str]:
        """What of an update that was kept does not fit the state, whose type may have changed since, by field."""
        found: dict[str, str | None] = {}
        for name, stored in update.items():
            field = self.kind.fields.get(name)
            found[name] = "there is no such field any more"
            if field is not None:
                found[name] = _misfit(field, self.codec.decode(stored, field.type, name))
        return {name: problem for name, problem in found.items() if problem is not None}

    def renewed(self) -> Tree:
        """The state as it is stored today, if it was stored by an older version of its class; else None."""
        if self.kind.is_dict or self.tree.get("n", 1) == self.codec.version(self.kind.kind):
            return None
        assert self.kind.shape is not None
        fields = {name: thawed(value) for name, value in self.values.items()}
        return self.codec.encode(self.kind.shape.make(fields, self._rest), "state")

    def view(self, values: dict[str, Any] | None = None) -> Any:
        """The state as nodes see it: of its declared type, and refusing to be changed."""
        values = self.values if values is None else values
        if self.kind.view_shape is None:
            return read_only_dict(values)
        return self.kind.view_shape.make(dict(values), self._rest)

    def preview(self, updates: list[tuple[str, Update]]) -> Any:
        """The state as it would be with these updates."""
        values = dict(self.values)
        for node, update in updates:
            for name, stored in update.items():
                field = self.kind.fields[name]
                values[name] = frozen(self._reduced(node, field, Cell(values.get(name, ABSENT), ABSENT), stored))
        return self.view(values)

    def apply(self, updates: list[tuple[str, Update]]) -> Delta | None:
        """Change the state by updates, one after the other; the delta of its tree, which the caller saves."""
        by_field: dict[str, list[tuple[str, Tree]]] = {}
        for node, update in updates:
            for name, stored in update.items():
                by_field.setdefault(name, []).append((node, stored))
        for name, brought in by_field.items():
            self._check_alone(self.kind.fields[name], [node for node, _ in brought])
        inside: dict[str, Delta] = {}
        changed: dict[str, Tree] = {}
        for name, brought in by_field.items():
            value, delta = self._apply(self.kind.fields[name], brought)
            self.values[name] = value
            if delta is not None and "=" in delta:
                changed[name] = delta["="]
            elif delta is not None:
                inside[name] = delta
        if self.kind.checks is not None:
            try:
                self.kind.checks.together(self.values, by_field)
            except ValueError as error:
                nodes = ", ".join(dict.fromkeys(node for node, _ in updates))
                raise UpdateRefused(self.graph, nodes, None, f"the state does not fit with it: {error}") from error
        return self._delta(inside, changed)

    def _check_alone(self, field: Field, nodes: list[str]) -> None:
        """Refuse what several branches bring for a field that can keep one."""
        if field.reducer is None and len(nodes) > 1:
            others = [node for node in dict.fromkeys(nodes) if node != nodes[-1]]
            beside = (
                f"node {', '.join(others)} wrote it too, side by side" if others else "several of its items wrote it"
            )
            raise UpdateRefused(
                self.graph,
                nodes[-1],
                field.name,
                f"{beside}, and it has no reducer, so only one would stay; give it one, such as "
                f"Annotated[..., keep_last], then run.retry()",
            )

    def _apply(self, field: Field, brought: list[tuple[str, Tree]]) -> Any:
        cell = Cell(self.values.get(field.name, ABSENT), self.trees.get(field.name, ABSENT))
        stored = [tree for _, tree in brought]
        if cell.tree is not ABSENT:
            change = in_place(self.codec, field.type, field.reducer, cell, stored)
            if change is not None:
                return change
        if field.reducer is None or field.reducer is keep_last:
            [(node, last)] = brought[-1:]
            held = frozen(self.codec.decode(last, field.type, field.name))
            return held, {"=": last} if cell.tree is ABSENT else diff(cell.tree, last)
        now = cell
        for node, tree in brought:
            now = Cell(self._reduced(node, field, now, tree), cell.tree)
        try:
            return whole(self.codec, field.type, cell, now.value, field.name)
        except NotStorable as error:
            raise UpdateRefused(self.graph, node, field.name, f"what its reducer gave: {error}") from error

    def _reduced(self, node: str, field: Field, cell: Cell, stored: Tree) -> Any:
        """What a field becomes, checked."""
        try:
            value = reduced(self.codec, field.type, field.reducer, cell, stored)
        except Exception as error:  # of the user's reducer, which may raise anything
            error.add_note(f"in the reducer of field {field.name!r}, for the update of node {node}")
            raise
        if (problem := misfit(value, field.type)) is not None:
            raise UpdateRefused(self.graph, node, field.name, f"what its reducer gave does not fit: {problem}")
        return self.validated(node, field, value) if self.kind.checks is not None else value

    def validated(self, node: str, field: Field, value: Any) -> Any:
        """What the model that the state is makes of a value for a field."""
        assert self.kind.checks is not None
        try:
            return self.kind.checks.field(self.values, field.name, value)
        except ValueError as error:
            raise UpdateRefused(self.graph, node, field.name, str(error)) from error

    def _delta(self, inside: dict[str, Delta], changed: dict[str, Tree]) -> Delta | None:
        parts = (("d", inside), ("s", changed))
        delta: Delta = {name: part for name, part in parts if part}
        if not delta or self.kind.is_dict:
            return delta or None
        delta = {"d": {"f": delta}}
        if "s" in self._rest:  # the fields of a model that were set, and not left to their defaults
            was = {**self._rest}
            said = {*self._rest["s"], *inside, *changed}
            self._rest = {**self._rest, "s": sorted(said)} if said != self.values.keys() else _without(self._rest, "s")
            if self._rest:
                delta["d"]["r"] = {"s": {"s": self._rest["s"]}} if "s" in self._rest else {"x": ["s"]}
            elif was:
                delta["x"] = ["r"]
        return delta


def _without(rest: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in rest.items() if key != name}


def as_mapping(state: Any) -> dict[str, Any]:
    """The fields of a state of any kind, with plain containers."""
    if isinstance(state, Mapping):
        return {name: thawed(value) for name, value in state.items()}
    if dataclasses.is_dataclass(state) or isinstance(state, msgspec.Struct):
        names = [field.name for field in (dataclasses.fields(state) if dataclasses.is_dataclass(state) else ())]
        return {name: thawed(getattr(state, name)) for name in names or state.__struct_fields__}  # type: ignore[union-attr]
    return {name: thawed(value) for name, value in vars(state).items()}
