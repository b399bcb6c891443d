"""What type checkers see of graphs: decorators keep what they decorate."""

from typing import Annotated, Any, TypedDict, assert_type

import holdfast
from holdfast import END, Graph, NodeContext, append


class State(TypedDict):
    log: Annotated[list[str], append]


graph = Graph(State, name="typed")


@graph.node
def plain(state: State) -> dict[str, Any]:
    return {"log": ["plain"]}


@graph.node(join="any", writes=["log"])
async def named(state: State, context: NodeContext) -> None: ...


@graph.map(over="log", limit=2)
def each(state: State, item: str) -> dict[str, Any]:
    return {"log": item}


graph.entry(plain)
graph.edge(plain, "named", when=lambda state: True)
graph.route(named, lambda state: END, to=[plain, END])
graph.node(join="some")  # type: ignore[call-overload]
Graph(State)  # type: ignore[call-arg]

with holdfast.open("memory://") as hf:
    assert_type(plain({"log": []}), dict[str, Any])
    assert_type(each({"log": []}, "a"), dict[str, Any])
    run = hf.start(graph, {"log": []})
    assert_type(run, holdfast.Run)
    assert_type(run.edit({"log": "x"}, as_node="plain"), int)
    assert_type(run.fork(at=1, edit={"log": "x"}), holdfast.Run)
    assert_type(graph.mermaid(run), str)
