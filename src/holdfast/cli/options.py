"""What commands have in common: how they are declared, the options of most of them, and the store that they open."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from holdfast.cli.remedies import STORE
from holdfast.errors import StoreNotFound, UsageError
from holdfast.present.remedies import quoted

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from holdfast.codec import Keyring
    from holdfast.engine.app import Holdfast

    Kind = click.ParamType[Any]
else:
    Kind = click.ParamType  # which takes no parameters in older versions

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_STORE = "sqlite:///.holdfast/holdfast.db"
STATUSES = ("ready", "running", "waiting", "blocked", "completed", "failed", "cancelled", "away")


class Command(click.Command):
    """A command with examples, which its help shows at the end."""

    examples: tuple[str, ...] = ()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            formatter.write("".join(f"  $ {example}\n" for example in self.examples))


def _note(name: str) -> Callable[[click.Context, click.Parameter, bool], bool]:
    """Keep an option where errors are told."""

    def keep(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
        ctx.meta[f"holdfast.{name}"] = value
        return value

    return keep


def command(name: str, *examples: str) -> Callable[[Callable[..., Any]], Command]:
    """Declare a command ``name`` with ``--json`` (the parameter ``as_json``) and ``--traceback``."""

    def declare(function: Callable[..., Any]) -> Command:
        function = click.option(
            "--traceback",
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_note("traceback"),
            help="Show where an error came from.",
        )(function)
        function = click.option(
            "--json", "as_json", is_flag=True, is_eager=True, callback=_note("json"), help="Give JSON, one per line."
        )(function)
        made = click.command(name, cls=Command)(function)
        made.examples = examples
        made.params.sort(key=lambda one: one.name in ("as_json", "traceback"))  # what all have comes last
        return made

    return declare


# --- the store


def with_store(*, make: bool = False) -> Callable[[F], F]:
    """Give the command an open store as its first argument, by ``--store``; with ``make``, it may be made."""

    def declare(function: F) -> F:
        def call(*args: Any, store: str | None, **kwargs: Any) -> Any:
            return function(click.get_current_context().with_resource(opened(store, make=make)), *args, **kwargs)

        call.__doc__ = function.__doc__
        call.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        return store_option(call)  # type: ignore[return-value]

    return declare


def store_option(function: F) -> F:
    """The option ``--store`` alone."""

    def note(ctx: click.Context, param: click.Parameter, url: str | None) -> str | None:
        if ctx.get_parameter_source(param.name or "") is click.core.ParameterSource.COMMANDLINE:
            ctx.meta[STORE] = url  # commands that are told name it, too
        return url

    return click.option(
        "--store",
        envvar="HOLDFAST_STORE",
        metavar="URL",
        callback=note,
        help=f"The store, such as sqlite:///runs.db. Else HOLDFAST_STORE, or {DEFAULT_STORE}.",
    )(function)


def opened(url: str | None, *, make: bool = False) -> Holdfast:
    """The store of that URL, open, or the default one; raises `StoreNotFound` if it is not there and not to be made."""
    import holdfast

    url = url or None
    path = path_of(url or DEFAULT_STORE)
    if path is not None and not os.path.exists(path) and (url is None or not make):
        if url is None:
            raise StoreNotFound(
                path, "there is no store in this folder; `holdfast init` makes one, --store or HOLDFAST_STORE names one"
            )
        raise StoreNotFound(url, f"there is nothing at {path}; `holdfast init --store {quoted(url)}` makes it")
    if path is not None and not os.path.exists(path):
        click.echo(f"There was no store at {path}: a new one is made.", err=True)
    return holdfast.open(url or DEFAULT_STORE, keys=_keys(), secrets=os.environ.get)


def path_of(url: str) -> str | None:
    """The file or folder of a store, if it has one and the URL is as it should be."""
    scheme, _, rest = url.partition(":///")
    return rest.partition("?")[0] or None if scheme in ("sqlite", "files") else None


def _keys() -> Keyring | None:
    """The master keys of ``HOLDFAST_KEYS``; the first is the current one."""
    text = os.environ.get("HOLDFAST_KEYS")
    if not text:
        return None
    from base64 import b64decode
    from binascii import Error

    from holdfast import Keyring

    keys: dict[str, bytes] = {}
    for part in text.split(","):
        id, _, key = part.strip().partition("=")
        try:
            keys[id] = b64decode(key, validate=True)
        except Error:
            raise UsageError("HOLDFAST_KEYS is id=base64, several of them separated by commas") from None
    return Keyring(keys, current=next(iter(keys)))


# --- modules, to be imported before anything is driven or undone


def module_option(function: F) -> F:
    """The option ``--module``, whose modules are imported before the command is called."""

    def load(ctx: click.Context, _: click.Parameter, names: Sequence[str]) -> None:
        if names and not ctx.resilient_parsing:
            from holdfast.cli.targets import import_named

            ctx.meta["holdfast.modules"] = tuple(names)
            for name in names:
                import_named(name)

    return click.option(
        "--module",
        "-m",
        multiple=True,
        metavar="MODULE|FILE.py",
        envvar="HOLDFAST_MODULES",
        expose_value=False,
        callback=load,
        type=_Modules(),
        help="Import this, which declares the workflow. May be repeated.",
    )(function)


class _Modules(Kind):
    """A module or file; in the environment several of them, separated by commas."""

    name = "module"
    envvar_list_splitter = ","

    def split_envvar_value(self, rv: str) -> list[str]:
        return [part for part in rv.split(",") if part]


# --- runs


def _complete_runs(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of runs, for the shell."""
    from click.shell_completion import CompletionItem

    from holdfast.errors import HoldfastError

    try:
        with opened(ctx.params.get("store") or os.environ.get("HOLDFAST_STORE")) as hf:
            found = hf.runs(prefix=incomplete or None, limit=50)
    except (HoldfastError, OSError):  # nobody is there to read a message
        return []
    return [CompletionItem(info.id, help=f"{info.status} {info.workflow or ''}") for info in found]


