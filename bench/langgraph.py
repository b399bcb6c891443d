"""`HoldfastSaver` against LangGraph's own SQLite saver, on the same graphs, at durability "sync".

All savers sync the log of SQLite at each commit (WAL, synchronous=FULL). The ceiling is a saver that keeps nothing
and makes one raw commit for each superstep, of as many bytes as Holdfast stores for one, in a file with the same
settings: what LangGraph itself costs, and the disk. Savers take turns, and figures are medians of rounds.
"""

from __future__ import annotations

import asyncio
import gc
import operator
import random
import sqlite3
import statistics
import string
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

from bench.kernel import size_of
from holdfast.stores.sqlite_file import PAGE_SIZE

ROUNDS = 21
STEPS = 150
THREADS = 50
THREAD_STEPS = 20
GROWN = 1_000
ITEM = 1_024
COMMIT_BYTES = 1_200  # of a superstep of the small graph, as Holdfast stores it

GOALS: dict[str, float] = {
    "saver_sqlite_over_ceiling": 1 / 0.85,
    "saver_sqlite_over_official": 1 / 1.3,
    "saver_concurrent_over_official": 1 / 2.5,
    "saver_growth_bytes_over_official": 1 / 100,
    "saver_growth_time_over_official": 1 / 4,
    "saver_growth_bytes_over_delta": 1.0,
    "saver_growth_time_over_delta": 1.0,
}

Saver = Any
Make = Callable[[Path], Saver]


def measure(folder: Path, say: Callable[[str], None]) -> dict[str, float]:
    say(f"LangGraph: a small graph of {STEPS} supersteps")
    figures = small(folder)
    say(f"LangGraph: {THREADS} threads of {THREAD_STEPS} supersteps")
    figures |= asyncio.run(concurrent(folder))
    say(f"LangGraph: {GROWN:,} messages")
    return figures | growth(folder)


# --- savers


def official(folder: Path) -> Saver:
    from langgraph.checkpoint.sqlite import SqliteSaver

    saver = SqliteSaver(sqlite3.connect(folder / "official.db", check_same_thread=False))
    saver.setup()
    return saver


def ours(folder: Path) -> Saver:
    from holdfast.integrations.langgraph import HoldfastSaver

    return HoldfastSaver(f"sqlite:///{folder / 'ours.db'}")


def ceiling(folder: Path) -> Saver:
    from langgraph.checkpoint.memory import InMemorySaver

    class Ceiling(InMemorySaver):
        """Keeps nothing, and commits."""

        def __init__(self) -> None:
            super().__init__()
            self.db = sqlite3.connect(folder / "ceiling.db", check_same_thread=False, isolation_level=None)
            for setting in (f"page_size = {PAGE_SIZE}", "journal_mode = WAL", "synchronous = FULL"):
                self.db.execute(f"PRAGMA {setting}")
            self.db.execute("CREATE TABLE entry (n INTEGER PRIMARY KEY, payload BLOB)")
            self.row = b"x" * COMMIT_BYTES

        def get_tuple(self, config: Any) -> None:
            return None

        def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
            self.db.execute("INSERT INTO entry (payload) VALUES (?)", (self.row,))
            named = config["configurable"]
            kept = {"thread_id": named["thread_id"], "checkpoint_ns": "", "checkpoint_id": checkpoint["id"]}
            return {"configurable": kept}

        def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            return None

    return Ceiling()


def close(saver: Saver) -> None:
    for name in ("conn", "db"):
        if hasattr(saver, name):
            getattr(saver, name).close()
            return
    saver.close()


# --- graphs


def counting(saver: Saver, steps: int) -> Any:
    """A node that counts to a number: a superstep for each."""
    from langgraph.graph import END, START, StateGraph

    class State(TypedDict):
        n: int

    graph = StateGraph(State)
    graph.add_node("count", lambda state: {"n": state["n"] + 1})
    graph.add_edge(START, "count")
    graph.add_conditional_edges("count", lambda state: "count" if state["n"] < steps else END)
    return graph.compile(checkpointer=saver)


def talking(saver: Saver, texts: Sequence[str], *, delta: bool = False) -> Any:
    """A node that adds a message until there are no more: a state that grows by one message for each superstep."""
    from langchain_core.messages import HumanMessage
    from langgraph.channels import DeltaChannel
    from langgraph.graph import END, START, StateGraph

    def extend(messages: list[Any], more: Sequence[list[Any]]) -> list[Any]:
        return [*messages, *(message for each in more for message in each)]

    kind: Any = Annotated[list[Any], DeltaChannel(extend)] if delta else Annotated[list[Any], operator.add]
    State = TypedDict("State", {"messages": kind})  # type: ignore[misc]  # noqa: UP013

    def say(state: Any) -> Any:
        n = len(state["messages"])
        return {"messages": [HumanMessage(texts[n], id=str(n))]}

    graph = StateGraph(State)
    graph.add_node("say", say)
    graph.add_edge(START, "say")
    graph.add_conditional_edges("say", lambda state: "say" if len(state["messages"]) < len(texts) else END)
    return graph.compile(checkpointer=saver)


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}, "recursion_limit": 1_000_000}


