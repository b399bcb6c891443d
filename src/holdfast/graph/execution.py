"""Running a graph: calls what is queued, saves what became of it, and waits where there is something to wait for.

`Running` is one drive of a graph under a lease. What is decided, the `Plan` decides; what it writes goes through the
run's execution, like anything that a workflow does. Its operations are driven in two ways, by `holdfast.graph.stages`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from holdfast.codec import Tree
from holdfast.engine.access.operations import Call, Op
from holdfast.engine.workflow.attempts import tell_time
from holdfast.engine.workflow.concurrency.races import forget
from holdfast.engine.workflow.concurrency.thread_bridge import Bridge
from holdfast.engine.workflow.execution import Execution
from holdfast.engine.workflow.failures import fail
from holdfast.engine.workflow.outcomes import Unwind
from holdfast.engine.workflow.scope import Scope, StepScope, current_scope
from holdfast.engine.workflow.waiting import wait
from holdfast.errors import HoldfastError
from holdfast.forms import form_of, store_form
from holdfast.graph.interrupts import Guards, changed_definition, interrupts
from holdfast.graph.model import Node
from holdfast.graph.nodes import NodeContext
from holdfast.graph.plan import Plan, Task, begun
from holdfast.graph.reducers import Delta
from holdfast.graph.state import Held
from holdfast.kernel.journal import Data
from holdfast.kernel.model import Kind

if TYPE_CHECKING:
    from holdfast.graph.declare import Graph


UNDO_RETRIES = 2


class Running:
    """One drive of a graph."""

    def __init__(self, graph: Graph, execution: Execution, given: Any) -> None:
        self.graph = graph
        self.ways = graph.ways
        self.execution = execution
        self._given = given
        self._lock = threading.RLock()  # a task ends at a time
        self._scopes: dict[str, Scope] = {}  # of the tasks of this stage, by path
        self._given_up: set[str] = set()  # of these, what nobody needs any more
        self._view: Any = None

    # --- operations, which are driven in either way

    def begin(self) -> Op[None]:
        """Find the run's place in the graph, or begin at the beginning."""
        execution, lease = self.execution, self.execution.lease
        saved = lease.saved()
        if saved is None:
            tree = begun(self.ways, execution.codec, self._given)
            yield from execution.settle(execution.submitted(lambda: lease.save(tree)))
            saved = lease.saved()
            assert saved is not None
        self.tree: Any = saved.tree
        self.notes: Data = changed_definition(execution, self.ways, self.tree)
        held = Held(self.ways.state, execution.codec, self.graph.name, self.tree["state"])
        if (renewed := held.renewed()) is not None:
            yield from execution.settle(execution.submitted(lambda: lease.change({"s": {"state": renewed}})))
            held.tree = self.tree["state"]
        self.plan = Plan(self.ways, held, self.tree)
        self.guards = Guards(self.graph, execution, self.plan, self.notes)
        execution.leave_behind([f"{task.path}/" for task in self.plan.tasks()] + self._effects())

    def _effects(self) -> list[str]:
        """The keys of nodes that are effects themselves and have not ended."""
        return [task.path for task in self.plan.tasks() if self.ways.nodes[task.node].undo is not None]

    def gate(self) -> Op[list[Task]]:
        """What is to be called now; nothing, if the run has come to its end. Waits here for who interrupted it."""
        tasks = self.plan.tasks()
        self._view, self._scopes, self._given_up = None, {}, set()
        yield from self._interrupted(interrupts(self.ways.definition, self.plan, tasks))
        if not tasks and (waiting := self.plan.book.get("waiting")):
            join, arrived = next(iter(waiting.items()))
            self.execution.park(
                f"node {join} waits for {self.ways.needed(join)} branches, and only {', '.join(sorted(set(arrived)))} "
                f"arrived; nothing else can come. Count one in with run.edit({{...}}, as_node=...), or roll back; then "
                "run.unblock()"
            )
        if tasks:
            self.execution.check_deadline()
        self.guards.check(tasks)
        self._show_maps(tasks)
        return tasks

    def _show_maps(self, tasks: list[Task]) -> None:
        """Let others see how many items of the maps of this stage have ended, and of how many."""
        self.execution.fans.clear()
        left = {(task.node, task.item) for task in tasks}
        for node, items in self.plan.book.get("items", {}).items():
            fan: list[Future[None]] = [Future() for _ in items]
            for n, item in enumerate(fan, 1):
                if (node, n) not in left:
                    item.set_result(None)
            self.execution.fans[f"{node}#{self.plan.book['visits'][node]}"] = fan

    def _interrupted(self, keys: list[str]) -> Op[None]:
        """Wait until a person lets the run go on."""
        execution = self.execution
        fold = execution.lease.fold
        asked = {one.key for one in fold.questions.copy().values()}
        for key in keys:
            execution.consume(key)
        new = [key for key in keys if key not in fold.steps and key not in asked]
        lines = [(str(Kind.ASKED), question_of(self.graph.label, key)) for key in new]
        if lines:
            yield from execution.write(lines, "question")
            execution.engine.bell.ring()
        waited = [key for key in keys if key not in execution.lease.fold.steps]
        execution.waits.update(dict.fromkeys(waited))  # all of them: a question that nobody waits for is closed
        for key in waited:
            yield from wait(execution, execution.root, key, None, partial(_is_answered, execution, key))
            execution.waits.pop(key, None)

    def finish(self, task: Task, scope: Scope, returned: Any, since: float) -> Op[None]:
        """Keep what a task gave, and how long its call took."""
        execution = self.execution
        with self._lock:
            if scope.is_over or execution.outcome is not None:  # it lost a race just now
                raise Unwind
            with _no_calls(scope, task):
                entry = self._entry(task, returned)
                ended = self.plan.finish(task, entry)
            losers = [self.scope_of(loser) for loser, _ in ended.given_up]
            self._given_up.update(loser.path for loser, _ in ended.given_up)
            said: Data = {}
            tell_time(said, since)
            beside = self._effect(task, entry, said)
            if losers:
                beside += self._forgotten(ended.given_up[0][1], losers)
            delta = self.guards.counted(_noted(ended.delta, self.notes))
            self.notes = {}
            ticket = execution.submitted(lambda: execution.lease.change(delta, beside, said))
            if task.item:
                execution.fans[f"{task.node}#{task.visit}"][task.item - 1].set_result(None)
        yield from execution.settle(ticket)

    def _entry(self, task: Task, returned: Any) -> dict[str, Tree]:
        """What is kept of a task that has ended: its update, or its result if those are reduced."""
        node = self.ways.nodes[task.node]
        if node.kind == "map" and node.reduce is not None:
            stored = self.execution.codec.encode(returned, f"result of {task.path}")
            return {"r": stored} if task.item != 0 else {}
        return {"u": self.plan.update(task.node, returned)}

    def _forgotten(self, join: str, losers: list[Scope]) -> list[tuple[str, Data]]:
        """The entries that close what the tasks that were given up had begun; none if there is nothing."""
        visit = self.plan.book["visits"].get(join, 0) + 1
        lines = forget(self.execution, losers, (str(Kind.DONE), {"key": f"join:{join}#{visit}", "result": None}))
        self.execution.consume(f"join:{join}#{visit}")
        return lines if len(lines) > 1 or "lost" in lines[0][1] else []

    def _effect(self, task: Task, entry: dict[str, Tree], said: Data) -> list[tuple[str, Data]]:
        if self.ways.nodes[task.node].undo is None:
            return []
        key, fold = task.path, self.execution.lease.fold
        if key in fold.steps:
            return []
        result = entry.get("u", entry.get("r"))
        return [(str(Kind.DONE), {"key": key, "intent": fold.intents[key], "result": result, **said})]

    # --- calling

    def carry_out(self, task: Task, scope: Scope) -> Op[None]:
        """Call a task's node in its scope, and keep what it gives."""
        if scope.is_over:  # it was given up before its thread began
            raise Unwind
        node, since = self.ways.nodes[task.node], monotonic()
        try:
            returned = None
            done = (yield from self._intended(task, scope)) if node.undo is not None else None
            if done is not None:
                returned = self.execution.value(done, task.path)
            elif task.item != 0:  # which stands for a map without items
                returned = yield self._call(task, node, scope)
            yield from self.finish(task, scope, returned, since)
        except Exception as error:  # of the user's function, which may raise anything
            if scope.is_over:  # it was given up, so nobody needs to know
                raise Unwind from error
            told(error, self.graph.name, task)
            said: Data = {}
            tell_time(said, since)
            self.execution.failed_at.append((error, {"node": task.path, **said}))
            yield from self._failed(task, error, said)
            raise

    def _call(self, task: Task, node: Node, scope: Scope) -> Call:
        args = tuple(self._arguments(task, node))
        if self.graph.is_async and node.kind != "graph" and not node.is_async:
            return Call(Bridge(scope).call, (partial(node.function, *args),), {})
        return Call(node.function, args, {})

    def _arguments(self, task: Task, node: Node) -> list[Any]:
        if self._view is None:
            self._view = self.plan.held.view()
        args = [self._view]
        if task.item:
            args.append(self.plan.item(task))
        if node.takes_context:
            args.append(NodeContext(self.execution.run.id, self.graph.name, task.node, task.visit, task.item))
        return args

    def scope_of(self, task: Task) -> Scope:
        """The scope that a task's calls are made in."""
        if task.path not in self._scopes:
            self._scopes[task.path] = self.execution.root.branch(task.path)
        return self._scopes[task.path]

    def may_begin(self, task: Task, running: list[Task]) -> bool:
        """Whether a task can be begun beside those that are running: it was not given up, and a map has its limit."""
        limit = self.ways.nodes[task.node].limit
        is_free = limit is None or sum(one.node == task.node for one in running) < limit
        return is_free and not self.scope_of(task).stopped

    def is_given_up(self, task: Task) -> bool:
        """Whether nobody needs a task of this stage any more."""
        return task.path in self._given_up

    # --- nodes that are effects

    def _intended(self, task: Task, scope: Scope) -> Op[Any]:
        """Say what is about to be done by a node that can be undone; what the journal has of it, if it was done."""
        execution, node = self.execution, self.ways.nodes[task.node]
        key = task.path
        found = yield from execution.recall(scope, key, None, task.node, None, in_turn=False)
        if found is not None:
            return found
        execution.consume(key)
        begun, record = execution.lease.fold.intents.get(key), execution.lease.record
        if begun is None:
            yield from execution.admit(scope, key, task.node)
        elif not (record.crashes and record.crashed_at >= begun):
            return None  # it had to wait, and goes on; nobody died in it
        data: Data = {"key": key, "tool": task.node, "target": None, "args": [], "kwargs": {}, "reversible": True}
        data |= {"undo": node.undo, "undo_retries": UNDO_RETRIES}
        yield from execution.write([(Kind.INTENDED, data)])
        return None

    def _failed(self, task: Task, error: Exception, said: Data) -> Op[None]:
        """Journal that a node which is an effect has failed."""
        fold = self.execution.lease.fold
        if self.ways.nodes[task.node].undo is not None and task.path in fold.intents:
            line: Data = {"key": task.path, "intent": fold.intents[task.path], **said}
            yield from fail(self.execution, task.path, line, error)


