"""How cost grows: time and bytes against the number of steps, the size of the state, the runs in the store, the runs at
once, and the forks.

For each curve the exponent k of y = c·x^k is fitted to its last points: 0 is a cost that does not grow, 1 is linear, 2
quadratic. Commits do not wait for the disk (``durability=normal``), so that what grows cannot hide behind the syncing.
Each point is the median of rounds, and a round goes through all points of a curve.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

import holdfast
from bench import million
from bench.harness import Measured, Say, exponent, random_texts, size_of
from bench.steps import long, many
from holdfast import Graph, append
from holdfast.kernel.model import Filter

ROUNDS = 5
STEPS = (10, 100, 1_000, 10_000, 100_000)
STATE_KB = (1, 10, 100, 1_000, 10_000)
STORED = (1_000, 10_000, 100_000, 1_000_000)
AT_ONCE = (1, 10, 100, 1_000)
FORKS = (1, 10, 100, 1_000)
DEPTHS = (1, 10, 100)
TAIL = 3  # points to which the exponent is fitted: the last ones, where what is fixed cannot hide what grows
MORE = 50  # nodes, or saves, that are made once the state has its size

CURVES = (  # what is drawn and fitted: the unit is the end of its name
    *("steps_ms", "steps_kb", "replay_ms"),
    *("state_node_us", "state_node_bytes", "state_open_ms", "state_save_us"),
    *("stored_list_us", "stored_get_us", "stored_mb"),
    *("at_once_ms", "forks_ms", "forks_kb", "fork_of_fork_us"),
)
GOALS: dict[str, float] = {f"exponent_{name}": 1.05 for name in CURVES}


def measure(folder: Path, say: Say, *, quick: bool = False) -> dict[str, float]:
    rounds = 3 if quick else ROUNDS
    parts: dict[str, tuple[Callable[[Path, int], dict[str, float]], Sequence[int]]] = {
        "steps": (by_steps, STEPS),
        "size of the state, KB": (by_state, STATE_KB),
        "runs at once": (by_runs_at_once, AT_ONCE),
        "forks": (by_forks, FORKS),
        "forks of forks": (by_depth, DEPTHS),
    }
    figures: dict[str, float] = {}
    for what, (one, xs) in parts.items():
        found: dict[str, dict[int, list[float]]] = {}
        for round in range(rounds):
            for x in xs[: -1 if quick else None]:
                say(f"{what}: {x:,} (round {round + 1} of {rounds})")
                with emptied(folder / "point") as place:
                    for name, y in one(place, x).items():
                        found.setdefault(name, {}).setdefault(x, []).append(y)
        figures |= fitted(found)
    if not quick:
        say(f"runs in the store: up to {STORED[-1]:,}")
        with emptied(folder / "stored") as place:
            figures |= fitted(by_stored(place))
    return figures


@contextmanager
def emptied(place: Path) -> Any:
    """A folder that is removed afterwards."""
    place.mkdir()
    try:
        yield place
    finally:
        shutil.rmtree(place)


def fitted(found: Mapping[str, Mapping[int, Sequence[float]]]) -> dict[str, float]:
    """The points of curves, and the exponent of each."""
    figures: dict[str, float] = {}
    for name, points in found.items():
        figures |= {f"curve_{name}_at_{x}": Measured.of(ys) for x, ys in points.items()}
        last = list(points)[-TAIL:]
        rounds = zip(*(points[x] for x in last), strict=True)
        figures[f"exponent_{name}"] = Measured.of([exponent(dict(zip(last, ys, strict=True))) for ys in rounds])
    return figures


class timed:
    """Measures a block, in seconds."""

    def __enter__(self) -> timed:
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._started


# --- steps


def by_steps(folder: Path, steps: int) -> dict[str, float]:
    """A run of so many steps, and its replay by a process that knows nothing of it."""
    file = folder / "steps.db"
    url = f"sqlite:///{file}?durability=normal"
    with holdfast.open(url) as hf:
        with timed() as run:
            hf.start(long, steps, id="long")
        hf.get("long").answer(True)
    size = size_of(file)
    with holdfast.open(url) as hf:
        again = hf.get("long")
        with timed() as replay:
            assert again.resume() == "waiting"
    return {"steps_ms": run.seconds * 1e3, "steps_kb": size / 1e3, "replay_ms": replay.seconds * 1e3}


# --- the size of the state


class Talk(TypedDict):
    messages: Annotated[list[str], append]


def by_state(folder: Path, kilobytes: int) -> dict[str, float]:
    """One more item of 1 KB in a list of so many, in a graph and saved by hand; and opening the latest state."""
    items, more = random_texts(kilobytes, 7), random_texts(MORE, 8)
    file = folder / "state.db"
    url = f"sqlite:///{file}?durability=normal"
    marks: list[float] = []
    graph = Graph(Talk, name="talk", max_steps=1_000)

    @graph.node
    def say(state: Any) -> dict[str, Any]:
        marks.append(time.perf_counter())
        return {"messages": [more[len(marks) - 1]]}

    graph.entry(say)
    graph.edge(say, say, when=lambda state: len(marks) < MORE)
    with holdfast.open(url) as hf:
        hf.start(graph, {"messages": items}, id="talk").result()
        with hf.run("by hand").claim() as run:
            state = {"messages": list(items)}
            run.save(state)
            saves = []
            for item in more:
                state["messages"].append(item)
                with timed() as save:
                    run.save(state)
                saves.append(save.seconds)
    with holdfast.open(url) as hf:
        run = hf.get("talk")
        with timed() as opened:
            assert len(run.checkpoint().state["messages"]) == kilobytes + MORE
    times = [after - before for before, after in pairwise(marks)]
    return {
        "state_node_us": Measured.of(times, 1e6),
        "state_node_bytes": stored_bytes(file) / MORE,
        "state_open_ms": opened.seconds * 1e3,
        "state_save_us": Measured.of(saves, 1e6),
    }


def stored_bytes(file: Path) -> int:
    """Of the entries of the graph's last nodes."""
    db = sqlite3.connect(file)
    [size] = db.execute(
        "SELECT sum(length(payload) + length(hash)) FROM (SELECT * FROM entry JOIN run ON run.n = entry.run"
        " WHERE run.id = 'talk' AND kind = 'saved' ORDER BY seq DESC LIMIT ?)",
        [MORE],
    ).fetchone()
    db.close()
    return int(size)


