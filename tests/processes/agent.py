"""An agent with its own loop, to be killed at any moment and started again. See test_kills.py.

Arguments: the store's URL, the run's id, the file that stands for the outside world, how many steps to go on for at
most, and which start this is. Every promise that Holdfast has made to it, it tells on its standard output: a line
per claim, saved state, step, mark and question, when the call returned.
"""

import hashlib
import json
import os
import sys
import time

import holdfast
from holdfast import Run
from holdfast.errors import Uncertain

url, run_id, world, last_step, start = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
NEVER = 1_000_000
QUESTION_EVERY = 5


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def act(key: str) -> str:
    """Do something to the outside world that nobody can take back: one line in a file, synced."""
    time.sleep(0.001)
    fd = os.open(world, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.write(fd, f"{start} {key}\n".encode())
    os.fsync(fd)
    os.close(fd)
    time.sleep(0.001)
    return f"result of {key}"


def happened(key: str) -> bool:
    """Look at the outside world."""
    try:
        with open(world) as file:
            return any(line.split()[1] == key for line in file)
    except FileNotFoundError:
        return False


def charge(run: Run, key: str) -> None:
    """A step that must not happen twice: what a crash left open is settled by looking."""
    try:
        run.once(key, act, key, at_most_once=True)
    except Uncertain:
        done = happened(key)
        run.resolve(key, done=done, result=f"result of {key}" if done else None, by="agent")
        say("resolved", key)
        run.once(key, act, key, at_most_once=True)


def work(run: Run) -> bool:
    """Go on from the last checkpoint; False when there is a question to wait for."""
    state = run.checkpoint().state or {"step": 0, "notes": [], "answers": {}}
    while state["step"] < last_step:
        n = state["step"]
        if n % QUESTION_EVERY == QUESTION_EVERY - 1:
            answers = run.checkpoint().answers
            if f"a{n}" not in answers:
                asked = run.pause(f"go on after {n}?", [{"name": "go", "type": "boolean"}], output_key=f"a{n}")
                say("asked", asked.id, f"a{n}")
                return False
            state["answers"][str(n)] = answers[f"a{n}"]
        run.once(f"write-{n}", act, f"write-{n}", target=f"file {n}")
        say("did", f"write-{n}")
        charge(run, f"charge-{n}")
        say("did", f"charge-{n}")
        run.mark(f"mark-{n}", "elsewhere")
        say("did", f"mark-{n}")
        state["step"] = n + 1
        state["notes"].append(f"{n}: " + "x" * (n * 7 % 50))
        seq = run.save(state, next="work", queue=[["work", n + 1]])
        say("ack", seq, hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest())
    if last_step < NEVER:
        run.complete(state["step"])
        say("completed")
    return True


def main() -> None:
    # The lease lasts for an hour: who comes next does not get the run by waiting for its end.
    with holdfast.open(url, lease=3600) as hf:
        run = hf.run(run_id)
        going_on = False
        while not going_on:
            for question in run.questions():
                say("asked", question.id, question.output_key)
            while run.questions():
                time.sleep(0.001)
            with run.claim() as holding:
                say("claimed", holding.epoch)
                going_on = work(run)


main()
