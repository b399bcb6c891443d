"""Remedies as commands: what a person at a terminal types, and errors whose remedy is such a command."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from holdfast.errors import KeyMissing, RunNotFound, WorkflowMissing
from holdfast.present import remedies
from holdfast.present.remedies import Remedy, reworded

STORE = "holdfast.store"  # in the meta of click's context: the URL that stands on the command line, if one does


def command_line(name: str, *arguments: str, options: Sequence[str] = ()) -> str:
    """A command as a person would type it, about the same store as this one."""
    store = () if "--store" in options else store_words()
    return remedies.command_line(name, *arguments, options=[*options, *store])


def store_words() -> tuple[str, ...]:
    """What names the store in another command: the option of this one, and nothing where none was given.

    A password is left out; PGPASSWORD, or whatever else libpq reads, has it.
    """
    context = click.get_current_context(silent=True)
    url = context.meta.get(STORE) if context is not None else None
    if not url:
        return ()
    if url.startswith(("sqlite:", "files:")):  # a path may have any character
        return "--store", url
    from holdfast.stores.postgres.url import masked

    return "--store", masked(url)


def told_error(error: BaseException) -> str:
    """An error for people at a terminal."""
    run = getattr(error, "run", None)
    if isinstance(error, RunNotFound):
        return f"there is no run {error.run!r} here; `{command_line('runs')}` lists those that are"
    text = in_commands(str(error), run)
    if isinstance(error, WorkflowMissing):
        return text.replace("import the module that declares it", "name its module with --module")
    if isinstance(error, KeyMissing):
        text = text.replace("; open the store with keys=", "").replace("; add it", "")
        return f"{text}; HOLDFAST_KEYS has the keys of a store, as id=base64"
    return text


def in_commands(text: str, run: str | None) -> str:
    """The same text, with the commands that do what its calls of Python would do."""
    text = reworded(text, run, _command).replace("with force=True", "with --force")
    for call, instead in _OTHERS:
        text = call.sub(lambda _, instead=instead: f"`{command_line(instead)}`", text)  # type: ignore[misc]
    return text


_OTHERS = [  # calls that are about no run; the commands name the store
    (re.compile(r"`?hf\.schedules\(\)`?"), "schedules"),
    (re.compile(r"`holdfast migrate`"), "migrate"),
]


def _command(remedy: Remedy) -> str:
    """A remedy that a text names."""
    if remedy.act == "resolve" and remedy.key is not None:
        return f"{command_line('resolve', *remedy.arguments, options=['--done', '--result', 'JSON'])} or --not-done"
    return typed(remedy)


def typed(remedy: Remedy) -> str:
    """A remedy as the command that does it."""
    return command_line(remedy.act, *remedy.arguments, options=remedy.words)
