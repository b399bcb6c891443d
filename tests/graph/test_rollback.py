"""Nodes that can be undone, and going back to any point of a graph's run."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest

import holdfast
from holdfast import Graph, Holdfast, Status, append, keep_last, step
from holdfast.errors import HoldfastError, UndoRefused
from holdfast.testing.crash import Crash

world: list[Any] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    world.clear()


class Deploy(TypedDict, total=False):
    log: Annotated[list[str], append]
    host: str


def take_down(update: dict[str, Any]) -> None:
    world.remove(update["host"])


def remove_note(result: str, what: str) -> None:
    world.remove(what)


@step(undo=remove_note)
def note_down(what: str) -> str:
    world.append(what)
    return what


@dataclass
class Host:
    name: str


class Typed(TypedDict, total=False):
    host: Host


def switch_off(update: dict[str, Any]) -> None:
    world.append(update["host"])


def test_an_update_with_types_of_the_state_is_undone_by_another_engine(opened: Callable[..., Holdfast]) -> None:
    """Which has not seen them: the annotation of the undo says nothing, that of the state does."""
    graph = Graph(Typed, name="typed-hosts")

    @graph.node(undo=switch_off)
    def switch_on(state: Typed) -> dict[str, Any]:
        return {"host": Host("web-1")}

    graph.entry(switch_on)
    opened().start(graph, {}, id="run").result()
    opened().get("run").rollback(to=0, then="cancelled")
    assert world == [Host("web-1")]


def deploying(name: str, **how: Any) -> Graph:
    graph = Graph(Deploy, name=name, **how)
    graph.node(name="build")(lambda state: {"log": [note_down("built")]})

    @graph.node(undo=take_down)
    def deploy(state: Deploy) -> dict[str, Any]:
        world.append("web-1")
        return {"host": "web-1", "log": ["deployed"]}

    graph.node(name="check")(lambda state: {"log": [f"checked {holdfast.ask('Fine?', bool)}"]})
    graph.entry("build")
    graph.edge("build", deploy)
    graph.edge(deploy, "check")
    return graph


def test_a_node_that_can_be_undone_is_an_effect(hf: Holdfast) -> None:
    run = hf.start(deploying("effect"), {})
    kinds = [entry.kind for entry in run.history()]
    assert kinds == ["created", "saved", "intended", "done", "saved", "intended", "done", "saved", "asked"]
    built, deployed = run.effects()
    assert (deployed.key, deployed.tool, deployed.status) == ("deploy#1", "deploy", "done")
    assert built.key == "build#1/note_down#1"


def test_a_rollback_undoes_steps_and_nodes_in_reverse_and_moves_the_state(hf: Holdfast) -> None:
    run = hf.start(deploying("back"), {})
    assert world == ["built", "web-1"]
    report = run.rollback(to=4)
    assert [effect.key for effect in report.undone] == ["deploy#1"]
    assert world == ["built"]
    assert run.checkpoint().state == {"log": ["built"]}
    assert run.checkpoint().queue == ["deploy"]
    report = run.rollback(to=1)
    assert [effect.key for effect in report.undone] == ["build#1/note_down#1"]
    assert world == []
    run.resume()
    assert world == ["built", "web-1"]
    run.answer(True)
    assert run.result() == {"log": ["built", "deployed", "checked True"], "host": "web-1"}


def test_going_back_to_between_the_result_and_the_state_does_not_do_it_again(memory: Holdfast) -> None:
    run = memory.start(deploying("between"), {})
    run.rollback(to=6)
    assert world == ["built", "web-1"]
    assert run.checkpoint().queue == ["deploy"]
    run.resume()
    assert world == ["built", "web-1"]
    run.answer(True)
    assert run.result()["log"] == ["built", "deployed", "checked True"]


def test_a_failure_rolls_everything_back(memory: Holdfast) -> None:
    graph = deploying("fails", on_failure="rollback")

    @graph.node
    def verify(state: Deploy) -> None:
        raise ValueError("not up")

    graph.edge("check", verify)
    run = memory.start(graph, {})
    run.answer(False)
    with pytest.raises(ValueError, match="not up"):
        run.result()
    assert world == []
    assert run.status is Status.FAILED


def test_a_node_that_died_in_the_act_is_uncertain_and_done_again(
    opened: Callable[..., Holdfast], kill: Callable[[Holdfast], None]
) -> None:
    first, second = opened(), opened()
    graph = Graph(Deploy, name="act")
    deadly = [True]

    @graph.node(undo=take_down)
    def deploy(state: Deploy) -> dict[str, Any]:
        world.append("web-1")
        if deadly:
            deadly.clear()
            kill(first)
            raise Crash
        return {"host": "web-1"}

    graph.entry(deploy)
    with suppress(Crash, HoldfastError):
        first.start(graph, {}, id="one")
    run = second.get("one")
    assert [effect.status for effect in run.effects()] == ["uncertain"]
    run.resume()
    assert [effect.status for effect in run.effects()] == ["repeated", "done"]
    assert world == ["web-1", "web-1"]


def test_a_node_that_raised_is_an_effect_that_raised(memory: Holdfast) -> None:
    graph = Graph(Deploy, name="raises")
    broken = [True]

    @graph.node(undo=take_down)
    def deploy(state: Deploy) -> dict[str, Any]:
        if broken:
            raise ValueError("no")
        world.append("web-2")
        return {"host": "web-2"}

    graph.entry(deploy)
    run = memory.start(graph, {})
    assert [effect.status for effect in run.effects()] == ["raised"]
    broken.clear()
    run.retry()
    assert run.result()["host"] == "web-2"
    run.rollback(to=1, then="cancelled")
    assert world == []


class Hosts(TypedDict, total=False):
    host: Annotated[str, keep_last]


def test_items_of_a_map_are_undone_one_by_one(memory: Holdfast) -> None:
    graph = Graph(Hosts, name="items")

    @graph.map(over=lambda state: ["x", "y"], undo=take_down, limit=1)
    def deploy(state: Hosts, item: str) -> dict[str, Any]:
        world.append(item)
        return {"host": item}

    graph.entry(deploy)
    run = memory.start(graph, {})
    assert run.result()["host"] == "y"
    report = run.rollback(to=1)
    assert [effect.key for effect in report.undone] == ["deploy#1.2", "deploy#1.1"]
    assert world == []


def test_a_subgraph_is_taken_back_as_a_whole(memory: Holdfast) -> None:
    inner = Graph(Deploy, name="inner-taken")
    inner.node(name="build")(lambda state: {"host": note_down("inner")})
    inner.entry("build")
    graph = Graph(Deploy, name="outer-taken")
    graph.subgraph("part", inner)
    graph.entry("part")
    run = memory.start(graph, {})
    assert world == ["inner"]
    run.rollback(to=1, then="cancelled")
    assert world == []


def test_an_undo_that_cannot_be_found_again_is_refused() -> None:
    graph = Graph(Deploy, name="lambda")
    with pytest.raises(UndoRefused):
        graph.node(name="a", undo=lambda update: None)(lambda state: None)
    with pytest.raises(UndoRefused, match="take_nothing"):
        graph.node(name="b", undo=take_nothing)(lambda state: None)


def take_nothing() -> None:
    pass


def test_an_erased_state_says_so(memory: Holdfast) -> None:
    run = memory.start(deploying("erased"), {})
    run.redact(1)
    fork = run.fork(1)
    with pytest.raises(HoldfastError, match="state: it was erased on request; fork the run, or roll it back"):
        fork.result()
