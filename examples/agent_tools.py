"""The tools of the example agent.

They live in a module of their own, not in the script: an undo is stored by its name (`agent_tools:remove_file`), and
whoever rolls a run back later must be able to import it by that name. So have this folder on PYTHONPATH there.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

SECONDS = float(os.environ.get("TOOL_SECONDS", "0"))  # how long a tool takes; the demo needs time to kill it


def write_file(folder: str, name: str, text: str) -> str:
    """Write a file. If its process dies in the act it is called again, so calling it twice must do no harm."""
    print(f"tool   write_file {name}", flush=True)
    time.sleep(SECONDS)
    path = Path(folder, name)
    path.write_text(text, encoding="utf-8")
    return f"wrote {len(text)} characters"


def remove_file(result: str, folder: str, name: str, text: str) -> None:
    """Undo `write_file`: it gets the result first, then the arguments. It may be called twice after a crash."""
    Path(folder, name).unlink(missing_ok=True)


def send_message(folder: str, to: str, text: str) -> str:
    """Send a message. That cannot be undone, and must not happen twice."""
    print(f"tool   send_message {to}", flush=True)
    time.sleep(SECONDS)
    with Path(folder, "outbox.txt").open("a", encoding="utf-8") as outbox:
        outbox.write(f"to {to}: {text}\n")
    return f"sent to {to}"
