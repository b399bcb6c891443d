"""A graph that was changed while a run of it waited: it goes on if what was done still fits, else it is parked."""

import dataclasses
from itertools import pairwise
from typing import Annotated, Any, TypedDict

import pytest

import holdfast
from holdfast import Graph, Holdfast, RunBlocked, Status, append, quorum


class Log(TypedDict, total=False):
    log: Annotated[list[str], append]
    score: int


class Stricter(TypedDict, total=False):
    log: Annotated[list[int], append]


class Larger(TypedDict, total=False):
    log: Annotated[list[str], append]
    score: int
    more: Annotated[list[str], append]


@dataclasses.dataclass
class Lines:
    log: Annotated[list[str], append] = dataclasses.field(default_factory=list)


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


def test_a_run_keeps_the_digest_of_its_graph(hf: Holdfast) -> None:
    def kept() -> str:
        [*_, last] = [entry.seq for entry in run.history() if entry.kind == "saved"]
        return str(run.entry(last).contents["graph"]["digest"])

    first = version("told", "awb")
    run = hf.start(first, {})
    assert kept() == first.digest == version("told", "awb").digest
    second = version("told", "awxb")
    assert first.digest not in (
        second.digest,
        version("other", "awb").digest,
        version("typed", "awb", state=Larger).digest,
    )
    version("told", "awxb")
    run.answer("yes")
    run.result()
    assert kept() == second.digest


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
    with holdfast.open("memory://", keys=holdfast.Keyring({"k": bytes(32)}, current="k")) as hf:
        run = hf.start(version("sealed", "awb"), {"log": ["a secret word"]})
        version("sealed", "awb", state=Stricter)
        run.answer("yes")
        with pytest.raises(RunBlocked, match="field 'log' does not fit") as parked:
            run.result()
        assert "secret" not in str(parked.value)


def test_a_new_field_with_a_reducer_begins_empty(memory: Holdfast) -> None:
    run = memory.start(version("begins-empty", "awb"), {})
    graph = version("begins-empty", "aw", state=Larger)
    graph.node(name="b")(lambda state: {"log": [f"{len(state['more'])} more"]})
    graph.edge("w", "b")
    run.answer("yes")
    assert run.result()["log"] == ["a", "w yes", "0 more"]


@pytest.mark.parametrize("was_dict", [True, False])
def test_another_kind_of_state_parks_it(memory: Holdfast, was_dict: bool) -> None:
    kinds = [Log, Lines] if was_dict else [Lines, Log]
    run = memory.start(version(f"kind-{was_dict}", "awb", state=kinds[0]), {})
    version(f"kind-{was_dict}", "awb", state=kinds[1])
    run.answer("yes")
    told = "stored as dict, and the graph's state is now Lines" if was_dict else "stored as Lines, .* is now Log"
    with pytest.raises(RunBlocked, match=told):
        run.result()


def mapped(name: str, how: str, state: Any = Log) -> Graph:
    """An item of a map has ended, and another one waits; or a node that is no map."""
    graph = Graph(state, name=name)

    def item(state: Any, item: int = 2) -> dict[str, Any]:
        return {"log": [f"{item} {holdfast.ask('?') if item == 2 else ''}"]}

    if how == "node":
        graph.node(name="m")(lambda state: item(state))
    else:
        reduce = (lambda state, results: {"score": len(results)}) if how == "reduced" else None
        graph.map(over=lambda state: [1, 2], name="m", reduce=reduce)(item)
    graph.entry("m")
    return graph


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        ("map", "node", "node m was a map, and is now a node"),
        ("node", "map", "node m was a node, and is now a map"),
        ("map", "reduced", "the results of node m are now reduced"),
        ("reduced", "map", "the results of node m are no longer reduced"),
    ],
)
def test_a_node_of_another_kind_parks_a_run_that_is_at_it(memory: Holdfast, was: str, now: str, told: str) -> None:
    run = memory.start(mapped(f"{was}-{now}", was), {})
    mapped(f"{was}-{now}", now)
    run.answer("yes")
    with pytest.raises(RunBlocked, match=f"it is at node m, which is of another kind. Changed are: {told}"):
        run.result()


def test_an_update_that_waits_for_others_must_fit_too(memory: Holdfast) -> None:
    run = memory.start(mapped("kept", "map"), {})
    assert run.checkpoint().queue == ["m:2"]
    mapped("kept", "map", Stricter)
    run.answer("yes")
    with pytest.raises(RunBlocked, match="field 'log': got str '1 ', wants int"):
        run.result()


def test_a_join_that_was_decided_and_is_gone_parks_it(memory: Holdfast) -> None:
    def joined(join: str) -> Graph:
        graph = Graph(Log, name="decided")
        graph.node(name="a")(lambda state: {"log": ["a"]})
        graph.node(name="w")(lambda state: {"log": [f"w {holdfast.ask('?')}"]})
        graph.node(name=join, join=quorum(2))(lambda state: {"log": [join]})
        graph.entry("a", "w")
        for source in "aw":
            graph.edge(source, join)
        return graph

    run = memory.start(joined("j"), {})
    joined("k")
    run.answer("yes")
    with pytest.raises(RunBlocked, match="it is at node j, which is not there any more"):
        run.result()