def run_argument(function: F) -> F:
    """The argument ``RUN``: the id of a run."""
    return click.argument("run", shell_complete=_complete_runs)(function)


def runs_argument(function: F) -> F:
    """The argument ``RUN...``: ids of runs, which may be none."""
    return click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=_complete_runs)(function)


def filter_options(function: F) -> F:
    """Options that say which runs, by what they are; the parameter ``wanted``, a mapping for ``hf.runs``."""

    def call(
        *args: Any,
        status: tuple[str, ...],
        workflow: str | None,
        tag: tuple[tuple[str, str], ...],
        prefix: str | None,
        since: datetime | None,
        before: datetime | None,
        **kwargs: Any,
    ) -> Any:
        given = {
            "status": list(status) or None,
            "workflow": workflow,
            "tags": dict(tag) or None,
            "prefix": prefix,
            "created_from": since,
            "created_before": before,
        }
        return function(*args, wanted={name: value for name, value in given.items() if value is not None}, **kwargs)

    call.__doc__ = function.__doc__
    call.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    moment = "a date, or an age such as 7d"
    for option in reversed(
        (
            click.option("--status", "-s", multiple=True, type=click.Choice(STATUSES), help="May be repeated."),
            click.option("--workflow", "-w", metavar="NAME", help="Runs of this workflow, graph or flow."),
            click.option("--tag", multiple=True, type=PAIR, help="Runs with this tag. May be repeated."),
            click.option("--prefix", metavar="TEXT", help="Runs whose id begins with this."),
            click.option("--since", type=MOMENT, help=f"Runs that were created since then: {moment}."),
            click.option("--before", type=MOMENT, help=f"Runs that were created before then: {moment}."),
        )
    ):
        call = option(call)
    return call  # type: ignore[return-value]


def by_option(function: F) -> F:
    """The option ``--by``: who did it, for the journal."""
    return by_option_of("Who does this; it is kept with what is done.")(function)