# --- runs in the store


def by_stored(folder: Path) -> dict[str, dict[int, list[float]]]:
    """A page of the newest runs, one run by its id, and the size of the file, while the store is being filled."""
    model, before = million.one_run(), 0
    filled = million.in_sqlite(folder / "stored.db")
    found: dict[str, dict[int, list[float]]] = {"stored_list_us": {}, "stored_get_us": {}, "stored_mb": {}}
    for runs in STORED:
        filled.fill(million.copies(model, before, runs))
        before = runs
        ask = million.questions(filled.store, runs)["get"]
        for name, call in (("list", lambda: filled.store.find(Filter(), limit=million.PAGE)), ("get", ask)):
            times = found[f"stored_{name}_us"].setdefault(runs, [])
            for n in range(110):
                with timed() as each:
                    assert call()
                if n >= 10:
                    times.append(each.seconds * 1e6)
        found["stored_mb"][runs] = [filled.size() / 1e6]
    filled.close()
    return found


# --- runs at once


def by_runs_at_once(folder: Path, runs: int) -> dict[str, float]:
    """So many runs of ten steps on one event loop."""

    async def all_of_them() -> float:
        async with holdfast.open(f"sqlite:///{folder / 'many.db'}?durability=normal") as hf:
            await hf.start(many, 10)
            with timed() as each:
                await asyncio.gather(*(hf.start(many, 10) for _ in range(runs)))
        return each.seconds

    return {"at_once_ms": asyncio.run(all_of_them()) * 1e3}


# --- forks


def by_forks(folder: Path, forks: int) -> dict[str, float]:
    """So many forks of one run of 200 saves, each with its first read."""
    file = folder / "forks.db"
    with holdfast.open(f"sqlite:///{file}?durability=normal") as hf:
        run = saved(hf)
        with timed() as each:
            for _ in range(forks):
                run.fork(at=100).checkpoint()
    return {"forks_ms": each.seconds * 1e3, "forks_kb": size_of(file) / 1e3}


def by_depth(folder: Path, depth: int) -> dict[str, float]:
    """The first read of a fork of a fork of a fork, so deep."""
    url = f"sqlite:///{folder / 'forks.db'}?durability=normal"
    with holdfast.open(url) as hf:
        run = saved(hf)
        for n in range(depth):
            run = run.fork()
            with run.claim():
                run.save({"text": "x" * 1_000, "n": n})
    with holdfast.open(url) as hf:
        again = hf.get(run.id)
        with timed() as each:
            assert again.checkpoint().state["n"] == depth - 1
    return {"fork_of_fork_us": each.seconds * 1e6}


def saved(hf: Any) -> Any:
    run = hf.run("origin")
    with run.claim():
        for n in range(200):
            run.save({"text": "x" * 1_000, "n": n})
    return run
