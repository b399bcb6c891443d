"""What a person may type: commands that a shell reads as they are meant, and errors whose remedy is such a command.

The library speaks of calls, such as ``run.unblock()``. Whoever sits at a terminal has no ``run``, but the command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence

import click

from holdfast.errors import KeyMissing, RunNotFound, WorkflowMissing

STORE = "holdfast.store"  # in the meta of click's context: the URL that stands on the command line, if one does


def command_line(name: str, *arguments: str, options: Sequence[str] = ()) -> str:
    """A command as a person would type it, also about a run whose id looks like an option, or has a line break."""
    options = [*options, *(store_words() if "--store" not in options else ())]
    words = [name, *arguments, *options]
    if any(argument.startswith("-") for argument in arguments):
        words = [name, *options, "--", *arguments]
    return " ".join(["holdfast", *map(quoted, words)])


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


def quoted(word: str) -> str:
    """A word for a shell. What a terminal would not show, or obey, is written in escapes."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(_escape(char) for char in word) + "'"


def _escape(char: str) -> str:
    if char in "'\\":
        return f"\\{char}"
    return char if char.isprintable() else "".join(f"\\x{byte:02x}" for byte in char.encode())


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
    for call, instead in _CALLS:
        text = call.sub(lambda found, instead=instead: instead(run or "RUN", found), text)  # type: ignore[misc]
    return text


def _by(*words: str) -> Callable[[str, re.Match[str]], str]:
    """A command about the run."""
    return lambda run, _: command_line(words[0], run, options=words[1:])


def _resolved(run: str, found: re.Match[str]) -> str:
    key = found["key"].strip("'\"")
    return f"{command_line('resolve', run, key, options=['--done', '--result', 'JSON'])} or --not-done"


_CALLS: list[tuple[re.Pattern[str], Callable[[str, re.Match[str]], str]]] = [
    (re.compile(pattern), instead)
    for pattern, instead in (
        (r"`?run\.unblock\(\)`?", _by("unblock")),
        (r"`?run\.unblock\(accept=True\)`?", _by("resume", "--accept")),
        (r"`?run\.retry\(\)`?", _by("retry")),
        (r"`?run\.resume\(\)`?", _by("resume")),
        (r"`?run\.fork\(\)`?", _by("fork")),
        (r"run\.fork\(at=(?P<at>\d+)\)", lambda run, to: command_line("fork", run, options=["--at", to["at"]])),
        (r"`?run\.cancel\(\)`?", _by("cancel")),
        (r"run\.cancel\(force=True\)", _by("cancel", "--force")),
        (r"with force=True", lambda *_: "with --force"),
        (r"`?run\.questions\(\)`?", _by("questions")),
        (r"`?hf\.schedules\(\)`?", lambda *_: f"`{command_line('schedules')}`"),
        (r"`?run\.effects\(\)`?", _by("effects")),
        (r"`holdfast migrate`", lambda *_: f"`{command_line('migrate')}`"),  # with the store that it is about
        (r"`?run\.resolve\(\.\.\.\)`?", _by("resolve")),
        (r"run\.rollback\(to=(?P<to>\d+)\)", lambda run, at: command_line("rollback", run, options=["--to", at["to"]])),
        (r"run\.resolve\((?P<key>'[^']*'|\"[^\"]*\"), done=True, result=\.\.\.\) or done=False", _resolved),
    )
]
