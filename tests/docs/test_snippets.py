"""Every snippet in README.md and docs/ is run, and prints what the document says. The rules: tests/lib/documents.py."""

import codeop
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import NOT_RUN, SHELLS, BadDocument, bare_commands, blocks, fault_of, fences

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCUMENTS = [path for path in [README, *sorted(ROOT.glob("docs/**/*.md"))] if path.is_file()]


# --- The documents ----------------------------------------------------------------------------------------------------


# Long documents, and the tests of what they tell of.
LONG = {
    "docs/howto/command-line.md": "tests/cli/test_running.py",
    "docs/howto/langgraph.md": "tests/integrations/langgraph/test_graphs.py",
    "docs/howto/run-workers.md": "tests/workflows/test_work.py",
    "docs/howto/test-your-own-store.md": "tests/contract/test_contract.py",
    "docs/howto/test-your-workflows.md": "tests/workflows/test_testing_tools.py",
    "docs/howto/webhooks.md": "tests/ui/test_hooks.py",
}


def documents() -> Iterator[Any]:
    for path in DOCUMENTS:
        name = str(path.relative_to(ROOT))
        yield pytest.param(path, id=name, marks=pytest.mark.slow(covered_by=LONG[name]) if name in LONG else ())


@pytest.mark.parametrize("document", list(documents()))
def test_snippets_do_what_the_document_says(document: Path, memdir: Path) -> None:
    if fault := fault_of(document, memdir):
        pytest.fail(fault, pytrace=False)


def test_there_is_a_readme() -> None:
    assert README.is_file()


def test_readme_shows_code_before_line_30() -> None:
    assert next(fences(README)).line < 30


@pytest.mark.parametrize("tutorial", sorted(ROOT.glob("docs/tutorial/*.md")), ids=lambda path: path.stem)
def test_the_tutorial_can_be_typed(tutorial: Path) -> None:
    """At Python's prompt an indented block ends with an empty line."""
    for fence in fences(tutorial):
        if fence.language != "python" or fence.option("file"):
            continue
        typed: list[str] = []
        for line in fence.text.splitlines():
            typed.append(line)
            try:
                complete = codeop.compile_command("\n".join(typed))
            except SyntaxError as error:
                pytest.fail(f"line {fence.line}: {error} at {line!r}")
            if complete is not None:
                typed = []
        assert typed == [], f"line {fence.line}: an empty line is missing at the end"


def test_each_command_of_not_run_is_in_a_document() -> None:
    shells = [fence for path in DOCUMENTS for fence in fences(path) if fence.language in SHELLS]
    assert set().union(*map(bare_commands, shells)) >= NOT_RUN


# --- The rules themselves ---------------------------------------------------------------------------------------------


def written(folder: Path, text: str) -> Path:
    document = folder / "page.md"
    document.write_text(text)
    return document


GOOD = """\
```python file=greet.py
from shared import NAME
print("hello", NAME)
```
- In a list, and a helper:
  ```python file=shared.py
  NAME = "you"
  ```
```sh
python greet.py
```
It prints
```text output
hello ...
```
```python
from dataclasses import dataclass
@dataclass
class Point:
    x: "int"
    def far(self): return self.x
```
```python
import inspect, typing
print(typing.get_type_hints(Point), inspect.getsource(Point.far).strip())
```
```text output
{'x': <class 'int'>} def far(self): return self.x
```
```console
$ echo one
one
$ echo two \\
>   three
two three
```
```sh exit=137
kill -9 $$
```
```sh
sleep 1000 &
```
```sh
make test  # not run
```
```json
not run either
```
"""


def test_a_good_document_has_no_fault(memdir: Path) -> None:
    assert fault_of(written(memdir, GOOD), memdir) is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a\n```python\nx = 1\n\nraise OSError(x)\n```\n", ':2: the block failed: .*page.md", line 5.*OSError: 1'),
        ("```python\nx = = 1\n```\n", ":1: the block failed: .*line 2.*SyntaxError"),
        ("```python\nraise SystemExit(3)\n```\n", ":1: the block failed: exit status 3, expected 0"),
        ("```python\n```\n```python\nimport os; os._exit(7)\n```\n", ":3: the block ended the process with status 7"),
        ("```sh\necho seen >&2\nfalse\necho more\n```\n", ":1: the block failed: exit status 1, expected 0.*seen"),
        ("```sh exit=1\ntrue\n```\n", ":1: the block failed: exit status 0, expected 1"),
        ("```python\nprint(1)\n```\n```text output\n2\n```\n", ":4: .*expected\n2\n--- printed\n1"),
        ("```sh\necho a b\n```\n```text output\na ... c\n```\n", ":4: the block printed something else"),
        ("```console\n$ echo 1\n2\n```\n", ":1: the block printed something else"),
        ("```sh\necho 1\n```\n```text output\n2\n```\n```sh\nfalse\n```\n", ":4: the block printed something else"),
    ],
)
def test_a_fault_names_file_and_line(memdir: Path, text: str, fault: str) -> None:
    found = fault_of(written(memdir, text), memdir)
    assert found
    assert re.search(f"page.md{fault}", found, re.DOTALL)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("\n```python\n", ":2: this block is never closed"),
        ("```py\n```\n", ":1: `py` would not be run"),
        ("```json\n```\n```text output\n```\n", ":3: expected output, but the block before it is not run"),
        ("```sh\nmake test\n```\n```text output\n```\n", ":4: expected output, but the block before it is not run"),
        ("```sh\nmake test\nls\n```\n", ":1: put make test into a block of its own"),
        ("```console\nls\n```\n", ":1: no command"),
        ("```python file=../x.py\n```\n", ":1: ../x.py is outside"),
    ],
)
def test_a_document_that_breaks_the_rules_is_refused(memdir: Path, text: str, fault: str) -> None:
    with pytest.raises(BadDocument, match=re.escape(f"page.md{fault}")):
        blocks(written(memdir, text))
