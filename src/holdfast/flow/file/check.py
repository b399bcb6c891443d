"""What is wrong with a flow beyond the shape of its values: ids, actions and what goes with them, names in templates.

Everything here is told to the `Reader`, with its place; nothing is raised, so that all problems are found at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.errors import AnswerRefused, UsageError
from holdfast.flow.file.document import Node, Problem
from holdfast.flow.file.durations import duration
from holdfast.flow.file.keys import ACTIONS, ACTS, GROUPS, TYPES
from holdfast.flow.file.model import Ask, Var
from holdfast.flow.file.shapes import Found, Path, Reader, nearest
from holdfast.flow.file.variables import misfit, type_of
from holdfast.flow.records import wrong_part
from holdfast.flow.template.shell_quoting import enclosed
from holdfast.flow.template.syntax import ROOTS, Reference
from holdfast.forms import check_answer, form, form_of

# What a step's other keys go with: one of these actions, or one of these keys.
_GOES_WITH: dict[str, tuple[str, ...]] = {
    "with": ("call", "flow"),
    "limit": ("for_each", "parallel"),
    "delay": ("loop", "until"),
    "retry": (*ACTS, *GROUPS),
    "undo": ACTS,
    "timeout": (*ACTS, *GROUPS, "ask"),
    "env": ("run", "undo"),
    "cwd": ("run", "undo"),
}
_KINDS_OF = ("type", "options", "fields")  # what is asked for
_SECRET_KEYS = ("run", "env", "http", "with", "undo")  # where a secret may stand in a step


class Within(Struct, frozen=True):
    """Where a step stands: what its templates may use, and what is around it."""

    top: bool = True
    item: bool = False
    index: bool = False
    around: str = ""  # the for_each or parallel that it is inside of
    each: Path = ()  # the step with the innermost for_each that it is inside of


class StepAt(Struct, frozen=True):
    """A step as it was read, and where."""

    data: dict[str, Any]
    path: Path
    within: Within


def steps_of(data: dict[str, Any]) -> Iterator[StepAt]:
    """All steps of a flow as it was read, with those inside of others."""
    yield from _steps(data.get("steps"), ("steps",), Within())


def _steps(steps: Any, path: Path, within: Within) -> Iterator[StepAt]:
    if not isinstance(steps, list):
        return
    for n, step in enumerate(steps):
        if not isinstance(step, dict):
            continue
        yield StepAt(step, (*path, n), within)
        each, loops = "for_each" in step, "loop" in step or "until" in step
        for inner in ("parallel", "steps"):
            around = "parallel" if inner == "parallel" else "for_each" if each else within.around
            at = (*path, n) if each else within.each
            inside = Within(False, within.item or each, within.index or each or loops, around, at)
            yield from _steps(step.get(inner), (*path, n, inner), inside)


def check(reader: Reader, data: dict[str, Any]) -> None:
    """Find what is wrong with a flow as it was read."""
    found = list(steps_of(data))
    _check_ids(reader, found)
    top = [one.data.get("id") for one in found if one.within.top]
    for step in found:
        _check_action(reader, step)
        _check_keys(reader, step)
        _check_places(reader, step, top)
        _check_parts(reader, step)
    _check_vars(reader, data)
    _check_secrets(reader, data)
    _check_templates(reader, data, found)


def _tell(reader: Reader, path: Path, message: str) -> None:
    while path not in reader.places:
        path = path[:-1]
    reader.wrong(reader.places[path], message)


def _check_ids(reader: Reader, found: list[StepAt]) -> None:
    seen: dict[str, int] = {}
    for step in found:
        id = step.data.get("id")
        if isinstance(id, str):
            node = reader.places[(*step.path, "id")]
            if id in seen:
                reader.wrong(node, f"the id {id!r} is taken already, in line {seen[id]}; each step has its own")
            seen.setdefault(id, node.line)


def _check_action(reader: Reader, step: StepAt) -> None:
    actions = [name for name in ACTIONS if name in step.data]
    if not actions:
        _tell(reader, step.path, f"a step does something: it has one of {', '.join(ACTIONS)}")
    elif len(actions) > 1:
        _tell(reader, (*step.path, actions[1]), f"a step does one thing: `{actions[0]}` or `{actions[1]}`, not both")


def _check_keys(reader: Reader, step: StepAt) -> None:
    for name, wanted in _GOES_WITH.items():
        if name in step.data and not any(one in step.data for one in wanted):
            told = ", ".join(f"`{one}`" for one in wanted)
            _tell(reader, (*step.path, name), f"`{name}` goes with {told}, and there is none here")
    if "for_each" in step.data and ("loop" in step.data or "until" in step.data):
        _tell(reader, (*step.path, "for_each"), "a step has items (`for_each`) or rounds (`loop`, `until`), not both")
    if step.data.get("on_failure") == "retry" and not any(name in step.data for name in (*ACTS, *GROUPS)):
        told = ", ".join(f"`{name}`" for name in (*ACTS, *GROUPS))
        _tell(reader, (*step.path, "on_failure"), f"only {told} can be tried again")
    retry = step.data.get("retry")
    if isinstance(retry, dict) and "on" in retry and not ("run" in step.data or "http" in step.data):
        _tell(reader, (*step.path, "retry", "on"), "`on` goes with `run` and `http`, which have codes")


def _check_places(reader: Reader, step: StepAt, top: list[Any]) -> None:
    if not step.within.top and step.data.get("breakpoint"):
        _tell(
            reader, (*step.path, "breakpoint"), "a `breakpoint` is for steps of the flow itself, not inside of others"
        )
    failure = step.data.get("on_failure")
    if isinstance(failure, dict):
        place = (*step.path, "on_failure", "goto")
        goto = failure.get("goto")
        if not step.within.top:
            _tell(reader, place, "`goto` is for steps of the flow itself, not inside of others")
        elif isinstance(goto, str) and goto not in top:
            hint = nearest(goto, [one for one in top if isinstance(one, str)])
            _tell(reader, place, f"there is no step {goto!r} in the flow itself to go to{hint}")
    if "set" in step.data and (step.within.around or "for_each" in step.data):
        around = step.within.around or "for_each"
        why = "whose parts run side by side and do not share variables; use its record afterwards"
        _tell(reader, (*step.path, "set"), f"`set` is inside of a `{around}`, {why}")


def _check_parts(reader: Reader, step: StepAt) -> None:
    data, path = step.data, step.path
    ask, http, undo, wait = (data.get(name) for name in ("ask", "http", "undo", "wait"))
    if isinstance(ask, dict):
        _check_ask(reader, (*path, "ask"), ask, "timeout" in data)
    _check_http(reader, (*path, "http"), http)
    if isinstance(undo, dict):
        _check_one_of(reader, (*path, "undo"), undo, ("run", "http", "call"))
        _check_http(reader, (*path, "undo", "http"), undo.get("http"))
        if "with" in undo and "call" not in undo:
            _tell(reader, (*path, "undo", "with"), "`with` goes with `call`, and there is none here")
    if isinstance(wait, dict):
        _check_one_of(reader, (*path, "wait"), wait, ("for", "until"))
        wait, path = wait.get("for"), (*path, "wait")
    if isinstance(wait, str) and "{{" not in wait and duration(wait) is None:
        _tell(reader, (*path, "for" if "wait" in path else "wait"), f"{wait!r} is not a duration, such as 90 or 5m")


def _check_one_of(reader: Reader, path: Path, data: dict[str, Any], names: tuple[str, ...]) -> None:
    given = [name for name in names if name in data]
    if len(given) != 1:
        _tell(reader, path, f"it has exactly one of {', '.join(names)}, not {', '.join(given) or 'none'}")


def _check_http(reader: Reader, path: Path, http: Any) -> None:
    if isinstance(http, dict) and "json" in http and "body" in http:
        _tell(reader, (*path, "body"), "a request has a `json` or a `body`, not both")


def _check_ask(reader: Reader, path: Path, ask: dict[str, Any], has_timeout: bool) -> None:
    kinds = [name for name in _KINDS_OF if name in ask]
    if len(kinds) > 1:
        _tell(reader, (*path, kinds[1]), f"a question has `{kinds[0]}` or `{kinds[1]}`, not both")
    if "default" in ask and not has_timeout:
        _tell(reader, (*path, "default"), "a `default` is for a question with a `timeout`, and there is none")
    fields = ask.get("fields")
    if isinstance(fields, list) and all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in fields):
        try:
            form(fields)
        except UsageError as error:
            _tell(reader, (*path, "fields"), str(error))
            return
    if "default" in ask and len(kinds) <= 1:
        _check_default(reader, path, ask)


def _check_default(reader: Reader, path: Path, ask: dict[str, Any]) -> None:
    options = ask.get("options", ())
    if any("{" in str(option) for option in options):
        return  # a template, whose text is known only in a run
    try:
        asked = msgspec.convert({"prompt": "", **{name: ask[name] for name in _KINDS_OF if name in ask}}, Ask)
        check_answer("", form_of(asked.kind(tuple(options))), ask["default"])
    except AnswerRefused as refused:
        _tell(reader, (*path, "default"), f"the default is no answer: {'; '.join(refused.problems)}")
    except (msgspec.ValidationError, UsageError):
        return  # what is asked for is wrong itself, which is told elsewhere


def _check_vars(reader: Reader, data: dict[str, Any]) -> None:
    variables = data.get("vars")
    for name, given in variables.items() if isinstance(variables, dict) else ():
        if not isinstance(given, dict):
            continue
        path: Path = ("vars", name)
        kind: Any = given.get("type", type_of(given["default"]) if "default" in given else "text")
        options = given.get("options")
        if kind not in TYPES or not isinstance(options, list | None):
            continue
        for n, option in enumerate(options or ()):
            if wrong := misfit(Var(type=kind), option):
                _tell(reader, (*path, "options", n), f"variable {name!r} {wrong}")
        var = Var(type=kind, options=tuple(options or ()))
        if given.get("default") is not None and (wrong := misfit(var, given["default"])):
            _tell(reader, (*path, "default"), f"the default of variable {name!r} {wrong}")


def _check_secrets(reader: Reader, data: dict[str, Any]) -> None:
    secrets = data.get("secrets")
    for name, given in secrets.items() if isinstance(secrets, dict) else ():
        if isinstance(given, dict):
            _check_one_of(reader, ("secrets", name), given, ("env", "file"))


# --- templates


def _check_templates(reader: Reader, data: dict[str, Any], found: list[StepAt]) -> None:
    ids = [one.data["id"] for one in found if isinstance(one.data.get("id"), str)]
    names = {*_named(data.get("vars")), *(name for one in found for name in _named(one.data.get("set")))}
    secrets = _named(data.get("secrets"))
    by_path = {one.path: one for one in found}
    by_id = {one.data["id"]: one for one in found if isinstance(one.data.get("id"), str)}
    for one in reader.templates:
        step = _step_of(one.path, by_path)
        told: dict[tuple[Reference, str], None] = {}
        for reference in one.template.shape.references:
            name = Reference(reference.root, reference.part)
            wrong = _wrong(name.root, name.part, one.path, step, ids, sorted(names), secrets)
            if wrong is None and name.root == "steps" and name.part is not None:
                named = by_id[name.part]
                wrong = _wrong_inside(name.part, named.within.each, one.path, by_path)
                if wrong is None:
                    is_inside = one.path[: len(named.path)] == named.path
                    wrong = wrong_part(name.part, named.data, reference.below, is_inside)
                    name = reference
            if wrong is not None:
                told[name, wrong] = None
        for name, wrong in told:
            line, column = _place_of(reader, one.node, name)
            reader.problems.append(Problem(reader.source.name, line, column, wrong))
        if _is_command(one.path, step):
            _warn_unquoted(reader, one)


def _named(given: Any) -> list[str]:
    return [name for name in given if isinstance(name, str)] if isinstance(given, dict | list) else []


def _step_of(path: Path, steps: dict[Path, StepAt]) -> StepAt | None:
    for end in range(len(path), 0, -1):
        if path[:end] in steps:
            return steps[path[:end]]
    return None


def _wrong(
    root: str, part: str | None, path: Path, step: StepAt | None, ids: list[str], names: list[str], secrets: list[str]
) -> str | None:
    """What is wrong with a name in a template, if anything is."""
    if root not in ROOTS:
        hint = f"; did you mean `vars.{root}`?" if root in names else nearest(root, sorted(ROOTS))
        return f"there is no name {root!r} here{hint or '; there are ' + ', '.join(sorted(ROOTS))}"
    known = {"vars": names, "steps": ids, "secrets": secrets, "run": ["id", "flow"]}.get(root)
    if known is not None and part is not None and part not in known:
        hint = nearest(part, known) or (f"; there are {', '.join(known)}" if known else "; none is declared")
        return f"there is no `{root}.{part}`{hint}"
    if root == "secrets" and (path[0] != "env" if step is None else path[len(step.path)] not in _SECRET_KEYS):
        return "a secret cannot stand here, where it would be stored; use it in `run`, `env`, `http`, `with` or `undo`"
    if root == "secrets" and step is not None and "flow" in step.data:
        return "a secret is not given to another flow, whose run would store it; declare it there too"
    if step is None and path[0] == "once_per" and root != "vars":
        return f"`{root}` is not known before the run begins; use `vars`"
    if root in ("item", "index"):
        return _wrong_item(root, path, step)
    return None


def _wrong_inside(id: str, each: Path, path: Path, steps: dict[Path, StepAt]) -> str | None:
    """What is wrong with naming a step outside of the `for_each` that it is inside of: it is done many times."""
    if path[: len(each)] == each:
        return None
    around = steps[each].data.get("id", "it")
    return f"step {id!r} is done for each item of {around!r}; outside of that, use `steps.{around}.items`"


def _wrong_item(root: str, path: Path, step: StepAt | None) -> str | None:
    each = step is not None and (step.within.item or "for_each" in step.data)
    rounds = step is not None and (step.within.index or "loop" in step.data or "until" in step.data)
    own = step is not None and path[len(step.path)] in ("when", "for_each")
    if own and step is not None:  # they are there before the items are
        each, rounds = step.within.item, step.within.index
    if each or (root == "index" and rounds):
        return None
    return f"there is no `{root}` here; it is known inside of `for_each`" + (" and `loop`" if root == "index" else "")


def _is_command(path: Path, step: StepAt | None) -> bool:
    if step is None:
        return False
    key = path[len(step.path) :]
    return key in (("run",), ("undo",), ("undo", "run"))


def _place_of(reader: Reader, node: Node, reference: Reference) -> tuple[int, int]:
    """Where in the file a name of a template stands first."""
    parts = [one for one in (reference.part, *reference.below) if one is not None]
    named = "".join(rf"\s*(['\"]\s*\])?\s*(\.\s*|\[\s*['\"]){re.escape(one)}\b" for one in parts) or r"\b"
    name = re.compile(rf"(?<![\w.]){re.escape(reference.root)}{named}")
    found = name.search(reader.source.text, node.start, node.end)
    return reader.source.place(found.start()) if found else (node.line, node.column)


def _warn_unquoted(reader: Reader, found: Found) -> None:
    outputs = found.template.shape.outputs
    for (place, gives), inside in zip(outputs, enclosed(found.template.source), strict=False):
        if gives == "anything":
            message = "a shell reads whatever stands here; write {{ ... | quote }}, so that it is one word"
        elif gives == "a word" and inside:
            message = "`quote` does not help inside of quotes or a here-document; take these away, or use `env`"
        else:
            continue
        line, column = _place(reader, found.node, found.template.source, place)
        reader.problems.append(Problem(reader.source.name, line, column, message, "warning"))


def _place(reader: Reader, node: Node, source: str, place: int) -> tuple[int, int]:
    """Where in the file a ``{{`` of a template is."""
    text = reader.source.text
    index = node.start - 2
    for _ in range(source.count("{{", 0, place + 2)):
        index = text.find("{{", index + 2, node.end)
        if index < 0:
            return node.line, node.column
    return reader.source.place(index)
