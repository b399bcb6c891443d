"""Run the blocks of one Markdown file in order: the child process of documents.py.

Called as `run_blocks.py PLAN RESULTS` in the folder where the blocks are to run. The plan is JSON: the Markdown file
and its blocks. One line of JSON is written for each block that was run, and the first that fails is the last. Python
blocks share one namespace, which is the module `__main__`, as if they were one script. Each shell block is a shell of
its own.
"""

import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any


def main(plan_file: str, results_file: str) -> None:
    plan = json.loads(Path(plan_file).read_text())
    folder = Path.cwd()
    script = ModuleType("__main__")
    sys.modules["__main__"] = script
    sys.path[0] = str(folder)  # in place of the folder of this file: snippets import what they wrote
    with open(results_file, "w") as results:
        for block in plan["blocks"]:
            result = run(block, plan["document"], folder, script)
            print(json.dumps({"line": block["line"], **result}), file=results, flush=True)
            if result["error"]:
                break


def run(block: dict[str, Any], document: str, folder: Path, script: ModuleType) -> dict[str, Any]:
    if block["kind"] == "file":
        target = folder / block["file"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block["code"])
        return {"output": "", "error": None}
    if block["kind"] == "python":
        return captured(lambda: run_python(block, document, script))
    return captured(lambda: run_shell(block, folder))


def run_python(block: dict[str, Any], document: str, script: ModuleType) -> str | None:
    # The empty lines give each line of code its number in the document, for tracebacks and for inspect.getsource.
    shifted = "\n" * block["line"] + block["code"]
    status: Any = 0
    try:
        code: CodeType = compile(shifted, document, "exec", dont_inherit=True)
        exec(code, script.__dict__)
    except SystemExit as end:
        status = end.code or 0
    except BaseException as error:
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # without this file's own line
        return "".join(traceback.format_exception(error))
    return None if status == block["exit"] else f"exit status {status}, expected {block['exit']}"


def run_shell(block: dict[str, Any], folder: Path) -> str | None:
    shell = subprocess.run(["bash", "-c", "set -e\n" + block["code"]], cwd=folder, stdin=subprocess.DEVNULL)
    status = shell.returncode if shell.returncode >= 0 else 128 - shell.returncode  # a signal, as a shell would say it
    return None if status == block["exit"] else f"exit status {status}, expected {block['exit']}"


def captured(action: Callable[[], str | None]) -> dict[str, Any]:
    """Do it with standard output going to a file, also that of processes started by it."""
    with tempfile.TemporaryFile() as file:
        sys.stdout.flush()
        terminal = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            error = action()
        finally:
            sys.stdout.flush()
            os.dup2(terminal, 1)
            os.close(terminal)
        file.seek(0)
        return {"output": file.read().decode(errors="replace"), "error": error}


if __name__ == "__main__":
    main(*sys.argv[1:])
