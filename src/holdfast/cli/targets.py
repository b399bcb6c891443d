"""What a command is to run: ``module:workflow``, ``path/to/file.py:workflow`` or ``file.yaml``, and its input.

A module is imported because a person named it here, never because a store did.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from holdfast.cli.codes import NOT_FOUND, UNEXPECTED
from holdfast.engine.workflow.declare import Workflow
from holdfast.errors import UsageError
from holdfast.forms import Misfit, form_of, typed
from holdfast.secret import Secret

FLOW_FILES = (".yaml", ".yml")


class TargetRefused(UsageError):
    """What was named cannot be run."""

    def __init__(self, message: str, exit_code: int = NOT_FOUND) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def is_flow(target: str) -> bool:
    """Whether this names a file with a flow."""
    return target.endswith(FLOW_FILES)


# --- modules


def import_named(name: str) -> ModuleType:
    """The module of that name, or the Python file at that path; raises `TargetRefused` if it cannot be imported."""
    is_file = name.endswith(".py") or os.sep in name
    try:
        return _import_file(Path(name)) if is_file else importlib.import_module(name)
    except TargetRefused:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and not is_file and (name == error.name or name.startswith(f"{error.name}.")):
            raise TargetRefused(
                f"there is no module {name!r} here; it is looked for in this folder and on PYTHONPATH, and a file is "
                f"named by its path, such as {name.replace('.', '/')}.py{_instead(name)}"
            ) from None
        raise _failed(name, error) from error
    except (Exception, SystemExit) as error:  # of whatever the module does when it is imported
        raise _failed(name, error) from error


def _instead(name: str) -> str:
    found = Path(f"{name.replace('.', '/')}.yaml")
    if found.is_file():
        return f"; did you mean {found}?"
    near = get_close_matches(name, [path.stem for path in Path().glob("*.py")], 1)
    return f"; did you mean {near[0]}?" if near else ""


def _import_file(path: Path) -> ModuleType:
    """A file is imported as a script is: under its own name, and with its folder to import from."""
    if not path.is_file():
        raise TargetRefused(f"there is no file {path}")
    whole = path.resolve()
    loaded = sys.modules.get(path.stem)
    if loaded is not None:
        if getattr(loaded, "__file__", None) and Path(str(loaded.__file__)).resolve() == whole:
            return loaded
        raise TargetRefused(f"{path}: a module named {path.stem!r} is loaded already; name the file differently")
    if str(whole.parent) not in sys.path:
        sys.path.insert(0, str(whole.parent))
    spec = importlib.util.spec_from_file_location(path.stem, whole)
    if spec is None or spec.loader is None:
        raise TargetRefused(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:  # whatever it is: a half-made module must not be found by the next import
        del sys.modules[path.stem]
        raise
    return module


def _failed(name: str, error: BaseException) -> TargetRefused:
    if isinstance(error, SyntaxError):
        place, text = f"{error.filename}:{error.lineno}", f"SyntaxError: {error.msg}"
    else:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
        place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else name
        text = f"{type(error).__name__}: {error}"
    return TargetRefused(f"{name} could not be imported: {text} ({place})", UNEXPECTED)


# --- workflows


def find_workflow(target: str) -> Workflow[..., Any]:
    """The workflow or graph that ``module:name`` names; of a module alone, the only one that it has."""
    found: Workflow[..., Any] = find_object(target, Workflow, "workflow or graph")
    return found


def find_object(target: str, kind: type, what: str) -> Any:
    """The object of that kind that ``module:name`` names; of a module alone, the only one that it has."""
    place, _, name = target.partition(":")
    if not place:
        raise TargetRefused(f"{target!r}: a {what} is named as module:name, such as orders:fulfil")
    module = import_named(place)
    own = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, kind) and getattr(value, "__module__", None) == module.__name__
    }
    if not name:
        if len(own) == 1:
            return next(iter(own.values()))
        known = ", ".join(f"{place}:{key}" for key in own)
        said = f"it has {known}; name one of them" if own else "it has none"
        raise TargetRefused(f"{target!r}: a {what} is named as module:name; {said}")
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, kind):
        known = f"it has {', '.join(own)}" if own else f"it has no {what} at all"
        is_there = "is no such thing" if found is not None else "is not there"
        raise TargetRefused(f"{name!r} {is_there} in {place}: {known}{_near(name, own)}")
    return found


def _near(name: str, known: Iterable[str]) -> str:
    """The name that was probably meant, if there are several."""
    names = list(known)
    near = get_close_matches(name, names, 1) if len(names) > 1 else []
    return f"; did you mean {near[0]}?" if near else ""


# --- the input


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


def is_graph(workflow: Any) -> bool:
    """Whether it is a graph. What nobody has imported is none."""
    graphs = sys.modules.get("holdfast.graph")
    return graphs is not None and isinstance(workflow, graphs.Graph)


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