def by_option_of(help: str) -> Callable[[F], F]:
    """The option ``--by`` of a command that keeps it with a part of what it does, which the help names."""
    return click.option("--by", metavar="NAME", help=help)


def yes_option(function: F) -> F:
    """The option ``--yes``."""
    return click.option("--yes", "-y", is_flag=True, help="Do it without asking.")(function)


def was_given(name: str) -> bool:
    """Whether the parameter of the command stands on the command line: null is a value, too."""
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def options_given(*names: str) -> list[str]:
    """Which of these parameters stand on the command line, as options."""
    params = {param.name: param.opts[0] for param in click.get_current_context().command.params}
    return [params[name] for name in names if was_given(name)]


def only_one(*names: str) -> str | None:
    """The one of these options that is given, or None; raises `UsageError` if several are."""
    given = options_given(*names)
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} do not go together: say one of them")
    return given[0] if given else None


# --- kinds of values


class _Pair(Kind):
    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not name or not equals:
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return name, text


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class _Duration(Kind):
    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)([smhdw])", str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a time such as 30s, 15m, 12h, 7d or 4w", param, ctx)
        try:
            return timedelta(**{_UNITS[match[2]]: float(match[1])})
        except OverflowError:
            self.fail(f"{value!r} is too long", param, ctx)


class _Seconds(Kind):
    """A duration, or a plain number of seconds; in seconds."""

    name = "DURATION|SECONDS"

    def __init__(self, *, above_0: bool = False) -> None:
        self._range = click.FloatRange(min=0, min_open=above_0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = DURATION.convert(value, param, ctx).total_seconds()
        return self._range.convert(seconds, param, ctx)


class _Moment(Kind):
    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            try:
                return datetime.now(UTC) - DURATION.convert(value, param, ctx)
            except (click.BadParameter, OverflowError):
                self.fail(f"{value!r} is neither a time such as 2026-01-31T09:30 nor an age such as 7d", param, ctx)
        return moment if moment.tzinfo else moment.astimezone()


class _Json(Kind):
    """JSON in the argument itself, in a file (``@path``), or on standard input (``-``)."""

    name = "JSON|@FILE|-"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        place, text = self.read(value, param, ctx)
        return self.parse(place, text, param, ctx)

    def read(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Where the text came from, for messages, and the text."""
        if value == "-":
            return "standard input: ", sys.stdin.read()
        if not value.startswith("@"):
            return "", value
        try:
            with open(value[1:], encoding="utf-8") as file:
                return f"{value[1:]}: ", file.read()
        except (OSError, UnicodeDecodeError) as error:
            self.fail(f"{value[1:]}: {getattr(error, 'strerror', None) or error}", param, ctx)

    def parse(self, place: str, text: str, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """What the JSON says."""
        try:
            return json.loads(text, parse_constant=_refuse_constant)
        except ValueError as error:
            quoted = f", such as {shlex.quote(json.dumps(text, ensure_ascii=False))}" if _is_plain(place, text) else ""
            self.fail(f"{place}this is not JSON: {error}; text stands in double quotes{quoted}", param, ctx)
        except RecursionError:
            self.fail(f"{place}this is nested too deeply", param, ctx)


def _is_plain(place: str, text: str) -> bool:
    """Whether somebody typed a text that was hardly meant as JSON."""
    return not place and text.isprintable() and len(text) <= 60 and text[:1] not in ("{", "[", '"')


class Typed(NamedTuple):
    """What was typed as an answer. The question says whether it is a text, or JSON."""

    text: str
    read: Callable[[], Any]  # as JSON; raises `click.BadParameter`


class _Answer(_Json):
    """JSON, or plain text where one is asked for."""

    name = "JSON|TEXT|@FILE|-"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        place, text = self.read(value, param, ctx)
        return Typed(text, lambda: self.parse(place, text, param, ctx))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


PAIR, DURATION, MOMENT, JSON, ANSWER = _Pair(), _Duration(), _Moment(), _Json(), _Answer()
SECONDS, SECONDS_ABOVE_0 = _Seconds(), _Seconds(above_0=True)