def told(error: Exception, graph: str, task: Task) -> None:
    """Say in the error where it came from, once."""
    note = f"in node {task.path} of graph {graph}"
    if not isinstance(error, HoldfastError) and note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def question_of(graph: str, key: str) -> Data:
    """The question that stands for an interrupt: yes lets the run go on, no leaves it waiting."""
    _, when, which = key.split(":", 2)
    prompt = f"graph {graph} is interrupted {when} {which}: go on?"
    return {"key": key, "prompt": prompt, "fields": store_form(form_of(bool)), "output_key": key}


def _is_answered(execution: Execution, key: str) -> bool:
    return key in execution.lease.fold.steps


def _noted(delta: Delta, notes: Data) -> Delta:
    """The delta with something more to be kept in the part of the graph."""
    if not notes:
        return delta
    inside = delta.get("d", {})
    graph = inside.get("graph", {})
    return {**delta, "d": {**inside, "graph": {**graph, "s": {**graph.get("s", {}), **notes}}}}


@contextmanager
def _no_calls(scope: Scope, task: Task) -> Iterator[None]:
    """While routers, conditions and reducers are asked: they are pure, and may call no step."""
    token = current_scope.set(StepScope(scope.execution, f"{task.path} (what decides the way)", 1))
    try:
        yield
    finally:
        current_scope.reset(token)
