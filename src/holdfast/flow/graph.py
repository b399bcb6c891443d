"""A flow as a graph: one node for each step of the flow itself, one after the other.

All runs of flows are runs of the workflow ``flow``. What a run does is in its input, so any process that has imported
this module can go on with it, without the file: `FlowRuns.of_run` makes the graph of that run from its input.
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any, TypedDict

from msgspec.structs import replace

import holdfast
from holdfast.codec import Codec
from holdfast.engine.workflow.declare import Workflow, register
from holdfast.engine.workflow.scope import here
from holdfast.errors import RunDamaged, UsageError
from holdfast.flow.actions.functions import loaded
from holdfast.flow.actions.secrets import Vault
from holdfast.flow.file.loading import functions_of
from holdfast.flow.file.model import Definition, Step, restored
from holdfast.flow.file.variables import start_values
from holdfast.flow.perform import Performer
from holdfast.flow.template.render import Frame, outputs_of
from holdfast.graph import END, Graph, merge
from holdfast.graph.model import Definition as GraphDefinition

NAME = "flow"


class FlowState(TypedDict):
    """The state of a flow's run: its variables, and what became of each step."""

    vars: Annotated[dict[str, Any], merge]
    steps: Annotated[dict[str, Any], merge]


class FlowInput(TypedDict):
    """What a flow's run begins with: what it does, and its variables."""

    flow: dict[str, Any]
    vars: dict[str, Any]


def first_input(definition: Definition, vars: dict[str, Any]) -> FlowInput:
    """What a run begins with; raises `VarsRefused` for values that do not fit."""
    return {"flow": definition.stored(), "vars": start_values(definition, vars)}


def _first_state(given: FlowInput) -> FlowState:
    return {"vars": given["vars"], "steps": {}}


class FlowGraph(Graph):
    """The graph of one flow. Its nodes are the steps of the flow itself; its result is what `outputs:` give."""

    _is_found_by_name = False

    def __init__(self, definition: Definition) -> None:
        super().__init__(
            FlowState,
            name=NAME,
            max_steps=definition.max_steps,
            on_failure="rollback" if definition.on_failure == "rollback" else "fail",
            deadline=definition.timeout,
            place=f"{definition.file}:1",
        )
        self.flow = definition
        self._performer: Performer | None = None
        self._drive, self.function = self.function, self._run
        self.signature = inspect.signature(self.function)
        self._declare()

    @property
    def label(self) -> str:
        """The name of the flow, for people."""
        return self.flow.name

    @property
    def definition(self) -> GraphDefinition:
        """What is checked, drawn and run, under the name of the flow."""
        return replace(super().definition, name=self.flow.name)

    def types(self) -> dict[str, Any]:
        """What the argument is read as; the result is plain."""
        return {"given": FlowInput}

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What a run begins with, as `first_input` made it."""
        self.ways  # noqa: B018  which checks the graph
        return Workflow.bind(self, args, kwargs)

    def _begins(self, codec: Codec, input: dict[str, Any]) -> FlowState:
        return _first_state(_read_input(codec, input))

    def completed(self, execution: Any, value: Any) -> dict[str, Any]:
        """The outputs are kept as the result."""
        return Workflow.completed(self, execution, value)

    def _declare(self) -> None:
        steps = self.flow.steps
        for n, step in enumerate(steps):
            place = self.flow.place(step)
            self.node(name=step.id, place=place, writes=("vars", "steps"))(self._node(step))
            following = steps[n + 1].id if n + 1 < len(steps) else END
            if step.goto is not None:
                self.route(step.id, _router(step, following), to=dict.fromkeys((following, step.goto)), place=place)
            else:
                self.edge(step.id, following, place=place)
        self.entry(steps[0].id)
        for when in ("before", "after"):
            self.interrupt(**{when: [step.id for step in steps if step.breakpoint == when]})

    def _run(self, given: FlowInput | None) -> Any:
        """One drive: the secrets are read anew, and in the end the outputs are made. Nothing is given if there is a
        state to go on from.
        """
        vault = Vault(self.flow.secrets, self.flow.folder)
        vault.open()
        run = holdfast.this_run()
        self._performer = Performer(self.flow, vault, run, _child)
        self._drive(None if given is None else _first_state(given))
        ended = self._saved()
        return outputs_of(self.flow, Frame.of(self.flow, run, ended["vars"], ended["steps"]))

    def _saved(self) -> Any:
        execution = here("a flow").execution
        saved = execution.lease.saved()
        if saved is None:
            raise RunDamaged(execution.run.id, "it has ended, and no state of it is there")
        return execution.codec.decode(saved.tree["state"], FlowState, "state")

    def _node(self, step: Step) -> Any:
        def node(state: Any) -> dict[str, Any]:
            performer = self._performer
            assert performer is not None, "a node is called by a drive"
            frame = Frame.of(self.flow, performer.run, state["vars"], state["steps"])
            performer.perform(step, frame)
            return {"vars": frame.new_vars, "steps": frame.new_steps}

        node.__name__ = node.__qualname__ = step.id
        return node


def _router(step: Step, following: str) -> Any:
    def on_failure(state: Any) -> Any:
        return step.goto if state["steps"][step.id]["status"] == "failed" else following

    return on_failure


def _child(definition: Definition, given: dict[str, Any]) -> Any:
    """The outputs of another flow, which runs as a child of this run."""
    return FlowGraph(definition)(first_input(definition, given))


def _read_input(codec: Codec, input: dict[str, Any]) -> FlowInput:
    if not input.get("args"):
        raise UsageError("what the run began with was erased on request")
    given: FlowInput = codec.decode(input["args"][0], FlowInput, "input")
    return given


class FlowRuns(Workflow[[Any], Any]):
    """What all runs of flows are runs of."""

    state_type = FlowState

    def __init__(self) -> None:
        super().__init__(_not_called, name=NAME)
        self.__module__ = __name__
        register(self)

    def of_run(self, codec: Codec, input: dict[str, Any]) -> Workflow[..., Any]:
        """The graph of a run, from its input. Raises `UsageError` if a function that it calls is not loaded here."""
        if not input.get("args"):
            return self  # it was erased, which is told where it is read
        try:
            definition = restored(_read_input(codec, input)["flow"])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"its flow cannot be read here: {error}") from None
        for name in sorted(functions_of(definition)):
            loaded(name)
        return FlowGraph(definition)

    def edit(self, codec: Codec, input: dict[str, Any], *how: Any) -> Any:
        """An edit of the run's state, made by the graph of that run."""
        return self.of_run(codec, input).edit(codec, input, *how)


def _not_called(given: FlowInput) -> Any:
    raise UsageError("a flow is started with holdfast.flow.load(path).start(hf)")


RUNS = FlowRuns()