# --- figures


def in_turns(rivals: dict[str, Callable[[int], None]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each rival in each round. The first round warms up, and does not count."""
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for round in range(rounds + 1):
        for name, run in rivals.items():
            gc.collect()
            started = time.perf_counter()
            run(round)
            if round:
                times[name].append(time.perf_counter() - started)
    return times


def ratio(times: dict[str, list[float]], one: str, other: str) -> float:
    """The median of the rounds' ratios: a busy machine slows both."""
    return statistics.median(a / b for a, b in zip(times[one], times[other], strict=True))


def small(folder: Path) -> dict[str, float]:
    savers = {"official": official(folder), "ceiling": ceiling(folder), "ours": ours(folder)}
    graphs = {name: counting(saver, STEPS) for name, saver in savers.items()}

    def runner(name: str) -> Callable[[int], None]:
        return lambda round: graphs[name].invoke({"n": 0}, config(f"t{round}"), durability="sync")

    times = in_turns({name: runner(name) for name in savers}, ROUNDS)
    commits = savers["ours"]._threads.committer.commits / (STEPS * (ROUNDS + 1))
    for saver in savers.values():
        close(saver)
    return {
        "saver_sqlite_of_ceiling": ratio(times, "ceiling", "ours"),
        "saver_sqlite_over_ceiling": ratio(times, "ours", "ceiling"),
        "saver_sqlite_speedup": ratio(times, "official", "ours"),
        "saver_sqlite_over_official": ratio(times, "ours", "official"),
        "saver_sqlite_commits_per_superstep": commits,
        **{f"saver_{name}_us": statistics.median(found) / STEPS * 1e6 for name, found in times.items()},
    }


async def concurrent(folder: Path) -> dict[str, float]:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(str(folder / "official-async.db")) as theirs:
        mine = ours(folder)
        graphs = {"official": counting(theirs, THREAD_STEPS), "ours": counting(mine, THREAD_STEPS)}
        times: dict[str, list[float]] = {name: [] for name in graphs}
        for round in range(ROUNDS + 1):
            for name, graph in graphs.items():
                started = time.perf_counter()
                calls = [graph.ainvoke({"n": 0}, config(f"a{round}-{n}"), durability="sync") for n in range(THREADS)]
                await asyncio.gather(*calls)
                if round:
                    times[name].append(time.perf_counter() - started)
        mine.close()
    return {
        "saver_concurrent_speedup": ratio(times, "official", "ours"),
        "saver_concurrent_over_official": ratio(times, "ours", "official"),
    }


def growth(folder: Path, rounds: int = 3, seed: int = 7) -> dict[str, float]:
    source = random.Random(seed)
    alphabet = string.digits + string.ascii_letters + string.punctuation + " "
    texts = ["".join(source.choices(alphabet, k=ITEM)) for _ in range(GROWN)]
    made: dict[str, list[Path]] = {"official": [], "delta": [], "ours": []}

    def runner(name: str) -> Callable[[int], None]:
        def run(round: int) -> None:
            place = folder / f"growth-{name}-{round}"
            place.mkdir()
            made[name].append(place)
            saver = ours(place) if name == "ours" else official(place)
            graph = talking(saver, texts if round else texts[:50], delta=name == "delta")
            graph.invoke({"messages": []}, config("t"), durability="sync")
            close(saver)

        return run

    times = in_turns({name: runner(name) for name in made}, rounds)
    sizes = {name: statistics.median(size_of(place) for place in places[1:]) for name, places in made.items()}
    return {
        "saver_growth_messages": GROWN,
        "saver_growth_bytes": sizes["official"] / sizes["ours"],
        "saver_growth_bytes_over_official": sizes["ours"] / sizes["official"],
        "saver_growth_bytes_over_delta": sizes["ours"] / sizes["delta"],
        "saver_growth_speedup": ratio(times, "official", "ours"),
        "saver_growth_time_over_official": ratio(times, "ours", "official"),
        "saver_growth_time_over_delta": ratio(times, "ours", "delta"),
        **{f"saver_growth_{name}_mb": size / 1e6 for name, size in sizes.items()},
        **{f"saver_growth_{name}_us": statistics.median(found) / GROWN * 1e6 for name, found in times.items()},
    }
