"""What stands in the documents out of bench/results.json: single figures, and whole tables.

A figure is written as `1.05<!-- bench: NAME -->`: the number before the comment is that of the results, with as many
decimals as it has in the document. A table stands between `<!-- table: NAME -->` and `<!-- end -->`, and is made anew
as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

Results = dict[str, Any]

FIGURE = re.compile(r"([\d.,]*)(<!-- bench: (\w+) -->)")
TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

PEERS = {  # names in results.json without the store: who it is, and what is compared
    "raw": ("a bare `INSERT`", "the limit"),
    "holdfast": ("**Holdfast**", "function"),
    "holdfast_graph": ("**Holdfast**", "graph"),
    "langgraph": ("LangGraph", "graph"),
    "burr": ("Burr", "graph"),
    "dbos": ("DBOS", "function"),
    "absurd": ("absurd", "function"),
}
SETTINGS = {
    "": "recommended",
    "_best": "best",
    "_normal": "no sync at commits",
    "_best_normal": "best, no sync at commits",
}
STORES = {"sqlite": "SQLite", "pg": "PostgreSQL"}


def quoted(text: str, results: Results) -> str:
    """A document with the figures and tables as they were measured."""

    def figure(match: re.Match[str]) -> str:
        number, comment, name = match.groups()
        if name not in results["figures"]:
            raise SystemExit(f"docs/figures.py: {name} is not a figure of bench/results.json")
        return f"{results['figures'][name]:,.{len(number.partition('.')[2])}f}{comment}"

    def table(match: re.Match[str]) -> str:
        begin, name, end = match.groups()
        return begin + "\n".join(TABLES[name](results)) + "\n" + end

    return TABLE.sub(table, FIGURE.sub(figure, text))


def short(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def is_met(value: float, goal: dict[str, float]) -> bool:
    return value >= goal["at_least"] if "at_least" in goal else value <= goal["at_most"]


def missed(results: Results) -> list[str]:
    """The figures that have a goal and do not reach it."""
    goals, figures = results["goals"], results["figures"]
    return sorted(name for name, goal in goals.items() if not is_met(figures[name], goal))


# --- the tables


def goals(results: Results) -> Iterator[str]:
    yield "| figure | measured | spread | goal | |"
    yield "|---|---|---|---|---|"
    for name, goal in sorted(results["goals"].items()):
        value, spread = results["figures"][name], results["spread"].get(name)
        between = "" if spread is None else f"{short(spread[0])} – {short(spread[1])}"
        [(kind, wanted)] = goal.items()
        sign = {"at_least": "≥", "at_most": "≤"}[kind]
        verdict = "met" if is_met(value, goal) else "**missed**"
        yield f"| `{name}` | {short(value)} | {between} | {sign} {wanted:g} | {verdict} |"


def peers(store: str, results: Results) -> Iterator[str]:
    """Every system on one kind of database, in every setting that was measured."""
    figures = results["figures"]
    yield "| system | what | setting | µs a step | × ours | runs of one step, a second | what its database says |"
    yield "|---|---|---|---|---|---|---|"
    for peer, (who, what) in PEERS.items():
        is_peer = peer in VERSION_OF
        for suffix, setting in SETTINGS.items():
            name = f"{peer}_{store}{suffix}"
            if f"{name}_us" in figures:
                cells = [who, what, setting if is_peer else setting.replace(SETTINGS[""], "")]
                for figure in ("us", "step_over_ours", "one_step_runs_per_second"):
                    cells.append(short(figures[f"{name}_{figure}"]) if f"{name}_{figure}" in figures else "")
                yield f"| {' | '.join(cells)} | {results['durability'].get(name, '')} |"


VERSION_OF = {"langgraph": "langgraph", "burr": "burr", "dbos": "dbos", "absurd": "absurd-sdk"}


def comparison(results: Results) -> Iterator[str]:
    """For the README: each system at its better setting, on both kinds of database."""
    yield "| a durable step, every commit synced | SQLite | PostgreSQL |"
    yield "|---|---|---|"
    for peer, (who, what) in PEERS.items():
        version = results["versions"].get(VERSION_OF.get(peer), "")
        cells = [better(f"{peer}_{store}", results["figures"]) for store in STORES]
        title = who if peer == "raw" else f"{f'{who} {version}'.strip()}, {what}"
        yield f"| {title} | {' | '.join(cells)} |"


def better(name: str, figures: dict[str, float]) -> str:
    """A system on one kind of database, as its documents recommend it or with the best settings."""
    found = [each for each in (name, f"{name}_best") if f"{each}_us" in figures]
    if not found:
        return ""
    best = min(found, key=lambda each: figures[f"{each}_us"])
    ratio = figures.get(f"{best}_step_over_ours")
    return f"{short(figures[f'{best}_us'])} µs" + ("" if ratio is None else f", {short(ratio)} × ours")


def versions(results: Results) -> Iterator[str]:
    yield "| | |"
    yield "|---|---|"
    for name, value in sorted(results["environment"].items()):
        yield f"| {name} | {value} |"
    for name, value in sorted(results["versions"].items()):
        if name not in results["environment"]:
            yield f"| {name} | {value} |"
    yield f"| commit | {results['commit']} |"


PARTS = {
    "encode": "arguments and result to JSON, and the digest of the arguments",
    "hash": "the hash that chains the entry to the one before it",
    "lock": "the lock by which writers of several processes take turns",
    "driver": "the store, without the waiting",
    "sql": "SQL: the fence, the row, its key, the log; on PostgreSQL with the way there and back",
    "engine": "the rest: keys, scopes, the fold, the queue of commits",
    "commit": "the sync to the disk",
    "cold": "what all of this takes longer right after a sync",
    "whole": "a step, synced",
}


def profile(results: Results) -> Iterator[str]:
    yield "| part of a step, µs | SQLite | budget | PostgreSQL | budget |"
    yield "|---|---|---|---|---|"
    for part, what in PARTS.items():
        names = [f"{kind}_{store}_{part}_us" for store in STORES for kind in ("profile", "budget")]
        cells = [f"{results['figures'][name]:,.1f}" if name in results["figures"] else "" for name in names]
        yield f"| {what} | {' | '.join(cells)} |"


CURVES = {
    "steps_ms": "time of a run, against its steps",
    "steps_kb": "bytes of a run, against its steps",
    "replay_ms": "time of a replay, against the steps",
    "state_node_us": "time of a node that appends 1 KB, against the size of the state",
    "state_node_bytes": "bytes of it",
    "state_save_us": "time of a save by hand of the whole state, with one item more",
    "state_open_ms": "time to open the latest state, against its size",
    "stored_list_us": "time of a page of the newest runs, against the runs in the store",
    "stored_get_us": "time to find a run by its id",
    "stored_mb": "bytes of the store",
    "at_once_ms": "time of runs of ten steps, against how many are made at once",
    "forks_ms": "time of forks with their first read, against how many",
    "forks_kb": "bytes of them",
    "fork_of_fork_us": "time of the first read of a fork of a fork …, against how deep it is",
}


def curves(results: Results) -> Iterator[str]:
    yield "| what grows | exponent | from | to |"
    yield "|---|---|---|---|"
    for name, what in CURVES.items():
        points = curve(results, name)
        first, last = min(points), max(points)
        ends = [f"{short(points[x])} {unit(name)} at {x:,}" for x in (first, last)]
        yield f"| {what} | {results['figures'][f'exponent_{name}']:.2f} | {ends[0]} | {ends[1]} |"


def unit(name: str) -> str:
    """Of a curve: the end of its name."""
    end = name.rpartition("_")[2]
    return {"us": "µs", "kb": "KB", "mb": "MB"}.get(end, end)


def curve(results: Results, name: str) -> dict[int, float]:
    """The points of a curve."""
    prefix = f"curve_{name}_at_"
    found = {key: value for key, value in results["figures"].items() if key.startswith(prefix)}
    return dict(sorted((int(key.removeprefix(prefix)), value) for key, value in found.items()))


# --- the pictures


def pictures(results: Results) -> dict[str, str]:
    """The pictures by the names of their files."""
    import plots

    figures = results["figures"]
    panels: dict[str, dict[str, tuple[float, str]]] = {}
    for store, where in STORES.items():
        rows: dict[str, tuple[float, str]] = {}
        for peer, (who, what) in PEERS.items():
            for suffix in ("", "_best"):
                name = f"{peer}_{store}{suffix}_us"
                if name in figures:
                    kind = "limit" if peer == "raw" else "ours" if peer.startswith("holdfast") else "peer"
                    title = f"{who.strip('*').replace('`', '')}, {what}{', best settings' if suffix else ''}"
                    rows[title] = (figures[name], kind)
        panels[f"{where}, µs"] = rows
    grown = {what: (unit(name), curve(results, name), figures[f"exponent_{name}"]) for name, what in PLOTTED.items()}
    workers = {
        f"{count} worker process{'es' if count > 1 else ''}, steps a second": {
            "measured": (figures[f"fleet_{count}_steps_per_s"], "ours"),
            "simulated": (figures[f"scale_predicted_{count}_steps_per_s"], "peer"),
        }
        for count in (1, 2, 4, 8)
    }
    return {
        "peers.svg": plots.bars("One durable step that does nothing, every commit synced", panels),
        "curves.svg": plots.curves("How cost grows", grown),
        "scale.svg": plots.bars("Workers and a PostgreSQL on one machine", workers),
    }


PLOTTED = {
    "steps_ms": "a run, by its steps",
    "replay_ms": "its replay, by its steps",
    "steps_kb": "its bytes, by its steps",
    "state_node_us": "one node, by KB of state",
    "state_open_ms": "opening, by KB of state",
    "stored_list_us": "a list, by runs in the store",
    "at_once_ms": "runs, by how many at once",
    "forks_ms": "forks, by how many",
    "fork_of_fork_us": "a fork's read, by its depth",
}

TABLES: dict[str, Callable[[Results], Iterator[str]]] = {
    "goals": goals,
    "peers_sqlite": lambda results: peers("sqlite", results),
    "peers_pg": lambda results: peers("pg", results),
    "comparison": comparison,
    "versions": versions,
    "profile": profile,
    "curves": curves,
}
