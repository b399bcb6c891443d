"""Makes docs/reference/flows.md and src/holdfast/flow/schema.json from the table of keys. See generate.py."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

from holdfast import flow
from holdfast.flow import perform
from holdfast.flow.actions import process, secrets, web
from holdfast.flow.file import document, keys, loading
from holdfast.flow.file.shapes import BlockShape
from holdfast.flow.template import filters, limits, sandbox, syntax

HEADINGS = {
    "flow": ("A flow", "The file itself."),
    "var": ("`vars`", "Each variable: a default alone, nothing (a text that must be given), or a mapping with:"),
    "secret": (
        "`secrets`",
        "A list of names, or each secret as nothing (the environment variable of that name) or a mapping with:",
    ),
    "once_per": ("`once_per`", "A template, or a mapping with:"),
    "step": ("A step", "`id`, one action, and what goes with it."),
    "retry": ("`retry`", "A number of times, or a mapping with:"),
    "http": ("`http`", "A URL, or a mapping with:"),
    "ask": ("`ask`", "A question that asks for approval (a no is a failure), or a mapping with:"),
    "field": ("`ask: fields:`", "Each field is a mapping with:"),
    "wait": ("`wait`", "A duration, or a mapping with:"),
    "undo": ("`undo`", "A shell command, or a mapping with:"),
}

SYNTAX = """\
Jinja's immutable sandbox, made smaller: `{{ }}`, `{% if %}` and `{% for %}`, and nothing else; `{#` is left to the
shell. `when` and `until` are
expressions without braces. A value that is one `{{ }}` alone keeps its type; in a text, true and false stand as such,
null as nothing, lists and mappings as JSON. An undefined name is an error.
"""

NAMES = """\
| name | is |
|---|---|
| `vars.NAME` | a variable |
| `steps.ID` | what became of a step: see [records](#records) |
| `secrets.NAME` | a secret; it stands alone, with or without `quote` |
| `item`, `index` | in a `for_each`: the item, and its number from 0. `index` also in `loop` and `until`: the round |
| `run.id`, `run.flow` | the run's id, and the flow's name |
| `range(n)` | the numbers from 0 to n - 1 |
"""

RECORDS = """\
| of | `steps.ID` has |
|---|---|
| every step | `status`: ok, skipped or failed; if it failed, `error` |
| `run` | `exit_code`, `stdout`, `stderr` |
| `http` | `status_code`, `body`, and `result`: the body as JSON if it is JSON, else as text |
| `call`, `ask`, `flow` | `result`: what the function gave, the answer, the outputs of the flow |
| `for_each` | `items`: the record of each item, in their order; with `steps` inside, each has `steps` |
| `loop`, `until` | `rounds`, and what the last round gave |
"""


def page() -> str:
    return "\n".join(_lines())


def schema() -> str:
    return json.dumps(keys.schema(), indent=2, ensure_ascii=False) + "\n"


def _lines() -> Iterator[str]:
    yield "# Flows\n"
    yield "How they are used: [flows](../howto/flows.md). The same as a JSON Schema, for editors: "
    yield "[schema.json](../../src/holdfast/flow/schema.json).\n"
    yield "## Contents\n"
    yield "[Keys](#a-flow) · [Templates](#templates) · [Records](#records) · [Limits](#limits) · [Python](#python)\n"
    for block in keys.BLOCKS:
        yield from _block(block)
    yield from _templates()
    yield f"## Records\n\n{RECORDS}"
    yield from _limits()
    yield from _python()


def _block(block: BlockShape) -> Iterator[str]:
    title, about = HEADINGS[block.name]
    yield f"## {title}\n\n{about}\n"
    yield "| key | takes | means |"
    yield "|---|---|---|"
    for key in block.keys.values():
        needed = " (needed)" if key.required else ""
        yield f"| `{key.name}`{needed} | {_cell(key.shape.told)} | {_cell(key.doc)} |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _templates() -> Iterator[str]:
    yield "## Templates\n"
    yield SYNTAX
    yield NAMES
    names = ", ".join(f"`{name}`" for name in sorted(filters.filters()))
    yield f"**Filters**: {names}. `quote` makes one word for a shell (of a list: several), `from_json` reads JSON.\n"
    tests = ", ".join(f"`{name}`" for name in sorted(filters.tests()) if name.isalpha())
    yield f"**Tests** (`is`): {tests}.\n"
    methods = "; ".join(
        f"of {told}: {', '.join(f'`{name}`' for name in sorted(sandbox.METHODS[kind]))}"
        for kind, told in ((str, "text"), (list, "lists"), (dict, "mappings"))
    )
    yield f"**Methods** {methods}.\n"


def _limits() -> Iterator[str]:
    on_the_way = f"{limits.MAX_MADE:,} characters in all, lists of {limits.MAX_ITEMS:,} items"
    on_the_way += f", numbers of {limits.MAX_BITS:,} bits"
    read = f"{web.MAX_BYTES:,} bytes are read, {web.BODY:,} characters kept"
    file = f"{document.MAX_BYTES:,} bytes, {document.MAX_NODES:,} values (with what aliases stand for)"
    yield from (
        "## Limits\n\n| of | limit |\n|---|---|",
        f"| a file | {file}, {document.MAX_DEPTH} deep |",
        f"| flows in flows | {loading.MAX_NESTED} deep |",
        f"| a template | {syntax.MAX_SOURCE:,} characters, {limits.MAX_DEPTH} deep, loops {syntax.MAX_LOOPS} deep |",
        f"| what it gives, and each value on the way | {limits.MAX_TEXT:,} characters and parts; {on_the_way} |",
        f"| how long that takes | {limits.MAX_SECONDS:g} s of the processor |",
        f"| `stdout` and `stderr` of a record | the last {process.TAIL:,} characters of each |",
        f"| the same of an item of `for_each` | the last {perform.ITEM_TAIL:,} characters |",
        f"| a line of live output | {process.MAX_LINE:,} characters, then it is cut |",
        f"| between TERM and KILL | {process.GRACE:g} s |",
        f"| waiting for the output of what a command left running | {process.LINGER:g} s |",
        f"| the answer of `http` | {read}; {web.TIMEOUT:g} s, if there is no `timeout` |",
        f"| items of `for_each` | {perform.MAX_ITEMS:,} |",
        f"| rounds | {perform.ROUNDS} of an `until` without `loop`; `loop` takes up to {keys.LOOP_MOST:,} |",
        f"| a secret | at least {secrets.SHORTEST} characters, in a file up to {secrets.MAX_FILE:,} bytes |",
        "",
    )


def _python() -> Iterator[str]:
    yield "## Python\n"
    for name in ("load", "check", "dry_run", "listening", "schema"):
        yield f"**`holdfast.flow.{name}{_signature(getattr(flow, name))}`** {_said(getattr(flow, name))}\n"
    yield f"**`Flow`** {_said(flow.Flow)}\n"
    for name in ("name", "graph", "parse_vars", "start", "enqueue"):
        member = getattr(flow.Flow, name)
        told = name if isinstance(member, property) else f"{name}{_signature(member)}"
        yield f"- **`{told}`** {_said(member)}"
    yield "- **`warnings`** What is risky in it, each a `Problem`.\n"
    for kind in (flow.Problem, flow.Planned, flow.Line):
        fields = ", ".join(f"`{name}`" for name in kind.__struct_fields__)
        yield f"**`{kind.__name__}`** {_said(kind)} Its fields: {fields}.\n"


def _signature(function: Any) -> str:
    told = str(inspect.signature(function)).replace("holdfast.flow.", "")
    return told.replace("'", "").replace("(self, ", "(").replace("(self)", "()")


def _said(thing: Any) -> str:
    return " ".join(inspect.cleandoc(thing.__doc__ or "").split()).replace("``", "`")
