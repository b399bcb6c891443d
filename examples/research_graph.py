"""Research as a graph: plan, search side by side, let a person review it, and go round again or end.

    python examples/research_graph.py sqlite:///research.db kelp-1 "kelp farming"
    python examples/research_graph.py sqlite:///research.db kelp-1 --answer "what does it cost?"
    python examples/research_graph.py sqlite:///research.db kelp-1 --answer done
    python examples/research_graph.py sqlite:///research.db kelp-1 --draw

The first call works until a person has to review what was found. An answer is another question to look into, or
``done``. The last one draws the graph as Mermaid text, with the path taken. Killed at any moment and called again, it
goes on: a search that was done is not done again.

The model and the search engine are scripts, so the example needs no network; put calls to yours in their place.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import holdfast
from holdfast import END, Graph, NodeContext, add, append, ask, merge, step

SECONDS = float(os.environ.get("SEARCH_SECONDS", "0"))  # how long a search takes


@dataclass
class Finding:
    query: str
    text: str
    round: int


class Research(TypedDict, total=False):
    topic: str
    open: list[str]  # what to search for next: each plan takes the place of the one before
    findings: Annotated[list[Finding], append]
    costs: Annotated[int, add]
    sources: Annotated[dict[str, int], merge]
    report: str


research = Graph(Research, name="research", max_visits=5)  # nobody reviews for ever


def tell(line: str) -> None:
    """Print a line at once, since several threads do so."""
    print(f"{line}\n", end="", flush=True)


@step
def think(topic: str, round: int) -> list[str]:
    """What a language model would do: split a question into searches."""
    tell(f"plan   {topic}")
    return [f"{topic}: {aspect}" for aspect in (("basics", "people", "numbers") if round == 1 else ("details",))]


@step(retries=3, retry_on=ConnectionError)
def look_up(query: str) -> str:
    """What a search engine would do."""
    tell(f"search {query}")
    time.sleep(SECONDS)
    return f"{len(query)} documents on {query}"


@research.node
def plan(state: Research, context: NodeContext) -> dict[str, Any]:
    return {"open": think(state["topic"], context.visit), "costs": 3}


@research.map(over="open", limit=2)
def search(state: Research, query: str, context: NodeContext) -> dict[str, Any]:
    found = look_up(query)
    return {"findings": [Finding(query, found, context.visit)], "sources": {query: len(found)}, "costs": 1}


@research.node
def review(state: Research) -> dict[str, Any]:
    """A person looks at what was found, and says what else to look into."""
    wish = ask(
        f"{len(state['findings'])} findings on {state['topic']}, cost {state['costs']}. What else, or done?", str
    )
    if wish == "done":
        return {"report": "\n".join(f"{finding.round}. {finding.text}" for finding in state["findings"])}
    return {"topic": wish}


def is_done(state: Research) -> str:
    return END if "report" in state else "plan"


research.entry(plan)
research.edge(plan, search)
research.edge(search, review)
research.route(review, is_done, to=[plan, END])


def main() -> int:
    arguments = argparse.ArgumentParser(description="Research that survives being killed, and waits for a person.")
    arguments.add_argument("store", help="where runs are kept, such as sqlite:///research.db")
    arguments.add_argument("run", help="the run's id; the same id again goes on with the same run")
    arguments.add_argument("topic", nargs="?", default="kelp", help="what to look into")
    arguments.add_argument("--answer", help="what else to look into, or done")
    arguments.add_argument("--draw", action="store_true", help="draw the graph, with the path that the run took")
    given = arguments.parse_args()
    try:
        with holdfast.open(given.store) as hf:
            return act(hf, given)
    except holdfast.HoldfastError as problem:
        print(problem, file=sys.stderr)
        return 1


def act(hf: holdfast.Holdfast, given: argparse.Namespace) -> int:
    """Do what the command line says. Exit status: 0 done, 1 refused, 2 it waits for a person."""
    if given.draw:
        print(research.mermaid(hf.get(given.run)), end="")
        return 0
    if given.answer:
        run = hf.get(given.run)
        run.answer(given.answer, by="terminal")
        run.resume()
    else:
        run = hf.start(research, {"topic": given.topic}, id=given.run)
    for question in run.questions():
        print(f"asks   {question.prompt}")
    if run.status == "waiting":
        return 2
    print(run.result()["report"])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
