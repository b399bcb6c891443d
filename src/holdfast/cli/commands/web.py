"""`holdfast ui`, `hooks` and `hook`: the web page with the HTTP API, and the hooks that it calls."""

from __future__ import annotations

import logging
from typing import Any

import click

from holdfast.cli.commands.worker import told_on
from holdfast.cli.options import command, module_option, only_one, options_given, with_store
from holdfast.cli.remedies import command_line
from holdfast.cli.rendering import columns, say, write_json
from holdfast.cli.session import told_to_end
from holdfast.engine.app import Holdfast
from holdfast.errors import ExtraMissing, UsageError
from holdfast.present.words import one_line

EVENTS = ("question.asked", "run.completed", "run.failed", "run.cancelled")


@command("hooks", "holdfast hooks", "HOLDFAST_HOOK_SECRET=… holdfast hooks --deliver")
@click.option("--deliver", is_flag=True, help="Find what is due and deliver it, until told to stop.")
@with_store()
def hooks_command(hf: Holdfast, deliver: bool, as_json: bool) -> None:
    """List the hooks; or deliver what is due, which one process of a store has to do (several may).

    With --deliver it goes on until Ctrl-C or SIGTERM. What happens is told on standard error. A delivery is a run of
    holdfast.webhook: `holdfast runs --workflow holdfast.webhook` lists them, `holdfast retry` tries a failed one again.

    JSON: {"hooks": [{"name": …, "url": …, "events": […], "secret": variable, "workflow": …, "paused": …}, …]}; with
    --deliver a line for each event, as of `holdfast worker`.
    """
    from holdfast.ui.hooks import hooks

    if deliver:
        from holdfast.ui.outbox import tell_others

        with told_on(as_json=as_json, level=logging.INFO):
            tell_others(hf)
        return
    found = hooks(hf.client.store)
    if as_json:
        write_json({"hooks": [_facts(name, hook) for name, hook in found.items()]})
    elif not found:
        say("No hooks.")
    else:
        _show(found)


def _facts(name: str, hook: Any) -> dict[str, Any]:
    facts = {field: getattr(hook, field) for field in ("url", "events", "secret", "workflow", "paused")}
    return {"name": name, **facts}


def _show(found: dict[str, Any]) -> None:
    rows = [
        (name, hook.url, ", ".join(hook.events), hook.workflow, hook.secret, "paused" if hook.paused else "")
        for name, hook in found.items()
    ]
    columns(("hook", "to", "of", "workflow", "secret in", ""), rows)


@command(
    "hook",
    "holdfast hook chat --url https://chat.example.org/in --secret-env HOLDFAST_HOOK_SECRET --on question.asked",
    "holdfast hook chat --pause",
    "holdfast hook chat --delete",
)
@click.argument("name")
@click.option("--url", metavar="URL", help="Where to.")
@click.option("--secret-env", "secret", metavar="NAME", help="The environment variable that has the secret.")
@click.option("--on", "events", multiple=True, type=click.Choice(EVENTS), help="Of what; may be repeated. Else of all.")
@click.option("--workflow", "-w", metavar="NAME", help="Only of runs of this workflow.")
@click.option("--pause", is_flag=True, help="Tell nothing.")
@click.option("--resume", is_flag=True, help="Tell what happens from now on.")
@click.option("--delete", is_flag=True, help="Forget it.")
@with_store()
def hook_command(
    hf: Holdfast,
    name: str,
    url: str | None,
    secret: str | None,
    events: tuple[str, ...],
    workflow: str | None,
    pause: bool,
    resume: bool,
    delete: bool,
    as_json: bool,
) -> None:
    """Make a hook, change it, pause or delete it. `holdfast hooks --deliver` delivers.

    The secret stays in the environment of whoever delivers; here it is only said in which variable.

    JSON: {"hook": hook}, as of `holdfast hooks`; with --delete {"deleted": name}.
    """
    from holdfast.ui.hooks import Event, delete_hook, hooks, set_hook

    paused = pause if only_one("pause", "resume", "delete") in ("--pause", "--resume") else None
    if delete:
        if settings := options_given("url", "secret", "events", "workflow"):
            raise UsageError(f"{', '.join(settings)} and --delete do not go together: a hook is set, or deleted")
        if not delete_hook(hf, name):
            raise UsageError(f"there is no hook {name!r}; `{command_line('hooks')}` lists those that are")
        write_json({"deleted": name}) if as_json else say(f"✓ {one_line(name)} is deleted")
        return
    given = (url, secret, events or None, workflow, paused)
    if any(one is not None for one in given):
        if name not in hooks(hf.client.store) and (url is None or secret is None):
            raise UsageError(f"there is no hook {name!r}; make it with --url and --secret-env")
        chosen = tuple(Event(one) for one in events) or None
        set_hook(hf, name, url=url, secret=secret, events=chosen, workflow=workflow, paused=paused)
    found = hooks(hf.client.store).get(name)
    if found is None:
        raise UsageError(f"there is no hook {name!r}; make it with --url and --secret-env")
    write_json({"hook": _facts(name, found)}) if as_json else _show({name: found})


@command(
    "ui",
    "holdfast ui --open",
    "holdfast ui --module orders --as front-desk",
    "HOLDFAST_UI_TOKEN=… holdfast ui --host 0.0.0.0 --allow-host runs.example.org",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=4653, show_default=True, help="0 takes a free one.")
@click.option("--open", "opens", is_flag=True, help="Open it in a browser.")
@click.option("--as", "name", default="web", show_default=True, metavar="NAME", help="Who acts, for the journal.")
@click.option(
    "--token", envvar="HOLDFAST_UI_TOKEN", metavar="TEXT", help="Who has it may act; else one is made up and shown."
)
@click.option("--view-token", envvar="HOLDFAST_UI_VIEW_TOKEN", metavar="TEXT", help="Who has it may look, not act.")
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME[:PORT]", help="Answer under this name too. May be repeated."
)
@module_option
@with_store()
def ui_command(
    hf: Holdfast,
    host: str,
    port: int,
    opens: bool,
    name: str,
    token: str | None,
    view_token: str | None,
    hosts: tuple[str, ...],
    as_json: bool,
) -> None:
    """Serve the web page and the HTTP API, until Ctrl-C.

    It listens on this machine alone, and the address that is shown has a token in it. At another address it wants a
    token that was set on purpose, by HOLDFAST_UI_TOKEN. To begin workflows, to undo and to fork with another input, the
    code must be here: name its module by --module. Needs the extra ui.

    JSON, one line when it can be opened: {"url": …, "host": …, "port": n}.
    """
    try:
        from holdfast.ui.serve import Address, Settings, serve
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("holdfast"):
            raise
        raise ExtraMissing("holdfast ui", "ui") from error

    def ready(address: Address) -> None:
        if as_json:
            write_json(address)
        else:
            say(f"Holdfast is at {address.url}")
            say("Sign in with the token that you set." if token else "Keep that address to yourself. Ctrl-C ends it.")
        if opens:
            import webbrowser

            webbrowser.open(address.url)

    settings = Settings(
        host=host, port=port, token=token or None, view_token=view_token or None, name=name, allow_hosts=hosts
    )
    try:
        with told_to_end():
            serve(hf, settings, ready)
    except KeyboardInterrupt:  # as one ends it
        if not as_json:
            say("The server has stopped.", err=True)
