"""The command line: ``holdfast COMMAND``.

Each command is a thin function in `holdfast.cli.commands`, loaded when it is called, so that the help and the short
commands start fast. `options` declares what commands have in common and opens the store; `targets` finds the workflow,
graph or flow that is named; `progress` shows a run while it goes on; `prompts` asks at the terminal; `rendering` shows
values and lists; `remedies` tells errors in words of the command line; `codes` is the table of exit statuses. What is
said about runs comes from `holdfast.present`.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any, NamedTuple

import click

from holdfast.cli.codes import DONE, INTERRUPTED, code_of, table

__all__ = ["cli", "main"]


class Entry(NamedTuple):
    """Where a command is, and the one line that the list of commands says of it."""

    module: str
    help: str


SECTIONS: dict[str, dict[str, Entry]] = {
    "Run": {
        "run": Entry("running", "Run a workflow, a graph or a flow."),
        "resume": Entry("running", "Go on with a run, here."),
        "watch": Entry("running", "Follow a run live, whoever drives it."),
        "worker": Entry("worker", "Drive all runs that are due, until told to stop."),
    },
    "Look": {
        "runs": Entry("lists", "List runs, newest first."),
        "show": Entry("inspection", "Show one run: how it stands, and how to go on."),
        "history": Entry("inspection", "List the entries of a run's journal."),
        "state": Entry("inspection", "Show the state of a run, now or at an entry."),
        "diff": Entry("inspection", "Compare two runs, or one run at two entries."),
        "effects": Entry("inspection", "List what a run did to the outside world."),
        "questions": Entry("lists", "List the questions that wait for an answer."),
        "queues": Entry("queues", "List the queues, and what limits them."),
        "workers": Entry("lists", "List who drives runs, and what they hold."),
        "schedules": Entry("queues", "List the schedules, and when each is due."),
        "ui": Entry("web", "Serve the web page and the HTTP API."),
        "hooks": Entry("web", "List the hooks, or deliver what is due."),
        "graph": Entry("graphs", "Draw a graph, a flow or a run, as Mermaid or SVG."),
    },
    "Act": {
        "answer": Entry("acting", "Answer a question of a run."),
        "send": Entry("acting", "Send a message to a run."),
        "fork": Entry("acting", "Make a new run that shares the past of another."),
        "rollback": Entry("repair", "Go back to an entry, and undo what came after it."),
        "cancel": Entry("bulk", "Give up runs."),
        "retry": Entry("bulk", "Try failed, cancelled or blocked runs again."),
        "unblock": Entry("bulk", "Let blocked runs go on."),
        "resolve": Entry("repair", "Say what became of a step that died in the act."),
        "queue": Entry("queues", "Show, limit, pause or resume a queue."),
        "schedule": Entry("queues", "Show, make, pause, resume, trigger or delete a schedule."),
        "hook": Entry("web", "Make, change, pause or delete a hook."),
    },
    "Keep": {
        "audit": Entry("retention", "Verify the journals of runs."),
        "redact": Entry("retention", "Erase what entries of a run hold."),
        "export": Entry("archives", "Copy runs into one file."),
        "import": Entry("transfer", "Take in an exported file, or the runs of another system."),
        "backup": Entry("archives", "Copy the whole store into one file, while others work."),
        "restore": Entry("archives", "Take in all runs of a backup."),
        "delete": Entry("retention", "Delete a run."),
        "prune": Entry("retention", "Delete old runs."),
        "move": Entry("transfer", "Move runs into another store."),
    },
    "Set up": {
        "init": Entry("setup", "Make a store, and a small example."),
        "migrate": Entry("setup", "Make a store in PostgreSQL, or bring it up to date."),
        "check": Entry("graphs", "Check a flow or a graph, without running it."),
        "doctor": Entry("doctor", "Examine the environment and the store."),
        "completion": Entry("setup", "Print the completion script for a shell."),
    },
}
_MEANT = {  # what others call a command
    "list": "runs",
    "ls": "runs",
    "ps": "runs",
    "log": "history or watch",
    "logs": "history or watch",
    "status": "show",
    "rm": "delete",
    "start": "run",
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class Cli(click.Group):
    """The group of all commands. It loads a command when it is called, and turns errors into messages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        entry = COMMANDS.get(name)
        if entry is None:
            return None
        command = getattr(import_module(f"holdfast.cli.commands.{entry.module}"), f"{name}_command")
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from difflib import get_close_matches

            meant = _MEANT.get(args[0]) or next(iter(get_close_matches(args[0], COMMANDS, 1)), None)
            hint = f" Did you mean {meant}?" if meant else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.help) for name, entry in commands.items()], col_max=12)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit status"):
            formatter.write("".join(f"  {line}\n" for line in table()))
        with formatter.section("Environment"):
            formatter.write_dl(
                [
                    ("HOLDFAST_STORE", "the store, where --store is not given"),
                    ("HOLDFAST_MODULES", "modules to import, where --module is not given; separated by commas"),
                    ("HOLDFAST_KEYS", "master keys of an encrypted store: id=base64, separated by commas"),
                    ("HOLDFAST_UI_TOKEN", "the token of the web page: who has it may act"),
                    ("HOLDFAST_UI_VIEW_TOKEN", "the token of the web page for those who may only look"),
                    ("HOLDFAST_TRACEBACK", "1: show where an error came from"),
                    ("NO_COLOR", "anything: no colours"),
                ]
            )

    def invoke(self, ctx: click.Context) -> Any:
        as_json = "--json" in ctx.args
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if as_json:
                _write_error("UsageError", error.format_message(), error.exit_code)
            raise
        except (click.ClickException, click.exceptions.Exit):
            raise
        except click.Abort:  # while something was asked
            click.echo(err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:  # whoever read the output has seen enough
            from holdfast.cli.rendering import fall_silent

            fall_silent()
            ctx.exit(DONE)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except Exception as error:  # a person reads a message, not where it came from
            ctx.exit(told(ctx, error))


def told(ctx: click.Context, error: Exception) -> int:
    """Tell an error to the person, or to the program, that called; the exit status."""
    from holdfast.cli.remedies import told_error
    from holdfast.errors import HoldfastError
    from holdfast.present.words import printable

    code = code_of(error)
    expected = isinstance(error, HoldfastError | OSError)
    text = printable(told_error(error) if expected else f"{type(error).__name__}: {error}")
    as_json = bool(ctx.meta.get("holdfast.json"))
    if as_json:
        try:
            _write_error(type(error).__name__, text, code, getattr(error, "run", None))
        except OSError:  # it may be what is told: standard output is full, or closed
            as_json = False
    if ctx.meta.get("holdfast.traceback") or os.environ.get("HOLDFAST_TRACEBACK", "0") not in ("", "0"):
        import traceback

        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    elif not as_json:
        hint = "" if expected else "\n--traceback shows where it came from."
        click.echo(f"{click.style('Error:', fg='red') if _in_colour() else 'Error:'} {text}{hint}", err=True)
    return code


def _write_error(kind: str, message: str, code: int, run: str | None = None) -> None:
    from holdfast.cli.rendering import write_json

    write_json({"error": {"type": kind, "message": message, "exit": code} | ({"run": run} if run else {})})


def _in_colour() -> bool:
    return not os.environ.get("NO_COLOR") and sys.stderr.isatty()


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from holdfast import __version__

        click.echo(f"holdfast {__version__}")
        ctx.exit()


@click.group(cls=Cli, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def cli() -> None:
    """Durable workflows: they survive a crash, wait for a person, and can be forked and rolled back.

    Begin with `holdfast init`. Every command tells more with --help, and gives JSON with --json.
    """


def main() -> None:
    """The entry point of the command ``holdfast``."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it was closed by whoever called
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # for as long as the process lasts
    if "" not in sys.path:
        sys.path.insert(0, "")  # the folder one stands in, as with `python -m`
    cli.main(prog_name="holdfast")
