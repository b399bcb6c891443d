"""Markdown documents as tests: their blocks are run, and what a document says they print is what they print.

The blocks of a Markdown file run in order in one fresh folder (see run_blocks.py), by their first line:

    ```python              run; all Python blocks of a file share one namespace
    ```sh, ```bash         run by bash, stopping at the first command that fails; `python` is the tests' own
    ```console             the same for lines that begin with `$ `; the other lines, if any, are the expected output
    ```LANGUAGE file=NAME  written to that file, not run: a script, or a flow in YAML
    ```text output         what the block before it printed on standard output; `...` stands for any text
    ... exit=N             the exit status that a block must end with, if not 0: a process that is killed gives 137

Other languages are not run. Commands that a test cannot run are listed in NOT_RUN.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

RUNNER = Path(__file__).with_name("run_blocks.py")
SECONDS_PER_DOCUMENT = 120

# Commands that install, take minutes or would run these tests again. A block has only such commands, or none.
NOT_RUN = {
    ".venv/bin/pytest tests/engine/test_steps.py",
    "HOLDFAST_STORES=postgres make test",
    "HOLDFAST_TEST_POSTGRES=postgresql://user:password@host/database make test",
    "make dist",
    "make test POSTGRES=15",
    "make test PYTHON=python3.13",
    "make test-all",
    "make bench",
    "make profile",
    "make check",
    "make demo",
    "make docs",
    "make test",
    "make mutants",
    "make torture",
    "pip install '.[crypto]'",
    "pip install 'holdfast[draw]'",
    "pip install 'holdfast[langgraph]'",
    "pip install 'holdfast[postgres]'",
    "python3 -m venv .venv && . .venv/bin/activate && pip install '/path/to/holdfast[crypto]'",
}

SHELLS = {"sh", "bash", "console"}
MISSPELT = {"py", "python3", "pycon", "shell", "zsh", "shell-session", "sh-session", "bash-session", "shellsession"}


class BadDocument(Exception):
    """A document does not keep the rules above; the message begins with file and line."""


@dataclass(frozen=True)
class Fence:
    """A fenced block as it stands in the document."""

    line: int  # of the opening fence, from 1
    language: str
    words: tuple[str, ...]  # what follows the language
    text: str

    def option(self, name: str) -> str | None:
        return next((word.removeprefix(f"{name}=") for word in self.words if word.startswith(f"{name}=")), None)


@dataclass(frozen=True)
class Block:
    """A block as it is run."""

    line: int
    kind: str  # python, shell or file
    code: str
    file: str | None = None
    exit: int = 0
    expected: str | None = None
    expected_line: int | None = None


# --- Reading ----------------------------------------------------------------------------------------------------------

OPENING = re.compile(r"(?P<prefix>[ \t>]*)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)")


def fences(document: Path) -> Iterator[Fence]:
    lines = enumerate(document.read_text().splitlines(), 1)
    for number, line in lines:
        opening = OPENING.fullmatch(line)
        if not opening:
            continue
        closing = re.compile(rf"[ \t>]*{opening['fence'][0]}{{{len(opening['fence'])},}}\s*")
        prefix, body = opening["prefix"], []
        for _, inner in lines:
            if closing.fullmatch(inner):
                break
            body.append(inner.removeprefix(prefix) if inner.startswith(prefix) else inner.lstrip(" \t>"))
        else:
            raise BadDocument(f"{document}:{number}: this block is never closed")
        language, *words = opening["info"].split() or [""]
        yield Fence(number, language.lower(), tuple(words), "".join(f"{inner}\n" for inner in body))


def commands(fence: Fence) -> str:
    if fence.language != "console":
        return fence.text
    typed = [line for line in fence.text.splitlines() if line.startswith(("$ ", "> "))]
    return "".join(f"{line[2:]}\n" for line in typed)


def bare_commands(fence: Fence) -> set[str]:
    """The lines of a shell block, without comments."""
    return {re.sub(r"(^|\s+)#.*", "", line).strip() for line in commands(fence).splitlines()} - {""}


def is_not_run(document: Path, fence: Fence) -> bool:
    """Whether a shell block is made of commands of NOT_RUN."""
    bare = bare_commands(fence)
    if bare & NOT_RUN and bare - NOT_RUN:
        raise BadDocument(f"{document}:{fence.line}: put {', '.join(sorted(bare & NOT_RUN))} into a block of its own")
    return bool(bare) and bare <= NOT_RUN


def blocks(document: Path) -> list[Block]:
    """What is to be run for a document, in order."""
    found: list[Block] = []
    before: Block | None = None  # the block that a `text output` may belong to
    for fence in fences(document):
        here = f"{document}:{fence.line}"
        if fence.language in MISSPELT:
            raise BadDocument(f"{here}: `{fence.language}` would not be run; write python, sh or console")
        if fence.language == "text" and "output" in fence.words:
            if before is None:
                raise BadDocument(f"{here}: expected output, but the block before it is not run")
            found[-1] = Block(**asdict(before) | {"expected": fence.text, "expected_line": fence.line})
            before = None
            continue
        before = block_of(document, fence)
        if before is not None:
            found.append(before)
            if before.kind == "file" or before.expected is not None:
                before = None
    return found


def block_of(document: Path, fence: Fence) -> Block | None:
    if file := fence.option("file"):
        if Path(file).is_absolute() or ".." in Path(file).parts:
            raise BadDocument(f"{document}:{fence.line}: {file} is outside the folder of the test")
        return Block(fence.line, "file", fence.text, file=file)
    status = int(fence.option("exit") or 0)
    if fence.language == "python":
        return Block(fence.line, "python", fence.text, exit=status)
    if fence.language not in SHELLS or is_not_run(document, fence):
        return None
    code = commands(fence)
    if not code:
        raise BadDocument(f"{document}:{fence.line}: no command; in a console block they begin with `$ `")
    block = Block(fence.line, "shell", code, exit=status)
    printed = [line for line in fence.text.splitlines() if not line.startswith(("$ ", "> "))]
    if fence.language == "console" and any(printed):
        return Block(**asdict(block) | {"expected": "\n".join(printed), "expected_line": fence.line})
    return block


# --- Running ----------------------------------------------------------------------------------------------------------


def tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


def matches(expected: str, printed: str) -> bool:
    """Equal but for white space at the ends of lines, where `...` stands for any text."""
    pattern = ".*".join(map(re.escape, tidy(expected).split("...")))
    return re.fullmatch(pattern, tidy(printed), re.DOTALL) is not None


def environment(python: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(python).parent), os.environ.get("PATH", os.defpath)])
    unused = "-p no:langsmith_plugin -p no:schemathesis"  # plugins of pytest that take seconds to load
    plain = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100", "PYTHONUTF8": "1"}
    kept = {name: value for name, value in os.environ.items() if python == sys.executable or name != "PYTHONPATH"}
    return kept | plain | {"PATH": path, "PYTEST_ADDOPTS": unused}


def fault_of(document: Path, scratch: Path, *, before: int | None = None, python: str = sys.executable) -> str | None:
    """Run a document's blocks; return what is wrong with the first that is not as the document says, or None.

    ``before`` is a line: later blocks are left out. ``python`` is the interpreter that runs them.
    """
    todo = [block for block in blocks(document) if before is None or block.line < before]
    folder, plan, results, errors = (scratch / name for name in ("folder", "plan.json", "results", "errors"))
    folder.mkdir()
    results.touch()
    plan.write_text(json.dumps({"document": str(document), "blocks": [asdict(block) for block in todo]}))
    with errors.open("wb") as stream:
        child = subprocess.Popen(
            [python, str(RUNNER), str(plan), str(results)],
            cwd=folder,
            env=environment(python),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
        try:
            ended = f"ended the process with status {child.wait(SECONDS_PER_DOCUMENT)}"
        except subprocess.TimeoutExpired:
            ended = f"was not done {SECONDS_PER_DOCUMENT} s after the start of the document"
        finally:
            end_group(child)
    done = [json.loads(line) for line in results.read_text().splitlines()]
    for block, result in zip(todo, done, strict=False):
        if result["error"]:
            printed = f"{result['output']}{errors.read_text(errors='replace')}"
            return f"{document}:{block.line}: the block failed: {result['error']}\n{printed}"
        if block.expected is not None and not matches(block.expected, result["output"]):
            return (
                f"{document}:{block.expected_line}: the block printed something else\n"
                f"--- expected\n{tidy(block.expected)}\n--- printed\n{tidy(result['output'])}"
            )
    if len(done) < len(todo):
        return f"{document}:{todo[len(done)].line}: the block {ended}\n{errors.read_text(errors='replace')}"
    return None


def end_group(child: subprocess.Popen[bytes]) -> None:
    """End the runner and whatever a snippet left running, such as a worker in the background."""
    with suppress(ProcessLookupError):  # nobody is left
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
