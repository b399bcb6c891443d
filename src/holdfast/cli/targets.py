"""What a command is to run: ``module:workflow``, ``path/to/file.py:workflow`` or ``file.yaml``.

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

from holdfast.cli.codes import NOT_FOUND, UNEXPECTED
from holdfast.engine.workflow.declare import Workflow
from holdfast.errors import UsageError

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
