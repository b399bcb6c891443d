"""What a growing state costs in a graph: on disk, in time for each node, and to open it again.

A ring of ten nodes is visited 10,000 times, and each visit appends about 1 KB to one list. A commit does not wait for
the disk (``durability=normal``), so that what grows with the state cannot hide behind the syncing. Beside LangGraph,
which keeps the whole state at each step, both sync each commit.
"""

from __future__ import annotations

import operator
import shutil
import sqlite3
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec

import holdfast
from bench.harness import AtLeast, Measured, Say, in_turns, random_texts, ratio, size_of
from bench.saver import config, official
from holdfast import Graph, append
from holdfast.codec import expand

VISITS = 10_000
ITEM = 1_024
NODES = 10
ROUNDS = 7
BESIDE = 2_000  # nodes, at which LangGraph's file has about 2 GB
BESIDE_ROUNDS = 5

GOALS: dict[str, float] = {
    "growth_bytes_over_appended": 1.3,
    "growth_last_over_first": 1.2,
    "open_over_read_and_decode": 1.5,
    "langgraph_growth_bytes_over_ours": AtLeast(300),
}


def measure(folder: Path, say: Say) -> dict[str, float]:
    place = folder / "graphs.db"
    say(f"{VISITS} nodes of a graph, each appending {ITEM} bytes")
    figures = growth(place)
    say("opening the latest state")
    figures |= opening(place)
    say(f"{BESIDE:,} nodes of a graph, and of one of LangGraph")
    return figures | beside_langgraph(folder)


class Talk(TypedDict):
    messages: Annotated[list[str], append]
    count: int


def ring(items: list[str], times: list[float]) -> Graph:
    """Nodes in a ring; each appends an item, and notes when it was called."""
    graph = Graph(Talk, name="ring", max_steps=2 * VISITS)

    def node(state: Any) -> dict[str, Any]:
        times.append(time.perf_counter())
        count = state["count"]
        return {"messages": [items[count]], "count": count + 1}

    for n in range(NODES):
        graph.node(name=f"node-{n}")(lambda state: node(state))
    graph.entry("node-0")
    for n in range(NODES):
        graph.edge(f"node-{n}", f"node-{(n + 1) % NODES}", when=lambda state: state["count"] < len(items))
    return graph


def growth(place: Path) -> dict[str, float]:
    """Bytes on disk over bytes appended, and the time for a node at the end over that at the beginning."""
    items = random_texts(VISITS, 7, ITEM)
    times: list[float] = []
    with holdfast.open(f"sqlite:///{place}?durability=normal") as hf:
        run = hf.start(ring(items, times), {"messages": [], "count": 0}, id="ring")
        assert len(run.result()["messages"]) == VISITS
    each = [after - before for before, after in pairwise(times)]
    tenth = VISITS // 10
    return {
        "growth_nodes": VISITS,
        "growth_bytes_over_appended": size_of(place) / (VISITS * ITEM),
        "growth_last_over_first": statistics.median(each[-tenth:]) / statistics.median(each[:tenth]),
        "growth_node_us": statistics.median(each) * 1e6,
    }


def opening(place: Path) -> dict[str, float]:
    """The latest state, opened by a process that knows nothing of it; over reading and decoding the same rows."""
    opened, read = [], []
    for _ in range(ROUNDS):
        with holdfast.open(f"sqlite:///{place}") as hf:
            run = hf.get("ring")
            started = time.perf_counter()
            assert len(run.checkpoint().state["messages"]) == VISITS
            opened.append(time.perf_counter() - started)
        connection = sqlite3.connect(place)
        started = time.perf_counter()
        rows = connection.execute("SELECT payload FROM entry WHERE kind = 'saved' ORDER BY seq").fetchall()
        decoded = [msgspec.json.decode(expand(payload)) for (payload,) in rows]
        read.append(time.perf_counter() - started)
        connection.close()
        assert len(decoded) == VISITS + 1
    return {
        "open_over_read_and_decode": ratio(opened, read),
        "open_ms": Measured.of(opened, 1e3),
        "read_and_decode_ms": Measured.of(read, 1e3),
    }


def beside_langgraph(folder: Path) -> dict[str, float]:
    """The same list, grown by a graph of LangGraph with its SQLite saver; both sync every commit, and take turns."""
    items = random_texts(BESIDE, 7, ITEM)
    sizes: dict[str, int] = {}

    def by_us(place: Path, items: list[str]) -> float:
        graph = ring(items, [])
        with holdfast.open(f"sqlite:///{place / 'ours.db'}") as hf:
            started = time.perf_counter()
            assert len(hf.start(graph, {"messages": [], "count": 0}).result()["messages"]) == len(items)
            return time.perf_counter() - started

    def by_them(place: Path, items: list[str]) -> float:
        saver = official(place)
        graph = of_langgraph(saver, items)
        started = time.perf_counter()
        told = graph.invoke({"messages": [], "count": 0}, config("t"), durability="sync")
        took = time.perf_counter() - started
        assert len(told["messages"]) == len(items)
        saver.conn.close()
        return took

    def runner(name: str, run: Callable[[Path, list[str]], float]) -> Callable[[int], float]:
        def call(round: int) -> float:
            place = folder / f"beside-{name}"
            place.mkdir()
            took = run(place, items if round else items[:50])
            sizes[name] = size_of(place)
            shutil.rmtree(place)
            return took

        return call

    times = in_turns({"ours": runner("ours", by_us), "langgraph": runner("langgraph", by_them)}, BESIDE_ROUNDS)
    return {
        "langgraph_growth_steps": BESIDE,
        "langgraph_growth_bytes_over_ours": sizes["langgraph"] / sizes["ours"],
        "langgraph_growth_time_over_ours": ratio(times["langgraph"], times["ours"]),
        "langgraph_growth_mb": sizes["langgraph"] / 1e6,
        "langgraph_growth_ours_mb": sizes["ours"] / 1e6,
        "langgraph_growth_us": Measured.of(times["langgraph"], 1e6 / BESIDE),
        "langgraph_growth_ours_us": Measured.of(times["ours"], 1e6 / BESIDE),
    }


def of_langgraph(saver: Any, items: list[str]) -> Any:
    """One node that appends an item until there are no more."""
    from langgraph.graph import END, START, StateGraph

    class State(TypedDict):
        messages: Annotated[list[str], operator.add]
        count: int

    def node(state: Any) -> dict[str, Any]:
        return {"messages": [items[state["count"]]], "count": state["count"] + 1}

    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_conditional_edges("node", lambda state: "node" if state["count"] < len(items) else END)
    return graph.compile(checkpointer=saver)
