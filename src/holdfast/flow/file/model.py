"""A flow as it is stored with its runs: everything that a worker needs to go on, without the file."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct

from holdfast.flow.actions.secrets import Source

FORMAT = 1
_KINDS: dict[str, Any] = {"text": str, "integer": int, "number": float, "boolean": bool}


class Retry(Struct, frozen=True, omit_defaults=True):
    """How an action is tried again."""

    times: int
    delay: float = 1.0
    backoff: float = 2.0
    max_delay: float = 60.0
    on: tuple[int, ...] = ()


class Http(Struct, frozen=True, omit_defaults=True):
    """A request, as templates."""

    url: str
    method: str = "GET"
    headers: dict[str, str] = {}
    params: dict[str, str] = {}
    json: Any = UNSET
    body: str | None = None
    expect: tuple[int, ...] = ()
    follow_redirects: bool = False


class Ask(Struct, frozen=True, omit_defaults=True):
    """A question, as templates. Without type, options or fields it asks for approval."""

    prompt: str
    type: Literal["text", "integer", "number", "boolean"] | None = None
    options: tuple[str, ...] = ()
    fields: tuple[dict[str, Any], ...] = ()
    default: Any = UNSET

    @property
    def is_approval(self) -> bool:
        """Whether a no is a failure."""
        return self.type is None and not self.options and not self.fields

    def kind(self, options: tuple[str, ...]) -> Any:
        """What is asked for, as `holdfast.ask` takes it, with the options filled in."""
        if self.fields:
            return [dict(field) for field in self.fields]
        if options:
            return Literal[options]
        return _KINDS[self.type] if self.type is not None else bool


class Wait(Struct, frozen=True, omit_defaults=True, rename={"span": "for"}):
    """How long to wait, or until when."""

    span: float | str | None = None
    until: str | None = None


class Undo(Struct, frozen=True, omit_defaults=True, rename={"given": "with"}):
    """What takes a step back, as templates."""

    run: str | None = None
    http: Http | None = None
    call: str | None = None
    given: dict[str, Any] = {}
    timeout: float | None = None


class Step(Struct, frozen=True, omit_defaults=True, rename={"given": "with"}):
    """One step. Exactly one of the actions is set. ``at`` is its line and column."""

    id: str
    at: tuple[int, int] = (0, 0)
    title: str | None = None
    run: str | None = None
    call: str | None = None
    http: Http | None = None
    ask: Ask | None = None
    flow: str | None = None  # the key among the flow's ``flows``
    set: dict[str, Any] | None = None
    wait: Wait | None = None
    parallel: tuple[Step, ...] = ()
    steps: tuple[Step, ...] = ()
    given: dict[str, Any] = {}
    when: str | None = None
    for_each: Any = UNSET
    limit: int = 8
    loop: int | None = None
    until: str | None = None
    delay: float = 0.0
    retry: Retry | None = None
    timeout: float | None = None
    undo: Undo | None = None
    on_failure: Literal["abort", "skip", "retry", "rollback"] | dict[str, str] = "abort"
    breakpoint: Literal["before", "after"] | None = None
    env: dict[str, str] = {}
    cwd: str | None = None

    @property
    def action(self) -> str:
        """The name of its action."""
        for name in ("run", "call", "http", "ask", "flow", "wait"):
            if getattr(self, name) is not None:
                return name
        return "set" if self.set is not None else "parallel" if self.parallel else "steps"

    @property
    def goto(self) -> str | None:
        """Where it goes on if it fails."""
        return self.on_failure.get("goto") if isinstance(self.on_failure, dict) else None

    @property
    def inner(self) -> tuple[Step, ...]:
        """The steps inside of it."""
        return self.parallel or self.steps

    @property
    def is_repeated(self) -> bool:
        """Whether it is done several times: for items, or in rounds."""
        return self.for_each is not UNSET or self.loop is not None or self.until is not None


class Var(Struct, frozen=True, omit_defaults=True):
    """A variable."""

    type: Literal["text", "integer", "number", "boolean", "list", "mapping", "any"] = "text"
    default: Any = UNSET
    required: bool = True
    options: tuple[Any, ...] = ()
    description: str | None = None


class Once(Struct, frozen=True, omit_defaults=True):
    """What makes a second start give the run that there is."""

    key: str
    ttl: float | None = None


class Definition(Struct, frozen=True, omit_defaults=True):
    """A whole flow. ``folder`` is where its file is, ``flows`` are the definitions of the flows that it calls."""

    name: str
    file: str
    folder: str
    steps: tuple[Step, ...]
    format: int = FORMAT
    description: str | None = None
    vars: dict[str, Var] = {}
    secrets: dict[str, Source] = {}
    env: dict[str, str] = {}
    cwd: str | None = None
    timeout: float | None = None
    on_failure: Literal["abort", "rollback"] = "abort"
    max_steps: int = 1000
    once_per: Once | None = None
    outputs: dict[str, Any] | None = None
    flows: dict[str, Definition] = {}

    def stored(self) -> dict[str, Any]:
        """As plain data."""
        made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return {"format": FORMAT, **made}

    def place(self, step: Step) -> str:
        """Where a step stands: file, line and column."""
        return f"{self.file}:{step.at[0]}:{step.at[1]}"


def restored(data: Any) -> Definition:
    """The definition that was stored; raises ValueError for what is none, or of a later format."""
    if isinstance(data, dict) and isinstance(data.get("format"), int) and data["format"] > FORMAT:
        raise ValueError(f"it has format {data['format']}, and this Holdfast knows {FORMAT}; upgrade it")
    try:
        return msgspec.convert(data, Definition)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(f"it is no flow: {error}") from None


def walk(steps: tuple[Step, ...]) -> Any:
    """All steps, with those inside of others."""
    for step in steps:
        yield step
        yield from walk(step.inner)
