"""Undo functions are stored by name, so that another process can find them again.

The name is ``module:qualname``. A function that another process could not find (a lambda, a closure, a method of an
instance) is refused when the step is written. When it is looked up, only a Python function that was registered, or
that is defined in the module of that name, is accepted, and never one of the standard library: who can write to a
store must not gain a way to call ``os.system``.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from inspect import Parameter, signature
from types import FunctionType
from typing import Any, TypeVar

from holdfast.errors import UndoRefused

F = TypeVar("F", bound=Callable[..., Any])

_registered: dict[str, Callable[..., Any]] = {}


def undo_function(function: F) -> F:
    """Register a function as an undo under ``module:qualname``; use it as a decorator.

    Needed only where the function cannot be imported from its module by that name.
    """
    _registered[f"{function.__module__}:{function.__qualname__}"] = function
    return function


def declared_name(function: Callable[..., Any]) -> str:
    """The name under which the function is stored, which is registered for it. Used where it is being declared."""
    if not isinstance(function, FunctionType):
        raise UndoRefused(f"undo={function!r} is not a Python function; wrap it in a module-level one")
    undo_function(function)
    return f"{function.__module__}:{function.__qualname__}"


def check_signature(undo: Callable[..., Any], step: str, parameters: list[Parameter]) -> None:
    """Raise `UndoRefused` if the undo cannot take what it is called with: the step's result, then its arguments."""
    by_position = [
        one for one in parameters if one.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    ]
    by_name = [one for one in parameters if one.kind is Parameter.KEYWORD_ONLY]
    try:
        signature(undo).bind(None, *by_position, **{one.name: None for one in by_name})
    except TypeError as error:
        wanted = ", ".join(["result", *(one.name for one in by_position), *(f"*, {one.name}" for one in by_name)])
        raise UndoRefused(
            f"the undo of step {step} is called with the step's result and then its arguments, as "
            f"{undo.__name__}({wanted}); {undo.__name__}{signature(undo)} does not take that: {error}"
        ) from None


def name_of(function: Callable[..., Any]) -> str:
    """The name under which the function is stored; raises `UndoRefused` if it could not be found again."""
    module, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    name = f"{module}:{qualname}"
    if not isinstance(function, FunctionType) or module is None or qualname is None:
        raise UndoRefused(f"undo={function!r} is not a Python function; wrap it in a module-level one")
    if name in _registered:
        return name
    if "<" in qualname:
        raise UndoRefused(
            f"undo={qualname} of {module} is a lambda or lives inside another function, so another process could not "
            "find it by name; make it a module-level function"
        )
    if find(name) is not function:
        raise UndoRefused(f"undo={qualname} is not what {module} has under that name; make it a module-level function")
    return name


def find(name: str) -> Callable[..., Any]:
    """The function of that name; raises `UndoRefused` if there is none that may be called."""
    if name in _registered:
        return _registered[name]
    module_name, _, qualname = name.partition(":")
    if module_name.partition(".")[0] in sys.stdlib_module_names and module_name != "__main__":
        raise UndoRefused(f"undo {name} is in the standard library; wrap it in a function of your own")
    try:
        found: Any = sys.modules.get(module_name) or importlib.import_module(module_name)
        if name in _registered:  # by the module itself, just now
            return _registered[name]
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UndoRefused(f"undo {name} cannot be found here ({error}); {_remedy(module_name, error)}") from error
    if not isinstance(found, FunctionType) or found.__module__ != module_name:
        raise UndoRefused(f"undo {name} is not a function that is defined in {module_name}")
    return found


def check_findable(name: str) -> None:
    """Raise `UndoRefused` if `find` would. Nothing is imported for that, so it cannot tell all."""
    module = name.partition(":")[0]
    top = module.partition(".")[0]
    if is_at_hand(name) or top in sys.stdlib_module_names:
        find(name)
    elif importlib.util.find_spec(top) is None:
        missing = ImportError(f"there is no module {top}")
        raise UndoRefused(f"undo {name} cannot be found here ({missing}); {_remedy(module, missing)}")


def is_at_hand(name: str) -> bool:
    """Whether `find` needs no import."""
    return name in _registered or name.partition(":")[0] in sys.modules


def _remedy(module: str, error: ImportError | AttributeError) -> str:
    if module == "__main__":
        return "it was defined in a script; roll back from that script, or register it with undo_function"
    if isinstance(error, ImportError):
        return "put its folder on PYTHONPATH, or register it with undo_function"
    return "put it back under that name, or register it with undo_function"
