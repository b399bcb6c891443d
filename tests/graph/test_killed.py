"""Real processes that are killed in the middle of a graph, again and again: each next one goes on."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest

import holdfast

SCRIPT = dedent(
    """
    import sys, time
    from typing import Annotated, TypedDict
    import holdfast
    from holdfast import Graph, append, step

    class State(TypedDict, total=False):
        log: Annotated[list[str], append]
        rounds: int

    @step
    def act(what: str) -> str:
        with open(sys.argv[2], "a") as file:
            file.write(what + "\\n")
        print(what, flush=True)
        return what

    graph = Graph(State, name="killed")
    graph.node(name="begin")(lambda state: {"rounds": state.get("rounds", 0) + 1})
    for name in ("left", "right"):
        graph.node(name=name)(lambda state, name=name: {"log": [act(f"{name} {state['rounds']}")]})
        graph.edge("begin", name)
        graph.edge(name, "join")
    graph.map(over=lambda state: range(2), limit=1, name="each")(
        lambda state, item: {"log": [act(f"item {item} {state['rounds']}")]}
    )
    graph.node(name="join")(lambda state: None)
    graph.edge("begin", "each")
    graph.edge("each", "join")
    graph.edge("join", "begin", when=lambda state: state["rounds"] < 5)
    graph.entry("begin")

    with holdfast.open(sys.argv[1]) as hf:
        hf.start(graph, {}, id="one").result(timeout=30)
    print("done", flush=True)
    """
)


@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_each_next_process_goes_on_where_the_last_was_killed(kind: str, memdir: Path) -> None:
    url, acts, script = f"{kind}:///{memdir / 'runs'}", memdir / "acts", memdir / "graph.py"
    script.write_text(SCRIPT)
    lives = 0
    while True:
        lives += 1
        process = subprocess.Popen(
            [sys.executable, str(script), url, str(acts)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdout is not None
        seen = [process.stdout.readline() for _ in range(7)]  # after so many steps, wherever that is
        process.kill()
        process.wait()
        process.stdout.close()
        assert lives < 20, "it does not get on"
        if "done\n" in seen or "" in seen:
            break
    assert lives >= 2
    with holdfast.open(url) as hf:
        run = hf.get("one")
        run.audit()
        wanted = [f"{what} {n}" for n in range(1, 6) for what in ("left", "right", "item 0", "item 1")]
        assert run.status is holdfast.Status.COMPLETED
        assert run.checkpoint().raw_state == {"log": wanted, "rounds": 5}
    times = Counter(acts.read_text().split("\n")[:-1])
    assert set(times) == set(wanted)
    assert sum(count - 1 for count in times.values()) <= 4 * lives  # only those that were in the act
