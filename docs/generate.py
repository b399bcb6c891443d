"""Writes the pages of docs/reference that come from the code, the pictures, and the figures that documents quote.

Run it after a change of a docstring; `python -m bench` runs it by itself. How documents quote figures: docs/figures.py.

python docs/generate.py            write what is stale
python docs/generate.py --figures  only what was measured, for which nothing of Holdfast is needed
python docs/generate.py --check    say what is stale, and end with status 1 if anything is
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

DOCS = Path(__file__).resolve().parent

MADE_BY = "<!-- Made by docs/generate.py from the code. Change the docstrings there, not this file. -->"

# The order in which a reader meets them; a name of holdfast.__all__ that is not here is put at the end.
# fmt: off
ORDER = [
    "open", "Holdfast", "workflow", "step", "Run",
    "Graph", "END", "NodeContext", "append", "add", "merge", "union", "keep_last", "quorum",
    "ask", "sleep", "receive", "send", "gather", "map", "first", "timeout", "now", "random", "uuid", "note", "emit",
    "patched", "continue_as_new", "this_run", "this_step", "StepNow", "Done", "Secret", "StepFunction", "Workflow",
    "Queue", "QueueInfo", "Schedule", "ScheduleInfo", "WorkerInfo", "MoveReport", "LeftBehind", "Checkpoint", "Status",
    "Keyring", "undo_function",
]
# fmt: on

# The sections of the page that shows everything at once. A class that is named in EXPANDED is shown with its methods.
# fmt: off
SURFACE = {
    "A store": ["open", "Holdfast", "AsyncHoldfast"],
    "A run": ["Run", "AsyncRun"],
    "Queues and schedules": ["Queue", "AsyncQueue", "Schedule", "AsyncSchedule"],
    "Declare": ["workflow", "step", "Workflow", "StepFunction", "Done", "undo_function"],
    "In a workflow": [
        "ask", "sleep", "receive", "send", "gather", "map", "first", "timeout", "aio", "now", "random", "uuid", "note",
        "emit", "patched", "continue_as_new", "this_run", "this_step", "StepNow",
    ],
    "Graphs": ["Graph", "END", "NodeContext", "append", "add", "merge", "union", "keep_last", "quorum"],
    "Given and returned": [
        "Status", "Page", "RunInfo", "Checkpoint", "EntryInfo", "EntryContents", "StepInfo", "Effect", "Output",
        "Question", "Field", "Activity", "RollbackPlan", "PlannedUndo", "RollbackReport", "AuditReport", "MoveReport",
        "LeftBehind", "QueueInfo", "ScheduleInfo", "WorkerInfo", "Secret", "Keyring",
    ],
}
# fmt: on
EXPANDED = ("Holdfast", "Run", "Queue", "Schedule", "Graph")

# Made by the user, or by a decorator: what else they have is not for users.
FOR_USERS = {
    "Keyring": ("__init__",),
    "Done": ("__init__", "result"),
    "Secret": ("__init__", "from_env", "reveal"),
    "StepFunction": ("name", "function", "options", "undo", "check"),
    "Workflow": ("name", "version", "function"),
    "Graph": (
        "__init__",
        "node",
        "map",
        "subgraph",
        "entry",
        "edge",
        "route",
        "interrupt",
        "goal",
        "check",
        "mermaid",
        "svg",
    ),
}

ALIASES = {
    "Each": "Iterator",
    "HeldRun": "Run",
    "OpenStore": "Holdfast",
    "RunHandle": "Run",
    "Branch": "Callable[[], Any] | Awaitable[Any]",
    "Named": "str | Callable[..., Any]",
    "Point": "int | Literal['failure'] | None",
    "Predicate": "Callable[[Any], bool]",
    "R_co": "R",
}

OWN = frozenset({"client", "held", "perform"})  # what Holdfast's own modules use of a handle

CONSTANTS = {"END": "Where a graph ends: the target of an edge or router, and what a router returns to end there."}

# What the attributes are that a constructor sets: such an attribute has no docstring of its own.
ATTRIBUTES = {
    "Queue.name": "Its name.",
    "Schedule.id": "The id that you gave it.",
    "Run.id": "The id that you gave it.",
    "Run.uid": "Made by Holdfast, and never used again: a deleted run and a later one of the same id differ in it.",
    "Checkpoint.run": "The id of the run.",
    "Checkpoint.seq": "Its sequence number: the run as of this entry.",
    "Checkpoint.workflow": "What the run is a run of.",
    "Checkpoint.state_seq": "The entry in which `state` was saved; None if none was.",
    "Checkpoint.saved_at": "When `state` was saved.",
    "Checkpoint.step": "How many saves came before that one.",
    "Checkpoint.node": "As given to `save`: where the state comes from.",
    "Checkpoint.next": "As given to `save`: what comes next.",
    "Checkpoint.queue": "As given to `save`: what is still to be done.",
    "Checkpoint.variables": "As given to `save`: whatever else your loop needs.",
    "Done.result": "What the step gave.",
    "StepFunction.function": "The plain function, for a test or for a call from inside of another step.",
    "StepFunction.name": "What its keys begin with, such as `charge` of `charge#1`.",
    "Workflow.function": "The plain function.",
    "Workflow.name": "How runs find it again, in any process that has imported it.",
    "Workflow.version": "As declared; a run keeps the one that it was started with.",
    "Holding.epoch": "The number of the claim; every claim of a run has a higher one.",
    "Holding.run": "The run.",
}


# --- the interface ----------------------------------------------------------------------------------------------------


def paragraph(thing: Any) -> str:
    """The first paragraph of a docstring, as one line of Markdown."""
    first = inspect.cleandoc(thing.__doc__ or "").split("\n\n")[0]
    return " ".join(first.split()).replace("``", "`")


def rest(thing: Any) -> str:
    """What follows the first paragraph."""
    _, _, more = inspect.cleandoc(thing.__doc__ or "").partition("\n\n")
    return more.replace("``", "`")


def signature(function: Any, *, name: str, skip_first: bool = False) -> str:
    """How it is called, with the annotations as they stand in the code."""
    told = inspect.signature(function)
    parameters = list(told.parameters.values())[1 if skip_first else 0 :]
    parts: list[str] = []
    star = slash = False
    for parameter in parameters:
        if slash and parameter.kind is not parameter.POSITIONAL_ONLY:
            parts.append("/")
            slash = False
        slash = slash or parameter.kind is parameter.POSITIONAL_ONLY
        star = star or parameter.kind is parameter.VAR_POSITIONAL
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        parts.append(declared(parameter))
    returns = "None" if told.return_annotation in (None, told.empty) else bare(told.return_annotation)
    arrow = "" if returns in ("None", "NoneType") else f" -> {returns}"
    return f"{name}({', '.join(parts)}){arrow}"


def declared(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    annotation = parameter.annotation
    text = f"{stars}{parameter.name}"
    if annotation is not parameter.empty:
        text += f": {bare(annotation)}"
    if parameter.default is not parameter.empty:
        default = "ENDED" if isinstance(parameter.default, frozenset) else repr(parameter.default)
        text += f" = {default}"
    return text


def bare(annotation: Any) -> str:
    """An annotation without the generator that carries it, and with what it stands for if it is a name of ours."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    text = text[3:-1] if text.startswith("Op[") else text
    return re.sub(r"\w+", lambda word: ALIASES.get(word[0], word[0]), text)


def shown_with(cls: type) -> list[type]:
    """The class, and before it what it shares with its async twin, if that is a class of its own."""
    return [one for one in reversed(cls.__mro__) if one is cls or (one.__name__ == "BaseRun" and cls.__name__ == "Run")]


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """The public operations, methods and properties of a class, in the order of the code."""
    for name, member in [pair for one in shown_with(cls) for pair in vars(one).items()]:
        if (
            not name.startswith("_")
            and name not in OWN
            and (
                callable(member)
                or is_property(member)
                or isinstance(member, classmethod)
                or hasattr(member, "function")
            )
        ):
            yield name, member


def is_property(member: Any) -> bool:
    return isinstance(member, property | cached_property)


def attributes_of(cls: type) -> Iterator[tuple[str, str]]:
    """The public attributes that the constructor of the class sets, with their types."""
    made = next((vars(one)["__init__"] for one in shown_with(cls) if "__init__" in vars(one)), None)
    if made is None:
        return
    source = textwrap.dedent(inspect.getsource(made))
    [constructor] = ast.parse(source).body
    assert isinstance(constructor, ast.FunctionDef)
    given = {argument.arg: argument.annotation for argument in (*constructor.args.args, *constructor.args.kwonlyargs)}
    for statement in ast.walk(constructor):
        if isinstance(statement, ast.AnnAssign):
            targets, annotation = [statement.target], statement.annotation
        elif isinstance(statement, ast.Assign):
            targets = statement.targets
            annotation = given.get(statement.value.id) if isinstance(statement.value, ast.Name) else None
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Attribute) and not target.attr.startswith("_") and target.attr not in OWN:
                yield target.attr, f": {ast.unparse(annotation)}" if annotation is not None else ""


