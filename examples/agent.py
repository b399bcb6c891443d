"""An agent loop of one's own, made durable: kill it at any moment and start it again with the same run id.

    python examples/agent.py sqlite:///agent.db report-7 out
    python examples/agent.py sqlite:///agent.db report-7 out --answer yes
    python examples/agent.py sqlite:///agent.db report-7 out

The first call works until a person has to approve something, the second answers, the third goes on to the end. If the
process is killed while it sends, nobody knows whether the message went out: look, and say so with ``--resolve done`` or
``--resolve not-done``.

The model is a script, so the example needs no network; put a call to yours in its place. Three rules make the loop
durable, and nothing else in it knows about crashes:

- each call that costs or changes something goes through ``run.once`` under a key of its own (here: the tool-use id);
- the conversation is saved after each turn, in which the model may call several tools;
- the loop starts from the last checkpoint, not from nothing.

Exit status: 0 done, 1 refused (the message says why), 2 it waits for a person, 3 another process holds it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from agent_tools import remove_file, send_message, write_file

import holdfast
from holdfast.errors import Claimed, HoldfastError, NotDone

COMPLETE, REFUSED, WAITING, HELD = 0, 1, 2, 3

Message = dict[str, Any]
TASK: Message = {"role": "user", "content": "Write a report in three files, then send the summary to the customer."}


def model(messages: list[Message]) -> Message:
    """What a language model would do: look at the conversation and call the next tools, or end."""
    turn = sum(message["role"] == "assistant" for message in messages)
    print(f"model  turn {turn + 1}", flush=True)
    short = any("one line" in message["content"] for message in messages if message["role"] == "user")
    summary = "All is well." if short else "All is well.\nThe details are in the draft.\n"
    turns: list[list[tuple[str, dict[str, str]]]] = [
        [("write_file", {"name": "outline.md", "text": "# Report\n"})],
        [("write_file", {"name": "draft.md", "text": "# Report\n\nAll pumps run.\n"})],
        [
            ("write_file", {"name": "summary.md", "text": summary}),
            ("send_message", {"to": "customer", "text": summary}),
        ],
    ]
    if turn == len(turns):
        return {"role": "assistant", "content": "The report is written and sent."}
    calls = [{"id": f"toolu_{turn + 1}_{n}", "tool": tool, "input": of} for n, (tool, of) in enumerate(turns[turn], 1)]
    return {"role": "assistant", "content": "", "calls": calls}


def call_tool(run: holdfast.Run, folder: str, id: str, tool: str, input: dict[str, str]) -> str | None:
    """The tool's result, or its error for the model to see; None if a person has to approve the call first."""
    try:
        if tool == "write_file":
            name, text = input["name"], input["text"]
            return str(run.once(id, write_file, folder, name, text, target=name, undo=remove_file))
        to, text = input["to"], input["text"]
        approval = run.checkpoint().answers.get(id)
        if approval is None:
            run.pause(
                f"Send this to {to}? {text!r}",
                [{"name": "send", "options": ["yes", "no"]}, {"name": "why", "required": False}],
                output_key=id,
            )
            return None
        if approval["send"] == "no":
            return f"not sent: {approval['why'] or 'a person said no'}"
        return str(run.once(id, send_message, folder, to, text, target=to, at_most_once=True))
    except Exception as error:
        if isinstance(error, HoldfastError) and not isinstance(error, NotDone):
            raise  # it is about the run, not about the tool
        return f"failed: {type(error).__name__}: {error}"


def work(run: holdfast.Run, folder: str, say: str | None = None) -> int:
    """Go on from the last checkpoint until the run is complete or waits for a person. The run must be claimed."""
    messages: list[Message] = run.checkpoint().state or [TASK]
    if say is not None:
        messages.append({"role": "user", "content": say})
        run.save(messages, next="model")
    while True:
        reply = run.once(f"model-{len(messages)}", model, messages)
        if "calls" not in reply:
            run.complete(reply["content"])
            return COMPLETE
        results: list[Message] = []
        for call in reply["calls"]:
            result = call_tool(run, folder, call["id"], call["tool"], call["input"])
            if result is None:
                return WAITING  # the claim is given up; whoever goes on comes here again, and calls nothing twice
            results.append({"role": "tool", "id": call["id"], "content": result})
        messages += [reply, *results]
        run.save(messages, next="model")


def resolve(run: holdfast.Run, done: bool) -> int:
    """Say what became of the call that was killed in the act."""
    for effect in run.effects():
        if effect.status == "uncertain" and not effect.reversible:  # the others are simply called again
            run.resolve(effect.key, done=done, result=f"done: {effect.tool} {effect.target}", by="terminal")
            return COMPLETE
    print("no call is uncertain", file=sys.stderr)
    return REFUSED


def main() -> int:
    arguments = argparse.ArgumentParser(description="An agent whose runs survive being killed.")
    arguments.add_argument("store", help="where runs are kept, such as sqlite:///agent.db")
    arguments.add_argument("run", help="the run's id; the same id again goes on with the same run")
    arguments.add_argument("folder", type=Path, help="where the agent writes its files")
    arguments.add_argument("--say", metavar="TEXT", help="add a message to the conversation before going on")
    arguments.add_argument("--answer", choices=["yes", "no"], help="answer the open question, and do nothing else")
    arguments.add_argument("--resolve", choices=["done", "not-done"], help="say what became of a killed call")
    given = arguments.parse_args()
    try:
        with holdfast.open(given.store) as hf:
            return act(hf, given)
    except HoldfastError as problem:
        print(problem, file=sys.stderr)
        return HELD if isinstance(problem, Claimed) else REFUSED


def act(hf: holdfast.Holdfast, given: argparse.Namespace) -> int:
    """Do what the command line says."""
    if given.answer:
        hf.get(given.run).answer({"send": given.answer}, by="terminal")
        return COMPLETE
    if given.resolve:
        return resolve(hf.get(given.run), given.resolve == "done")
    run = hf.run(given.run, workflow="agent")
    status = COMPLETE
    if run.status != "completed":
        given.folder.mkdir(parents=True, exist_ok=True)
        with run.claim():
            done = run.checkpoint().completed
            print(f"start  {sum(key.startswith('toolu') for key in done)} tool calls are done", flush=True)
            status = work(run, str(given.folder), given.say)
    for question in run.questions():
        print(f"asks   {question.prompt}")
    if status == COMPLETE:
        print(f"done   {run.checkpoint().result}")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
