"""A graph that was changed while a run of it waited: it goes on if what was done still fits, else it is parked."""

import dataclasses
from itertools import pairwise
from typing import Annotated, Any, TypedDict

import pytest

import holdfast
from holdfast import Graph, Holdfast, RunBlocked, Status, append


class Log(TypedDict, total=False):
    log: Annotated[list[str], append]
    score: int


class Stricter(TypedDict, total=False):
    log: Annotated[list[int], append]


class Larger(TypedDict, total=False):
    log: Annotated[list[str], append]
    score: int
    more: Annotated[list[str], append]


def version(name: str, nodes: str, *, state: Any = Log, edges: str | None = None) -> Graph:
    """A chain of nodes; the one called w waits for a person."""
    graph = Graph(state, name=name)
    for node in nodes:
        how = (lambda state: {"log": [f"w {holdfast.ask('?')}"]}) if node == "w" else None
        graph.node(name=node)(how or (lambda state, node=node: {"log": [node]}))
    graph.entry(nodes[0])
    for source, target in (edges or " ".join(map("".join, pairwise(nodes)))).split():
        graph.edge(source, target)
    return graph


def test_it_goes_on_if_its_place_is_still_there(hf: Holdfast) -> None:
    run = hf.start(version("grown", "awb"), {})
    version("grown", "awxb")
    run.answer("yes")
    assert run.result()["log"] == ["a", "w yes", "x", "b"]
    names = [node["name"] for node in run.entry(run.info().seq - 1).contents["graph"]["topology"]["nodes"]]
    assert names == ["a", "w", "x", "b"]


def test_it_is_parked_with_the_difference_if_not(hf: Holdfast) -> None:
    run = hf.start(version("shrunk", "awb"), {})
    version("shrunk", "ab")
    run.answer("yes")
    with pytest.raises(RunBlocked) as parked:
        run.result()
    told = str(parked.value)
    assert "graph shrunk has changed, and the run does not fit it: it is at node w, which is not there any more" in told
    for change in ("node w was removed", "edge a → w was removed", "edge w → b was removed", "edge a → b is new"):
        assert change in told
    version("shrunk", "awb")
    run.unblock()
    assert run.result()["log"] == ["a", "w yes", "b"]


def test_a_state_that_no_longer_fits_its_type_parks_it(memory: Holdfast) -> None:
    run = memory.start(version("typed", "awb"), {})
    version("typed", "awb", state=Stricter)
    run.answer("yes")
    with pytest.raises(RunBlocked, match=r"field 'log': got .*, wants list\[int\].* field score was removed"):
        run.result()
    assert run.status is Status.BLOCKED


def test_a_field_that_is_gone_parks_it(memory: Holdfast) -> None:
    class Other(TypedDict, total=False):
        log: Annotated[list[str], append]

    run = memory.start(version("gone", "awb"), {"score": 1})
    version("gone", "awb", state=Other)
    run.answer("yes")
    with pytest.raises(RunBlocked, match="Other has no field score any more"):
        run.result()


def test_a_new_field_is_there_for_the_nodes_that_come(memory: Holdfast) -> None:
    run = memory.start(version("larger", "awb"), {})
    graph = version("larger", "awb", state=Larger)
    graph.node(name="c")(lambda state: {"more": ["new"]})
    graph.edge("b", "c")
    run.answer("yes")
    assert run.result() == {"log": ["a", "w yes", "b"], "more": ["new"]}


def test_another_version_is_another_graph(memory: Holdfast) -> None:
    old = Graph(Log, name="versions", version="1")
    old.node(name="w")(lambda state: {"log": [f"old {holdfast.ask('?')}"]})
    old.entry("w")
    run = memory.start(old, {})
    new = Graph(Log, name="versions", version="2")
    new.node(name="v")(lambda state: {"log": ["new"]})
    new.entry("v")
    run.answer("yes")
    assert run.result()["log"] == ["old yes"]
    assert memory.start(new, {}).result()["log"] == ["new"]


def test_a_class_with_a_newer_version_is_stored_anew(opened: Any) -> None:
    @dataclasses.dataclass
    class Old:
        log: Annotated[list[str], append] = dataclasses.field(default_factory=list)

    @dataclasses.dataclass
    class New:
        lines: Annotated[list[str], append] = dataclasses.field(default_factory=list)

    first = opened()
    first.register(Old, name="Kept")
    run = first.start(version("renewed", "awb", state=Old), {}, id="one")
    run.answer("yes")
    second = opened()
    second.register(New, name="Kept", version=2, upgrades={1: lambda parts: {"lines": parts["log"]}})
    graph = Graph(New, name="renewed")
    for node in "awb":
        graph.node(name=node)(lambda state, node=node: {"lines": [node]})
    graph.entry("a")
    graph.edge("a", "w")
    graph.edge("w", "b")
    again = second.get("one")
    again.resume()
    assert again.result() == New(["a", "w", "b"])


def test_an_encrypted_run_does_not_tell_its_values(memory: Holdfast) -> None:
    pytest.importorskip("cryptography")
    with holdfast.open("memory://", keys=holdfast.Keyring({"k": bytes(32)}, current="k")) as hf:
        run = hf.start(version("sealed", "awb"), {"log": ["a secret word"]})
        version("sealed", "awb", state=Stricter)
        run.answer("yes")
        with pytest.raises(RunBlocked, match="field 'log' does not fit") as parked:
            run.result()
        assert "secret" not in str(parked.value)