def explained(cls: type, attribute: str) -> str:
    try:
        return ATTRIBUTES[f"{cls.__name__}.{attribute}"]
    except KeyError:
        raise SystemExit(f"docs/generate.py: say in ATTRIBUTES what {cls.__name__}.{attribute} is") from None


def described(name: str, thing: Any) -> Iterator[str]:
    """One public name."""
    if inspect.ismodule(thing):
        see = "See [errors](errors.md)" if name == "errors" else "See [types](../howto/async.md#types)"
        yield f"## `holdfast.{name}`\n\n{paragraph(thing)} {see}.\n"
    elif isinstance(thing, str):
        yield f"## `holdfast.{name}`\n\n{CONSTANTS[name]}\n"
    elif isinstance(thing, type) and issubclass(thing, Enum):
        values = ", ".join(f"`{member.value}`" for member in thing)
        yield f"## `{name}`\n\n{paragraph(thing)} {values}. What they mean: [statuses](statuses.md).\n"
    elif isinstance(thing, type) and issubclass(thing, msgspec.Struct):
        yield f"## `{name}`\n\n{paragraph(thing)}\n"
        if more := rest(thing):
            yield f"{more}\n"
        fields = ", ".join(f"`{field}: {bare(thing.__annotations__[field])}`" for field in thing.__struct_fields__)
        yield f"Fields: {fields}.\n"
        if "__iter__" in vars(thing):
            yield "It can be iterated, and has a length: both are of its `items`.\n"
    elif isinstance(thing, type):
        yield from described_class(name, thing)
    else:
        yield f"## `holdfast.{name}`\n\n```\n{signature(thing, name=f'holdfast.{name}')}\n```\n\n{paragraph(thing)}\n"
        if more := rest(thing):
            yield f"{more}\n"


