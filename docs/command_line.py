"""Writes docs/reference/cli.md from the commands themselves: their help, options, examples, and the exit statuses."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from holdfast import views
from holdfast.cli import SECTIONS, cli, codes
from holdfast.cli.options import Command

# What stands in the JSON of several commands, under the name that their descriptions use.
SHAPES: dict[str, type[msgspec.Struct]] = {
    "run": views.RunInfo,
    "step": views.StepInfo,
    "question": views.Question,
    "field": views.Field,
    "effect": views.Effect,
    "plan": views.RollbackPlan,
    "report": views.RollbackReport,
    "audit": views.AuditReport,
}


def page() -> str:
    """The whole page."""
    ctx = click.Context(cli, info_name="holdfast")
    parts = [
        "# The command line\n",
        "How to use it: [the how-to](../howto/command-line.md). Every command has `--help`, and an example there.\n",
        *exit_codes(),
        *json_shapes(),
    ]
    for title, commands in SECTIONS.items():
        parts.append(f"# {title}\n")
        for name in commands:
            command = cli.get_command(ctx, name)
            assert isinstance(command, Command)
            parts += described(name, command, ctx)
    return "\n".join(parts).rstrip() + "\n"


def exit_codes() -> Iterator[str]:
    yield "## Exit status\n\n| status | name | means |\n|---|---|---|"
    yield from (f"| {code.code} | {code.name} | {code.meaning} |" for code in codes.CODES)
    yield ""


def json_shapes() -> Iterator[str]:
    yield "## JSON\n"
    yield "With `--json` a command writes one object on one line of standard output; those that follow something write"
    yield "a line for each thing that happens. The same thing looks the same everywhere, with times in UTC:\n"
    for name, kind in SHAPES.items():
        fields = ", ".join(f"`{field}`" for field in kind.__struct_fields__)
        yield f"- **{name}**: {fields}"
    yield "- **entry**: `run`, `seq`, `kind`, `at`, `contents`; of a `saved` one, `run` and `watch` omit the state\n"
    yield 'If a command fails, it writes `{"error": {"type": …, "message": …, "exit": n, "run"?: id}}`.\n'


def described(name: str, command: Command, ctx: click.Context) -> Iterator[str]:
    inner = click.Context(command, info_name=name, parent=ctx)
    usage = " ".join(command.collect_usage_pieces(inner))
    yield f"## holdfast {name}\n\n`holdfast {name} {usage}`\n"
    yield in_markdown(inspect.cleandoc(command.callback.__doc__ or "")) + "\n"
    yield "| option | |\n|---|---|"
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield option_row(parameter, inner)
    yield "\n```text"
    yield from (f"$ {example}" for example in command.examples)
    yield "```\n"


def option_row(option: click.Option, ctx: click.Context) -> str:
    record: Any = option.get_help_record(ctx)
    names, text = record
    return f"| `{names.replace('|', chr(92) + '|')}` | {' '.join(text.split()).replace('|', chr(92) + '|')} |"


def in_markdown(text: str) -> str:
    """The help of a command; what is JSON in it stands as code."""
    said: list[str] = []
    for paragraph in text.split("\n\n"):
        line = " ".join(paragraph.split())
        if line.startswith("JSON"):
            how, _, shape = line.partition(": ")
            line = f"*{how}*: {shape}".replace("{", "\\{").replace("}", "\\}") if shape else line
        said.append(line)
    return "\n\n".join(said)
