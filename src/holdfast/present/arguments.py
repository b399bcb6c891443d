"""JSON that a person gives as the input of a workflow, as the arguments that it takes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from holdfast.engine.run.handle import Run
from holdfast.engine.workflow.declare import Workflow
from holdfast.errors import UsageError
from holdfast.forms import Misfit, form_of, typed
from holdfast.present.input import is_graph
from holdfast.present.words import FLOW
from holdfast.secret import Secret


def fitted(workflow: Workflow[..., Any], given: Any) -> tuple[list[Any], dict[str, Any]]:
    """The arguments for a workflow from JSON: an object by names, an array by places; raises `UsageError` if not.

    Each is checked against the annotation of its parameter, and all problems are named at once. For a `Secret`, JSON
    has the name of the environment variable that holds it.
    """
    if is_graph(workflow):
        return [_state(workflow, given)], {}
    signature = f"{workflow.name}{workflow.signature}"
    if given is None:
        given = {}
    if not isinstance(given, dict | list):
        raise UsageError(f"--input is an object of the parameters by name, or an array of them in order: {signature}")
    parameters = list(workflow.signature.parameters.values())
    by_place = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    many = next((one for one in parameters if one.kind is one.VAR_POSITIONAL), None)
    anything = next((one for one in parameters if one.kind is one.VAR_KEYWORD), None)
    names = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    types, problems = workflow.types(), list[str]()
    if isinstance(given, list):
        if len(given) > len(by_place) and many is None:
            problems.append(f"it takes {len(by_place)} in order, not {len(given)}")
        slots = [*by_place, *[many] * (len(given) - len(by_place))] if many else by_place
        args = [_value(one.name, types.get(one.name), item, problems) for one, item in zip(slots, given, strict=False)]
        kwargs: dict[str, Any] = {}
        missing = by_place[len(given) :]
    else:
        unknown = [name for name in given if name not in names and anything is None]
        problems += [f"{name}: there is no such parameter" for name in unknown]
        args = []
        kwargs = {name: _value(name, types.get(name), item, problems) for name, item in given.items()}
        missing = [one for one in parameters if one.name in names and one.name not in given]
    problems += [f"{one.name}: is missing" for one in missing if one.default is one.empty]
    if problems:
        raise UsageError(f"--input does not fit {signature}: {'; '.join(problems)}")
    if isinstance(given, list):
        return args, kwargs
    # In order, as far as may be: a parameter may have the name of an option, such as `id` or `queue`.
    bound = workflow.signature.bind_partial(**kwargs)
    return list(bound.args), bound.kwargs


def _state(graph: Any, given: Any) -> Any:
    """The state that a graph begins with; fields that are left out begin as their reducers say."""
    if not isinstance(given, dict | None):
        raise UsageError(f"--input is an object of the fields of the state of graph {graph.name}")
    fields, problems = graph.state.fields, list[str]()
    problems += [f"{name}: there is no such field" for name in given or {} if name not in fields]
    known = {name: item for name, item in (given or {}).items() if name in fields}
    state = {name: _value(name, fields[name].type, item, problems) for name, item in known.items()}
    if problems:
        raise UsageError(f"--input does not fit the state of graph {graph.name}: {'; '.join(problems)}")
    return state


def _value(name: str, hint: Any, given: Any, problems: list[str]) -> Any:
    if hint is None:
        return given
    if hint is Secret:
        return _secret(name, given, problems)
    try:
        form_of(hint)
    except UsageError:  # a type that no form can ask for, but JSON may well hold
        return _converted(name, hint, given, problems)
    try:
        return typed(hint, given)
    except Misfit as misfit:
        problems += [_placed(name, problem) for problem in misfit.problems]
        return None


def _converted(name: str, hint: Any, given: Any, problems: list[str]) -> Any:
    try:
        return msgspec.convert(given, hint, dec_hook=_decoded)
    except (msgspec.ValidationError, TypeError) as error:
        problems.append(f"{name}: {error}")


def _decoded(hint: type, given: Any) -> Any:
    if hint is Path and isinstance(given, str):
        return Path(given)
    raise TypeError(f"JSON has no {hint.__name__}")


def _secret(name: str, given: Any, problems: list[str]) -> Any:
    if not isinstance(given, str) or given not in os.environ:
        problems.append(f"{name}: is a secret; give the name of the environment variable that holds it")
        return None
    return Secret.from_env(given)


def _placed(name: str, problem: str) -> str:
    """What is wrong with a part of a parameter, with the whole way to it."""
    path, _, text = problem.partition(": ")
    if path == "the answer":
        return f"{name}: {text}"
    if path == "value" or path.startswith(("value[", "value.")):
        return f"{name}{path.removeprefix('value')}: {text}"
    return f"{name}.{path}: {text}"


def declare(run: Run) -> None:
    """Let this process execute the run, if it is a flow's: its input has all that it does."""
    if run.info().workflow == FLOW:
        import holdfast.flow  # noqa: F401
