"""`holdfast init`, `holdfast migrate` and `holdfast completion`: getting started."""

from __future__ import annotations

import os
from pathlib import Path

import click

from holdfast.cli.options import DEFAULT_STORE, command, path_of, store_option
from holdfast.cli.remedies import command_line, store_words
from holdfast.cli.rendering import say, write_json
from holdfast.present.remedies import quoted

_EXAMPLE = '''"""An example. Run it, press Ctrl-C in the middle, and resume it:

    holdfast run hello.py --input '{"name": "you"}'
"""

import time

from holdfast import ask, step, workflow


@step
def greet(name: str) -> str:
    time.sleep(1)  # it costs time, and perhaps money
    return f"Hello, {name}."


@step(retries=3, target="mailbox of {name}")
def send(name: str, text: str) -> str:
    time.sleep(1)
    return f"sent to {name}: {text}"


@send.undo
def unsend(receipt: str, name: str, text: str) -> None:
    print("taken back:", receipt)


@workflow
def hello(name: str) -> str:
    text = greet(name)
    if not ask(f"Send {text!r}?", bool):  # the process may end here
        return "not sent"
    return send(name, text)
'''


@command("init", "holdfast init", "holdfast init --store files:///runs --no-example")
@click.argument("folder", default=".", type=click.Path(file_okay=False))
@click.option("--example/--no-example", default=True, help="Write the example hello.py, too.")
@store_option
def init_command(folder: str, example: bool, store: str | None, as_json: bool) -> None:
    """Make a store (./.holdfast/holdfast.db, unless --store says otherwise), and a small example to run.

    Nothing that is there already is changed.

    JSON: {"store": URL, "made": [path, …]}.
    """
    import holdfast

    root, made = Path(folder), list[str]()
    root.mkdir(parents=True, exist_ok=True)
    url = store or f"sqlite:///{root / path_of_default()}"
    place = path_of(url)
    if place is not None and not os.path.exists(place):
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        made.append(place)
    with holdfast.open(url) as hf:
        place = hf.place
    if store is None:
        _write(root / ".holdfast" / ".gitignore", "*\n", made)
    if example:
        _write(root / "hello.py", _EXAMPLE, made)
    if as_json:
        write_json({"store": place, "made": made})
        return
    for path in made:
        say(f"made  {path}")
    if not made:
        say("Everything is there already.")
    if example:
        # A store that was named is named from here.
        where = "" if folder == "." or store_words() else f"cd {quoted(folder)} && "
        file = str(root / "hello.py") if store_words() else "hello.py"
        run = command_line("run", file, options=["--input", '{"name": "you"}'])
        say(f"\nTry it:\n  {where}{run}\n  {where}{command_line('runs')}")


def path_of_default() -> str:
    """Where the default store is, below the folder of a project."""
    path = path_of(DEFAULT_STORE)
    assert path is not None
    return path


def _write(path: Path, text: str, made: list[str]) -> None:
    if not path.exists():
        path.write_text(text, encoding="utf-8")
        made.append(str(path))


@command(
    "migrate",
    "holdfast migrate --store postgresql://app@db.example/shop",
)
@store_option
def migrate_command(store: str | None, as_json: bool) -> None:
    """Make the schema of a store in PostgreSQL, or bring it up to date; other stores do that when they are opened.

    May be called by any number of processes at once. Migrate first, then replace the workers one by one: the release
    before works with the new schema.

    JSON: {"made": [number of a migration, …]}.
    """
    from holdfast.stores import migrate

    made = migrate(store or DEFAULT_STORE)
    if as_json:
        write_json({"made": made})
    else:
        say(f"✓ migrations made: {', '.join(map(str, made))}" if made else "✓ it is up to date")


@command(
    "completion",
    'eval "$(holdfast completion bash)"',
    "holdfast completion fish > ~/.config/fish/completions/holdfast.fish",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str, as_json: bool) -> None:
    """Print the script that completes commands, options and the ids of runs in a shell.

    JSON: {"shell": …, "script": …}.
    """
    from click.shell_completion import get_completion_class

    from holdfast.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(cli, {}, "holdfast", "_HOLDFAST_COMPLETE").source()
    write_json({"shell": shell, "script": script}) if as_json else say(script)
