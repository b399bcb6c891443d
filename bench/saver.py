"""`HoldfastSaver` against LangGraph's own savers, on the same graphs, at durability "sync".

All savers on SQLite sync its log at each commit (WAL, synchronous=FULL), and the server of those on PostgreSQL syncs
too. The ceiling is a saver that keeps nothing and makes one raw commit for each superstep, of as many bytes as Holdfast
stores for one, in a file with the same settings: what LangGraph itself costs, and the disk. Savers take turns, and
figures are medians of rounds.

A small graph is measured in new files, as for a process that begins, and in files whose log is past its first
checkpoint (``warm``): before that, SQLite makes the log longer with each commit, and a sync takes longer.
"""

from __future__ import annotations

import asyncio
import operator
import shutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, TypedDict

from bench.database import database, postgres
from bench.harness import AtLeast, Measured, Say, in_turns, random_texts, ratio, size_of
from holdfast.stores import migrate
from holdfast.stores.sqlite.file import PAGE_SIZE

STEPS = 150
TASKS = 10
TURNS = 20
THREADS = 50
THREAD_STEPS = 20
MESSAGES = 1_000
GROWTH_ROUNDS = 5
WARM = 8  # rounds of so many supersteps: more than the 1,000 pages after which SQLite makes a checkpoint
COMMIT_BYTES = 1_000  # of a superstep of the small graph, as Holdfast stores it

GOALS: dict[str, float] = {
    "saver_sqlite_of_ceiling": AtLeast(0.85),
    "saver_sqlite_speedup": AtLeast(1.3),
    "saver_concurrent_speedup": AtLeast(2.5),
    "saver_growth_bytes": AtLeast(100),
    "saver_growth_speedup": AtLeast(4),
    "saver_growth_bytes_over_delta": 1.0,
    "saver_growth_time_over_delta": 1.0,
}

Saver = Any


