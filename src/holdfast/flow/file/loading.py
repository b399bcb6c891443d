"""From a file to a `Definition`: read, check everything, take in the flows that it calls."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from holdfast.errors import ExtraMissing, UsageError, VarsRefused
from holdfast.flow.actions import web
from holdfast.flow.actions.functions import check_arguments, imported
from holdfast.flow.file.check import StepAt, check, steps_of
from holdfast.flow.file.document import MAX_BYTES, NotRead, Problem, Text, compose, decoded
from holdfast.flow.file.keys import FLOW
from holdfast.flow.file.model import Definition, walk
from holdfast.flow.file.shapes import Path, Reader
from holdfast.flow.file.variables import start_values, type_of

MAX_NESTED = 10  # flows in flows


class Loaded(msgspec.Struct, frozen=True):
    """What came of a file: its definition, if there are no errors among the problems."""

    definition: Definition | None
    problems: tuple[Problem, ...]


def load_file(path: str | os.PathLike[str], above: tuple[str, ...] = ()) -> Loaded:
    """Read and check a flow file, and those that it calls."""
    name = os.fspath(path)
    try:
        data = _read(name)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return Loaded(None, (Problem(name, 1, 1, f"the file cannot be read: {why}"),))
    return load_text(data, name, os.path.dirname(os.path.abspath(name)), above)


def _read(path: str) -> bytes:
    """The bytes of a file; of one that is too large, one more than it may have."""
    with open(path, "rb") as file:
        return file.read(MAX_BYTES + 1)


def load_text(data: bytes | str, name: str, folder: str, above: tuple[str, ...] = ()) -> Loaded:
    """The same for a text that is there already."""
    try:
        source = Text.of(name, data if isinstance(data, str) else decoded(data))
        root = compose(source)
    except NotRead as wrong:
        return Loaded(None, (Problem(name, wrong.line, wrong.column, wrong.message),))
    reader = Reader(source)
    read = reader.read(FLOW, root, ())
    if not isinstance(read, dict):
        return Loaded(None, tuple(reader.problems))
    check(reader, read)
    flows = _taken_in(reader, read, name, folder, above)
    _check_calls(reader, read, folder)
    errors = [one for one in reader.problems if one.severity == "error"]
    problems = tuple(sorted(set(reader.problems)))
    if errors:
        return Loaded(None, problems)
    made = msgspec.convert({**_normal(read), "file": os.path.basename(name), "folder": folder}, Definition)
    made = msgspec.structs.replace(made, flows=flows)
    return Loaded(made, problems)


# --- what the file names


def _check_calls(reader: Reader, data: dict[str, Any], folder: str) -> None:
    for step in steps_of(data):
        _check_call(reader, step.data, step.path, folder)
        undo = step.data.get("undo")
        if isinstance(undo, dict):
            _check_call(reader, undo, (*step.path, "undo"), folder)
        if "http" in step.data or (isinstance(undo, dict) and "http" in undo):
            try:
                web.check_installed()
            except ExtraMissing as missing:
                reader.wrong(reader.places[step.path], str(missing))


def _check_call(reader: Reader, data: dict[str, Any], path: Path, folder: str) -> None:
    name, given = data.get("call"), data.get("with", {})
    if not isinstance(name, str):
        return
    try:
        function = imported(name, folder)
        if isinstance(given, dict):
            check_arguments(name, function, given)
    except UsageError as error:
        reader.wrong(reader.places[*path, "call"], str(error))


def _taken_in(
    reader: Reader, data: dict[str, Any], name: str, folder: str, above: tuple[str, ...]
) -> dict[str, Definition]:
    """The definitions of the flows that the file calls."""
    here = (*above, os.path.realpath(os.path.join(folder, os.path.basename(name))))
    found: dict[str, Definition] = {}
    for step in steps_of(data):
        path = step.data.get("flow")
        if not isinstance(path, str):
            continue
        node = reader.places[*step.path, "flow"]
        if "\0" in path:
            reader.wrong(node, "the path of a file has no NUL character")
            continue
        target = os.path.normpath(os.path.join(folder, path))
        if os.path.realpath(target) in here:
            reader.wrong(node, f"{path} calls this flow itself, directly or by others; use `loop` instead")
        elif len(here) > MAX_NESTED:
            reader.wrong(node, f"flows call each other more than {MAX_NESTED} deep")
        elif not os.path.isfile(target):
            reader.wrong(node, f"there is no file {target}")
        else:
            shown = os.path.join(os.path.dirname(name), path)
            loaded = _load_inner(target, shown, here)
            reader.problems += loaded.problems
            if loaded.definition is not None:
                found[path] = loaded.definition
                _check_given(reader, step, loaded.definition)
    return found


def _load_inner(target: str, shown: str, above: tuple[str, ...]) -> Loaded:
    try:
        data = _read(target)
    except OSError as error:
        return Loaded(None, (Problem(shown, 1, 1, f"the file cannot be read: {error.strerror}"),))
    return load_text(data, shown, os.path.dirname(target), above)


def _check_given(reader: Reader, step: StepAt, child: Definition) -> None:
    given = step.data.get("with", {})
    if not isinstance(given, dict):
        return
    # What a template gives is known only in a run, so only names and what is missing are checked.
    loose = {name: msgspec.structs.replace(var, type="any", options=()) for name, var in child.vars.items()}
    try:
        start_values(msgspec.structs.replace(child, vars=loose), given)
    except VarsRefused as refused:
        place = (*step.path, "with") if "with" in step.data else (*step.path, "flow")
        for problem in refused.problems:
            reader.wrong(reader.places[place], f"{problem.partition('; give')[0]} in {child.file}")


# --- short forms


def _normal(data: dict[str, Any]) -> dict[str, Any]:
    """The data of a flow with everything that may be written in short written out."""
    made = dict(data)
    made["vars"] = {name: _var(given) for name, given in (data.get("vars") or {}).items()}
    secrets = data.get("secrets") or {}
    made["secrets"] = {name: {} for name in secrets} if isinstance(secrets, list) else _sources(secrets)
    if isinstance(data.get("once_per"), str):
        made["once_per"] = {"key": data["once_per"]}
    made["steps"] = [_step(step) for step in data["steps"]]
    return made


def _sources(secrets: dict[str, Any]) -> dict[str, Any]:
    return {name: given or {} for name, given in secrets.items()}


def _var(given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        return {"type": type_of(given), "default": given, "required": False}
    made = dict(given)
    if "default" in given:
        made.setdefault("type", type_of(given["default"]))
        made.setdefault("required", False)
    return made


def _step(given: dict[str, Any]) -> dict[str, Any]:
    made = dict(given)
    if isinstance(given.get("http"), str):
        made["http"] = {"url": given["http"]}
    if isinstance(given.get("ask"), str):
        made["ask"] = {"prompt": given["ask"]}
    if "wait" in given and not isinstance(given["wait"], dict):
        made["wait"] = {"for": given["wait"]}
    if isinstance(given.get("retry"), int):
        made["retry"] = {"times": given["retry"]}
    if "undo" in given:
        made["undo"] = _undo(given["undo"])
    if "breakpoint" in given:
        breakpoint = {True: "before", False: None}.get(given["breakpoint"], given["breakpoint"])
        made["breakpoint"] = breakpoint
    for inner in ("parallel", "steps"):
        if inner in given:
            made[inner] = [_step(step) for step in given[inner]]
    return made


def _undo(given: Any) -> dict[str, Any]:
    if isinstance(given, str):
        return {"run": given}
    return {**given, **({"http": {"url": given["http"]}} if isinstance(given.get("http"), str) else {})}


def functions_of(definition: Definition) -> set[str]:
    """The functions that a flow calls, with the flows inside of it."""
    found = {step.call for step in walk(definition.steps) if step.call is not None}
    found |= {step.undo.call for step in walk(definition.steps) if step.undo is not None and step.undo.call is not None}
    return found.union(*(functions_of(child) for child in definition.flows.values()))
