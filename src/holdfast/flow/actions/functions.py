"""Python functions that a flow calls, found by ``module:function``.

A flow file's modules are imported when the file is loaded, because the file names them. A stored definition causes no
import: a process that goes on with a run uses what it has loaded already.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.engine.workflow.declare import Workflow
from holdfast.engine.workflow.step import StepFunction
from holdfast.errors import UsageError


def imported(name: str, folder: str) -> Callable[..., Any]:
    """The function of that name, whose module is imported if need be, also from the flow's folder."""
    module, _, _ = name.partition(":")
    with _importing_from(folder):
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as error:  # of the module's own code, which may raise anything
            raise UsageError(f"module {module} cannot be imported: {type(error).__name__}: {error}") from error
    return loaded(name)


@contextmanager
def _importing_from(folder: str) -> Iterator[None]:
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def loaded(name: str) -> Callable[..., Any]:
    """The function of that name; raises `UsageError` if its module is not loaded, or has no such function."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    if found is None:
        raise UsageError(f"module {module} is not loaded here; import it in the process that drives the run")
    for part in path.split("."):
        if part.startswith("_") or not hasattr(found, part):
            raise UsageError(f"module {module} has no function {path!r}")
        found = getattr(found, part)
    if isinstance(found, StepFunction):
        found = found.function
    if isinstance(found, Workflow) or inspect.iscoroutinefunction(found) or not callable(found):
        raise UsageError(f"{name} is not a plain function")
    function: Callable[..., Any] = found
    return function


def check_arguments(name: str, function: Callable[..., Any], given: dict[str, Any]) -> None:
    """Raise `UsageError` if the function does not take these arguments."""
    try:
        inspect.signature(function).bind(**given)
    except TypeError as error:
        raise UsageError(f"{name} does not take these arguments: {error}") from None
    except ValueError:  # a builtin without a signature
        return