def measure(folder: Path, say: Say, *, quick: bool = False) -> dict[str, float]:
    rounds = 5 if quick else 21
    say(f"LangGraph on SQLite: a small graph of {STEPS} supersteps")
    figures = in_new_files(folder, rounds) | in_warm_files(folder, rounds)
    say(f"LangGraph on SQLite: {TASKS} tasks at a time, and short threads")
    figures |= wide_and_short(folder, rounds // 2)
    say(f"LangGraph on SQLite: {THREADS} threads of {THREAD_STEPS} supersteps")
    figures |= asyncio.run(many_on_sqlite(folder, rounds // 2))
    if quick:
        return figures
    say("LangGraph on PostgreSQL: the same graph, and the same threads")
    figures |= on_postgres(rounds // 3)
    say(f"LangGraph on SQLite: {MESSAGES:,} messages")
    return figures | growth(folder, GROWTH_ROUNDS)


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


SAVERS: dict[str, Callable[[Path], Saver]] = {"official": official, "ceiling": ceiling, "ours": ours}


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


def branching(saver: Saver, rounds: int) -> Any:
    """Many nodes at a time, and one that all of them lead to, again and again: two supersteps for each round."""
    from langgraph.graph import END, START, StateGraph

    State = TypedDict("State", {"xs": Annotated[list[int], operator.add]})  # noqa: UP013
    graph = StateGraph(State)
    names = [f"task{n}" for n in range(TASKS)]
    for name in names:
        graph.add_node(name, lambda state: {"xs": [1]})
    graph.add_node("join", lambda state: {"xs": [0]})
    graph.add_conditional_edges(START, lambda state: names)
    graph.add_edge(names, "join")
    graph.add_conditional_edges("join", lambda state: names if sum(state["xs"]) < TASKS * rounds else END)
    return graph.compile(checkpointer=saver)


def talking(saver: Saver, texts: Sequence[str], *, delta: bool = False) -> Any:
    """A node that adds a message until there are no more: a state that grows by one message for each superstep."""
    from langchain_core.messages import HumanMessage
    from langgraph.channels import DeltaChannel
    from langgraph.graph import END, START, StateGraph

    def extend(messages: list[Any], more: Sequence[list[Any]]) -> list[Any]:
        return [*messages, *(message for each in more for message in each)]

    kind: Any = Annotated[list[Any], DeltaChannel(extend)] if delta else Annotated[list[Any], operator.add]
    State = TypedDict("State", {"messages": kind})  # noqa: UP013

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


def in_new_files(folder: Path, rounds: int) -> dict[str, float]:
    """A round is one thread in a file of its own."""

    def runner(name: str) -> Callable[[int], float]:
        def run(round: int) -> float:
            own = folder / f"{name}-{round}"
            own.mkdir()
            saver = SAVERS[name](own)
            graph = counting(saver, STEPS)
            started = time.perf_counter()
            graph.invoke({"n": 0}, config("t"), durability="sync")
            took = time.perf_counter() - started
            check_kept(name, graph, "t")
            close(saver)
            shutil.rmtree(own)
            return took

        return run

    return small(in_turns({name: runner(name) for name in SAVERS}, rounds), "")


def in_warm_files(folder: Path, rounds: int) -> dict[str, float]:
    """A round is a new thread in the same file."""
    savers = {name: make(folder) for name, make in SAVERS.items()}
    times = in_the_same_store(savers, WARM + rounds)
    commits = savers["ours"]._threads.committer.commits / (STEPS * (WARM + rounds + 1))
    for saver in savers.values():
        close(saver)
    figures = small({name: found[WARM:] for name, found in times.items()}, "_warm")
    return figures | {"saver_sqlite_commits_per_superstep": commits}


def in_the_same_store(savers: dict[str, Saver], rounds: int) -> dict[str, list[float]]:
    """Seconds of each round, which is a new thread."""
    graphs = {name: counting(saver, STEPS) for name, saver in savers.items()}

    def runner(name: str) -> Callable[[int], None]:
        def run(round: int) -> None:
            graphs[name].invoke({"n": 0}, config(f"t{round}"), durability="sync")

        return run

    times = in_turns({name: runner(name) for name in savers}, rounds)
    for name, graph in graphs.items():
        check_kept(name, graph, f"t{rounds}")
    return times


def small(times: dict[str, list[float]], which: str) -> dict[str, float]:
    """The figures of a small graph, superstep by superstep in one thread."""
    return {
        f"saver_sqlite_of_ceiling{which}": ratio(times["ceiling"], times["ours"]),
        f"saver_sqlite_speedup{which}": ratio(times["official"], times["ours"]),
        **{f"saver_{name}{which}_us": Measured.of(found, 1e6 / STEPS) for name, found in times.items()},
    }


def check_kept(name: str, graph: Any, thread: str) -> None:
    if name != "ceiling":
        kept = sum(1 for _ in graph.get_state_history(config(thread)))
        assert kept >= STEPS, f"{name} kept {kept} checkpoints"


def wide_and_short(folder: Path, rounds: int) -> dict[str, float]:
    """How much faster than the official saver: many tasks at a time, and threads of three supersteps."""
    savers = {"official": official(folder), "ours": ours(folder)}
    wide = {name: branching(saver, TURNS // 2) for name, saver in savers.items()}
    brief = {name: counting(saver, 2) for name, saver in savers.items()}

    def branches(name: str) -> Callable[[int], None]:
        def run(round: int) -> None:
            wide[name].invoke({"xs": []}, config(f"w{round}"), durability="sync")

        return run

    def threads(name: str) -> Callable[[int], None]:
        def run(round: int) -> None:
            for n in range(TURNS):
                brief[name].invoke({"n": 0}, config(f"s{round}-{n}"), durability="sync")

        return run

    times = in_turns({name: branches(name) for name in savers}, rounds)
    short = in_turns({name: threads(name) for name in savers}, rounds)
    for saver in savers.values():
        close(saver)
    return {
        "saver_wide_speedup": ratio(times["official"], times["ours"]),
        "saver_short_speedup": ratio(short["official"], short["ours"]),
    }


async def concurrent(theirs: Saver, mine: Saver, rounds: int) -> Measured:
    """How much faster than the official saver many threads on one loop are."""
    graphs = {"official": counting(theirs, THREAD_STEPS), "ours": counting(mine, THREAD_STEPS)}
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for round in range(rounds + 1):
        for name, graph in graphs.items():
            started = time.perf_counter()
            calls = [graph.ainvoke({"n": 0}, config(f"a{round}-{n}"), durability="sync") for n in range(THREADS)]
            await asyncio.gather(*calls)
            if round:
                times[name].append(time.perf_counter() - started)
    return ratio(times["official"], times["ours"])


async def many_on_sqlite(folder: Path, rounds: int) -> dict[str, float]:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(str(folder / "official-async.db")) as theirs:
        mine = ours(folder)
        found = await concurrent(theirs, mine, rounds)
        mine.close()
    return {"saver_concurrent_speedup": found}


def on_postgres(rounds: int) -> dict[str, float]:
    """The official saver as its documents set it up, and again in a pipeline."""
    from langgraph.checkpoint.postgres import PostgresSaver
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    from holdfast.integrations.langgraph import HoldfastSaver

    async def many(theirs: str, mine: Saver) -> Measured:
        async with AsyncPostgresSaver.from_conn_string(theirs) as saver:
            return await concurrent(saver, mine, rounds)

    with postgres() as server, ExitStack() as stack:
        urls = {name: database(server.url, name) for name in ("official", "pipeline", "ours")}
        migrate(urls["ours"])
        for name in ("official", "pipeline"):
            with PostgresSaver.from_conn_string(urls[name]) as saver:  # its setup does not work in a pipeline
                saver.setup()
        savers: dict[str, Saver] = {
            "official": stack.enter_context(PostgresSaver.from_conn_string(urls["official"])),
            "pipeline": stack.enter_context(PostgresSaver.from_conn_string(urls["pipeline"], pipeline=True)),
            "ours": stack.enter_context(HoldfastSaver(urls["ours"])),
        }
        times = in_the_same_store(savers, rounds)
        speedup = asyncio.run(many(urls["official"], savers["ours"]))
    return {
        "saver_pg_speedup": ratio(times["official"], times["ours"]),
        "saver_pg_best_speedup": ratio(times["pipeline"], times["ours"]),
        "saver_pg_concurrent_speedup": speedup,
        **{f"saver_pg_{name}_us": Measured.of(found, 1e6 / STEPS) for name, found in times.items()},
    }


def growth(folder: Path, rounds: int, messages: int = MESSAGES, seed: int = 7) -> dict[str, float]:
    """A list that grows by a message at each superstep: in the official saver, in it as a DeltaChannel, and in ours."""
    texts = random_texts(messages, seed)
    sizes: dict[str, int] = {}

    def runner(name: str) -> Callable[[int], float]:
        def run(round: int) -> float:
            place = folder / f"growth-{name}"
            place.mkdir()
            saver = ours(place) if name == "ours" else official(place)
            graph = talking(saver, texts if round else texts[:50], delta=name == "delta")
            started = time.perf_counter()
            graph.invoke({"messages": []}, config("t"), durability="sync")
            took = time.perf_counter() - started
            close(saver)
            sizes[name] = size_of(place)
            shutil.rmtree(place)
            return took

        return run

    times = in_turns({name: runner(name) for name in ("official", "delta", "ours")}, rounds)
    return {
        "saver_growth_messages": messages,
        "saver_growth_bytes": sizes["official"] / sizes["ours"],
        "saver_growth_bytes_over_delta": sizes["ours"] / sizes["delta"],
        "saver_growth_speedup": ratio(times["official"], times["ours"]),
        "saver_growth_time_over_delta": ratio(times["ours"], times["delta"]),
        **{f"saver_growth_{name}_mb": size / 1e6 for name, size in sizes.items()},
        **{f"saver_growth_{name}_us": Measured.of(found, 1e6 / messages) for name, found in times.items()},
    }
