"""A program with a graph, for the tests that need processes of their own."""

import operator
import os
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from holdfast.errors import Claimed
from holdfast.integrations.langgraph import HoldfastSaver

THREAD: Any = {"configurable": {"thread_id": "t"}}


class State(TypedDict):
    xs: Annotated[list[str], operator.add]


class Killing(HoldfastSaver):
    """Dies as soon as the second node's writes are kept; its checkpoint is not."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if metadata["step"] == 2:
            time.sleep(30)  # until the writes are there
        return super().put(config, checkpoint, metadata, new_versions)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        super().put_writes(config, writes, task_id, task_path)
        if any(value == ["two"] for _, value in writes):
            os.kill(os.getpid(), signal.SIGKILL)


def logged(log: Path, what: str) -> None:
    with log.open("a") as file:
        file.write(what + "\n")


def chain(saver: HoldfastSaver, log: Path) -> Any:
    graph = StateGraph(State)
    before = START
    for name in ("one", "two", "three"):

        def act(state: State, name: str = name) -> dict[str, Any]:
            logged(log, name)
            return {"xs": [name]}

        graph.add_node(name, act)
        graph.add_edge(before, name)
        before = name
    return graph.compile(checkpointer=saver)


def asking(saver: HoldfastSaver, log: Path) -> Any:
    def ask(state: State) -> dict[str, Any]:
        answer = interrupt("how?")
        logged(log, f"answered {answer}")
        time.sleep(0.15)
        return {"xs": [answer]}

    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    return graph.compile(checkpointer=saver)


def main(what: str, url: str, log: Path, *more: str) -> None:
    kind = Killing if "kill" in more else HoldfastSaver
    with kind(url, guard="GUARD" in os.environ) as saver:
        if what == "run":
            given = None if "resume" in more else {"xs": ["in"]}
            print(*chain(saver, log).invoke(given, THREAD, durability="sync")["xs"])
        elif what == "ask":
            asking(saver, log).invoke({"xs": ["in"]}, THREAD)
            print("paused")
        else:
            graph = asking(saver, log)
            print("ready", flush=True)
            sys.stdin.readline()
            try:
                print(*graph.invoke(Command(resume=more[0]), THREAD)["xs"])
            except Claimed:
                print("refused")


main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
