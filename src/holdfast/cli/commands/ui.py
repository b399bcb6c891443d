"""`holdfast ui`: the web page, and the HTTP API."""

from __future__ import annotations

import click

from holdfast.cli.options import command, module_option, with_store
from holdfast.cli.rendering import say, write_json
from holdfast.cli.session import told_to_end
from holdfast.engine.app import Holdfast
from holdfast.errors import ExtraMissing


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
