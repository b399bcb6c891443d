"""An agent as a durable function: it thinks, uses tools side by side, and asks a person before a dangerous one.

    python examples/agent_loop.py sqlite:///agent.db thread-1 out
    python examples/agent_loop.py sqlite:///agent.db thread-1 out --answer yes
    python examples/agent_loop.py sqlite:///agent.db thread-1 out --undo

The first call works until a person has to approve something, the second answers and goes on to the end, the third takes
back what can be taken back. Killed at any moment and called again, it goes on: a tool that was used is not used again.

The model is a script, so the example needs no network; put a call to yours in its place. The conversation is a plain
list in a plain function. It is not saved anywhere: it is what the recorded steps add up to.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import holdfast
from holdfast import aio, step, workflow

SECONDS = float(os.environ.get("TOOL_SECONDS", "0"))  # how long a tool takes

Message = dict[str, Any]


@step(retries=4, retry_on=ConnectionError)  # what a model's library raises when the network is down
async def think(messages: list[Message]) -> Message:
    """What a language model would do: look at the conversation and use the next tools, or end."""
    turn = sum(message["role"] == "assistant" for message in messages)
    print(f"model  turn {turn + 1}", flush=True)
    turns: list[list[tuple[str, dict[str, str]]]] = [
        [("search", {"query": "pumps"}), ("search", {"query": "valves"})],
        [("write_file", {"name": "report.md", "text": "All pumps run.\n"}), ("delete_file", {"name": "old.md"})],
    ]
    if turn == len(turns):
        return {"role": "assistant", "content": messages[-1]["content"]}
    uses = [{"id": f"toolu_{turn + 1}_{n}", "tool": tool, "input": of} for n, (tool, of) in enumerate(turns[turn], 1)]
    return {"role": "assistant", "content": "", "uses": uses}


@step
async def search(folder: str, query: str) -> str:
    """A tool that only reads."""
    print(f"tool   search {query}", flush=True)
    await asyncio.sleep(SECONDS)
    return f"3 documents on {query}"


@step(target="{name}")
async def write_file(folder: str, name: str, text: str) -> str:
    """A tool that can be taken back."""
    print(f"tool   write_file {name}", flush=True)
    await asyncio.sleep(SECONDS)
    Path(folder, name).write_text(text)
    return f"wrote {len(text)} characters"


@write_file.undo
def remove_file(result: str, folder: str, name: str, text: str) -> None:
    Path(folder, name).unlink(missing_ok=True)


@step(target="{name}", reversible=False)
async def delete_file(folder: str, name: str) -> str:
    """A tool that cannot."""
    print(f"tool   delete_file {name}", flush=True)
    await asyncio.sleep(SECONDS)
    Path(folder, name).unlink(missing_ok=True)
    return f"{name} is gone"


TOOLS = {tool.name: tool for tool in (search, write_file, delete_file)}
DANGEROUS = {"delete_file"}


async def use(folder: str, call: dict[str, Any]) -> Message:
    """One use of a tool: what it gave, or why not, for the model to see."""
    told = ", ".join(f"{name}={value!r}" for name, value in call["input"].items())
    if call["tool"] in DANGEROUS and not await aio.ask(f"Let the agent call {call['tool']}({told})?", bool):
        content = "a person said no"
    else:
        tool = TOOLS[call["tool"]].options(key=call["id"])  # the tool-use id is the key of the step
        try:
            content = await tool(folder, **call["input"])
        except OSError as error:
            content = f"failed: {error}"
    return {"role": "tool", "id": call["id"], "content": content}


@workflow
async def agent(task: str, folder: str) -> str:
    """Think and act until the model has nothing more to do."""
    messages: list[Message] = [{"role": "user", "content": task}]
    while "uses" in (reply := await think(messages)):
        results = await asyncio.gather(*(use(folder, call) for call in reply["uses"]))  # side by side
        messages += [reply, *results]
    return str(reply["content"])


async def main() -> int:
    arguments = argparse.ArgumentParser(description="An agent whose runs survive being killed.")
    arguments.add_argument("store", help="where runs are kept, such as sqlite:///agent.db")
    arguments.add_argument("run", help="the run's id; the same id again goes on with the same run")
    arguments.add_argument("folder", type=Path, help="where the agent works")
    arguments.add_argument("--answer", choices=["yes", "no"], help="answer the open question, and go on")
    arguments.add_argument("--undo", action="store_true", help="take back what the agent did")
    given = arguments.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    try:
        async with holdfast.open(given.store) as hf:
            return await act(hf, given)
    except holdfast.HoldfastError as problem:
        print(problem, file=sys.stderr)
        return 1


async def act(hf: holdfast.AsyncHoldfast, given: argparse.Namespace) -> int:
    """Do what the command line says. Exit status: 0 done, 1 refused, 2 it waits for a person."""
    if given.undo:
        report = await (await hf.get(given.run)).rollback(to=0, then="cancelled")
        for effect in report.undone:
            print(f"undone {effect.tool} {effect.target}")
        for effect in report.irreversible:
            print(f"stays  {effect.tool} {effect.target}")
        return 0
    if given.answer:
        await (await hf.get(given.run)).answer(given.answer == "yes", by="terminal")
    run = await hf.start(agent, "Write a report on the pumps, and tidy up.", str(given.folder), id=given.run)
    for question in await run.questions():
        print(f"asks   {question.prompt}")
    if run.status == "waiting":
        return 2
    print(f"done   {await run.result()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
