"""An agent loop of one's own, made durable: kill it at any moment and start it again with the same run id.

    python examples/agent.py sqlite:///agent.db report-7 out
    python examples/agent.py sqlite:///agent.db report-7 out --answer yes
    python examples/agent.py sqlite:///agent.db report-7 out

The first call works until a person has to approve something, the second answers, the third goes on to the end.

The model is a script, so the example needs no network; put a call to yours in its place. Three rules make the loop
durable, and nothing else in it knows about crashes:

- each call that costs or changes something goes through ``run.once`` under a key of its own (here: the tool-use id);
- the conversation is saved after each turn;
- the loop starts from the last checkpoint, not from nothing.

Exit status: 0 the run is complete, 1 refused, 2 it waits for a person, 3 another process holds it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from agent_tools import remove_file, send_message, write_file

import holdfast
from holdfast.errors import Claimed, HoldfastError

COMPLETE, REFUSED, WAITING, HELD = 0, 1, 2, 3

Message = dict[str, Any]
TASK: Message = {"role": "user", "content": "Write a report in three files, then send the summary to the customer."}


def model(messages: list[Message]) -> Message:
    """What a language model would do: look at the conversation and call the next tool, or end."""
    done = sum(message["role"] == "tool" for message in messages)
    print(f"model  turn {done + 1}", flush=True)
    short = any("one line" in message["content"] for message in messages if message["role"] == "user")
    summary = "All is well." if short else "All is well.\nThe details are in the draft.\n"
    calls: list[tuple[str, dict[str, str]]] = [
        ("write_file", {"name": "outline.md", "text": "# Report\n"}),
        ("write_file", {"name": "draft.md", "text": "# Report\n\nAll pumps run.\n"}),
        ("write_file", {"name": "summary.md", "text": summary}),
        ("send_message", {"to": "customer", "text": summary}),
    ]
    if done == len(calls):
        return {"role": "assistant", "content": "The report is written and sent."}
    tool, arguments = calls[done]
    return {"role": "assistant", "content": "", "call": {"id": f"toolu_{done + 1}", "tool": tool, "input": arguments}}


def call_tool(run: holdfast.Run, folder: str, id: str, tool: str, input: dict[str, str]) -> str | None:
    """The tool's result; None if a person has to approve the call first."""
    if tool == "write_file":
        name, text = input["name"], input["text"]
        written: str = run.once(id, write_file, folder, name, text, target=name, undo=remove_file)
        return written
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
    sent: str = run.once(id, send_message, folder, to, text, target=to, at_most_once=True)
    return sent


def work(run: holdfast.Run, folder: str, say: str | None = None) -> int:
    """Go on from the last checkpoint until the run is complete or waits for a person. The run must be claimed."""
    messages: list[Message] = run.checkpoint().state or [TASK]
    if say is not None:
        messages.append({"role": "user", "content": say})
        run.save(messages, next="model")
    while True:
        reply = run.once(f"model-{len(messages)}", model, messages)
        if "call" not in reply:
            run.complete(reply["content"])
            return COMPLETE
        result = call_tool(run, folder, **reply["call"])
        if result is None:
            return WAITING
        messages += [reply, {"role": "tool", "content": result}]
        run.save(messages, next="model")


def main() -> int:
    arguments = argparse.ArgumentParser(description="An agent whose runs survive being killed.")
    arguments.add_argument("store", help="where runs are kept, such as sqlite:///agent.db")
    arguments.add_argument("run", help="the run's id; the same id again goes on with the same run")
    arguments.add_argument("folder", type=Path, help="where the agent writes its files")
    arguments.add_argument("--say", metavar="TEXT", help="add a message to the conversation before going on")
    arguments.add_argument("--answer", choices=["yes", "no"], help="answer the open question, and do nothing else")
    given = arguments.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)

    with holdfast.open(given.store) as hf:
        run = hf.run(given.run, workflow="agent")
        try:
            if given.answer:
                run.answer({"send": given.answer}, by="terminal")
                return COMPLETE
            if run.status == "completed":
                print(f"done   {run.checkpoint().result}")
                return COMPLETE
            with run.claim():
                done = run.checkpoint().completed
                print(f"start  {sum(key.startswith('toolu') for key in done)} tool calls are done", flush=True)
                status = work(run, str(given.folder), given.say)
        except HoldfastError as problem:
            print(problem, file=sys.stderr)
            return HELD if isinstance(problem, Claimed) else REFUSED
        for question in run.questions():
            print(f"asks   {question.prompt}")
        if status == COMPLETE:
            print(f"done   {run.checkpoint().result}")
        return status


if __name__ == "__main__":
    raise SystemExit(main())
