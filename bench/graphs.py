"""What a growing state costs in a graph: on disk, in time for each node, and to open it again.

A ring of ten nodes is visited 10,000 times, and each visit appends about 1 KB to one list. A commit does not wait for
the disk (``durability=normal``), so that what grows with the state cannot hide behind the syncing.
"""

from __future__ import annotations

import random
import sqlite3
import statistics
import string
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec

import holdfast
from bench.kernel import size_of
from holdfast import Graph, append
from holdfast.codec import expand

VISITS = 10_000
ITEM = 1_024
NODES = 10
ROUNDS = 7

GOALS: dict[str, float] = {
    "graph_growth_bytes_over_appended": 1.3,
    "graph_growth_last_over_first": 1.2,
    "graph_open_over_read_and_decode": 1.5,
}


def measure(folder: Path, say: Callable[[str], None]) -> dict[str, float]:
    place = folder / "graphs.db"
    say(f"{VISITS} nodes of a graph, each appending {ITEM} bytes")
    figures = growth(place)
    say("opening the latest state")
    return figures | opening(place)


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
    source = random.Random(7)
    alphabet = string.digits + string.ascii_letters + string.punctuation + " "
    items = ["".join(source.choices(alphabet, k=ITEM)) for _ in range(VISITS)]
    times: list[float] = []
    with holdfast.open(f"sqlite:///{place}?durability=normal") as hf:
        run = hf.start(ring(items, times), {"messages": [], "count": 0}, id="ring")
        assert len(run.result()["messages"]) == VISITS
    each = [after - before for before, after in pairwise(times)]
    tenth = VISITS // 10
    return {
        "graph_growth_nodes": VISITS,
        "graph_growth_bytes_over_appended": size_of(place) / (VISITS * ITEM),
        "graph_growth_last_over_first": statistics.median(each[-tenth:]) / statistics.median(each[:tenth]),
        "graph_node_us": statistics.median(each) * 1e6,
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
        "graph_open_over_read_and_decode": min(opened) / min(read),
        "graph_open_ms": min(opened) * 1e3,
        "graph_read_and_decode_ms": min(read) * 1e3,
    }
