"""What may hold a graph up before its next stage: a guard that has tripped, an interrupt, a definition that changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.engine.control.questions import INTERRUPT
from holdfast.engine.workflow.execution import Execution
from holdfast.errors import HoldfastError
from holdfast.graph.model import Definition
from holdfast.graph.plan import ITEM, Plan, Task
from holdfast.graph.reducers import Delta
from holdfast.graph.routing import Ways
from holdfast.graph.state import Held
from holdfast.graph.topology import differences
from holdfast.kernel.journal import Data
from holdfast.kernel.model import Kind

if TYPE_CHECKING:
    from holdfast.graph.declare import Graph


def interrupts(definition: Definition, plan: Plan, tasks: list[Task]) -> list[str]:
    """The keys of the interrupts that are due now: after what has ended, and before what comes."""
    keys = [f"{INTERRUPT}after:{one}" for one in plan.book.get("after", ())]
    nodes = dict.fromkeys((task.node, task.visit) for task in tasks if task.node in definition.before)
    return keys + [f"{INTERRUPT}before:{node}#{visit}" for node, visit in nodes]


class Guards:
    """Counts steps, visits and time from the beginning of the run, or from when a person last unblocked it."""

    def __init__(self, graph: Graph, execution: Execution, plan: Plan, notes: Data) -> None:
        self.graph = graph
        self.execution = execution
        self.plan = plan
        self._since = execution.clock.now()
        self._allowance: Data = plan.book.get("allowance", {})
        unblocked = [seq for seq, kind, _, _ in execution.lease.fold.log if kind == Kind.UNBLOCKED]
        if unblocked and unblocked[-1] > self._allowance.get("seq", -1):
            book = plan.book
            self._allowance = {"seq": unblocked[-1], "steps": plan.count, "visits": dict(book["visits"])}
            for name in {task.node for task in plan.tasks()}:  # these have not been called yet
                self._allowance["visits"][name] -= 1
                self._allowance["steps"] -= 1
            self._allowance["spent"] = book.get("spent", 0)
            notes["allowance"] = self._allowance

    def check(self, tasks: list[Task]) -> None:
        """Park the run if a guard has tripped."""
        book, graph = self.plan.book, self.graph
        if not tasks or "pending" in book:
            return
        if self.plan.count - self._allowance.get("steps", 0) > graph.max_steps:
            self._trip(f"it took {graph.max_steps} steps", "max_steps")
        if graph.max_visits is not None:
            before = self._allowance.get("visits", {})
            for task in tasks:
                if book["visits"][task.node] - before.get(task.node, 0) > graph.max_visits:
                    self._trip(f"it came to node {task.node} {graph.max_visits} times", "max_visits")
        if graph.max_time is not None and self._spent() - self._allowance.get("spent", 0) > graph.max_time * 1_000_000:
            self._trip(f"it was at work for {graph.max_time:g} s", "max_time")

    def _trip(self, what: str, guard: str) -> None:
        queue = ", ".join(dict.fromkeys(name.partition(ITEM)[0] for name in self.plan.tree["queue"]))
        self.execution.park(
            f"{what}, which is the most that {guard} of graph {self.graph.name} allows; next is {queue}. "
            f"run.unblock() lets it go on with a new allowance"
        )

    def _spent(self) -> int:
        """Microseconds that the run was at work."""
        now = self.execution.clock.now()
        return int(self.plan.book.get("spent", 0)) + max(now - self._since, 0)

    def counted(self, delta: Delta) -> Delta:
        """The delta with the time that was spent, if that is guarded."""
        if self.graph.max_time is None:
            return delta
        spent, self._since = self._spent(), self.execution.clock.now()
        inside = delta.get("d", {})
        graph = inside.get("graph", {})
        return {**delta, "d": {**inside, "graph": {**graph, "s": {**graph.get("s", {}), "spent": spent}}}}


def changed_definition(execution: Execution, ways: Ways, tree: Any) -> Data:
    """What to note if the graph is another one than the run was saved with; parks it if it no longer fits."""
    book = tree["graph"]
    if book["digest"] == ways.digest:
        return {}
    fields = ways.state.described
    changes = [*differences(book["topology"], ways.topology), *_field_differences(book["fields"], fields)]
    decided = [target for targets in book.get("taken", {}).values() for target in targets]
    needed = [*tree["queue"], *book.get("pending", ()), *book.get("waiting", ()), *decided]
    missing = sorted({name.partition(ITEM)[0] for name in needed} - ways.nodes.keys())
    try:
        held = Held(ways.state, execution.codec, ways.definition.name, tree["state"])
        shown = execution.lease.record.key_id is None  # a reason stands in the clear, where no value of it may be read
        kept = [held.unfit(one["u"]) for one in book.get("pending", {}).values() if "u" in one]
        misfits = [pair for found in (held.misfits(), *kept) for pair in found.items()]
        told = [f"field {name!r}" + (f": {problem}" if shown else " does not fit") for name, problem in misfits]
        problems = list(dict.fromkeys(told))
    except HoldfastError as error:
        problems = [str(error)]
    if others := sorted({name.partition(ITEM)[0] for name in needed if _is_of_another_kind(ways, tree, name)}):
        problems.insert(0, f"it is at node {', '.join(others)}, which is of another kind")
    if missing:
        problems.insert(0, f"it is at node {', '.join(missing)}, which is not there any more")
    if problems:
        execution.park(
            f"graph {ways.definition.name} has changed, and the run does not fit it: {'; '.join(problems)}. Changed "
            f"are: {'; '.join(changes) or 'types'}. Put back what it needs, or roll back; then run.unblock()"
        )
    return {"topology": ways.topology, "fields": fields, "digest": ways.digest}


def _is_of_another_kind(ways: Ways, tree: Any, task: str) -> bool:
    """Whether a task cannot be one of its node any more: an item where there is no map, or the other way round."""
    name, _, item = task.partition(ITEM)
    node, queue, ended = ways.nodes.get(name), tree["queue"], tree["graph"].get("pending", {}).get(task, {})
    if node is None or "edited" in ended or (task not in queue and not ended):
        return False
    kept = "r" if node.reduce is not None else "u"
    return bool(item) != (node.kind == "map") or (bool(ended) and kept not in ended)


def _field_differences(old: dict[str, str], new: dict[str, str]) -> list[str]:
    told = [f"field {name} was removed" for name in old if name not in new]
    told += [f"field {name} is new" for name in new if name not in old]
    return told + [
        f"field {name} was {old[name]}, and is now {new[name]}"
        for name in old
        if name in new and old[name] != new[name]
    ]
