"""What users declare: a graph of nodes over a typed state.

A `Graph` is a workflow: it is started, enqueued, driven by workers and called as a child like any other. What its
declarations gave is its `Definition`, which is checked before the first step, drawn, and run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from holdfast.codec import Codec, patch_owned
from holdfast.engine.argument_checks import check_options, check_texts
from holdfast.engine.workflow.declare import Edited, Workflow, register
from holdfast.engine.workflow.replay import caller
from holdfast.engine.workflow.scope import current_scope
from holdfast.errors import GraphInvalid, UsageError
from holdfast.graph.draw.mermaid import mermaid
from holdfast.graph.draw.run_path import path_of, topology_of
from holdfast.graph.draw.svg import svg
from holdfast.graph.draw.svg_path import Path
from holdfast.graph.execution import Running
from holdfast.graph.model import Definition, Edge, Node, Quorum, Router
from holdfast.graph.nodes import node_of
from holdfast.graph.plan import EDIT, Plan, begun
from holdfast.graph.routing import Ways
from holdfast.graph.stages import on_loop, plainly
from holdfast.graph.state import Held, StateType, as_mapping
from holdfast.graph.topology import Topology, topology
from holdfast.graph.verify import verify
from holdfast.kernel.model import Status

if TYPE_CHECKING:
    from holdfast.engine.run.handle import Run
    from holdfast.engine.workflow.execution import Execution

F = TypeVar("F", bound=Callable[..., Any])
Named = str | Callable[..., Any]  # a node: its name, or its function
Predicate = Callable[[Any], bool]


class Graph(Workflow[[Any], Any]):
    """Nodes over a typed state, and the ways between them.

    ``state`` is a TypedDict, dataclass, msgspec struct or pydantic model. ``max_steps`` is how many nodes a run may
    visit, ``max_visits`` how often each, and ``max_time`` how many seconds it may be at work; then it is parked until a
    person unblocks it. The other arguments are those of `workflow`.
    """

    _is_found_by_name = True  # else it is made anew for each run of it, from the run's input

    keeps_place = True

    def __init__(
        self,
        state: Any,
        *,
        name: str,
        version: str | None = None,
        max_steps: int = 1000,
        max_visits: int | None = None,
        max_time: float | None = None,
        on_failure: Literal["fail", "rollback"] = "fail",
        deadline: float | None = None,
        place: str | None = None,
    ) -> None:
        check_texts(name=name, version=version)
        if on_failure not in ("fail", "rollback"):
            raise UsageError(f"on_failure is 'fail' or 'rollback', not {on_failure!r}")
        check_options(deadline=deadline, max_time=max_time)
        for guard, count in (("max_steps", max_steps), ("max_visits", max_visits)):
            if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
                raise UsageError(f"graph {name}: {guard}={count!r}: takes a number from 1")
        super().__init__(_function(self), name=name, version=version, on_failure=on_failure, deadline=deadline)
        self.state = StateType(state)
        self.state_type = state
        self.max_steps, self.max_visits, self.max_time = max_steps, max_visits, max_time
        self.__module__ = sys._getframe(1).f_globals.get("__name__", "__main__")
        self.__doc__ = None
        self._place = place or caller()
        self._nodes: dict[str, Node] = {}
        self._edges: list[Edge] = []
        self._routers: list[Router] = []
        self._entries: list[str] = []
        self._before: set[str] = set()
        self._after: set[str] = set()
        self._goal: Predicate | None = None
        self._ways: Ways | None = None
        if self._is_found_by_name:
            register(self)

    def __repr__(self) -> str:
        return f"<graph {self.label}>"

    # --- declaring

    @overload
    def node(self, function: F, /) -> F: ...
    @overload
    def node(
        self,
        /,
        *,
        name: str | None = None,
        undo: Callable[..., Any] | None = None,
        join: Literal["all", "any"] | Quorum = "all",
        until: Predicate | None = None,
        writes: Iterable[str] | None = None,
        place: str | None = None,
    ) -> Callable[[F], F]: ...
    def node(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        undo: Callable[..., Any] | None = None,
        join: Literal["all", "any"] | Quorum = "all",
        until: Predicate | None = None,
        writes: Iterable[str] | None = None,
        place: str | None = None,
    ) -> Any:
        """Declare a node: a function of the state (and of a `NodeContext`, if it wants one) that returns an update.

        ``join`` says when it is called if several ways lead to it: when all branches that can come have arrived, when
        ``"any"`` has, or a `quorum`. With ``until`` it is called again and again, until that holds of the state.
        ``undo`` is called with its update when it is rolled back. ``writes`` are the fields that it may change.
        """
        where = place or caller()

        def declare(function: Any) -> Any:
            self._add(function, where, name=name, undo=undo, join=join, until=until, writes=writes)
            return function

        return declare(function) if function is not None else declare

    def map(
        self,
        *,
        over: str | Callable[[Any], Iterable[Any]],
        limit: int | None = None,
        reduce: Callable[[Any, list[Any]], Any] | None = None,
        name: str | None = None,
        undo: Callable[..., Any] | None = None,
        join: Literal["all", "any"] | Quorum = "all",
        writes: Iterable[str] | None = None,
        place: str | None = None,
    ) -> Callable[[F], F]:
        """Declare a node that is called for each item of a field, or of what a function of the state gives.

        The function takes the state and the item. It returns an update; or, with ``reduce``, anything: that is called
        with the state and the list of results, and returns the update. ``limit`` is how many run at a time.
        """
        check_options(limit=limit)
        if not isinstance(over, str) and not callable(over):
            raise UsageError(f"graph {self.name}: over={over!r}: takes the name of a field, or a function of the state")
        where = place or caller()

        def declare(function: F) -> F:
            how: dict[str, Any] = {"name": name, "undo": undo, "join": join, "writes": writes}
            self._add(function, where, kind="map", over=over, limit=limit, reduce=reduce, **how)
            return function

        return declare

    def subgraph(
        self,
        name: str,
        graph: Graph,
        *,
        input: Callable[[Any], Any] | None = None,
        output: Callable[[Any], Any] | None = None,
        join: Literal["all", "any"] | Quorum = "all",
        writes: Iterable[str] | None = None,
        place: str | None = None,
    ) -> None:
        """Declare a node that is a run of another graph.

        ``input`` makes the state that it begins with of this one's, and ``output`` an update of the state that it
        ended with. Without them the fields that both states have are given, and those without a reducer given back.
        """
        if not isinstance(graph, Graph):
            raise UsageError(f"graph {self.name}: {graph!r} is no graph; a node is declared with @graph.node")

        def run(state: Any) -> Any:
            given = input(state) if input is not None else self._shared(graph, state)
            ended = graph(given)
            make = output if output is not None else partial(self._given_back, graph)
            return _later(ended, make) if hasattr(ended, "__await__") else make(ended)

        run.__name__ = run.__qualname__ = name
        self._add(run, place or caller(), name=name, kind="graph", join=join, writes=writes)

    def _shared(self, graph: Graph, state: Any) -> dict[str, Any]:
        return {name: value for name, value in as_mapping(state).items() if name in graph.state.fields}

    def _given_back(self, graph: Graph, state: Any) -> dict[str, Any]:
        mine = self.state.fields
        return {name: value for name, value in as_mapping(state).items() if name in mine and not mine[name].reducers}

    def entry(self, *nodes: Named) -> None:
        """Where a run begins; at several nodes at once, if several are named."""
        self._entries += [self._name(node) for node in nodes]
        self._ways = None

    def edge(
        self,
        source: Named,
        target: Named,
        *,
        when: Predicate | None = None,
        label: str | None = None,
        place: str | None = None,
    ) -> None:
        """A way from one node to another, or to `END`. With ``when``, taken only if that holds of the state.

        All edges that may be taken are: several of them are branches that run side by side.
        """
        if when is not None and not callable(when):
            raise UsageError(f"graph {self.name}: when={when!r}: takes a function of the state")
        ends = {"source": self._name(source), "target": self._name(target)}
        self._edges.append(Edge(**ends, when=when, label=label, place=place or caller()))
        self._ways = None

    def route(
        self, source: Named, router: Callable[[Any], Any], *, to: Iterable[Named], place: str | None = None
    ) -> None:
        """Let a function of the state say where to go from a node: to one of ``to``, or to several of them."""
        if not callable(router):
            raise UsageError(f"graph {self.name}: the router {router!r} is no function of the state")
        targets = tuple(self._name(node) for node in to)
        self._routers.append(
            Router(source=self._name(source), function=router, targets=targets, place=place or caller())
        )
        self._ways = None

    def interrupt(self, *, before: Iterable[Named] = (), after: Iterable[Named] = ()) -> None:
        """Let a person look at a run before or after these nodes: it waits until it is resumed."""
        self._before |= {self._name(node) for node in before}
        self._after |= {self._name(node) for node in after}
        self._ways = None

    def goal(self, predicate: Predicate) -> None:
        """The run is done as soon as this holds of the state, after any stage."""
        if not callable(predicate):
            raise UsageError(f"graph {self.name}: goal({predicate!r}): takes a function of the state")
        self._goal = predicate
        self._ways = None

    def _name(self, node: Named) -> str:
        if isinstance(node, str):
            return node
        if isinstance(node, list | tuple | set | frozenset):
            raise UsageError(
                f"graph {self.name}: {node!r} are several nodes where one is named; write one edge for each of them: "
                "a node that several edges lead to waits for all of them, unless it is declared with join="
            )
        found = [name for name, known in self._nodes.items() if known.function is node]
        if not found:
            raise UsageError(f"graph {self.name}: {node!r} is not one of its nodes; declare it with @graph.node first")
        return found[0]

    def _add(self, function: Callable[..., Any], place: str, **how: Any) -> None:
        writes = how.pop("writes", None)
        node = node_of(self.name, function, place, writes=None if writes is None else tuple(writes), **how)
        if node.name in self._nodes:
            known = self._nodes[node.name].place
            raise UsageError(f"graph {self.name} has a node {node.name!r} already, at {known}")
        self._nodes[node.name] = node
        if node.is_async and not self.is_async:
            self.function, self.is_async = _function_on_loop(self), True
        self._ways = None

    # --- what it is

    @property
    def definition(self) -> Definition:
        """What was declared."""
        return Definition(
            name=self.name,
            state=self.state_type,
            nodes=dict(self._nodes),
            edges=tuple(self._edges),
            routers=tuple(self._routers),
            entries=tuple(dict.fromkeys(self._entries)),
            before=frozenset(self._before),
            after=frozenset(self._after),
            goal=self._goal,
            place=self._place,
        )

    def check(self) -> None:
        """Raise `GraphInvalid` with all problems of the graph, if it has any. Done by itself before the first step."""
        problems = verify(self.definition)
        if problems:
            raise GraphInvalid(self.name, tuple(problems))

    def mermaid(self, run: Run | None = None) -> str:
        """The graph as a Mermaid flowchart; with a run of it, the path that it took is highlighted."""
        return mermaid(*self._drawn(run))

    def svg(self, run: Run | None = None) -> str:
        """The graph as SVG text; with a run of it, the path that it took is highlighted. Needs the extra ``draw``."""
        return svg(*self._drawn(run))

    def _drawn(self, run: Run | None) -> tuple[Topology, Path | None]:
        if run is None:
            return topology(self.definition), None
        record = run.held.read_record()
        saved = run.held.journals.state(record)
        if record.workflow != self.name or (saved is not None and "graph" not in saved.tree):
            raise UsageError(f"run {run.id!r} is not a run of graph {self.name}")
        if saved is None:
            return topology(self.definition), Path()
        return topology_of(saved.tree), path_of(saved.tree, failed=record.status is Status.FAILED)

    @property
    def ways(self) -> Ways:
        """The definition, checked and prepared for running."""
        if self._ways is None:
            self.check()
            self._ways = Ways(self.definition, self.state)
        return self._ways

    @property
    def digest(self) -> str:
        """Of nodes, edges and fields, as a run keeps it: a run that was saved with another one was changed under."""
        return self.ways.digest

    # --- what a workflow is

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The state that a run begins with, checked."""
        [given], named = super().bind(args, kwargs)
        self.ways  # noqa: B018  which checks the graph
        return (self.state.begin(self.name, given),), named

    def types(self) -> dict[str, Any]:
        """What the argument and the result are read as."""
        return {"state": self.state_type, "return": self.state_type}

    def edit(self, codec: Codec, input: dict[str, Any], saved: Any, update: Any, as_node: str | None) -> Edited:
        """What an update by a person makes of a run's state and queue."""
        if as_node is not None and as_node not in self.ways.nodes:
            raise UsageError(f"graph {self.name} has no node {as_node!r}; it has {', '.join(self.ways.nodes)}")
        tree = saved.tree if saved is not None else begun(self.ways, codec, self._begins(codec, input))
        held = Held(self.state, codec, self.name, tree["state"])
        plan = Plan(self.ways, held, tree)
        delta = plan.edit(self.state.update(held, as_node or EDIT, update, None), as_node)
        return Edited(delta) if saved is not None else Edited(None, patch_owned(tree, delta))  # type: ignore[arg-type]

    def _begins(self, codec: Codec, input: dict[str, Any]) -> Any:
        if input.get("args") is None:
            raise UsageError(f"graph {self.name}: the state that the run begins with was erased on request")
        return codec.decode(input["args"][0], self.state_type, "state")

    def completed(self, execution: Execution, value: Any) -> dict[str, Any]:
        """The result is the state that was saved last, which is not stored again."""
        return {"saved": execution.lease.record.state}


async def _later(ended: Any, make: Callable[[Any], Any]) -> Any:
    return make(await ended)


def _function(graph: Graph) -> Callable[[Any], Any]:
    """What a graph of plain functions is as a workflow."""

    def run(state: Any) -> None:
        plainly(_running(graph, state))

    return run


def _function_on_loop(graph: Graph) -> Callable[[Any], Any]:
    async def run(state: Any) -> None:
        await on_loop(_running(graph, state))

    return run


def _running(graph: Graph, state: Any) -> Running:
    scope = current_scope.get()
    if scope is None:
        raise UsageError(f"graph {graph.name} is not called; start a run of it with hf.start(graph, state)")
    return Running(graph, scope.execution, state)