def described_class(name: str, cls: type) -> Iterator[str]:
    yield f"## `{name}`\n\n{paragraph(cls)}\n"
    if name.startswith("Async") and (twin := name.removeprefix("Async")) != "Holding":
        yield f"It has all that [`{twin}`](#{twin.lower()}) has.\n"
    if more := rest(cls):
        yield f"{more}\n"
    shown = FOR_USERS.get(name)
    if shown is not None and "__init__" in shown:
        yield f"- **`{signature(cls.__init__, name=name, skip_first=True)}`**"
    for attribute, annotation in attributes_of(cls):
        if shown is not None and attribute not in shown:
            continue
        yield f"- **`{attribute}{annotation}`**\n  {explained(cls, attribute)}"
    for member_name, member in members(cls):
        if shown is not None and member_name not in shown:
            continue
        attribute = getattr(cls, member_name)
        function = getattr(attribute, "function", attribute)
        if is_property(member):
            yield f"- **`{member_name}{typed(member)}`**\n  {paragraph(member)}"
        else:
            bound = isinstance(member, staticmethod | classmethod)
            how = signature(function, name=member_name, skip_first=not bound)
            yield f"- **`{how}`**\n  {paragraph(function)}"
            if name == "Holdfast" and member_name == "register":
                yield from registration()
            elif more := rest(function):
                yield "  " + more.replace("\n", "\n  ")
    yield ""


