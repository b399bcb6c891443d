"""Savers to compare, stores to run them on, and small graphs."""

import operator
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from holdfast.errors import StoreUnusable
from holdfast.integrations.langgraph import HoldfastSaver

Opener = Callable[..., HoldfastSaver]


@pytest.fixture(params=("memory", "files", "sqlite", "postgres"))
def any_store_url(request: pytest.FixtureRequest, memdir: Path) -> str:
    """The URL of an empty store, of every kind there is."""
    match request.param:
        case "postgres":
            return str(request.getfixturevalue("postgres_url"))
        case "memory":
            return f"memory://{memdir.name}"
        case "files":
            return f"files:///{memdir / 'runs'}"
        case _:
            return f"sqlite:///{memdir / 'runs.db'}"


@pytest.fixture
def saver_of(store_url: str) -> Iterator[Opener]:
    """Opens savers on the store; each call is another holder. All are closed at the end."""
    made: list[HoldfastSaver] = []

    def opener(url: str = store_url, **how: Any) -> HoldfastSaver:
        made.append(HoldfastSaver(url, **how))
        return made[-1]

    yield opener
    for saver in made:
        with suppress(StoreUnusable):  # of one that was killed
            saver.close()


@pytest.fixture
def saver(saver_of: Opener) -> HoldfastSaver:
    return saver_of()


class State(TypedDict):
    xs: Annotated[list[Any], operator.add]


def thread(id: str = "t", **more: Any) -> dict[str, Any]:
    return {"configurable": {"thread_id": id, **more}}


@pytest.fixture(name="thread")
def thread_fixture() -> Callable[..., dict[str, Any]]:
    """What names a thread, for LangGraph."""
    return thread


Build = Callable[[BaseCheckpointSaver[Any]], Any]


@pytest.fixture
def asking() -> Build:
    """Two nodes; the second asks a person and adds the answer. What it did is in ``.ran``."""

    def build(saver: BaseCheckpointSaver[Any]) -> Any:
        ran: list[Any] = []

        def first(state: State) -> dict[str, Any]:
            return {"xs": ["first"]}

        def second(state: State) -> dict[str, Any]:
            answer = interrupt("how?")
            ran.append(answer)
            time.sleep(0.05)
            return {"xs": [answer]}

        graph = StateGraph(State)
        graph.add_node("first", first)
        graph.add_node("second", second)
        graph.add_edge(START, "first")
        graph.add_edge("first", "second")
        compiled = graph.compile(checkpointer=saver)
        compiled.ran = ran
        return compiled

    return build


@pytest.fixture
def nested() -> Build:
    """A graph that calls another one twice, which asks a person; with parallel nodes that are joined."""

    def build(saver: BaseCheckpointSaver[Any]) -> Any:
        inner = StateGraph(State)
        inner.add_node("think", lambda state: {"xs": [f"thought {len(state['xs'])}"]})
        inner.add_node("ask", lambda state: {"xs": [interrupt(f"how, after {len(state['xs'])}?")]})
        inner.add_edge(START, "think")
        inner.add_edge("think", "ask")
        outer = StateGraph(State)
        outer.add_node("left", lambda state: {"xs": ["left"]})
        outer.add_node("right", lambda state: {"xs": ["right"]})
        outer.add_node("inner", inner.compile())
        outer.add_node("end", lambda state: {"xs": ["end"]})
        outer.add_edge(START, "left")
        outer.add_edge(START, "right")
        outer.add_edge(["left", "right"], "inner")
        outer.add_conditional_edges("inner", lambda state: "inner" if len(state["xs"]) < 12 else "end")
        outer.add_edge("end", END)
        return outer.compile(checkpointer=saver)

    return build