def registration() -> Iterator[str]:
    """What `Holdfast.register` passes on."""
    from holdfast.codec import Codec

    how = inspect.getsource(Codec.register).partition("*,")[2].partition(") ->")[0]
    options = ", ".join(line.strip().rstrip(",") for line in how.splitlines() if line.strip())
    yield f"  Options: `{options}`."
    yield "  " + rest(Codec.register).replace("\n", "\n  ")


def typed(member: property | cached_property[Any]) -> str:
    """What a property gives."""
    getter = member.func if isinstance(member, cached_property) else member.fget
    returns = inspect.signature(getter).return_annotation  # type: ignore[arg-type]
    return "" if returns is inspect.Signature.empty else f": {bare(returns)}"


def is_error(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, Exception)


def in_short(name: str, function: Any, *, skip_first: bool = False) -> str:
    """How it is called: the names of its parameters."""
    parameters = list(inspect.signature(function).parameters.values())[1 if skip_first else 0 :]
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    shown = [stars.get(one.kind, "") + one.name for one in parameters]
    while len(", ".join(shown)) > 60:
        shown = [*shown[: -1 if shown[-1] != "…" else -2], "…"]
    return f"{name}({', '.join(shown)})"


def sentence(thing: Any) -> str:
    """What a docstring says first, up to the first mark that is not inside of parentheses."""
    text = paragraph(thing)
    ends = [found.start() for found in re.finditer(r"[.:;] ", text)]
    whole = [end for end in ends if text.count("(", 0, end) == text.count(")", 0, end)]
    return text[: min(whole, default=len(text))].rstrip(".:;") + "."


def overview() -> str:
    """The page that shows the whole interface on three screens."""
    import holdfast

    parts = [
        MADE_BY,
        "# The interface\n",
        "All of it at a glance; [in detail](api-details.md) with every parameter. Three dots stand for more options.",
        "After `async with` every call is awaited; `follow`, `events` and `states` are iterated with `async for`.",
    ]
    for title, names in SURFACE.items():
        parts.append(f"\n## {title}\n")
        for name in names:
            parts += shown(name, getattr(holdfast, name))
    caught = [name for name in holdfast.__all__ if is_error(getattr(holdfast, name))]
    rest = "`holdfast.errors` has these and [all others](errors.md)"
    parts.append(f"\n## Errors\n\n{', '.join(f'`{name}`' for name in caught)}. {rest}.")
    left = set(holdfast.__all__) - {name for names in SURFACE.values() for name in names} - {*caught, "errors"}
    if left:
        raise SystemExit(f"docs/generate.py: say in SURFACE where these belong: {', '.join(sorted(left))}")
    return "\n".join(parts) + "\n"


def shown(name: str, thing: Any) -> Iterator[str]:
    """One public name on the page that shows all of them, with its methods if it is a handle."""
    if isinstance(thing, str):
        yield f"- `{name}`: {CONSTANTS[name]}"
    elif inspect.ismodule(thing) or isinstance(thing, type):
        yield f"- `{name}`: {sentence(thing)}"
    else:
        yield f"- `{in_short(name, thing)}` {sentence(thing)}"
    for member_name, member in members(thing) if name in EXPANDED else ():
        function = getattr(getattr(thing, member_name), "function", getattr(thing, member_name))
        if member_name not in FOR_USERS.get(name, (member_name,)):
            continue
        if is_property(member):
            yield f"  - `.{member_name}` {sentence(member)}"
        else:
            yield f"  - `.{in_short(member_name, function, skip_first=True)}` {sentence(function)}"


def details() -> str:
    import holdfast
    from holdfast.engine.run.claim import AsyncHolding, Holding

    names = ORDER + [name for name in holdfast.__all__ if name not in ORDER and not is_error(getattr(holdfast, name))]
    after = {"Run": Holding, "AsyncRun": AsyncHolding}  # not names of holdfast, but what a claim gives
    parts = [
        MADE_BY,
        "# The interface in detail\n",
        "Every public name of `holdfast`; [at a glance](api.md). A run is made and found through `Holdfast`, and",
        "worked with through `Run`. `workflow`, `step` and what follows `Run`, down to `continue_as_new`, is for",
        "durable functions.\n",
        "On an `AsyncHoldfast` or `AsyncRun` every call below is awaited (not the properties, `close` and `register`;",
        "`follow`, `events` and `states` are iterated with `async for`). Exceptions: see [errors](errors.md).\n",
        "Lists of runs and of history entries are pages: see [`Page`](#page) and `limit`.\n",
    ]
    for name in names:
        parts += described(name, getattr(holdfast, name))
        if name in after:
            parts += described(after[name].__name__, after[name])
    return "\n".join(parts).rstrip() + "\n"


# --- the errors -------------------------------------------------------------------------------------------------------


def errors() -> str:
    import holdfast
    from holdfast import errors

    caught = [name for name in holdfast.__all__ if is_error(getattr(holdfast, name))]
    tree = inspect.cleandoc(errors.__doc__ or "")
    drawing = inspect.cleandoc(tree[tree.index("    HoldfastError") :])
    rows = [
        f"| `{name}` | `{cls.__bases__[0].__name__}` | {paragraph(cls)} |"
        for name, cls in vars(errors).items()
        if isinstance(cls, type) and issubclass(cls, errors.HoldfastError) and cls is not errors.HoldfastError
    ]
    return "\n".join(
        [
            MADE_BY,
            "# Errors\n",
            "Everything that Holdfast raises is a `holdfast.errors.HoldfastError`. What your own workflows, steps and",
            "functions given to `run.once` raise is passed on as it is. A message names the thing, the place and the",
            "remedy. Those that programs often catch are names of `holdfast`, too:",
            f"{', '.join(f'`{name}`' for name in caught)}.\n",
            "```",
            drawing,
            "```\n",
            "| error | is a | what it says if it has nothing more precise to say |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


# --- the figures ------------------------------------------------------------------------------------------------------


@contextmanager
def importable() -> Iterator[None]:
    """What lies beside this file can be imported meanwhile."""
    sys.path[:0] = [str(DOCS), str(DOCS / "pictures")]
    try:
        yield
    finally:
        del sys.path[:2]


def measured() -> dict[Path, str]:
    """The documents with the figures of bench/results.json, and the plots of them."""
    results = json.loads((DOCS.parent / "bench" / "results.json").read_text("utf-8"))
    documents = [DOCS.parent / "README.md", *sorted(DOCS.glob("**/*.md"))]
    with importable():
        import figures

        plots = {DOCS / "pictures" / name: picture for name, picture in figures.pictures(results).items()}
    return plots | {path: figures.quoted(path.read_text("utf-8"), results) for path in documents}


# --- all of it --------------------------------------------------------------------------------------------------------


def made() -> dict[Path, str]:
    """Every generated file with what should be in it."""
    with importable():
        import command_line
        import draw
        import flow_keys
        import http_api

    return measured() | {
        DOCS / "reference" / "api.md": overview(),
        DOCS / "reference" / "api-details.md": details(),
        DOCS / "reference" / "errors.md": errors(),
        DOCS / "reference" / "cli.md": f"{MADE_BY}\n{command_line.page()}",
        DOCS / "reference" / "http.md": f"{MADE_BY}\n{http_api.page()}",
        DOCS / "reference" / "flows.md": f"{MADE_BY}\n{flow_keys.page()}",
        DOCS.parent / "src" / "holdfast" / "flow" / "schema.json": flow_keys.schema(),
        DOCS / "pictures" / "run.svg": draw.run_with_fork_and_rollback(),
    }


def stale(make: Callable[[], dict[Path, str]] = made) -> dict[Path, str]:
    """The files that are not as they should be."""
    return {path: text for path, text in make().items() if not path.exists() or path.read_text("utf-8") != text}


def main() -> int:
    found = stale(measured if "--figures" in sys.argv else made)
    for path, text in found.items():
        print(("stale: " if "--check" in sys.argv else "wrote ") + str(path.relative_to(DOCS.parent)))
        if "--check" not in sys.argv:
            path.write_text(text, "utf-8")
    return 1 if found and "--check" in sys.argv else 0


if __name__ == "__main__":
    raise SystemExit(main())
